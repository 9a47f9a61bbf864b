"""The policy ``replication`` in a test: live-backup pairs whose backup has a copy.

Each live has one backup, or as many as ``--set group:backups=2`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Address, Event, NodePlan, TestSpec, UsageError
from harness.interface.errors import near
from harness.systems import store
from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy

_GROUP: Final = "group"

_TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    "vote-on-replication-failure": True,
    "vote-retries": 5,
    "vote-retry-wait": 200,
    "quorum-vote-wait": 1000,
    "retry-replication-wait": 200,
    "initial-replication-sync-timeout": 10_000,
    "replication-patience": 2000,
}
"""Short times for tests (milliseconds), of master and slave."""

_ROLE_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "master": {"check-for-live-server": True},
    "slave": {"allow-failback": True, "restart-backup": True},
}


_EVENTS: Final[Mapping[str, Event]] = {
    **needing(
        "replication",
        {
            "vote/live-asked": event("a live asked for votes to go on", r" INFO \S+ live vote, round "),
            "vote/asked": event(
                "a backup asked for votes", r"backup vote, round \d+ of \d+: ", plays="taker"
            ),
            "vote/asked-again": event(
                "a backup asked again, after a round did not pass",
                r"backup vote, round (?!1 )\d+ of \d+: ",
            ),
            "vote/granted": event(
                "a broker granted a vote", r"vote: \S+ asks to be live under node ID \S+: granted$"
            ),
            "vote/refused": event(
                "a broker refused a vote", r"vote: \S+ asks to be live under node ID \S+: refused: "
            ),
            "vote/backup-lost": event(
                "a backup gave up after all rounds", r"the backup vote failed \d+ times"
            ),
            "vote/live-lost": event("a live stopped itself for lack of votes", r"the live vote was lost \("),
            "vote/live-held": event(
                "a live stopped answering until a decision", r"replication interrupted: "
            ),
            "vote/alone": event(
                "a live went on without a backup", r"replication: no backup; messages acknowledged"
            ),
            "vote/waited": event(
                "a starting master waited for another's vote",
                r"may become live: waiting for the end of its vote",
            ),
            "failover/taken": event(
                "a backup became live, at a failback too",
                r"this broker takes over as live",
                plays="taker",
            ),
            "failover/handed-over": event(
                "a stopping live left its place to its backup",
                r"lets this broker take over",
                ("stop",),
            ),
            "failover/wanted-none": event(
                "a live stopped cleanly and wanted no failover",
                r"wants no failover: this broker stays passive",
                ("stop",),
            ),
            "failback/begun": event(
                "a master was up to date with the broker that stood in",
                r"failback: \S+ is up to date and takes over",
            ),
            "failback/interrupted": event(
                "the master was lost during a failback", r"failback: \S+ was lost before it took over"
            ),
            "failback/found-live": event(
                "a master found its node ID live and became its backup",
                r"is live under the node ID of this broker, which becomes",
            ),
            "sync/begun": event("an initial synchronisation began", r"replication: synchronising with"),
            "sync/snapshot-sent": event(
                "a live sent its journal", r"replication: sending \d+ bytes", plays="source"
            ),
            "sync/finished": event(
                "a backup became up to date", r"replication: this broker is up to date with"
            ),
            "sync/interrupted": event(
                "a backup was gone before it was up to date", r"was lost before it was up to date"
            ),
            "sync/unfinished-at-start": event(
                "a broker started on an unfinished copy", r"the journal of this broker is an unfinished copy"
            ),
            "sync/stale": event(
                "a copy that was not up to date stayed passive",
                r"the copy was not up to date: this broker stays passive",
            ),
            "replication/lost": event(
                "a backup lost its live", r" INFO \S+ replication: the live broker \S+ is lost: "
            ),
            "journal/moved-aside": event(
                "old data was moved aside for a copy",
                r"was moved to \S+: a copy of",
                ("files",),
            ),
        },
    ),
    "replication/divergence-seen": event(
        "two brokers were live with one node ID, and one of them said so",
        r"duplicate node ID",
        ("replication", "locks"),
    ),
}


class Replication(Policy):
    """A policy with a master and its slaves, which vote."""

    name = "replication"
    events = _EVENTS
    traits = ("replication",)
    description = (
        "live-backup pairs; the backup has what the live acknowledged, quorum votes decide (AMQ 17.3.3)"
    )
    by_role = True
    machines = (_GROUP,)
    draws: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "ha-policy.replication.vote-retries": (2, 10),
        "ha-policy.replication.vote-retry-wait": (100, 600),
        "ha-policy.replication.quorum-vote-wait": (500, 2000),
        "ha-policy.replication.retry-replication-wait": (100, 500),
        "ha-policy.replication.replication-patience": (1000, 4000),
    }

    def roles(self, spec: TestSpec) -> tuple[str, ...]:
        """Return the roles, the master first."""
        for name in spec.properties.get(_GROUP, {}):
            if name != store.BACKUPS:
                raise UsageError(f"--set {_GROUP}:{name}: unknown property: {near(name, [store.BACKUPS])}")
        return ("master", *("slave" for _ in range(store.backups(spec, _GROUP))))

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return the defaults of a node.

        Votes are on, as 17.3.3 recommends for three pairs and more.
        """
        del nodes, hosts
        section = {**_TEST_DEFAULTS, **_ROLE_DEFAULTS[node.configured], "group-name": node.pair}
        return {f"ha-policy.replication.{node.configured}.{name}": value for name, value in section.items()}
