"""One occurrence of an anomaly, as both implementations name it.

And how many of a kind with the earliest few.

Why so little: two implementations can only be compared on what the definitions fix. ``index`` is
the row that completes the anomaly (the late delivery, the send that was lost); everything said in
words is read from the witness.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instance:
    """Where ``message`` is None, ``key`` says which group, broker or history it belongs to."""

    name: str
    queue: str | None
    group: str | None
    message: int | None
    index: int
    key: str | None = None
    run: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One kind in one run: how many, and the earliest."""

    count: int
    first: tuple[Instance, ...]


Kinds = Mapping[str, Found]
"""By name."""


def merged(tallies: Iterable[Mapping[int, Kinds]], examples: int) -> dict[int, dict[str, Found]]:
    """What several parts found, as one: counts add up, the earliest of all stay."""
    result: dict[int, dict[str, Found]] = defaultdict(dict)
    for tally in tallies:
        for run, kinds in tally.items():
            for name, found in kinds.items():
                known = result[run].get(name, Found(0, ()))
                both = heapq.nsmallest(examples, (*known.first, *found.first), key=lambda i: i.index)
                result[run][name] = Found(known.count + found.count, tuple(both))
    return result
