"""A STOMP client for probes: one connection, one question after the other.

Why not the workloads' client: that is made for load and for histories, where every outcome is a
row. A probe asks little, and wants to read frames as they came.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from stomp_protocol.codec import Parser, encode
from stomp_protocol.frames import Frame

PATIENCE_S: Final = 180.0


class StompClient:
    """Made by ``connect``; use it with ``async with``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected = Frame("", {})
        """The broker's answer to CONNECT; an ERROR where it refused."""
        self._reader = reader
        self._writer = writer
        self._parser = Parser()
        self._frames: list[Frame] = []
        self._messages: list[Frame] = []
        self._receipts = 0

    @classmethod
    async def connect(cls, port: int, store_session: str | None = None) -> Self:
        """Log in at a broker of this machine.

        Raises OSError, TimeoutError; a refusal is for the caller to see.
        """
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        more = {} if store_session is None else {"store_session": store_session}
        login = {"login": "tester", "passcode": "tester-secret"}
        client.tell("CONNECT", accept_version="1.2", host="probe", **login, **more)
        client.connected = await client._read()
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    async def ask(self, command: str, body: str = "", **headers: str) -> Frame:
        """Send a frame, and wait until the broker confirms it: its RECEIPT, or its ERROR.

        Underscores in names of headers are hyphens.
        """
        self._receipts += 1
        receipt = f"receipt-{self._receipts}"
        self.tell(command, body, **headers, receipt=receipt)
        while True:
            frame = await self._read()
            if frame.command == "MESSAGE":
                self._messages.append(frame)
            elif frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt:
                return frame

    def tell(self, command: str, body: str = "", **headers: str) -> None:
        """Send a frame and go on.

        What is asked next answers for it too, for a broker takes frames in order. Underscores as in
        `ask`.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._writer.write(encode(command, named, body.encode()))

    async def messages(self, count: int) -> list[Frame]:
        """The next so many messages. Raises TimeoutError."""
        while len(self._messages) < count:
            self._messages.append(await self._read())
        found, self._messages = self._messages[:count], self._messages[count:]
        return found

    async def _read(self) -> Frame:
        async with asyncio.timeout(PATIENCE_S):
            while not self._frames:
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError("the broker closed the connection")
                self._frames += self._parser.feed(data)
        return self._frames.pop(0)


async def send(port: int, destination: str, *bodies: str) -> None:
    """Messages that a broker of this machine has confirmed."""
    async with await StompClient.connect(port) as client:
        for body in bodies:
            answer = await client.ask("SEND", body, destination=destination)
            assert answer.command == "RECEIPT", answer
