"""The shrinking of a failing test: it is made smaller while it still fails."""
