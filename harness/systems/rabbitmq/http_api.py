"""The HTTP API of RabbitMQ's management plugin."""

from __future__ import annotations

import asyncio
import base64
import http.client
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from harness.interface import Address

PATIENCE_S: Final = 5.0
"""How long bytes are awaited (s): a node with silent peers answers questions about them late."""


class HttpApi:
    """A client with one kept connection to each address.

    ``connections`` counts the connections that were made to each address: while the count stays,
    the server has not been away. The threads are the client's own: a node that stands still
    occupies one for ``PATIENCE_S``, and no other caller waits for it.
    """

    def __init__(self, user: str, password: str) -> None:
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}
        self._kept: dict[Address, http.client.HTTPConnection] = {}
        self._threads = ThreadPoolExecutor(32, "rabbitmq-management")
        self.connections: dict[Address, int] = {}

    async def ask(
        self,
        address: Address,
        path: str,
        method: str = "GET",
        body: Any = None,
        *,
        good: Collection[int] = (200, 201, 204),
    ) -> Any:
        """Return the answer, None if it is empty; raise OSError for a refusal or no answer."""
        # The connection is taken, not shared: a call that is cancelled leaves no half-read answer.
        connection = self._kept.pop(address, None)
        if connection is None:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
            self.connections[address] = self.connections.get(address, 0) + 1
        content = b"" if body is None else msgspec.json.encode(body)
        loop = asyncio.get_running_loop()
        status, answer = await loop.run_in_executor(
            self._threads, self._exchange, connection, method, f"/api/{path}", content
        )
        if connection.sock is not None:  # else the server closes it, and may be away before the next one
            self._kept[address] = connection
        if status not in good:
            raise OSError(f"{address}: HTTP {status} for {path}: {answer[:200]!r}")
        try:
            return msgspec.json.decode(answer) if answer else None
        except msgspec.DecodeError:
            raise OSError(f"{address} does not answer as RabbitMQ does: {answer[:80]!r}") from None

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes
    ) -> tuple[int, bytes]:
        try:
            if connection.sock is None:
                connection.connect()
                connection.auto_open = False  # a lost connection is not replaced unseen
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionResetError(f"no whole answer: {error!r}") from error
        except OSError:
            connection.close()
            raise
