"""The operations that carry an owner's sequence number (RFC 7530, 9.1.3).

They are opening, closing, locking and unlocking. They are sent one after the other, and none twice.

The server counts, too: it refuses a number that is too high, and takes a number that it has seen
for a repetition.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, Final

from filesystems.fuse.kernel import Attributes
from filesystems.nfs import operations as ops
from filesystems.nfs.client import NfsClient
from filesystems.nfs.files import FileState, LockHolder, LockRange, OpenOwner
from filesystems.nfs.nodes import NfsNode
from filesystems.nfs.operations import NfsOperation
from filesystems.nfs.status import LATER, SEQUENCE_KEPT, STATE_GONE, NfsError

_NUMBERED: Final = frozenset(("OPEN", "OPEN_CONFIRM", "CLOSE", "LOCK", "LOCKU"))


class NumberedOperations:
    """The numbered operations of a mount, whose ``owner`` opens all its files.

    Each operation is repeated until the server gives another answer than "later"; all methods raise
    OSError.
    """

    def __init__(self, client: NfsClient) -> None:
        self._client = client
        self._names = itertools.count(1)
        self.owner = OpenOwner(self.name("open", 0))

    def renew(self) -> None:
        """Begin with a new owner, because the server knows us as a new client."""
        self.owner.name = self.name("open", 0)
        self.owner.seqid = 0

    def name(self, kind: str, number: int) -> bytes:
        """Return the name of an owner at the server; ``number`` tells owners of a kind apart."""
        # The life is part of the name: the server must never take an owner of this life for one of
        # the life before.
        return f"{kind} {number} {self._client.life} {self._client.client_id:x}".encode()

    async def open(
        self,
        identity: bytes,
        directory: bytes,
        name: bytes,
        access: int,
        *,
        create: bytes | None = None,
        exclusive: bool = False,
    ) -> tuple[bytes, bytes, Attributes]:
        """Open a file by name, and create it with attributes ``create`` if given.

        Returns stateid, handle and attributes. The caller holds the owner's ``order``, or recovers.
        """
        owner = self.owner
        (stateid, confirm), handle, attributes = await self._asked(
            owner,
            identity,
            directory,
            lambda: ops.open_file(
                owner.seqid,
                access,
                self._client.client_id,
                owner.name,
                name,
                create=create,
                exclusive=exclusive,
            ),
            ops.GETFH,
            ops.GETATTR,
        )
        return await self._confirmed(identity, handle, stateid, confirm=confirm), handle, attributes

    async def reclaim(self, node: NfsNode, state: FileState) -> bytes:
        """Open a file again that was open when the server was restarted, and return its stateid."""
        owner = self.owner
        ((stateid, confirm),) = await self._asked(
            owner,
            state.identity,
            node.handle,
            lambda: ops.reclaim_open(owner.seqid, state.access, self._client.client_id, owner.name),
        )
        return await self._confirmed(state.identity, node.handle, stateid, confirm=confirm)

    async def close(self, node: NfsNode, state: FileState) -> None:
        """Close a file, with all its locks. The caller holds the owner's ``order``."""
        owner = self.owner
        await self._asked(owner, state.identity, node.handle, lambda: ops.close(state.stateid, owner.seqid))

    async def lock(
        self,
        node: NfsNode,
        state: FileState,
        holder: LockHolder,
        piece: LockRange,
        *,
        waiting: bool = False,
        reclaim: bool = False,
    ) -> None:
        """Take a lock now, under the holder's name at the server or a new one.

        Raises ops.LockDenied if another holder has a lock that conflicts.
        """
        kind = piece.kind + (2 if waiting else 0)
        owner = self.owner

        async def take(numbered: OpenOwner | LockHolder, locker: Callable[[], bytes]) -> list[Any]:
            return await self._asked(
                numbered,
                state.identity,
                node.handle,
                lambda: ops.lock(kind, piece.start, piece.length, locker(), reclaim=reclaim),
            )

        if holder.stateid is not None:
            (holder.stateid,) = await take(
                holder, lambda: ops.known_locker(holder.stateid or b"", holder.seqid)
            )
            return
        # After a refusal the server may or may not know the owner: each try has a name of its own.
        name, client = self.name("lock", next(self._names)), self._client.client_id
        # Recovery takes no order: callers that wait for the recovery hold it.
        async with contextlib.nullcontext() if reclaim else owner.order:
            (stateid,) = await take(
                owner, lambda: ops.new_locker(owner.seqid, state.stateid, self._client.client_id, name)
            )
        holder.name, holder.stateid, holder.seqid, holder.client = name, stateid, 1, client

    async def unlock(self, node: NfsNode, state: FileState, holder: LockHolder, piece: LockRange) -> None:
        """Give back a range of a holder's locks."""
        (holder.stateid,) = await self._asked(
            holder,
            state.identity,
            node.handle,
            lambda: ops.locku(piece.start, piece.length, holder.stateid or b"", holder.seqid),
        )

    async def _confirmed(self, identity: bytes, handle: bytes, stateid: bytes, *, confirm: bool) -> bytes:
        if confirm:
            owner = self.owner
            (stateid,) = await self._asked(
                owner, identity, handle, lambda: ops.open_confirm(stateid, owner.seqid)
            )
        return stateid

    async def _asked(
        self,
        owner: OpenOwner | LockHolder,
        identity: bytes,
        handle: bytes,
        build: Callable[[], NfsOperation],
        *others: NfsOperation,
    ) -> list[Any]:
        """Call a numbered operation on a handle, and ``others`` after it, and return their results.

        The operation is built anew with the next number while the server answers "later".
        """
        for attempt in itertools.count():
            try:
                _, *found = await self._client.once(identity, ops.putfh(handle), build(), *others, hard=True)
            except NfsError as error:
                if error.operation in _NUMBERED and error.status not in SEQUENCE_KEPT | STATE_GONE:
                    owner.seqid = (owner.seqid + 1) & 0xFFFFFFFF
                if error.status not in LATER:
                    raise
            else:
                owner.seqid = (owner.seqid + 1) & 0xFFFFFFFF
                return found
            await self._client.later(attempt)
        raise AssertionError("counting has no end")
