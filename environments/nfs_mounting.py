"""Mounting an export: by the kernel where it can, else by the FUSE client.

And saying which it was, for the report.

The two differ in what is real. The kernel's client is what brokers have in production. Ours keeps
the same rules (see ``client.py``), but it is a process: killing it is killing the client, and it is
slower (about 0.3 ms for a write and fsync more).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from filesystems.fuse import device as fuse_device
from filesystems.nfs.options import MountOptions
from harness.interface import Address, InfrastructureError

KERNEL: Final = "kernel NFSv4"
FUSE: Final = "NFSv4 through FUSE"
_END_S: Final = 10.0


def kernel_missing() -> str:
    """Why the kernel's client cannot be used; "" if it can."""
    if os.geteuid() != 0:
        return "only root may mount NFS"
    if shutil.which("mount.nfs4") is None:
        return "mount.nfs4 is not installed (sudo apt-get install nfs-common)"
    if not _kernel_has_nfs():
        return "this kernel has no NFS client (nfs4 is not in /proc/filesystems)"
    return ""


def _kernel_has_nfs() -> bool:
    if shutil.which("modprobe") is not None:
        subprocess.run(["modprobe", "-q", "nfsv4"], capture_output=True, check=False)
    return "nfs4" in Path("/proc/filesystems").read_text().split()


def missing() -> str:
    """Why an NFS export can be mounted neither way; "" if it can. Names both reasons."""
    kernel = kernel_missing()
    fuse = fuse_device.missing() if kernel else ""
    return (
        f"no NFSv4 mount: {kernel}, and {fuse}; use the simulation or the docker environment"
        if kernel and fuse
        else ""
    )


class Mount:
    """One mounted export.

    ``kind`` is KERNEL or FUSE; ``pid`` is the FUSE client's process (None for the kernel).
    """

    def __init__(self, directory: Path, kind: str, process: asyncio.subprocess.Process | None) -> None:
        self.directory = directory
        self.kind = kind
        self.process = process

    @property
    def pid(self) -> int | None:
        """Of the FUSE client."""
        return None if self.process is None else self.process.pid

    async def unmount(self) -> None:
        """End the mount, whether or not its server answers and whoever still uses it."""
        if self.process is None:
            await _run("umount", "-f", "-l", str(self.directory))
            return
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


async def mount(
    server: Address,
    export: str,
    directory: Path,
    options: MountOptions,
    written: str,
    log: Path,
    *,
    kind: str | None = None,
) -> Mount:
    """Mount on a directory, which is created.

    ``options`` are ``written`` as parsed; the client's words go to ``log``.

    ``kind`` insists on one way. Raises InfrastructureError, naming what is missing or what the
    client said.
    """
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    reason = kernel_missing()
    if kind == KERNEL and reason:
        raise InfrastructureError(f"no kernel NFS mount: {reason}")
    if kind == KERNEL or (kind is None and not reason):
        await _run(
            "mount",
            "-t",
            "nfs4",
            "-o",
            options.kernel(server.port),
            f"{server.host}:{export}",
            str(directory),
        )
        return Mount(directory, KERNEL, None)
    if lack := fuse_device.missing():
        raise InfrastructureError(missing() if kind is None else f"no FUSE mount: {lack}")
    with await asyncio.to_thread(log.open, "ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "filesystems.nfs.mount",
            f"{server.host}:{server.port}{export}",
            str(directory),
            "-o",
            written,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    assert process.stdout is not None
    if not (await process.stdout.readline()).startswith(b"mounted "):
        status = await process.wait()
        words = await asyncio.to_thread(_last_line, log)
        raise InfrastructureError(f"the NFS client ended with status {status}: {words}")
    return Mount(directory, FUSE, process)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"


async def _run(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise InfrastructureError(
            f"{' '.join(words)} failed: {' '.join(said.decode(errors='replace').split())}"
        )
