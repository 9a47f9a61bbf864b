"""An innocent cluster: brokers that do nothing wrong, in a test that does everything.

Why a simulation of its own: nothing here is taken from our broker, its workloads or the rules of
the checkers. It knows what really happened, clients see little of it, and what they see is the
history. So whatever is found in such a history is a false accusation.

A history is made from its seed alone: ``innocent(seed)``.
"""

from __future__ import annotations

from typing import Any

from checkers.verdict import CheckOptions
from innocent_cluster.habits import Habits
from innocent_cluster.recording import Row
from innocent_cluster.world import World

__all__ = ["Habits", "Row", "World", "innocent", "patience_with"]


def innocent(seed: int, **habits: Any) -> tuple[list[Row], CheckOptions]:
    """One history, its rows without what is null, and what its brokers promised.

    ``habits`` are not drawn from the seed.
    """
    world = World(seed, habits=habits)
    return world.run(), patience_with(world.habits)


def patience_with(habits: Habits) -> CheckOptions:
    """How to judge such brokers; pages may put off what is urgent, as the page of verdicts says."""
    not_judged: dict[str, Any] = {} if habits.page is None else {"priority-inversion": "there are pages"}
    return CheckOptions(
        unavailable_bound_s=8.0, recovery_bound_s=6.0, broker=habits.promises, not_judged=not_judged
    )
