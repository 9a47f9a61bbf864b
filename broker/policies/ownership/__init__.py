"""Owning what a store keeps, for as long as nobody else may: the lease, and what a policy has of
it.
"""
