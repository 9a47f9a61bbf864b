"""A live broker put together: gate, engine and STOMP server over an open journal.

Every policy becomes live in this way.

Why separate from the policies: they differ in when a broker is live and which other broker must
have its data, not in what it is then.
"""

from __future__ import annotations

import logging

from broker.config import BrokerConfig
from broker.core.disk import DiskWatch
from broker.core.engine import Engine
from broker.core.settings import EngineSettings, Router
from broker.seams import Seams
from broker.start_error import StartError
from broker.stomp.server import StompServer
from broker.storage.entries import EntryStore
from broker.storage.errors import JournalError, JournalFailedError
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Recovered

_log = logging.getLogger(__name__)


class Live:
    """Serves clients from ``open`` to ``close`` or ``abandon``.

    Between construction and ``open`` no client is served: feeds, routers and observers may be added
    to ``engine``. ``gate`` may come from the policy. ``local`` follows the journal from ``open`` on
    unless the policy has set ``journal.on_synced`` itself.
    """

    def __init__(
        self,
        config: BrokerConfig,
        seams: Seams,
        journal: EntryStore,
        recovered: Recovered,
        node_id: str,
        gate: DurabilityGate | None = None,
        router: Router | None = None,
    ) -> None:
        self.journal = journal
        self.gate = gate or DurabilityGate(journal.synced)
        self.engine = Engine(journal, recovered, self.gate, EngineSettings.of(config, node_id), seams, router)
        self.server = StompServer(config, self.engine, seams.connections)
        self._disk = DiskWatch(
            journal.space,
            self.engine.memory,
            config.broker.max_disk_usage,
            config.broker.disk_scan_period / 1000,
        )
        self.engine.on_abandon.append(self._disk.stop)

    async def open(self) -> None:
        """Begin to serve.

        Raises StartError when the acceptor cannot listen at its port, or a large message or a page
        is missing; JournalFailedError.
        """
        gate = self.gate
        try:
            await self.journal.sweep()
        except JournalFailedError:
            raise
        except (JournalError, OSError) as error:
            raise StartError(str(error)) from error
        if self.journal.on_synced is None:
            self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
            gate.local = self.journal.synced
        await self._disk.start()
        acceptor = self.server.acceptor
        try:
            await self.server.start()
        except OSError as error:
            raise StartError(
                f"acceptor {acceptor.listens_on}:{acceptor.port} cannot listen: {error.strerror or error};"
                " is another broker running there? (acceptor.port)"
            ) from None
        if acceptor.open_to_all:
            _log.warning(
                "every client that can reach %s may send and consume: set acceptor.users, or set "
                "acceptor.host to 127.0.0.1",
                acceptor.listens_on,
            )
        _log.info("serving STOMP on %s:%d", acceptor.listens_on, self.server.port)

    async def close(self) -> None:
        """End cleanly: first connections, then the engine's state, durably.

        The journal stays open; its owner closes it.
        """
        self._disk.stop()
        self.server.quiesce()
        await self.engine.stop()
        await self.server.stop()

    def abandon(self) -> None:
        """Cut every connection and answer no client, because the broker is demoted."""
        self.engine.abandon()
