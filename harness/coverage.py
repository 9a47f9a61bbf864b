"""What happened in a test, by names fixed in one place, so that what never happened in a campaign can be named.

Why from rows and log lines: they are there anyway, the same for every environment, and a broker needs no counters for tests. A thing that never
happened in thousands of schedules was never tested, whatever the verdicts say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from checkers.schema import HARNESS, MONITOR, NEMESIS

Row = Mapping[str, Any]

_LINES: Final[Mapping[str, tuple[str, str]]] = {
    "broker/served": ("a broker began to serve clients", r"serving STOMP on"),
    "broker/stopped-cleanly": ("a broker ended as it was asked to", r" INFO \S+ stopped$"),
    "broker/failed": (
        "a broker ended itself by an error",
        r" ERROR \S+ (?!the live vote was lost|stopped: |journal: compaction|.*this broker answers nobody)",
    ),
    "vote/live-asked": ("a live asked for votes to go on", r" INFO \S+ live vote, round "),
    "vote/asked": ("a backup asked for votes", r"backup vote, round \d+ of \d+: "),
    "vote/asked-again": (
        "a backup asked again, after a round did not pass",
        r"backup vote, round (?!1 )\d+ of \d+: ",
    ),
    "vote/granted": ("a broker granted a vote", r"vote: \S+ asks to be live as \S+: granted$"),
    "vote/refused": ("a broker refused a vote", r"vote: \S+ asks to be live as \S+: (?!granted$)"),
    "vote/backup-lost": ("a backup gave up after all rounds", r"the backup vote failed \d+ times"),
    "vote/live-lost": ("a live stopped itself for lack of votes", r"the live vote was lost \("),
    "vote/live-held": ("a live stopped answering until a decision", r"replication interrupted: "),
    "vote/alone": ("a live went on without a backup", r"replication: no backup; what is acknowledged"),
    "vote/waited": ("a starting master waited for another's vote", r"may become live: waiting for its vote"),
    "failover/taken": ("a backup became live, at a failback too", r"this broker takes over as live"),
    "failover/handed-over": (
        "a stopping live left its place to its backup",
        r"leaves its place to this broker",
    ),
    "failover/wanted-none": (
        "a live stopped cleanly and wanted no failover",
        r"wants no failover: this broker stays passive",
    ),
    "failback/begun": (
        "a master was up to date with the broker that stood in",
        r"failback: \S+ is up to date and takes over",
    ),
    "failback/interrupted": ("the master was lost during a failback", r"failback: \S+ was lost meanwhile"),
    "failback/found-live": (
        "a master found its node ID live and became its backup",
        r"is live with our node ID: synchronising",
    ),
    "sync/begun": ("an initial synchronisation began", r"replication: synchronising with"),
    "sync/snapshot-sent": ("a live sent its journal", r"replication: sending \d+ bytes"),
    "sync/finished": ("a backup became up to date", r"replication: up to date with"),
    "sync/interrupted": ("a backup was gone before it was up to date", r"is gone before it was up to date"),
    "sync/unfinished-at-start": (
        "a broker started on an unfinished copy",
        r"the data here is an unfinished copy",
    ),
    "sync/stale": (
        "a copy that was not up to date stayed passive",
        r"the copy was not up to date: this broker stays passive",
    ),
    "replication/lost": ("a backup lost its live", r" INFO \S+ replication: \S+ is gone: "),
    "replication/divergence-seen": (
        "two brokers were live with one node ID, and one of them said so",
        r"duplicate node ID",
    ),
    "instance/stood-by": (
        "an instance of a queue manager stood by",
        r"a standby instance of queue manager \S+ has been started",
    ),
    "instance/switched-over": (
        "a queue manager was switched over",
        r"queue manager \S+ ended, permitting switchover",
    ),
    "instance/ended-together": (
        "a standby instance ended with its queue manager, or alone",
        r" INFO \S+ standby queue manager instance \S+ ended$",
    ),
    "instance/refused": (
        "an instance was refused, since others run",
        r" ERROR \S+ queue manager \S+ already has ",
    ),
    "journal/torn-tail": ("a recovery cut off a torn tail", r"journal: cut off a torn tail"),
    "journal/compacted": ("a journal was compacted", r"journal: compacted"),
    "journal/moved-aside": ("old data was moved aside for a copy", r"was moved to \S+: a copy begins"),
    "journal/damage-noticed": ("a broker refused a damaged journal", r"journal damaged"),
    "journal/unclean-recovery": ("a broker recovered after an unclean end", r"queues after an unclean end"),
    "cluster/link-lost": ("brokers lost each other", r"cluster: link with \S+ lost"),
    "cluster/linked": ("brokers found each other", r"cluster: linked with"),
}
"""Name -> (what it means, how a broker's log line says so)."""

_COUNTED: Final[Mapping[str, str]] = {
    "client/connected": "a client connected",
    "client/refused": "an attempt to connect failed",
    "client/lost": "a client's connection ended without being asked to",
    "client/send-unknown": "a send ended without an answer",
    "client/send-failed": "a send certainly did not happen",
    "client/ack-unknown": "an acknowledgement ended without an answer",
    "delivery/redelivered": "a delivery was flagged as a second one",
    "delivery/repeated": "a message was delivered more than once",
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
"""Name -> what it means, where rows say so."""

REGISTRY: Final[Mapping[str, str]] = {**_COUNTED, **{name: what for name, (what, _) in _LINES.items()}}
"""Every name but those of faults, which are "fault/<kind>" and "fault/<kind>/<shape or target>" for those that bit, and
"fault-without-effect/<kind>" for those that did not."""

_PATTERNS: Final = tuple((name, re.compile(pattern)) for name, (_, pattern) in _LINES.items())


def of(rows: Iterable[Row], logs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How often each thing happened, things that did not left out; sorted by name.

    Args:
        rows: of one history, in order.
        logs: node -> its lines.
    """
    counts: Counter[str] = Counter(_in_rows(rows))
    for lines in logs.values():
        for line in lines:
            counts.update(name for name, pattern in _PATTERNS if pattern.search(line))
    return dict(sorted(counts.items()))


def never(campaign: Iterable[Mapping[str, int]], kinds: Iterable[str] = ()) -> list[str]:
    """The names of the registry, and of ``kinds`` of faults, that happened in no test of a campaign."""
    seen = {name for counts in campaign for name, count in counts.items() if count}
    return sorted({*REGISTRY, *(f"fault/{kind}" for kind in kinds)} - seen)


def _in_rows(rows: Iterable[Row]) -> Iterator[str]:
    owner: dict[tuple[Any, Any], Any] = {}
    delivered: set[tuple[Any, Any, Any]] = set()
    for row in rows:
        process = row["process"]
        if process >= 0:
            yield from _of_client(row, owner, delivered)
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


def _of_client(
    row: Row, owner: dict[tuple[Any, Any], Any], delivered: set[tuple[Any, Any, Any]]
) -> Iterator[str]:
    f, type_ = row["f"], row["type"]
    if f == "deliver":
        if row["redelivered"]:
            yield "delivery/redelivered"
        key = (row["queue"], row["group"], row["message"])
        if key in delivered:
            yield "delivery/repeated"
        delivered.add(key)
        if row["group"] is not None:
            place = key[:2]
            if owner.get(place, row["session"]) != row["session"]:
                yield "group/moved"
            owner[place] = row["session"]
    else:
        name = _OUTCOMES.get((f, type_))
        if name is not None and not (f == "disconnect" and row["error"] == "disconnected"):
            yield name


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
    told = msgspec.json.decode(row["value"])
    if not told["bit"]:
        yield f"fault-without-effect/{row['f']}"
        return
    yield f"fault/{row['f']}"
    if told["shape"]:
        yield f"fault/{row['f']}/{told['shape']}"


__all__ = ["REGISTRY", "never", "of"]
