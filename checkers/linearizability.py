"""The linearizability check of FIFO queues, with certificates for histories that violate it.

Values are distinct. A history has no linearization if and only if it contains one of these:

unsent      a value was dequeued whose enqueue had not been invoked when the dequeue returned
overtaken   x's enqueue returned before y's was invoked, y was dequeued, and no dequeue of x was
            invoked before y's dequeue returned
not empty   a dequeue found nothing, and at each moment of it some value was in the queue for
            certain: its enqueue had returned, no dequeue of it had been invoked

Why two values are enough for the second: let x come before y if x's enqueue returned before y's was
invoked, or x's dequeue before y's. Both are orders of intervals, in which *a before b* and *c
before d* imply that a is before d or c before b. So a cycle that alternates between the two orders
contains a shorter cycle, and in the end one of two values. If there is no cycle, let all values be
in an order that agrees with both. Put each enqueue as early as it and the ones before it allow, and
each dequeue as late as it and the ones after it allow. Then an enqueue comes before its dequeue: if
a value's dequeue returned before another's enqueue was invoked, that value is not behind the other.
A dequeue that found nothing is put at a moment at which no value must be in the queue. Every value
that was certainly enqueued by then is before it, all others are behind it, and neither order is
contradicted.
These are the bad patterns of Henzinger, Sezgin and Vafeiadis (CONCUR 2013) and of Bouajjani, Emmi,
Enea and Hamza (ICALP 2015). They are found in O(n log n), as in Abdulla et al. (PLDI 2025) and in
Lee and Mathur (OOPSLA 2025).

Operations without an answer. An enqueue may have happened or not: it did if its value was dequeued,
else it need not have. A dequeue may have taken any value that no other dequeue returned. The n-th
of these dequeues by invocation is given the n-th such value by its enqueue's return. Any other
assignment leaves at least as many values overtaken and in the queue. If two values are exchanged,
no fewer values are in front of what was dequeued, and the values in the queue cover no less time.

Times are any whole numbers in [0, 2^32 - 1), ``FOREVER`` where something never happened. Many
queues are checked at once; their numbers in [0, 2^30) tell them apart.
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
    """The values of queues, one row for each value.

    ``name`` tells a value from others. If several values could be reported, the one with the lowest
    name is.
    """

    queue: Numbers
    name: Numbers
    enqueue_invoke: Numbers
    enqueue_return: Numbers
    dequeue_invoke: Numbers
    dequeue_return: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequeues:
    """The dequeues that returned no value; ``returned`` is ``FOREVER`` where none was answered."""

    queue: Numbers = field(default_factory=_NOTHING.copy)
    invoke: Numbers = field(default_factory=_NOTHING.copy)
    returned: Numbers = field(default_factory=_NOTHING.copy)


Why = Literal["unsent", "overtaken", "not empty"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The reason why a queue has no linearization: a few operations that have none by themselves.

    ``values`` and ``dequeues`` are rows of ``Values`` and ``Dequeues``. In "overtaken" the first
    value is y, the second x. It has more values, and ``dequeues``, only where dequeues had no
    answer: the dequeues that were invoked in time, and the values that they cannot all have taken.
    In "not empty" the first of ``dequeues`` found nothing, and the values follow each other in
    time.
    """

    queue: int
    why: Why
    values: tuple[int, ...]
    dequeues: tuple[int, ...] = ()

    def words(self, names: Sequence[str], history: Values) -> str:
        """Return the certificate as a sentence without its full stop.

        ``names`` has the names of all values of the history, in the order of ``history``.
        """
        own_names = [names[value] for value in self.values]
        if self.why == "unsent":
            return f"{own_names[0]} was dequeued before its enqueue was invoked"
        if self.why == "overtaken":
            early, late, *more_names = own_names
            got = history.dequeue_invoke[self.values[1]] != FOREVER
            end = f"{late} only by what was invoked after that" if got else f"{late} by nobody"
            if self.dequeues:
                end = f"of {', '.join([late, *more_names])} at most {len(self.dequeues)} by then"
            return (
                f"{late}'s enqueue had returned before {early}'s was invoked, {early} was dequeued, and {end}"
            )
        return f"a dequeue found nothing, and all the time {', then '.join(own_names)} was in the queue"


