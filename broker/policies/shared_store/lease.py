"""Is it certain, at this instant, that the live lock is ours?

Answered by our own clock and the store's last word.

The store keeps a lock for at least ``lock-expiration`` after it last heard of its holder's machine.
A confirmation proves that it heard of us when we *asked*; so until ``lock-expiration`` after that
nobody else can have the lock. Half of it is left as a margin for clocks that run at different
speeds and for what is already on its way: from then on nobody is answered. At its end, without a
confirmation, the broker gives up by itself, as IBM MQ's multi-instance queue manager does, whatever
the mount would still wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.policies.shared_store.store import HeldLock

_log = logging.getLogger(__name__)


class LockLostError(Exception):
    """The live lock is lost, or nobody can say that it is not.

    Answer nobody, write nothing, end.
    """


async def confirmed(lock: HeldLock, expiration_ms: int) -> float:
    """When a question was asked that the store has answered soon.

    A reign cannot begin with a lease that is half over.
    """
    loop = asyncio.get_running_loop()
    while True:
        asked_s = loop.time()
        await lock.verify()
        if loop.time() - asked_s < expiration_ms / 4000:
            return asked_s


class Lease:
    """From the moment the lock was granted.

    ``asked_s`` is when it was asked for, on the loop's clock.

    ``on_doubt`` is called when certainty ends, ``on_certain`` when it is back. ``run`` keeps asking
    until it raises.
    """

    def __init__(self, lock: HeldLock, *, asked_s: float, period_s: float, expiration_s: float) -> None:
        self.lock = lock
        self.on_doubt: Callable[[], None] = lambda: None
        self.on_certain: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._proven_s = asked_s
        self._period_s = min(period_s, expiration_s / 4)
        self._expiration_s = expiration_s
        self._in_doubt = False
        self._lost = False

    @property
    def age_s(self) -> float:
        """Since the last confirmation was asked for."""
        return self._loop.time() - self._proven_s

    def certain(self) -> bool:
        """Look at the clock now; to be asked before anything is answered or claimed."""
        if not self._lost and self.age_s < self._expiration_s / 2:
            return not self._in_doubt
        self._doubt()
        return False

    def require(self) -> None:
        """Raises LockLostError unless it is certain."""
        if not self.certain():
            raise LockLostError(f"the store has not confirmed the live lock for {self.age_s:.1f} s")

    async def run(self) -> None:
        """Have the lock confirmed again and again.

        Raises LockLostError when it is lost, or in doubt for too long.
        """
        while True:
            await asyncio.sleep(max(0.0, self._period_s - self.age_s))
            asked_s = self._loop.time()
            watch = self._loop.call_at(self._proven_s + self._expiration_s / 2, self.certain)
            try:
                await self._confirm()
            except OSError as error:
                self._lost = True
                self._doubt()
                raise LockLostError(f"the live lock is lost: {error.strerror or error}") from error
            finally:
                watch.cancel()
            self._proven_s = asked_s
            if self._in_doubt and self.age_s < self._expiration_s / 2:
                self._in_doubt = False
                _log.info("the store has confirmed the live lock again")
                self.on_certain()

    async def _confirm(self) -> None:
        """One question.

        The time for it ends with the lease; a process that itself did not run meanwhile asks once
        more.
        """
        for final in (False, True):
            deadline_s = max(self._proven_s + self._expiration_s, self._loop.time() + self._expiration_s / 2)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self.lock.verify()
            except TimeoutError:
                late_s = self._loop.time() - deadline_s
                if final or late_s < self._expiration_s / 4:
                    self._lost = True
                    self._doubt()
                    raise LockLostError(
                        f"the store has not confirmed the live lock for {self.age_s:.1f} s (lock-expiration)"
                    ) from None
            else:
                return

    def _doubt(self) -> None:
        if not self._in_doubt:
            self._in_doubt = True
            _log.warning(
                "the store has not confirmed the live lock for %.1f s: nobody is answered until it does",
                self.age_s,
            )
            self.on_doubt()
