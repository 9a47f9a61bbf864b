"""What clients do, and what they promise to record."""
