"""A STOMP client for probes: one connection, one question after the other.

Why not the workloads' client: that is made for load and for histories, where every outcome is a
row. A probe asks little, and must read frames as they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Self

from harness.interface import Address, Dialect
from stomp_protocol.codec import Parser, encode
from stomp_protocol.frames import Frame

PATIENCE_S: Final = 180.0


class StompClient:
    """A client for a probe, made by ``connect`` or ``open`` and used with ``async with``."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: float = PATIENCE_S
    ) -> None:
        self.patience_s = patience_s
        """How long a frame is awaited (s)."""
        self.heard = 0
        """The number of heart-beats received."""
        self.connected = Frame("", {})
        """The broker's answer to CONNECT; an ERROR if it refused."""
        self._reader = reader
        self._writer = writer
        self._parser = Parser()
        self._frames: list[Frame] = []
        self._messages: list[Frame] = []
        self._receipts = 0
        self._beating: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        at: Address,
        dialect: Dialect,
        patience_s: float,
        heart_beat_ms: int = 0,
        host: str = "",
        client_id: str | None = None,
    ) -> Self:
        """Log in as a system's clients do, and send heart-beats if any are asked for.

        ``host`` is the virtual host if the dialect has none, ``client_id`` the owner of durable
        subscriptions. Raises OSError, TimeoutError; the caller must look for a refusal.
        """
        async with asyncio.timeout(patience_s):
            client = cls(*await asyncio.open_connection(at.host, at.port), patience_s)
        login = {"login": dialect.login, "passcode": dialect.passcode} if dialect.login else {}
        if client_id is not None and dialect.topics is not None:
            login[dialect.topics.client] = client_id
        client.tell(
            "CONNECT",
            accept_version="1.2",
            host=dialect.virtual_host or host or at.host,
            more=login,
            heart_beat=f"{heart_beat_ms},{heart_beat_ms}",
        )
        await client._welcomed()
        if heart_beat_ms:
            client._beating = asyncio.get_running_loop().create_task(client._beat(heart_beat_ms / 1000))
        return client

    @classmethod
    async def connect(
        cls,
        port: int,
        store_session: str | None = None,
        client_id: str | None = None,
        *,
        host: str = "127.0.0.1",
    ) -> Self:
        """Log in at a broker, by default of this machine.

        Raises OSError, TimeoutError; the caller must look for a refusal.
        """
        client = cls(*await asyncio.open_connection(host, port))
        more = {} if store_session is None else {"store-session": store_session}
        if client_id is not None:
            more["client-id"] = client_id
        login = {"login": "tester", "passcode": "tester-secret"}
        client.tell("CONNECT", more={**login, **more}, accept_version="1.2", host="probe")
        await client._welcomed()
        return client

    async def _welcomed(self) -> None:
        """Read the answer to CONNECT; close the connection if none comes."""
        try:
            self.connected = await self._read()
        except BaseException:
            self.abort()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self._writer.close()

    async def ask(
        self, command: str, body: str = "", more: Mapping[str, str] | None = None, **headers: str
    ) -> Frame:
        """Send a frame, and return the broker's confirmation: its RECEIPT, or its ERROR.

        Underscores in names of headers are hyphens; those of ``more`` are as they are.
        """
        self._receipts += 1
        receipt = f"receipt-{self._receipts}"
        self.tell(command, body, more, **headers, receipt=receipt)
        while True:
            frame = await self._read()
            if frame.command == "MESSAGE":
                self._messages.append(frame)
            elif frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt:
                return frame

    def tell(
        self, command: str, body: str = "", more: Mapping[str, str] | None = None, **headers: str
    ) -> None:
        """Send a frame without waiting for an answer.

        The answer to the next question covers it, too, since a broker takes frames in order.
        Underscores as in `ask`.
        """
        named = {**(more or {}), **{name.replace("_", "-"): value for name, value in headers.items()}}
        self._writer.write(encode(command, named, body.encode()))

    def abort(self) -> None:
        """Cut the connection without a frame, as a client whose machine has died."""
        if self._beating is not None:
            self._beating.cancel()
        self._writer.transport.abort()

    async def _beat(self, every_s: float) -> None:
        while not self._writer.is_closing():
            self._writer.write(b"\n")
            await asyncio.sleep(every_s)

    async def message(self, patience_s: float) -> Frame | None:
        """Return the next message; None if none comes in time. Raises OSError for an ERROR."""
        try:
            async with asyncio.timeout(patience_s):
                while not self._messages:
                    frame = await self._read()
                    if frame.command == "ERROR":
                        raise OSError(frame.headers.get("message", "ERROR"))
                    if frame.command == "MESSAGE":
                        self._messages.append(frame)
        except TimeoutError:
            return None
        return self._messages.pop(0)

    async def messages(self, count: int) -> list[Frame]:
        """Return the next so many messages. Raises TimeoutError."""
        while len(self._messages) < count:
            self._messages.append(await self._read())
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken

    async def _read(self) -> Frame:
        async with asyncio.timeout(self.patience_s):
            while not self._frames:
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError("the broker closed the connection")
                self.heard += data.count(b"\n") if not data.strip(b"\n") else 0
                self._frames += self._parser.feed(data)
        return self._frames.pop(0)


async def send(port: int, destination: str, *bodies: str) -> None:
    """Send messages to a broker of this machine, and wait until it has confirmed each."""
    async with await StompClient.connect(port) as client:
        for body in bodies:
            answer = await client.ask("SEND", body, destination=destination)
            assert answer.command == "RECEIPT", answer
