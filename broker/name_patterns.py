"""Patterns of names, with the wildcards of AMQ: which names match, and which setting holds.

A name is words between dots; ``*`` stands for one word and ``#`` for any number, none included.

Why the most specific match wins: an administrator writes ``#`` for all and then an exception for
one; the order of the tables must not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

PLACES_MAX: Final = 2_000_000
"""Partly read patterns that ``overlaps`` looks at."""


class Setting(Protocol):
    """A setting that holds for the names that match its pattern."""

    @property
    def match(self) -> str:
        """The pattern."""
        ...


T = TypeVar("T", bound=Setting)


class TooManyOverlapsError(Exception):
    """The patterns overlap in more ways than can be looked at."""


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


class Matches(Generic[T]):
    """Finds which of several settings holds: the most specific match, and of equals the last."""

    def __init__(self, settings: Sequence[T]) -> None:
        self.settings: list[T] = sorted(settings, key=lambda entry: _specificity(entry.match))
        """The settings: of several that match a name the last one holds."""

    def find(self, queue: str) -> T | None:
        """Return the setting that holds for a name, None where none matches."""
        for entry in reversed(self.settings):
            if matches(entry.match, queue):
                return entry
        return None


def _specificity(match: str) -> tuple[int, int, int]:
    words = match.split(".")
    return (sum(word not in ("*", "#") for word in words), -words.count("#"), -words.count("*"))


Place = tuple[int, int]
"""A pattern, by its number, and how many of its parts have been read."""


def overlaps(patterns: Sequence[str]) -> set[frozenset[int]]:
    """Return every set of patterns, by their numbers, that are all those that some name matches.

    Reads all patterns at once, word by word, as an automaton whose states are the places that the
    words so far can have led to. Words that no pattern names act alike, so one stands for them all.
    Exact, whatever wildcards are in the patterns. Raises TooManyOverlapsError beyond PLACES_MAX
    places, whose number grows with the patterns, and faster only with those that have ``#`` before
    a word.
    """
    parts = [pattern.split(".") for pattern in patterns]
    start = _skipped(parts, ((number, 0) for number in range(len(parts))))
    overlapping: set[frozenset[int]] = set()
    known_states = {start}
    unread = deque(known_states)
    places = 0
    while unread:
        for state in _next_states(parts, unread.popleft()):
            places += len(state)
            if places > PLACES_MAX:
                raise TooManyOverlapsError
            overlapping.add(frozenset(number for number, read in state if read == len(parts[number])))
            if state not in known_states:
                known_states.add(state)
                unread.append(state)
    return overlapping


def _next_states(parts: Sequence[Sequence[str]], state: frozenset[Place]) -> Iterator[frozenset[Place]]:
    """Yield the states after one word more: one that no pattern names, and each that some does."""
    always: list[Place] = []
    named: dict[str, list[Place]] = {}
    for number, read in state:
        part = parts[number][read] if read < len(parts[number]) else None
        if part == "#":
            always.append((number, read))
        elif part == "*":
            always.append((number, read + 1))
        elif part is not None:
            named.setdefault(part, []).append((number, read + 1))
    yield _skipped(parts, always)
    for places in named.values():
        yield _skipped(parts, [*always, *places])


def _skipped(parts: Sequence[Sequence[str]], places: Iterable[Place]) -> frozenset[Place]:
    """Return the places with those behind each ``#``, which may stand for no word."""
    reached = set()
    for number, first in places:
        read = first
        reached.add((number, read))
        while read < len(parts[number]) and parts[number][read] == "#":
            read += 1
            reached.add((number, read))
    return frozenset(reached)
