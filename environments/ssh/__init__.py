"""Machines that are reached over ssh: the list of them, and each of them as a host."""
