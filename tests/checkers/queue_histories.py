"""All histories of a FIFO queue of a few operations, and which of them have a linearization.

An operation is an interval, of which only the order matters: what returned before what was invoked.
So the orders of intervals are counted out (``orders``), then what each operation may have been
(``kinds``), then every run of a queue that agrees with an order (``legal``): by its definition a
history has a linearization if it is among those.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from checkers.linearizability import Certificate, Dequeues, Values
from checkers.rows import FOREVER

Interval = tuple[int, int]
"""From one moment to another; an operation is before another if it ended at an earlier moment."""

ENQUEUE, OPEN_ENQUEUE, FOUND_NOTHING, OPEN_DEQUEUE, OF_NOBODY, OF = range(6)
"""What an operation was; ``OF + n``: the dequeue of what operation n enqueued. Open: unanswered."""
BASE = 16


def orders(size: int) -> Iterator[tuple[Interval, ...]]:
    """Every order of so many intervals once; those that end last, which may be open, are last.

    Each moment is one at which an interval begins and one ends, else it could be left out.
    """
    for moments in range(1, size + 1):
        every = [(low, high) for low in range(moments) for high in range(low, moments)]
        for some in itertools.combinations_with_replacement(every, size):
            if len({low for low, _ in some}) == moments == len({high for _, high in some}):
                yield tuple(sorted(some, key=lambda one: one[1]))


@functools.cache
def kinds(size: int, last: int, *, of_nobody: bool = False) -> np.ndarray:
    """All that operations may have been, one row each; the ``last`` ones may be open."""
    rows: list[list[int]] = []
    single = [ENQUEUE, FOUND_NOTHING, OF, *([OF_NOBODY] if of_nobody else [])]
    every = [[*single, *([OPEN_ENQUEUE, OPEN_DEQUEUE] if n >= size - last else [])] for n in range(size)]
    for some in itertools.product(*every):
        sent = [n for n, kind in enumerate(some) if kind in (ENQUEUE, OPEN_ENQUEUE)]
        got = [n for n, kind in enumerate(some) if kind == OF]
        for values in itertools.permutations(sent, len(got)):
            row = list(some)
            for n, value in zip(got, values, strict=True):
                row[n] = OF + value
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def encoded(some: np.ndarray) -> np.ndarray:
    """One number for each row of ``kinds``."""
    return some @ BASE ** np.arange(some.shape[1])


def legal(order: Sequence[Interval]) -> np.ndarray:
    """Of an order all rows of ``kinds``, encoded, that some run of a queue explains."""
    size, end = len(order), max(high for _, high in order)
    last = [high == end for _, high in order]
    before = [{m for m in range(size) if order[m][1] < order[n][0]} for n in range(size)]

    @functools.cache
    def runs(left: frozenset[int], queue: tuple[int, ...]) -> np.ndarray:
        found = []
        if all(last[n] for n in left):  # without an answer, and without having happened
            gone = itertools.product((OPEN_ENQUEUE, OPEN_DEQUEUE), repeat=len(left))
            found += [np.array([sum(k * BASE**n for k, n in zip(some, left, strict=True))]) for some in gone]
        for n in left:
            if before[n] & left:
                continue
            got = OF + queue[0] if queue else FOUND_NOTHING
            steps = [(ENQUEUE, (*queue, n)), (got, queue[1:])]
            if last[n]:
                steps += [(OPEN_ENQUEUE, (*queue, n)), (OPEN_DEQUEUE, queue[1:])]
            found += [kind * BASE**n + runs(left - {n}, then) for kind, then in steps]
        return np.unique(np.concatenate(found))

    return runs(frozenset(range(size)), ())


def has_linearization(order: Sequence[Interval], some: Sequence[int], of: Sequence[int]) -> bool:
    """Of the operations ``of`` alone: whether a run of a queue explains them, by trying all."""

    def tries(left: frozenset[int], queue: tuple[int, ...]) -> bool:
        if all(some[n] in (OPEN_ENQUEUE, OPEN_DEQUEUE) for n in left):
            return True
        for n in left:
            if any(order[m][1] < order[n][0] for m in left):
                continue
            kind = some[n]
            if kind in (ENQUEUE, OPEN_ENQUEUE):
                then: tuple[int, ...] | None = (*queue, n)
            elif kind == OPEN_DEQUEUE or (queue and kind == OF + queue[0]):
                then = queue[1:]
            else:
                then = () if kind == FOUND_NOTHING and not queue else None
            if then is not None and tries(left - {n}, then):
                return True
        return False

    return tries(frozenset(of), ())


@dataclass(frozen=True)
class Columns:
    """Many histories of one order as the algorithm takes them; queue n is row n of ``some``.

    ``sent`` and ``got`` are the operations of each value (-1: none), ``asked`` those of dequeues
    that tell of no value.
    """

    values: Values
    dequeues: Dequeues
    sent: np.ndarray
    got: np.ndarray
    asked: np.ndarray

    @classmethod
    def of(cls, order: Sequence[Interval], some: np.ndarray) -> Columns:
        begin = np.array([2 * low for low, _ in order] + [FOREVER])
        end = np.array([2 * high + 1 for _, high in order] + [FOREVER])
        sent = (some == ENQUEUE) | (some == OPEN_ENQUEUE)
        value = np.nonzero(sent | (some == OF_NOBODY))
        taken = np.full(some.shape, -1)
        row, by = np.nonzero(some >= OF)
        taken[row, some[row, by] - OF] = by
        nobody = np.nonzero(some == OF_NOBODY)
        taken[nobody] = nobody[1]
        of, got = np.where(sent[value], value[1], -1), taken[value]
        row, asked = np.nonzero((some == FOUND_NOTHING) | (some == OPEN_DEQUEUE))
        return cls(
            Values(
                queue=value[0], name=value[1], enqueue_invoke=begin[of],
                enqueue_return=np.where(some[value] == ENQUEUE, end[of], FOREVER),
                dequeue_invoke=begin[got], dequeue_return=end[got],
            ),
            Dequeues(
                queue=row, invoke=begin[asked],
                returned=np.where(some[row, asked] == OPEN_DEQUEUE, FOREVER, end[asked]),
            ),
            of, got, asked,
        )  # fmt: skip

    def operations(self, certificate: Certificate) -> set[int]:
        """What a certificate names."""
        values = [*certificate.values]
        named = {*self.sent[values].tolist(), *self.got[values].tolist()}
        return (named | {*self.asked[[*certificate.dequeues]].tolist()}) - {-1}


def last_of(order: Sequence[Interval]) -> int:
    """How many of its intervals end last."""
    return sum(high == order[-1][1] for _, high in order)
