"""Whether messages came in order: reordered and reordered-realtime.

Why the *late* message is named and not the early one: of 1, 2, 3, 0 only 0 is out of place.

A message that was sent once, for certain, is judged by its producer's sequence. One of unknown
outcome may still be on its way, in the buffers of a connection that its client has given up, when
the producer's next message goes over another: no broker can know their order. But it was stored by
the time at which the process that took it was seen to be gone (``checkers.deaths``), and what was
sent after that comes after it. So such a message, and one that was sent more than once, is judged
by the span in which it may have been stored: from its first send that did not certainly fail to its
first certain one, or to the time at which it was stored if at all. Two messages are in a known
order only if their spans do not overlap. A message of which every send failed has no span. What
comes to a second session may be another copy: it was stored by the time at which no send could
store it any more.

A consumer with a selector undoes the order of some messages (``checkers.selective``).

What asked for a delay or a priority has no turn to keep, and is left out. So is what may have
expired by its first delivery: sent in its turn to a session whose connection was slow, it did not
go to the next session with what came behind it, and was read last.

A message is late if some message before it (by first delivery, in its group) should have come after
it: for ``reordered`` one of its producer with a higher sequence (and a later span), for
``reordered-realtime`` any with a later span. All are running maxima over one order, so O(n log n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checkers.lifecycle import Lives
from checkers.ordinary import Ordinary
from checkers.rows import FOREVER, NONE, Flags, Numbers, joined, ordered
from checkers.running import exceeded, falls, highest_and_whose, segments
from checkers.selective import Comparison
from checkers.tally import InstanceTally

_BITS: Final = 33


@dataclass(frozen=True, slots=True)
class Turns:
    """One row a message that has a turn to keep; ``FOREVER`` for what nobody knows or never was.

    Since ``begun`` it can be in its queue, from ``stored`` on it certainly is. ``certain``: its
    send is. ``several``: it was sent more than once. ``matched``: by which selectors it is matched,
    ``waits``: since when it may have waited for consumers.
    """

    place: npt.NDArray[np.int32]
    message: Numbers
    begun: Numbers
    stored: Numbers
    delivered: Numbers
    producer: Numbers
    sequence: Numbers
    certain: Flags
    several: Flags
    matched: Numbers
    waits: Numbers

    @classmethod
    def of(cls, lives: Lives, at: Numbers, begun: Numbers) -> Turns:
        """Of some lives."""
        stored, delivered = lives.there[at], lives.delivered[at]
        return cls(
            lives.place[at], lives.message[at], begun[at], np.where(stored == NONE, FOREVER, stored),
            np.where(delivered == NONE, FOREVER, delivered), lives.producer[at], lives.sequence[at],
            lives.ok[at] != NONE, lives.several[at], lives.matched[at], lives.waits[at],
        )  # fmt: skip

    @classmethod
    def ordinary(cls, some: Ordinary, places: Flags) -> Turns:
        """Of ordinary messages of some places."""
        every = np.ones(len(some.place), dtype=bool)
        whole = cls(
            some.place, some.message, some.sent, some.ok, some.delivered, some.producer, some.sequence, every,
            ~every, np.zeros(len(every), dtype=np.int64), some.sent,
        )  # fmt: skip
        return whole if places.all() else whole.at(np.flatnonzero(places[some.place]))

    def at(self, some: Numbers) -> Turns:
        """Some of them."""
        return Turns(*(getattr(self, name)[some] for name in Turns.__slots__))

    def overtaken(self, compared: Sequence[Comparison]) -> Numbers:
        """Those before which one came that was to be sent only when they had been stored."""
        found = np.zeros(len(self.place), dtype=bool)
        for one in compared:
            some = self if one.at is None else self.at(one.at)
            order = ordered(some.place, some.delivered)
            place, stored, begun = some.place[order], some.stored[order], some.begun[order]
            if one.at is None:
                return order[exceeded(stored, begun, place)]
            segment = segments(place)
            latest = _Earlier.of(one, order, segment, some.delivered[order])
            found[one.at[order]] |= one.late[order] & (latest.highest(segment, begun)[0] > stored)
        return np.flatnonzero(found)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Which rows count as early ones, and up to which row those of each late one lie."""

    counts: Flags
    at: Numbers

    @classmethod
    def of(cls, one: Comparison, order: Numbers, segment: Numbers, read: Numbers) -> _Earlier:
        """Of a comparison, whose rows are brought into order."""
        before = np.arange(len(order)) - 1
        if one.at is None:
            return cls(np.ones(len(order), dtype=bool), before)
        if one.until is not None:
            until = (segment << _BITS) | one.until[order]
            before = np.minimum(before, np.searchsorted((segment << _BITS) | read, until, "right") - 1)
        return cls(one.early[order], before)

    def highest(self, segment: Numbers, values: Numbers, of: Flags | bool = True) -> tuple[Numbers, Numbers]:
        """Return the highest value of the early rows of each row, and the row that has it."""
        some = np.where(self.counts & of, values, NONE)
        return highest_and_whose(segment, some, np.arange(len(values)), self.at)


