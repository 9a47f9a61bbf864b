"""STOMP without I/O: versions, frames, limits and codec, as a broker and its clients share them.

Why not named ``stomp``: that is the name of stomp.py's package, a client with which our users may
share an environment.
"""
