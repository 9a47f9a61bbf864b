"""What conflicts of sessions are proven by, and which row is told.

The names of the cases are what they prove; columns and reference must both say so.
"""

from __future__ import annotations

import pytest
from checker_rows import Row, agreed
from test_findings import answer, deliver, gone, send, tidy
from test_selected_order import consumer

from checkers.verdict import CheckOptions

BOTH = [*consumer(0, 1), *consumer(2, 2)]
LATE_ORDER = {("not-linearizable", 20), ("reordered", 21), ("reordered-realtime", 21)}
ALIVE = [
    *consumer(0, 1), *send(10, 1), *send(12, 2, group="h"), *deliver(20, 1), *deliver(21, 2, group="h"),
    *consumer(24, 2), *deliver(30, 1, 2, redelivered=True), *answer(40, 2, group="h"),
]  # fmt: skip
"""Session 1 was given message 1 before there was a session 2, and was answered in another group."""
SPLIT = {("double-delivery", 30), ("group-split", 30)}

CASES: dict[str, tuple[list[Row], set[tuple[str, int]]]] = {
    "what says nothing of its producer has no place in its line": (
        [*BOTH, *send(10, 1), *send(12, 2), *deliver(20, 2, producer=None), *deliver(21, 1, producer=None)],
        LATE_ORDER),
    "what says its producer goes back": (
        [*BOTH, *send(10, 1), *send(12, 2), *deliver(20, 2), *deliver(21, 1)],
        {*LATE_ORDER, ("reordered-session", 21)}),
    "of several deliveries without a mark the first is told, whatever its session": (
        [*BOTH, *consumer(4, 3), *send(10, 1), *deliver(20, 1, 3), *gone(21, 3), *deliver(22, 1, 2),
         *gone(23, 2), *deliver(24, 1, 1)], {("unflagged-redelivery", 22)}),
    "a session that was answered later held what it had": (ALIVE, SPLIT),
    "an answer to nothing, read in another part, takes nothing back of that": (
        [*ALIVE, *answer(50, 3, group="i")[1:]], {*SPLIT, ("phantom", 51)}),
    "nor does what nobody sent": (
        [*ALIVE, *deliver(50, 3, group="i")], {*SPLIT, ("phantom", 50)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_implementations_say_so(tmp_path, name):
    rows, expected = CASES[name]
    assert {(one.name, one.index) for one in agreed(tmp_path, tidy(rows), CheckOptions())} == expected
