"""The second implementation of the rules about roles and views; see ``checkers.reference``."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.instance import Instance
from checkers.reference_sent import operation
from checkers.schema import HARNESS, MONITOR, TOPIC

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlainReign:
    """A span in which a broker was certainly live, from ``begin`` to ``end`` (ns).

    ``end`` is None if the span lasts to the end of the history. ``index`` is the row that told of
    it, ``life`` the number of this life, if the broker tells it.
    """

    broker: str
    node_id: str
    begin: int
    end: int | None
    index: int
    since: int  # the earliest time (ns) at which the broker can have become live
    life: int | None


def reigns(rows: Sequence[Row]) -> list[PlainReign]:
    """Return every certain reign, in the order of its row."""
    roles = [r for r in rows if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") is not None]
    result = []
    for n, r in enumerate(roles):
        if r.get("role") == "live" and r.get("node_id") is not None:
            later = [s for s in roles[n + 1 :] if s["broker"] == r["broker"]]
            end = later[0]["time_low"] if later else None
            result.append(
                PlainReign(
                    r["broker"], r["node_id"], r["time_high"], end, r["index"], r["time_low"], _life(r)
                )
            )
    return result


def _life(r: Row) -> int | None:
    """Return the number of a life or takeover that a row of the monitor tells, or None."""
    text = r.get("value") or ""
    return int(text) if text.isascii() and text.isdigit() else None


def split_brains(rows: Sequence[Row]) -> Iterator[Instance]:
    """Find two brokers that were certainly live under one node ID at one moment."""
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


def _doubts(roles: Sequence[Row], broker: str) -> Iterator[tuple[int, int]]:
    """Yield the spans (ns) in which a broker may have been live without the monitor seeing it.

    Such a span is the interval of a change of role from any role but live.
    """
    broker_roles = [r for r in roles if r.get("broker") == broker]
    for before, after in itertools.pairwise(broker_roles):
        if before["role"] != "live":
            yield after["time_low"], after["time_high"]


def takeovers(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of completed takeovers that name the broker and the node ID."""
    return [
        r
        for r in rows
        if r["process"] == MONITOR
        and r["f"] == "takeover"
        and r.get("broker") is not None
        and r.get("node_id") is not None
    ]


def _still_live(rows: Sequence[Row], taker: Row, moment: int) -> bool:
    """Return whether a taker was certainly live from its takeover until after ``moment`` (ns).

    It must have been live under the node ID that it took over.
    """
    roles = [
        r for r in rows if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == taker["broker"]
    ]
    before = [r for r in roles if r["index"] < taker["index"]]
    after = [r for r in roles if r["index"] > taker["index"]]
    if not before or before[-1].get("role") != "live" or before[-1].get("node_id") != taker["node_id"]:
        return False
    end: int = after[0]["time_low"] if after else max(r["time"] for r in rows)
    return moment < end


def double_takeovers(rows: Sequence[Row]) -> Iterator[Instance]:
    """Find two brokers that certainly took over one node's data without a release in between.

    Both takeovers have one number, or both takers were certainly live when both were complete.
    """
    for early, late in itertools.combinations(takeovers(rows), 2):
        if early["node_id"] != late["node_id"] or early["broker"] == late["broker"]:
            continue
        same = _life(early) is not None and _life(early) == _life(late)
        moment = max(early["time_high"], late["time_high"])
        if same or (_still_live(rows, early, moment) and _still_live(rows, late, moment)):
            pair = " ".join(sorted((early["broker"], late["broker"])))
            key = f"{late['node_id']} {pair} {early['index']}"
            yield Instance("double-takeover", None, None, None, late["index"], key)


