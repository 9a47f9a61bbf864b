"""A real NFSv4 store: the server (nfs-ganesha), and a client that needs no kernel support but FUSE.

Why a client of our own: many machines that run tests have no NFS in their kernel, and what a shared
store must survive is what NFS does to its clients: leases that expire, locks that are lost or
reclaimed, mounts that wait or give up. ``mount.py`` is that client as a program;
``environments`` chooses between it and the kernel's, and runs the server. All of it keeps to the
standard library, as what is copied into containers must.
"""

from filesystems import modules_of

CLIENT_MODULES = modules_of("fuse", "nfs")
"""What ``python -m filesystems.nfs.mount`` consists of."""
