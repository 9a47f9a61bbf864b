"""The systems under test that the harness knows."""
