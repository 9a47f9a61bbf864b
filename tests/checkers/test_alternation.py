"""Groups that go back and forth between sessions, and groups that a message closed.

Of each clause a history that is guilty, and one as near as can be that is innocent.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from checker_rows import Row, agreed
from test_fates import answer, joined, left
from test_findings import OPTIONS, deliver, gone, send, tidy
from test_selected_order import RED, consumer

CLOSE = '{"close": true}'


def sent(count: int, **columns: object) -> list[Row]:
    """The sends of messages 1 to ``count``; ``columns`` of the first."""
    return [row for n in range(1, count + 1) for row in send(10 + 2 * n, n, **(columns if n == 1 else {}))]


def read(sessions: Sequence[int], start: int = 100, first: int = 1, **columns: object) -> list[Row]:
    """Deliveries of one message after the other, ten rows apart, each to the next session."""
    return [
        row
        for n, session in enumerate(sessions)
        for row in deliver(start + 10 * n, first + n, session, **columns)
    ]


BOTH = [*joined(0, 1), *joined(2, 2)]
SEVEN = [1, 2, 1, 2, 1, 2, 1]
"""Six changes of session."""

CASES: dict[str, tuple[list[Row], set[int]]] = {
    "six changes of session are a split": ([*BOTH, *sent(7), *read(SEVEN)], {160}),
    "five are none": ([*BOTH, *sent(6), *read(SEVEN[:6])], set()),
    "six changes are a split, though everything was acknowledged": (
        [*BOTH, *sent(7), *read(SEVEN),
         *(row for n in range(7) for row in answer(102 + 10 * n, 1 + n, SEVEN[n]))], {160}),
    "deliveries to the session that has the group are no changes": (
        [*BOTH, *sent(9), *read([1, 1, 2, 2, 1, 1, 2, 2, 1])], set()),
    "changes in two groups are not added up": (
        [*BOTH, *sent(7), *(row | {"group": "h" if n % 2 else "g"} for n, row in enumerate(read(SEVEN)))],
        set()),
    "messages without a group may come to any session": (
        [row | {"group": None} if "group" in row else row for row in [*BOTH, *sent(7), *read(SEVEN)]], set()),
    # ------------------------------------------------------------------------------- what explains
    "a redelivery explains the changes before it": (
        [*BOTH, *sent(7), *read(SEVEN), *deliver(135, 1, 2, redelivered=True)], set()),
    "a delivery that says that it is one does, too": (
        [*BOTH, *sent(7), *read(SEVEN[:3]), *read(SEVEN[3:4], 130, 4, redelivered=True),
         *read(SEVEN[4:], 140, 5)], set()),
    "a delivery that says so explains changes, acknowledged or not": (
        [*BOTH, *sent(7), *read(SEVEN[:3]), *read(SEVEN[3:4], 130, 4, redelivered=True),
         *read(SEVEN[4:], 140, 5),
         *(row for n in range(7) for row in answer(102 + 10 * n, 1 + n, SEVEN[n]))], set()),
    "and so does one that counts itself as the second": (
        [*BOTH, *sent(7), *read(SEVEN[:3]), *read(SEVEN[3:4], 130, 4, delivery_count=2),
         *read(SEVEN[4:], 140, 5)], set()),
    "a mark explains the change to the delivery that has it": (
        [*BOTH, *sent(7), *read(SEVEN[:6]), *read(SEVEN[6:], 160, 7, redelivered=True)], set()),
    "a mark explains the change from the delivery that has it": (
        [*BOTH, *sent(7), *read(SEVEN[:1], redelivered=True), *read(SEVEN[1:], 110, 2)], set()),
    "a session that had the group before what explains a change does not return to it": (
        [*BOTH, *sent(8), *read(SEVEN[:2]), *deliver(115, 1, 2, redelivered=True),
         *read(SEVEN[:6], 120, 3)], set()),
    "eight changes are one split": (
        [*BOTH, *sent(9), *read([*SEVEN, 2, 1]),
         *(row for n in range(9) for row in answer(102 + 10 * n, 1 + n, (SEVEN * 2)[n % 2]))], {160}),
    "six changes behind a redelivery are a split": (
        [*BOTH, *sent(8), *deliver(90, 8, 1), *deliver(95, 8, 1, redelivered=True), *read(SEVEN)], {160}),
    "the end of any session of the queue explains the changes before it": (
        [*BOTH, *joined(4, 3), *sent(7), *read(SEVEN), *left(135, 3, queue="q")], set()),
    "the end of a session of another queue does not": (
        [*BOTH, *joined(4, 3), *sent(7), *read(SEVEN), *left(135, 3, queue="r")], {160}),
    "the end of a session of an unknown queue does": (
        [*BOTH, *joined(4, 3), *sent(7), *read(SEVEN), *left(135, 3)], set()),
    "the end of a session after the sixth change does not": (
        [*BOTH, *joined(4, 3), *sent(7), *read(SEVEN), *left(165, 3)], {160}),
    "the loss of the session that was left, seen later, explains the changes before it": (
        [*BOTH, *joined(4, 3), *sent(8), *read([1, 2, 3, 1, 2, 1, 2, 1]), *gone(185, 3)], set()),
    "the loss of the session that was left explains that, whichever session comes next": (
        [*BOTH, *joined(4, 3), *sent(8), *read([1, 2, 1, 3, 1, 3, 1, 3]), *gone(185, 2)], set()),
    "the loss of the session that was left explains that, though it came back to another group": (
        [*BOTH, *joined(4, 3), *joined(6, 4), *sent(8), *read([1, 3, 1, 2, 1, 2, 1, 2]),
         *(row | {"group": "h"} for n in range(7) for row in send(40 + 2 * n, 11 + n)),
         *(row | {"group": "h"} for row in read([3, 4, 3, 4, 3, 4, 3], 200, 11)), *gone(285, 3)], {260}),
    "the loss of a session that came back later does not": (
        [*BOTH, *sent(7), *read(SEVEN), *gone(185, 1)], {160}),
    "a session that was left in order later had not ended": (
        [*BOTH, *joined(4, 3), *sent(8), *read([1, 2, 3, 1, 2, 1, 2, 1]), *left(185, 3)], {170}),
    "a consumer with a selector explains changes while it may be there": (
        [*BOTH, *consumer(4, 3, RED), *sent(7), *read(SEVEN)], set()),
    "a consumer with a selector explains no change before it came": (
        [*BOTH, *sent(7), *read(SEVEN), *consumer(165, 3, RED)], {160}),
    "a consumer with a selector explains the changes before it came": (
        [*BOTH, *sent(7), *read(SEVEN), *consumer(135, 3, RED), *left(138, 3, queue="q")], set()),
    # ----------------------------------------------------------------------------- closing messages
    "a closing message explains the changes before it": (
        [*BOTH, *sent(7, value=None), *send(60, 8, value=CLOSE), *read(SEVEN[:3]), *deliver(125, 8, 1),
         *answer(126, 8, 1), *read(SEVEN[3:], 130, 4)], set()),
    "a closing message that nobody has read yet may have been given out": (
        [*BOTH, *sent(7), *send(60, 8, value=CLOSE), *read(SEVEN)], set()),
    "a closing message that was sent later has not": (
        [*BOTH, *sent(7), *read(SEVEN), *send(162, 8, value=CLOSE)], {160}),
    "a closing message of which nobody asked that it be sent has not": (
        [*BOTH, *sent(7), send(60, 8, value=CLOSE)[1], *read(SEVEN)], {160}),
    "a closing message that was acknowledged before has not": (
        [*BOTH, *sent(7), *send(60, 8, value=CLOSE), *deliver(80, 8, 1), *answer(82, 8, 1), *read(SEVEN)],
        {160}),
    "a closing message that may come again may have been given out again": (
        [*BOTH, *sent(7), *send(60, 8, value=CLOSE), *deliver(80, 8, 1), *read(SEVEN)], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_group_that_alternates_is_split(tmp_path, case):
    rows, expected = CASES[case]
    found = agreed(tmp_path, tidy(rows), OPTIONS)
    assert {i.index for i in found if i.name == "group-split"} == expected


TWO_HOLD = [*deliver(40, 1, 1), *deliver(42, 2, 2), *answer(50, 1, 1), *answer(52, 2, 2)]
"""Session 1 holds message 1 while session 2 holds message 2."""
BACKWARDS = [*deliver(40, 3, 2), *deliver(42, 1, 1), *deliver(44, 2, 1)]
"""Message 3 is read in session 2 before messages 1 and 2 are read in session 1."""
GIVEN_BACK = [
    *deliver(40, 1, 1),
    *deliver(42, 2, 1),
    *answer(44, 2, 1),
    *deliver(46, 3, 2),
    *gone(50, 1),
    *deliver(52, 1, 2, redelivered=True),
]
"""Session 1 is lost with message 1, which comes to session 2 behind message 3."""

CLOSED: dict[str, tuple[list[Row], set[str]]] = {
    "two sessions hold one group": ([*BOTH, *send(10, 1), *send(12, 2), *TWO_HOLD], {"group-split"}),
    "two sessions may hold a group that was closed between": (
        [*BOTH, *send(10, 1, value=CLOSE), *send(12, 2), *TWO_HOLD], set()),
    "two sessions may hold a group of which a closing message was not read yet": (
        [*BOTH, *send(10, 1), *send(12, 2), *send(14, 3, value=CLOSE), *TWO_HOLD], set()),
    "two sessions hold a group that was closed before": (
        [*BOTH, *send(4, 3, value=CLOSE, sequence=0), *deliver(6, 3, 1, sequence=0), *answer(8, 3, 1),
         *send(10, 1), *send(12, 2), *TWO_HOLD], {"group-split"}),
    "two sessions hold a group that is closed afterwards": (
        [*BOTH, *send(10, 1), *send(12, 2), *TWO_HOLD, *send(60, 3, value=CLOSE)], {"group-split"}),
    "what came behind a closing message may be read before it": (
        [*BOTH, *send(10, 1), *send(12, 2, value=CLOSE), *send(14, 3), *BACKWARDS], set()),
    "what came before a closing message must not be read behind what came before it, too": (
        [*BOTH, *send(10, 1), *send(12, 2), *send(14, 3), *send(16, 4, value=CLOSE), *BACKWARDS,
         *deliver(46, 4, 1)], {"reordered", "reordered-realtime", "not-linearizable"}),
    "what was given back may come behind what the next session got since the group was closed": (
        [*BOTH, *send(10, 1), *send(12, 2, value=CLOSE), *send(14, 3), *GIVEN_BACK], set()),
    "what was given back must not come behind what the next session got of a group that was not": (
        [*BOTH, *send(10, 1), *send(12, 2), *send(14, 3), *GIVEN_BACK], {"reordered-session"}),
    "what came behind a closing message must not be read before it when that was read": (
        [*BOTH, *send(8, 4, value=CLOSE, sequence=0), *send(10, 1), *send(12, 2), *send(14, 3),
         *deliver(30, 4, 1, sequence=0), *BACKWARDS],
        {"reordered", "reordered-realtime", "not-linearizable"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CLOSED)
def test_a_group_that_was_closed(tmp_path, case):
    rows, expected = CLOSED[case]
    found = agreed(tmp_path, tidy(rows), OPTIONS)
    assert {i.name for i in found if i.name != "unflagged-redelivery"} == expected
