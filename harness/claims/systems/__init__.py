"""The claims with the brokers of others: how each row is run there, and what comes of it."""
