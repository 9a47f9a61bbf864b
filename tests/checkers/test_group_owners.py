"""Whose a group is: first deliveries that alternate between two sessions, and groups that close.

Of each clause a history that is guilty, and one as near as can be that is innocent, judged by both
implementations.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from checker_rows import Row, agreed, o
from test_attempts import attempt
from test_fates import left
from test_findings import OPTIONS, answer, deliver, gone, send, tidy
from test_selected_order import RED, consumer

from checkers import reference

CLOSE = json.dumps({"close": True})
SPLIT = {"group-split"}
THERE = [*consumer(0, 1), *consumer(2, 2)]


def sends(count: int, closing: int | None = None) -> list[Row]:
    value = {closing: CLOSE}
    return [r for n in range(1, count + 1) for r in send(10 + 2 * n, n, value=value.get(n))]


def turns(*sessions: int, first: int = 1, at: int = 100, **columns: object) -> list[Row]:
    """First deliveries of messages in order, each to the session that is told, ten rows apart."""
    return [
        r for n, session in enumerate(sessions) for r in deliver(at + 10 * n, first + n, session, **columns)
    ]


SIX = turns(1, 2, 1, 2, 1, 2, 1)
"""Six changes; the last is at row 160."""
STORY = [*THERE, *sends(7)]

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "six changes are more than a handful": ([*STORY, *SIX], SPLIT),
    "five changes are a handful": ([*STORY, *turns(1, 2, 1, 2, 1, 2, 2)], set()),
    "several messages in a turn are one turn": (
        [*THERE, *sends(14), *turns(1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2)], set()),
    "six changes between longer turns are too many, too": (
        [*THERE, *sends(14), *turns(1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1)], SPLIT),
    "what was acknowledged before the next turn alternates, too": (
        [*STORY, *SIX, *(r for n in range(7) for r in answer(101 + 10 * n, 1 + n, 1 + n % 2))], SPLIT),
    "messages without a group may go to anybody": (
        [{**r, "group": None} if "group" in r else r for r in [*STORY, *SIX]], set()),
    "each group has an owner of its own": (
        [*THERE, *(r for r in [*sends(9), *turns(1, 2, 1, 2, 1, 2, 1, 2, 1)] if r["message"] % 2),
         *({**r, "group": "h"} for r in [*sends(9), *turns(1, 2, 1, 2, 1, 2, 1, 2, 1)]
           if not r["message"] % 2)], set()),
    "seven sessions that have it one after the other do not alternate": (
        [*sends(7), *turns(1, 2, 3, 4, 5, 6, 7)], set()),
    "a session that had not had it yet is none that it returns to": (
        [*THERE, *sends(8), *turns(1, 2, 1, 2, 3, 2, 3, 4)], set()),
    "three that have it in turn alternate when it has returned five times": (
        [*THERE, *sends(8), *turns(1, 2, 3, 1, 2, 3, 1, 2)], SPLIT),
    "three that have it in turn do not yet when it has returned four times": (
        [*THERE, *sends(7), *turns(1, 2, 3, 1, 2, 3, 1)], set()),
    "two that alternate behind a third do so all the same": (
        [*THERE, *sends(9), *turns(3, 1, 2, 1, 2, 1, 2, 1)], SPLIT),
    # ------------------------------------------------------------------------------ redeliveries
    "a redelivery in between explains it": (
        [*STORY, *SIX, *deliver(135, 4, 1, redelivered=True)], set()),
    "a redelivery afterwards does not": (
        [*STORY, *SIX, *deliver(165, 7, 1, redelivered=True), *answer(161, 7, f="nack")], SPLIT),
    "a first delivery that says that it is none explains it": (
        [*STORY, *turns(1, 2, 1), *deliver(130, 4, 2, redelivered=True), *turns(1, 2, 1, first=5, at=140)],
        set()),
    "a first delivery that counts more explains it": (
        [*STORY, *turns(1, 2, 1), *deliver(130, 4, 2, delivery_count=2), *turns(1, 2, 1, first=5, at=140)],
        set()),
    "a first delivery that counts one does not": (
        [*STORY, *turns(1, 2, 1, 2, 1, 2, 1, delivery_count=1)], SPLIT),
    # ------------------------------------------------------------------------------ ends
    "the end of a session in between explains it": (
        [*STORY, *SIX, o(135, 12, "invoke", "unsubscribe", session=2, queue="q"),
         o(165, 12, "ok", "unsubscribe", session=2, queue="q", broker="a1")], set()),
    "the end of another session of the queue explains it": (
        [*STORY, *consumer(4, 3), *SIX, *left(135, 3)], set()),
    "the end of a session of another queue does not": (
        [*STORY, *consumer(4, 3, queue="r"), *SIX, *[{**r, "queue": "r"} for r in left(135, 3)]], SPLIT),
    "the end of a session afterwards does not": ([*STORY, *SIX, *left(165, 1)], SPLIT),
    "the end of a session before does not": ([*STORY, *consumer(4, 3), *left(50, 3), *SIX], SPLIT),
    "a session that is found lost later may have ended when it was left": (
        [*STORY, *turns(1, 2, 1, 2, 1, 2, 3), *gone(170, 2)], set()),
    # ------------------------------------------------------------------------------ selectors
    "a consumer with a selector in between explains it": (
        [*STORY, *consumer(4, 3, RED), *SIX], set()),
    "a consumer with a selector that had left before does not": (
        [*STORY, *consumer(4, 3, RED), *left(50, 3), *SIX], SPLIT),
    "a consumer with a selector that came later does not": ([*STORY, *SIX, *consumer(165, 3, RED)], SPLIT),
    # ------------------------------------------------------------------------------ closed groups
    "a message that closes the group in between explains it": (
        [*THERE, *sends(7, closing=4), *SIX], set()),
    "a message that closes the group afterwards does not": (
        [*STORY, *SIX, *send(165, 8, value=CLOSE)], SPLIT),
    "a message that closed the group before, and is settled, does not": (
        [*THERE, *send(4, 20, value=CLOSE, producer=2), *deliver(8, 20, 1, producer=2), *answer(9, 20),
         *sends(7), *SIX], SPLIT),
    "a message that closed the group before, and may come again, does": (
        [*THERE, *send(4, 20, value=CLOSE, producer=2), *deliver(8, 20, 1, producer=2), *sends(7), *SIX],
        set()),
    "a message of another group closes it not": (
        [*STORY, *send(50, 20, value=CLOSE, group="h"), *SIX], SPLIT),
    "a message that was refused closes nothing": ([*STORY, *send(50, 20, "fail", value=CLOSE), *SIX], SPLIT),
    "a message that was refused, and then may have been sent, closes it": (
        [*STORY, *attempt(50, 20, "fail", value=CLOSE), *attempt(52, 20, "info", by=2, value=CLOSE),
         *SIX], set()),
    # ------------------------------------------------------------------- the order of closed groups
    "what a new owner reads before the old one is in order": (
        [*THERE, *sends(3, closing=2), *deliver(100, 3, 2), *deliver(101, 1, 1), *deliver(102, 2, 1)], set()),
    "what a new owner reads before the old one is out of order where nothing was closed": (
        [*THERE, *sends(3), *deliver(100, 3, 2), *deliver(101, 1, 1), *deliver(102, 2, 1)],
        {"reordered", "reordered-realtime", "not-linearizable"}),
    "what is read when the closing message has been read is in order": (
        [*THERE, *sends(3, closing=1), *deliver(100, 1, 1), *deliver(101, 3, 2), *deliver(102, 2, 2)],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "so is what is first read when a later one has come again": (
        [*THERE, *sends(3, closing=1), *deliver(100, 1, 1), *deliver(101, 3, 1), *gone(102, 1),
         *deliver(104, 3, 2, redelivered=True), *deliver(105, 2, 2)],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what was given back may come when a later one has been read": (
        [*THERE, *sends(3, closing=1), *deliver(100, 1, 1), *deliver(101, 2, 1), *gone(102, 1),
         *deliver(104, 3, 2), *deliver(105, 2, 2, redelivered=True)], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_whose_a_group_is(tmp_path, case):
    rows, expected = CASES[case]
    assert {i.name for i in agreed(tmp_path, tidy(rows), OPTIONS)} == expected


HELD_LONG = [*send(4, 20, producer=2), *deliver(6, 20, 1, producer=2)]
LOOSE: dict[str, tuple[list[Row], set[str]]] = {
    "what was acknowledged before the next turn may go to anybody": (
        [*STORY, *SIX, *(r for n in range(6) for r in answer(101 + 10 * n, 1 + n, 1 + n % 2))], set()),
    "so may what was refused": (
        [*STORY, *SIX,
         *(r for n in range(6) for r in answer(101 + 10 * n, 1 + n, 1 + n % 2, f="nack"))], set()),
    "an answer that came later tells of the question": (
        [*STORY, *SIX, *(answer(105 + 10 * n, 1 + n, 1 + n % 2)[0] for n in range(6)),
         *({**answer(0, 1 + n, 1 + n % 2)[1], "index": 170 + n, "time": (170 + n) * 10**6}
           for n in range(6))], set()),
    "an answer that was asked for after the next turn does not": (
        [*STORY, *SIX, *(r for n in range(6) for r in answer(111 + 10 * n, 1 + n, 1 + n % 2))], SPLIT),
    "acknowledgements of unknown outcome let go of nothing for certain": (
        [*STORY, *SIX, *(r for n in range(6) for r in answer(101 + 10 * n, 1 + n, 1 + n % 2, "info"))],
        SPLIT),
    "nor do acknowledgements that nobody asked for": ([*STORY, *SIX], SPLIT),
    "nor while the sessions hold something else of the group": (
        [*THERE, *HELD_LONG, *send(7, 21, producer=3), *deliver(9, 21, 2, producer=3), *sends(7), *SIX,
         *(r for n in range(6) for r in answer(101 + 10 * n, 1 + n, 1 + n % 2))], SPLIT),
    "what was taken back and went to the other session is not held": (
        [*THERE, *HELD_LONG, o(7, 11, "info", "timeout", 20, session=1, producer=2, sequence=20),
         *deliver(8, 20, 2, producer=2, redelivered=True), *answer(9, 20, 2), *sends(7), *SIX,
         *(r for n in range(6) for r in answer(101 + 10 * n, 1 + n, 1 + n % 2))], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOSE)
def test_whose_a_group_is_that_does_not_stay_with_its_session(tmp_path, case):
    rows, expected = LOOSE[case]
    loose = msgspec.structs.replace(OPTIONS.broker, sticky_groups=False)
    options = msgspec.structs.replace(OPTIONS, broker=loose)
    found = {i.name for i in agreed(tmp_path, tidy(rows), options)}
    assert found & SPLIT == expected


def test_the_split_is_told_by_the_delivery_that_exceeds_the_handful():
    assert [i.index for i in reference.find(tidy([*STORY, *SIX]), OPTIONS)] == [160]


def test_two_that_hold_a_group_at_once_are_told_before_they_alternate():
    held = [*answer(145, 4, 2), *answer(155, 3, 1)]
    found = reference.find(tidy([*STORY, *SIX, *held]), OPTIONS)
    assert [i.index for i in found if i.name == "group-split"] == [110]


def test_two_hold_a_group_at_once_unless_it_was_closed():
    held = [*deliver(100, 1, 1), *deliver(110, 2, 2), *answer(120, 1, 1), *answer(130, 2, 2)]
    for closing, expected in ((None, SPLIT), (1, set())):
        found = reference.find(tidy([*THERE, *sends(2, closing), *held]), OPTIONS)
        assert {i.name for i in found} == expected
