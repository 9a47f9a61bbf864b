"""Histories that other harnesses recorded, read into stores like a run's."""
