"""The harness: it composes a test, runs it, keeps its history and reports on it."""
