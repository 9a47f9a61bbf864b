"""What releases a message, what gives it back and what it dies of, by the reference alone.

For each clause of a definition a history that has the finding, and neighbours that have it not. The
names of the cases are what they prove.
"""

from __future__ import annotations

import json

import pytest
from checker_rows import Row, finished, o
from test_findings import answer, deliver, end, gone, role, send

from checkers import reference
from checkers.verdict import CheckOptions, Promises

DONE = finished(90)
ANY = Promises()
LOST = {("lost", "after delivery")}


def joined(at: int, session: int = 1, broker: str = "a1", **columns: object) -> list[Row]:
    told = {"session": session, "queue": "q", **columns}
    return [
        o(at, 10 + session, "invoke", "subscribe", **told),
        o(at + 1, 10 + session, "ok", "subscribe", broker=broker, **told),
    ]


def stopped(at: int, broker: str = "a1", low: int | None = None) -> list[Row]:
    """The monitor sees it gone."""
    return role(at, broker, "stopped", at - 1 if low is None else low, at)


def killed(at: int, broker: str = "a1", seen: str = "gone") -> list[Row]:
    value = {"label": "f", "links": [], "nodes": [broker], "target": broker}
    return [
        o(at, -1, "invoke", "kill", value=json.dumps(value)),
        o(at + 1, -1, "info", "kill", value=json.dumps({**value, "bit": True, "observed": {broker: seen}})),
    ]


def begun(at: int, transaction: int = 9, broker: str = "a1", **columns: object) -> list[Row]:
    return [
        o(at, 30, "invoke", "begin", transaction=transaction, **columns),
        o(at + 1, 30, "ok", "begin", transaction=transaction, broker=broker, **columns),
    ]


HELD = [*joined(0), *send(2, 1), *deliver(4, 1)]
UNKNOWN = answer(20, 1, outcome="info", broker=None)
OVER = [*gone(22, 1), *DONE]
TAKEN = [*HELD, *answer(10, 1, transaction=9)]
NO_COMMIT_HEARD = end(20, "commit", 9, "info")
BY_CONNECTION = [
    o(0, 11, "invoke", "connect"), o(1, 11, "ok", "connect", broker="a1", connection=7),
    *send(2, 1), *deliver(4, 1, broker=None, connection=7),
]  # fmt: skip

