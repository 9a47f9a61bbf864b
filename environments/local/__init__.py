"""Brokers as processes of this machine."""
