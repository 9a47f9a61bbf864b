"""A disk that breaks, for the program that runs it.

It is a process behind a mount, which gets its commands over its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from filesystems.disk.conversation import Conversation
from filesystems.fuse import device as fuse_device

_PATIENCE_S: Final = 10.0


class FaultyDisk:
    """A mounted disk, which answers one question at a time."""

    def __init__(self, directory: Path, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.directory = directory
        self._process = process
        self._conversation = Conversation(process.stdout, process.stdin)

    @classmethod
    async def mount(cls, behind: Path, directory: Path, log: Path) -> FaultyDisk:
        """Mount on ``directory``, which must be empty or missing. Raises DiskFailedError."""
        with await asyncio.to_thread(log.open, "ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "filesystems.disk.mount",
                str(behind),
                str(directory),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(os.environ),
                start_new_session=True,
            )
        disk = cls(directory, process)
        await disk._conversation.mounted()
        return disk

    async def ask(self, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Ask the disk, and return its answer. Raises DiskFailedError."""
        return await self._conversation.ask(do, arguments)

    async def close(self) -> None:
        """Unmount the disk, even if it is still in use."""
        process = self._process
        if process.returncode is None:
            self._conversation.close()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await process.wait()
            except TimeoutError:
                number = fuse_device.connection(self.directory)
                if number is not None:
                    fuse_device.abort(number)
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if fuse_device.connection(self.directory) is not None:
            await asyncio.to_thread(fuse_device.unmount, self.directory)