def overtakings(history: Values) -> tuple[Numbers, Numbers]:
    """Return a pair of rows (y, x) of "overtaken" for each queue that has one.

    Every dequeue must have an answer. y is the overtaking value whose dequeue returned first. x is
    the value whose enqueue returned first among those that y overtook.
    """
    certain = np.flatnonzero(history.enqueue_return != FOREVER)
    gotten = np.flatnonzero(history.dequeue_return != FOREVER)
    certain = certain[ordered(history.queue[certain], history.enqueue_return[certain])]
    keys = (history.queue[certain] << _BITS) | history.enqueue_return[certain]
    latest = np.maximum.accumulate((history.queue[certain] << _BITS) | history.dequeue_invoke[certain])
    queue = history.queue[gotten]
    before = np.searchsorted(keys, (queue << _BITS) | history.enqueue_invoke[gotten], "left") - 1
    has_earlier = before >= 0
    gotten, queue, before = gotten[has_earlier], queue[has_earlier], before[has_earlier]
    wrong = (latest[before] >> _BITS == queue) & (latest[before] & _MASK > history.dequeue_return[gotten])
    early = gotten[wrong]
    if not len(early):
        return _NOTHING, _NOTHING
    early = early[ordered(history.queue[early], history.dequeue_return[early], history.name[early])]
    early = early[_firsts(history.queue[early])]
    # For each queue that has an overtaking value: the values that were dequeued after it. It
    # overtook one of them, so it overtook the one whose enqueue returned first.
    queues = history.queue[early]
    at = np.minimum(np.searchsorted(queues, history.queue[certain]), len(queues) - 1)
    late = history.queue[certain] == queues[at]
    late &= history.dequeue_invoke[certain] > history.dequeue_return[early[at]]
    over = certain[late]
    over = over[ordered(history.queue[over], history.enqueue_return[over], history.name[over])]
    return early, over[_firsts(history.queue[over])]


def violations(history: Values, dequeues: Dequeues | None = None) -> list[Certificate]:
    """Return a certificate for each queue that has no linearization, in the order of the queues."""
    looked = _Looked.at(history, Dequeues() if dequeues is None else dequeues)
    certificates: dict[int, Certificate] = {}
    for value in looked.unsent.tolist():
        queue = int(history.queue[value])
        certificates.setdefault(queue, Certificate(queue, "unsent", (value,)))
    for pair in zip(*(rows.tolist() for rows in looked.overtaken), strict=True):
        queue = int(history.queue[pair[0]])
        if queue not in certificates:
            certificates[queue] = looked.overtaking(queue, pair)
    for empty in looked.covered.tolist():
        queue = int(looked.dequeues.queue[empty])
        if queue not in certificates:
            certificates[queue] = looked.not_empty(queue, empty)
    return [certificates[queue] for queue in sorted(certificates)]


def not_linearizable(history: Values, dequeues: Dequeues | None = None) -> Numbers:
    """Return the queues that have no linearization."""
    looked = _Looked.at(history, Dequeues() if dequeues is None else dequeues)
    rows = np.concatenate([looked.unsent, looked.overtaken[0]])
    result: Numbers = np.union1d(history.queue[rows], looked.dequeues.queue[looked.covered])
    return result


