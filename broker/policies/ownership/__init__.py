"""The ownership of a store: a broker serves the store's data for as long as no other broker may.

The package has the lease, and the policies' common part around it.
"""
