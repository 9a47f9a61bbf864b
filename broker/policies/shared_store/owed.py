"""Locks that are to be given back, until the store has taken them.

Why remembered: on a soft mount a request may fail though nothing else does. A lock whose release
failed is still held, by a process that has forgotten it: nobody else gets it for as long as that
process runs, and neither does that process itself.
"""

from __future__ import annotations

from broker.policies.shared_store.store import HeldLock


class Owed:
    """What one candidate owes its store."""

    def __init__(self) -> None:
        self._locks: list[HeldLock] = []

    def add(self, *locks: HeldLock | None) -> None:
        """To be given back the next time, also where nobody knows whether we hold it still."""
        self._locks += [lock for lock in locks if lock is not None]

    async def give_back(self, *locks: HeldLock | None) -> None:
        """These and all that are still owed. Raises OSError; what is left then is owed on."""
        self.add(*locks)
        while self._locks:
            await self._locks[0].release()
            del self._locks[0]
