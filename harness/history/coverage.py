"""Coverage: what happened in a test, by names fixed in one place.

With fixed names a campaign can also list what never happened.

Why from rows and log lines: they exist anyway, are the same for every environment, and a broker
needs no counters for tests. A thing that never happened in thousands of schedules was never tested,
whatever the verdicts say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from checkers.schema import HARNESS, MONITOR, NEMESIS
from harness.interface import Event, NodePlan
from workloads.registry import grouped

Row = Mapping[str, Any]

_COUNTED: Final[Mapping[str, str]] = {
    "client/connected": "a client connected",
    "client/refused": "an attempt to connect failed",
    "client/lost": "a client's connection ended without being asked to",
    "client/send-unknown": "a send ended without an answer",
    "client/send-failed": "a send certainly did not happen",
    "client/ack-unknown": "an acknowledgement ended without an answer",
    "delivery/redelivered": "a delivery was flagged as a second one",
    "delivery/repeated": "a message was delivered more than once",
    "delivery/elsewhere": "another broker delivered a message than the one that took it",
    "delivery/moved": "a message was delivered again, by another broker than before",
    "group/moved": "a group's next message went to another session",
    "role/live": "a broker became live",
    "role/backup": "a broker became a backup",
    "role/voting": "a broker was seen voting",
    "role/verifying": "a live was seen in doubt about the lock of its shared store",
    "role/synchronizing": "a broker was seen synchronising",
    "role/stopped": "a broker was seen gone",
    "role/unreachable": "a broker kept silent",
    "harness/restarted": "a broker that had ended by itself was started again",
    "harness/not-recovered": "the cluster did not recover within the bound",
    "browse/leftover": "a message was found in a store at the end",
}
"""The names that rows of a history stand for, each with its meaning."""

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "role/voting": ("replication",),
    "role/synchronizing": ("replication",),
    "role/backup": ("backups",),
    "role/verifying": ("locks", "members"),
    "delivery/elsewhere": ("several",),
    "delivery/moved": ("several",),
    "group/moved": ("groups",),
}
"""Names with the traits of a campaign of which the test must have at least one."""


def meanings(events: Mapping[str, Event]) -> dict[str, str]:
    """Return every name with its meaning, except those of faults.

    Faults are "fault/<kind>" and "fault/<kind>/<shape or target>" for those that bit, and
    "fault-without-effect/<kind>" for those that did not.
    """
    return {**_COUNTED, **{name: event.meaning for name, event in events.items()}}


def events_in_line(line: str, events: Mapping[str, Event]) -> list[str]:
    """Return the names of the events that a line of a broker's log reports."""
    return [name for name, event in events.items() if event.line.search(line)]


def count(
    rows: Iterable[Row], logs: Mapping[str, Sequence[str]], events: Mapping[str, Event]
) -> dict[str, int]:
    """Return how often each thing happened, sorted by name, without what never happened.

    Args:
        rows: the rows of one history, in order.
        logs: the lines of each node's log.
        events: the events of the system under test.
    """
    counts: Counter[str] = Counter(_in_rows(rows))
    for lines in logs.values():
        for line in lines:
            counts.update(events_in_line(line, events))
    return dict(sorted(counts.items()))


def possible(
    nodes: Sequence[NodePlan],
    kinds: Collection[str],
    workload: str,
    events: Mapping[str, Event],
    policy_traits: Collection[str],
) -> frozenset[str]:
    """Return the names of what can happen if these brokers meet these kinds of faults.

    A campaign lists what it never saw, because that was not tested. That no vote was seen is no
    news if no broker votes: listed among what might have happened, it would hide the rest. Whatever
    is in doubt counts as possible.
    """
    traits = {*kinds, *_traits(nodes, workload), *policy_traits}
    needs: dict[str, tuple[tuple[str, ...], ...]] = {
        name: (_NEEDS[name],) if name in _NEEDS else () for name in _COUNTED
    }
    needs |= {name: event.needs for name, event in events.items()}
    reachable = {name for name, needed in needs.items() if all(traits & set(any_of) for any_of in needed)}
    return frozenset(reachable | {f"fault/{kind}" for kind in kinds})


