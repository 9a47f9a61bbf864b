"""The acceptor: where STOMP clients connect while this broker is live."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from broker.config import BrokerConfig
from broker.core.engine import Engine
from broker.stomp.connection import StompConnection
from broker.stomp.durable import owner_warnings
from broker.stomp.login import Admission
from broker.stomp.rights import Rights
from broker.stomp.session import StompSession
from broker.strangers import StrangerLog
from broker.tls import Layer
from stomp_protocol.limits import Limits

CLOSE_PATIENCE_S = 1.0

_log = logging.getLogger(__name__)


class Claims(Protocol):
    """The other brokers of a cluster in which each client that names itself has one connection."""

    def claim(self, client: tuple[str, str]) -> None:
        """End the connections of that client at other brokers."""
        ...

    def release(self, client: tuple[str, str]) -> None:
        """Forget a client whose connection has ended."""
        ...


class StompServer:
    """Listens from ``start`` to ``stop``; cuts every connection when the engine is abandoned.

    A clean stop is ``quiesce``, then ``Engine.stop``, which lets the last receipts leave, then
    ``stop``.
    """

    def __init__(self, config: BrokerConfig, engine: Engine, connections_max: int | None = None) -> None:
        self.acceptor = config.acceptor
        self._connections_max = connections_max
        self._clients_max = config.broker.max_connections
        self._tls = Layer.of(config.acceptor, config, "acceptor")
        self.name = config.broker.name
        self.engine = engine
        self.limits = Limits(
            max_headers=config.acceptor.max_headers,
            max_header_bytes=config.acceptor.max_header_bytes,
            max_body_bytes=config.acceptor.max_body_bytes,
            large_from=None if engine.large.store is None else config.acceptor.large_from,
        )
        self.rights = Rights(config)
        self.admission: Admission | None = None
        """Asked at every CONNECT, where there are several brokers to which a client may belong."""
        self.connections: dict[StompConnection, None] = {}
        self.strangers: dict[StompConnection, None] = {}
        """Those of them that have not logged in, the oldest first."""
        self.warnings = StrangerLog(_log, "acceptor")
        self.clients: dict[tuple[str, str], StompConnection] = {}
        """(login, ``client-id``) -> the one connection of a client that names itself."""
        self.claims: Claims | None = None
        """The claims of clients in a cluster where each has one connection."""
        self._numbers = itertools.count(1)
        self._listener: asyncio.Server | None = None
        self._all_closed: asyncio.Future[None] | None = None
        engine.on_abandon.append(self.abandon)

    @property
    def port(self) -> int:
        """Where it listens, which matters where the configuration says port 0."""
        assert self._listener is not None, "the server has not been started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        for warning in owner_warnings(self.engine.topics.durable, self.acceptor.users):
            _log.warning("%s", warning)
        self._listener = await asyncio.get_running_loop().create_server(
            self._accept if self._tls is None else self._accept_tls,
            self.acceptor.listens_on,
            self.acceptor.port,
            backlog=512,
        )

    def quiesce(self) -> None:
        """Accept nobody, take no more frames, give back what is held; due receipts still leave."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.session.quiesce()

    async def drained(self) -> None:
        """Accept nobody, serve those who are here, and return when the last of them has left."""
        if self._listener is not None:
            self._listener.close()
        if self.connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            await self._all_closed

    async def stop(self) -> None:
        """Close every connection when its last bytes are handed over."""
        self.quiesce()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_closed], timeout=CLOSE_PATIENCE_S)
        for connection in list(self.connections):
            connection.abort()

    def abandon(self) -> None:
        """Cut every connection at once, with nothing said."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.abort()

    def met(self, connection: StompConnection) -> None:
        """A client has connected.

        If too many have not logged in, or too many are here, the stranger that has had the most
        time is cut: most likely it never will.
        """
        self.connections[connection] = None
        self.strangers[connection] = None
        bound, most = self.acceptor.max_connecting, self._connections_max
        if len(self.strangers) > bound:
            self._cut_oldest(f"more than {bound} connections have not logged in (acceptor.max-connecting)")
        elif most is not None and len(self.connections) > most:
            self._cut_oldest(
                f"more than {most} connections, all that the limit on open files leaves (ulimit -n)"
            )

    def _cut_oldest(self, why: str) -> None:
        oldest = next(iter(self.strangers))
        del self.strangers[oldest]
        self.warnings.tell(
            oldest.host, f"{why}: closed the oldest that has not logged in, from {oldest.address}"
        )
        oldest.abort()

    def objection(self, headers: Mapping[str, str]) -> str:
        """Return why no client with this CONNECT may log in, "" if one may.

        A client that names itself, and is here already, takes its own place.
        """
        most, count = self._clients_max, len(self.connections) - len(self.strangers)
        if most < 0 or count < most or (headers.get("login", ""), headers.get("client-id")) in self.clients:
            return ""
        return (
            f"{count} clients are logged in, and {most} may be (broker.max-connections): close another "
            "connection, or use another broker"
        )

    def recognise(self, connection: StompConnection, login: str, client_id: str) -> None:
        """A client that names itself has logged in.

        Its last connection, if there is one, is over, and nothing of it is taken any more.
        """
        last = self.clients.get((login, client_id))
        if last is not None:
            last.error(
                f"client-id {client_id[:64]!r} has connected again: the new connection takes this one's place"
            )
        connection.client = (login, client_id)
        self.clients[connection.client] = connection
        if self.claims is not None:
            self.claims.claim(connection.client)

    def end_client(self, client: tuple[str, str], why: str) -> None:
        """End the connection of a client, if it has one."""
        connection = self.clients.get(client)
        if connection is not None:
            connection.error(why)

    def lost(self, connection: StompConnection) -> None:
        """A connection is no more."""
        self.connections.pop(connection, None)
        self.strangers.pop(connection, None)
        if connection.client is not None and self.clients.get(connection.client) is connection:
            del self.clients[connection.client]
            if self.claims is not None:
                self.claims.release(connection.client)
        if not self.connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _accept_tls(self) -> asyncio.Protocol:
        assert self._tls is not None, "no TLS here"
        return self._tls.accepting(self._accept(), self.warnings, "acceptor")

    def _accept(self) -> StompConnection:
        return StompConnection(self, next(self._numbers), partial(StompSession, self))
