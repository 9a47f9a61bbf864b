"""A database as the store of one broker of a conventional cluster (CAPS, "JDBC store").

Each broker has a store of its own, which ``database-store.store-name`` names: no broker takes over
from another here. The store remembers whose it is, and refuses every other broker, whether its
owner runs or not. The owner's lock keeps a second process of the same broker out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from broker.config import BrokerConfig
from broker.policies.ownership.lease import Lease, LeaseLostError
from broker.policies.shared_store.database import DatabaseLock, DatabaseStore
from broker.policies.shared_store.store import LIVE, Inherited
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.database import Database
from broker.storage.database.locks import RETRY_S
from broker.storage.entries import EntryStore
from broker.storage.errors import JournalFailedError
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Recovered

_MARGIN_S: Final = 1.0
"""How much longer than the expiration of a lock it is waited for."""

_log = logging.getLogger(__name__)


class OwnDatabaseStore:
    """The store of one broker in a database; see ``solo.OwnStore``."""

    name = "the database"

    def __init__(self, config: BrokerConfig, seams: Seams, database: Callable[[], Database]) -> None:
        assert config.database_store is not None, "a store in a database without one"
        self.gate: DurabilityGate | None = None
        self.on_lost: Callable[[JournalFailedError], None] = lambda _: None
        self._section = config.database_store
        self.place = f"database-store {self._section.store_name}"
        self._broker = config.broker.name
        self._store = DatabaseStore(config, seams, database)
        self._lock: DatabaseLock | None = None
        self._inherited: Inherited | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> tuple[EntryStore, Recovered]:
        """Take the lock, and return the journal. Raises StartError for another broker's store."""
        try:
            await self._store.places.prepare()
            lock, asked_s = await self._take()
            self._lock = lock
            lease = Lease(
                self.place,
                self._verify,
                proven_s=asked_s,
                period_s=self._section.lock_renew_period / 1000,
                expiration_s=self._section.lock_expiration / 1000,
            )
            inherited = self._inherited = await self._store.inherit(lock, lease.require)
        except (OSError, LeaseLostError) as error:
            await self.close()
            raise StartError(f"{self.place}: {error}") from error
        except StartError:
            await self.close()
            raise
        gate = self.gate = DurabilityGate(inherited.journal.synced)
        lease.guard(gate)
        lease.on_certain = gate.release
        self._renewing = asyncio.create_task(self._renew(lease), name="confirm the lock of the store")
        return inherited.journal, inherited.recovered

    async def node_id(self) -> str:
        """Return the node ID that the store remembers."""
        assert self._inherited is not None, "the store is not open"
        return self._inherited.node_id

    async def close(self) -> None:
        """Close the journal, and free the lock, so that the next start need not wait for it."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._inherited is not None:
            await self._inherited.journal.close()
        with contextlib.suppress(OSError):
            if self._lock is not None:
                await self._store.leave(self._lock, LIVE)
                await self._lock.release()
        await self._store.close()

    async def _take(self) -> tuple[DatabaseLock, float]:
        """Return the lock, and when it was asked for. Raises StartError for another's store.

        The lock of our former process, if that was killed, expires after a while.
        """
        is_told = False
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._section.lock_expiration / 1000 + _MARGIN_S
        while True:
            asked_s = loop.time()
            lock = await self._store.places.take("live")
            owner = (await self._store.places.read()).name
            if owner not in ("", self._broker):
                if lock is not None:
                    await lock.release()
                raise StartError(
                    f"database-store.store-name {self._section.store_name!r} is the store of broker "
                    f"{owner!r}: each broker of a conventional cluster has a store of its own"
                )
            if lock is not None:
                return lock, asked_s
            if asked_s > deadline_s:
                raise StartError(
                    f"database-store.store-name {self._section.store_name!r} is in use by another process of "
                    f"broker {self._broker!r}: end that one first"
                )
            if not is_told:
                is_told = True
                _log.info("%s is locked: this broker waits until the lock expires", self.place)
            await asyncio.sleep(RETRY_S)

    async def _verify(self) -> float:
        assert self._lock is not None, "the store is not open"
        asked_s = asyncio.get_running_loop().time()
        try:
            await self._lock.verify()
        except OSError as error:
            raise LeaseLostError(f"the lock is lost: {error}") from error
        return asked_s

    async def _renew(self, lease: Lease) -> None:
        try:
            await lease.run()
        except LeaseLostError as error:
            self.on_lost(JournalFailedError(str(error)))
