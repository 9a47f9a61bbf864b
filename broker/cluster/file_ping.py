"""Broadcasts in files: each live broker has one in a directory that all share (AMQ 17.2.3).

It stands for a JGroups channel with FILE_PING. A broker replaces its file in each
``broadcast-period`` and removes it when it stops. The file of a broker that was killed stays, so
only a file that has changed shows that its broker is there: times of files are those of a file
server, and clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker.cluster import messages as m
from broker.cluster.broadcast import BROADCAST_MAX, Broadcast, Broadcaster, GroupTask, decode
from broker.seams import SharedFiles
from broker.sections import BroadcastGroup, DiscoveryGroup

_log = logging.getLogger(__name__)

SUFFIX: Final = ".json"
FILES_MAX: Final = 1024
"""The most files that are read, in the order of their names."""
READINGS: Final = 10
"""How often files are read in one refresh-timeout."""
REMOVE_S: Final = 2.0
"""The longest a stopping broker waits for the directory (s)."""


class FileBroadcaster(Broadcaster):
    """Keeps a file of this broker in a directory while the broker is live."""

    def __init__(
        self,
        group: BroadcastGroup,
        directory: SharedFiles,
        own: Callable[[], m.Member],
        numbers: Iterator[int],
        retry_s: float,
    ) -> None:
        super().__init__(group, own, numbers, retry_s)
        self._directory = directory
        self._file = f"{own().name}{SUFFIX}"

    async def stop(self) -> None:
        """End, and remove the file."""
        await super().stop()
        try:
            async with asyncio.timeout(REMOVE_S):
                await self._directory.remove(self._file)
        except OSError as error:  # a TimeoutError is one
            reason = error.strerror or "the directory does not answer"
            _log.warning("%s: the file %s stays: %s", self._purpose, self._file, reason)

    async def _use(self) -> None:
        has_file = True  # one of an earlier start may be there
        while True:
            broadcast = self._next()
            if broadcast is not None:
                await self._directory.write_atomic(self._file, broadcast)
                has_file = True
            elif has_file:
                await self._directory.remove(self._file)
                has_file = False
            self._works()
            await asyncio.sleep(self._group.broadcast_period / 1000)


class FileListener(GroupTask):
    """Calls ``hear`` with the broadcast in each file that has changed, whoever wrote it."""

    def __init__(
        self,
        group: DiscoveryGroup,
        directory: SharedFiles,
        hear: Callable[[Broadcast], None],
        retry_s: float,
    ) -> None:
        super().__init__(f"discovery-groups of {group.name!r}", retry_s)
        self._directory = directory
        self._hear = hear
        self._period_s = group.refresh_timeout / 1000 / READINGS
        self._contents: dict[str, bytes] = {}

    async def _use(self) -> None:
        while True:
            names = [name for name in await self._directory.list(".") if name.endswith(SUFFIX)]
            contents: dict[str, bytes] = {}
            for name in names[:FILES_MAX]:
                with contextlib.suppress(FileNotFoundError):  # its broker has stopped meanwhile
                    contents[name] = await self._directory.read(name, 0, BROADCAST_MAX + 1)
            self._works()
            former, self._contents = self._contents, contents
            for name, content in contents.items():
                broadcast = decode(content) if content != former.get(name) else None
                if broadcast is not None:
                    self._hear(broadcast)
            await asyncio.sleep(self._period_s)
