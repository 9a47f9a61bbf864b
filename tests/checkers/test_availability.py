"""Windows in which nothing succeeded, runs that did not recover, and the functions that find them.

Both bounds are 10 s. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec
import pytest
from checker_rows import Row, S, o, table
from test_findings import OPTIONS
from test_liveness import CASES as UNAVAILABLE
from test_liveness import in_order

from bench.agreement import by_reference, on_columns
from checkers.availability import (
    FAR,
    Late,
    Outage,
    attempts,
    begun,
    gaps,
    in_groups,
    late,
    merged,
    not_recovered,
    questions,
    slots,
    troubled,
    waiting,
)
from checkers.instance import Instance
from checkers.rows import NONE, PlaceTable, Rows, from_table
from checkers.verdict import CheckOptions, Promises

BOUND = 10 * S
WAITS, WAITS_LONG = (
    msgspec.structs.replace(OPTIONS, broker=Promises(ack_wait_s=wait_s)) for wait_s in (5, 60)
)
"""A broker that takes back what is not acknowledged within 5 s, and one that does within 60 s."""


def at(time_s: float, process: int, type_: str, f: str, message: int | None = None, **columns: object) -> Row:
    return o(0, process, type_, f, message, **{"time": int(time_s * S), **columns})


def asked(time_s: float, message: int, f: str = "send", **columns: object) -> Row:
    return at(time_s, 1, "invoke", f, message, **columns)


def ended(time_s: float, message: int, outcome: str, f: str = "send", **columns: object) -> Row:
    return at(time_s, 1, outcome, f, message, **columns)


def tried(
    times_s: Sequence[float], outcome: str, f: str = "send", message: int | None = None, *,
    broker: str | None = None, **columns: object,
) -> list[Row]:  # fmt: skip
    """Return an operation that begins at each time and takes 1 s.

    All are about one message, or each is about another one.
    """
    number = count(int(times_s[0]))
    return [
        row
        for time_s in times_s
        for one in [next(number) if message is None else message]
        for row in (
            asked(time_s, one, f, **columns),
            ended(time_s + 1, one, outcome, f, broker=broker, **columns),
        )
    ]


def delivered(time_s: float, message: int, **columns: object) -> Row:
    return at(time_s, 12, "ok", "deliver", message, session=2, **columns)


def taken_back(time_s: float, session: int) -> Row:
    return at(time_s, 40, "info", "timeout", 1, session=session)


def phase(time_s: float, value: str) -> Row:
    return at(time_s, -3, "info", "phase", value=value)


HEALED = phase(0, "heal")
SENT = tried([0], "ok", message=1)
LATE = [20, 30, 40]
OF_ACKS = {"operation ack", 'queue "q", ack', 'group "g" of queue "q", ack'}
OF_NACKS = {"operation nack", 'queue "q", nack', 'group "g" of queue "q", nack'}
FAILED = tried([19], "fail")
NOT_RECOVERED = {"not-recovered"}

CASES: dict[str, tuple[list[Row], CheckOptions, set[str]]] = {
    "an ack is late after the time that the broker waits": (
        [*SENT, *tried(LATE, "fail", "ack", 1, session=1)], WAITS, set()),
    "an ack is late if a row says that its message was taken back": (
        [*SENT, taken_back(10, 1), *tried(LATE, "fail", "ack", 1, session=1)], OPTIONS, set()),
    "an ack is not late because its message was taken back from another session": (
        [*SENT, taken_back(10, 2), *tried(LATE, "fail", "ack", 1, session=1)], OPTIONS, OF_ACKS),
    "an ack is not late within the time that the broker waits": (
        [*SENT, *tried(LATE, "fail", "ack", 1, session=1)], WAITS_LONG, OF_ACKS),
    "an ack is not late if no row says when its message was sent": (
        tried(LATE, "fail", "ack", 1, session=1), WAITS, OF_ACKS),
    "an ack without a session is not late": ([*SENT, *tried(LATE, "fail", "ack", 1)], WAITS, OF_ACKS),
    "a delivery in one group does not end the silence of another group": (
        [*tried([10, 20, 30], "info", "nack", session=1), *tried([12], "info", "nack", session=1, group="h"),
         delivered(15, 5, group="h"), delivered(25, 6, group="h")], OPTIONS, OF_NACKS),
    "a failure after heal and bound is a failure to recover": (
        [HEALED, *FAILED], OPTIONS, NOT_RECOVERED),
    "an answer without a question is no failure to recover": ([HEALED, FAILED[1]], OPTIONS, set()),
    "the question about another message is not the question of an answer": (
        [HEALED, FAILED[0], ended(20, 20, "fail")], OPTIONS, set()),
    "a delivery after heal and bound is no recovery": (
        [HEALED, *FAILED, delivered(21, 5)], OPTIONS, NOT_RECOVERED),
    "a failure within the bound is no failure to recover": (
        [HEALED, *tried([4], "fail"), phase(30, "end")], OPTIONS, set()),
    "a success within the bound is no recovery": (
        [HEALED, *tried([7], "ok"), *tried([12, 18], "fail")], OPTIONS, NOT_RECOVERED),
    "a success less than the bound before the last failure is a recovery": (
        [HEALED, *tried([7], "ok"), *tried([12, 16], "fail")], OPTIONS, set()),
    "a success after the last question is a recovery": (
        [HEALED, asked(6, 1), *tried([7], "ok"), ended(20, 1, "fail")], OPTIONS, set()),
    "a late success in another part is a recovery": (
        [HEALED, *tried([12], "ok"), *tried([25, 34], "fail")], OPTIONS, set()),
    "a failure to recover that the harness reports is found once": (
        [HEALED, *FAILED, phase(25, "not-recovered")], OPTIONS, NOT_RECOVERED),
    "a success less than the bound before the last failure is a recovery below zero, too": (
        [phase(-40, "heal"), *tried([-31], "ok"), *tried([-28, -23], "fail")], OPTIONS, set()),
    "a silence below zero is one": (
        [*tried([-40], "ok"), *tried([-38, -30, -20], "fail")], OPTIONS,
        {"operation send", 'queue "q", send', 'group "g" of queue "q", send'}),
    "a clock may begin below zero": (
        [phase(-40, "heal"), *tried([-25], "fail", message=1)], OPTIONS, NOT_RECOVERED),
}  # fmt: skip


def liveness_of(instances: set[Instance]) -> set[Instance]:
    """Return the windows, the runs that did not recover, and whether faults explain the windows."""
    return {one for one in instances if one.name.startswith(("unavailable", "not-recovered"))}


@pytest.mark.parametrize("name", CASES)
def test_both_implementations_say_that(name):
    rows, options, expected = CASES[name]
    rows = in_order(rows)
    found = liveness_of(by_reference(rows, options, excuses=True))
    for slices in (1, 3):
        assert liveness_of(*on_columns([rows], options, slices, parts=slices, excuses=True)) == found
    assert {one.key or one.name for one in found if "explained" not in one.name} == expected


@pytest.mark.parametrize("slices", [1, 3])
def test_histories_that_are_judged_together_are_judged_as_alone(slices):
    own = [in_order(rows) for rows, options, _ in CASES.values() if options is OPTIONS]
    runs = [*own, *(rows for rows, _ in UNAVAILABLE.values())]
    together = on_columns(runs, OPTIONS, slices, excuses=True)
    for rows, found in zip(runs, together, strict=True):
        assert liveness_of(found) == liveness_of(by_reference(rows, OPTIONS, excuses=True))


# --------------------------------------------------------------------------------------- functions


def rows_of(*rows: Row) -> tuple[Rows, PlaceTable]:
    """Return the columns of some rows, in order of time."""
    places = PlaceTable()
    return from_table(table(in_order([*rows])), places), places


def windows(*rows: Row) -> dict[str, Outage]:
    """Return every window in some rows, by key."""
    some, places = rows_of(*rows)
    found = gaps(merged([slots(some, places, BOUND)]), BOUND)
    brokers: dict[str, int] = {}
    tries = attempts(some, places, troubled(some, places), brokers)
    outages = [
        *begun(found, [questions(some, places, found)], BOUND),
        *in_groups([tries], places, [*brokers], BOUND),
    ]
    assert len({one.key for one in outages}) == len(outages)
    return {one.key: one for one in outages}


def test_a_window_is_shown_by_its_first_three_questions_and_its_last_failure():
    broken = tried([2, 10, 20, 30], "info", broker="b1", producer=2)
    found = windows(*tried([0, 50], "ok", broker="a1", producer=1), *broken)
    shared = ("operation send", 'queue "q", send', 'group "g" of queue "q", send')
    assert {key: (one.index, one.begin // S, one.end // S, one.rows) for key, one in found.items()} == {
        **dict.fromkeys((*shared, "client producer 2"), (2, 2, 31, (2, 4, 6, 9))),
        "broker b1": (3, 3, 31, (3, 5, 7, 9)),
    }
    assert {key: " ".join(sorted(one.brokers)) for key, one in found.items()} == {
        **dict.fromkeys(shared, "a1 b1"), "client producer 2": "b1", "broker b1": "b1",
    }  # fmt: skip


def test_questions_without_an_answer_are_no_window_yet():
    assert windows(*(asked(10 * n, n) for n in range(5))) == {}


def test_a_client_went_to_the_brokers_of_its_window_the_last_before_and_the_first_after():
    told = {"producer": 1}
    found = windows(
        *tried([0], "ok", broker="c1", **told), *tried([2], "ok", broker="a1", **told),
        *tried([4, 10, 20], "info", **told), *tried([30], "fail", broker="b1", **told),
        *tried([40], "ok", broker="b2", **told), *tried([50], "ok", broker="d1", **told),
    )  # fmt: skip
    assert found["client producer 1"].brokers == {"a1", "b1", "b2"}
    assert found["operation send"].brokers == {"a1", "b1", "b2", "c1", "d1"}
    unnamed = windows(*tried([4, 10, 20], "info", **told))
    assert unnamed["client producer 1"].brokers == frozenset()


def test_the_last_failure_may_be_one_of_the_first_three_that_are_asked_of_a_broker():
    found = windows(*tried([2, 10, 20], "info", broker="b1", group=None))
    assert found["broker b1"].rows == (1, 3, 5)
    assert found["operation send"].rows == (0, 2, 4, 5)


def test_slots_have_the_first_and_last_rows_of_each_key_in_each_span_as_long_as_the_bound():
    told = {"broker": "a1", "producer": 1}
    rows, places = rows_of(*tried([1, 3], "ok", **told), *tried([5, 25], "fail", **told))
    found = slots(rows, places, BOUND)
    by_question = [1, 2 * S, 0, 1 * S], [FAR, FAR, 6, 25 * S]
    by_failure = [1, 2 * S, 5, 6 * S], [FAR, FAR, 7, 26 * S]
    lows = dict.fromkeys(("operation send", 'queue "q", send', "client producer 1"), by_question)
    lows["broker a1"] = by_failure
    assert {key: (*some.lows.tolist(),) for (_, key), some in found.items()} == lows
    for some in found.values():
        assert some.number.tolist() == [0, 2]
        assert some.highs.tolist() == [[3, 4 * S, 5, 6 * S], [NONE, NONE, 7, 26 * S]]


def test_groups_in_which_an_operation_of_a_client_was_not_ok_are_troubled():
    rows, places = rows_of(
        *tried([1], "info", group="h"), *tried([2], "ok"), asked(3, 9), *tried([4], "fail", group=None),
        at(5, 11, "info", "timeout", 2, session=1),
    )  # fmt: skip
    assert troubled(rows, places) == {(0, "q", "h")}


def test_runs_wait_for_operations_from_the_first_heal_and_bound_on():
    healed, said = {"time": 3 * S, "value": "heal"}, {"time": 30 * S, "value": "not-recovered"}
    later, drained = {"time": 8 * S, "value": "heal"}, {"time": 20 * S, "value": "drain"}
    phases = {0: [healed, later, drained], 1: [healed, said], 2: [drained], 3: [healed], 4: [healed]}
    last_ns = {0: 40 * S, 1: 40 * S, 2: 40 * S, 3: 13 * S}
    assert waiting(phases, last_ns, 10) == {0: 13 * S}


def test_the_question_that_was_asked_last_shows_that_a_run_did_not_recover():
    rows, _ = rows_of(
        *tried([5], "ok"), asked(12, 1), *tried([14, 16], "fail"), asked(18, 2), ended(20, 1, "info")
    )
    found = late(rows, {0: 10 * S})
    assert found == {0: Late(False, (1, 6 * S), 5, 6, 20 * S)}
    assert not_recovered({0: []}, [found], 10) == {Instance("not-recovered", None, None, None, 6, None, 0): 5}
    said = [
        {"index": n, "value": value} for n, value in enumerate(("heal", "not-recovered", "not-recovered"))
    ]
    assert not_recovered({0: said}, [], 10) == {Instance("not-recovered", None, None, None, 1, None, 0): -1}
