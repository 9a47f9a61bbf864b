"""The reigns of brokers, and what they must not answer, by the rows of the monitor.

Both implementations must find in each history what stands beside it. The names of the histories are
what they prove.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from checker_rows import MS, Row, o, phase, table
from test_facts import whole
from test_findings import OPTIONS, answer, deliver, end, live, role, send, takeover

from bench.agreement import by_reference, on_columns
from checkers.roles import (
    AnswersInWindow,
    Fall,
    OkAnswer,
    Window,
    answered,
    by_broker,
    doubts,
    fallen,
    merged,
    never_live,
    overlaps,
    reigns,
    windows_of,
    zombies,
)
from checkers.rows import PlaceTable, from_table

A1 = role(1, "a1", "live", 0, 1)
REPLACED = [*A1, *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8)]
LATER = [*send(10, 1, broker="a2"), phase(20, "load")]

HISTORIES: dict[str, tuple[list[Row], set[str]]] = {
    "two live brokers that tell no node ID are no split brain": (
        [*role(1, "a1", "live", 0, 1, None), *role(20, "a2", "live", 18, 20, None),
         *send(25, 1, broker="a2")], set()),
    "a broker is not replaced by a reign that is told only after its own next reign": (
        [*A1, *role(5, "a1", "backup", 4, 5), *send(9, 1), *role(12, "a1", "live", 11, 12),
         *role(13, "a2", "live", 7, 8), *role(14, "a2", "backup", 11, 14)], set()),
    "a broker that was fenced before its successor was live is a zombie from the fence on": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), *send(10, 1),
         *role(15, "a1", "backup", 14, 15), *role(20, "a2", "live", 18, 20)], {"zombie"}),
    "a broker is no zombie in its next reign, however the doubts about it are ordered": (
        [*REPLACED, *role(11, "a2", "backup", 10, 11), *role(14, "a1", "live", 12, 14),
         *role(16, "a1", "backup", 15, 16), *send(17, 1), *role(22, "a1", "voting", 20, 21),
         *role(23, "a1", "backup", 9, 10)], set()),
    "what is told of a broker after it was live does not show that it had never been live": (
        [*A1, *send(6, 1, broker="a2"), *role(12, "a2", "live", 11, 12, "m"),
         *role(14, "a2", "backup", 3, 4)], set()),
    "a backup of the node that had been live without a node ID is a zombie": (
        [*A1, *role(2, "a2", "live", 1, 2, None), *role(4, "a2", "backup", 3, 4), *LATER], {"zombie"}),
    "a backup that is live without a node ID may be live under another one": (
        [*A1, *role(2, "a2", "backup", 1, 2), *role(6, "a2", "live", 5, 6, None), *LATER], set()),
    "until then it is a zombie": (
        [*A1, *role(2, "a2", "backup", 1, 2), *send(3, 1, broker="a2"),
         *role(6, "a2", "live", 5, 6, None), phase(20, "load")], {"zombie"}),
    "a broker that is live again without a node ID may have begun anew": (
        [*A1, *role(4, "a1", "stopped", 3, 4), *role(6, "a1", "live", 5, 6, None),
         *role(8, "a2", "live", 7, 8), *send(10, 1)], set()),
    "also after it was replaced": (
        [*REPLACED, *role(11, "a1", "live", 9, 11, None), *send(12, 1)], set()),
    "before that it is a zombie": (
        [*REPLACED, *send(10, 1), *role(14, "a1", "live", 13, 14, None)], {"zombie"}),
    "a broker that tells its node ID again and is then replaced is a zombie": (
        [*role(1, "a1", "live", 0, 1, None), *role(3, "a1", "live", 2, 3),
         *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8), *send(10, 1)], {"zombie"}),
    "a fence ends no life under a node ID that nobody tells": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), *role(9, "a1", "live", 8, 9, None),
         *send(10, 1)], set()),
    "a backup that has become one of another node is no zombie": (
        [*A1, *role(2, "a2", "backup", 1, 2), *role(6, "a2", "backup", 5, 6, "m"), *LATER], set()),
    "a backup that tells the same node ID again is a zombie": (
        [*A1, *role(2, "a2", "backup", 1, 2), *role(6, "a2", "starting", 5, 6), *LATER], {"zombie"}),
    "a backup of another node that has become one of this node is a zombie": (
        [*A1, *role(2, "a2", "backup", 1, 2, "m"), *role(6, "a2", "backup", 5, 6), *LATER], {"zombie"}),
    "a send that was requested after the delivery does not show when the broker got the message": (
        [*REPLACED, *deliver(10, 1), *send(12, 1, broker="a2")], {"phantom"}),
    "an ack does not show when its message was sent": (
        [*REPLACED, *deliver(9, 1, broker="a2"), *answer(10, 1, broker="a2"), *deliver(14, 1, 2)],
        {"phantom", "duplicate"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def on_all_columns() -> dict[str, set[str]]:
    found = on_columns([rows for rows, _ in HISTORIES.values()], OPTIONS, 1)
    return {
        name: {instance.name for instance in instances}
        for name, instances in zip(HISTORIES, found, strict=True)
    }


@pytest.mark.parametrize("name", HISTORIES)
def test_both_implementations_find_that(name, on_all_columns):
    rows, expected = HISTORIES[name]
    assert {instance.name for instance in by_reference(rows, OPTIONS)} == expected
    assert on_all_columns[name] == expected


# --------------------------------------------------------------------------------- reigns and falls


def test_a_reign_lasts_from_when_it_was_seen_until_the_next_role_may_have_begun():
    rows = [*live(2, "a1", 1, 2, 4), *role(3, "a2", "backup", 2, 3), *role(6, "a1", "unreachable", 4, 6),
            *role(8, "a2", "live", 7, 8, "m"), *role(9, "b1", "live", 8, 9, None)]  # fmt: skip
    seen = [
        (one.broker, one.node_id, one.begin // MS, one.end // MS, one.index, one.since // MS, one.life)
        for one in reigns(whole(rows), 20 * MS)
    ]
    assert seen == [("a1", "n", 2, 4, 2, 1, 4), ("a2", "m", 8, 20, 8, 7, None)]


def test_two_brokers_of_one_node_overlap_where_both_certainly_reign():
    rows = [*A1, *role(2, "b1", "live", 1, 2, "m"), *role(5, "a2", "live", 3, 5),
            *role(9, "a1", "stopped", 7, 9)]  # fmt: skip
    (overlap,) = overlaps(reigns(whole(rows), 20 * MS))
    assert (overlap.earlier.broker, overlap.later.broker) == ("a1", "a2")
    assert (overlap.begin, overlap.end) == (5 * MS, 7 * MS)
    instance = overlap.instance(3)
    assert (instance.name, instance.index, instance.key, instance.run) == ("split-brain", 5, "n a1 a2 1", 3)


def test_a_broker_may_have_been_live_unseen_while_it_changes_from_another_role_than_live():
    rows = [*A1, *role(3, "a2", "backup", 2, 3), *role(5, "a1", "voting", 4, 5),
            *role(7, "a1", "backup", 6, 7), *role(9, "a1", "live", 8, 9),
            *role(11, "a1", "stopped", 10, 11)]  # fmt: skip
    assert doubts(whole(rows)) == {"a1": [(6 * MS, 7 * MS), (8 * MS, 9 * MS)]}


def falls_of(rows: list[Row]) -> list[Fall]:
    roles = whole(rows)
    found = reigns(roles, 50 * MS)
    return [*fallen(found, doubts(roles)), *never_live(roles, found)]


def test_a_fall_is_interrupted_while_the_broker_may_have_been_live_unseen():
    silent = [*role(12, "a1", "unreachable", 10, 12), *role(16, "a1", "backup", 13, 16)]
    ended = role(20, "a2", "stopped", 19, 20)
    assert falls_of([*REPLACED, *ended]) == [Fall("a1", 8 * MS, 2**62, 1, 8, stored=False)]
    assert falls_of([*REPLACED, *silent, *ended]) == [
        Fall("a1", 8 * MS, 10 * MS, 1, 8, stored=False),
        Fall("a1", 12 * MS, 13 * MS, 1, 8, stored=False),
        Fall("a1", 16 * MS, 2**62, 1, 8, stored=False),
        Fall("a1", 8 * MS, 19 * MS, 1, 8, stored=False),
    ]


def test_a_backup_has_fallen_while_another_broker_is_live_and_until_it_may_be_live_itself():
    rows = [*A1, *role(3, "a2", "backup", 2, 3), *role(9, "a1", "stopped", 8, 9)]
    assert falls_of(rows) == [Fall("a2", 3 * MS, 8 * MS, 3, 1, stored=False)]
    itself = [*rows[:2], *role(7, "a2", "live", 5, 7, "m"), rows[2]]
    assert falls_of(itself) == [Fall("a2", 3 * MS, 5 * MS, 3, 1, stored=False)]


# ------------------------------------------------------------------------------- answers in windows


def answers_in(rows: list[Row], *windows: Window) -> dict[int, list[int]]:
    places = PlaceTable()
    found = answered(from_table(table(rows), places), places, by_broker(windows))
    assert all(one.count == len(one.rows) for one in found.values())
    return {number: [row.index for row in one.rows] for (_, number), one in found.items()}


def test_a_window_counts_all_operations_but_logins_or_those_that_store_or_sends():
    rows = [
        *send(2, 1), *answer(4, 1), o(6, 3, "invoke", "connect"), o(7, 3, "ok", "connect", broker="a1"),
        o(8, 3, "invoke", "subscribe", session=3), o(9, 3, "ok", "subscribe", session=3, broker="a1"),
        *send(10, 2, transaction=5), *end(12, "commit", 5), *send(14, 3, "info"), *send(16, 4, broker="a2"),
    ]  # fmt: skip
    span = 0, 99 * MS
    some = (
        Window(0, 0, "a1", *span),
        Window(0, 1, "a1", *span, "send"),
        Window(0, 2, "a1", *span, stored=True),
    )
    assert answers_in(rows, *some) == {0: [3, 5, 9, 11, 13], 1: [3, 11], 2: [3, 5, 13]}
    assert answers_in(rows, Window(0, 3, "a2", *span), Window(0, 4, "b1", *span)) == {3: [17]}


def test_an_operation_counts_if_it_was_requested_and_answered_within_the_window():
    rows = [*send(2, 1), *send(4, 2), *send(6, 3)]
    assert answers_in(rows, Window(0, 0, "a1", 2 * MS, 7 * MS)) == {0: [5]}
    assert answers_in(rows, Window(0, 0, "a1", 1 * MS, 8 * MS)) == {0: [3, 5, 7]}


def test_a_delivery_counts_if_its_message_was_sent_within_the_window():
    rows = [*send(2, 11, broker="a2"), *send(4, 15, broker="a2")]
    rows += [*deliver(6, 11), *deliver(7, 15), *deliver(8, 19)]
    assert answers_in(rows, Window(0, 0, "a1", 3 * MS, 9 * MS)) == {0: [7]}


def test_an_answer_counts_by_its_time_where_the_clock_of_the_history_went_back():
    rows = [*send(1, 1), *send(3, 2), *send(5, 3)]
    for row, time in zip(rows, (9, 10, 19, 40, 19, 20), strict=True):
        row["time"] = time * MS
    assert answers_in(rows, Window(0, 0, "a1", 5 * MS, 35 * MS)) == {0: [2, 6]}


def test_an_answer_about_no_message_names_none():
    rows = [o(2, 3, "invoke", "begin", transaction=5), o(3, 3, "ok", "begin", transaction=5, broker="a1")]
    places = PlaceTable()
    window = Window(0, 0, "a1", MS, 9 * MS)
    found = answered(from_table(table([*rows, *send(4, 1)]), places), places, by_broker([window]))
    assert found[0, 0].rows == (OkAnswer(3, None, None, None, "a1"), OkAnswer(5, "q", "g", 1, "a1"))


def test_a_broker_without_an_answer_in_its_run_has_none_of_the_next_run():
    places = PlaceTable()
    part = table(send(2, 1)).append_column("run", pa.array([1, 1], pa.int32()))
    some = by_broker([Window(0, 0, "b1", MS, 9 * MS), Window(1, 1, "a1", MS, 9 * MS)])
    assert [*answered(from_table(part, places), places, some)] == [(1, 1)]


def test_answers_of_several_parts_are_counted_together_and_lie_in_order():
    first, second = (OkAnswer(index, "q", "g", None, "a1") for index in (4, 9))
    parts = [{(0, 1): AnswersInWindow(3, (second,))}, {(0, 1): AnswersInWindow(1, (first,))}, {}]
    assert merged(parts) == {(0, 1): AnswersInWindow(4, (first, second))}


def test_each_answer_of_a_fallen_broker_is_one_zombie_and_those_in_an_overlap_are_none():
    roles = whole([*REPLACED, *role(14, "b1", "live", 13, 14, "m"), *role(16, "b2", "live", 15, 16, "m")])
    found = reigns(roles, 50 * MS)
    some = windows_of(7, roles, found, overlaps(found))
    assert [(one.run, one.id, one.broker, one.only) for one in some] == [
        (7, 0, "a1", None), (7, 1, "b1", None), (7, 2, "b1", "send"), (7, 3, "b2", "send"),
    ]  # fmt: skip
    early, late = (OkAnswer(index, "q", "g", index, "a1") for index in (20, 22))
    beside = AnswersInWindow(1, (OkAnswer(24, "q", "g", 24, "b1"),))
    answers = {(7, 0): AnswersInWindow(2, (late, early)), (7, 2): beside}
    assert [(one.index, one.key, one.run) for one in zombies(some, answers)] == [(20, "a1", 7), (22, "a1", 7)]
