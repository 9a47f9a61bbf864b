"""STOMP without I/O: the versions, frames, limits and codec that a broker and its clients share.

Why the package is not named ``stomp``: stomp.py's package has that name, a client that our users
may have installed in the same environment.
"""