def divergences(rows: Sequence[Row]) -> Iterator[Instance]:
    """Find the subjects on which two live brokers repeatedly gave different answers at one time."""
    views = [
        (json.loads(r["value"]), r)
        for r in rows
        if r["process"] == HARNESS and r["f"] == "view" and r["type"] == "ok"
        if r.get("broker") is not None and r.get("value") is not None
    ]
    named = set()
    for n, (view, late) in enumerate(views):
        thing = f"{view['kind']} {view['key']}"
        for other, early in views[:n]:
            if (other["kind"], other["key"]) != (view["kind"], view["key"]) or early["broker"] == late[
                "broker"
            ]:
                continue
            together = max(early["time_low"], late["time_low"]) < min(early["time_high"], late["time_high"])
            if other["value"] != view["value"] and together and thing not in named:
                named.add(thing)
                yield Instance("diverged", None, None, None, late["index"], thing)


def _sent_as(r: Row) -> tuple[Any, ...]:
    """Return the key that a delivery and the send of its message share: queue, group and id."""
    queue = r.get("queue") or ""
    home = queue.split(" > ")[0] if queue.startswith(TOPIC) else r.get("queue")
    return home, r.get("group"), r.get("message")


@dataclass(frozen=True, slots=True)
class Replacement:
    """A span (ns) in which a broker had certainly been replaced under a node ID.

    ``until`` is None if the span lasts to the end of the history. What the broker answers in the
    span proves a zombie. In a span of ``doubts`` it may have been live again unseen: then another
    broker must certainly have been live under the node ID all the while. ``fenced`` says that only
    what a fence must prevent proves a zombie.
    """

    node_id: str
    since: int
    until: int | None
    doubts: Sequence[tuple[float, float]]
    fenced: bool = False


def zombies(rows: Sequence[Row]) -> Iterator[Instance]:
    """Find the operations and deliveries of brokers that had certainly been replaced.

    A broker is replaced when another is live under its node ID, or has taken that node over. It
    answered ``ok`` to an operation that was invoked after that, or delivered a message whose send
    was invoked after that.
    """
    all_reigns = reigns(rows)
    taken = takeovers(rows)
    roles = [r for r in rows if r["process"] == MONITOR and r["f"] == "role"]
    last = max((r["time"] for r in rows), default=0)
    latest: dict[tuple[Any, ...], Row] = {}
    sent: dict[Any, Row] = {}
    replacements: dict[str, Sequence[Replacement]] = {}
    for r in rows:
        if r["type"] == "invoke":
            latest[operation(r)] = r
            if r["f"] == "send":
                sent.setdefault(_sent_as(r), r)
        if r["process"] < 0 or r["type"] != "ok" or r["f"] == "connect" or r.get("broker") is None:
            continue
        if r["broker"] not in replacements:
            replacements[r["broker"]] = [
                *_succeeded(roles, all_reigns, r["broker"]),
                *_never_live(roles, all_reigns, r["broker"]),
                *_fenced(roles, all_reigns, taken, r["broker"]),
            ]
        if not replacements[r["broker"]]:
            continue
        invocation = sent.get(_sent_as(r)) if r["f"] == "deliver" else latest.get(operation(r))
        if invocation is not None and any(
            _is_after(replacement, invocation, r)
            and (
                not _is_doubtful(replacement, invocation, r)
                or _another_was_live(all_reigns, last, replacement.node_id, invocation, r)
            )
            for replacement in replacements[r["broker"]]
        ):
            yield Instance(
                "zombie", r.get("queue"), r.get("group"), r.get("message"), r["index"], r["broker"]
            )


def _is_after(replacement: Replacement, invocation: Row, r: Row) -> bool:
    """Return whether a broker answered ``r`` while it was replaced, and asked for after that.

    Only sends and acks outside of transactions, commits and deliveries must be fenced.
    """
    if replacement.fenced and (
        r["f"] not in ("send", "ack", "commit", "deliver")
        or (r["f"] != "commit" and r.get("transaction") is not None)
    ):
        return False
    until = replacement.until
    return bool(invocation["time"] > replacement.since and (until is None or r["time"] < until))


