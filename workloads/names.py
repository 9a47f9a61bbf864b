"""The names and numbers of a test that must be unique in it.

Why in one place: several workloads may share a test. Each names its queues, topics and temporary
queues with a prefix of its own. All take the numbers of sessions, transactions and producers from
the same ``Numbers``.
"""

from __future__ import annotations

import itertools

from harness.interface import TEMPORARY
from workloads.sessions import Sessions


class Numbers:
    """The source of the unique numbers of one test, shared by its workloads."""

    def __init__(self) -> None:
        self.sessions = Sessions()
        self.transactions = itertools.count(1)
        self.temporaries = itertools.count()
        self._producers = 0

    def producers(self, count: int) -> int:
        """Reserve ``count`` successive producers, and return the number of the first."""
        first = self._producers
        self._producers += count
        return first


def queues(prefix: str, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` queues."""
    return tuple(f"{prefix}q{number}" for number in range(count))


def topics(prefix: str, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` topics, as they stand in a history."""
    return tuple(f"/topic/{prefix}t{number}" for number in range(count))


def temporary_queue(prefix: str, number: int) -> str:
    """Return the name of a temporary queue, as it stands in a history."""
    return f"{TEMPORARY}{prefix}r{number}"
