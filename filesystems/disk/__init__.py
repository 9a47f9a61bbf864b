"""Disks that break, for real processes.

A file system behind FUSE that passes everything to a directory, and does to it what a test asks
for.

Why: what a broker promises is "on disk", and only a disk that forgets what was not synced, is full,
or stands still can show whether it is true (LazyFS and CharybdeFS do the same for databases).
``mount.py`` is the file system as a program, ``faulty_disk.py`` whoever runs it. All of it keeps to
the standard library, as what is copied into containers must.
"""

from filesystems import modules_of

DISK_MODULES = modules_of("fuse", "disk")
"""What ``python -m filesystems.disk.mount`` consists of."""
