"""A PostgreSQL server of a run's own, as a process.

It is made, queried, stopped with all its backends, and reached through a relay that can lose
connections.

This package imports only the standard library: the same modules run in the database's container,
where nothing else is installed.
"""
