"""Mounts of an export by our FUSE client, which is a process of its own for each mount.

Why not the kernel's client: it would make all of this machine one client with one lease (see
``environments.local.stores``). Our client keeps the same rules (see ``client.py``), and killing its
process kills the client. It is slower: about 0.3 ms more for a write and fsync.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Final

from environments.log_file import last_line
from filesystems.fuse import device as fuse_device
from harness.interface import Address, InfrastructureError

FUSE: Final = "NFSv4 through FUSE"
_END_S: Final = 10.0


class Mount:
    """A mounted export; ``process`` is its client."""

    def __init__(self, directory: Path, process: asyncio.subprocess.Process) -> None:
        self.directory = directory
        self.process = process

    async def unmount(self) -> None:
        """End the mount, even if its server does not answer or programs still use it."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await self.process.wait()
            except TimeoutError:
                number = fuse_device.connection(self.directory)
                if number is not None:
                    fuse_device.abort(number)
                self.process.kill()
                await self.process.wait()
        # A client that was killed leaves its dead mount behind.
        if fuse_device.connection(self.directory) is not None:
            await asyncio.to_thread(fuse_device.unmount, self.directory)


async def mount(server: Address, export: str, directory: Path, options: str, log: Path) -> Mount:
    """Mount an export on a directory, which is created; the client's output goes to ``log``.

    Raises InfrastructureError, which names what is missing or what the client said.
    """
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    if lack := fuse_device.missing():
        raise InfrastructureError(f"no FUSE mount: {lack}")
    with await asyncio.to_thread(log.open, "ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "filesystems.nfs.mount",
            f"{server.host}:{server.port}{export}",
            str(directory),
            "-o",
            options,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    assert process.stdout is not None
    if not (await process.stdout.readline()).startswith(b"mounted "):
        status = await process.wait()
        words = last_line(log, "without a word")
        raise InfrastructureError(f"the NFS client ended with status {status}: {words}")
    return Mount(directory, process)
