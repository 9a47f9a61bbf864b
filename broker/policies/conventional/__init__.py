"""The policy of a conventional cluster, in which messages stay at the broker that took them."""
