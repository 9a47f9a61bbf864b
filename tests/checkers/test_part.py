"""What the families of rules are given of one part of a history, and what the part answers.

Histories are judged by both implementations; columns judge them in parts of one group each.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from checker_rows import MS, Row, agreed, finished, table
from test_fates import joined, left
from test_findings import OPTIONS, answer, deliver, end, gone, kept, send, tidy
from test_selected_order import consumer

from checkers import breakage, delivery, ends, part
from checkers.part import GROUP_FAMILIES, ROW_FAMILIES, PartAnswer, Question
from checkers.source import HistoryError, TablePart
from checkers.verdict import CheckOptions, Promises

NEWS = "/topic/news"
LACKING = frozenset({"subscription"})
ONE = send(0, 1)
NAMELESS = [*send(0, 1, queue=NEWS), *deliver(5, 1, queue=NEWS)]
"""A message of a topic, and its delivery to no subscription that has a name."""


@dataclasses.dataclass(frozen=True)
class Sliced:
    """A part that has a slice for each list of rows; ``broken`` is why no more can be read."""

    slice_rows: Sequence[Sequence[Row]]
    broken: str | None = None
    number: int = 0

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for rows in self.slice_rows:
            yield from TablePart(0, table(rows)).slices(columns)
        if self.broken is not None:
            raise HistoryError(self.broken)


def crashing(*_: object) -> None:
    raise RuntimeError("our own bug")


def asked(
    rows: dict[str, Any], groups: dict[str, Any], *slice_rows: Sequence[Row], broken: str | None = None,
    **known: Any,
) -> PartAnswer:  # fmt: skip
    """Let families judge one part of some slices, by default as if there were no control rows."""
    question = Question(**{"ends": ends.read(table([])), "examples": 10, "bound_ns": 10**9, **known})
    return part.answer(Sliced(slice_rows, broken), question, rows, groups)


# ------------------------------------------------------------------------------- families that fail


def test_a_family_past_its_limit_is_ended():
    """A family that takes longer than its limit is ended, and what handles alarms is as before."""
    handler = signal.getsignal(signal.SIGALRM)
    got = asked({"reach": lambda *_: time.sleep(1)}, {}, ONE, limit_s=0.01)
    assert got.failed == {"reach": "reach did not end within 0.01 s"}
    assert not got.results.get("reach")
    assert signal.getsignal(signal.SIGALRM) is handler


def test_nothing_is_ended_when_its_family_has_answered():
    """The limit of a family that has answered ends nothing that comes later."""
    got = asked({"groups": ROW_FAMILIES["groups"]}, {}, ONE)
    assert got.failed == {}
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_family_that_crashes_says_so_and_the_others_answer():
    """An error of a family is its own answer alone."""
    got = asked({"reach": crashing, "groups": ROW_FAMILIES["groups"]}, {}, ONE)
    assert got.failed == {"reach": "reach crashed: RuntimeError: our own bug"}
    assert got.results["groups"] == [frozenset()]


def test_a_family_that_marked_only_some_slices_judges_nothing(monkeypatch):
    """Where the marks of one slice are missing, the family "delivery" has no result."""
    marks = delivery.marks

    def marks_of_one(rows: Any, *rest: Any) -> Any:
        return marks(rows, *rest) if 1 in rows.message else crashing()

    monkeypatch.setattr(delivery, "marks", marks_of_one)
    got = asked({}, GROUP_FAMILIES, send(0, 1), send(2, 2))
    assert got.failed == {"delivery": "delivery crashed: RuntimeError: our own bug"}
    assert sorted(got.results) == ["fifo", "order", "sessions"]


@pytest.mark.parametrize("readable", [[], [ONE]])
def test_a_part_that_cannot_be_read_says_so(readable):
    """A part that cannot be read, or not to its end, answers why, whatever the families are."""
    got = asked(ROW_FAMILIES, GROUP_FAMILIES, *readable, broken="part-00000.parquet cannot be read")
    assert got.failed == {}
    (look,) = got.results[part.LOOK]
    assert str(look.broken) == "part-00000.parquet cannot be read"


# ----------------------------------------------------------------------------- rows that are broken


def test_a_consumer_of_a_topic_names_its_subscription():
    """A delivery of a topic without a subscription breaks a history that has this column."""
    got = asked(ROW_FAMILIES, GROUP_FAMILIES, NAMELESS, look_step=8)
    (look,) = got.results[part.LOOK]
    assert str(look.broken) == "row 5: subscription is null in a deliver"
    assert set(got.results) == {part.LOOK}


def test_where_a_history_has_no_subscriptions_topics_are_queues():
    """A history that declares to have no subscriptions is judged as if its topics were queues."""
    got = asked(ROW_FAMILIES, GROUP_FAMILIES, NAMELESS, look_step=8, look_lacking=LACKING)
    (look,) = got.results[part.LOOK]
    assert look.broken is None
    assert got.failed == {}
    (delivered,) = got.results["delivery"]
    assert delivered.found == {}


def test_the_rows_of_each_slice_are_counted_and_summed_by_span():
    """Each slice tells how many rows each span of the index has, and the sum of their indexes."""
    given = part.spans(Sliced([send(0, 1), [*send(4, 2)[::-1], *send(2, 3)]]), 0, 2, 3)
    assert [(span.count.tolist(), span.total.tolist()) for span in given] == [
        ([2, 0, 0], [1, 0, 0]), ([0, 2, 2], [0, 5, 9]),
    ]  # fmt: skip


def test_the_first_row_with_a_key_is_named():
    """Of all slices, the first row with a key is named; where no row has the key, none is."""
    given = Sliced([send(4, 2), send(0, 1), send(8, 3, group="h")])
    assert part.keyed(given, breakage.key_of("q", "g", None)) == [(0, 'group "g" of queue "q"')]
    assert part.keyed(given, breakage.key_of("q", "i", None)) == []


# ---------------------------------------------------------------------------- several parts at once

DYING = Promises(delivery_attempts=1, attempts="given back")
MAY_DIE = msgspec.structs.replace(OPTIONS, broker=DYING)
WHOLE = msgspec.structs.replace(OPTIONS, broker=msgspec.structs.replace(DYING, fifo=True))
PROMPT = msgspec.structs.replace(OPTIONS, unavailable_bound_s=0.02)
OF_D = {"queue": NEWS, "subscription": "d"}
OF_E = {"queue": NEWS, "subscription": "e"}
BOTH = [*joined(0, 1), *joined(2, 2)]
TWO_SENT = [*send(4, 1), *send(6, 2)]
FREE = {"group": None}
TWO_PULLED = [*send(4, 1, **FREE), *send(6, 2, **FREE), *deliver(20, 2, 2, time_low=18 * MS, **FREE)]
SUBSCRIBED = [*consumer(0, 1, **OF_D), *consumer(2, 2, **OF_E)]
REFUSED = [row for n in range(8) for row in answer(20 + 8 * n, 1, 1, "fail", **OF_D)]
CONFIRMED = [
    {**row, "group": "h"}
    for n in range(8)
    for row in (
        *send(17 + 8 * n, 2 + n, queue=NEWS), *deliver(22 + 8 * n, 2 + n, 2, **OF_E),
        *answer(23 + 8 * n, 2 + n, 2, **OF_E),
    )
]  # fmt: skip
LAX = msgspec.structs.replace(OPTIONS, broker=Promises(ack_wait_s=0.03, refuses_stale_acks=False))
WAITING = msgspec.structs.replace(OPTIONS, broker=Promises(ack_wait_s=0.03))
ACKED_LATE = [
    *joined(0, 1), *send(10, 1), *answer(102, 1), *left(105, 1), *kept(108, 1), *finished(110),
]  # fmt: skip
"""Message 1 is acknowledged, and is still in its store at the end."""

CASES: dict[str, tuple[list[Row], CheckOptions, set[tuple[str, str | None]]]] = {
    # -------------------------------------------------------------------------- what may have died
    "what a lost session may have held, unread, may have died": (
        [*BOTH, *TWO_SENT, *gone(8, 1), *deliver(20, 2, 2)], MAY_DIE, set()),
    "what no session can have held was overtaken": (
        [*joined(0, 1), *left(1, 1), *joined(3, 2), *TWO_SENT, *deliver(20, 2, 2)], MAY_DIE,
        {("not-linearizable", "1")}),
    "without a group, too, what a lost session may have held may have died": (
        [*BOTH, *gone(8, 1), *TWO_PULLED], WHOLE, set()),
    "without a group, too, what no session can have held was overtaken": (
        [*joined(0, 1), *left(1, 1), *joined(3, 2), *TWO_PULLED], WHOLE,
        {("not-linearizable", "1")}),
    # ---------------------------------------------------------------------- what was asked for late
    "an acknowledgement soon after its message was asked for is in time": (
        [*ACKED_LATE, *deliver(100, 1, time_low=95 * MS)], LAX, {("resurrected", None)}),
    "an acknowledgement long after its message may have been sent settles nothing": (
        [*ACKED_LATE, *deliver(100, 1)], LAX, set()),
    "a commit is torn if its acknowledgement, soon after its message was asked for, did not happen": (
        [*joined(0, 1), *joined(4, 3), *send(10, 1), *deliver(100, 1, 1, time_low=95 * MS),
         *answer(102, 1, 1, transaction=9), *send(104, 2, transaction=9, group="h"),
         *end(106, "commit", 9), *deliver(110, 2, 3, group="h"), *joined(112, 2),
         *deliver(120, 1, 2, redelivered=True)], WAITING,
        {("duplicate", None), ("torn-transaction", "9")}),
    # ------------------------------------------------------------------------------------- topics
    "that acknowledgements of one subscription are refused is told, though another confirms its own": (
        [*SUBSCRIBED, *send(4, 1, queue=NEWS), *deliver(19, 1, 1, **OF_D), *REFUSED,
         *CONFIRMED], PROMPT,
        {("unavailable", 'queue "/topic/news > d", ack'),
         ("unavailable", 'group "g" of queue "/topic/news > d", ack')}),
    "what one subscription got of a commit of unknown outcome another must get, too": (
        [*SUBSCRIBED, *send(10, 1, queue=NEWS, transaction=9), *end(12, "commit", 9, "info"),
         *deliver(20, 1, **OF_D), *finished(90)], OPTIONS, {("torn-transaction", "9")}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_implementations_say_so(tmp_path, name):
    """Columns, part by part, and the reference find the same."""
    rows, options, expected = CASES[name]
    assert {(one.name, one.key) for one in agreed(tmp_path, tidy(rows), options)} == expected
