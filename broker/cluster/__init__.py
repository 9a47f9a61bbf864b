"""The conversation between brokers: links, membership, forwarding, quorum votes."""
