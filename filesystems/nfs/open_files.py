"""The operations on open files and locks, and their recovery.

Operations that carry an owner's number run to their end in a task of their own, even if the caller
is cancelled: a number that may or may not have been used would make the owner unusable. If such an
operation succeeds without its caller, it is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from filesystems.fuse.kernel import Attributes
from filesystems.nfs import operations as ops
from filesystems.nfs.client import NfsClient
from filesystems.nfs.files import FileState, HolderKey, LockHolder, LockRange, StateLostError
from filesystems.nfs.nodes import NfsNode, NfsNodes
from filesystems.nfs.numbered_operations import NumberedOperations
from filesystems.nfs.status import STATE_GONE, NfsError, NfsStatus

T = TypeVar("T")


class OpenFiles:
    """The open files of a mount; all methods raise the OSError that the caller is to see."""

    def __init__(self, client: NfsClient, nodes: NfsNodes, tell: Callable[[str], None]) -> None:
        self._client = client
        self._nodes = nodes
        self._tell = tell
        self._operations = NumberedOperations(client)
        self._tasks: set[asyncio.Task[Any]] = set()
        client.recovering = self

    async def surviving(
        self, state: FileState | None, action: Callable[[], Awaitable[T]], *, hard: bool = False
    ) -> T:
        """Run an action; repeat it whenever the server had forgotten us and we have recovered."""
        while True:
            await self._client.settled(hard=hard)
            life = self._client.life
            try:
                return await action()
            except NfsError as error:
                if error.status == NfsStatus.OLD_STATEID:
                    # Another open or lock came first, and its answer is under way.
                    await self._client.later(0)
                    continue
                if error.status not in STATE_GONE:
                    raise
                await self._client.recover(life, error.status, hard=hard)
                if self._client.life == life:
                    if state is None:
                        raise
                    state.lost = f"the server revoked this file ({error.strerror})"
                    raise StateLostError(state.lost) from error

    async def open(
        self,
        identity: bytes,
        directory: NfsNode,
        name: bytes,
        access: int,
        *,
        create: bytes | None = None,
        exclusive: bool = False,
    ) -> tuple[NfsNode, Attributes]:
        """Open a file by name, and create it with attributes ``create`` if given.

        The node counts as looked up once more, and as open once more.
        """

        async def action() -> tuple[NfsNode, Attributes]:
            async with self._operations.owner.order:
                stateid, handle, attributes = await self._operations.open(
                    identity, directory.handle, name, access, create=create, exclusive=exclusive
                )
                node = self._nodes.found(handle, directory, name)
                if node.state is None or node.state.lost:
                    node.state = FileState(identity, access, stateid)
                else:
                    node.state.stateid = stateid
                    node.state.access |= access
                    node.state.openings += 1
                return node, attributes

        task = self._task(self.surviving(None, action, hard=True))
        return await self._answered(task, lambda result: self.close(result[0], result[0].state))

    def release(self, node: NfsNode, state: FileState) -> None:
        """Close in the background, since the kernel does not wait for it."""
        self._task(self.close(node, state))

    async def close(self, node: NfsNode, state: FileState | None) -> None:
        """Close one opening of a file; with the last one, give everything back to the server.

        A hidden file is then removed.
        """
        if state is None:
            return
        await self._client.settled(hard=True)
        if state.openings == 1:
            while state.locking:  # requests of processes that did not wait for them
                await asyncio.wait(tuple(state.locking))
            for key in list(state.holders):
                with contextlib.suppress(OSError):  # the server releases locks with the file
                    await self.unlock(node, state, key, LockRange(0, ops.TO_THE_END, 0))
        async with self._operations.owner.order:
            state.openings -= 1
            if state.openings:
                return
            if node.state is state:
                node.state = None
            try:
                if not state.lost:
                    await self._operations.close(node, state)
            except NfsError as error:
                if error.status not in STATE_GONE:  # a file that the server has forgotten is closed
                    raise
        await self.remove_hidden(node, state.identity, hard=True)

    async def remove_hidden(self, node: NfsNode, identity: bytes, *, hard: bool) -> None:
        """Remove a file that was only renamed because it was open, once it is closed."""
        if node.hidden and node.state is None and node.parent is not None:
            node.hidden = False
            await self._client.call(identity, ops.putfh(node.parent.handle), ops.remove(node.name), hard=hard)

    async def lock(
        self, node: NfsNode, state: FileState, key: HolderKey, piece: LockRange, *, waiting: bool = False
    ) -> None:
        """Take a lock now; raises ops.LockDenied (EAGAIN) if another holder's lock conflicts."""
        holder = state.holders.setdefault(key, LockHolder())
        confirms, held = bool(holder.ranges), piece in holder.ranges

        async def action() -> None:
            async with holder.order:
                # A lock that was lost and given up while this waited must not be taken anew:
                # no process would give it up again.
                if state.lost or holder.lost or (confirms and not holder.ranges):
                    raise StateLostError(state.lost or "the lock of this file was lost with the lease")
                await self._operations.lock(node, state, holder, piece, waiting=waiting)
                holder.replace(piece, held=True)

        task = self._task(self.surviving(state, action, hard=True))
        state.locking.add(task)
        task.add_done_callback(state.locking.discard)
        # A range that was held before stays held, whether or not this was confirmed.
        await self._answered(task, None if held else lambda _: self.unlock(node, state, key, piece))

    async def unlock(self, node: NfsNode, state: FileState, key: HolderKey, piece: LockRange) -> None:
        """Give back a range; a holder whose lock was lost may lock anew after this."""
        holder = state.holders.get(key)
        if holder is None or not holder.ranges:
            return

        async def action() -> None:
            async with holder.order:
                if holder.lost or state.lost or holder.stateid is None:
                    holder.lost = False
                    holder.ranges.clear()
                    return
                await self._operations.unlock(node, state, holder, piece)
                holder.replace(piece, held=False)

        await self._answered(self._task(self.surviving(state, action, hard=True)), None)

    def forget(self, state: FileState, key: HolderKey) -> None:
        """Drop a holder whose opening has ended, if it holds nothing and asks for nothing."""
        holder = state.holders.get(key)
        if holder is not None and not holder.ranges and not state.locking:
            del state.holders[key]

    async def test(
        self, node: NfsNode, state: FileState, key: HolderKey, piece: LockRange
    ) -> ops.LockDenied | None:
        """Return the lock that conflicts with a requested one (LOCKT); None if none does."""
        holder = state.holders.get(key)
        name = holder.name if holder is not None and holder.name else self._operations.name("lock", 0)
        test = ops.lockt(piece.kind, piece.start, piece.length, self._client.client_id, name)
        try:
            await self.surviving(
                state, lambda: self._client.call(state.identity, ops.putfh(node.handle), test)
            )
        except ops.LockDenied as denied:
            return denied
        return None

    async def recover(self, *, reclaim: bool) -> None:
        """Open and lock again all that is open and locked, as far as the server lets us.

        Raises NfsError if the server forgets us meanwhile.
        """
        self._operations.renew()
        for node in self._nodes:
            state = node.state
            if state is None or state.lost:
                continue
            reclaimed = reclaim and await self._reclaimed(node, state)
            if not reclaimed:
                await self._opened_anew(node, state)
            for holder in state.holders.values():
                if holder.stateid is not None and holder.client == self._client.client_id:
                    continue  # it was taken during this recovery
                holder.stateid = None
                if holder.ranges and not holder.lost:
                    holder.lost = not (reclaimed and await self._locked_again(node, state, holder))
                    if holder.lost:
                        self._tell(f"the lock of {node.name.decode(errors='replace')} is lost")

    async def settle(self) -> None:
        """Wait until no operation is under way."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _reclaimed(self, node: NfsNode, state: FileState) -> bool:
        try:
            state.stateid = await self._operations.reclaim(node, state)
        except NfsError as error:
            if error.status in STATE_GONE:
                raise
            self._tell(
                f"the file {node.name.decode(errors='replace')} could not be reclaimed: {error.strerror}"
            )
            return False
        return True

    async def _opened_anew(self, node: NfsNode, state: FileState) -> None:
        assert node.parent is not None, "directories are not opened"
        try:
            state.stateid, handle, _ = await self._operations.open(
                state.identity, node.parent.handle, node.name, state.access
            )
        except NfsError as error:
            if error.status in STATE_GONE:
                raise
            state.lost = f"could not be opened again after the lease was lost ({error.strerror})"
            return
        if handle != node.handle:
            state.lost = "another file has its name since the lease was lost"

    async def _locked_again(self, node: NfsNode, state: FileState, holder: LockHolder) -> bool:
        try:
            for piece in holder.ranges:
                await self._operations.lock(node, state, holder, piece, reclaim=True)
        except NfsError as error:
            if error.status in STATE_GONE:
                raise
            return False
        return True

    def _task(self, work: Awaitable[T]) -> asyncio.Task[T]:
        async def run() -> T:
            return await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), OSError):
            # The error is reported even if no caller waits any more: the end of the lease undoes
            # what could not be undone.
            self._tell(f"an operation was given up: {error.strerror}") if error.errno == errno.EIO else None

    async def _answered(self, task: asyncio.Task[T], undo: Callable[[T], Awaitable[None]] | None) -> T:
        """Return the task's result.

        The result is undone if the caller is interrupted, or stops waiting, before it is there.
        """
        try:
            return await self._client.patiently(task)
        except (asyncio.CancelledError, OSError):
            if not task.done() or (not task.cancelled() and task.exception() is None):
                task.add_done_callback(lambda done: self._undo(done, undo))
            raise

    def _undo(self, done: asyncio.Task[T], undo: Callable[[T], Awaitable[None]] | None) -> None:
        if done.cancelled() or done.exception() is not None or undo is None:
            return
        self._task(undo(done.result()))
