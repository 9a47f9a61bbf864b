"""The workloads: what clients do in a test, and what they record."""
