"""The claims with the brokers of others: how each row is run with them, and the results."""
