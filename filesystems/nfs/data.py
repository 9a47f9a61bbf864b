"""Reading, writing and syncing.

A write goes to the server before write() returns; fsync() returns when the server says that the
data are on its disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from filesystems.nfs import attributes, rpc
from filesystems.nfs import operations as ops
from filesystems.nfs.client import NfsClient
from filesystems.nfs.files import FileState
from filesystems.nfs.nodes import NfsNode, Uncommitted
from filesystems.nfs.open_files import OpenFiles

_UNSYNCED_BYTES_MAX: Final = 16 << 20


class FileContent:
    """The content of files. All methods raise OSError."""

    def __init__(self, client: NfsClient, files: OpenFiles) -> None:
        self._client = client
        self._files = files
        self._stable = ops.FILE_SYNC if client.options.sync else ops.UNSTABLE
        self._fresh_sizes = client.options.attribute_cache_s == 0.0

    async def read(
        self, identity: bytes, opened: tuple[NfsNode, FileState], process: int | None, offset: int, size: int
    ) -> bytes:
        """Return ``size`` bytes, fewer only at the end of the file."""
        node, state = opened

        async def piece() -> list[Any]:
            reading = ops.read(state.stateid_for(process), offset, size)
            return await self._client.call(identity, ops.putfh(node.handle), reading)

        parts: list[bytes] = []
        ended = False
        while size and not ended:
            _, (ended, data) = await self._files.surviving(state, piece)
            parts.append(data)
            offset += len(data)
            size -= len(data)
            ended = ended or not data
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def write(
        self,
        identity: bytes,
        opened: tuple[NfsNode, FileState],
        process: int | None,
        offset: int,
        data: bytes,
        *,
        append: bool,
    ) -> int:
        """Send bytes to the server, and return how many it took (all).

        To append is to write at the end that the server knows: the end that this kernel knows is
        old if another host wrote. Two hosts that append at the same time may still overwrite each
        other's bytes; NFS has no atomic append.
        """
        node, state = opened
        if append and self._fresh_sizes:
            _, found = await self._client.call(identity, ops.putfh(node.handle), ops.GETATTR_SIZE)
            # A server that was restarted may have lost bytes that we will send again: the end is
            # behind those.
            offset = max(
                [found[attributes.SIZE], *(entry.offset + len(entry.data) for entry in node.unsynced)]
            )
        done = 0
        while done < len(data):
            piece = data[done:] if done else data
            taken, stable, verifier = await self._write(
                identity, node, state, lambda: state.stateid_for(process), offset + done, piece, self._stable
            )
            if stable != ops.FILE_SYNC:
                node.unsynced.append(Uncommitted(offset + done, piece[:taken], verifier))
            done += taken
        if sum(len(entry.data) for entry in node.unsynced) > _UNSYNCED_BYTES_MAX:
            await self.sync(identity, node)
        return done

    async def sync(self, identity: bytes, node: NfsNode) -> None:
        """Return when all data written to the file through this mount are on the server's disk.

        Data that the server took before it was restarted are sent again. Raises OSError, and keeps
        the data that are not safe for the next try.
        """
        async with node.syncing:
            entries, node.unsynced = node.unsynced, []
            if not entries:
                return
            try:
                _, verifier = await self._client.call(identity, ops.putfh(node.handle), ops.COMMIT)
                if any(entry.verifier != verifier for entry in entries):
                    for entry in entries:  # all, or an old entry would overwrite a newer one of the place
                        await self._again(identity, node, entry)
            except BaseException:
                node.unsynced[:0] = entries
                raise

    async def _again(self, identity: bytes, node: NfsNode, entry: Uncommitted) -> None:
        state = node.state
        done = 0
        while done < len(entry.data):
            taken, _, _ = await self._write(
                identity,
                node,
                state,
                lambda: ops.ANONYMOUS if state is None else state.stateid_for(None),
                entry.offset + done,
                entry.data[done:],
                ops.FILE_SYNC,
            )
            done += taken

    async def _write(
        self,
        identity: bytes,
        node: NfsNode,
        state: FileState | None,
        stateid: Callable[[], bytes],
        offset: int,
        data: bytes,
        stable: int,
    ) -> tuple[int, int, bytes]:
        _, (taken, kept, verifier) = await self._files.surviving(
            state,
            lambda: self._client.call(
                identity, ops.putfh(node.handle), ops.write(stateid(), offset, data, stable)
            ),
        )
        if not taken:
            raise rpc.RpcRefusedError("a write of which nothing was taken")
        return taken, kept, verifier
