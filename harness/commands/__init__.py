"""The command line of ``jepsen-run``."""