@dataclass(frozen=True, slots=True)
class _Looked:
    """The violations found in some queues, and the assignment of values to unanswered dequeues.

    ``assigned`` is the history in which each dequeue without an answer has taken the value that it
    was given. ``untaken`` are the values that no dequeue returned, ``waiting`` the dequeues without
    an answer. Both are in the order in which they are given to each other.
    """

    assigned: Values
    dequeues: Dequeues
    untaken: Numbers
    waiting: Numbers
    unsent: Numbers
    overtaken: tuple[Numbers, Numbers]
    covered: Numbers

    @classmethod
    def at(cls, history: Values, dequeues: Dequeues) -> _Looked:
        untaken = np.flatnonzero(history.dequeue_return == FOREVER)
        untaken = untaken[
            ordered(history.queue[untaken], history.enqueue_return[untaken], history.name[untaken])
        ]
        waiting = np.flatnonzero(dequeues.returned == FOREVER)
        waiting = waiting[ordered(dequeues.queue[waiting], dequeues.invoke[waiting])]
        _, takes, taken = np.intersect1d(
            _ranked(history.queue[untaken]),
            _ranked(dequeues.queue[waiting]),
            assume_unique=True,
            return_indices=True,
        )
        invoke = history.dequeue_invoke.copy()
        invoke[untaken[takes]] = dequeues.invoke[waiting[taken]]
        assigned = replace(history, dequeue_invoke=invoke)
        unsent = history.dequeue_return < history.enqueue_invoke
        covered = np.flatnonzero(_covered(assigned, dequeues))
        return cls(
            assigned, dequeues, untaken, waiting, np.flatnonzero(unsent), overtakings(assigned), covered
        )

    def overtaking(self, queue: int, pair: tuple[int, int]) -> Certificate:
        """Return the certificate of an "overtaken" pair.

        Where a dequeue without an answer may have taken x, the certificate has the dequeues that
        were invoked in time. It then also has values that these cannot all have taken.
        """
        early, late = pair
        if self.assigned.dequeue_return[late] != FOREVER:
            return Certificate(queue, "overtaken", pair)
        in_time = self._waiting(queue, int(self.assigned.dequeue_return[early]))
        rivals = self._untaken(queue)[: len(in_time)]
        return Certificate(queue, "overtaken", (*pair, *rivals.tolist()), tuple(in_time.tolist()))

    def not_empty(self, queue: int, empty: int) -> Certificate:
        """Return the certificate of a dequeue that wrongly found nothing.

        It has values that follow each other in time, as few as possible. Where no dequeue returned
        one of them, it also has the dequeues that may have taken that value, and the values that
        these would be given before.
        """
        assigned, until = self.assigned, int(self.dequeues.returned[empty])
        own_values = np.flatnonzero(assigned.queue == queue)
        at, chain = int(self.dequeues.invoke[empty]), list[int]()
        while at < until:
            enqueued = own_values[assigned.enqueue_return[own_values] < at]
            chain.append(int(enqueued[np.argmax(assigned.dequeue_invoke[enqueued])]))
            at = int(assigned.dequeue_invoke[chain[-1]])
        untaken = self._untaken(queue)
        last = np.flatnonzero(np.isin(untaken, chain))
        if not len(last):
            return Certificate(queue, "not empty", tuple(chain), (empty,))
        rivals = [value for value in untaken[: last[-1]].tolist() if value not in chain]
        in_time = self._waiting(queue, until).tolist()
        return Certificate(queue, "not empty", (*chain, *rivals), (empty, *in_time))

    def _untaken(self, queue: int) -> Numbers:
        low, high = np.searchsorted(self.assigned.queue[self.untaken], (queue, queue + 1))
        return self.untaken[low:high]

    def _waiting(self, queue: int, before: int) -> Numbers:
        low, high = np.searchsorted(self.dequeues.queue[self.waiting], (queue, queue + 1))
        queue_dequeues = self.waiting[low:high]
        return queue_dequeues[self.dequeues.invoke[queue_dequeues] < before]


def _firsts(queue: Numbers) -> Numbers:
    return np.flatnonzero(np.concatenate(([True], queue[1:] != queue[:-1]))[: len(queue)])


def _ranked(queue: Numbers) -> Numbers:
    """Return the queue of each row and the row's place among those of its queue as one number."""
    firsts = _firsts(queue)
    rank = np.arange(len(queue)) - np.repeat(firsts, np.diff(np.append(firsts, len(queue))))
    return (queue << _BITS) | rank


def _covered(assigned: Values, dequeues: Dequeues) -> Flags:
    """Flag the dequeues that found nothing though some value was certainly there all the time."""
    flags = np.zeros(len(dequeues.queue), dtype=bool)
    empty = np.flatnonzero(dequeues.returned != FOREVER)
    certainly_in = np.flatnonzero(assigned.enqueue_return < assigned.dequeue_invoke)
    if not len(empty) or not len(certainly_in):
        return flags
    certainly_in = certainly_in[ordered(assigned.queue[certainly_in], assigned.enqueue_return[certainly_in])]
    keys = (assigned.queue[certainly_in] << _BITS) | assigned.enqueue_return[certainly_in]
    until = np.maximum.accumulate(
        (assigned.queue[certainly_in] << _BITS) | assigned.dequeue_invoke[certainly_in]
    )
    fresh = np.append(True, keys[1:] > until[:-1])  # nothing was there for certain right before
    since = keys[np.maximum.accumulate(np.where(fresh, np.arange(len(keys)), 0))]
    queue = dequeues.queue[empty] << _BITS
    before = np.searchsorted(keys, queue | dequeues.invoke[empty], "left") - 1
    last = np.searchsorted(keys, queue | dequeues.returned[empty], "left") - 1
    flags[empty] = (
        (before >= 0) & (since[before] == since[last]) & (until[last] > (queue | dequeues.returned[empty]))
    )
    return flags
