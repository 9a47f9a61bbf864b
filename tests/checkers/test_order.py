"""Order within a group whose sequences are missing or contradict the sends.

The names of the cases are what they prove; columns and reference must both say so.
"""

from __future__ import annotations

import pytest
from checker_rows import MS, Row, agreed
from test_attempts import attempt
from test_fates import left
from test_findings import answer, deliver, send, tidy
from test_selected_order import RED, consumer, of

from bench.agreement import on_columns
from checkers.verdict import CheckOptions

BOTH = [*consumer(0, 1), *consumer(2, 2)]


def moved(rows: list[Row], by: int = 0, group: str = "g") -> list[Row]:
    """The same with ten rows for each, in another group as other messages."""
    found = []
    for row in rows:
        at = 10 * row["index"] + by
        other = {"group": group} | {
            name: row[name] + by for name in ("message", "sequence", "digest") if name in row
        }
        found.append({**row, **(other if "group" in row else {}), "index": at, "time": at * MS})
    return found


def whole(at: int, message: int, session: int, **columns: object) -> list[Row]:
    """A delivery that is acknowledged at once."""
    return [*deliver(at, message, session, **columns), *answer(at + 1, message, session, **columns)]


def twice(at: int, message: int, sequence: int, **columns: object) -> list[Row]:
    """A message that is sent twice, the second time long after all others."""
    return [
        row
        for when in (at, 30 + 2 * message)
        for row in attempt(when, message, "ok", by=message, sequence=sequence, **columns)
    ]


def read(at: int, message: int, sequence: int, session: int = 1, **columns: object) -> list[Row]:
    return deliver(at, message, session, sequence=sequence, **columns)


def later(rows: list[Row]) -> list[Row]:
    """The same a hundred rows later."""
    return [{**row, "index": row["index"] + 100, "time": row["time"] + 100 * MS} for row in rows]


NAMELESS = {"sequence": None}
PASSED = [
    *send(20, 2, value=of("red")), *send(30, 1, value=of("blue")), *deliver(40, 2), *deliver(50, 1)
]  # fmt: skip
"""A red message is read first, which was sent before a blue one with a lower number."""
CONTRADICTION = [*twice(10, 1, 5), *twice(20, 2, 3), *twice(5, 3, 9)]
"""Message 2 was sent behind message 1 with a lower number, message 3 before with a higher one."""
BEHIND = [*read(60, 2, 3), *read(61, 3, 9, 2)]


def late(*messages: int) -> set[tuple[str, int]]:
    """Late in every way, and in their session."""
    return {(f"reordered{how}", n) for n in messages for how in ("", "-realtime", "-session")}


BY_TIME = {("reordered-realtime", 1), ("reordered-realtime", 3), ("not-linearizable", 2)}

CASES: dict[str, tuple[list[Row], set[tuple[str, int | None]]]] = {
    "messages without a group keep no order beside a group": (
        [*BOTH, *(r for n in range(1, 7) for r in send(2 + 2 * n, n, group=None)), *send(16, 7),
         *(r for n in range(1, 7) for r in whole(40 - 3 * n, n, 1, group=None)), *whole(50, 7, 1)],
        set()),
    "in each of two groups a message is late behind what a consumer cannot have passed": (
        [*moved([*consumer(0, 1), *consumer(2, 3, RED), *left(24, 3)]), *moved(PASSED),
         *moved(PASSED, 5, "h")],
        {(name, n) for name in ("reordered", "reordered-session") for n in (1, 6)}),
    "in none of two is it behind what one that came in time may have passed": (
        [*moved([*consumer(0, 1), *consumer(35, 3, RED)]), *moved(PASSED), *moved(PASSED, 5, "h")], set()),
    "what has no number is late by when it was sent alone": (
        [*BOTH, *send(10, 1, **NAMELESS), *send(12, 2), *deliver(20, 2, 1), *deliver(22, 1, 2, **NAMELESS)],
        {("reordered-realtime", 1), ("not-linearizable", 2)}),
    "so it is beside a consumer with a selector": (
        [*BOTH, *consumer(4, 3, RED), *send(10, 1, **NAMELESS), *send(12, 2), *deliver(20, 2, 1),
         *deliver(22, 1, 2, **NAMELESS)], {("reordered-realtime", 1), ("not-linearizable", 2)}),
    "so it is beside what was sent twice": (
        [*BOTH, *send(10, 1, **NAMELESS), *send(12, 2), *twice(14, 3, 7), *deliver(20, 2, 1),
         *deliver(22, 1, 2, **NAMELESS), *read(24, 3, 7)],
        {("reordered-realtime", 1), ("not-linearizable", 2)}),
    "and what was sent twice without a number": (
        [*BOTH, *attempt(10, 1, "ok", by=1, **NAMELESS), *attempt(12, 1, "ok", by=1, **NAMELESS),
         *send(14, 2, sequence=4), *deliver(20, 2, 1, sequence=4), *deliver(22, 1, 2, **NAMELESS)],
        {("reordered-realtime", 1), ("not-linearizable", 2)}),
    "what may have been sent only later is not late beside a consumer with a selector, either": (
        [*BOTH, *consumer(4, 3, RED), *send(10, 1, "info"), *send(12, 2), *deliver(20, 2), *deliver(22, 1)],
        set()),
    "what nobody sent leaves a group in order, whatever another has before it": (
        [*BOTH, *send(4, 7, group="a"), *deliver(6, 7, group="a"), *send(10, 1), *send(20, 9, group="a"),
         *deliver(25, 9, group="a"), *deliver(30, 8, sequence=None), *deliver(31, 1)], {("phantom", 8)}),
    "one before it with a higher number, and another that was sent behind it, are no proof": (
        [*BOTH, *CONTRADICTION, *BEHIND, *read(70, 1, 5)], BY_TIME),
    "one that was sent behind it with a higher number is": (
        [*BOTH, *CONTRADICTION, *twice(15, 4, 7), *BEHIND, *read(65, 4, 7), *read(70, 1, 5)],
        {*BY_TIME, ("reordered-realtime", 4), *late(1)}),
    "not if another producer sent that": (
        [*BOTH, *CONTRADICTION, *twice(15, 4, 7, producer=0), *BEHIND, *read(65, 4, 7, producer=0),
         *read(70, 1, 5)], {*BY_TIME, ("reordered-realtime", 4)}),
    "not if a consumer may have passed the late one with it": (
        [*BOTH, *consumer(80, 3, RED), *later([*CONTRADICTION, *BEHIND, *read(70, 1, 5)]),
         *later([*twice(15, 4, 7, value=of("red")), *read(65, 4, 7)])],
        {*BY_TIME, ("reordered-realtime", 4)}),
    "what is late by its number is late whatever else contradicts it": (
        [*BOTH, *send(10, 1, sequence=5), *send(12, 4, sequence=8), *twice(20, 2, 3), *twice(5, 3, 9),
         *read(59, 4, 8), *BEHIND, *read(70, 1, 5)],
        {("not-linearizable", 4), ("reordered-realtime", 3), *late(1)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_implementations_say_so(tmp_path, name):
    rows, expected = CASES[name]
    rows = tidy(rows)
    found = agreed(tmp_path, rows, CheckOptions())
    assert {(one.name, one.message) for one in found} == expected
    assert on_columns([rows], CheckOptions(), 1, parts=1) == [found]
