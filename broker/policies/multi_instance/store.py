"""The store of a queue manager, from the point of view of the active instance.

It replays the logs, and keeps the instance's record true.

`candidate` decides who is active, stands by and takes over. From there on, an active instance is
the live broker of ``shared_store``, which asks only this of its store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import msgspec

from broker.config import BrokerConfig
from broker.core.message import MESSAGE
from broker.ha_policy import MultiInstanceSection
from broker.policies.identity import new_node_id
from broker.policies.multi_instance.places import (
    ActiveLocks,
    InstanceLocks,
    InstanceRecord,
    State,
    write_record,
)
from broker.policies.ownership.candidacy import HeldLock
from broker.policies.shared_store import lives
from broker.policies.shared_store.directory import begin_life, without_a_mark
from broker.policies.shared_store.store import PAUSED, Inherited
from broker.seams import Seams
from broker.storage.shared import SharedDirectory
from broker.storage.subdirectory import Subdirectory

_log = logging.getLogger(__name__)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the replay of the logs, and how long it took."""

    records: int
    messages: int
    milliseconds: int


class QueueManagerStore:
    """A ``shared_store.store.SharedData``; ``replay`` is set once the logs have been replayed."""

    def __init__(
        self, config: BrokerConfig, section: MultiInstanceSection, seams: Seams, directory: SharedDirectory
    ) -> None:
        self.places = InstanceLocks(section, directory)
        self.replay: Replay | None = None
        self.ends: State = "ended-immediately"
        """The way in which the queue manager ends when all its instances do."""
        self._config = config
        self._section = section
        self._seams = seams
        self._logs = Subdirectory(directory, self.places.logs)

    async def inherit(self, live: HeldLock, require: Callable[[], None]) -> Inherited:
        """Replay the logs of the former life into one of our own."""
        name = self._section.queue_manager
        began_s = asyncio.get_running_loop().time()
        said = await self.places.record("active")
        node_id = said.node_id if said is not None else None
        if node_id is None:
            node_id = await without_a_mark(self._logs, self._section)
        node_id = node_id or new_node_id(self._seams, name)
        require()
        inherited = await begin_life(self._config, self._seams, self._logs, node_id, require)
        records = inherited.recovered.records
        self.replay = Replay(
            records=len(records),
            messages=sum(record.kind == MESSAGE for record in records),
            milliseconds=round((asyncio.get_running_loop().time() - began_s) * 1000),
        )
        _log.info(
            "%d log records accessed on queue manager %r during the log replay phase", len(records), name
        )
        _log.info(
            "log replay for queue manager %r complete: %d messages, %d ms",
            name,
            self.replay.messages,
            self.replay.milliseconds,
        )
        await self._say(live, node_id, "running")
        return inherited

    async def leave(self, live: HeldLock, state: str) -> None:
        """Record whether the standby instance may take over, or ends with us."""
        said = await self.places.record("active")
        assert said is not None, "a queue manager that ran has said so"
        ends: State = self.ends if state == PAUSED else "switched-over"
        await self._say(live, said.node_id, ends)
        name = self._section.queue_manager
        if ends == "switched-over":
            _log.info("queue manager %r ended, permitting switchover to a standby instance", name)
        else:
            _log.info("queue manager %r ended", name)

    async def tidy(self, life: int) -> None:
        """Remove the logs of former lives."""
        await lives.remove_older(self._logs, life)

    async def close(self) -> None:
        """Do nothing: nothing was opened here."""

    async def _say(self, live: HeldLock, node_id: str | None, state: State) -> None:
        await write_record(
            cast("ActiveLocks", live).data,
            InstanceRecord(
                instance=self._config.broker.name,
                node_id=node_id,
                permit_standby=self._section.permit_standby,
                state=state,
            ),
        )
