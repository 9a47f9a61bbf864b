"""fcntl and flock locks, all of them locks at the server.

They are byte-range locks of processes and whole-file locks of openings.

As in the kernel's client, flock becomes a lock of the whole file, so that it holds between hosts.
To wait for a lock is to ask again and again, because NFSv4.0 has no call that waits.
"""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Mapping
from typing import Final

from filesystems.fuse import kernel
from filesystems.fuse.connection import FuseRequest
from filesystems.nfs import operations as ops
from filesystems.nfs.files import FLOCK, POSIX, FileState, HolderKey, LockRange
from filesystems.nfs.nodes import NfsNode
from filesystems.nfs.open_files import OpenFiles

Handles = Mapping[int, tuple[NfsNode, FileState]]

_WHOLE: Final = LockRange(0, ops.TO_THE_END, ops.WRITE_LOCK)
_LAST_BYTE: Final = (1 << 63) - 1
_AGAIN_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_KINDS: Final = {fcntl.F_RDLCK: ops.READ_LOCK, fcntl.F_WRLCK: ops.WRITE_LOCK}


class Locking:
    """The requests about locks, and the locks of holders that close; all methods raise OSError."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files

    async def set(self, request: FuseRequest, handles: Handles, *, wait: bool) -> bytes:
        """Take a lock, or give it back.

        Without ``wait`` a lock that another holder has is EAGAIN; with it, cancelling ends the
        waiting.
        """
        number, owner, start, end, kind, _, flags, _ = kernel.LK_IN.unpack_from(request.body)
        node, state = handles[number]
        key = (FLOCK if flags & kernel.LK_FLOCK else POSIX, owner)
        if kind == fcntl.F_UNLCK:
            await self._files.unlock(node, state, key, LockRange(start, end, ops.WRITE_LOCK))
            return b""
        piece = LockRange(start, end, _KINDS[kind])
        attempt = 0
        while True:
            try:
                await self._files.lock(node, state, key, piece, waiting=wait)
            except ops.LockDenied:
                if not wait:
                    raise
            else:
                return b""
            await asyncio.sleep(_AGAIN_S[min(attempt, len(_AGAIN_S) - 1)])
            attempt += 1

    async def test(self, request: FuseRequest, handles: Handles) -> bytes:
        """Return the lock that conflicts with a requested one, or that none does.

        The holder's process number is 0: a holder on another host has none here.
        """
        number, owner, start, end, kind, _, _, _ = kernel.LK_IN.unpack_from(request.body)
        node, state = handles[number]
        denied = await self._files.test(
            node, state, (POSIX, owner), LockRange(start, end, _KINDS.get(kind, ops.WRITE_LOCK))
        )
        if denied is None:
            return kernel.LK_OUT.pack(start, end, fcntl.F_UNLCK, 0)
        # nfs-ganesha sends 0 for a lock without end, where the RFC has all ones.
        last = min(denied.offset + denied.length - 1, _LAST_BYTE) if denied.length else _LAST_BYTE
        held = fcntl.F_RDLCK if denied.type in (ops.READ_LOCK, ops.READ_LOCK_WAITING) else fcntl.F_WRLCK
        return kernel.LK_OUT.pack(min(denied.offset, _LAST_BYTE), last, held, 0)

    async def closed(self, node: NfsNode, state: FileState, key: HolderKey) -> None:
        """Release all locks of a holder on a file.

        As POSIX says, a process' fcntl locks end with the first of its openings that it closes, and
        an opening's flock ends with its last close.
        """
        await self._files.unlock(node, state, key, _WHOLE)
