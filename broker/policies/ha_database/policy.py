"""The life of a broker in a high-availability cluster (Sun 4.1, chapter 8).

This module also decides what follows each end of a life.

A broker that was taken over, or that could not renew its lease in time, begins again. It registers
in a new epoch and serves what it then owns, which after a takeover is nothing. So a victim that
comes back is a member of the cluster like any other, and no zombie is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from broker.cluster.membership import Membership
from broker.config import BrokerConfig
from broker.policies.ha_database.life import RETRY_S, Life, LifeEnd, node_id_of
from broker.policies.ha_database.steering import MemberSteering
from broker.policies.ownership.contender import Contender
from broker.policies.stop import until
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.database import Database, DatabaseError
from broker.storage.database.registry import Registered, Registry, ReplacedError, RowChangedError
from broker.storage.database.schema import TAKEOVER_STARTED
from broker.storage.records import Record
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)


class HaDatabasePolicy(Contender):
    """The policy "ha-database", see ``BrokerPolicy``; each call of ``database`` connects anew."""

    reign: Life | None

    def __init__(self, config: BrokerConfig, seams: Seams, database: Callable[[], Database]) -> None:
        assert config.cluster is not None
        assert config.database_store is not None
        assert config.ha_policy.ha_database is not None
        cluster = msgspec.structs.replace(config.cluster, static_connectors=())
        super().__init__(config, seams, Membership(config, cluster, seams))
        self.section = config.ha_policy.ha_database
        self.store = config.database_store
        self.broker_id = self.section.broker_id or config.broker.name
        if config.cluster.static_connectors:
            _log.warning(
                "cluster.static-connectors is ignored: brokers of a high-availability cluster find each "
                "other in the database"
            )
        # Three connections: heartbeats must not wait behind a long batch, nor batches behind a
        # takeover that waits for its victim's row, nor any of them behind a large body.
        self._databases = (database(), database(), database())
        self.registry = Registry(
            self._databases[0],
            self.section.cluster_id,
            self.broker_id,
            expiration_ms=self.store.lock_expiration,
            timeout_s=self.store.network_timeout / 1000,
        )
        self._node_id = node_id_of(self.section.cluster_id, self.broker_id)
        self.commands = MemberSteering(self, self.registry).commands
        self._lived: int | None = None
        """The epoch of our latest life in this process."""

    @property
    def node_id(self) -> str:
        """The node ID of the cluster and our id in it, whichever broker owns our rows."""
        return self._node_id

    def details(self) -> dict[str, Any]:
        """Return ids, states, and what the store last said of the others; nothing secret."""
        shown: dict[str, Any] = {
            "policy": "ha-database",
            "configured": "member",
            "cluster-id": self.section.cluster_id,
            "broker-id": self.broker_id,
        }
        life = self.reign
        if life is not None:
            shown |= {
                "store-epoch": life.registered.epoch,
                "store-sessions": list(life.store_sessions.sessions),
                "taken-over": list(life.taken_over),
                "brokers": [
                    {
                        "broker-id": row.broker_id,
                        "address": row.address,
                        "state": row.state,
                        "taker": row.taker or None,
                        "silence-ms": row.silence_ms,
                    }
                    for row in life.rows
                ],
            }
        return shown

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping``. Raises StartError."""
        await self.membership.start()
        self.membership.announce(node_id=self._node_id)
        try:
            while not stopping.is_set():
                if await self._live_once(stopping) == "stopped":
                    return
        finally:
            self.become("stopped")
            await self.membership.stop()
            for database in self._databases:
                await database.close()

    async def _live_once(self, stopping: asyncio.Event) -> LifeEnd:
        begin = asyncio.create_task(self._begin(), name="ha-database begins")
        await until(stopping, begin)
        if not begin.done():
            begin.cancel()
            await asyncio.gather(begin, return_exceptions=True)
            return "stopped"
        registered, sent, records = begin.result()
        life = self.reign = Life(self, self.registry, self._databases[1:], registered, sent, records)
        self._lived = registered.epoch
        try:
            end = await life.run(stopping)
        finally:
            self.reign = None
            self.become("starting")
        if life.failure is not None:
            raise StartError(f"{self.section.cluster_id}: {life.failure}")
        return end

    async def _begin(self) -> tuple[Registered, float, list[Record]]:
        """Register and load, however long the database or a takeover of ourselves takes.

        Raises StartError for an id that is not ours.
        """
        loop = asyncio.get_running_loop()
        told = ""
        while True:
            problem = ""
            try:
                await self.registry.create()
                sent = loop.time()
                registered = await self.registry.register(self.membership.section.connector)
                records = await self.registry.load(registered, registered.sessions)
                if loop.time() - sent > self.store.lock_renew_period / 1000:
                    sent = loop.time()
                    await self.registry.renew(registered)
            except RowChangedError as error:
                row = error.row
                if row is not None and row.state != TAKEOVER_STARTED:
                    raise StartError(
                        f"ha-policy.ha-database.broker-id {self.broker_id!r} is in use by the broker at "
                        f"{row.address}:"
                        " every broker of a cluster needs an id of its own"
                    ) from None
                problem = f"another broker is taking over {self.broker_id}: {error}"
                if self._lived is not None:
                    # Our life has ended, and with it all that it had in memory: the taker need not
                    # wait for the end of our lease.
                    with contextlib.suppress(DatabaseError):
                        await self.registry.step_aside(self._lived)
            except ReplacedError as error:
                problem = f"another broker replaced {self.broker_id} before it could serve: {error}"
            except DatabaseError as error:
                problem = f"the database cannot be used: {error}"
            else:
                return registered, sent, records
            if problem != told:
                told = problem
                _log.warning("ha-database: this broker waits before it serves: %s", problem)
            await asyncio.sleep(RETRY_S)


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> HaDatabasePolicy:
    """Return the policy; its messages are in the database."""
    del volume
    assert database is not None, "a store in a database, and no database"
    return HaDatabasePolicy(config, seams, database)