def turns(lives: Lives, ordinary: Ordinary, grouped: Flags) -> Turns:
    """Of delivered messages of groups; ``grouped`` says of each place whether it is one."""
    at = np.flatnonzero(
        (lives.since != NONE)
        & (lives.delivered != NONE)
        & (lives.message != NONE)
        & grouped[lives.place]
        & lives.in_turn
        & lives.timely
    )
    return joined([Turns.of(lives, at, lives.since), Turns.ordinary(ordinary, grouped)])


@dataclass(frozen=True, slots=True)
class Spans:
    """In which spans messages may have been stored; ``several``: which were sent more than once."""

    several: Flags
    begun: Numbers
    stored: Numbers

    def at(self, some: Numbers) -> Spans:
        """Some of them."""
        return Spans(self.several[some], self.begun[some], self.stored[some])


@dataclass(frozen=True, slots=True)
class Line:
    """Messages of which those with the same ``keys`` were to come in the order of their sequence.

    ``spans`` are None where every message was sent once, and none of unknown outcome is known to
    have been stored.
    """

    keys: tuple[npt.NDArray[Any], ...]
    read: Numbers
    sequence: Numbers
    certain: Flags
    spans: Spans | None

    def misplaced(self, compared: Sequence[Comparison]) -> Numbers:
        """Return the messages before which one came that belongs behind them."""
        found = np.zeros(len(self.read), dtype=bool)
        for one in compared:
            at = slice(None) if one.at is None else one.at
            keys, read = [key[at] for key in self.keys], self.read[at]
            order = ordered(*keys, read)
            keys, sequence = [key[order] for key in keys], self.sequence[at][order]
            certain = self.certain[at][order]
            if one.at is None and self.spans is None:
                return order[certain & falls(sequence, *keys)]
            segment = segments(*keys)
            earlier = _Earlier.of(one, order, segment, read[order])
            spans = None if self.spans is None else self.spans.at(np.arange(len(found))[at][order])
            late = _late(segment, sequence, certain, spans, earlier)
            if one.at is not None:
                late &= one.late[order]
            found[np.arange(len(found))[at][order[late]]] = True
        return np.flatnonzero(found)


def _late(
    segment: Numbers, sequence: Numbers, certain: Flags, spans: Spans | None, earlier: _Earlier
) -> Flags:
    """Return the rows that some earlier one belongs behind: by the sequence, and by their spans."""
    if spans is None:
        highest, _ = earlier.highest(segment, sequence)
        result: Flags = certain & (sequence != NONE) & (highest > sequence)
        return result
    once = ~spans.several
    highest, _ = earlier.highest(segment, sequence, once)
    late: Flags = once & certain & (sequence != NONE) & (highest > sequence)
    known = sequence != NONE
    for those, among in ((~(once & certain), known), (once & certain & ~late, known & spans.several)):
        begun, latest = earlier.highest(segment, spans.begun, among)
        highest, farthest = earlier.highest(segment, sequence, among)
        at = np.flatnonzero(those & known & (begun > spans.stored) & (highest > sequence))
        sure = (sequence[latest[at]] > sequence[at]) | (spans.begun[farthest[at]] > spans.stored[at])
        late[at[sure]] = True
        for row in at[~sure].tolist():  # the order of sends and that of sequences contradict each other
            some = np.flatnonzero(among[: earlier.at[row] + 1] & earlier.counts[: earlier.at[row] + 1])
            some = some[segment[some] == segment[row]]
            behind = (spans.begun[some] > spans.stored[row]) & (sequence[some] > sequence[row])
            late[row] = bool(behind.any())
    return late


def find(some: Turns, compared: Sequence[Comparison], overtaken: Numbers, tally: InstanceTally) -> None:
    """Of groups; ungrouped messages promise no order."""
    tally.add("reordered-realtime", some.place[overtaken], some.delivered[overtaken], some.message[overtaken])
    spanned = some.several.any() or ((some.stored != FOREVER) & ~some.certain).any()
    spans = Spans(some.several, some.begun, some.stored) if spanned else None
    line = Line((some.place, some.producer), some.delivered, some.sequence, some.certain, spans)
    late = line.misplaced(compared)
    tally.add("reordered", some.place[late], some.delivered[late], some.message[late])
