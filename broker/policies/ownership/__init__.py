"""Owning what a store keeps, for as long as nobody else may.

The lease, and what a policy has of it.
"""
