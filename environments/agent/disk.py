"""The disk of a container that can break.

Put in front of the node's volume by the agent, for tests that break it.

Only the standard library and modules that keep to it are imported here: this module runs inside the
container.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from environments.agent.control import DATA, DISK
from filesystems.disk.condition import together
from filesystems.disk.conversation import Conversation


class NodeDisk:
    """At most one.

    ``want`` may come before it is mounted, and holds for it from its first moment on.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._conversation: Conversation | None = None
        self._wanted: dict[str, Any] = together(())
        self._has: dict[str, Any] = self._wanted
        self._turn = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None

    @property
    def mounted(self) -> bool:
        """Whether the node's data lie behind it."""
        return self._conversation is not None

    async def begin(self) -> None:
        """Mount it, unless it is. Raises DiskFailedError."""
        async with self._turn:
            if self._conversation is None:
                conversation = await self._start()
                await conversation.mounted()
                self._conversation = conversation
        await self.settled()

    async def ask(self, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the disk answers. Raises DiskFailedError, RuntimeError where there is none."""
        if self._conversation is None:
            raise RuntimeError("this node has no disk that can break")
        return await self._conversation.ask(do, arguments)

    def want(self, conditions: Iterable[Mapping[str, Any]]) -> None:
        """From now on, or as soon as there is a disk, it is in all of these conditions."""
        self._wanted = together(conditions)
        if self._wanted != self._has and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def settled(self) -> None:
        """Return when the disk is as it is wanted, if there is one."""
        self.want([self._wanted])
        if self._telling is not None:
            await asyncio.shield(self._telling)

    async def _tell(self) -> None:
        try:
            while self._conversation is not None and self._wanted != self._has:
                wanted = self._wanted
                await self._conversation.ask("condition", wanted)
                self._has = wanted
        finally:
            self._telling = None

    async def _start(self) -> Conversation:
        # Not by asyncio, which would wait for its end: this process is PID 1 and reaps for itself.
        with self._log.open("ab", buffering=0) as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - a fork, not a wait
                [sys.executable, "-m", "filesystems.disk.mount", DATA, DISK],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        # Popen must not wait by itself when it is forgotten.
        process.returncode = 0
        return Conversation(reader, asyncio.StreamWriter(transport, protocol, None, loop))
