"""The stored parts of a test: spec, history, run directory, verdict."""
