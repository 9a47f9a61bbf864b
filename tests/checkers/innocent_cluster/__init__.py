"""An innocent cluster: brokers that do nothing wrong, in a test that does everything.

Why a simulation of its own: nothing here is taken from our broker, its workloads or the rules of the
checkers. It knows what really happened, clients see little of it, and what they see is the history.
So whatever is found in such a history is a false accusation.

A history is made from its seed alone: ``innocent(seed)``.
"""

from __future__ import annotations

from innocent_cluster.habits import Habits
from innocent_cluster.recording import Row
from innocent_cluster.world import World

__all__ = ["Habits", "Row", "World", "innocent"]


def innocent(seed: int) -> list[Row]:
    """One history, its rows without what is null."""
    return World(seed).run()
