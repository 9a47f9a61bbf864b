"""FUSE requests, and the connection to the kernel that sends requests and takes answers."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filesystems.fuse import kernel
from filesystems.fuse.kernel import Opcode

_SIGKILL_BIT: Final = 1 << 8
_FINISHED: Final = frozenset(
    (Opcode.FLUSH, Opcode.RELEASE, Opcode.RELEASEDIR, Opcode.FORGET, Opcode.BATCH_FORGET)
)
"""The requests that are carried out even for a killed process: they release what it held."""
_LOOK_AGAIN_S: Final = 0.2
_KNOWN: Final = frozenset(int(opcode) for opcode in Opcode)


@dataclass(frozen=True, slots=True)
class FuseRequest:
    """A request of the kernel, with the user and the process that it is for."""

    opcode: int
    unique: int
    node: int
    uid: int
    gid: int
    pid: int
    body: bytes


Answer = bytes | list[bytes] | None
"""The body of a reply; None for requests that want none."""


class FuseConnection:
    """A connection that reads requests from an open /dev/fuse and answers each in its own task.

    The tasks end in any order.

    ``interruptible``: a signal to the waiting process ends its request with EINTR (the mount option
    intr). Without it only SIGKILL does, because a program that does not expect EINTR would take it
    for an error of the disk.
    """

    def __init__(
        self,
        device: int,
        serve: Callable[[FuseRequest], Awaitable[Answer]],
        tell: Callable[[str], None],
        *,
        interruptible: bool,
    ) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that is done when the file system was unmounted or its connection aborted."""
        self._device = device
        self._serve = serve
        self._tell = tell
        self._interruptible = interruptible
        self._waiting: dict[int, tuple[asyncio.Task[None], int, int]] = {}
        os.set_blocking(device, False)
        asyncio.get_running_loop().add_reader(device, self._readable)

    def stop(self) -> None:
        """Stop reading, and cancel the requests under way."""
        asyncio.get_running_loop().remove_reader(self._device)
        for task, _, _ in self._waiting.values():
            task.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Close the device; requests that are still under way get no answer."""
        device, self._device = self._device, -1
        if device >= 0:
            os.close(device)

    def _readable(self) -> None:
        for _ in range(16):  # then other tasks have their turn
            try:
                data = os.read(self._device, kernel.BUFFER_BYTES)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue  # a request that was withdrawn while it was read
                self.stop()  # ENODEV: unmounted; ECONNABORTED: aborted
                return
            self._begin(data)

    def _begin(self, data: bytes) -> None:
        _, opcode, unique, node, uid, gid, pid, _, _ = kernel.IN_HEADER.unpack_from(data)
        request = FuseRequest(opcode, unique, node, uid, gid, pid, data[kernel.IN_HEADER.size :])
        if opcode == Opcode.INTERRUPT:
            self._interrupt(kernel.INTERRUPT_IN.unpack_from(request.body)[0])
        elif opcode not in _KNOWN:
            self._reply(unique, -errno.ENOSYS)
        else:
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self._waiting[unique] = (task, opcode, pid)
            task.add_done_callback(lambda done: self._ended(unique, done))

    def _ended(self, unique: int, task: asyncio.Task[None]) -> None:
        del self._waiting[unique]
        if task.cancelled():  # not in the task itself: one that is cancelled before it began never runs
            self._reply(unique, -errno.EINTR)

    def _interrupt(self, unique: int) -> None:
        task, opcode, pid = self._waiting.get(unique, (None, 0, 0))
        if task is None or opcode in _FINISHED:
            return
        if self._interruptible or _is_killed(pid):
            task.cancel()
        else:  # the kernel sends one INTERRUPT for each request: a later SIGKILL must be polled for
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._interrupt, unique)

    async def _answer(self, request: FuseRequest) -> None:
        try:
            answer = await self._serve(request)
        except OSError as error:
            self._reply(request.unique, -(error.errno or errno.EIO))
            return
        except Exception as error:  # noqa: BLE001 - a request without an answer would hang its process for ever
            self._tell(
                f"request {request.opcode} failed with an internal error: {type(error).__name__}: {error}"
            )
            self._reply(request.unique, -errno.EIO)
            return
        if answer is not None:
            self._reply(request.unique, 0, answer)

    def _reply(self, unique: int, error: int, body: bytes | list[bytes] = b"") -> None:
        if self._device < 0:
            return
        parts = body if isinstance(body, list) else [body]
        size = kernel.OUT_HEADER.size + sum(map(len, parts))
        try:
            os.writev(self._device, [kernel.OUT_HEADER.pack(size, error, unique), *filter(None, parts)])
        except OSError as failure:
            if failure.errno not in (errno.ENOENT, errno.ENODEV, errno.ECONNABORTED):
                raise  # after the errors above no process waits for the answer any more


def _is_killed(pid: int) -> bool:
    """Return whether SIGKILL is pending for a process, or the process is gone already."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = 0
    for line in lines:
        if line.startswith(("SigPnd:", "ShdPnd:")):
            pending |= int(line.split()[1], 16)
    return bool(pending & _SIGKILL_BIT)
