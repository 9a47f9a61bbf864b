"""Large bodies as the engine sees them: each message holds its file, and lets go of it when its deletion is durable.

Why not sooner: a file that is gone while a crash can still bring its record back would be a lost message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.core.message import Message
from broker.core.transactions import Transaction
from broker.storage.blobs import Blob, Blobs
from broker.storage.entries import Entries
from broker.storage.gate import DurabilityGate


class LargeBodies:
    """The engine's share in ``Blobs``. ``store`` is None where the entries are kept without files: on the rows of a database."""

    def __init__(self, entries: Entries, gate: DurabilityGate) -> None:
        self.store = entries.large
        self._entries = entries
        self._gate = gate
        self._ending: list[Blob] = []

    def __contains__(self, body: Blob) -> bool:
        return self.store is not None and body in self.store

    def adopt(self, bodies: Iterable[Blob]) -> None:
        """What recovered messages name."""
        for body in bodies:
            self._files.hold(body)

    def copied(self, message: Message) -> None:
        """One message more has that body."""
        if message.large is not None:
            self._files.hold(message.large)

    def settled(self, messages: Iterable[Message]) -> None:
        """These messages end by an entry that is appended in this turn of the loop."""
        for message in messages:
            if message.large is not None:
                if not self._ending:
                    asyncio.get_running_loop().call_soon(self._end_when_durable)
                self._ending.append(message.large)

    def undone(self, transaction: Transaction) -> None:
        """What it would have sent never was."""
        for _, message in transaction.sends:
            if message.large is not None:
                self._files.release(message.large)

    def _end_when_durable(self) -> None:
        ending, self._ending = self._ending, []
        self._gate.when_durable(self._entries.last_sequence, lambda: self._release(ending))

    def _release(self, bodies: list[Blob]) -> None:
        for body in bodies:
            self._files.release(body)

    @property
    def _files(self) -> Blobs:
        assert self.store is not None, "a large body where none can be kept"
        return self.store
