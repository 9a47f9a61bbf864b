"""What happened in a test, by names fixed in one place, so that what never happened in a campaign can be named.

Why from rows and log lines: they are there anyway, the same for every environment, and a broker needs no counters for tests. A thing that never
happened in thousands of schedules was never tested, whatever the verdicts say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from checkers.schema import HARNESS, MONITOR, NEMESIS
from harness.interface import NodePlan

Row = Mapping[str, Any]

_LINES: Final[Mapping[str, tuple[str, str]]] = {
    "broker/served": ("a broker began to serve clients", r"serving STOMP on"),
    "broker/stopped-cleanly": ("a broker ended as it was asked to", r" INFO \S+ stopped$"),
    "broker/failed": (
        "a broker ended itself by an error",
        r" ERROR \S+ (?!the live vote was lost|stopped: |journal: compaction|.*this broker answers nobody)",
    ),
    "broker/unclean-recovery": ("a broker recovered after an unclean end", r"queues after an unclean end"),
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
    "lock/waited": (
        "a broker waited for the live lock",
        r" INFO \S+ waiting for the live lock, next in line",
    ),
    "lock/waited-behind": (
        "a backup waited behind another",
        r" INFO \S+ waiting for the live lock, behind another backup",
    ),
    "lock/taken": (
        "a broker got the live lock and served",
        r" INFO \S+ live as node \S+, life \d+ of the shared",
    ),
    "lock/in-doubt": (
        "a live stopped answering, since its lock was not confirmed",
        r" WARNING \S+ the store has not confirmed the live lock for ",
    ),
    "lock/confirmed-again": (
        "a live went on, its lock confirmed again",
        r" INFO \S+ the store has confirmed the live lock again",
    ),
    "lock/lost": (
        "a live ended itself, since its lock was lost or not confirmed in time",
        r" ERROR \S+ (?:the live lock is lost|the store has not confirmed the live lock).* and ends$",
    ),
    "lock/passive": (
        "a broker that could have become live stayed passive",
        r" INFO \S+ staying passive: ",
    ),
    "lock/handed-back": (
        "a broker gave a master its place back",
        r" INFO \S+ failback: the master waits for its place",
    ),
    "member/suspected": (
        "a broker was silent for so long that another took over",
        r"ha-database: \S+ \(\S+\) has been silent for ",
    ),
    "member/takeover-begun": (
        "the database let a broker begin to take over another",
        r"ha-database: the takeover of \S+ has begun$",
    ),
    "member/too-late": ("a takeover was refused by the database", r"ha-database: not taken over: "),
    "member/taken-over": ("a broker was taken over by another", r"ha-database: \S+ is taken over with "),
    "member/not-renewed": ("a lease was not renewed at once", r"ha-database: the lease was not renewed: "),
    "member/ended": (
        "a broker dropped all it had, taken over or without a lease",
        r" ERROR \S+ ha-database: .* nobody is answered any more$",
    ),
    "database/in-doubt": (
        "it was not known whether a commit had happened",
        r"database: entries \d+ to \d+ are not confirmed: ",
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

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "vote/": ("replication",),
    "failover/": ("replication",),
    "failback/": ("replication",),
    "sync/": ("replication",),
    "replication/lost": ("replication",),
    "replication/divergence-seen": ("replication", "locks"),
    "journal/moved-aside": ("replication",),
    "role/voting": ("replication",),
    "role/synchronizing": ("replication",),
    "role/backup": ("backups",),
    "role/verifying": ("locks", "members"),
    "lock/": ("locks",),
    "lock/waited": ("shared-store",),
    "lock/waited-behind": ("shared-store",),
    "lock/passive": ("shared-store",),
    "lock/handed-back": ("shared-store",),
    "member/": ("members",),
    "instance/": ("instances",),
    "cluster/": ("several",),
    "database/": ("database",),
    "journal/": ("files",),
    "group/": ("groups",),
    # What only one kind of fault, or one of a few, can bring about.
    "failover/handed-over": ("stop",),
    "failover/wanted-none": ("stop",),
    "instance/switched-over": ("stop", "switch-over"),
    "instance/ended-together": ("stop", "switch-over"),
    "journal/damage-noticed": ("disk-corrupt",),
    "journal/torn-tail": ("kill", "destroy", "power-loss", "disk-corrupt", "disk-full", "disk-error"),
}
"""Name, or the part before its slash -> traits of a campaign, or kinds of its faults: without any of these it cannot happen."""

_PATTERNS: Final = tuple((name, re.compile(pattern)) for name, (_, pattern) in _LINES.items())

EVENTS: Final = tuple(_LINES)
"""The names of what a log line says: what a fault can wait for (``Fault.after``)."""


def said(line: str) -> list[str]:
    """The names of what a line of a broker's log says."""
    return [name for name, pattern in _PATTERNS if pattern.search(line)]


def of(rows: Iterable[Row], logs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How often each thing happened, things that did not left out; sorted by name.

    Args:
        rows: of one history, in order.
        logs: node -> its lines.
    """
    counts: Counter[str] = Counter(_in_rows(rows))
    for lines in logs.values():
        for line in lines:
            counts.update(said(line))
    return dict(sorted(counts.items()))


def possible(nodes: Sequence[NodePlan], kinds: Collection[str], workload: str) -> frozenset[str]:
    """The names of what can happen at all where these brokers meet these kinds of faults.

    A campaign names what it never saw because that was not tested. A vote is no news where nobody votes: named among what might have happened,
    it hides the rest. Whatever is in doubt is possible.
    """
    there = {*kinds, *_traits(nodes, workload)}
    known = {name for name in REGISTRY if all(there & set(needed) for needed in _needed(name))}
    return frozenset(known | {f"fault/{kind}" for kind in kinds})


def never(campaign: Iterable[Mapping[str, int]], among: Iterable[str]) -> list[str]:
    """The names ``among`` those that are possible that happened in no test of a campaign."""
    return sorted(set(among) - {name for counts in campaign for name, count in counts.items() if count})


def _needed(name: str) -> Iterator[tuple[str, ...]]:
    family = name[: name.index("/") + 1]
    for key in (family, name):
        if key in _NEEDS:
            yield _NEEDS[key]


def _traits(nodes: Sequence[NodePlan], workload: str) -> Iterator[str]:
    """What there is in a cluster and its load, by the words of ``_NEEDS``."""
    roles = {node.configured for node in nodes}
    if len(nodes) > 1:
        yield "several"
    if roles & {"slave", "instance"}:
        yield "backups"
    if "slave" in roles and all(node.database is None and node.store is None for node in nodes):
        yield "replication"
    elif "slave" in roles:
        yield from ("locks", "shared-store")
    if "instance" in roles:
        yield from ("locks", "instances")
    if "member" in roles:
        yield "members"
    yield "files" if any(node.database is None for node in nodes) else "database"
    if workload == "groups":
        yield "groups"


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


__all__ = ["REGISTRY", "never", "of", "possible"]