def _is_doubtful(replacement: Replacement, invocation: Row, r: Row) -> bool:
    return any(low <= r["time"] and invocation["time"] <= high for low, high in replacement.doubts)


def _live_rows(roles: Sequence[Row], broker: str) -> list[Row]:
    """Return the rows in which a broker was seen live, also those without a node ID."""
    return [s for s in roles if s.get("broker") == broker and s.get("role") == "live"]


def _succeeded(roles: Sequence[Row], all_reigns: Sequence[PlainReign], broker: str) -> Iterator[Replacement]:
    """Yield the spans in which another broker reigned under a broker's last node ID.

    A span ends at the earliest time at which the broker can have been live again. A broker that was
    live last without a node ID may have been live under any, and has no successor.
    """
    live_rows = _live_rows(roles, broker)
    for successor in all_reigns:
        before = [s for s in live_rows if s["index"] < successor.index][-1:]
        back = [s["time_low"] for s in live_rows if s["index"] > successor.index]
        if successor.broker != broker and any(
            s.get("node_id") == successor.node_id and s["time_high"] <= successor.since for s in before
        ):
            doubts = [doubt for doubt in _doubts(roles, broker) if doubt[1] > successor.begin]
            yield Replacement(successor.node_id, successor.begin, back[0] if back else None, doubts)


def _another_was_live(
    all_reigns: Sequence[PlainReign], last: int, node_id: str, invocation: Row, r: Row
) -> bool:
    """Return whether another broker was certainly live under a node ID all the while.

    The span is from ``invocation`` to the answer ``r``. ``last`` is the time (ns) at which the
    history ends.
    """
    return any(
        other.broker != r["broker"]
        and other.node_id == node_id
        and invocation["time"] > other.begin
        and r["time"] < (last if other.end is None else other.end)
        for other in all_reigns
    )


def _never_live(roles: Sequence[Row], all_reigns: Sequence[PlainReign], broker: str) -> Iterator[Replacement]:
    """Yield the spans in which a broker had a node ID and had certainly never been live.

    A span begins when the broker has told the node ID. It ends when the broker tells another one,
    is seen live without telling one, or can have become live. It always takes another broker that
    was live.
    """
    own_reigns = [reign for reign in all_reigns if reign.broker == broker]
    named = [
        s
        for s in roles
        if s.get("broker") == broker and (s.get("node_id") is not None or s.get("role") == "live")
        if not own_reigns or s["index"] < own_reigns[0].index
    ]
    for n, s in enumerate(named):
        if s.get("node_id") is None or (n and named[n - 1].get("node_id") == s["node_id"]):
            continue
        ends = [t["time_low"] for t in named[n + 1 :] if t.get("node_id") != s["node_id"]][:1]
        ends += [reign.since for reign in own_reigns[:1]]
        always = [(-math.inf, math.inf)]
        yield Replacement(s["node_id"], s["time_high"], min(ends, default=None), always)


def _fenced(
    roles: Sequence[Row], all_reigns: Sequence[PlainReign], taken: Sequence[Row], broker: str
) -> Iterator[Replacement]:
    """Yield the spans in which a life of a broker was certainly fenced.

    A takeover with a higher number than the number of its life fences a broker. The span ends when
    the broker can have begun its next life.
    """
    for reign in all_reigns:
        if reign.broker != broker or reign.life is None:
            continue
        next_lives = [s for s in _live_rows(roles, broker) if s["index"] > reign.index]
        until = next_lives[0]["time_low"] if next_lives else None
        for t in taken:
            number = _life(t)
            if t["broker"] != broker and t["node_id"] == reign.node_id and (number or 0) > reign.life:
                since = max(t["time_high"], reign.begin)
                doubts = [doubt for doubt in _doubts(roles, broker) if doubt[1] > since]
                yield Replacement(reign.node_id, since, until, doubts, fenced=True)
