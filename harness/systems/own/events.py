"""The events in our brokers' logs that are the same under all policies, and those of the policies.

Only this module and those of the policies know the wording of the log lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.interface import Event
from harness.systems.own.policies.event import event
from harness.systems.own.policies.registry import POLICIES

_COMMON: Final[Mapping[str, Event]] = {
    "broker/served": event("a broker began to serve clients", r"serving STOMP on"),
    "broker/stopped-cleanly": event("a broker ended as it was asked to", r" INFO \S+ stopped$"),
    "broker/failed": event(
        "a broker ended itself by an error",
        r" ERROR \S+ (?!the live vote was lost|stopped: |journal: compaction|"
        r".*this broker answers no client any more, and ends)",
    ),
    "broker/unclean-recovery": event(
        "a broker recovered after an unclean end", r"queues after an unclean shutdown"
    ),
    "database/in-doubt": event(
        "it was not known whether a commit had happened",
        r"database: entries \d+ to \d+ are not confirmed: ",
        ("database",),
    ),
    "journal/torn-tail": event(
        "a recovery cut off a torn tail",
        r"journal: cut off a torn tail",
        ("files",),
        ("kill", "destroy", "power-loss", "disk-corrupt", "disk-full", "disk-error"),
    ),
    "journal/compacted": event("a journal was compacted", r"journal: compacted", ("files",)),
    "journal/damage-noticed": event(
        "a broker refused a damaged journal", r"journal damaged", ("files",), ("disk-corrupt",)
    ),
    "cluster/link-lost": event("brokers lost each other", r"cluster: link with \S+ lost", ("several",)),
    "cluster/linked": event("brokers found each other", r"cluster: linked with", ("several",)),
}

EVENTS: Final[Mapping[str, Event]] = {
    **_COMMON,
    **{name: reported for policy in POLICIES.values() for name, reported in policy.events.items()},
}
