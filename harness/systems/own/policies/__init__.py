"""The planning and configuration of tests of our brokers' policies of high availability.

There is a module for each policy.
"""
