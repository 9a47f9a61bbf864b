"""A disk that breaks, as whoever runs it sees it: a process behind a mount, told what to do over its standard input."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from environments.nfs import fuse_device

_PATIENCE_S: Final = 10.0


class DiskFailedError(Exception):
    """The disk's process could not mount, has gone away, or refused; the text says which."""


class FaultyDisk:
    """One mounted disk; one question at a time."""

    def __init__(self, directory: Path, process: asyncio.subprocess.Process) -> None:
        self.directory = directory
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def mount(cls, behind: Path, directory: Path, log: Path) -> FaultyDisk:
        """Mount on ``directory``, which must be empty or missing. Raises DiskFailedError."""
        with await asyncio.to_thread(log.open, "ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "environments.disk.mount",
                str(behind),
                str(directory),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(os.environ),
                start_new_session=True,
            )
        disk = cls(directory, process)
        if "mounted" not in await disk._line():
            raise DiskFailedError(f"{directory}: no disk was mounted")
        return disk

    async def ask(self, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the disk answers. Raises DiskFailedError."""
        assert self._process.stdin is not None
        async with self._turn:
            try:
                self._process.stdin.write(
                    json.dumps({"do": do, "with": dict(arguments or {})}).encode() + b"\n"
                )
                await self._process.stdin.drain()
            except ConnectionError as error:
                raise DiskFailedError(f"the disk of {self.directory} has ended") from error
            said = await self._line()
        if "error" in said:
            raise DiskFailedError(f"{self.directory}: {said['error']}")
        return said["ok"]

    async def close(self) -> None:
        """Unmount, whoever still uses it."""
        process = self._process
        assert process.stdin is not None
        if process.returncode is None:
            process.stdin.close()
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

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise DiskFailedError(
                f"the process behind {self.directory} ended with status {status}; see its log"
            )
        said: dict[str, Any] = json.loads(line)
        return said
