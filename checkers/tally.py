"""A collector of the instances that rules find in columns."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from checkers.instance import Found, Instance
from checkers.rows import NONE, Numbers, PlaceTable


class InstanceTally:
    """The instances that were found in a part, by run: how many, and the earliest of each kind."""

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
        keys: Numbers | None = None,
    ) -> None:
        """Add instances of an anomaly: their places, and the rows that complete them (``index``).

        ``message`` has their messages; None: the instances are of groups. ``weight`` has how often
        each counts; None: once. ``key`` is the key of all instances, or ``keys`` has one for each.
        """
        if not len(index):
            return
        run = self._runs[place]
        for run_number in np.unique(run).tolist():
            at = np.flatnonzero(run == run_number)
            count = len(at) if weight is None else int(weight[at].sum())
            first_at = at[np.argsort(index[at], kind="stable")[: self._examples]]
            instances = tuple(
                self._instance(
                    name,
                    place[n],
                    index[n],
                    None if message is None else message[n],
                    key if keys is None else str(keys[n]),
                )
                for n in first_at.tolist()
            )
            before = self.found[run_number].get(name, Found(0, ()))
            earliest = heapq.nsmallest(self._examples, (*before.first, *instances), key=lambda i: i.index)
            self.found[run_number][name] = Found(before.count + count, tuple(earliest))

    def _instance(self, name: str, place: Any, index: Any, message: Any, key: str | None) -> Instance:
        run, queue, group = self._places.named[place]
        number = None if message is None or message == NONE else int(message)
        return Instance(name, queue, group, number, int(index), key, run)