UNKNOWN_OUTCOME: dict[str, tuple[list[Row], Promises, set[tuple[str, str | None]]]] = {
    "an ack of unknown outcome may have been processed": ([*HELD, *UNKNOWN, *OVER], ANY, set()),
    "not if the monitor saw its broker stopped before": ([*HELD, *stopped(8), *UNKNOWN, *OVER], ANY, LOST),
    "nor if a fault found its broker gone before": ([*HELD, *killed(8), *UNKNOWN, *OVER], ANY, LOST),
    "nor if the harness had started its broker again before": (
        [*HELD, o(8, -3, "info", "restart", broker="a1"), *UNKNOWN, *OVER], ANY, LOST),
    "nor if it was never answered": ([*HELD, *stopped(8), UNKNOWN[0], *OVER], ANY, LOST),
    "it may have been if the broker was paused": (
        [*HELD, *killed(8, seen="paused"), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if the broker was out of reach": (
        [*HELD, *role(8, "a1", "unreachable", 7, 8), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if the broker was seen gone after it was asked": (
        [*HELD, *UNKNOWN, *stopped(21), *OVER], ANY, set()),
    "it may have been if another broker was seen gone": (
        [*HELD, *stopped(8, "b1"), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if the broker was seen gone before the session began": (
        [*stopped(0), *joined(1), *send(3, 1), *deliver(5, 1), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if a fault found it gone before the session began": (
        [*killed(0), *joined(2), *send(4, 1), *deliver(6, 1), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if nothing says that the connection was there before the broker was seen gone": (
        [*send(0, 1), *killed(2), *deliver(5, 1), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if its connection was answered after that": (
        [*BY_CONNECTION, *stopped(8), *send(9, 2, connection=7), *deliver(12, 2, 2), *joined(13, 2),
         *answer(20, 1, outcome="info", broker=None, connection=7), *OVER], ANY, set()),
    "it may have been if what was seen gone, and written late, was a process before": (
        [*HELD, *stopped(8, low=0), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if the session was answered after that": (
        [*HELD, *send(6, 2), *deliver(9, 2), *stopped(10), *answer(11, 2), *UNKNOWN, *OVER], ANY, set()),
    "it may have been if the session got afterwards what was sent only then": (
        [*HELD, *stopped(8), *UNKNOWN, *send(22, 2), *deliver(24, 2), *gone(25, 1), *joined(26, 2),
         *deliver(28, 2, 2, redelivered=True), *DONE], ANY, set()),
    "it may have been if the session has gone from one broker to another": (
        [*HELD, *send(6, 2), *deliver(8, 2, broker="a2"), *answer(9, 2, broker="a2"), *stopped(12), *UNKNOWN,
         *OVER], ANY, set()),
    "what says that it was processed counts whatever was seen": (
        [*HELD, *stopped(8), *answer(20, 1), *OVER], ANY, set()),
    "a broker is known by what it delivered": (
        [*send(2, 1), *deliver(4, 1), *stopped(8), *UNKNOWN, *OVER], ANY, LOST),
    "a broker is known by the rows of the connection": (
        [*BY_CONNECTION, *stopped(8), *answer(20, 1, outcome="info", broker=None, connection=7), *OVER], ANY,
        LOST),
    "of a broker that no row names nothing is known": (
        [*send(2, 1), *deliver(4, 1, broker=None), *stopped(8), *UNKNOWN, *OVER], ANY, set()),
    "a commit of unknown outcome may have been processed": ([*TAKEN, *NO_COMMIT_HEARD, *OVER], ANY, set()),
    "not if its broker was seen gone before": ([*TAKEN, *stopped(15), *NO_COMMIT_HEARD, *OVER], ANY, LOST),
    "a commit that was asked before that may have been processed": (
        [*TAKEN, *NO_COMMIT_HEARD, *stopped(21), *OVER], ANY, set()),
    "a commit that was answered happened, whatever was seen": (
        [*TAKEN, *stopped(15), *end(20, "commit", 9), *OVER], ANY, set()),
    "a commit's broker is known by its begin": (
        [*send(2, 1), *deliver(4, 1, broker=None), *begun(6), *answer(10, 1, transaction=9, broker=None),
         *stopped(15), *NO_COMMIT_HEARD, *OVER], ANY, LOST),
    "an ack in a transaction that was asked of nobody was not processed, whatever became of the commit": (
        [*HELD, *stopped(8), *answer(10, 1, outcome="info", broker=None, transaction=9), *NO_COMMIT_HEARD,
         *OVER], ANY, LOST),
    "a refusal that consumes is an ack": (
        [*HELD, *stopped(8), *answer(20, 1, outcome="info", f="nack", broker=None), *OVER],
        Promises(nack="consume"), LOST),
    "one of two acks was asked in time": (
        [*HELD, *answer(6, 1, outcome="info", broker=None), *stopped(8), *UNKNOWN, *OVER], ANY, set()),
}  # fmt: skip


def found(rows: list[Row], promises: Promises) -> set[tuple[str, str | None]]:
    rows = sorted(rows, key=lambda row: row["index"])
    return {(one.name, one.key) for one in reference.find(rows, CheckOptions(broker=promises))}


@pytest.mark.parametrize("name", UNKNOWN_OUTCOME)
def test_what_was_asked_of_a_process_that_was_gone_releases_nothing(name):
    rows, promises, expected = UNKNOWN_OUTCOME[name]
    assert found(rows, promises) == expected
