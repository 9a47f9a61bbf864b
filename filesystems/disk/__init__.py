"""Disks that break, for real processes.

A disk is a FUSE file system that passes everything to a directory, and breaks as a test asks.

Why: brokers promise that data are "on disk". A disk that forgets what was not synced, is full, or
stands still shows whether that is true. LazyFS and CharybdeFS do the same for databases.
``mount.py`` is the file system as a program, ``faulty_disk.py`` runs it. The package uses only the
standard library, because it is copied into containers.
"""

from filesystems import modules_of

DISK_MODULES = modules_of("fuse", "disk")
"""The modules that ``python -m filesystems.disk.mount`` needs."""
