"""The commands that make many tests: search, sweep, replay and shrink."""
