"""The lease of an owner: is it certain, at this instant, that no other broker owns what we serve?

Our own clock and the store's last answer decide. An owner has a lock, or a row, of a store.
The store may give it to another broker once it has not heard of us for ``lock-expiration``, by the
*store's* clock, and does not tell the holder. A *proof* is an answer of the store that we still own
it. It proves that the store had heard of us when we *asked*, not when it answered. So the lease
counts from there, by our own monotonic clock, and no slow answer makes it longer.

state      since the last proof was asked for           the owner
held       less than half of ``lock-expiration``        serves
in doubt   half of it                                   answers and delivers nothing (role
                                                        "verifying"), and goes on asking
held       again less than half, by a new proof         goes on with what has waited
lost       ``ends`` of it; or the store says that it    cuts everybody off and ends; never holds it
           is another's                                 again
released   -                                            stops, or gives its place back: ``run`` is
                                                        cancelled, then the policy tells the store

Why doubt begins at half: others wait for the whole, by another clock. The rest is the margin for
clocks of different speed (up to twice) and for what is already on its way.

Why the clock is looked at, and no timer is trusted: a process that was stopped and goes on runs
whatever is ready first. A timer that should have held its gate is then just one of many, and a
client's frame may make a queue deliver before it. So whatever answers, delivers, or tells the role
asks ``certain`` first (`DurabilityGate.look`). The timers here only make doubt and end happen by
themselves when nothing asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Never

from broker.storage.gate import DurabilityGate

_log = logging.getLogger(__name__)

DOUBT: Final = 0.5
"""The part of the expiration after which no client is answered."""

ROUNDING_S: Final = 1e-6
"""The rest that rounding leaves of a time may be too small for any clock to pass."""


class LeaseLostError(Exception):
    """The lease is lost, or nothing proves that it is not: answer nobody, write nothing, end.

    ``expired`` is True if our own clock says so, False if the store says so.
    """

    def __init__(self, text: str, *, expired: bool = False) -> None:
        super().__init__(text)
        self.expired = expired


class Lease:
    """A lease, held from the moment for which it is proven.

    ``on_doubt`` is called when certainty ends, ``on_certain`` when it is back.

    Args:
        name: of what is owned, for messages.
        ask: has the store confirm it, and returns when it was asked, on the loop's clock; for as
            long as that takes. Raises LeaseLostError if the store says that it is not ours.
        proven_s: when the lock or row that gave it to us was asked for.
        period_s: how old a proof becomes before the next is asked for, at most a quarter of the
            expiration.
        expiration_s: how long the store keeps it for us after it last heard of us.
        ends: part of the expiration at which an owner that only doubts gives up. It is the whole
            if its process ends with it, since it has answered nobody from the half on. It is less
            if the process lives on and has clients to cut, which must be done before another can
            begin.
        kept_while_paused: whether something else may have kept it for a process that stood still,
            as its machine's kernel does with a lock. Then the store is asked once more before such
            a process gives up.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[], Awaitable[float]],
        *,
        proven_s: float,
        period_s: float,
        expiration_s: float,
        ends: float = 1.0,
        kept_while_paused: bool = True,
    ) -> None:
        self.on_doubt: Callable[[], None] = lambda: None
        self.on_certain: Callable[[], None] = lambda: None
        self._name = name
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._proven_s = proven_s
        self._period_s = period_s
        self._expiration_s = expiration_s
        self._ends = ends
        self._kept_while_paused = kept_while_paused
        self._in_doubt = False
        self._lost = False
        self._asked_s = proven_s
        self._deadline: asyncio.Timeout | None = None

    @property
    def age_s(self) -> float:
        """The time since the last proof was asked for."""
        return self._loop.time() - self._proven_s

    @property
    def due(self) -> bool:
        """True if it is time for the next proof."""
        return self.age_s > self._period_s - ROUNDING_S

    def guard(self, gate: DurabilityGate) -> None:
        """Let a gate be held whenever the lease is not certain; ``on_certain`` must release it."""
        gate.look = lambda: None if self.certain() else gate.hold()

    def certain(self) -> bool:
        """Return whether the clock says now that the lease is certain.

        Call this before anything is answered or claimed.
        """
        if not (self._in_doubt or self._lost) and self._stale():
            self._in_doubt = True
            _log.warning(
                "the store has not confirmed %s for %.1f s: this broker answers no client until it does",
                self._name,
                self.age_s,
            )
            self.on_doubt()
        return not (self._in_doubt or self._lost)

    def require(self) -> None:
        """Raise LeaseLostError unless the lease is certain."""
        if not self.certain():
            raise LeaseLostError(f"the store has not confirmed {self._name} for {self.age_s:.1f} s")

    def renew(self, asked_s: float) -> None:
        """Take a proof that was asked for then; one that is older than the last changes nothing."""
        if asked_s <= self._proven_s or self._lost:
            return
        self._proven_s = asked_s
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(self._end_s())
        if self._in_doubt and not self._stale():
            self._in_doubt = False
            _log.info("the store has confirmed %s again: this broker answers clients again", self._name)
            self.on_certain()

    async def run(self) -> Never:
        """Renew it again and again. Raises LeaseLostError when lost, or in doubt for too long."""
        while True:
            await asyncio.sleep(max(0.0, self._period_s - self.age_s))
            if not self.due:
                continue  # a batch of the journal, for example, has renewed it
            try:
                self.renew(await self._asked())
            except LeaseLostError:
                self._lost = True
                raise

    async def _asked(self) -> float:
        """Ask the store, and return when it was asked.

        The time for it ends with the lease. It ends later if the process stood still and the lease
        may have been kept for it: then it asks, and once more if it stood still meanwhile.
        """
        for _ in range(2):
            self._asked_s = self._loop.time()
            if self._asked_s >= self._end_s():
                break
            self._watching = self._loop.call_at(self._proven_s + DOUBT * self._expiration_s, self._look)
            try:
                async with asyncio.timeout_at(self._end_s()) as self._deadline:
                    return await self._ask()
            except TimeoutError:
                if self._loop.time() - self._end_s() < self._expiration_s / 4:
                    break
            finally:
                self._deadline = None
                self._watching.cancel()
        text = f"the store has not confirmed {self._name} for {self.age_s:.1f} s (lock-expiration)"
        raise LeaseLostError(text, expired=True)

    def _stale(self) -> bool:
        """Return whether the last proof is too old to answer clients."""
        return self.age_s > DOUBT * self._expiration_s - ROUNDING_S

    def _end_s(self) -> float:
        """Return when the question is given up, and with it the lease."""
        end_s = self._proven_s + self._ends * self._expiration_s
        return max(end_s, self._asked_s + self._expiration_s / 2) if self._kept_while_paused else end_s

    def _look(self) -> None:
        """Begin to doubt now; if a proof has come meanwhile, look again later."""
        if self.certain():
            self._watching = self._loop.call_later(self._period_s, self._look)
