"""Brokers as containers, each with an agent inside (``environments.agent``)."""
