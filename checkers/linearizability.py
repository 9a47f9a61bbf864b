"""Whether a history of a FIFO queue has a linearization, and the few operations that say why not.

Values are distinct. A history has none if and only if one of these is in it:

unsent      a value was dequeued whose enqueue had not been invoked when the dequeue returned
overtaken   x's enqueue returned before y's was invoked, y was dequeued, and x was dequeued by
            nothing that was invoked before y's dequeue returned
not empty   a dequeue found nothing, and at each moment of it some value was in the queue for
            certain: its enqueue had returned, no dequeue of it had been invoked

Why two values are enough for the second: let x come before y if x's enqueue returned before y's was
invoked, or x's dequeue before y's. Both are orders of intervals, in which a before b and c before d
say that a is before d or c before b; so of a circle that alternates between them, a part is a
circle again, and in the end two values are. Without any, let all values be in an order that agrees
with both: put each enqueue as early as it and the ones before it allow, each dequeue as late as it
and the ones after it allow. An enqueue then comes before its dequeue, because no value of which the
dequeue returned before another's enqueue was invoked is behind that one. A dequeue that found
nothing is put at a moment at which no value must be there; what was enqueued for certain by then is
before it, all else behind it, and neither order is contradicted.
These are the bad patterns of Henzinger, Sezgin and Vafeiadis (CONCUR 2013) and of Bouajjani, Emmi,
Enea and Hamza (ICALP 2015), found in O(n log n), as Abdulla et al. (PLDI 2025) and Lee and Mathur
(OOPSLA 2025) have it.

Operations without an answer. An enqueue may have happened or not: if its value was dequeued it did,
else it need not have. A dequeue may have taken any value that nobody else got: the n-th of them by
invocation is given the n-th such value by its enqueue's return. Every other choice leaves more
overtaken and more in the queue: exchange two of them, and neither fewer values are in front of what
was dequeued, nor do those that are there cover less time.

Times are any whole numbers in [0, 2^32 - 1), ``FOREVER`` for what never was. Many queues are looked
at at once, told apart by their numbers in [0, 2^30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from checkers.rows import FOREVER, Flags, Numbers, ordered

_BITS: Final = 33
_MASK: Final = 2**_BITS - 1
_NOTHING: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """One row a value of a queue.

    ``name`` tells it from others, and of several that could be named the lowest is.
    """

    queue: Numbers
    name: Numbers
    enqueue_invoke: Numbers
    enqueue_return: Numbers
    dequeue_invoke: Numbers
    dequeue_return: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequeues:
    """Dequeues that tell of no value; ``returned`` is ``FOREVER`` without an answer."""

    queue: Numbers = field(default_factory=_NOTHING.copy)
    invoke: Numbers = field(default_factory=_NOTHING.copy)
    returned: Numbers = field(default_factory=_NOTHING.copy)


Why = Literal["unsent", "overtaken", "not empty"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why a queue has no linearization: operations that have none by themselves.

    ``values`` and ``dequeues`` are rows of what was given. Of "overtaken" the first value is y, the
    second x; more of them, and ``dequeues``, only where dequeues had no answer: those that were
    invoked in time, which the others need. Of "not empty" the first of ``dequeues`` found nothing,
    and the values follow each other in time.
    """

    queue: int
    why: Why
    values: tuple[int, ...]
    dequeues: tuple[int, ...] = ()

    def words(self, names: Sequence[str], history: Values) -> str:
        """In a sentence without its full stop; ``names`` of all values of the history."""
        mine = [names[value] for value in self.values]
        if self.why == "unsent":
            return f"{mine[0]} was dequeued before its enqueue was invoked"
        if self.why == "overtaken":
            early, late, *others = mine
            got = history.dequeue_invoke[self.values[1]] != FOREVER
            end = f"{late} only by what was invoked after that" if got else f"{late} by nobody"
            if others or self.dequeues:
                end = f"of {', '.join([late, *others])} at most {len(self.dequeues)} by then"
            return (
                f"{late}'s enqueue had returned before {early}'s was invoked, {early} was dequeued, and {end}"
            )
        return f"a dequeue found nothing, and all the time {', then '.join(mine)} was in the queue"


