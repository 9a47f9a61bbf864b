"""The client of a real NFSv4 store, which needs no kernel support but FUSE.

Why a client of our own: many machines that run tests have no NFS in their kernel. And a shared
store must survive what NFS does to its clients: leases that expire, locks that are lost or
reclaimed, mounts that wait or give up. ``mount.py`` is the client as a program; ``environments``
chooses between it and the kernel's client, and runs the server (nfs-ganesha). The package uses only
the standard library, because it is copied into containers.
"""

from filesystems import modules_of

CLIENT_MODULES = modules_of("fuse", "nfs")
"""The modules that ``python -m filesystems.nfs.mount`` needs."""
