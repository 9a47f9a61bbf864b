"""Takeovers of a node's data, as brokers told of them.

They tell which broker fenced which, and which two takeovers had no release between.

Why numbers: the monitor may miss a release between two looks, but the fencing numbers do not. Every
life of a node and every takeover of it has a number of its own, larger than all before (activation,
life of a shared store, epoch of a row). Two takeovers with one number had no release between,
whatever the monitor missed. If the numbers differ, only a first taker that was certainly still live
at the second takeover shows that there was no release.

The rows are few; everything here is of one run.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from checkers.instance import Instance
from checkers.spans import overlapping

Row = Mapping[str, Any]

NAME: Final = "double-takeover"


@dataclass(frozen=True, slots=True)
class CertainTakeover:
    """A takeover of a node's data that was certainly complete from ``certain`` (ns).

    The taker was certainly live with that node ID from then to ``until``. Both are equal if it is
    not known to have been live.
    """

    broker: str
    node_id: str
    life: int | None
    certain: int
    until: int
    index: int


class Double(NamedTuple):
    """Two takeovers without a release between.

    ``same`` if they have one number, else the first taker was still live when the second was.
    """

    earlier: CertainTakeover
    later: CertainTakeover
    same: bool

    def instance(self, run: int) -> Instance:
        """Return the instance, which the row of the later takeover shows."""
        pair = " ".join(sorted((self.earlier.broker, self.later.broker)))
        key = f"{self.later.node_id} {pair} {self.earlier.index}"
        return Instance(NAME, None, None, None, self.later.index, key, run)


def life_of(row: Row) -> int | None:
    """Return the number of a life or takeover in a row of the monitor; None if it has none."""
    value = row.get("value")
    return int(value) if value is not None and value.isascii() and value.isdigit() else None


def read(takeovers: Sequence[Row], roles: Sequence[Row], last_ns: int) -> list[CertainTakeover]:
    """Return the takeovers from the ``takeover`` and ``role`` rows of one history, in order."""
    changes: dict[str, list[Row]] = defaultdict(list)
    for row in roles:
        changes[row["broker"]].append(row)
    takeovers_found = []
    for row in takeovers:
        broker_changes = changes[row["broker"]]
        at = bisect_left(broker_changes, row["index"], key=lambda change: change["index"])
        following = bisect_right(broker_changes, row["index"], key=lambda change: change["index"])
        before, after = broker_changes[:at][-1:], broker_changes[following : following + 1]
        reigns = [
            change_before
            for change_before in before
            if change_before["role"] == "live" and change_before["node_id"] == row["node_id"]
        ]
        certain = row["time_high"]
        until = (after[0]["time_low"] if after else last_ns) if reigns else certain
        takeovers_found.append(
            CertainTakeover(
                row["broker"], row["node_id"], life_of(row), certain, max(until, certain), row["index"]
            )
        )
    return sorted(takeovers_found, key=lambda takeover: takeover.index)


def doubles(takeovers: Sequence[CertainTakeover]) -> list[Double]:
    """Return all pairs of takeovers of a node by two brokers with certainly no release between."""
    by_node: dict[str, list[CertainTakeover]] = defaultdict(list)
    for takeover in takeovers:
        by_node[takeover.node_id].append(takeover)
    pairs = []
    for node_takeovers in by_node.values():
        by_life: dict[int, list[int]] = defaultdict(list)
        for number, takeover in enumerate(node_takeovers):
            if takeover.life is not None:
                by_life[takeover.life].append(number)
        same = {pair for numbers in by_life.values() for pair in itertools.combinations(numbers, 2)}
        together = overlapping([(takeover.certain, takeover.until) for takeover in node_takeovers])
        pairs += [
            Double(node_takeovers[n], node_takeovers[m], (n, m) in same) for n, m in same.union(together)
        ]
    wrong = [pair for pair in pairs if pair.earlier.broker != pair.later.broker]
    return sorted(wrong, key=lambda pair: (pair.later.index, pair.earlier.index))


class Fences:
    """The takeovers of each node by number, to find the first one that ended a life."""

    def __init__(self, takeovers: Sequence[CertainTakeover]) -> None:
        self._lives: dict[str, list[int]] = defaultdict(list)
        self._earliest: dict[str, list[list[CertainTakeover]]] = defaultdict(list)
        numbered = [(takeover.life, takeover) for takeover in takeovers if takeover.life is not None]
        for life, takeover in sorted(numbered, key=lambda item: item[0], reverse=True):
            # Kept of all with this number or a higher one: the earliest, and the earliest by
            # another broker.
            before = self._earliest[takeover.node_id][-1:]
            ranked = sorted(
                [takeover, *(before[0] if before else ())], key=lambda item: (item.certain, item.index)
            )
            other_brokers = [item for item in ranked if item.broker != ranked[0].broker]
            self._lives[takeover.node_id].append(-life)
            self._earliest[takeover.node_id].append([ranked[0], *other_brokers[:1]])

    def earliest(self, broker: str, node_id: str, life: int | None) -> CertainTakeover | None:
        """Return the first takeover by another broker that ended a life of a broker, or None."""
        if life is None:
            return None
        higher = bisect_left(self._lives.get(node_id, []), -life)
        if not higher:
            return None
        return next(
            (takeover for takeover in self._earliest[node_id][higher - 1] if takeover.broker != broker), None
        )
