"""What a person reads of a test."""
