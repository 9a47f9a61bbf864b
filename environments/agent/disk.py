"""The disk of a container that can break.

The agent puts it in front of the node's volume, for tests with disk faults.
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
    """The disk of this node, or none; "disk" asks for the fields of a DiskCondition.

    A fault may begin before the disk is mounted; then it holds from the disk's first moment on.
    """

    primitives = ("disk",)

    def __init__(self, log: Path) -> None:
        self._log = log
        self._conversation: Conversation | None = None
        self._wanted: dict[str, Any] = together(())
        self._turn = asyncio.Lock()

    @property
    def mounted(self) -> bool:
        """True if the disk is mounted in front of the node's data."""
        return self._conversation is not None

    async def begin(self) -> Conversation:
        """Mount the disk unless it is mounted. Raises DiskFailedError."""
        async with self._turn:
            if self._conversation is None:
                conversation = await self._start()
                await conversation.mounted()
                self._conversation = conversation
                await conversation.ask("condition", self._wanted)
            return self._conversation

    async def ask(self, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Return the disk's answer, and mount the disk first if need be. Raises DiskFailedError."""
        return await (await self.begin()).ask(do, arguments)

    def wanted(self, asked: PartFault) -> Any:
        """Return the fields that the harness sent.

        Raises TypeError or ValueError for anything else.
        """
        return dict(asked.wanted)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None] | None:
        """Put the disk in all conditions that are in force, now or as soon as there is a disk."""
        del changed
        self._wanted = together(fault.wanted for fault in in_force)
        return None if self._conversation is None else self._conversation.ask("condition", self._wanted)

    async def _start(self) -> Conversation:
        # Not with asyncio, which would wait for the process: this agent is PID 1 and reaps itself.
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
        # Popen must not wait for the process when this object is collected.
        process.returncode = 0
        return Conversation(reader, asyncio.StreamWriter(transport, protocol, None, loop))
