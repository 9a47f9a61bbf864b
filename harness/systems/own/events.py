"""The events in our brokers' logs, and the conditions under which they can happen.

Only this module knows the wording of the log lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from harness.interface import Event

_LINES: Final[Mapping[str, tuple[str, str]]] = {
    "broker/served": ("a broker began to serve clients", r"serving STOMP on"),
    "broker/stopped-cleanly": ("a broker ended as it was asked to", r" INFO \S+ stopped$"),
    "broker/failed": (
        "a broker ended itself by an error",
        (
            r" ERROR \S+ (?!the live vote was lost|stopped: |journal: compaction|"
            r".*this broker answers no client any more, and ends)"
        ),
    ),
    "broker/unclean-recovery": (
        "a broker recovered after an unclean end",
        r"queues after an unclean shutdown",
    ),
    "vote/live-asked": ("a live asked for votes to go on", r" INFO \S+ live vote, round "),
    "vote/asked": ("a backup asked for votes", r"backup vote, round \d+ of \d+: "),
    "vote/asked-again": (
        "a backup asked again, after a round did not pass",
        r"backup vote, round (?!1 )\d+ of \d+: ",
    ),
    "vote/granted": ("a broker granted a vote", r"vote: \S+ asks to be live under node ID \S+: granted$"),
    "vote/refused": ("a broker refused a vote", r"vote: \S+ asks to be live under node ID \S+: refused: "),
    "vote/backup-lost": ("a backup gave up after all rounds", r"the backup vote failed \d+ times"),
    "vote/live-lost": ("a live stopped itself for lack of votes", r"the live vote was lost \("),
    "vote/live-held": ("a live stopped answering until a decision", r"replication interrupted: "),
    "vote/alone": ("a live went on without a backup", r"replication: no backup; messages acknowledged"),
    "vote/waited": (
        "a starting master waited for another's vote",
        r"may become live: waiting for the end of its vote",
    ),
    "failover/taken": ("a backup became live, at a failback too", r"this broker takes over as live"),
    "failover/handed-over": (
        "a stopping live left its place to its backup",
        r"lets this broker take over",
    ),
    "failover/wanted-none": (
        "a live stopped cleanly and wanted no failover",
        r"wants no failover: this broker stays passive",
    ),
    "failback/begun": (
        "a master was up to date with the broker that stood in",
        r"failback: \S+ is up to date and takes over",
    ),
    "failback/interrupted": (
        "the master was lost during a failback",
        r"failback: \S+ was lost before it took over",
    ),
    "failback/found-live": (
        "a master found its node ID live and became its backup",
        r"is live under the node ID of this broker, which becomes",
    ),
    "sync/begun": ("an initial synchronisation began", r"replication: synchronising with"),
    "sync/snapshot-sent": ("a live sent its journal", r"replication: sending \d+ bytes"),
    "sync/finished": ("a backup became up to date", r"replication: this broker is up to date with"),
    "sync/interrupted": ("a backup was gone before it was up to date", r"was lost before it was up to date"),
    "sync/unfinished-at-start": (
        "a broker started on an unfinished copy",
        r"the journal of this broker is an unfinished copy",
    ),
    "sync/stale": (
        "a copy that was not up to date stayed passive",
        r"the copy was not up to date: this broker stays passive",
    ),
    "replication/lost": ("a backup lost its live", r" INFO \S+ replication: the live broker \S+ is lost: "),
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
    "member/too-late": ("a takeover was refused by the database", r"ha-database: \S+ is not taken over: "),
    "member/taken-over": ("a broker was taken over by another", r"ha-database: \S+ is taken over with "),
    "member/not-renewed": ("a lease was not renewed at once", r"ha-database: the lease was not renewed: "),
    "member/ended": (
        "a broker dropped all it had, taken over or without a lease",
        r" ERROR \S+ ha-database: .* this broker answers no client any more$",
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
    "journal/moved-aside": ("old data was moved aside for a copy", r"was moved to \S+: a copy of"),
    "journal/damage-noticed": ("a broker refused a damaged journal", r"journal damaged"),
    "cluster/link-lost": ("brokers lost each other", r"cluster: link with \S+ lost"),
    "cluster/linked": ("brokers found each other", r"cluster: linked with"),
}
"""Name -> (meaning, pattern of the log line)."""

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "vote/": ("replication",),
    "failover/": ("replication",),
    "failback/": ("replication",),
    "sync/": ("replication",),
    "replication/lost": ("replication",),
    "replication/divergence-seen": ("replication", "locks"),
    "journal/moved-aside": ("replication",),
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
    # These events need one kind of fault, or one of a few.
    "failover/handed-over": ("stop",),
    "failover/wanted-none": ("stop",),
    "instance/switched-over": ("stop", "switch-over"),
    "instance/ended-together": ("stop", "switch-over"),
    "journal/damage-noticed": ("disk-corrupt",),
    "journal/torn-tail": ("kill", "destroy", "power-loss", "disk-corrupt", "disk-full", "disk-error"),
}
"""Name, or the part before its slash -> alternatives of which a test must have one.

They become ``Event.needs``.
"""


def _needed(name: str) -> Iterator[tuple[str, ...]]:
    for key in (name[: name.index("/") + 1], name):
        if key in _NEEDS:
            yield _NEEDS[key]


_PLAYS: Final[Mapping[str, str]] = {
    "vote/asked": "taker",
    "failover/taken": "taker",
    "lock/taken": "taker",
    "member/takeover-begun": "taker",
    "member/suspected": "claimant",
    "sync/snapshot-sent": "source",
}
"""Name -> the part that the broker plays that logs this event."""

EVENTS: Final[Mapping[str, Event]] = {
    name: Event(meaning, re.compile(line), tuple(_needed(name)), _PLAYS.get(name, ""))
    for name, (meaning, line) in _LINES.items()
}
