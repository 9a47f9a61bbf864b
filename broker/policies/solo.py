"""The life of a broker without a backup: live from its start to its end.

A receipt means "on this broker's disk". Policies that need no more are made of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from broker.cluster.balancing import Balancing
from broker.cluster.home_model import HomeModel
from broker.config import BrokerConfig
from broker.core.engine import Engine
from broker.policies.identity import own_node_id
from broker.policies.journal import open_journal
from broker.policies.live import Live
from broker.policies.policy import BrokerPolicy
from broker.policies.stop import in_time
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.entries import EntryStore
from broker.storage.errors import JournalFailedError
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal, Recovered
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)


class OwnStore(Protocol):
    """The store of a broker from which no other takes over.

    ``name`` and ``place`` name it in messages. ``gate`` is that of the engine, None for a plain
    one. ``on_lost`` is called if the store is not ours any more.
    """

    name: str
    place: str
    gate: DurabilityGate | None
    on_lost: Callable[[JournalFailedError], None]

    async def open(self) -> tuple[EntryStore, Recovered]:
        """Open the store, and return the journal and what it holds. Raises StartError."""
        ...

    async def node_id(self) -> str:
        """Return the node ID of the data; the store is open."""
        ...

    async def close(self) -> None:
        """Close the journal, and give the store back."""
        ...


class DiskStore:
    """A journal on the broker's own disk; see ``OwnStore``."""

    name = "the disk"
    gate: DurabilityGate | None = None

    def __init__(self, config: BrokerConfig, seams: Seams, volume: Volume) -> None:
        self.place = f"{config.data_path}/journal"
        self.on_lost: Callable[[JournalFailedError], None] = lambda _: None
        self._config = config
        self._seams = seams
        self._volume = volume
        self._journal: Journal | None = None

    async def open(self) -> tuple[EntryStore, Recovered]:
        """Open the journal. Raises StartError."""
        self._journal, recovered = await open_journal(self._volume, self._config, self._seams)
        return self._journal, recovered

    async def node_id(self) -> str:
        """Return the node ID, which is new with an empty disk."""
        return await own_node_id(self._volume, self._seams, self._config.broker.name)

    async def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            await self._journal.close()


class SoloPolicy(BrokerPolicy):
    """A policy whose brokers are live alone, see ``BrokerPolicy``; its epoch counts from 0."""

    name: ClassVar[str]
    """What ``brokerctl status`` shows as the policy."""

    def __init__(self, config: BrokerConfig, seams: Seams, volume: Volume) -> None:
        super().__init__(config, seams)
        self.epoch = 0
        self._volume = volume
        self._store: OwnStore = DiskStore(config, seams, volume)
        self._node_id: str | None = None
        self._live: Live | None = None
        self._failed: JournalFailedError | None = None

    @property
    def node_id(self) -> str | None:
        """The node ID of the journal, once it was read."""
        return self._node_id

    @property
    def engine(self) -> Engine | None:
        """The engine of a live; None for any other role."""
        return None if self._live is None else self._live.engine

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping``; a failed disk ends the broker at once, without any answer."""
        store = self._store
        journal, recovered = await store.open()
        try:
            node_id = self._node_id = await store.node_id()
            balancing = await self._join(node_id)
            live = Live(self.config, self.seams, journal, recovered, node_id, store.gate, balancing)
            if balancing is not None:
                balancing.attach(live.engine)
            journal.on_failed = store.on_lost = lambda error: self._fail(error, live, stopping)
            self._live = live
            await self._begin(live, recovered)
            await stopping.wait()
            self.become("stopping")
            self._end()
            if balancing is not None:
                balancing.detach()
            if self._failed is None:
                await in_time(live.close(), store.name)
        finally:
            served, self._live = self._live, None
            if served is not None:
                served.abandon()
            await store.close()
            self.become("stopped")
            if self.membership is not None:
                await self.membership.stop()
        if self._failed is not None:
            raise StartError(f"{store.place}: {self._failed}")

    async def _join(self, node_id: str) -> Balancing | HomeModel | None:
        """Take our place in the cluster, if there is one. Raises StartError."""
        if self.membership is None:
            return None
        await self.membership.start(self._volume)
        self.membership.announce(node_id=node_id)
        return Balancing(self.membership, node_id)

    async def _begin(self, live: Live, recovered: Recovered) -> None:
        """Serve clients. Raises StartError and JournalFailedError, as ``Live.open``."""
        del recovered
        await live.open()
        self.become("live")

    def _end(self) -> None:
        """End what ``_begin`` began besides, before clients are served no more."""

    def details(self) -> dict[str, Any]:
        """Return the policy's name: nothing is replicated."""
        return {"policy": self.name, "configured": self.name}

    def _fail(self, error: JournalFailedError, live: Live, stopping: asyncio.Event) -> None:
        _log.error("%s", error)
        self._failed = error
        live.abandon()
        stopping.set()
