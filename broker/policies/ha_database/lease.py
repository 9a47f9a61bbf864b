"""The gate of a broker whose right to answer is a lease: it is held by the clock itself.

Why by the clock and not by a timer: a process that was stopped and goes on runs whatever is ready
first. A timer that should have closed the gate is then just one of many, and behind it a client's
frame may already have made a queue deliver. So whoever asks whether the gate is held, asks the
clock.

The lease counts from when a proof that was confirmed was *sent*, and the right to answer ends after
half of it: others may take over after the whole, by the database's clock, so neither a slow answer
nor clocks of different speed (up to twice) can make two brokers answer for one store.
"""

from __future__ import annotations

import asyncio

from broker.storage.gate import DurabilityGate


class LeaseGate(DurabilityGate):
    """A ``DurabilityGate`` that is also held while the lease has not been renewed for half of
    ``expiration_s``.
    """

    __slots__ = ("_loop", "expiration_s", "renewed")

    def __init__(self, expiration_s: float, renewed: float) -> None:
        super().__init__(0)
        self._loop = asyncio.get_running_loop()
        self.expiration_s = expiration_s
        self.renewed = renewed
        """Loop time at which the latest proof that was confirmed had been sent."""

    @property
    def lapsed(self) -> bool:
        """Must nobody be answered now?"""
        return self._loop.time() >= self.renewed + self.expiration_s / 2

    @property
    def held(self) -> bool:
        """Held by its owner or by the clock."""
        return super().held or self.lapsed

    def renew(self, sent: float) -> None:
        """A proof that was sent then is confirmed; what waited for it goes on."""
        if sent > self.renewed:
            self.renewed = sent
            self._drain()

    def _drain(self) -> None:
        if not self.lapsed:
            super()._drain()
