"""A client that asks a JVM's management beans (JMX) by HTTP, as Jolokia answers in JSON."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from harness.interface import Address

PATIENCE_S: Final = 5.0
"""How long bytes are awaited (s): a bean of a broker that votes does not answer at all."""

IDLE_S: Final = 10.0
"""The age of a kept connection (s): a JVM's own web server closes one that is idle for 30 s."""

_HEADERS: Final = {"Content-Type": "application/json"}


class Jolokia:
    """A client with one kept connection to each address.

    Its threads are its own: a broker that stands still occupies one for ``PATIENCE_S``, and no
    other caller waits for it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: dict[Address, tuple[http.client.HTTPConnection, float]] = {}
        self._threads = ThreadPoolExecutor(32, "jolokia")

    async def ask(self, address: Address, *requests: dict[str, Any]) -> Sequence[Any]:
        """Return the value of each answer, in order; None for an unknown bean or attribute.

        Raises OSError if there is no answer, or one that is not Jolokia's.
        """
        # The connection is taken, not shared: a call that is cancelled leaves no half-read answer.
        loop = asyncio.get_running_loop()
        connection, used_s = self._kept.pop(address, (None, 0.0))
        if connection is not None and loop.time() - used_s > IDLE_S:
            connection.close()
            connection = None
        if connection is None:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
        body = msgspec.json.encode(requests)
        content = await loop.run_in_executor(self._threads, self._exchange, connection, body)
        self._kept[address] = connection, loop.time()
        try:
            answers = msgspec.json.decode(content, type=list[dict[str, Any]])
        except msgspec.DecodeError:
            raise OSError(f"{address} does not answer as Jolokia does: {content[:80]!r}") from None
        for answer in answers:
            if answer.get("status") not in (200, 404):
                raise OSError(f"{address}: {str(answer.get('error', answer))[:200]}")
        return [answer.get("value") for answer in answers]

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes) -> bytes:
        try:
            connection.request("POST", self._path, body, _HEADERS)
            answer = connection.getresponse()
            content = answer.read()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionResetError(f"no whole answer: {error!r}") from error
        except OSError:
            connection.close()
            raise
        if answer.status != http.client.OK:
            raise OSError(f"HTTP {answer.status} {answer.reason}")
        return content
