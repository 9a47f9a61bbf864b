"""A broker without a backup: live from its start to its end.

A receipt means "on this broker's disk".
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from broker.cluster.balancing import Balancing
from broker.cluster.membership import Membership
from broker.config import BrokerConfig
from broker.core.engine import Engine
from broker.policies.identity import own_node_id
from broker.policies.live import Live
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.errors import JournalError, JournalFailedError
from broker.storage.journal import Journal
from broker.storage.options import JournalOptions
from broker.storage.volume import Volume

STOP_PATIENCE_S = 10.0
"""How long a clean stop waits for the disk before it becomes an unclean one."""

_log = logging.getLogger(__name__)


def journal_options(config: BrokerConfig) -> JournalOptions:
    """The [journal] section, and what of the policy concerns journals, as the storage takes it."""
    section = config.journal
    role = config.replication
    return JournalOptions(
        segment_size=section.segment_size,
        compact_min_files=section.compact_min_files,
        compact_percentage=section.compact_percentage,
        keep_moved=getattr(role, "max_saved_replicated_journals_size", 2),
    )


async def open_journal(volume: Volume, config: BrokerConfig) -> tuple[Journal, Any]:
    """The broker's journal.

    Raises StartError, one line, for one that is locked, damaged, incomplete or unreadable.
    """
    try:
        return await Journal.open(volume, "journal", journal_options(config))
    except JournalError as error:
        raise StartError(f"{config.data_path}: {error}") from error
    except OSError as error:
        raise StartError(f"{config.data_path}/journal cannot be opened: {error}") from error


class StandalonePolicy:
    """See ``policy.Policy``."""

    def __init__(self, config: BrokerConfig, seams: Seams, volume: Volume) -> None:
        self.config = config
        self.role = "starting"
        self.epoch = 0
        self.node_id: str | None = None
        self.engine: Engine | None = None
        self.live: Live | None = None
        self.replicating = False
        self.membership = Membership(config, config.cluster, seams) if config.cluster is not None else None
        self._seams = seams
        self._volume = volume
        self._failed: JournalFailedError | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping``; a failed disk ends the broker at once, with nobody answered."""
        journal, recovered = await open_journal(self._volume, self.config)
        try:
            self.node_id = await own_node_id(self._volume, self._seams, self.config.broker.name)
            balancing = await self._join(self.node_id)
            live = Live(self.config, self._seams, journal, recovered, self.node_id, router=balancing)
            if balancing is not None:
                balancing.attach(live.engine)
            journal.on_failed = lambda error: self._fail(error, live, stopping)
            self.live, self.engine = live, live.engine
            await live.open()
            self._become("live")
            await stopping.wait()
            self._become("stopping")
            if balancing is not None:
                balancing.detach()
            if self._failed is None:
                try:
                    async with asyncio.timeout(STOP_PATIENCE_S):
                        await live.close()
                except TimeoutError:
                    _log.warning("the disk did not answer within %g s: not a clean stop", STOP_PATIENCE_S)
        finally:
            self.engine = None
            if self.live is not None:
                self.live.abandon()
            await journal.close()
            self._become("stopped")
            if self.membership is not None:
                await self.membership.stop()
        if self._failed is not None:
            raise StartError(f"{self.config.data_path}/journal: {self._failed}")

    async def _join(self, node_id: str) -> Balancing | None:
        """Take our place in the cluster, if there is one. Raises StartError."""
        if self.membership is None:
            return None
        await self.membership.start(self._volume)
        self.membership.announce(node_id=node_id)
        return Balancing(self.membership, node_id)

    def request_stop(self, *, failover: bool | None = None) -> None:
        """Nobody takes over from a broker without a backup."""

    def details(self) -> dict[str, Any]:
        """Nothing is replicated."""
        return {"policy": "standalone", "configured": "standalone"}

    def _become(self, role: str) -> None:
        self.role = role
        self.epoch += 1
        if self.membership is not None:
            self.membership.announce(role=role)

    def _fail(self, error: JournalFailedError, live: Live, stopping: asyncio.Event) -> None:
        _log.error("%s", error)
        self._failed = error
        live.abandon()
        stopping.set()
