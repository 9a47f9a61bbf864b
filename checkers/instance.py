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
from typing import Any

import numpy as np
import numpy.typing as npt

from checkers.rows import NONE, Numbers, PlaceTable


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


class InstanceTally:
    """Collects what was found in a part, by run."""

    def __init__(self, places: PlaceTable, examples: int) -> None:
        self.found: dict[int, dict[str, Found]] = defaultdict(dict)
        self._places = places
        self._runs = places.runs()
        self._examples = examples

    def add(
        self,
        name: str,
        place: npt.NDArray[np.int32],
        index: Numbers,
        message: Numbers | None = None,
        *,
        weight: Numbers | None = None,
        key: str | None = None,
    ) -> None:
        """Instances: places, the rows that complete them, their messages (None: of groups)."""
        if not len(index):
            return
        run = self._runs[place]
        for one in np.unique(run).tolist():
            mine = np.flatnonzero(run == one)
            count = len(mine) if weight is None else int(weight[mine].sum())
            few = mine[np.argsort(index[mine], kind="stable")[: self._examples]]
            instances = tuple(
                self._instance(name, place[n], index[n], None if message is None else message[n], key)
                for n in few.tolist()
            )
            before = self.found[one].get(name, Found(0, ()))
            both = heapq.nsmallest(self._examples, (*before.first, *instances), key=lambda i: i.index)
            self.found[one][name] = Found(before.count + count, tuple(both))

    def _instance(self, name: str, place: Any, index: Any, message: Any, key: str | None) -> Instance:
        run, queue, group = self._places.named[place]
        known = None if message is None or message == NONE else int(message)
        return Instance(name, queue, group, known, int(index), key, run)


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
