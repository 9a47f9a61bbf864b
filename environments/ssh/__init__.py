"""Machines that are reached over ssh: which they are, and each of them as a host."""
