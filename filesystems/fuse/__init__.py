"""File systems in user space: the kernel's FUSE protocol, spoken directly.

Why one package: the client of NFS (``filesystems.nfs``) and the disk that breaks
(``filesystems.disk``) get the same requests in the same bytes. ``mount.py`` mounts by ``device.py``
and answers through ``connection.py``, in the bytes of ``kernel.py``. Each file system answers
requests in its own way, except for what is the same for all: ``session.py``, ``directories.py``,
``node_table.py``. The package uses only the standard library, because both file systems run in
containers as copied modules.
"""
