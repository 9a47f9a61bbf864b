"""The life of one instance of a multi-instance queue manager.

It finds its place, stands by, is active, and ends (WebSphere MQ 7.0.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import msgspec

from broker.config import BrokerConfig
from broker.policies.multi_instance.candidate import InstanceCandidate
from broker.policies.multi_instance.steering import InstanceSteering
from broker.policies.multi_instance.store import QueueManagerStore
from broker.policies.ownership.candidacy import Granted
from broker.policies.ownership.contender import Contender
from broker.policies.shared_store.live import StoreReign
from broker.seams import Seams
from broker.storage.database import Database
from broker.storage.shared import SharedDirectory
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)


class MultiInstancePolicy(Contender):
    """The policy "multi-instance"; see ``BrokerPolicy``.

    The active instance's role is "live", the standby one's "backup".
    """

    reign: StoreReign | None

    def __init__(self, config: BrokerConfig, seams: Seams, directory: SharedDirectory) -> None:
        assert config.ha_policy.multi_instance is not None
        super().__init__(config, seams)
        self.section = config.ha_policy.multi_instance
        self.store = QueueManagerStore(config, self.section, seams, directory)
        self._steering = InstanceSteering(self, self.section.queue_manager, self.store, self.end)
        self.commands = self._steering.commands
        self._stopping: asyncio.Event | None = None

    def end(self) -> None:
        """Begin the stop that was asked for."""
        if self._stopping is not None:
            self._stopping.set()

    def details(self) -> dict[str, Any]:
        """Return names and counts for ``status``; nothing secret."""
        shown: dict[str, Any] = {
            "policy": "multi-instance",
            "configured": "instance",
            "queue-manager": self.section.queue_manager,
            "status": self._steering.status,
            "permit-standby": self.section.permit_standby,
        }
        if self.reign is not None:
            shown |= self.reign.details()
            if self.store.replay is not None:
                shown["log-replay"] = msgspec.to_builtins(self.store.replay)
        return shown

    async def run(self, stopping: asyncio.Event) -> None:
        """Run the instance until ``stopping``, or until the queue manager was ended.

        Raises StartRefusedError; FencedError when the locks or the file system are lost.
        """
        self._stopping = stopping
        name = self.section.queue_manager
        await self.membership.start()
        try:
            _log.info("queue manager %r starting", name)
            granted = await self._wait(stopping)
            if granted is None:
                _log.info("standby queue manager instance %r ended", name)
                return
            self.reign = StoreReign(self, self.section, self.store, granted)
            try:
                await self.reign.run(stopping)
            finally:
                self.reign = None
        finally:
            self.become("stopped")
            self._steering.close()
            await self.membership.stop()

    async def _wait(self, stopping: asyncio.Event) -> Granted | None:
        """Wait until the active instance's locks are ours; None when this one is to end."""
        candidate = InstanceCandidate(
            self.store.places, self.section, self.config.broker.name, lambda said: self._waits(said.node_id)
        )
        return await self._compete(candidate, stopping)

    def become(self, role: str, **said: Any) -> None:
        """Take a role, and log the start of the queue manager; see ``BrokerPolicy``."""
        if role == "live" and self._role in ("starting", "backup"):
            _log.info("queue manager %r started", self.section.queue_manager)
        super().become(role, **said)


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> MultiInstancePolicy:
    """Return the policy; ``volume`` is the shared directory."""
    del database
    return MultiInstancePolicy(config, seams, cast("SharedDirectory", volume))
