"""A STOMP client that fails over to another broker; see docs/how-to/fail-over-client.md."""
