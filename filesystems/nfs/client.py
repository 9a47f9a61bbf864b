"""The client of a mount: its identity, its lease, and its recovery if the server forgets it.

There are three ways to lose state (RFC 7530, 9.5 and 9.6). They are handled as by the kernel's
client:
- the server was restarted: what was open and locked is reclaimed during its grace period;
- our lease ended (we were silent, or cut off): files are opened anew, but their locks are *lost*,
  because another client may have held them meanwhile; a process that held a lock gets EIO until it
  unlocks or closes the file;
- the server revoked one file: that file is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from filesystems.nfs import attributes, rpc
from filesystems.nfs import operations as ops
from filesystems.nfs.operations import NfsOperation
from filesystems.nfs.options import MountOptions
from filesystems.nfs.status import LATER, STATE_GONE, NfsError, NfsStatus

T = TypeVar("T")

DEFAULT_PORT: Final = 2049
_LATER_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
_RENEWALS_PER_LEASE: Final = 3


class Recovering(Protocol):
    """An object that restores its open files and locks when the client has been introduced anew."""

    async def recover(self, *, reclaim: bool) -> None:
        """Open and lock again what was open and locked.

        ``reclaim``: the server was restarted and may give back what we had. Raises NfsError if the
        server forgot us once more.
        """
        ...


class NfsClient:
    """A client of one export; call ``connect`` first and ``close`` last.

    ``name`` identifies the client to the server: a client that comes back under the same name ends
    the state of its former life at once.
    """

    def __init__(
        self, host: str, port: int, options: MountOptions, *, name: str, tell: Callable[[str], None]
    ) -> None:
        self.options = options
        self.client_id = 0
        self.lease_s = 0
        self.transfer_bytes = 0
        self.life = 0
        """The number of recoveries; requests that were built before the latest are not valid."""
        self.recovering: Recovering | None = None
        self._patience_s = options.patience_s if options.soft else None
        self._machine = name
        self._identity = rpc.credential(os.getuid(), os.getgid(), name)
        self._verifier = os.urandom(8)
        self._tell = tell
        self._rpc = rpc.RpcClient(host, port, try_s=options.try_s, notice_s=options.patience_s, tell=tell)
        self._recovery: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def connect(self, export: str) -> bytes:
        """Introduce the client, look at the export, and begin to renew the lease.

        Returns the handle of the export's root.

        Raises NfsError (NOENT: no such export) or rpc.UnreachableError. It does so on a hard mount,
        too, which waits for ever only once it has been mounted.
        """
        self._rpc.start()
        path = [ops.lookup(part.encode()) for part in export.split("/") if part]
        *_, root, server = await self._within(
            self.options.mounting_s,
            self.call(self._identity, ops.PUTROOTFH, *path, ops.GETFH, ops.GETATTR_SERVER, hard=True),
        )
        self.lease_s = server.get(attributes.LEASE_TIME, 90)
        self.transfer_bytes = min(
            server.get(attributes.MAXREAD, 1 << 16), server.get(attributes.MAXWRITE, 1 << 16)
        )
        await self._within(self.options.mounting_s, self._introduce())
        self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="lease renewal")
        return bytes(root)

    async def close(self) -> None:
        """Stop renewing and disconnect; what is still open or locked ends with the lease."""
        for task in (self._renewal, self._recovery):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task
        await self._rpc.close()

    def identity(self, uid: int, gid: int) -> bytes:
        """Return the credential of a user."""
        return rpc.credential(uid, gid, self._machine)

    async def call(self, identity: bytes, *operations: NfsOperation, hard: bool = False) -> list[Any]:
        """Call a COMPOUND that needs no state, and return the result of each operation.

        It is repeated while the server answers "later". ``hard`` waits for an answer even on a soft
        mount.
        """
        for attempt in itertools.count():
            try:
                return await self.once(identity, *operations, hard=hard)
            except NfsError as error:
                if error.status not in LATER:
                    raise
            await self.later(attempt)
        raise AssertionError("counting has no end")

    async def once(self, identity: bytes, *operations: NfsOperation, hard: bool = False) -> list[Any]:
        """Call a COMPOUND once, and return the result of each operation."""
        patience_s = None if hard else self._patience_s
        reader = await self._rpc.compound(identity, ops.request(operations), patience_s=patience_s)
        return ops.results(operations, reader)

    async def later(self, attempt: int) -> None:
        """Wait before a server that answered "later" is asked again."""
        await asyncio.sleep(_LATER_S[min(attempt, len(_LATER_S) - 1)])

    async def patiently(self, work: asyncio.Task[T]) -> T:
        """Return the result of a task, which goes on even if the caller stops waiting.

        The caller waits only as long as the mount's options say. On a soft mount this raises
        rpc.UnreachableError when the server has not answered anything for the mount's patience.
        """
        if self._patience_s is None:
            return await asyncio.shield(work)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not work.done():
            left = max(began, self._rpc.answered_at) + self._patience_s - loop.time()
            if left <= 0:
                raise rpc.UnreachableError(self._patience_s)
            await asyncio.wait((work,), timeout=left)
        return work.result()

    async def recover(self, life: int, status: int, *, hard: bool) -> None:
        """Introduce the client to the server again, after an answer of STATE_GONE (``status``).

        The answer was to a request that was built in ``life``. Callers that ask at the same time
        share one recovery.

        ``self.life`` stays the same if the server still knows us: then only that one file is lost.
        """
        if life != self.life:
            return
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.get_running_loop().create_task(self._recover(status), name="recovery")
        await self.settled(hard=hard)

    async def settled(self, *, hard: bool) -> None:
        """Wait for a recovery under way: it would take files that are opened meanwhile for lost."""
        if self._recovery is not None and not self._recovery.done():
            await (asyncio.shield(self._recovery) if hard else self.patiently(self._recovery))

    async def _recover(self, status: int) -> None:
        while True:
            restarted = status in (NfsStatus.STALE_CLIENTID, NfsStatus.STALE_STATEID)
            try:
                if not restarted and status != NfsStatus.EXPIRED:
                    await self._renew_once()
                    return  # the server knows us: the caller has lost one file, not everything
                self._tell(
                    "the server was restarted: reclaiming open files and locks"
                    if restarted
                    else f"the lease was lost (NFS4ERR_{NfsStatus(status).name}): locks are gone, files "
                    "are opened anew"
                )
                if not restarted:
                    # A new verifier begins another life: under the old one a server that was only
                    # late for one request would go on holding what we take for lost.
                    self._verifier = os.urandom(8)
                await self._introduce()
                if self.recovering is not None:
                    await self.recovering.recover(reclaim=restarted)
            except NfsError as error:
                if error.status not in STATE_GONE:
                    raise
                status = error.status
                continue
            self.life += 1
            return

    async def _introduce(self) -> None:
        """Introduce the client by SETCLIENTID and its confirmation."""
        introduction = ops.setclientid(self._verifier, self._machine.encode())
        ((client, verifier),) = await self.call(self._identity, introduction, hard=True)
        await self.call(self._identity, ops.setclientid_confirm(client, verifier), hard=True)
        self.client_id = client

    async def _renew_once(self) -> None:
        try:
            await self.call(self._identity, ops.renew(self.client_id), hard=True)
        except NfsError as error:
            if error.status != NfsStatus.CB_PATH_DOWN:  # which renews too: only delegations need a way back
                raise

    async def _renew(self) -> None:
        """Renew the lease while the server can be reached, whether or not the mount is used."""
        while True:
            await asyncio.sleep(self.lease_s / _RENEWALS_PER_LEASE)
            life = self.life
            try:
                await self._renew_once()
            except NfsError as error:
                if error.status not in STATE_GONE:
                    self._tell(f"renewing the lease failed: {error}")
                    continue
                with contextlib.suppress(OSError):
                    await self.recover(life, error.status, hard=True)
            except OSError as error:
                self._tell(f"renewing the lease failed: {error}")

    @staticmethod
    async def _within(patience_s: float, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(patience_s):
                return await work
        except TimeoutError:
            raise rpc.UnreachableError(patience_s) from None
