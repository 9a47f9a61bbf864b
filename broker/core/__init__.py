"""What a live broker holds: queues, groups, consumers, transactions."""
