"""A real NFSv4 store: the server (nfs-ganesha), and a client that needs no kernel support but FUSE.

Why a client of our own: many machines that run tests have no NFS in their kernel, and what a shared store must survive is what NFS
does to its clients: leases that expire, locks that are lost or reclaimed, mounts that wait or give up. ``mount.py`` is
that client as a program, ``mounting.py`` chooses between it and the kernel's, ``ganesha.py`` runs the server.
The modules that a container needs keep to the standard library.
"""
