"""The environments in which brokers run, and the faults that can be injected there."""
