"""Replication (AMQ 17.3.3).

The backup has what the live acknowledged, and votes decide who is live when they lose each other.
"""

from broker.policies.replication.policy import EXIT_VOTE_LOST, ReplicationPolicy, VoteLostError

__all__ = ["EXIT_VOTE_LOST", "ReplicationPolicy", "VoteLostError"]
