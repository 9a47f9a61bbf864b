"""The rule ``diverged``: brokers that had time to agree give the same answers about the cluster.

Why spans: two brokers are asked one after the other, and news that one has may reach the other a
moment later. Each row says from when to when its broker gave one and the same answer. Brokers
certainly disagree if they gave two different answers over spans that overlap.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkers.instance import Instance

Row = Mapping[str, Any]

NAME: Final = "diverged"

CLIENTS: Final = "clients"
"""The name in place of a broker in views of what clients were answered.

Brokers must not disagree with these views.
"""

QUEUE: Final = "queue"
"""The kind of view that says whether a broker has a queue that an administrator made."""


@dataclass(frozen=True, slots=True)
class View:
    """A broker's answer about one thing (``kind`` and ``key``), from ``begin`` to ``end`` (ns).

    A ``value`` of None: the broker knew nothing of it.
    """

    broker: str
    kind: str
    key: str
    value: str | None
    begin: int
    end: int
    index: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first answer that contradicts an earlier one about the same thing."""

    earlier: View
    later: View

    def instance(self, run: int) -> Instance:
        """Return the instance, which the row of the later answer shows."""
        key = f"{self.later.kind} {self.later.key}"
        return Instance(NAME, None, None, None, self.later.index, key, run)


def read(rows: Sequence[Row]) -> list[View]:
    """Return the views from the ``view`` rows of one history that have an answer."""
    views_read = []
    for row in rows:
        if row["type"] != "ok" or row["broker"] is None or row["value"] is None:
            continue
        value = json.loads(row["value"])
        views_read.append(
            View(
                row["broker"], value["kind"], value["key"], value["value"], row["time_low"], row["time_high"],
                row["index"],
            )
        )  # fmt: skip
    return sorted(views_read, key=lambda view: view.index)


def divergences(all_views: Sequence[View]) -> Iterator[Divergence]:
    """Yield one divergence for each thing on which brokers certainly disagree."""
    things: dict[tuple[str, str], list[View]] = defaultdict(list)
    for view in all_views:
        things[view.kind, view.key].append(view)
    for views in things.values():
        pairs = (
            Divergence(earlier, later)
            for n, later in enumerate(views)
            for earlier in views[:n]
            if earlier.broker != later.broker
            and earlier.value != later.value
            and max(earlier.begin, later.begin) < min(earlier.end, later.end)
        )
        first = next(pairs, None)
        if first is not None:
            yield first
