"""RabbitMQ as a system under test."""
