"""The log lines of the code in a world.

A line is filed under the node that was running, and stamped with that node's clock.

Why a handler and not another logger: brokers and clients log as they do in a process of their own.
Only the place of a line and the time that it shows are the environment's affair. Lines of other
threads of this program, which are no part of the world, go where they always go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import events
from collections.abc import Iterator
from datetime import UTC, datetime

from environments.simulation.loop import NodeLoop


class NodeLogs(logging.Handler):
    """A handler whose ``lines`` has for each node what was logged while it ran, in order."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: dict[str, list[str]] = {}
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """File a line as ``2026-01-01T00:00:04.123Z INFO a1 serving STOMP``, then any traceback."""
        loop = events._get_running_loop()  # noqa: SLF001 - the one that runs in this very thread
        if not isinstance(loop, NodeLoop):
            if record.levelno >= logging.WARNING and logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        if loop.dead:
            return
        moment = datetime.fromtimestamp(loop.clock.wall_s(), UTC).isoformat(timespec="milliseconds")
        text = f"{moment.removesuffix('+00:00')}Z {record.levelname} {loop.node} {record.getMessage()}"
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self.lines.setdefault(loop.node, []).append(text)
        for future in self._awaited.pop(loop.node, ()):
            if not future.done():
                future.set_result(None)

    async def after(self, node: str, position: int) -> list[str]:
        """Wait until a node has lines from number ``position`` on, and return them."""
        while len(self.lines.get(node, ())) <= position:
            future = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(node, []).append(future)
            await future
        return self.lines[node][position:]

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Take what is logged while the context lasts, from INFO on."""
        root = logging.getLogger()
        level = root.level
        root.addHandler(self)
        root.setLevel(min(level, logging.INFO))
        try:
            yield
        finally:
            root.removeHandler(self)
            root.setLevel(level)
