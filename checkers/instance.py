"""Instances of anomalies, in the form that both implementations share, and their counts.

Why so few fields: two implementations can only be compared on what the definitions fix. ``index``
is the row that completes the anomaly (the late delivery, the send that was lost). Everything that
is said in words is read from the witness.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instance:
    """An occurrence of an anomaly.

    Where ``message`` is None, ``key`` says to which group, broker or history it belongs.
    """

    name: str
    queue: str | None
    group: str | None
    message: int | None
    index: int
    key: str | None = None
    run: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """The number of instances of one kind in one run, and the earliest of them."""

    count: int
    first: tuple[Instance, ...]


Kinds = Mapping[str, Found]
"""The instances of one run, by the name of their anomaly."""


def merged(tallies: Iterable[Mapping[int, Kinds]], examples: int) -> dict[int, dict[str, Found]]:
    """Merge the instances of several parts: counts add up, the earliest ``examples`` are kept."""
    result: dict[int, dict[str, Found]] = defaultdict(dict)
    for tally in tallies:
        for run, kinds in tally.items():
            for name, kind in kinds.items():
                so_far = result[run].get(name, Found(0, ()))
                earliest = heapq.nsmallest(examples, (*so_far.first, *kind.first), key=lambda i: i.index)
                result[run][name] = Found(so_far.count + kind.count, tuple(earliest))
    return result
