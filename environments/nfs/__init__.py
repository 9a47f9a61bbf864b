"""A real NFSv4 store: the server (nfs-ganesha), and a client that needs no kernel support but FUSE.

Why a client of our own: many machines that run tests have no NFS in their kernel, and what a shared
store must survive is what NFS does to its clients: leases that expire, locks that are lost or
reclaimed, mounts that wait or give up. ``mount.py`` is that client as a program, ``mounting.py``
chooses between it and the kernel's, ``ganesha.py`` runs the server. The modules that a container
needs keep to the standard library.
"""

from environments.fuse import FUSE_MODULES

CLIENT_MODULES = (
    *FUSE_MODULES,
    "environments/nfs/__init__.py",
    "environments/nfs/asking.py",
    "environments/nfs/attributes.py",
    "environments/nfs/await_mount.py",
    "environments/nfs/client.py",
    "environments/nfs/data.py",
    "environments/nfs/files.py",
    "environments/nfs/filesystem.py",
    "environments/nfs/locking.py",
    "environments/nfs/mount.py",
    "environments/nfs/namespace.py",
    "environments/nfs/nodes.py",
    "environments/nfs/numbered_operations.py",
    "environments/nfs/open_files.py",
    "environments/nfs/operations.py",
    "environments/nfs/options.py",
    "environments/nfs/rpc.py",
    "environments/nfs/status.py",
    "environments/nfs/xdr.py",
)
"""What ``python -m environments.nfs.mount`` consists of.

Copied into an image it runs there on the standard library alone.
"""
