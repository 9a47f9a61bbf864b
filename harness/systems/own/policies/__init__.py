"""How tests of our brokers' policies of high availability are planned and configured.

A module for each policy.
"""
