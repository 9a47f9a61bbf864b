"""The life of a broker on a shared store.

It waits for the live lock, reigns, and waits again (AMQ 17.3.2).

master  live when it gets the lock; if another is live, it waits for its place
slave   waits behind the other backups; after a failback it waits again (restart-backup) or ends
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from broker.config import BrokerConfig
from broker.ha_policy import SharedStoreMaster, SharedStoreSlave
from broker.policies.policy import Succession
from broker.policies.shared_store.candidate import Candidate, Granted, master_is_back
from broker.policies.shared_store.contender import Contender
from broker.policies.shared_store.live import LiveEnd, LiveRole, bounded
from broker.policies.shared_store.store import Mark, Store
from broker.seams import Seams

_log = logging.getLogger(__name__)


class SharedStorePolicy(Contender):
    """See ``policy.Policy``."""

    def __init__(self, config: BrokerConfig, seams: Seams, store: Store) -> None:
        assert config.shared_store is not None
        super().__init__(config, seams)
        self.section = config.shared_store
        self.candidate: Candidate | None = None
        self.failover: bool | None = None
        """For the stop that is under way: overrides failover-on-shutdown."""
        self._store = store

    @property
    def replicating(self) -> bool:
        """A live: never, all data are in one place.

        A backup: it is the next to be live, and lacks nothing.
        """
        return self.candidate is not None and self.candidate.next_in_line

    @property
    def succession(self) -> Succession:
        """The life of the store; but for the first, each takes the data over from the last."""
        return Succession() if self.live is None else self.live.succession

    def request_stop(self, *, failover: bool | None = None) -> None:
        """What the stop to come shall do about failover."""
        self.failover = failover
        if self.live is not None and failover is not None:
            self.live.failover_on_shutdown = failover

    def details(self) -> dict[str, Any]:
        """Nothing secret: names and counts."""
        shown: dict[str, Any] = {
            "policy": "shared-store",
            "configured": "master" if isinstance(self.section, SharedStoreMaster) else "slave",
            "store": "directory" if self.config.shares_directory else "database",
        }
        if self.live is not None:
            shown |= {"life": self.live.life, "lock-confirmed-ms-ago": round(self.live.lease.age_s * 1000)}
        return shown

    async def run(self, stopping: asyncio.Event) -> None:
        """See ``policy.Policy``. Raises FencedError when the lock or the store is lost."""
        await self.membership.start()
        try:
            while not stopping.is_set():
                granted = await self._wait(stopping)
                if granted is None:
                    return
                if await self._reign(granted, stopping) == "stopped":
                    return
                if isinstance(self.section, SharedStoreSlave) and not self.section.restart_backup:
                    _log.info("failback is done and restart-backup is off: this broker stops")
                    return
        finally:
            self._become("stopped")
            await self.membership.stop()
            await bounded(self._store.close())

    async def _wait(self, stopping: asyncio.Event) -> Granted | None:
        """Until the live lock is ours; None when the broker is to stop."""
        candidate = self.candidate = Candidate(
            self._store.places, self.section, self.config.broker.name, self._waits
        )
        try:
            return await self._compete(candidate, stopping)
        finally:
            self.candidate = None

    async def _reign(self, granted: Granted, stopping: asyncio.Event) -> LiveEnd:
        failback = isinstance(self.section, SharedStoreSlave) and self.section.allow_failback
        role = self.live = LiveRole(
            self.config,
            self.section,
            self._seams,
            self._store,
            self.membership,
            granted,
            self._become,
            partial(master_is_back, self._store.places, self.section) if failback else None,
        )
        if self.failover is not None:
            role.failover_on_shutdown = self.failover
        try:
            end = await role.run(stopping)
        finally:
            self.live = None
        if end == "handed-over":
            self._become("backup")
        return end

    def _waits(self, mark: Mark) -> None:
        if mark.node_id is not None and mark.node_id != self.membership.own.node_id:
            self.membership.announce(node_id=mark.node_id)
        self._become("backup")

    def _become(self, role: str) -> None:
        if role != self._role:
            _log.debug("role %s", role)
            self._role = role
            self.epoch += 1
            self.membership.announce(role=role)
