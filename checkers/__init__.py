"""Decides with Spark what a history shows."""
