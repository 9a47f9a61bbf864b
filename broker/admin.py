"""The admin port: what a broker says of itself, as JSON lines over TCP, at any time.

Why its own port and so plain: the harness' role monitor and ``brokerctl`` must get an answer while clients load the broker, while it is a
backup and has no acceptor, and outside every partition of the cluster's network. One request a line, one answer a line, in order:

    {"command": "status"}                          {"ok": true, "name": ..., "role": ..., ...}
    {"command": "stop", "failover": true}          {"ok": true}
    {"command": "nonsense"}                        {"ok": false, "error": "unknown command ..."}

See ``docs/reference/admin-protocol.md``. Answers are built between two turns of the loop; a long ``browse`` pauses the broker for as long as it
takes to encode it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from broker.cluster.views import views
from broker.config import AdminSection
from broker.core.views import BrowsedMessage
from broker.policies.policy import Policy, RequestRefusedError, StartError, Steered, Succeeding, Succession
from broker.storage.blobs import Blob
from broker.storage.errors import JournalError

_log = logging.getLogger(__name__)

REQUEST_MAX: Final = 64 * 1024
"""Bytes of one request."""


class RequestError(Exception):
    """The request cannot be done; the text is the answer's ``error``."""


class AdminServer:
    """Answers from ``start`` to ``stop``. ``stopping`` is set by the command ``stop``."""

    def __init__(self, section: AdminSection, name: str, policy: Policy, stopping: asyncio.Event) -> None:
        self._section = section
        self._name = name
        self._policy = policy
        self._stopping = stopping
        self._listener: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}
        self._commands: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "status": self._status,
            "brokers": self._brokers,
            "views": self._views,
            "stop": self._stop,
        }
        own = policy.commands if isinstance(policy, Steered) else {}
        self._slow = {"browse": self._browse, **own}
        """What takes its time: among it what this broker's policy can be asked besides."""
        self._asking: dict[asyncio.Task[None], None] = {}

    @property
    def port(self) -> int:
        """Where it listens, which matters where the configuration says port 0."""
        assert self._listener is not None, "the admin server has not been started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises StartError when the address cannot be had."""
        section = self._section
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self, self._connections), section.host, section.port
            )
        except OSError as error:
            raise StartError(
                f"admin address {section.host}:{section.port} cannot listen: {error.strerror or error};"
                " is another broker running there? (admin.port)"
            ) from None

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._listener is not None:
            self._listener.close()
        for task in list(self._asking):
            task.cancel()
        for connection in list(self._connections):
            connection.close()

    def answer(self, line: bytes, reply: Callable[[dict[str, Any]], None]) -> None:
        """Answer one request, now or, for ``purge``, when it is durable."""
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            reply(_error(f"not a JSON object: {error}"))
            return
        command = request.get("command")
        try:
            if command == "purge":
                self._purge(request, reply)
            elif isinstance(command, str) and command in self._slow:
                task = asyncio.get_running_loop().create_task(self._take_time(command, request, reply))
                self._asking[task] = None
                task.add_done_callback(self._asking.pop)
            elif isinstance(command, str) and command in self._commands:
                reply({"ok": True, **self._commands[command](request)})
            else:
                known = ", ".join(sorted([*self._commands, *self._slow, "purge"]))
                reply(_error(f"unknown command {command!r}; known: {known}"))
        except (RequestError, JournalError) as error:
            reply(_error(str(error)))

    async def _take_time(
        self, command: str, request: dict[str, Any], reply: Callable[[dict[str, Any]], None]
    ) -> None:
        try:
            reply({"ok": True, **await self._slow[command](request)})
        except (RequestRefusedError, RequestError, JournalError, OSError) as error:
            reply(_error(str(error)))
        except Exception:  # noqa: BLE001 - whoever asked must not wait for ever
            _log.exception("admin: %s: internal error, please report this", command)
            reply(_error("internal error of the broker, please report it"))

    # ---------------------------------------------------------------------------------------------- commands

    def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        policy = self._policy
        role = policy.role
        engine = policy.engine
        succession = policy.succession if isinstance(policy, Succeeding) else Succession()
        return {
            **policy.details(),
            "name": self._name,
            "node-id": policy.node_id,
            "role": role,
            "epoch": policy.epoch,
            "replicating": policy.replicating,
            "life": succession.life,
            "takeovers": [{"node-id": taken.node_id, "life": taken.life} for taken in succession.takeovers],
            "queues": []
            if engine is None
            else [
                {
                    "name": queue.name,
                    "store": queue.store,
                    "messages": queue.messages,
                    "paged": queue.paged,
                    "unacknowledged": queue.unacknowledged,
                    "consumers": queue.consumers,
                    "bytes": queue.size,
                }
                for queue in engine.status()
            ],
        }

    def _brokers(self, _: dict[str, Any]) -> dict[str, Any]:
        membership = self._policy.membership
        if membership is None:
            return {
                "brokers": [{"name": self._name, "role": self._policy.role, "node-id": self._policy.node_id}]
            }
        linked = {member.name for member, _ in membership.linked()}
        members = {**membership.known, membership.own.name: membership.own}
        return {
            "brokers": [
                {
                    "name": member.name,
                    "role": member.role,
                    "node-id": member.node_id,
                    "group-name": member.group_name,
                    "connector": member.connector,
                    "stomp-connector": member.stomp_connector,
                    "activation": member.activation,
                    "linked": member.name in linked or member.name == membership.own.name,
                }
                for member in sorted(members.values(), key=lambda member: member.name)
            ]
        }

    def _views(self, _: dict[str, Any]) -> dict[str, Any]:
        membership = self._policy.membership
        if self._policy.engine is None:
            raise RequestError(
                f"{self._name} is not live (role {self._policy.role}): others need not agree with it"
            )
        return {"views": {} if membership is None else views(membership)}

    async def _browse(self, request: dict[str, Any]) -> dict[str, Any]:
        engine = self._policy.engine
        if engine is None or engine.abandoned:
            raise RequestError(
                f"{self._name} is not live (role {self._policy.role}): it has no queues to browse"
            )
        browsing = engine.browse(_text(request, "queue"))
        try:
            return {"messages": [_told(stored) async for stored in browsing]}
        finally:
            browsing.close()

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        failover = request.get("failover")
        if failover is not None and not isinstance(failover, bool):
            raise RequestError(f"failover must be true or false, not {failover!r}")
        _log.info("stop was asked for%s", "" if failover is None else f", failover {str(failover).lower()}")
        self._policy.request_stop(failover=failover)
        self._stopping.set()
        return {}

    def _purge(self, request: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        engine = self._policy.engine
        queue = _text(request, "queue")
        if queue is None:
            raise RequestError('purge wants the name of a queue: {"command": "purge", "queue": "orders"}')
        if engine is None or engine.abandoned:
            raise RequestError(
                f"{self._name} is not live (role {self._policy.role}): it has no queues to purge"
            )
        if queue not in engine.queues:
            raise RequestError(f"no queue {queue!r} here")
        count: list[int] = []
        count.append(engine.purge(queue, lambda: reply({"ok": True, "purged": count[0]})))


def _told(stored: BrowsedMessage) -> dict[str, Any]:
    message = stored.message
    return {
        "store": stored.store,
        "queue": stored.queue,
        "holder": stored.holder,
        "group": message.group,
        "id": message.id,
        "deliveries": message.deliveries,
        "body": base64.b64encode(message.body).decode(),
        **_of_file(message.large),
    }


def _of_file(large: Blob | None) -> dict[str, int]:
    """What is told of a large message besides the beginning of its body: its bytes and their CRC-32C."""
    return {} if large is None else {"size": large.size, "crc32c": large.checksum}


def _text(request: dict[str, Any], key: str) -> str | None:
    value = request.get(key)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{key} must be text, not {value!r}")
    return value


def _error(text: str) -> dict[str, Any]:
    return {"ok": False, "error": text}


class _Connection(asyncio.Protocol):
    """One client of the admin port. Requests are answered in order: a purge that waits for the disk holds up those behind it."""

    def __init__(self, server: AdminServer, registry: dict[_Connection, None]) -> None:
        self._server = server
        self._registry = registry
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(
            "asyncio.Transport", transport
        )  # by what it does: uvloop's transports are no subclass
        self._transport = transport
        self._registry[self] = None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol is asyncio's
        self._transport = None
        self._registry.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()
        if len(self._buffer) > REQUEST_MAX and b"\n" not in self._buffer and self._transport is not None:
            self._reply(_error(f"a request has at most {REQUEST_MAX} bytes"))
            self._transport.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _go_on(self) -> None:
        while not self._busy:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                return
            self._buffer = rest
            if line.strip():
                self._busy = True
                self._server.answer(line, self._reply)

    def _reply(self, answer: dict[str, Any]) -> None:
        self._busy = False
        if self._transport is not None:
            self._transport.write(msgspec.json.encode(answer) + b"\n")
            if self._buffer:
                asyncio.get_running_loop().call_soon(self._go_on)


__all__ = ["AdminServer"]
