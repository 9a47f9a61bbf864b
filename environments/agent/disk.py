"""The disk of a container that can break.

Put in front of the node's volume by the agent, for tests that break it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from environments.agent.control import DATA, DISK
from environments.part import Part, PartFault
from filesystems.disk.condition import together
from filesystems.disk.conversation import Conversation


class NodeDisk(Part):
    """At most one; "disk" wants the fields of a DiskCondition.

    A fault may begin before the disk is mounted, and holds for it from its first moment on.
    """

    primitives = ("disk",)

    def __init__(self, log: Path) -> None:
        self._log = log
        self._conversation: Conversation | None = None
        self._wanted: dict[str, Any] = together(())
        self._turn = asyncio.Lock()

    @property
    def mounted(self) -> bool:
        """Whether the node's data lie behind it."""
        return self._conversation is not None

    async def begin(self) -> Conversation:
        """Mount it, unless it is. Raises DiskFailedError."""
        async with self._turn:
            if self._conversation is None:
                conversation = await self._start()
                await conversation.mounted()
                self._conversation = conversation
                await conversation.ask("condition", self._wanted)
            return self._conversation

    async def ask(self, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the disk answers; it is mounted for that, unless it is. Raises DiskFailedError."""
        return await (await self.begin()).ask(do, arguments)

    def wanted(self, asked: PartFault) -> Any:
        """As the harness sent it. Raises TypeError or ValueError for anything else."""
        return dict(asked.wanted)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None] | None:
        """From now on, or as soon as there is a disk, it is in all of these conditions."""
        del changed
        self._wanted = together(fault.wanted for fault in in_force)
        return None if self._conversation is None else self._conversation.ask("condition", self._wanted)

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
