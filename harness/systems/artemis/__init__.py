"""Apache ActiveMQ Artemis (and so any AMQ Broker 7) as a system under test."""
