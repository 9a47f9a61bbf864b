"""Disks that break, for real processes.

A file system behind FUSE that passes everything to a directory, and does to it what a test asks
for.

Why: what a broker promises is "on disk", and only a disk that forgets what was not synced, is full,
or stands still can show whether it is true (LazyFS and CharybdeFS do the same for databases).
``mount.py`` is the file system as a program, ``faulty_disk.py`` whoever runs it. The modules that a
container needs keep to the standard library.
"""

from environments.fuse import FUSE_MODULES

DISK_MODULES = (
    *FUSE_MODULES,
    "environments/disk/__init__.py",
    "environments/disk/condition.py",
    "environments/disk/conversation.py",
    "environments/disk/damage.py",
    "environments/disk/inodes.py",
    "environments/disk/mount.py",
    "environments/disk/namespace.py",
    "environments/disk/passthrough.py",
    "environments/disk/unsynced.py",
)
"""What ``python -m environments.disk.mount`` consists of.

Copied into an image it runs there on the standard library alone.
"""