def overtakings(history: Values) -> tuple[Numbers, Numbers]:
    """Rows (y, x) of "overtaken", one pair a queue that has any; all dequeues have answers.

    y is the value whose dequeue returned first, x of those that it overtook the one whose enqueue
    did.
    """
    certain = np.flatnonzero(history.enqueue_return != FOREVER)
    gotten = np.flatnonzero(history.dequeue_return != FOREVER)
    certain = certain[ordered(history.queue[certain], history.enqueue_return[certain])]
    keys = (history.queue[certain] << _BITS) | history.enqueue_return[certain]
    latest = np.maximum.accumulate((history.queue[certain] << _BITS) | history.dequeue_invoke[certain])
    queue = history.queue[gotten]
    before = np.searchsorted(keys, (queue << _BITS) | history.enqueue_invoke[gotten], "left") - 1
    some = before >= 0
    gotten, queue, before = gotten[some], queue[some], before[some]
    wrong = (latest[before] >> _BITS == queue) & (latest[before] & _MASK > history.dequeue_return[gotten])
    early = gotten[wrong]
    if not len(early):
        return _NOTHING, _NOTHING
    early = early[ordered(history.queue[early], history.dequeue_return[early], history.name[early])]
    early = early[_firsts(history.queue[early])]
    # Of the queues that have one: what each overtook.
    queues = history.queue[early]
    at = np.minimum(np.searchsorted(queues, history.queue[certain]), len(queues) - 1)
    late = history.queue[certain] == queues[at]
    late &= history.enqueue_return[certain] < history.enqueue_invoke[early[at]]
    late &= history.dequeue_invoke[certain] > history.dequeue_return[early[at]]
    over = certain[late]
    over = over[ordered(history.queue[over], history.enqueue_return[over], history.name[over])]
    return early, over[_firsts(history.queue[over])]


def violations(history: Values, dequeues: Dequeues | None = None) -> list[Certificate]:
    """A certificate for each queue that has no linearization, by queue."""
    looked = _Looked.at(history, Dequeues() if dequeues is None else dequeues)
    found: dict[int, Certificate] = {}
    for value in looked.unsent.tolist():
        queue = int(history.queue[value])
        found.setdefault(queue, Certificate(queue, "unsent", (value,)))
    for pair in zip(*(rows.tolist() for rows in looked.overtaken), strict=True):
        queue = int(history.queue[pair[0]])
        if queue not in found:
            found[queue] = looked.overtaking(queue, pair)
    for empty in looked.covered.tolist():
        queue = int(looked.dequeues.queue[empty])
        if queue not in found:
            found[queue] = looked.not_empty(queue, empty)
    return [found[queue] for queue in sorted(found)]


