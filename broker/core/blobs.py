"""Blobs as the engine sees them.

Each message or page holds its own, and lets go of it when its deletion is durable.

Why not sooner: a blob that is gone while a crash can still bring its record back would be a lost
message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from broker.core.message import Message
from broker.core.transactions import Transaction
from broker.storage.blobs import Blob, Blobs
from broker.storage.entries import EntryStore
from broker.storage.gate import DurabilityGate


class HeldBlobs:
    """The engine's share in ``Blobs``. ``store`` is None where none can be kept."""

    def __init__(self, store: Blobs | None, entries: EntryStore, gate: DurabilityGate) -> None:
        self.store = store
        self._entries = entries
        self._gate = gate
        self._ending: list[Blob] = []

    def __contains__(self, blob: Blob) -> bool:
        return self.store is not None and blob in self.store

    def adopt(self, blobs: Iterable[Blob]) -> None:
        """Something more names these: recovered records, or whoever reads them."""
        for blob in blobs:
            self._blobs.hold(blob)

    def let_go(self, blobs: Iterable[Blob]) -> None:
        """The opposite of ``adopt``."""
        for blob in blobs:
            self._blobs.release(blob)

    def end(self, blobs: Iterable[Blob]) -> None:
        """What named these ends by an entry that is appended in this turn of the loop."""
        for blob in blobs:
            if not self._ending:
                asyncio.get_running_loop().call_soon(self._end_when_durable)
            self._ending.append(blob)

    def _end_when_durable(self) -> None:
        ending, self._ending = self._ending, []
        self._gate.when_durable(self._entries.last_sequence, lambda: self.let_go(ending))

    @property
    def _blobs(self) -> Blobs:
        assert self.store is not None, "a blob where none can be kept"
        return self.store


RECENT_MAX: Final = 8 * 1024 * 1024
"""Bytes of bodies in files that are remembered all the same."""


class LargeBodies(HeldBlobs):
    """The bodies of large messages, and those that the copies of a message share."""

    def __init__(self, store: Blobs | None, entries: EntryStore, gate: DurabilityGate) -> None:
        super().__init__(store, entries, gate)
        self._recent: dict[Blob, bytes] = {}
        self._recent_size = 0

    def remember(self, blob: Blob, body: bytes) -> None:
        """Keep a shared body for subscribers who get it now, without a look into its file."""
        self._recent[blob] = body
        self._recent_size += len(body)
        while self._recent_size > RECENT_MAX:
            self._recent_size -= len(self._recent.pop(next(iter(self._recent))))

    def recent(self, blob: Blob) -> bytes | None:
        """Return a body that is remembered, None for one that has to be read."""
        return self._recent.get(blob)

    def copied(self, message: Message) -> None:
        """One message more has that body."""
        if message.large is not None:
            self._blobs.hold(message.large)

    def settled(self, messages: Iterable[Message]) -> None:
        """These messages end by an entry that is appended in this turn of the loop."""
        self.end([message.large for message in messages if message.large is not None])

    def undone(self, transaction: Transaction) -> None:
        """What it would have sent never was."""
        for _, message in transaction.sends:
            if message.large is not None:
                self._blobs.release(message.large)
