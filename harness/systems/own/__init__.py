"""Our own broker as a system under test."""
