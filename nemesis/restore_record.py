"""The restoration of a cluster's change record from a backup, as an administrator does it.

SUN, "Managing the Configuration Change Record": the record is backed up, later all brokers are
stopped, the master's record is restored, and the brokers are started. Queues and durable
subscriptions that were made or dropped between backup and stop are as they were at the backup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from harness.interface import Fault, NodePlan
from nemesis.admin import ask
from nemesis.kind import Impact, Injection, Kind, Option, Situation, number, one_of
from nemesis.node import DownKind, Kill, Stop

BACKUP: Final = "backup-record"
AGE_S: Final = 1.0
_BY: Final[Mapping[str, DownKind]] = {"stop": Stop(), "kill": Kill()}
"""The ways in which brokers end before the restoration."""


class RestoreRecord(Kind):
    """A backup of the record, changes that go on, and a restart of all brokers with the backup.

    Every part of it is between the invoke row of the fault and the info row of its healing: a
    change before that is in the backup, and a change after that is in the restored record.
    """

    name = "restore-record"
    description = (
        "the change record of a conventional cluster is backed up, all brokers are stopped, and they are "
        "started with the backup at the end"
    )
    unpromised = "a restoration undoes what was made or dropped after the backup"
    primitives: ClassVar[tuple[str, ...]] = ("kill", "stop", "edit-data")
    stops = ends = undoes = True
    options: ClassVar[Mapping[str, Option]] = {
        "by": Option(
            "how the brokers end: each asked to stop, or all killed at once; stop by default",
            one_of(*_BY),
            drawn=tuple(_BY),
        ),
        "age-s": Option(
            "the seconds from the backup until the brokers end; 1 by default",
            number(0),
            drawn=(0.2, AGE_S, 2.0),
        ),
    }

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: a master broker whose record is in files of its own."""
        masters = [node for node in nodes if node.master and BACKUP in node.commands]
        if not masters:
            return (
                "only the master broker of a conventional cluster keeps a change record: use --policy "
                "conventional --master a1"
            )
        if any(node.database is not None for node in masters):
            return "the change record is in a database: leave the brokers' stores on their disks"
        return ""

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose all brokers, and the master among them whose record is restored."""
        del fault
        nodes = tuple(node.name for node in situation.nodes if node.broker)
        master = next(node.name for node in situation.nodes if node.master)
        return Impact(", ".join(nodes), nodes=nodes, by=master)

    async def begin(self, injection: Injection) -> str | None:
        """Back the record up, end all brokers a while later, and restore the record."""
        actions, master, options = injection.actions, injection.impact.by, injection.fault.options
        backup = await ask(actions, master, BACKUP)
        await asyncio.sleep(options.get("age-s", AGE_S))
        await _BY[options.get("by", "stop")].begin(injection)
        await actions.restore_record(master, backup)
        return None

    async def end(self, injection: Injection) -> None:
        """Start the brokers that no other fault keeps down."""
        await injection.actions.restart(injection.label, injection.impact.nodes)

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether every broker is gone, and at least one was there before."""
        return _BY["stop"].bit(before, observed)

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether every broker runs."""
        return _BY["stop"].healed(observed)
