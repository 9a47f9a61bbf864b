"""A real NFSv4 store: the server (nfs-ganesha), and a client that needs no kernel support but FUSE.

Why a client of our own: many machines that run tests have no NFS in their kernel, and what a shared
store must survive is what NFS does to its clients: leases that expire, locks that are lost or
reclaimed, mounts that wait or give up. ``mount.py`` is that client as a program, ``mounting.py``
chooses between it and the kernel's, ``ganesha.py`` runs the server. The modules that a container
needs keep to the standard library.
"""

from filesystems.fuse import FUSE_MODULES

CLIENT_MODULES = (
    *FUSE_MODULES,
    "filesystems/nfs/__init__.py",
    "filesystems/nfs/asking.py",
    "filesystems/nfs/attributes.py",
    "filesystems/nfs/await_mount.py",
    "filesystems/nfs/client.py",
    "filesystems/nfs/data.py",
    "filesystems/nfs/files.py",
    "filesystems/nfs/filesystem.py",
    "filesystems/nfs/locking.py",
    "filesystems/nfs/mount.py",
    "filesystems/nfs/namespace.py",
    "filesystems/nfs/nodes.py",
    "filesystems/nfs/numbered_operations.py",
    "filesystems/nfs/open_files.py",
    "filesystems/nfs/operations.py",
    "filesystems/nfs/options.py",
    "filesystems/nfs/rpc.py",
    "filesystems/nfs/status.py",
    "filesystems/nfs/xdr.py",
)
"""What ``python -m filesystems.nfs.mount`` consists of.

Copied into an image it runs there on the standard library alone.
"""
