"""Disks that break, for real processes.

A file system behind FUSE that passes everything to a directory, and does to it what a test asks
for.

Why: what a broker promises is "on disk", and only a disk that forgets what was not synced, is full,
or stands still can show whether it is true (LazyFS and CharybdeFS do the same for databases).
``mount.py`` is the file system as a program, ``faulty_disk.py`` whoever runs it. The modules that a
container needs keep to the standard library.
"""

from filesystems.fuse import FUSE_MODULES

DISK_MODULES = (
    *FUSE_MODULES,
    "filesystems/disk/__init__.py",
    "filesystems/disk/condition.py",
    "filesystems/disk/conversation.py",
    "filesystems/disk/damage.py",
    "filesystems/disk/inodes.py",
    "filesystems/disk/mount.py",
    "filesystems/disk/namespace.py",
    "filesystems/disk/passthrough.py",
    "filesystems/disk/unsynced.py",
)
"""What ``python -m filesystems.disk.mount`` consists of.

Copied into an image it runs there on the standard library alone.
"""
