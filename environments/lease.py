"""Leases of faults, so that a fault never outlives the harness that asked for it.

A killed harness cannot heal what it broke. So no fault is in force without a limit: whoever
executes a fault *on the node* (an agent) keeps it in a `LeaseTable`, and undoes it when the lease
has run out without a renewal. The table has no timers and no I/O of its own. Its owner asks
`next_expiry` when to wake up, and `expire` what to undo.

This module imports only the standard library: agents run where nothing else may be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

DEFAULT_LEASE_S: Final = 5.0
"""The default length of a lease.

It is long enough to survive a harness that is busy for a moment, and short against every fault that
is worth injecting.
"""

REMEMBERED: Final = 1024
"""The number of ended leases that can still be told apart from leases that never existed."""

F = TypeVar("F")


class LeaseExpiredError(Exception):
    """The lease ran out and its fault was healed already.

    The fault in the schedule and the fault in force differ.

    Do not inject the fault again silently; the history must say that it ended early.
    """


class UnknownLeaseError(ValueError):
    """A lease of this name never existed, or is long forgotten."""

    def __init__(self, lease: str) -> None:
        super().__init__(f"no lease {lease!r}")


@dataclass(slots=True)
class _Held(Generic[F]):
    fault: F
    lease_s: float
    expires: float


class LeaseTable(Generic[F]):
    """The faults in force, each until its lease ends.

    ``clock`` returns seconds and never goes back (``time.monotonic``; a test's own). Leases are
    named ``<prefix>-<n>``.
    """

    __slots__ = ("_clock", "_ended", "_held", "_next", "_prefix")

    def __init__(self, clock: Callable[[], float], *, prefix: str = "lease") -> None:
        self._clock = clock
        self._prefix = prefix
        self._next = 1
        self._held: dict[str, _Held[F]] = {}
        self._ended: dict[str, None] = {}

    def inject(self, fault: F, lease_s: float = DEFAULT_LEASE_S) -> str:
        """Add a fault to the table for ``lease_s`` seconds, and return the name of its lease.

        The caller executes the fault.
        """
        if not lease_s > 0:
            raise ValueError(f"a lease must last longer than 0 s, not {lease_s!r}")
        lease = f"{self._prefix}-{self._next}"
        self._next += 1
        self._held[lease] = _Held(fault, lease_s, self._clock() + lease_s)
        return lease

    def renew(self, lease: str) -> None:
        """Let the lease last for its full length from now on.

        Raises LeaseExpiredError if it has ended, UnknownLeaseError if a lease of this name never
        existed.
        """
        held = self._held.get(lease)
        if held is None:
            if lease in self._ended:
                raise LeaseExpiredError(f"{lease} has ended: it was healed, or not renewed in time")
            raise UnknownLeaseError(lease)
        now = self._clock()
        if now >= held.expires:
            # The table's owner has not called `expire` yet. A renewal now would hide that the lease
            # was not renewed in time.
            raise LeaseExpiredError(f"{lease} ran out {now - held.expires:.1f} s ago without being renewed")
        held.expires = now + held.lease_s

    def heal(self, lease: str) -> F | None:
        """End a lease and return its fault, for the caller to undo; None if it had ended before.

        Raises UnknownLeaseError if the lease never existed.
        """
        held = self._held.pop(lease, None)
        if held is None:
            if lease in self._ended:
                return None
            raise UnknownLeaseError(lease)
        self._remember(lease)
        return held.fault

    def heal_all(self) -> list[F]:
        """End every lease and return the faults, newest first, for the caller to undo."""
        faults = [held.fault for held in reversed(self._held.values())]
        for lease in self._held:
            self._remember(lease)
        self._held.clear()
        return faults

    def expire(self) -> list[tuple[str, F]]:
        """End the leases that have run out; return names and faults for the caller to undo."""
        now = self._clock()
        over = [(lease, held.fault) for lease, held in self._held.items() if now >= held.expires]
        for lease, _ in over:
            del self._held[lease]
            self._remember(lease)
        return over

    def next_expiry(self) -> float | None:
        """Return the clock's reading when the next lease runs out; None if there is no lease."""
        return min((held.expires for held in self._held.values()), default=None)

    def in_force(self) -> list[F]:
        """Return the faults in force, oldest first."""
        return [held.fault for held in self._held.values()]

    def _remember(self, lease: str) -> None:
        self._ended[lease] = None
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
