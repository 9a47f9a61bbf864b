"""A PostgreSQL server of a run's own, as a process.

Made, asked, stopped with all its backends, and reached through a relay that can lose connections.

Only the standard library is imported here: the same modules run in the database's container, where
nothing else is installed.
"""
