"""How the harness asks our brokers: JSON lines over admin connections that are kept open.

Why kept open: the role monitor asks fourteen times a second, and a refused new connection must mean
that nobody listens, not that ports ran out. A request that is given up closes its connection, so
that its late answer can never be taken for the answer to the next question.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from broker.admin_client import NobodyAnswersError, RefusedError, Target, log_in
from harness.interface import Address, Status, StoredMessage, Takeover
from harness.systems.own.credentials import Credentials

LINE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer; a browse answers one line a message."""


class AdminError(OSError):
    """The broker answered, but refused or in a way that was not understood.

    Nothing is known then.
    """


class AdminClients:
    """One connection per address, made when first needed.

    ``credentials`` are those of the run: all its brokers are told them.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._connections: dict[Address, _Connection] = {}

    async def status(self, admin: Address) -> Status:
        """What the broker says of itself; raises OSError when nothing answers."""
        answer = await self._of(admin).request({"command": "status", "queues": False})
        return Status(
            name=answer["name"],
            node_id=answer.get("node-id"),
            role=answer["role"],
            epoch=answer["epoch"],
            replicating=answer.get("replicating", False),
            life=answer.get("life"),
            takeovers=tuple(
                Takeover(node_id=taken["node-id"], life=taken["life"])
                for taken in answer.get("takeovers", ())
            ),
            details=answer,
        )

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Every message in every store; over a connection of its own, since it may take long."""
        connection = _Connection(admin, self.credentials)
        try:
            answer = await connection.request({"command": "browse"})
        finally:
            connection.close()
        return [
            StoredMessage(
                store=message["store"],
                queue=message["queue"],
                group=message.get("group"),
                body=base64.b64decode(message["body"]),
                digest=message.get("crc32c"),
            )
            for message in answer["messages"]
        ]

    async def views(self, admin: Address) -> dict[str, dict[str, str]]:
        """What it takes for true of the cluster."""
        answer = await self._of(admin).request({"command": "views"})
        found: dict[str, dict[str, str]] = answer["views"]
        return found

    async def stop(self, admin: Address, *, failover: bool | None) -> None:
        """Ask for a clean stop; returns when the broker has accepted it."""
        await self.administer(admin, "stop", {} if failover is None else {"failover": failover})

    async def administer(self, admin: Address, command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a command, over a connection of its own.

        It may take long, or stop the broker.
        """
        connection = _Connection(admin, self.credentials)
        try:
            return await connection.request({**arguments, "command": command})
        finally:
            connection.close()

    def _of(self, admin: Address) -> _Connection:
        if admin not in self._connections:
            self._connections[admin] = _Connection(admin, self.credentials)
        return self._connections[admin]


class _Connection:
    """One admin connection: one request at a time, closed whenever an answer did not come.

    A connection that breaks is an error even if another could be made at once: the broker behind
    the new one may be another process, and who compares two answers must know that something lies
    between them.
    """

    def __init__(self, address: Address, credentials: Credentials) -> None:
        self._address = address
        self._credentials = credentials
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def request(self, question: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            try:
                if self._streams is None:
                    self._streams = await asyncio.open_connection(
                        self._address.host, self._address.port, limit=LINE_LIMIT
                    )
                    await self._log_in(*self._streams)
                return await self._ask(*self._streams, question)
            except BaseException:
                self.close()
                raise

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Once a connection, however often it is asked."""
        at = Target(self._address.host, self._address.port, self._credentials.admin)
        try:
            await log_in(reader, writer, at, self._credentials.nonce())
        except NobodyAnswersError as error:
            raise ConnectionResetError(str(error)) from error
        except RefusedError as error:
            raise AdminError(str(error)) from error

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: dict[str, Any]
    ) -> dict[str, Any]:
        answered = False
        try:
            if writer.is_closing():  # since the last answer; uvloop's transports then refuse to be written to
                raise ConnectionResetError(f"{self._address} closed the admin connection")
            writer.write(msgspec.json.encode(question) + b"\n")
            line = await reader.readline()
            answered = line.endswith(b"\n")
        except (ValueError, asyncio.IncompleteReadError) as error:
            raise AdminError(f"{self._address}: {error}") from error
        finally:
            if not answered:
                self.close()
        if not answered:
            raise ConnectionResetError(f"{self._address} closed the admin connection")
        try:
            answer = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise AdminError(f"{self._address} answered no JSON object: {error}") from error
        if not answer.get("ok", False):
            raise AdminError(
                f"{self._address} refused {question['command']}: {answer.get('error', line[:200])}"
            )
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
