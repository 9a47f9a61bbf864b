"""Waiting for the lock of a store's owner.

The waiting is common to all policies with such a lock; their own rules say who gets it.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Final, NamedTuple, Protocol

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 0.5
"""The time that a broker which ends waits for a store that may never answer."""


class HeldLock(Protocol):
    """A lock of the store that was granted to us; it may be lost at any time."""

    async def verify(self) -> None:
        """Return when the store has confirmed, after the call, that the lock is ours.

        Raises OSError when the lock is lost or the store is gone.
        """
        ...

    async def release(self) -> None:
        """Release the lock. Raises OSError."""
        ...


class Granted(NamedTuple):
    """The live lock, confirmed by a question asked at ``asked_s``.

    ``waiting`` is the candidate's own lock, to be released once it is live.
    """

    live: HeldLock
    asked_s: float
    waiting: HeldLock | None


class PendingReleases:
    """Locks whose release failed; retried before the next attempt.

    Why they are remembered: on a soft mount a request may fail though nothing else does. A lock
    whose release failed is still held, by a process that has forgotten it. No other process gets it
    for as long as that process runs, and neither does that process itself.
    """

    def __init__(self) -> None:
        self._locks: list[HeldLock] = []

    def add(self, *locks: HeldLock | None) -> None:
        """Add locks to be released the next time, even if it is unknown whether we hold them."""
        self._locks += [lock for lock in locks if lock is not None]

    async def retry(self, *locks: HeldLock | None) -> None:
        """Release these and all that are pending. Raises OSError; what is left stays pending."""
        self.add(*locks)
        while self._locks:
            await self._locks[0].release()
            del self._locks[0]


class Candidacy(abc.ABC):
    """A wait for the owner's lock, begun by ``run``.

    ``next_in_line`` says that no candidate is before us: we hold the place of the next one.
    """

    STORE = "the shared store"

    def __init__(self, poll_period_ms: int, expiration_ms: int) -> None:
        self.next_in_line = False
        self._poll_s = poll_period_ms / 1000
        self._expiration_s = expiration_ms / 1000
        self._waiting: HeldLock | None = None
        self._releases = PendingReleases()
        self._trouble = ""

    async def run(self) -> Granted | None:
        """Wait, however long it takes; a store that fails is asked again.

        Returns None if there is nothing more to wait for. When cancelled, releases what was locked.
        """
        prepared = False
        while True:
            try:
                if not prepared:
                    await self._prepare()
                    prepared = True
                await self._releases.retry()
                granted = await self._attempt()
            except OSError as error:
                self._tell(logging.WARNING, f"{self.STORE} cannot be used: {error}; trying again")
            else:
                if granted is not None:
                    return granted
            await asyncio.sleep(self._poll_s)

    async def give_up(self) -> None:
        """Release our place in the line. Raises OSError."""
        waiting, self._waiting = self._waiting, None
        self.next_in_line = False
        await self._releases.retry(waiting)

    @abc.abstractmethod
    async def _prepare(self) -> None:
        """Make what must exist before a candidate can ask for a place. Raises OSError."""

    @abc.abstractmethod
    async def _attempt(self) -> Granted | None:
        """Try once. Raises OSError."""

    async def _check_place(self, waiting: HeldLock) -> None:
        """Confirm our place in the line, which may be lost like any lock.

        If it is lost, we are behind the candidate that took it. If it was only not confirmed, it is
        released first.
        """
        try:
            await waiting.verify()
        except OSError:
            self._releases.add(waiting)
            self._waiting, self.next_in_line = None, False
            raise

    async def _confirmed(self, lock: HeldLock) -> float:
        """Return when a question was asked that was answered soon.

        So no reign begins with half a lease.
        """
        loop = asyncio.get_running_loop()
        while True:
            asked_s = loop.time()
            await lock.verify()
            if loop.time() - asked_s < self._expiration_s / 4:
                return asked_s

    def _tell(self, level: int, text: str) -> None:
        """Log one line per news, not one per attempt."""
        if text != self._trouble:
            self._trouble = text
            _log.log(level, "%s", text)


async def bounded(work: Awaitable[object]) -> None:
    """Wait for the store for a moment only: it may be gone, and the process has to end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await work
