"""FIFO linearizability, proved against every run of a queue; and the words that tell of it."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from queue_histories import Columns, encoded, has_linearization, kinds, last_of, legal, orders

from checkers.linearizability import Dequeues, Values, not_linearizable, violations
from checkers.rows import FOREVER

INTERVAL_ORDERS = {1: 1, 2: 2, 3: 5, 4: 15, 5: 53, 6: 217, 7: 1014}
"""How many there are: the Fishburn numbers."""


def disagreements(order, some):
    """Rows in which the algorithm says something else than all runs of a queue."""
    columns = Columns.of(order, some)
    bad = np.zeros(len(some), dtype=bool)
    bad[not_linearizable(columns.values, columns.dequeues)] = True
    return np.flatnonzero(bad == np.isin(encoded(some), legal(order)))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_all_histories_of_a_few_operations_are_judged_as_the_runs_of_a_queue_say(size):
    every = [*orders(size)]
    assert len(every) == INTERVAL_ORDERS[size]
    for order in every:
        some = kinds(size, last_of(order), of_nobody=True)
        wrong = disagreements(order, some)
        assert not len(wrong), (order, some[wrong[0]].tolist())


@pytest.mark.parametrize("size", [6, 7])
@pytest.mark.slow
def test_some_histories_of_more_are(size):
    chance = random.Random(size)
    for order in chance.sample([*orders(size)], 12):
        some = kinds(size, min(last_of(order), 2))
        some = some[np.sort(np.random.default_rng(size).integers(0, len(some), 20_000))]
        wrong = disagreements(order, some)
        assert not len(wrong), (order, some[wrong[0]].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_certificate_has_no_linearization_by_itself(size):
    for order in orders(size):
        some = kinds(size, last_of(order), of_nobody=size < 5)
        columns = Columns.of(order, some)
        for certificate in violations(columns.values, columns.dequeues):
            named = columns.operations(certificate)
            what = some[certificate.queue].tolist()
            assert not has_linearization(order, what, sorted(named)), (order, what, certificate)
            unanswered = {3} & {*what}
            assert len(named) <= {"unsent": 2, "overtaken": 4}.get(certificate.why, size) or unanswered


def history(*values):
    """Of one queue: from enqueue's invocation and return to dequeue's."""
    columns = [np.array(column, dtype=np.int64) for column in zip(*values, strict=True)]
    names = ("enqueue_invoke", "enqueue_return", "dequeue_invoke", "dequeue_return")
    zero = np.zeros(len(values), dtype=np.int64)
    return Values(queue=zero, name=np.arange(len(values)), **dict(zip(names, columns, strict=True)))


def dequeues(*some):
    invoke, returned = (np.array(column, dtype=np.int64) for column in zip(*some, strict=True))
    return Dequeues(queue=np.zeros(len(some), dtype=np.int64), invoke=invoke, returned=returned)


NEVER = (FOREVER, FOREVER)
SAID = {
    "a was dequeued before its enqueue was invoked": (history((5, 6, 1, 2)), None),
    "a's enqueue had returned before b's was invoked, b was dequeued, and a only by what was invoked "
    "after that": (history((0, 1, 6, 7), (2, 3, 4, 5)), None),
    "a's enqueue had returned before b's was invoked, b was dequeued, and a by nobody": (
        history((0, 1, *NEVER), (2, 3, 4, 5)),
        None,
    ),
    "b's enqueue had returned before c's was invoked, c was dequeued, and of b, a at most 1 by then": (
        history((0, 1, *NEVER), (2, 3, *NEVER), (4, 5, 6, 8)),
        dequeues((7, FOREVER), (9, FOREVER)),
    ),
    "a's enqueue had returned before b's was invoked, b was dequeued, and a only by what was invoked "
    "after that, whatever another dequeue took": (
        history((0, 1, 6, 7), (2, 3, 4, 5)),
        dequeues((3, FOREVER)),
    ),
    "a dequeue found nothing, and all the time a, then b was in the queue": (
        history((0, 1, 8, 9), (2, 7, 12, 13)),
        dequeues((5, 11)),
    ),
}


@pytest.mark.parametrize("words", SAID)
def test_a_certificate_says_in_words_why_not(words):
    values, others = SAID[words]
    (certificate,) = violations(values, others)
    assert certificate.words("abc", values) == words.removesuffix(", whatever another dequeue took")


def test_of_several_the_first_that_was_overtaken_is_named_by_what_overtook_it_first():
    first = (0, 1, 20, 21), (2, 3, 22, 23), (4, 5, 12, 13), (6, 7, 10, 11)
    (certificate,) = violations(history(*first))
    assert certificate.values == (3, 0)
    tied = (0, 1, *NEVER), (0, 1, *NEVER), (2, 3, 4, 5)
    named = history(*tied)
    (certificate,) = violations(dataclasses.replace(named, name=np.array([9, 8, 7])))
    assert certificate.values == (2, 1)


def test_each_queue_is_judged_by_itself_whatever_the_order_of_its_rows():
    bad, good = history((0, 1, 6, 7), (2, 3, 4, 5)), history((0, 1, 4, 5), (2, 3, 6, 7))
    columns = {
        name: np.concatenate([getattr(one, name) for one in (bad, good, bad)])
        for name in ("name", "enqueue_invoke", "enqueue_return", "dequeue_invoke", "dequeue_return")
    }
    several = Values(queue=np.repeat([4, 0, 2], 2), **columns)
    mixed = np.random.default_rng(1).permutation(6)
    several = Values(**{f.name: getattr(several, f.name)[mixed] for f in dataclasses.fields(several)})
    assert not_linearizable(several).tolist() == [2, 4]
    assert [certificate.queue for certificate in violations(several)] == [2, 4]


def test_dequeues_without_an_answer_take_values_of_their_own_queue_whatever_the_order_of_the_rows():
    values = [(0, 1, *NEVER), (2, 3, *NEVER), (4, 5, 6, 8), (0, FOREVER, *NEVER)]
    asked = [(9, FOREVER), (7, FOREVER)]
    for seed in range(8):
        mixed = np.random.default_rng(seed).permutation(8)
        two = history(*(values * 2))
        two = dataclasses.replace(two, queue=np.repeat([2, 1], 4), name=np.tile(np.arange(4), 2))
        two = Values(**{f.name: getattr(two, f.name)[mixed] for f in dataclasses.fields(two)})
        others = dataclasses.replace(dequeues(*(asked * 2)), queue=np.array([2, 2, 1, 1]))
        order = np.random.default_rng(seed).permutation(4)
        others = Dequeues(**{f.name: getattr(others, f.name)[order] for f in dataclasses.fields(others)})
        told = [
            (certificate.queue, [int(two.name[value]) for value in certificate.values])
            for certificate in violations(two, others)
        ]
        assert told == [(1, [2, 1, 0]), (2, [2, 1, 0])]


@pytest.mark.parametrize(
    ("values", "is_wrong"),
    [
        ([(2, 7, 12, 13), (0, 1, 8, 9)], True),
        ([(6, 7, 20, 21)], False),
        ([(0, 1, 6, 7), (5, 8, 20, 21)], False),
        ([(8, 9, 20, 21), (0, 1, 6, 7)], False),
    ],
    ids=["values in another order", "not there at first", "not certainly there", "not there meanwhile"],
)
def test_a_dequeue_finds_nothing_unless_some_value_is_there_all_the_time(values, is_wrong):
    found = violations(history(*values), dequeues((5, 11)))
    assert [certificate.why for certificate in found] == ["not empty"] * is_wrong


def test_nothing_is_found_in_nothing():
    nothing = np.zeros(0, dtype=np.int64)
    values = Values(**dict.fromkeys([f.name for f in dataclasses.fields(Values)], nothing))
    assert violations(values) == violations(values, dequeues((1, 2))) == []
