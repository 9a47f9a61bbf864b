"""Brokers with one known bug each, and the proof that the search finds it."""
