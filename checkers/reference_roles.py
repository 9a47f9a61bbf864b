"""Split-brain and zombie straight from their definitions; see ``checkers.reference``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.instance import Instance
from checkers.schema import MONITOR

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reign:
    """A broker was live under a node ID, certainly from ``begin`` to ``end`` (ns); None: to the end of the history."""

    broker: str
    node_id: str
    begin: int
    end: int | None
    index: int
    since: int  # the earliest it can have begun


def reigns(rows: Sequence[Row]) -> list[Reign]:
    """Every certain reign, by the index of its row."""
    roles = [r for r in rows if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") is not None]
    found = []
    for n, r in enumerate(roles):
        if r.get("role") == "live" and r.get("node_id") is not None:
            later = [s for s in roles[n + 1 :] if s["broker"] == r["broker"]]
            end = later[0]["time_low"] if later else None
            found.append(Reign(r["broker"], r["node_id"], r["time_high"], end, r["index"], r["time_low"]))
    return found


_NO_PROMISE = ("deliver", "connect")


def split_brains(rows: Sequence[Row]) -> Iterator[Instance]:
    """Two brokers, one node ID, certainly live at one moment."""
    last = max((r["time"] for r in rows), default=0)
    all_reigns = reigns(rows)
    for n, late in enumerate(all_reigns):
        for early in all_reigns[:n]:
            if early.broker == late.broker or early.node_id != late.node_id:
                continue
            begin = max(early.begin, late.begin)
            end = min(last if r.end is None else r.end for r in (early, late))
            if begin < end:
                pair = " ".join(sorted((early.broker, late.broker)))
                yield Instance(
                    "split-brain", None, None, None, late.index, f"{late.node_id} {pair} {early.index}"
                )


def _doubts(rows: Sequence[Row], broker: str) -> Iterator[tuple[int, int]]:
    """When a broker that was last seen as something other than live was not looked at, and then was something else: it may have been live meanwhile."""
    seen = [r for r in rows if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == broker]
    for before, after in itertools.pairwise(seen):
        if before["role"] != "live":
            yield after["time_low"], after["time_high"]


def zombies(rows: Sequence[Row]) -> Iterator[Instance]:
    """An operation answered ``ok`` by a broker, invoked after another was certainly live in its place."""
    all_reigns = reigns(rows)
    latest: dict[tuple[Any, ...], Row] = {}
    for r in rows:
        if r["type"] == "invoke":
            latest[r["process"], r["f"], r.get("message")] = r
        if r["process"] < 0 or r["type"] != "ok" or r["f"] in _NO_PROMISE or r.get("broker") is None:
            continue
        asked = latest.get((r["process"], r["f"], r.get("message")))
        if asked is None:
            continue
        own = [reign for reign in all_reigns if reign.broker == r["broker"]]
        for successor in all_reigns:
            before = [x.node_id for x in own if x.index < successor.index][-1:]
            back = [x.since for x in own if x.index > successor.index]
            succeeded = successor.broker != r["broker"] and before == [successor.node_id]
            fallen = succeeded and asked["time"] > successor.begin
            if not fallen or (back and r["time"] >= back[0]):
                continue
            doubts = [doubt for doubt in _doubts(rows, r["broker"]) if doubt[1] > successor.begin]
            if not any(low <= r["time"] and asked["time"] <= high for low, high in doubts):
                yield Instance(
                    "zombie", r.get("queue"), r.get("group"), r.get("message"), r["index"], r["broker"]
                )
                break
