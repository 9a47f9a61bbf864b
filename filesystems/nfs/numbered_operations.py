"""The operations that carry an owner's number (RFC 7530, 9.1.3).

Opening, closing, locking, unlocking. One after the other, and none twice.

The server counts with us: it refuses a number that it has not come to, and takes one that it has
seen for a repetition.
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
    """Of one mount, whose ``owner`` opens all its files.

    Each is asked until the server gives an answer other than "later"; all raise OSError.
    """

    def __init__(self, client: NfsClient) -> None:
        self._client = client
        self._names = itertools.count(1)
        self.owner = OpenOwner(self.name("open", 0))

    def renew(self) -> None:
        """The server knows us as another from now on: the owner is new to it."""
        self.owner.name = self.name("open", 0)
        self.owner.seqid = 0

    def name(self, kind: str, number: int) -> bytes:
        """What an owner is called at the server; ``number`` tells those of one kind apart."""
        # The life is part of it: the server must never take an owner of this life for one of the
        # last.
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
        """Open by name, creating with attributes ``create`` if given: stateid, handle, attributes.

        Whoever calls holds the owner's ``order``, or recovers.
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
        """Open again what was open at a server that was restarted; the stateid."""
        owner = self.owner
        ((stateid, confirm),) = await self._asked(
            owner,
            state.identity,
            node.handle,
            lambda: ops.reclaim_open(owner.seqid, state.access, self._client.client_id, owner.name),
        )
        return await self._confirmed(state.identity, node.handle, stateid, confirm=confirm)

    async def close(self, node: NfsNode, state: FileState) -> None:
        """Give a file back, with all its locks. Whoever calls holds the owner's ``order``."""
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

        Raises ops.LockDenied if somebody else has one that conflicts.
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
        # A refused owner may or may not be known to the server afterwards: each try has a name of
        # its own.
        name, client = self.name("lock", next(self._names)), self._client.client_id
        # Recovery goes on while others hold the order and wait for it.
        async with contextlib.nullcontext() if reclaim else owner.order:
            (stateid,) = await take(
                owner, lambda: ops.new_locker(owner.seqid, state.stateid, self._client.client_id, name)
            )
        holder.name, holder.stateid, holder.seqid, holder.client = name, stateid, 1, client

    async def unlock(self, node: NfsNode, state: FileState, holder: LockHolder, piece: LockRange) -> None:
        """Give back a range of what a holder has."""
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
        """What a numbered operation on a handle gave, and ``others`` after it.

        It is built anew with the next number while the server says "later".
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
