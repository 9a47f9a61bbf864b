"""Whether what is urgent comes first: what is told, and of an innocent broker is not.

For each history with an inversion one as near as can be without; columns and reference must both
say so.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import msgspec
import pytest
from checker_rows import Row, agreed, dense, file_instances, o, table
from damaged import DAMAGE, DAMAGE_BESIDE, correct, damage
from test_differential import BROKERS, assert_same
from test_fates import joined
from test_findings import OPTIONS, answer, deliver, end, gone, send, tidy

from checkers import judge, reference
from checkers.source import HereSource, TablePart
from checkers.verdict import Promises


def sent(
    at: int, message: int, priority: int | None = None, outcome: str = "ok", **told: object
) -> list[Row]:
    wish = {} if priority is None else {"priority": priority}
    wish |= {name: told.pop(name) for name in ("delay",) if name in told}
    return [{**r, "group": None} for r in send(at, message, outcome, value=json.dumps(wish), **told)]


def got(at: int, message: int, session: int = 1, **told: object) -> list[Row]:
    told = {"redelivered": False, **told}
    return [{**r, "group": None, **told} for r in deliver(at, message, session)]


def acked(at: int, message: int, session: int = 1, **told: object) -> list[Row]:
    return [{**r, "group": None, **told} for r in answer(at, message, session)]


BOTH = [*sent(2, 1), *sent(4, 2, 9)]
LATE = [*got(20, 1), *got(30, 2)]
AFTER = [*BOTH, *joined(10, 1)]
"""Both were there when the session was asked for."""
BEFORE = [*joined(0, 1), *sent(2, 3), *sent(4, 1), *sent(6, 2, 9), *got(8, 3)]
"""It was there before them, and has something to answer."""
ASKED = [*BEFORE, *acked(10, 3)]
OTHER = [{**r, "session": 2} for r in acked(10, 3)]

CASES: dict[str, tuple[list[Row], Promises, bool]] = {
    "what a new session was given first was chosen when both were there": ([*AFTER, *LATE], Promises(), True),
    "the urgent one first": ([*AFTER, *got(20, 2), *got(30, 1)], Promises(), False),
    "of equal priority nothing is told": (
        [*sent(2, 1, 9), *sent(4, 2, 9), *joined(10, 1), *LATE], Promises(), False),
    "nor is the ordinary one another than none": (
        [*sent(2, 1), *sent(4, 2, 4), *joined(10, 1), *LATE], Promises(), False),
    "what was perhaps not there yet when the other was chosen was not overtaken": (
        [*BEFORE, *LATE], Promises(), False),
    "what is read behind an answer was chosen after the question": ([*ASKED, *LATE], Promises(), True),
    "though its session, as rows have it, was asked for later": (
        [*ASKED[2:], *LATE, *joined(40, 1)], Promises(), True),
    "not where answers may overtake deliveries": ([*ASKED, *LATE], Promises(answers_in_order=False), False),
    "nor if it was asked before the urgent one was there": (
        [*joined(0, 1), *sent(2, 3), *sent(4, 1), *got(6, 3), acked(8, 3)[0], *sent(9, 2, 9), acked(12, 3)[1],
         *LATE], Promises(), False),
    "nor if it was answered only after it was read": (
        [*BEFORE, acked(10, 3)[0], *got(20, 1), acked(20, 3)[1], *got(30, 2)], Promises(), False),
    "the answer to another session on its connection counts": (
        [*BEFORE, *({**r, "connection": 7} for r in OTHER), *got(20, 1, connection=7), *got(30, 2)],
        Promises(), True),
    "not on another connection": (
        [*BEFORE, *({**r, "connection": 8} for r in OTHER), *got(20, 1, connection=7), *got(30, 2)],
        Promises(), False),
    "what was sent when the urgent one was there was chosen after that": (
        [*joined(0, 1), *sent(2, 2, 9), *sent(4, 1), *LATE], Promises(), True),
    "what one producer sends says nothing of another's": (
        [*sent(2, 1, producer=2), *sent(4, 2, 9), *joined(10, 1), *LATE], Promises(), False),
    "nor what two sessions were given": (
        [*AFTER, *joined(12, 2), *got(20, 1), *got(30, 2, 2)], Promises(), False),
    "nor what another queue has": (
        [*sent(2, 1, queue="r"), *sent(4, 2, 9), *joined(10, 1), *({**r, "queue": "r"} for r in got(20, 1)),
         *got(30, 2)], Promises(), False),
    "what has a group keeps its turn": (
        [{**r, "group": "g"} if r.get("message") else r for r in [*AFTER, *LATE]], Promises(), False),
    "the urgent one of unknown outcome may have come later": (
        [*sent(2, 1), *sent(4, 2, 9, "info"), *joined(10, 1), *LATE], Promises(), False),
    "one that was sent twice, too": (
        [*BOTH, *sent(6, 2, 9), *joined(10, 1), *LATE], Promises(), False),
    "one that another broker had taken came from there": (
        [*sent(2, 1), *sent(4, 2, 9, broker="b1"), *joined(10, 1), *LATE], Promises(), False),
    "one that was delayed was not to come": (
        [*sent(2, 1), *sent(4, 2, 9, delay=[5, 6]), *joined(10, 1), *LATE], Promises(), False),
    "one that somebody may have had before was perhaps not there": (
        [*AFTER, *got(20, 1), *got(30, 2, redelivered=True)], Promises(), False),
    "what a failed attempt asked for is not what it was chosen by": (
        [*sent(0, 1, 9, "fail"), *sent(2, 1, 1), *sent(4, 2, 5), *joined(10, 1), *LATE], Promises(), True),
    "nor what was never stored with a lower one": (
        [*sent(0, 1, 1, "fail"), *sent(2, 1, 9), *sent(4, 2, 5), *joined(10, 1), *LATE], Promises(), False),
    "one that was committed was there later than it was sent": (
        [*sent(2, 1), *sent(4, 2, 9, transaction=5), *end(6, "commit", 5), *joined(10, 1), *LATE], Promises(),
        False),
    "one whose broker no row names may have come from another": (
        [*sent(2, 1), *sent(4, 2, 9, broker=None), *joined(10, 1), *got(20, 1), *got(30, 2, broker=None)],
        Promises(), False),
    "what was read before it was sent was not chosen before another": (
        [*sent(4, 2, 9), *joined(10, 1), *got(20, 1), *sent(25, 1), *got(30, 2)], Promises(), False),
    "whose producer no row names may be of two": (
        [{**r, "producer": None} if r.get("message") else r for r in [*AFTER, *LATE]], Promises(), False),
    "what no session was given may have gone to two": (
        [*sent(2, 2, 9), *sent(4, 1), *({**r, "session": None} for r in LATE)], Promises(), False),
    "what comes again comes whenever": (
        [*AFTER, *got(20, 1, redelivered=True), *got(30, 2)], Promises(), False),
    "where not every redelivery is marked nothing is told": (
        [*AFTER, *LATE], Promises(marks_redeliveries="same-process"), False),
    "what may have been received unheard was perhaps not there": (
        [*AFTER, *LATE, o(40, 13, "info", "receive", queue="q")], Promises(), False),
    "what never came is lost or stuck, not overtaken": ([*AFTER, *got(20, 1)], Promises(), False),
    "that its consumer went away says nothing": ([*AFTER, *LATE, *gone(40, 1)], Promises(), True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_both_implementations_say_so(tmp_path, case):
    rows, promises, told = CASES[case]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    found = {i.name for i in agreed(tmp_path, tidy(rows), options)}
    assert ("priority-inversion" in found) == told


def verdict(rows, options=OPTIONS):
    whole = table(dense(tidy(rows)))
    carries = [r["f"] in ("send", "deliver", "ack") for r in whole.to_pylist()]
    control = whole.filter([not one for one in carries])
    last = whole["time"].to_pylist()[-1]
    return judge.judge(HereSource([TablePart(0, whole.filter(carries))], control, last, len(whole)), options)


MANY = [*sent(1, 1), *sent(3, 2), *sent(5, 3, 0), *sent(7, 4, 9), *sent(9, 5, 5), *joined(12, 1)]
"""Then 1, 4, 2, 3, 5: the last was overtaken by three, 4 by one."""


def test_it_is_told_how_often_and_how_far_and_makes_nothing_invalid():
    rows = [*MANY, *got(20, 1), *got(22, 4), *got(24, 2), *got(26, 3), *got(28, 5)]
    (finding,) = verdict(rows).findings
    assert (finding.name, finding.severity, finding.count) == ("priority-inversion", "info", 2)
    assert 'message 4 (queue "q") of priority 9, sent for certain at 0.008 s' in finding.sentence
    assert "after message 1 of priority 4" in finding.sentence
    assert "at worst 3 of lower priority overtook message 5 (the first of 2)" in finding.sentence
    assert finding.details["worst"] == {"queue": "q", "message": 5, "overtakers": 3}


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_no_guarantee_makes_it_more_than_an_info(guarantee):
    options = msgspec.structs.replace(OPTIONS, guarantee=guarantee)
    (finding,) = verdict([*AFTER, *LATE], options).findings
    assert finding.severity == "info"


@pytest.mark.parametrize("rows", [[*AFTER, *LATE], [*ASKED, *LATE]])
def test_its_witness_shows_it_again(rows):
    (finding,) = verdict(rows).findings
    shown = list(finding.witness.rows)
    assert finding.name in {i.name for i in reference.find(shown, OPTIONS)}
    assert {r.get("message") for r in shown} <= {1, 2, 3, None}


@pytest.mark.slow
@pytest.mark.in_turn
def test_they_agree_on_damaged_histories_with_priorities(tmp_path):
    agreed_on: Counter[str] = Counter()
    for seed in range(120):
        chance = random.Random(seed)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(0, 3))
        ]
        rows = damage(correct(seed), [("hurry", seed), *edits], {**DAMAGE, **DAMAGE_BESIDE})
        options = msgspec.structs.replace(OPTIONS, broker=BROKERS[seed % len(BROKERS)])
        found = file_instances(tmp_path / str(seed), rows, options, slice_rows=7 if seed % 2 else 10**6)
        assert_same(found, rows, options)
        agreed_on.update(i.name for i in found)
    assert agreed_on["priority-inversion"] > 5
