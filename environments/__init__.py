"""Where brokers run, and what can be broken there."""
