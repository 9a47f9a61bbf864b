"""File systems in user space.

The kernel's FUSE protocol spoken directly, for whatever file system answers it.

Why one house: the client of NFS (``filesystems.nfs``) and the disk that breaks
(``filesystems.disk``) are asked the same questions in the same bytes. ``mount.py`` mounts by
``device.py`` and answers through ``connection.py``, in the bytes of ``kernel.py``. What a file
system does about a request is its own, but for what is the same for all: ``session.py``,
``directories.py``, ``node_table.py``. The standard library alone: both run in containers as copied
modules.
"""
