"""Address-settings: what holds for each queue, and which queues get dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.name_patterns import Matches
from broker.sections import AddressSettings

__all__ = ["DEFAULTS", "INTERNAL_PREFIX", "AddressBook", "AddressSettings", "is_store_and_forward"]

DEFAULTS: Final = AddressSettings()

INTERNAL_PREFIX: Final = "$.artemis.internal."
"""Queues of the broker itself; clients may neither send to nor consume from them."""


def is_store_and_forward(queue: str) -> bool:
    """Return whether that queue has what waits for another broker."""
    return queue.startswith(INTERNAL_PREFIX)


class AddressBook:
    """Finds the settings of a queue."""

    def __init__(self, settings: Sequence[AddressSettings] = ()) -> None:
        self._configured = settings
        self._settings = Matches(settings)
        self._given: dict[str, AddressSettings] = {}
        """The settings of queues that differ from the configuration."""
        self._dead_letters = {
            DEFAULTS.dead_letter_address,
            *(entry.dead_letter_address for entry in settings),
        } - {""}
        self.has_limits = any(max(entry.max_messages, entry.max_producers) >= 0 for entry in settings)
        """True if any of them limits messages or producers."""
        self._expiry = {DEFAULTS.expiry_address, *(entry.expiry_address for entry in settings)} - {""}

    def settings(self, queue: str) -> AddressSettings:
        """What holds for the queue of that name."""
        changed = self._given.get(queue) if self._given else None
        return changed or self._settings.find(queue) or DEFAULTS

    def copy(self) -> AddressBook:
        """Return a book with the settings of the configuration."""
        return AddressBook(self._configured)

    def give(self, queue: str, settings: AddressSettings) -> None:
        """Let other settings hold for the queue of that name."""
        self._given[queue] = settings

    def take_back(self, queue: str) -> None:
        """Let the settings of the configuration hold for the queue of that name again."""
        self._given.pop(queue, None)

    def is_dead_letter(self, queue: str) -> bool:
        """Is it a queue to which dead letters go?"""
        return queue in self._dead_letters

    def is_expiry(self, queue: str) -> bool:
        """Is it a queue to which goes what has expired?"""
        return queue in self._expiry