def not_linearizable(history: Values, dequeues: Dequeues | None = None) -> Numbers:
    """The queues that have no linearization."""
    looked = _Looked.at(history, Dequeues() if dequeues is None else dequeues)
    rows = np.concatenate([looked.unsent, looked.overtaken[0]])
    result: Numbers = np.union1d(history.queue[rows], looked.dequeues.queue[looked.covered])
    return result


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was seen of some queues.

    ``given``: the history in which each dequeue without an answer took its value. ``left``, the
    values that nobody else got, and ``waiting``, these dequeues, are both in the order in which
    they are given to each other.
    """

    given: Values
    dequeues: Dequeues
    left: Numbers
    waiting: Numbers
    unsent: Numbers
    overtaken: tuple[Numbers, Numbers]
    covered: Numbers

    @classmethod
    def at(cls, history: Values, dequeues: Dequeues) -> _Looked:
        left = np.flatnonzero((history.enqueue_return != FOREVER) & (history.dequeue_return == FOREVER))
        left = left[ordered(history.queue[left], history.enqueue_return[left], history.name[left])]
        waiting = np.flatnonzero(dequeues.returned == FOREVER)
        waiting = waiting[ordered(dequeues.queue[waiting], dequeues.invoke[waiting])]
        _, takes, taken = np.intersect1d(
            _ranked(history.queue[left]),
            _ranked(dequeues.queue[waiting]),
            assume_unique=True,
            return_indices=True,
        )
        invoke = history.dequeue_invoke.copy()
        invoke[left[takes]] = dequeues.invoke[waiting[taken]]
        given = replace(history, dequeue_invoke=invoke)
        unsent = (history.dequeue_return != FOREVER) & (history.dequeue_return < history.enqueue_invoke)
        covered = np.flatnonzero(_covered(given, dequeues))
        return cls(given, dequeues, left, waiting, np.flatnonzero(unsent), overtakings(given), covered)

    def overtaking(self, queue: int, pair: tuple[int, int]) -> Certificate:
        """With the dequeues invoked in time, and values that they cannot all have taken."""
        early, late = pair
        if self.given.dequeue_return[late] != FOREVER:
            return Certificate(queue, "overtaken", pair)
        in_time = self._waiting(queue, int(self.given.dequeue_return[early]))
        rivals = self._left(queue)[: len(in_time)]
        return Certificate(queue, "overtaken", (*pair, *rivals.tolist()), tuple(in_time.tolist()))

    def not_empty(self, queue: int, empty: int) -> Certificate:
        """With values that follow each other, as few as can be.

        Where one of them is nobody's, with the dequeues that may have taken it, and the values that
        these would rather have.
        """
        given, until = self.given, int(self.dequeues.returned[empty])
        there = np.flatnonzero((given.queue == queue) & (given.enqueue_return < given.dequeue_invoke))
        at, chain = int(self.dequeues.invoke[empty]), list[int]()
        while at < until:
            known = there[given.enqueue_return[there] < at]
            chain.append(int(known[np.argmax(given.dequeue_invoke[known])]))
            at = int(given.dequeue_invoke[chain[-1]])
        left = self._left(queue)
        last = np.flatnonzero(np.isin(left, chain))
        if not len(last):
            return Certificate(queue, "not empty", tuple(chain), (empty,))
        rivals = [value for value in left[: last[-1]].tolist() if value not in chain]
        in_time = self._waiting(queue, until).tolist()
        return Certificate(queue, "not empty", (*chain, *rivals), (empty, *in_time))

    def _left(self, queue: int) -> Numbers:
        low, high = np.searchsorted(self.given.queue[self.left], (queue, queue + 1))
        return self.left[low:high]

    def _waiting(self, queue: int, before: int) -> Numbers:
        low, high = np.searchsorted(self.dequeues.queue[self.waiting], (queue, queue + 1))
        mine = self.waiting[low:high]
        return mine[self.dequeues.invoke[mine] < before]


def _firsts(queue: Numbers) -> Numbers:
    return np.flatnonzero(np.concatenate(([True], queue[1:] != queue[:-1]))[: len(queue)])


def _ranked(queue: Numbers) -> Numbers:
    """Each queue, and the place of each row among those of its queue, as one number."""
    firsts = _firsts(queue)
    rank = np.arange(len(queue)) - np.repeat(firsts, np.diff(np.append(firsts, len(queue))))
    return (queue << _BITS) | rank


def _covered(given: Values, dequeues: Dequeues) -> Flags:
    """The dequeues that found nothing though some value was there for certain all the time."""
    found = np.zeros(len(dequeues.queue), dtype=bool)
    empty = np.flatnonzero(dequeues.returned != FOREVER)
    there = np.flatnonzero(given.enqueue_return < given.dequeue_invoke)
    if not len(empty) or not len(there):
        return found
    there = there[ordered(given.queue[there], given.enqueue_return[there])]
    keys = (given.queue[there] << _BITS) | given.enqueue_return[there]
    until = np.maximum.accumulate((given.queue[there] << _BITS) | given.dequeue_invoke[there])
    fresh = np.append(True, keys[1:] > until[:-1])  # nothing was there for certain right before
    since = keys[np.maximum.accumulate(np.where(fresh, np.arange(len(keys)), 0))]
    queue = dequeues.queue[empty] << _BITS
    before = np.searchsorted(keys, queue | dequeues.invoke[empty], "left") - 1
    last = np.searchsorted(keys, queue | dequeues.returned[empty], "left") - 1
    found[empty] = (
        (before >= 0)
        & (keys[before] >> _BITS == dequeues.queue[empty])
        & (since[before] == since[last])
        & (until[last] > (queue | dequeues.returned[empty]))
    )
    return found
