"""Apache ActiveMQ Classic as a system under test."""
