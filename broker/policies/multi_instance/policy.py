"""The life of one instance of a multi-instance queue manager.

It finds its place, stands by, is active, and ends (WebSphere MQ 7.0.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from broker.config import BrokerConfig
from broker.policies.multi_instance.candidate import Candidate
from broker.policies.multi_instance.steering import Steering
from broker.policies.multi_instance.store import QueueManagerStore
from broker.policies.ownership.candidacy import Granted
from broker.policies.ownership.contender import Contender
from broker.policies.shared_store.live import LiveRole
from broker.seams import Seams
from broker.storage.shared import SharedDirectory

_log = logging.getLogger(__name__)


class MultiInstancePolicy(Contender):
    """See ``policy.Policy``.

    An active instance has the role "live", a standby instance "backup".
    """

    reign: LiveRole | None

    def __init__(self, config: BrokerConfig, seams: Seams, directory: SharedDirectory) -> None:
        assert config.ha_policy.multi_instance is not None
        super().__init__(config, seams)
        self.section = config.ha_policy.multi_instance
        self.store = QueueManagerStore(config, self.section, seams, directory)
        self._steering = Steering(
            self.section.queue_manager,
            self.store,
            role=lambda: self.role,
            live=lambda: self.reign,
            switch_over_at_end=lambda failover: self.request_stop(failover=failover),
            end=self.end,
        )
        self._stopping: asyncio.Event | None = None

    @property
    def commands(self) -> Mapping[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]]:
        """See ``policy.Steered``."""
        return self._steering.commands

    def end(self) -> None:
        """Begin the stop that was asked for."""
        if self._stopping is not None:
            self._stopping.set()

    def details(self) -> dict[str, Any]:
        """Nothing secret: names and counts."""
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
        """See ``policy.Policy``.

        Raises StartRefusedError, FencedError when the locks or the file system are lost.
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
            role = LiveRole(
                self.config, self.section, self._seams, self.store, self.membership, granted, self._become
            )
            self.reign = self._own(role)
            try:
                await role.run(stopping)
            finally:
                self.reign = None
        finally:
            self._become("stopped")
            self._steering.close()
            await self.membership.stop()

    async def _wait(self, stopping: asyncio.Event) -> Granted | None:
        """Until the locks of the active instance are ours; None when this one is to end."""
        candidate = Candidate(
            self.store.places, self.section, self.config.broker.name, lambda said: self._waits(said.node_id)
        )
        return await self._compete(candidate, stopping)

    def _become(self, role: str) -> None:
        if role == "live" and self._role in ("starting", "backup"):
            _log.info("queue manager %r started", self.section.queue_manager)
        super()._become(role)
