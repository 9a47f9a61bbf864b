"""All open transactions of a broker: how much they hold together, for how long, and who holds it.

Why a book of its own: what a transaction would send counts against ``global-max-size`` until it
ends, so clients that begin and never end would stop every producer for ever. Hence three bounds:
their number, their share of the memory, and their age (``transaction-timeout``, counted from BEGIN
as in Artemis). Whatever bound is met, the log says who holds what.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final, NamedTuple, Protocol

from broker.core.memory import Memory
from broker.core.transactions import Transaction

LARGEST_TOLD: Final = 5
TOLD_EVERY_S: Final = 1.0
"""Who holds what is told no more often.

Clients that are refused may come again at once, and looking for the largest takes its time.
"""
UNDONE_TOLD: Final = 20
"""Of those that time out together, so many have a line each."""

_log = logging.getLogger(__name__)


class TransactionBounds(NamedTuple):
    """The bounds of open transactions.

    How old one may become, how often that is looked at, how many may be open, and what they may
    hold together.
    """

    timeout_s: float = 300.0
    scan_period_s: float = 1.0
    number: int = 10_000
    size: int = 128 * 1024 * 1024


class TransactionOwner(Protocol):
    """Who began a transaction."""

    def __str__(self) -> str:
        """Session, user and address, for the log."""
        ...

    def timed_out(self, name: str, transaction: Transaction) -> None:
        """It has become too old: undo it."""
        ...


class _Holding(NamedTuple):
    owner: TransactionOwner
    name: str
    begun: float


class OpenTransactions:
    """Reserves the bytes of each from ``begin`` to ``end``; until ``close`` it may time out."""

    def __init__(self, memory: Memory, bounds: TransactionBounds) -> None:
        self.bounds = bounds
        self.size = 0
        """Bytes that all of them hold."""
        self._memory = memory
        self._open: dict[Transaction, _Holding] = {}
        self._closed: dict[Transaction, None] = {}  # a commit that waits for its turn
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = -math.inf

    def __len__(self) -> int:
        return len(self._open) + len(self._closed)

    def objection(self, size: int, *, begins: bool = False) -> str:
        """Why no transaction may hold ``size`` bytes more, "" if it may.

        Whoever asks in vain is refused, so the log says who holds what.
        """
        bounds = self.bounds
        if begins and len(self) >= bounds.number:
            text = f"{bounds.number} transactions are open (broker.max-transactions)"
        elif self.size + size > bounds.size:
            text = (
                f"open transactions of all clients hold {self.size} bytes, and may hold "
                f"{bounds.size} (broker.max-transactions-percent)"
            )
        else:
            return ""
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            _log.warning("a client was refused: %s; the largest: %s", text, self._largest())
        return f"{text}: try again later"

    def begin(self, owner: TransactionOwner, name: str, transaction: Transaction) -> None:
        """It is open from now on."""
        self._open[transaction] = _Holding(owner, name, asyncio.get_running_loop().time())
        self._reserve(transaction.size)
        self._arm()

    def grown(self, size: int) -> None:
        """One of them holds so many bytes more."""
        self._reserve(size)

    def close(self, transaction: Transaction) -> None:
        """Its client has ended it; what it holds is counted until ``end``."""
        del self._open[transaction]
        self._closed[transaction] = None

    def end(self, transaction: Transaction) -> None:
        """It is committed or undone."""
        self._open.pop(transaction, None)
        self._closed.pop(transaction, None)
        self._reserve(-transaction.size)

    def stop(self) -> None:
        """Nothing times out any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _reserve(self, size: int) -> None:
        self.size += size
        self._memory.reserve(size)

    def _arm(self) -> None:
        if self._timer is None and self._open:
            loop = asyncio.get_running_loop()
            due = next(iter(self._open.values())).begun + self.bounds.timeout_s
            self._timer = loop.call_at(max(due, loop.time() + self.bounds.scan_period_s), self._scan)

    def _scan(self) -> None:
        self._timer = None
        too_old = asyncio.get_running_loop().time() - self.bounds.timeout_s
        undone = 0
        for transaction, holding in list(self._open.items()):
            if holding.begun > too_old:
                break  # they stand in the order in which they were begun
            undone += 1
            if undone <= UNDONE_TOLD:
                _log.warning(
                    "rolled back after %g s (broker.transaction-timeout): %s",
                    self.bounds.timeout_s,
                    self._told(transaction),
                )
            holding.owner.timed_out(holding.name, transaction)
        if undone > UNDONE_TOLD:
            _log.warning("rolled back at the same time: %d more transactions", undone - UNDONE_TOLD)
        self._arm()

    def _largest(self) -> str:
        largest = sorted(self._open, key=lambda one: one.size, reverse=True)[:LARGEST_TOLD]
        return "; ".join(map(self._told, largest))

    def _told(self, transaction: Transaction) -> str:
        owner, name, begun = self._open[transaction]
        age_s = asyncio.get_running_loop().time() - begun
        return (
            f"transaction {name[:64]!r} of {owner} began {age_s:.1f} s ago and holds {transaction.size} "
            f"bytes, {len(transaction.sends)} sends and"
            f" {len(transaction.acknowledged) + len(transaction.refused)} acknowledged or refused messages"
        )
