"""The life of a broker on a shared store.

It waits for the live lock, reigns, and waits again (AMQ 17.3.2).

master  live when it gets the lock; if another is live, it waits for its place slave   waits behind
the other backups; after a failback it waits again (restart-backup) or ends
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker.config import BrokerConfig
from broker.ha_policy import SharedStoreMaster, SharedStoreSlave
from broker.policies.ownership.candidacy import Granted, bounded
from broker.policies.ownership.contender import Contender
from broker.policies.shared_store.candidate import StoreCandidate, master_is_back
from broker.policies.shared_store.live import LiveEnd, StoreReign
from broker.policies.shared_store.store import BrokerStore
from broker.seams import Seams
from broker.storage.database import Database
from broker.storage.volume import Volume

if TYPE_CHECKING:
    from broker.storage.shared import SharedDirectory

_log = logging.getLogger(__name__)


class SharedStorePolicy(Contender):
    """The policy "shared-store"; see ``BrokerPolicy``."""

    reign: StoreReign | None

    def __init__(self, config: BrokerConfig, seams: Seams, store: BrokerStore) -> None:
        assert config.shared_store is not None
        super().__init__(config, seams)
        self.section = config.shared_store
        self._store = store

    def details(self) -> dict[str, Any]:
        """Return names and counts for ``status``; nothing secret."""
        shown: dict[str, Any] = {
            "policy": "shared-store",
            "configured": "master" if isinstance(self.section, SharedStoreMaster) else "slave",
            "store": "database" if self.config.database_store is not None else "directory",
        }
        if self.reign is not None:
            shown |= self.reign.details()
        return shown

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping``; see ``BrokerPolicy``.

        Raises FencedError when the lock or the store is lost.
        """
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
            self.become("stopped")
            await self.membership.stop()
            await bounded(self._store.close())

    async def _wait(self, stopping: asyncio.Event) -> Granted | None:
        """Wait until the live lock is ours; None when the broker is to stop."""
        candidate = StoreCandidate(
            self._store.places, self.section, self.config.broker.name, lambda mark: self._waits(mark.node_id)
        )
        return await self._compete(candidate, stopping)

    async def _reign(self, granted: Granted, stopping: asyncio.Event) -> LiveEnd:
        failback = isinstance(self.section, SharedStoreSlave) and self.section.allow_failback
        reclaimed = partial(master_is_back, self._store.places, self.section) if failback else None
        self.reign = StoreReign(self, self.section, self._store, granted, reclaimed)
        try:
            end = await self.reign.run(stopping)
        finally:
            self.reign = None
        if end == "handed-over":
            self.become("backup")
        return end


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> SharedStorePolicy:
    """Return the policy with its store, a directory (``volume``) or a database."""
    return SharedStorePolicy(config, seams, _store(config, seams, volume, database))


def _store(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> BrokerStore:
    assert config.shared_store is not None, "no shared store"
    if config.database_store is not None:
        from broker.policies.shared_store.database import DatabaseStore  # noqa: PLC0415 - a broker starts fast with what it needs

        assert database is not None, "a store in a database, and no database"
        return DatabaseStore(config, seams, database)
    from broker.policies.shared_store.directory import DirectoryStore  # noqa: PLC0415 - as above

    return DirectoryStore(config, config.shared_store, seams, cast("SharedDirectory", volume))
