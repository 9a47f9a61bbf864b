"""The rules about the order of messages within a group: reordered and reordered-realtime.

Why the *late* message is named and not the early one: of 1, 2, 3, 0 only 0 is out of place.

A message that was certainly sent, and sent once, is judged by its producer's sequence. A message of
unknown outcome may still be in the buffers of a connection that its client has given up, when the
producer's next message goes over another connection: no broker can know their order. But it was
stored by the time at which the process that took it was seen gone (``checkers.deaths``), and
messages that were sent after that come after it.

So a message of unknown outcome, and one that was sent more than once, is judged by the span in
which it may have been stored. The span begins with its first send that did not certainly fail. It
ends with its first certain send, or when the process that took it was seen gone. Two messages are
in a known order only if their spans do not overlap. A message whose sends all failed has no span.
A delivery to a second session may be of another copy: that was stored by the time at which no send
could store it any more.

A consumer with a selector undoes the order of some messages (``checkers.selective``).

A message with a delay or a priority has no order to keep, and is left out. So is a message that may
have expired by its first delivery. It may have been sent in its turn to a session whose connection
was slow, while the messages behind it went to the next session and were read first.

A message is late if one that came before it (by first delivery, in its group) should have come
after it. For ``reordered`` that is one of its producer with a higher sequence (and a later span),
for ``reordered-realtime`` any message with a later span. All are running maxima over one order, so
the rules are O(n log n).
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
    """The messages that have an order to keep, a row each.

    Since ``begun`` a message can be in its queue, from ``stored`` on it certainly is. ``certain``:
    its send is certain. ``several``: it was sent more than once. ``matched``: the selectors that
    match it. ``waits``: since when it may have waited for consumers. ``stored`` and ``delivered``
    are ``FOREVER`` if they are not known or never happened.
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
        """Return the rows of some messages; ``begun`` is their column, ``at`` their positions."""
        stored, delivered = lives.there[at], lives.delivered[at]
        return cls(
            lives.place[at], lives.message[at], begun[at], np.where(stored == NONE, FOREVER, stored),
            np.where(delivered == NONE, FOREVER, delivered), lives.producer[at], lives.sequence[at],
            lives.ok[at] != NONE, lives.several[at], lives.matched[at], lives.waits[at],
        )  # fmt: skip

    @classmethod
    def ordinary(cls, some: Ordinary, places: Flags) -> Turns:
        """Return the rows of the ordinary messages of some places."""
        every = np.ones(len(some.place), dtype=bool)
        whole = cls(
            some.place, some.message, some.sent, some.ok, some.delivered, some.producer, some.sequence, every,
            ~every, np.zeros(len(every), dtype=np.int64), some.sent,
        )  # fmt: skip
        return whole if places.all() else whole.at(np.flatnonzero(places[some.place]))

    def at(self, some: Numbers) -> Turns:
        """Return the rows at some positions."""
        return Turns(*(getattr(self, name)[some] for name in Turns.__slots__))

    def overtaken(self, compared: Sequence[Comparison]) -> Numbers:
        """Return the messages that were overtaken by one sent after they were stored."""
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
    """The early rows of a comparison, and the position up to which they count for each late row."""

    counts: Flags
    at: Numbers

    @classmethod
    def of(cls, one: Comparison, order: Numbers, segment: Numbers, read: Numbers) -> _Earlier:
        """Return the early rows of a comparison whose rows are sorted by ``order``.

        ``read`` has the rows of their deliveries, in that order.
        """
        before = np.arange(len(order)) - 1
        if one.at is None:
            return cls(np.ones(len(order), dtype=bool), before)
        if one.until is not None:
            until = (segment << _BITS) | one.until[order]
            before = np.minimum(before, np.searchsorted((segment << _BITS) | read, until, "right") - 1)
        return cls(one.early[order], before)

    def highest(self, segment: Numbers, values: Numbers, of: Flags | bool = True) -> tuple[Numbers, Numbers]:
        """Return the highest value among the early rows of each row, and the row that has it."""
        some = np.where(self.counts & of, values, NONE)
        return highest_and_whose(segment, some, np.arange(len(values)), self.at)


def turns(lives: Lives, ordinary: Ordinary, grouped: Flags) -> Turns:
    """Return the delivered messages of groups; ``grouped`` says whether each place is a group."""
    at = np.flatnonzero(
        (lives.since != NONE)
        & (lives.delivered != NONE)
        & grouped[lives.place]
        & lives.in_turn
        & lives.timely
    )
    return joined([Turns.of(lives, at, lives.since), Turns.ordinary(ordinary, grouped)])


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans in which messages may have been stored, from ``begun`` to ``stored``.

    ``several``: which messages were sent more than once.
    """

    several: Flags
    begun: Numbers
    stored: Numbers

    def at(self, some: Numbers) -> Spans:
        """Return the spans at some positions."""
        return Spans(self.several[some], self.begun[some], self.stored[some])


@dataclass(frozen=True, slots=True)
class Line:
    """Messages in lines: those with the same ``keys`` must come in the order of their sequence.

    ``spans`` is None if every message was sent once, and no message of unknown outcome is known to
    have been stored.
    """

    keys: tuple[npt.NDArray[Any], ...]
    read: Numbers
    sequence: Numbers
    certain: Flags
    spans: Spans | None

    def misplaced(self, compared: Sequence[Comparison]) -> Numbers:
        """Return the messages that came after one that should have come after them."""
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
    """Return the rows that came after one that should have come after them.

    The sequences must say so, and the spans, where one of both is judged by its span.
    """
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
        for row in at[~sure].tolist():  # the orders of sends and of sequences contradict each other
            some = np.flatnonzero(earlier.counts[: earlier.at[row] + 1])
            some = some[segment[some] == segment[row]]
            behind = (spans.begun[some] > spans.stored[row]) & (sequence[some] > sequence[row])
            late[row] = bool(behind.any())
    return late


def find(some: Turns, compared: Sequence[Comparison], overtaken: Numbers, tally: InstanceTally) -> None:
    """Add the instances of ``reordered`` and ``reordered-realtime`` to the tally.

    ``overtaken`` are the positions of messages that were overtaken in real time.
    """
    tally.add("reordered-realtime", some.place[overtaken], some.delivered[overtaken], some.message[overtaken])
    spanned = some.several.any() or ((some.stored != FOREVER) & ~some.certain).any()
    spans = Spans(some.several, some.begun, some.stored) if spanned else None
    line = Line((some.place, some.producer), some.delivered, some.sequence, some.certain, spans)
    late = line.misplaced(compared)
    tally.add("reordered", some.place[late], some.delivered[late], some.message[late])
