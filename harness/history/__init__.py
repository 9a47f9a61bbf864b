"""What is kept of a test: spec, history, run directory, verdict."""