def never(campaign: Iterable[Mapping[str, int]], among: Iterable[str]) -> list[str]:
    """Return those of the names ``among`` that happened in no test of a campaign."""
    return sorted(set(among) - {name for counts in campaign for name, count in counts.items() if count})


def _traits(nodes: Sequence[NodePlan], workload: str) -> Iterator[str]:
    """Yield the traits that the nodes and the load of a test show, in the words of ``_NEEDS``."""
    roles = {node.configured for node in nodes}
    if len(nodes) > 1:
        yield "several"
    if roles & {"slave", "instance"}:
        yield "backups"
    if any(node.master for node in nodes):
        yield "master"
    yield "files" if any(node.database is None for node in nodes) else "database"
    if grouped(workload):
        yield "groups"


def _in_rows(rows: Iterable[Row]) -> Iterator[str]:
    seen = _Seen()
    for row in rows:
        process = row["process"]
        if process >= 0:
            yield from _of_client(row, seen)
        elif process == NEMESIS:
            yield from _of_nemesis(row)
        elif process == MONITOR:
            if row["f"] == "role" and f"role/{row['role']}" in _COUNTED:
                yield f"role/{row['role']}"
        elif process == HARNESS:
            if row["f"] == "restart":
                yield "harness/restarted"
            elif row["f"] == "phase" and row["value"] == "not-recovered":
                yield "harness/not-recovered"
            elif row["f"] == "browse" and row["message"] is not None:
                yield "browse/leftover"


@dataclass(slots=True)
class _Seen:
    """What earlier rows of clients showed.

    ``owner`` is the session that a group's last message went to, ``taken_by`` the broker that
    acknowledged a message, ``delivered_by`` the broker that delivered it last.
    """

    owner: dict[tuple[Any, Any], Any] = field(default_factory=dict)
    taken_by: dict[Any, Any] = field(default_factory=dict)
    delivered_by: dict[tuple[Any, Any, Any], Any] = field(default_factory=dict)


def _of_client(row: Row, seen: _Seen) -> Iterator[str]:
    f, type_ = row["f"], row["type"]
    if f != "deliver":
        if f == "send" and type_ == "ok":
            seen.taken_by[row["message"]] = row["broker"]
        name = _OUTCOMES.get((f, type_))
        if name is not None and not (f == "disconnect" and row["error"] == "disconnected"):
            yield name
        return
    broker, message = row["broker"], row["message"]
    if row["redelivered"]:
        yield "delivery/redelivered"
    if seen.taken_by.get(message, broker) != broker:
        yield "delivery/elsewhere"
    copy = row["queue"], row.get("subscription"), message
    if copy in seen.delivered_by:
        yield "delivery/repeated"
        if seen.delivered_by[copy] != broker:
            yield "delivery/moved"
    seen.delivered_by[copy] = broker
    if row["group"] is not None:
        place = row["queue"], row["group"]
        if seen.owner.get(place, row["session"]) != row["session"]:
            yield "group/moved"
        seen.owner[place] = row["session"]


_OUTCOMES: Final[Mapping[tuple[str, str], str]] = {
    ("connect", "ok"): "client/connected",
    ("connect", "fail"): "client/refused",
    ("disconnect", "info"): "client/lost",
    ("send", "info"): "client/send-unknown",
    ("send", "fail"): "client/send-failed",
    ("ack", "info"): "client/ack-unknown",
}


def _of_nemesis(row: Row) -> Iterator[str]:
    if row["type"] != "info" or row["f"].startswith("heal:"):
        return
    outcome = msgspec.json.decode(row["value"])
    if not outcome["bit"]:
        yield f"fault-without-effect/{row['f']}"
        return
    yield f"fault/{row['f']}"
    if outcome["shape"]:
        yield f"fault/{row['f']}/{outcome['shape']}"
