"""How tests of our brokers' high-availability policies are planned and configured, a module for
each policy.
"""
