"""Queues as a whole: what is late there for certain, and what only may be.

The names of the cases are what they prove.
"""

from __future__ import annotations

import functools
import itertools
import random

import msgspec
import numpy as np
import pytest
from checker_rows import MS, agreed, dense, o, table
from queue_histories import ENQUEUE, OF, OPEN_ENQUEUE, kinds, last_of, orders
from test_findings import OPTIONS, answer, deliver, end, gone, send, tidy

from bench.agreement import on_columns
from checkers import judge, reference
from checkers.deaths import Deaths
from checkers.queues import Consumers, Known, Messages, Told, find
from checkers.rows import NONE
from checkers.selective import SelectiveQueues
from checkers.source import HereSource, TablePart
from checkers.verdict import Promises

FIFO = msgspec.structs.replace(OPTIONS, broker=Promises(fifo=True))
FREE = {"group": None}


def asked(at, session, queue="q", *, outcome="ok", **columns):
    mine = {"session": session, "queue": queue, **columns}
    return [
        o(at, 10 + session, "invoke", "subscribe", **mine),
        o(at + 1, 10 + session, outcome, "subscribe", broker="a1", **mine),
    ]


def left(at, session, outcome="ok"):
    return [
        o(at, 10 + session, "invoke", "unsubscribe", session=session, queue="q"),
        o(at + 1, 10 + session, outcome, "unsubscribe", session=session, queue="q", broker="a1"),
    ]


def sent(at, message, outcome="ok", **columns):
    return send(at, message, outcome, **{**FREE, **columns})


def got(at, message, session=1, **columns):
    return deliver(at, message, session, **{**FREE, **columns})


def pulled(at, message, since, session=1):
    return got(at, message, session, time_low=since * MS, redelivered=None)


BOTH = [*sent(20, 1), *sent(30, 2)]
LATE = [*got(40, 2), *got(50, 1)]
ALONE = [*asked(0, 1), *BOTH, *LATE]
UNHEARD = o(60, 9, "info", "receive", queue="q")
STOPPED = o(12, -2, "info", "role", broker="b1", node_id="n", role="stopped", time_low=0, time_high=0)

