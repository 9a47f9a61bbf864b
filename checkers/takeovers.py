"""Takeovers of a node's data, as brokers told of them: who fenced whom, and which two of them had no release between.

Why numbers: a release may hide between two looks of the monitor, but not from the count that fences: every life of a node and every takeover of it has a number of
its own, larger than all before (activation, life of a shared store, epoch of a row). Two takeovers with one number are two answers to the same
question, whatever was not seen. Where the numbers differ, only a taker that was certainly still live in the other's place shows that nothing was released.

The rows are few; everything here is of one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from checkers.instance import Instance
from checkers.schema import MONITOR

Row = Mapping[str, Any]

NAME: Final = "double-takeover"


@dataclass(frozen=True, slots=True)
class Takeover:
    """Complete for certain from ``certain`` (ns). The taker was certainly live with that node ID from then to ``until``; equal where that is not known."""

    broker: str
    node_id: str
    life: int | None
    certain: int
    until: int
    index: int


class Double(NamedTuple):
    """Two takeovers without a release between; ``same`` if they have one number, else the first taker was still live when the second was."""

    earlier: Takeover
    later: Takeover
    same: bool

    def instance(self, run: int) -> Instance:
        """The finding; its row is the later takeover's."""
        pair = " ".join(sorted((self.earlier.broker, self.later.broker)))
        key = f"{self.later.node_id} {pair} {self.earlier.index}"
        return Instance(NAME, None, None, None, self.later.index, key, run)


def life_of(row: Row) -> int | None:
    """The number in a row of the monitor; None if it tells none."""
    value = row.get("value")
    return int(value) if value is not None and value.isascii() and value.isdigit() else None


def read(takeovers: Sequence[Row], roles: Sequence[Row], last_ns: int) -> list[Takeover]:
    """From the ``takeover`` and ``role`` rows of one history, in order of their rows."""
    changes: dict[str, list[Row]] = defaultdict(list)
    for row in roles:
        if row["process"] == MONITOR and row["f"] == "role" and row["broker"] is not None:
            changes[row["broker"]].append(row)
    found = []
    for row in takeovers:
        if row["process"] != MONITOR or row["broker"] is None or row["node_id"] is None:
            continue
        own = changes[row["broker"]]
        before = [change for change in own if change["index"] < row["index"]][-1:]
        after = [change["time_low"] for change in own if change["index"] > row["index"]]
        reigns = [one for one in before if one["role"] == "live" and one["node_id"] == row["node_id"]]
        certain = row["time_high"]
        until = (after[0] if after else last_ns) if reigns else certain
        found.append(
            Takeover(row["broker"], row["node_id"], life_of(row), certain, max(until, certain), row["index"])
        )
    return sorted(found, key=lambda takeover: takeover.index)


def doubles(found: Sequence[Takeover]) -> Iterator[Double]:
    """Every pair of takeovers of one node's data by two brokers that certainly had no release between."""
    for n, later in enumerate(found):
        for earlier in found[:n]:
            if earlier.node_id != later.node_id or earlier.broker == later.broker:
                continue
            same = earlier.life is not None and earlier.life == later.life
            if same or max(earlier.certain, later.certain) < min(earlier.until, later.until):
                yield Double(earlier, later, same)


def fencing(found: Sequence[Takeover], broker: str, node_id: str, life: int | None) -> list[Takeover]:
    """The takeovers by others that end that life of that broker."""
    return [
        takeover
        for takeover in found
        if takeover.node_id == node_id
        and takeover.broker != broker
        and life is not None
        and takeover.life is not None
        and takeover.life > life
    ]
