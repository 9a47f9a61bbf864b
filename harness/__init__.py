"""The harness: it composes a test, runs it, keeps its history and reports on it."""

__version__ = "0.2.0"
"""The version of the package: the build, ``--version`` and stored runs have it from here."""