CASES = {
    "of a session that was alone what was sent later must come later": (ALONE, True),
    "in the order in which it was sent nothing is late": (
        [*asked(0, 1), *BOTH, *got(40, 1), *got(50, 2)], False),
    "what was sent at the same time may come in any order": (
        [*asked(0, 1), *sent(20, 1), o(19, 2, "invoke", "send", 2, group=None, producer=2, digest=2),
         o(25, 2, "ok", "send", 2, group=None, producer=2, broker="a1"), *LATE], False),
    "what never came though something behind it did is late": ([*asked(0, 1), *BOTH, *got(40, 2)], True),
    "what somebody acknowledged, unread, may have come before": (
        [*asked(0, 1), *BOTH, *got(40, 2), *answer(44, 1, group=None)], False),
    "what came and could not be read may have been it": (
        [*asked(0, 1), *BOTH, *got(40, 2),
         o(50, 11, "ok", "deliver", group=None, session=1, error="cut", broker="a1")], False),
    "another session may hold what it has not read": ([*asked(0, 1), *asked(5, 2), *ALONE[2:]], False),
    "another of unknown outcome may, too": (
        [*asked(0, 1), *asked(5, 2, outcome="info"), *ALONE[2:]], False),
    "one that was refused holds nothing": (
        [*asked(0, 1), *asked(5, 2, outcome="fail"), *ALONE[2:]], True),
    "one of another queue holds nothing": ([*asked(0, 1), *asked(5, 2, "r"), *ALONE[2:]], True),
    "one of several queues may": ([*asked(0, 1), *asked(5, 2, "r"), *asked(7, 2), *ALONE[2:]], False),
    "one that was refused another queue may": (
        [*asked(0, 1), *asked(5, 2, "r", outcome="fail"), *asked(7, 2), *ALONE[2:]], False),
    "one that asked again, and was refused that, may": (
        [*asked(0, 1), *asked(5, 2), *asked(7, 2, outcome="fail"), *ALONE[2:]], False),
    "a session that asked for its queue again is still alone": (
        [*asked(0, 1), *asked(5, 1), *ALONE[2:]], True),
    "one of no known queue may hold what it has not read": (
        [*asked(0, 1), *asked(5, 2, None), *ALONE[2:]], False),
    "one that was asked for afterwards cannot have held it": (
        [*ALONE[:-1], *asked(42, 2), *got(50, 1, 2)], True),
    "nor can it if it left later on": (
        [*ALONE[:-1], *asked(42, 2), *got(50, 1), *left(60, 2)], True),
    "one that asked again when the later had been read may have": (
        [*asked(0, 1), *asked(5, 2), *ALONE[2:-1], *asked(42, 2), *got(50, 1)], False),
    "one that was asked for before the later was read may have": (
        [*ALONE[:-2], *asked(38, 2), *LATE], False),
    "one that had left for certain cannot have held it": (
        [*asked(0, 1), *asked(5, 2), *left(10, 2), *ALONE[2:]], True),
    "one whose leaving was never answered may have": (
        [*asked(0, 1), *asked(5, 2), *left(10, 2, "info"), *ALONE[2:]], False),
    "one that had left only after it was sent may have": (
        [*asked(0, 1), *asked(5, 2), *BOTH, *left(22, 2), *LATE], False),
    "one that its client had lost may have": (
        [*asked(0, 1), *asked(5, 2), *gone(10, 2), *ALONE[2:]], False),
    "one whose broker's process was gone before cannot have": (
        [*asked(0, 1), o(5, 12, "invoke", "subscribe", session=2, queue="q"),
         o(6, 12, "ok", "subscribe", session=2, queue="q", broker="b1"), STOPPED, *ALONE[2:]], True),
    "one whose broker's process was gone only afterwards may have": (
        [*asked(0, 1), o(5, 12, "invoke", "subscribe", session=2, queue="q"),
         o(6, 12, "ok", "subscribe", session=2, queue="q", broker="b1"), {**STOPPED, "index": 22},
         *ALONE[2:]], False),
    "a session that no row asked for may always have been there": ([*BOTH, *LATE], False),
    "and beside it another is not alone": ([*ALONE, *got(60, 3, 2), *sent(55, 3)], False),
    "what was received and never heard of may have been given back": ([*ALONE, UNHEARD], False),
    "what came in no session may have come before": (
        [*ALONE, o(60, 11, "ok", "deliver", 1, group=None, broker="a1")], False),
    "a queue that two nodes hold is none as a whole": (
        [*asked(0, 1), *sent(20, 1), *sent(30, 2, broker="c1"), *LATE], False),
    "who wants some only leaves others behind": (
        [*asked(0, 1, value='{"selector": {"colour": ["red"]}}'), *sent(20, 1),
         *sent(30, 2, producer=2, value='{"properties": {"colour": "red"}}'), *LATE], False),
    "of unknown outcome nothing is late": (
        [*asked(0, 1), *sent(20, 1, "info"), *sent(30, 2, producer=2), *LATE], False),
    "a message is in the queue from its commit on": (
        [*asked(0, 1), *sent(20, 1, transaction=9), *sent(24, 2, producer=2), *end(30, "commit", 9), *LATE],
        False),
    "and late behind what was begun after that": (
        [*asked(0, 1), *sent(20, 1, transaction=9), *end(23, "commit", 9), *sent(30, 2, producer=2), *LATE],
        True),
    "what failed to be sent, and came all the same, overtook nothing": (
        [*asked(0, 1), *sent(20, 1), *sent(30, 2, "fail"), *LATE], False),
    "nor did what nobody committed": (
        [*asked(0, 1), *sent(20, 1), *sent(30, 2, transaction=9), *LATE], False),
    "a queue of which no row names a broker is one": (
        [{**row, "broker": None} for row in ALONE], True),
    "a session that reads before it is there proves nothing": (
        [*BOTH, *got(40, 2), *asked(45, 1), *got(50, 1)], False),
    "a queue is asked for everything that was sent there, whatever else came": (
        [*BOTH, *pulled(40, 2, 35), *pulled(50, 1, 45), *got(60, 9)], True),
    "what nobody sent is in no queue": ([*asked(0, 1), *got(40, 1)], False),
    "where there are no messages there is none": ([*asked(0, 1), *left(4, 1)], False),
    "what was more urgent overtook nothing": (
        [*asked(0, 1), *sent(20, 1), *sent(30, 2, value='{"priority": 9}'), *LATE], False),
    "nor what came before it was sent": (
        [*asked(0, 1), *got(10, 2), *sent(20, 1), *sent(30, 2), *got(50, 1)], False),
    "nor what is of a group": (
        [*asked(0, 1), *sent(20, 1), *send(30, 2), *deliver(40, 2), *got(50, 1)], False),
    "a temporary queue is none as a whole": (
        [{**row, "queue": "/temp-queue/r"} if "queue" in row else row for row in ALONE], False),
    "a delivery that names no broker is of no other": (
        [*asked(0, 1), *BOTH, *got(40, 2, broker=None), *got(50, 1), *sent(60, 3, queue="r", broker="c1")],
        True),
    "what was asked for after the other had been taken was behind it": (
        [*BOTH, *pulled(40, 2, 35), *pulled(50, 1, 45)], True),
    "what was asked for before may have been taken before": (
        [*BOTH, *pulled(40, 2, 35), *pulled(50, 1, 39, 2)], False),
    "at one moment as well": ([*BOTH, *pulled(40, 2, 35), *pulled(50, 1, 40, 2)], False),
    "what nobody was handed is late": ([*BOTH, *pulled(40, 2, 35)], True),
    "one that was handed out unheard may come late": (
        [*BOTH, *pulled(40, 2, 35), *pulled(50, 1, 45), UNHEARD], False),
    "but one only": (
        [*BOTH, *sent(32, 3), *pulled(40, 3, 35), *pulled(50, 1, 45), *pulled(55, 2, 52), UNHEARD], True),
    "unheard in another queue explains nothing": (
        [*BOTH, *pulled(40, 2, 35), *pulled(50, 1, 45), {**UNHEARD, "queue": "r"}], True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_both_implementations_say_so(tmp_path, case):
    rows, late = CASES[case]
    whole = agreed(tmp_path, dense(tidy(rows)), FIFO)
    assert any(i.name == "not-linearizable" for i in whole) == late
    assert on_columns([dense(tidy(rows))], FIFO, 1, parts=1) == [whole]
    assert not any(i.name == "not-linearizable" for i in reference.find(tidy(rows), OPTIONS))


def test_a_group_is_no_queue_as_a_whole(tmp_path):
    rows = dense(tidy([*asked(0, 1), *send(20, 1), *send(30, 2), *deliver(40, 2), *deliver(50, 1)]))
    (found,) = (i for i in agreed(tmp_path, rows, FIFO) if i.name == "not-linearizable")
    assert found.group == "g"


def test_the_guarantee_may_let_messages_vanish(tmp_path):
    rows = dense(tidy(CASES["what never came though something behind it did is late"][0]))
    once = msgspec.structs.replace(FIFO, guarantee="at-most-once")
    assert not any(i.name == "not-linearizable" for i in agreed(tmp_path, rows, once))


def test_messages_may_all_vanish_from_a_queue_of_consumers_with_selectors(tmp_path):
    selector = {"value": '{"selector": {"colour": ["red"]}}'}
    once = msgspec.structs.replace(FIFO, guarantee="at-most-once")
    assert agreed(tmp_path, dense(tidy([*asked(0, 1, **selector), *BOTH])), once) == set()


def test_the_finding_names_both_messages_and_its_witness_shows_it_again():
    rows = table(dense(tidy(ALONE)))
    carries = [r["f"] in ("send", "deliver") for r in rows.to_pylist()]
    control = rows.filter([not one for one in carries])
    source = HereSource([TablePart(0, rows.filter(carries))], control, len(rows) * MS, len(rows))
    (finding,) = judge.judge(source, FIFO).findings
    assert finding.name == "not-linearizable"
    assert finding.severity == "grave"
    assert finding.sentence.startswith('message 2 (queue "q") was first delivered by a1 to session 1 at')
    assert "message 1, which was certainly sent at 0.021 s" in finding.sentence
    shown = list(finding.witness.rows)
    assert {i.index for i in reference.find(shown, FIFO)} == {40}


# ------------------------------------------------------------------------------------- brute force


def explained(order, some, ghosts):
    """Whether some run of a queue explains a history, if so many may take what is in front.

    Each once, whenever it likes; and put it back there, or not.
    """
    size = len(order)

    @functools.cache
    def runs(left, queue, free, held):
        if not any(some[n] != OPEN_ENQUEUE for n in left):
            return True
        for n in left:
            if any(order[m][1] < order[n][0] for m in left):
                continue
            rest = left - {n}
            if some[n] in (ENQUEUE, OPEN_ENQUEUE):
                if runs(rest, (*queue, n), free, held):
                    return True
            elif queue and some[n] == OF + queue[0] and runs(rest, queue[1:], free, held):
                return True
        if free and queue and runs(left, queue[1:], free - 1, held | {queue[0]}):
            return True
        return any(runs(left, (one, *queue), free, held - {one}) for one in held)

    return runs(frozenset(range(size)), (), ghosts, frozenset())


def columns(order, some):
    """One history as the rule gets it: of each value when it was sent, asked for and taken."""
    taken = {kind - OF: n for n, kind in enumerate(some) if kind >= OF}
    rows = []
    for n, kind in enumerate(some):
        if kind not in (ENQUEUE, OPEN_ENQUEUE) or (kind == OPEN_ENQUEUE and n not in taken):
            continue
        low, high = order[taken[n]] if n in taken else (NONE, NONE)
        stored = 2 * order[n][1] + 1 if kind == ENQUEUE else NONE
        rows.append((n, 2 * order[n][0], stored, *((2 * high + 1, 2 * low, 2 * high + 1) if n in taken
                     else (NONE, NONE, NONE))))  # fmt: skip
    return rows


def accused(histories, unheard):
    rows = [(place, *row) for place, one in enumerate(histories) for row in one]
    place, message, begun, stored, delivered, since, time = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    known = Messages(
        place=place.astype(np.int32), message=message, begun=begun, stored=stored,
        delivered=delivered, session=np.ones(len(rows), dtype=np.int64), asked=since, time=time,
        matched=np.zeros(len(rows), dtype=np.int64),
    )  # fmt: skip
    places = [(0, str(n), None) for n in range(len(histories))]
    told = Told(known, places, {}, frozenset(), frozenset())
    queues = {(0, str(n)): unheard for n in range(len(histories))}
    beside = Known(Consumers(), Deaths(), queues, SelectiveQueues(), lossless=True)
    return {int(i.queue) for i in find([told], beside)}


def possible(order, some):
    """No value was taken before it can have been sent: that is a phantom, and told as one."""
    return all(order[n][1] >= order[k - OF][0] for n, k in enumerate(some) if k >= OF)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "unheard"), [*itertools.product([2, 3, 4, 5], [0, 1, 2])])
def test_pulls_are_judged_as_all_runs_of_a_queue_say(size, unheard):
    chance = random.Random(size)
    every = [*orders(size)]
    for order in every if size < 5 else chance.sample(every, 25):
        some = [one for one in kinds(size, last_of(order)).tolist() if not {2, 3, 4} & {*one}]
        some = [one for one in some if possible(order, one)]
        bad = accused([columns(order, one) for one in some], unheard)
        for n, one in enumerate(some):
            assert (n in bad) != explained(order, tuple(one), unheard), (order, one)
