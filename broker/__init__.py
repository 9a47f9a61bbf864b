"""The system under test: a STOMP message broker with clusters and high availability."""
