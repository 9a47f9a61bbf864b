"""Open MQ (Sun's Message Queue) as a system under test."""
