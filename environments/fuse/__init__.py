"""File systems in user space: the kernel's FUSE protocol spoken directly, for whatever file system answers it.

Why one house: the client of NFS (``environments.nfs``) and the disk that breaks (``environments.disk``) are asked the same questions in the same bytes. ``device.py``
mounts, ``connection.py`` takes requests and gives answers back, ``kernel.py`` is their bytes. What a file system does about a request is its own.
The standard library alone: both run in containers as copied modules.
"""

FUSE_MODULES = (
    "environments/__init__.py",
    "environments/fuse/__init__.py",
    "environments/fuse/attributes.py",
    "environments/fuse/connection.py",
    "environments/fuse/device.py",
    "environments/fuse/kernel.py",
)
"""What every file system in user space needs besides its own modules."""
