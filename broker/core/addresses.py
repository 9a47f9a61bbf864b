"""Which settings hold for which queue: matches with the wildcards of AMQ.

Why the most specific match wins: an administrator writes ``#`` for all and then an exception for
one; the order of the tables must not matter (AMQ wildcard syntax: words between dots, ``*`` for one
word, ``#`` for any number of words, none included).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from broker.sections import AddressSettings, SecuritySettings

__all__ = ["DEFAULTS", "INTERNAL_PREFIX", "AddressBook", "AddressSettings", "Matches", "matches"]

DEFAULTS: Final = AddressSettings()

INTERNAL_PREFIX: Final = "$.artemis.internal."
"""Queues of the broker itself; clients may neither send to nor consume from them."""


def matches(pattern: str, name: str) -> bool:
    """Does a queue's name match? ``a.#``: ``a``, ``a.b`` and ``a.b.c``; ``a.*``: only ``a.b``."""
    return _match(pattern.split("."), name.split("."))


def _match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    # One row of the usual table: reachable[i] says that the pattern so far can have consumed i
    # words.
    reachable = [True] + [False] * len(words)
    for part in pattern:
        if part == "#":
            first = reachable.index(True) if True in reachable else len(reachable)
            reachable = [i >= first for i in range(len(reachable))]
        else:
            reachable = [False] + [
                reached and part in ("*", word) for reached, word in zip(reachable, words, strict=False)
            ]
    return reachable[-1]


T = TypeVar("T", AddressSettings, SecuritySettings)


class Matches(Generic[T]):
    """Finds which of several settings holds: the most specific match, and of equals the last."""

    def __init__(self, settings: Sequence[T]) -> None:
        self._settings: list[T] = sorted(settings, key=lambda entry: _specificity(entry.match))

    def find(self, queue: str) -> T | None:
        """None where none matches."""
        for entry in reversed(self._settings):
            if matches(entry.match, queue):
                return entry
        return None


class AddressBook:
    """Finds the settings of a queue."""

    def __init__(self, settings: Sequence[AddressSettings] = ()) -> None:
        self._settings = Matches(settings)
        self._dead_letters = {
            DEFAULTS.dead_letter_address,
            *(entry.dead_letter_address for entry in settings),
        } - {""}
        self._expiry = {DEFAULTS.expiry_address, *(entry.expiry_address for entry in settings)} - {""}

    def settings(self, queue: str) -> AddressSettings:
        """What holds for the queue of that name."""
        return self._settings.find(queue) or DEFAULTS

    def is_dead_letter(self, queue: str) -> bool:
        """Is it a queue to which dead letters go?"""
        return queue in self._dead_letters

    def is_expiry(self, queue: str) -> bool:
        """Is it a queue to which goes what has expired?"""
        return queue in self._expiry


def _specificity(match: str) -> tuple[int, int, int]:
    words = match.split(".")
    return (sum(word not in ("*", "#") for word in words), -words.count("#"), -words.count("*"))
