"""Rules about roles and views from their definitions; see ``checkers.reference``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.instance import Instance
from checkers.reference_sent import operation
from checkers.schema import HARNESS, MONITOR, TOPIC

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlainReign:
    """A broker was certainly live from ``begin`` to ``end`` (ns; None: the history's end)."""

    broker: str
    node_id: str
    begin: int
    end: int | None
    index: int
    since: int  # the earliest it can have begun
    life: int | None


def reigns(rows: Sequence[Row]) -> list[PlainReign]:
    """Every certain reign, by the index of its row."""
    roles = [r for r in rows if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") is not None]
    found = []
    for n, r in enumerate(roles):
        if r.get("role") == "live" and r.get("node_id") is not None:
            later = [s for s in roles[n + 1 :] if s["broker"] == r["broker"]]
            end = later[0]["time_low"] if later else None
            found.append(
                PlainReign(
                    r["broker"], r["node_id"], r["time_high"], end, r["index"], r["time_low"], _life(r)
                )
            )
    return found


def _life(r: Row) -> int | None:
    """The number that a row of the monitor tells of."""
    text = r.get("value") or ""
    return int(text) if text.isascii() and text.isdigit() else None


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


def _doubts(roles: Sequence[Row], broker: str) -> Iterator[tuple[int, int]]:
    """When a broker may have been live unseen.

    It was last seen as something other than live, then not looked at, and then was something else.
    """
    seen = [r for r in roles if r.get("broker") == broker]
    for before, after in itertools.pairwise(seen):
        if before["role"] != "live":
            yield after["time_low"], after["time_high"]


def takeovers(rows: Sequence[Row]) -> list[Row]:
    """All that were seen to be complete."""
    return [
        r
        for r in rows
        if r["process"] == MONITOR
        and r["f"] == "takeover"
        and r.get("broker") is not None
        and r.get("node_id") is not None
    ]


def _still_live(rows: Sequence[Row], taker: Row, moment: int) -> bool:
    """Whether it certainly was live with that node ID from its takeover until after ``moment``."""
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
    """Two brokers that certainly took over one node's data at once.

    Under one number, or the first taker was certainly live when the second certainly was.
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
    """Two live brokers gave different answers about one thing, each repeatedly, at one time."""
    views = [
        (json.loads(r["value"]), r)
        for r in rows
        if r["process"] == HARNESS and r["f"] == "view" and r["type"] == "ok"
        if r.get("broker") is not None and r.get("value") is not None
    ]
    named = set()
    for n, (told, late) in enumerate(views):
        thing = f"{told['kind']} {told['key']}"
        for other, early in views[:n]:
            if (other["kind"], other["key"]) != (told["kind"], told["key"]) or early["broker"] == late[
                "broker"
            ]:
                continue
            together = max(early["time_low"], late["time_low"]) < min(early["time_high"], late["time_high"])
            if other["value"] != told["value"] and together and thing not in named:
                named.add(thing)
                yield Instance("diverged", None, None, None, late["index"], thing)


def _sent_as(r: Row) -> tuple[Any, ...]:
    """Return what a delivery and the send of its message have in common."""
    queue = r.get("queue") or ""
    home = queue.split(" > ")[0] if queue.startswith(TOPIC) else r.get("queue")
    return home, r.get("group"), r.get("message")


def zombies(rows: Sequence[Row]) -> Iterator[Instance]:
    """An operation answered ``ok`` by a broker, invoked after it was certainly replaced.

    Another was live, or had taken it over.

    Or a message delivered by it whose send was invoked only then.
    """
    all_reigns = reigns(rows)
    taken = takeovers(rows)
    roles = [r for r in rows if r["process"] == MONITOR and r["f"] == "role"]
    unseen = {reign.broker: list(_doubts(roles, reign.broker)) for reign in all_reigns}
    last = max((r["time"] for r in rows), default=0)
    latest: dict[tuple[Any, ...], Row] = {}
    sent: dict[Any, Row] = {}
    successors: dict[str, list[tuple[PlainReign, int | None]]] = {}
    for r in rows:
        if r["type"] == "invoke":
            latest[operation(r)] = r
        if r["f"] == "send" and r["type"] == "invoke":
            sent.setdefault(_sent_as(r), r)
        if r["process"] < 0 or r["type"] != "ok" or r["f"] == "connect" or r.get("broker") is None:
            continue
        question = latest.get(operation(r))
        asked = sent.get(_sent_as(r)) if r["f"] == "deliver" else question
        if asked is None:
            continue
        if r["broker"] not in successors:
            successors[r["broker"]] = list(_successors(all_reigns, r["broker"]))
        for successor, back in successors[r["broker"]]:
            if asked["time"] <= successor.begin or (back is not None and r["time"] >= back):
                continue
            doubts = [doubt for doubt in unseen[r["broker"]] if doubt[1] > successor.begin]
            doubtful = any(low <= r["time"] and asked["time"] <= high for low, high in doubts)
            if not doubtful or _beside(all_reigns, last, successor.node_id, asked, r):
                yield Instance(
                    "zombie", r.get("queue"), r.get("group"), r.get("message"), r["index"], r["broker"]
                )
                break
        else:
            fenced = _fenced(all_reigns, taken, unseen, last, asked, r)
            backed = _never_live(roles, all_reigns, asked, r)
            if fenced or any(_beside(all_reigns, last, node_id, asked, r) for node_id in backed):
                yield Instance(
                    "zombie", r.get("queue"), r.get("group"), r.get("message"), r["index"], r["broker"]
                )


def _successors(all_reigns: Sequence[PlainReign], broker: str) -> Iterator[tuple[PlainReign, int | None]]:
    """Who was live after that broker under its last node ID; the earliest it can have been back."""
    own = [reign for reign in all_reigns if reign.broker == broker]
    for successor in all_reigns:
        before = [x for x in own if x.index < successor.index][-1:]
        back = [x.since for x in own if x.index > successor.index]
        if successor.broker != broker and any(
            x.node_id == successor.node_id and x.begin <= successor.since for x in before
        ):
            yield successor, back[0] if back else None


def _beside(all_reigns: Sequence[PlainReign], last: int, node_id: str, asked: Row, r: Row) -> bool:
    """Whether another broker of that node ID was certainly live from the question to the answer.

    ``last`` is the time at which the history ends.
    """
    return any(
        other.broker != r["broker"]
        and other.node_id == node_id
        and asked["time"] > other.begin
        and r["time"] < (last if other.end is None else other.end)
        for other in all_reigns
    )


def _never_live(roles: Sequence[Row], all_reigns: Sequence[PlainReign], asked: Row, r: Row) -> Iterator[str]:
    """Under which node ID a broker that answered was certainly not live.

    From the question to the answer, if it had never been live before.
    """
    own = [reign for reign in all_reigns if reign.broker == r["broker"]]
    if own and r["time"] >= own[0].since:
        return
    told = [
        s
        for s in roles
        if s.get("broker") == r["broker"] and s.get("node_id") is not None
        if not own or s["index"] < own[0].index
    ]
    for n, s in enumerate(told):
        if n and told[n - 1]["node_id"] == s["node_id"]:
            continue
        after = [t["time_low"] for t in told[n + 1 :] if t["node_id"] != s["node_id"]]
        if asked["time"] > s["time_high"] and (not after or r["time"] < after[0]):
            yield s["node_id"]


def _fenced(
    all_reigns: Sequence[PlainReign],
    taken: Sequence[Row],
    unseen: Mapping[str, Sequence[tuple[int, int]]],
    last: int,
    asked: Row,
    r: Row,
) -> bool:
    """Whether the broker that answered had certainly been fenced before it was asked.

    By a takeover with a higher number than its own, in a life that it was still in.

    Asked to store something; of a delivery, before the message was sent. It cannot have begun a
    later life before it answered.
    """
    if r["f"] not in ("send", "ack", "commit", "deliver") or (
        r["f"] != "commit" and r.get("transaction") is not None
    ):
        return False
    own = [reign for reign in all_reigns if reign.broker == r["broker"]]
    for n, reign in enumerate(own):
        if n + 1 < len(own) and r["time"] >= own[n + 1].since:
            continue
        for t in taken:
            number = _life(t)
            if (
                t["broker"] == reign.broker
                or t["node_id"] != reign.node_id
                or number is None
                or reign.life is None
            ):
                continue
            since = max(t["time_high"], reign.begin)
            if number <= reign.life or asked["time"] <= since:
                continue
            doubts = [doubt for doubt in unseen[reign.broker] if doubt[1] > since]
            doubtful = any(low <= r["time"] and asked["time"] <= high for low, high in doubts)
            if not doubtful or _beside(all_reigns, last, reign.node_id, asked, r):
                return True
    return False
