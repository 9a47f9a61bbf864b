"""STOMP 1.2: the codec without I/O, and the sessions of a server."""
