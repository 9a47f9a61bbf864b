"""The ends of sessions and transactions, by the rows that tell them.

Each case has some control rows and the values that ``checkers.ends`` has for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checker_rows import Row, o, table
from test_findings import role

from checkers.ends import Keyed, read
from checkers.rows import NONE

EVER = np.iinfo(np.int64).max - 1


def joined(at: int, session: int = 1, broker: str | None = "a1") -> list[Row]:
    return [
        o(at, 1, "invoke", "subscribe", session=session, queue="q", broker=broker),
        o(at + 1, 1, "ok", "subscribe", session=session, queue="q", broker=broker),
    ]


def left(at: int, answered: int | None = None, session: int = 1, queue: str | None = "q") -> list[Row]:
    asked = [o(at, 1, "invoke", "unsubscribe", session=session, queue=queue)]
    return asked + (
        [o(answered, 1, "ok", "unsubscribe", session=session, queue=queue)] if answered is not None else []
    )


def lost(at: int, session: int = 1, queue: str | None = "q") -> list[Row]:
    return [o(at, 1, "info", "disconnect", session=session, queue=queue)]


def ended(at: int, f: str, outcome: str | None = "ok", **columns: Any) -> list[Row]:
    """A commit or an abort of transaction 5; its answer comes one row later."""
    told = {"transaction": 5, **columns}
    asked = [o(at, 1, "invoke", f, **{**told, "broker": None})]
    return asked + ([] if outcome is None else [o(at + 1, 1, outcome, f, **{**told, "connection": None})])


def values_of(keyed: Keyed, number: int, run: int = 0) -> dict[str, int]:
    found = {name: keyed.find(name, np.array([run]), np.array([number])) for name in keyed.values}
    return {name: int(value[0]) for name, value in found.items() if value[0] != NONE}


BEGUN = {"begun": 1, "begun_ns": 1_000_000}
SESSIONS: dict[str, tuple[list[Row], dict[str, int]]] = {
    "its first request began it": (
        [*joined(1), *joined(4)], BEGUN),
    "an answer begins nothing": (joined(1)[1:], {}),
    "who asked to leave, and was answered, left": (
        [*joined(1), *left(5, 6)], {**BEGUN, "ended": 5, "left": 5, "answered": 6, "over": 6}),
    "the latest answer counts": (left(5, 6) + left(7, 9), {"ended": 5, "left": 5, "answered": 9, "over": 9}),
    "who was not answered has not left": (left(5), {"ended": 5}),
    "an answer without a request says nothing": (left(5, 6)[1:], {}),
    "nor does one before the request": ([left(2, 3)[1], *left(5)], {"ended": 5}),
    "who was lost is lost": (lost(4), {"ended": 4, "over": 4, "lost": 4}),
    "a session that was lost after it had asked to leave ended then": (
        [*left(3), *lost(5)], {"ended": 3, "over": 5, "lost": 5}),
    "nothing comes after the earlier of both": (
        [*left(3, 7), *lost(5)], {"ended": 3, "left": 3, "answered": 7, "over": 5, "lost": 5}),
    "nor after the answer that came before": (
        [*left(3, 4), *lost(5)], {"ended": 3, "left": 3, "answered": 4, "over": 4, "lost": 5}),
    "of unknown outcome is no answer": (
        [*left(5), o(6, 1, "info", "unsubscribe", session=1)], {"ended": 5}),
    "nor is that of its subscribe": ([joined(1)[0], *left(3), joined(4)[1]], {**BEGUN, "ended": 3}),
    "what was answered before the request is another one": (
        [left(2, 3)[1], *left(5, 7)], {"ended": 5, "left": 5, "answered": 7, "over": 7}),
    "what a client without a session does ends none": (
        [*joined(1), o(3, 1, "info", "disconnect")], BEGUN),
    "nor does what a message does": (
        [*joined(1), o(3, 1, "invoke", "drop", session=1)], BEGUN),
}  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_ends(name):
    rows, expected = SESSIONS[name]
    sessions = read(table(rows)).sessions
    assert values_of(sessions, 1) == expected
    assert values_of(sessions, NONE) == {}


TRANSACTIONS: dict[str, tuple[list[Row], dict[str, int]]] = {
    "a commit is asked for and answered": (
        ended(3, "commit"),
        {"end": 3, "asked": 3, "commit": 4, "commit_ns": 4_000_000, "committed_by": -1}),
    "its answer names the broker, its request the connection": (
        ended(3, "commit", broker="b1", connection=7),
        {"end": 3, "asked": 3, "commit": 4, "commit_ns": 4_000_000, "committed_by": 1, "connection": 7}),
    "an answer without a request is one": (
        ended(3, "commit")[1:], {"commit": 4, "commit_ns": 4_000_000, "committed_by": -1}),
    "an abort is asked for and answered": (
        ended(3, "abort", broker="b1", connection=7),
        {"end": 3, "back": 3, "abort": 4, "aborted_by": 1, "undone": 3}),
    "an abort that failed kept it": (
        ended(3, "abort", "fail"), {"end": 3, "back": 3, "kept": 4, "undone": 3}),
    "a commit that was refused undid it": (
        ended(3, "commit", "fail"), {"end": 3, "asked": 3, "refused": 4, "undone": 3, "void": 4}),
    "not for certain where another one is unknown": (
        [*ended(3, "commit", "info"), *ended(5, "commit", "fail")],
        {"end": 3, "asked": 3, "refused": 6, "undone": 3}),
    "where both were refused": (
        [*ended(3, "commit", "fail"), *ended(5, "commit", "fail")],
        {"end": 3, "asked": 3, "refused": 4, "undone": 3, "void": 4}),
    "a commit of unknown outcome is asked for": (ended(3, "commit", None), {"end": 3, "asked": 3}),
    "an abort after a commit that was refused undid it later": (
        [*ended(3, "commit", "fail"), *ended(5, "abort", "info")],
        {"end": 3, "asked": 3, "refused": 4, "back": 5, "undone": 5, "void": 4}),
    "the first answers count": (
        [*ended(3, "commit"), *ended(5, "commit", broker="b1")],
        {"end": 3, "asked": 3, "commit": 4, "commit_ns": 4_000_000, "committed_by": -1}),
    "whatever their order": (
        [*ended(5, "commit", broker="b1"), *ended(3, "commit")],
        {"end": 3, "asked": 3, "commit": 4, "commit_ns": 4_000_000, "committed_by": -1}),
    "an answer to an abort without a request is one": (
        ended(3, "abort")[1:], {"abort": 4, "aborted_by": -1}),
    "an abort that failed is no commit that did": (
        [*ended(3, "commit", "info"), *ended(5, "commit", "fail"), *ended(7, "abort", "fail")],
        {"end": 3, "asked": 3, "refused": 6, "back": 7, "kept": 8, "undone": 7}),
    "one of two requests names the connection": (
        [*ended(3, "commit", None), *ended(5, "commit", None, connection=7)],
        {"end": 3, "asked": 3, "connection": 7}),
    "an answer does not": (
        [*ended(3, "commit", None), o(4, 1, "info", "commit", transaction=5, connection=7)],
        {"end": 3, "asked": 3}),
    "its begin ends nothing": (ended(3, "begin"), {}),
}  # fmt: skip
OTHER = o(1, 1, "ok", "begin", broker="a1", transaction=4)


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_a_transaction_ends(name):
    rows, expected = TRANSACTIONS[name]
    ends = read(table([OTHER, *rows, o(20, 1, "ok", "commit")]))
    assert values_of(ends.transactions, 5) == expected
    assert values_of(ends.transactions, NONE) == {}
    at = np.array([0]), np.array([5])
    told = {which: "b1" if expected.get(which) == 1 else None for which in ("committed_by", "aborted_by")}
    assert {which: ends.brokers_of(which, *at)[0] for which in told} == told


def holders(rows: list[Row], run: int = 0) -> tuple[dict[Any, list[int]], dict[Any, list[int]]]:
    ends = read(table(rows))
    last, endings = ends.holders, ends.endings
    return (
        {queue: values.tolist() for (_, queue), values in last.items()},
        {queue: values.tolist() for (_, queue), values in endings.items()},
    )


def test_sessions_that_ended_may_have_held_something_until_they_were_answered():
    rows = [*lost(9, 3), *left(3, 5), *left(6, None, 2), *left(7, 8, 4, "r"), *left(10, 12, 5, None)]
    last, endings = holders([*joined(1), *rows])
    assert last == {"q": [5, EVER, EVER], "r": [8], None: [12]}
    assert endings == {"q": [3, 6, 9], "r": [7], None: [10]}
    ends = read(table(rows))
    sent = np.array([4, 5, 12])
    assert ends.held(0, "q", sent).tolist() == [4, 3, 2]
    assert ends.held(0, "r", sent).tolist() == [2, 2, 0]
    assert ends.held(0, None, sent).tolist() == [1, 1, 0]
    assert ends.held(1, "q", sent).tolist() == [0, 0, 0]


def of_run(rows: list[Row], run: int) -> pa.Table:
    part = table(rows)
    return part.append_column("run", pa.array([run] * len(part), pa.int32()))


def test_sessions_transactions_and_reigns_of_other_runs_are_others():
    first = of_run([*LIVE, *joined(3), *left(5, 6), *left(7, 8, 9), *ended(10, "commit")], 0)
    second = of_run([*role(1, "a1", "live", 0, 1), *joined(2), *lost(4), *ended(6, "abort")], 1)
    third = of_run([*joined(5), *role(9, "a1", "stopped", 8, 9)], 2)
    ends = read(pa.concat_tables([second, first, third]))
    assert ends.sessions.find("ended", np.array([0, 1, 1]), np.array([1, 1, 9])).tolist() == [5, 4, NONE]
    runs = np.arange(3), np.ones(3, dtype=np.int64)
    assert ends.sessions.find("reign", *runs).tolist() == [2, 1, NONE]
    assert ends.sessions.find("until", *runs).tolist() == [EVER, EVER, NONE]
    at = np.array([0, 1]), np.array([5, 5])
    assert ends.transactions.find("commit", *at).tolist() == [11, NONE]
    assert ends.transactions.find("abort", *at).tolist() == [NONE, 7]
    assert [ends.held(run, "q", np.array([4])).tolist() for run in (0, 1)] == [[2], [1]]


def reign(rows: list[Row]) -> tuple[int | None, int | None]:
    values = values_of(read(table(rows)).sessions, 1)
    return values.get("reign"), values.get("until")


LIVE = role(2, "a1", "live", 1, 2)
REIGNS: dict[str, tuple[list[Row], tuple[int | None, int | None]]] = {
    "no broker was live": (joined(5), (None, None)),
    "its broker was live": ([*LIVE, *joined(5)], (2, EVER)),
    "not yet": ([*joined(1), *role(3, "a1", "live", 2, 3)], (None, None)),
    "another broker was live": ([*role(2, "b1", "live", 1, 2), *joined(5)], (None, None)),
    "another broker was no longer": ([*LIVE, *role(3, "b1", "stopped", 2, 3), *joined(5)], (2, EVER)),
    "its broker was no longer": ([*LIVE, *role(3, "a1", "stopped", 2, 3), *joined(5)], (None, None)),
    "its broker was so until then": (
        [*LIVE, *joined(5), *role(9, "a1", "stopped", 7, 9)], (2, 7_000_000)),
    "the latest row before counts": (
        [*LIVE, *role(4, "a1", "live", 3, 4), *joined(5)], (4, EVER)),
    "what else the monitor says is no role": (
        [*LIVE, o(3, -2, "info", "replication", broker="a1", value="replicated", time_low=3, time_high=3),
         *joined(5)], (2, EVER)),
    "not if only the answer was given in it": ([joined(1)[0], *LIVE, joined(2)[1]], (None, None)),
    "not if only its end lies in it": (
        [*joined(0), *LIVE, *({**row, "broker": "a1"} for row in left(5, 6))], (None, None)),
    "a request before it hides none in it": ([*joined(0), *LIVE, *joined(5)], (2, EVER)),
    "that of another session does not count": (
        [*LIVE, *joined(3, 2), *joined(5, broker="b1")], (None, None)),
    "whatever its order": (
        [*joined(5), *role(9, "a1", "stopped", 7, 9), *role(4, "a1", "live", 3, 4), *LIVE], (4, 7_000_000)),
    "no row names its broker": ([*LIVE, *joined(5, broker=None)], (None, None)),
    "nobody but the monitor says so": (
        [{**row, "process": -3} for row in LIVE] + joined(5), (None, None)),
}  # fmt: skip


@pytest.mark.parametrize("name", REIGNS)
def test_a_session_began_in_a_reign_where(name):
    rows, expected = REIGNS[name]
    assert reign(rows) == expected


def test_the_lowest_value_of_each_number_is_kept():
    every, some = np.ones(4, dtype=bool), np.array([True, False, False, True])
    run, number = np.array([0, 0, 1, 1]), np.array([3, 3, 3, 2**40])
    keyed = Keyed.of(
        run, number, {"low": (every, np.array([5, 4, 6, 7])), "few": (some, np.array([5, 4, 6, 7]))}
    )
    asked_run, asked = np.array([0, 1, 1, 0, 1]), np.array([3, 3, 2**40, 2**40, 4])
    assert keyed.find("low", asked_run, asked).tolist() == [4, 6, 7, NONE, NONE]
    assert keyed.find("few", asked_run, asked).tolist() == [5, NONE, 7, NONE, NONE]
    assert keyed.counted(np.array([1, 0, 0]), np.array([3, 3, 3])).tolist() == [2, 1, 0]
    assert Keyed.of(run[:0], number[:0], {}).find("low", run, number).tolist() == [NONE] * 4
