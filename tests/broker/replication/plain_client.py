"""A STOMP client for tests of whole brokers.

As little as they need, and nothing of what the workloads' client does by itself.
"""

import asyncio

BOUND_S = 60.0
"""Bounds every wait of a test; reached only when the test fails."""


class LostError(Exception):
    """The connection ended."""


class Client:
    """As little STOMP 1.2 as a test needs: every call waits for its receipt."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._receipts = 0
        self.deliveries: asyncio.Queue[tuple[dict[str, str], str]] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, host: str, port: int, **headers: str) -> "Client":
        try:
            reader, writer = await asyncio.open_connection(host, port)
            client = cls(reader, writer)
            client._write("CONNECT", {"accept-version": "1.2", "host": "test", **headers})
            command, _, body = await client._frame()
        except (OSError, asyncio.IncompleteReadError) as error:
            raise LostError(str(error)) from error
        assert command == "CONNECTED", body
        client._task = asyncio.create_task(client._read())
        return client

    async def send(self, queue: str, body: str, timeout_s: float = BOUND_S, **headers: str) -> None:
        """Returns when the broker says that the message is durable.

        Raises LostError, TimeoutError.
        """
        await self.ask("SEND", {"destination": f"/queue/{queue}", **headers}, body, timeout_s)

    async def subscribe(self, queue: str, ack: str = "client-individual") -> None:
        await self.ask("SUBSCRIBE", {"id": queue, "destination": f"/queue/{queue}", "ack": ack})

    async def watch(self, destination: str) -> None:
        self._write("SUBSCRIBE", {"id": destination, "destination": destination, "ack": "auto"})

    async def ack(self, headers: dict[str, str]) -> None:
        await self.ask("ACK", {"id": headers["ack"]})

    async def receive(self, timeout_s: float = BOUND_S) -> tuple[dict[str, str], str]:
        async with asyncio.timeout(timeout_s):
            return await self.deliveries.get()

    async def drain(self, queue: str, count: int) -> list[str]:
        """Consume and acknowledge ``count`` messages."""
        await self.subscribe(queue)
        bodies = []
        for _ in range(count):
            headers, body = await self.receive()
            await self.ack(headers)
            bodies.append(body)
        return bodies

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._writer.close()

    async def ask(
        self, command: str, headers: dict[str, str], body: str = "", timeout_s: float = BOUND_S
    ) -> None:
        """A frame, and its receipt. Raises LostError, TimeoutError."""
        self._receipts += 1
        name = str(self._receipts)
        future = self._waiting[name] = asyncio.get_running_loop().create_future()
        if self._task is not None and self._task.done():
            raise LostError("closed")
        self._write(command, {**headers, "receipt": name}, body)
        async with asyncio.timeout(timeout_s):
            await future

    def _write(self, command: str, headers: dict[str, str], body: str = "") -> None:
        lines = "".join(f"{key}:{value}\n" for key, value in headers.items())
        self._writer.write(f"{command}\n{lines}content-length:{len(body.encode())}\n\n{body}\0".encode())

    async def _frame(self) -> tuple[str, dict[str, str], str]:
        head = b""
        while not head.strip():
            head = await self._reader.readuntil(b"\n")
        command = head.strip().decode()
        headers = {}
        while line := (await self._reader.readuntil(b"\n")).rstrip(b"\r\n").decode():
            key, _, value = line.partition(":")
            headers.setdefault(key, value.replace("\\c", ":"))
        if "content-length" in headers:
            body = await self._reader.readexactly(int(headers["content-length"]))
            await self._reader.readexactly(1)
        else:
            body = (await self._reader.readuntil(b"\0"))[:-1]
        return command, headers, body.decode()

    async def _read(self) -> None:
        try:
            while True:
                command, headers, body = await self._frame()
                if command == "RECEIPT":
                    self._waiting.pop(headers["receipt-id"]).set_result(None)
                elif command == "MESSAGE":
                    self.deliveries.put_nowait((headers, body))
                else:
                    raise LostError(f"{command}: {headers} {body}")  # noqa: TRY301 - as if the connection had ended
        except (OSError, asyncio.IncompleteReadError, LostError) as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(LostError(str(error)))
                    future.exception()
