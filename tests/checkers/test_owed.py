"""What releases a message, what gives it back and what it dies of.

For each clause of a definition a history that has the finding, and neighbours that have it not. The
names of the cases are what they prove.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checker_rows import Row, agreed, finished, o, phase
from test_fates import left
from test_findings import answer, deliver, end, gone, role, send, takeover

from bench.agreement import by_reference, numbered, on_columns
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
BOTH_READ = finished(90, read=("a1", "a2"))
NOT_HEARD = answer(10, 1, outcome="info", transaction=9, broker=None)
NO_COMMIT_HEARD = end(20, "commit", 9, "info")
BY_CONNECTION = [
    o(0, 11, "invoke", "connect"), o(1, 11, "ok", "connect", broker="a1", connection=7),
    *send(2, 1), *deliver(4, 1, broker=None, connection=7),
]  # fmt: skip

TORN = {("torn-transaction", "9")}
"""The ack happened, and what was sent in the same transaction is nowhere."""

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
    "even if no row says that the answer was asked for": (
        [*BY_CONNECTION, *stopped(8), {**end(14, "commit", 5)[1], "connection": 7},
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
         *gone(22, 1), *BOTH_READ], ANY, set()),
    "it may have been if the session got something of another broker": (
        [*HELD, *send(6, 2), *deliver(8, 2, broker="a2"), *stopped(12), *UNKNOWN, *gone(22, 1),
         *joined(24, 2), *deliver(26, 2, 2, redelivered=True), *BOTH_READ], ANY, set()),
    "it may have been if two brokers served its connection": (
        [*BY_CONNECTION, *send(6, 2, connection=7, broker="a2"), *deliver(8, 2, 2), *answer(9, 2, 2),
         *stopped(12), *answer(20, 1, outcome="info", broker=None, connection=7), *gone(22, 1), *BOTH_READ],
        ANY, set()),
    "not if one of them only failed to answer": (
        [*HELD, *send(5, 2), *deliver(7, 2), *answer(8, 2, outcome="info", broker="a2"), *stopped(12),
         *UNKNOWN, *gone(22, 1), *BOTH_READ], ANY, LOST),
    "nor if an answer names no broker": (
        [*HELD, *send(5, 2, broker="a2"), *deliver(7, 2), *answer(8, 2, broker=None), *stopped(12), *UNKNOWN,
         *gone(22, 1), *BOTH_READ], ANY, LOST),
    "nor if the session read afterwards what had been sent before": (
        [*joined(0), *send(2, 1), *killed(5), *deliver(8, 1), *UNKNOWN, *OVER], ANY, LOST),
    "nor if it got something of its broker before that broker was seen gone once more": (
        [*HELD, *send(6, 2), *deliver(8, 2), answer(9, 2)[0], *killed(10), answer(11, 2)[1], *stopped(15),
         *UNKNOWN, *OVER], ANY, LOST),
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
    "so did one whose ack was not heard of": (
        [*HELD, *NOT_HEARD, *stopped(15), *end(20, "commit", 9), *OVER], ANY, set()),
    "whoever answered it": (
        [*HELD, *NOT_HEARD, *stopped(15), *end(20, "commit", 9, broker=None), *OVER], ANY, set()),
    "not if the commit was not heard of, either": (
        [*HELD, *NOT_HEARD, *stopped(15), *NO_COMMIT_HEARD, *OVER], ANY, LOST),
    "it may have been if its transaction was answered after that": (
        [*HELD, *NOT_HEARD, *stopped(15), *send(17, 2, group="h", transaction=9), *NO_COMMIT_HEARD, *OVER],
        ANY, TORN),
    "so may it be if no row says that the answer was asked for": (
        [*HELD, *NOT_HEARD, *stopped(15), send(17, 2, group="h", transaction=9)[1], *NO_COMMIT_HEARD, *OVER],
        ANY, set()),
    "or if another broker answered its transaction before": (
        [*HELD, *NOT_HEARD, *send(12, 2, group="h", transaction=9, broker="a2"), *stopped(15),
         *NO_COMMIT_HEARD, *gone(22, 1), *BOTH_READ], ANY, TORN),
    "so is that of an ack that is asked for in it": (
        [*send(2, 1), *begun(6), *killed(8), *deliver(10, 1), *answer(12, 1, transaction=9, outcome="info",
         broker=None), *NO_COMMIT_HEARD, *OVER], ANY, LOST),
    "a commit's broker is known by its begin": (
        [*send(2, 1), *deliver(4, 1, broker=None), *begun(6), *answer(10, 1, transaction=9, broker=None),
         *stopped(15), *NO_COMMIT_HEARD, *OVER], ANY, LOST),
    "an ack in a transaction that was asked of nobody was not processed, whatever became of the commit": (
        [*HELD, *stopped(8), *answer(10, 1, outcome="info", broker=None, transaction=9), *NO_COMMIT_HEARD,
         *OVER], ANY, LOST),
    "a commit that was answered was asked for, whether or not a row says so": (
        [*HELD, *NOT_HEARD, *end(20, "commit", 9)[1:], *OVER], ANY, set()),
    "a commit that was refused released nothing": (
        [*TAKEN, *end(20, "commit", 9, "fail"), *gone(24, 1), *DONE], ANY, LOST),
    "nor did two": (
        [*TAKEN, *end(20, "commit", 9, "fail"), *end(22, "commit", 9, "fail"), *gone(24, 1), *DONE], ANY,
        LOST),
    "one that was carried out after another was refused": (
        [*TAKEN, *end(20, "commit", 9, "fail"), *end(22, "commit", 9), *gone(24, 1), *DONE], ANY, set()),
    "one of unknown outcome may have been carried out, so that the next was refused": (
        [*TAKEN, *end(20, "commit", 9, "info"), *end(22, "commit", 9, "fail"), *gone(24, 1), *DONE], ANY,
        set()),
    "a commit's broker is known by its connection": (
        [o(0, 1, "invoke", "connect"), o(1, 1, "ok", "connect", broker="a1", connection=7), *send(2, 1),
         *deliver(4, 1, broker=None), *NOT_HEARD, *stopped(15),
         *[{**row, "connection": 7} for row in NO_COMMIT_HEARD], *OVER], ANY, LOST),
    "what came in no session is in somebody's hands, however long ago": (
        [*send(2, 1), *({**row, "session": None} for row in deliver(4, 1)), *DONE],
        Promises(ack_wait_s=0.01), set()),
    "what came in a session was taken back by then": (
        [*HELD, *DONE], Promises(ack_wait_s=0.01), LOST),
    "an ack that failed in a transaction that was committed gives nothing back": (
        [*HELD, *answer(10, 1, outcome="fail", transaction=9), *end(20, "commit", 9), *DONE], ANY, set()),
    "a refusal of unknown outcome may have consumed it": (
        [*HELD, *answer(20, 1, outcome="info", f="nack", broker=None), *OVER], Promises(nack="consume"),
        set()),
    "a refusal that consumes is an ack": (
        [*HELD, *stopped(8), *answer(20, 1, outcome="info", f="nack", broker=None), *OVER],
        Promises(nack="consume"), LOST),
    "one of two acks was asked in time": (
        [*HELD, *answer(6, 1, outcome="info", broker=None), *stopped(8), *UNKNOWN, *OVER], ANY, set()),
    "an ack of what its session never read went to the broker that let it in": (
        [*joined(0), *send(2, 1), *killed(5), *UNKNOWN, *gone(22, 1), *send(24, 2, broker="a2"),
         *finished(90, read=("a1", "a2"))],
        ANY, {("lost", "never delivered")}),
}  # fmt: skip


def found(rows: list[Row], promises: Promises, directory: Path | None = None) -> set[tuple[str, str | None]]:
    """What the reference finds; given a directory, the columns must find the same."""
    rows = sorted(rows, key=lambda row: row["index"])
    options = CheckOptions(broker=promises)
    instances = reference.find(rows, options) if directory is None else agreed(directory, rows, options)
    return {(one.name, one.key) for one in instances}


@pytest.mark.parametrize("name", UNKNOWN_OUTCOME)
def test_what_was_asked_of_a_process_that_was_gone_releases_nothing(tmp_path, name):
    rows, promises, expected = UNKNOWN_OUTCOME[name]
    assert found(rows, promises, tmp_path) == expected


TWO = Promises(delivery_attempts=2, most_attempts=2)
GIVEN_BACK = Promises(delivery_attempts=2, attempts="given back")
DURABLE = Promises(delivery_attempts=2, most_attempts=2, durable_counts=True)
DEAD = [o(80, -3, "ok", "browse", 1, broker="a1", value="dead-letter"), *DONE]
EARLY: set[tuple[str, str | None]] = {("died-early", None)}
TWICE: set[tuple[str, str | None]] = {("duplicate", None)}


def refused(at: int, outcome: str = "ok", session: int = 1, **columns: object) -> list[Row]:
    return answer(at, 1, session, outcome, "nack", **columns)


def again(at: int, session: int = 1, **columns: object) -> list[Row]:
    return deliver(at, 1, session, redelivered=True, **columns)


def nameless(rows: list[Row]) -> list[Row]:
    return [{**row, "broker": None} for row in rows]


def undone(at: int, transaction: int, outcome: str = "ok") -> list[Row]:
    return [*answer(at, 1, transaction=transaction), *end(at + 2, "abort", transaction, outcome)]


def no_session(rows: list[Row]) -> list[Row]:
    """A history with such a row is refused, and yet no rule may go wrong by it."""
    return [{**row, "session": None} for row in rows]


def once(**promises: Any) -> Promises:
    """What is refused once is dead."""
    return Promises(delivery_attempts=1, most_attempts=1, **promises)


ONCE = once()
BEFORE_THE_ANSWER = [
    *HELD, refused(6)[0], *again(7), o(8, 11, "ok", "nack", 1, session=1, broker="a1"),
]  # fmt: skip
OTHER_GROUP = [*HELD, *send(6, 2, group="h"), *deliver(9, 2, group="h")]

REFUSALS: dict[str, tuple[list[Row], Promises, set[tuple[str, str | None]]]] = {
    "what was refused as often as may be is dead": (
        [*HELD, *refused(6), *again(8), *refused(9), *DEAD], TWO, set()),
    "a refusal less, and it has died early": ([*HELD, *refused(6), *DEAD], TWO, EARLY),
    "a refusal that failed does not count, whoever may still hold it": (
        [*HELD, *refused(6), *again(8), *refused(9, "fail"), *DEAD], TWO, EARLY),
    "a refusal of unknown outcome may have happened": (
        [*HELD, *refused(6), *again(8), *refused(9, "info"), *DEAD], TWO, set()),
    "a refusal that was never answered may have happened": (
        [*HELD, *refused(6), *again(8), refused(9)[0], *DEAD], TWO, set()),
    "a refusal that was asked of a process that was gone did not": (
        [*HELD, *refused(6), *again(8), *stopped(10), *refused(12, "info", broker=None), *DEAD], TWO, EARLY),
    "a roll-back is a refusal": ([*HELD, *undone(6, 8), *again(10), *undone(11, 9), *DEAD], TWO, set()),
    "a roll-back that failed is none": (
        [*HELD, *undone(6, 8), *again(10), *undone(11, 9, "fail"), *DEAD], TWO, EARLY),
    "one of unknown outcome may have been carried out, so that the next failed": (
        [*HELD, *undone(6, 8), *again(10), *undone(11, 9, "info"), *end(15, "abort", 9, "fail"), *DEAD], TWO,
        set()),
    "one that was answered was asked for, whether or not a row says so": (
        [*HELD, *undone(6, 8), *again(10), *answer(11, 1, transaction=9), end(13, "abort", 9)[1], *DEAD], TWO,
        set()),
    "a roll-back of unknown outcome may be one": (
        [*HELD, *undone(6, 8), *again(10), *undone(11, 9, "info"), *DEAD], TWO, set()),
    "a roll-back of an ack that failed is none": (
        [*HELD, *refused(6), *again(8), *answer(10, 1, outcome="fail", transaction=9), *end(12, "abort", 9),
         *DEAD], TWO, EARLY),
    "a lost session is no refusal": (
        [*HELD, *refused(6), *again(8), *gone(9, 1), *DEAD], TWO, EARLY),
    "a lost session counts where all does that is given back": (
        [*HELD, *refused(6), *again(8), *gone(9, 1), *DEAD], GIVEN_BACK, set()),
    "a session that is there to the end may have been lost for its broker": (
        [*HELD, *refused(6), *again(8), *DEAD], GIVEN_BACK, set()),
    "a refusal less, where all counts that is given back": ([*send(2, 1), *DEAD], GIVEN_BACK, EARLY),
    "what may have expired may be dead": (
        [*joined(0), *send(2, 1, value='{"expires": [1, 2]}'), *DEAD], TWO, set()),
    "an acknowledged message did not die early": (
        [*HELD, *answer(6, 1), *DEAD], TWO, {("resurrected", None)}),
    # ------------------------------------------------------------------- what should have been dead
    "what comes again after so many refusals is a duplicate": (
        [*HELD, *refused(6), *again(8), *refused(9), *again(11)], TWO, TWICE),
    "so it is if that session is lost in the end": (
        [*HELD, *refused(6), *again(8), *refused(9), *again(11), *gone(12, 1)], TWO, TWICE),
    "so it is if its broker was out of reach meanwhile": (
        [*HELD, *refused(6), *role(7, "a1", "unreachable", 6, 7), *role(8, "a1", "live", 7, 8), *again(9),
         *refused(10), *again(12)], TWO, TWICE),
    "what another had got before the last refusal was asked is none": (
        [*joined(0, 2), *joined(2), *send(4, 1), *deliver(6, 1), *refused(7), *again(9), *again(11, 2),
         *refused(12)], TWO, set()),
    "so it is if it was read before the answer": (
        [*HELD, *refused(6), *again(8), refused(9)[0], *again(10), refused(10)[1]], TWO, TWICE),
    "and if another session read it before the answer": (
        [*HELD, *joined(40, 2), *refused(46), *again(48), refused(49)[0], *again(50, 2), refused(50)[1]], TWO,
        TWICE),
    "what was read before the last refusal was asked is none": (
        [*HELD, *refused(6), *again(8), *refused(9, "info"), *again(11), *refused(12)], TWO, set()),
    "a refusal that failed does not make it one": (
        [*HELD, *refused(6), *again(8), *refused(9, "fail"), *gone(11, 1), *joined(12, 2), *again(14, 2)],
        TWO, set()),
    "nor one of unknown outcome": (
        [*HELD, *refused(6), *again(8), *refused(9, "info"), *again(11)], TWO, set()),
    "nor a lost session": (
        [*HELD, *refused(6), *again(8), *gone(9, 1), *joined(10, 2), *again(12, 2), *refused(13, session=2)],
        TWO, set()),
    "roll-backs that were answered count": (
        [*HELD, *undone(6, 8), *again(10), *undone(11, 9), *again(15)], TWO, TWICE),
    "so does one that was answered after the delivery had been read": (
        [*HELD, *undone(6, 8), *again(10), *undone(11, 9)[:3], *again(14), *end(14, "abort", 9)[1:]],
        TWO, TWICE),
    "roll-backs of unknown outcome do not": (
        [*HELD, *undone(6, 8), *again(10), *undone(11, 9, "info"), *again(15)], TWO, set()),
    "nor do those of an ack of unknown outcome": (
        [*HELD, *undone(6, 8), *again(10), *answer(11, 1, outcome="info", transaction=9),
         *end(13, "abort", 9), *again(15)], TWO, set()),
    "a refusal in a transaction counts by its commit": (
        [*HELD, *refused(6), *again(8), *refused(9, transaction=9), *end(11, "commit", 9), *again(13)], TWO,
        TWICE),
    "a refusal in a transaction that was rolled back does not": (
        [*HELD, *refused(6), *again(8), *refused(9, transaction=9), *end(11, "abort", 9), *again(13)], TWO,
        set()),
    "one delivery is refused once": (
        [*HELD, *refused(6), *refused(8), *again(10)], TWO, set()),
    "a copy that may have been under way is none": (
        [*joined(0, 2), *joined(2), *send(4, 1), *again(7), *refused(8), *again(10), *refused(11),
         *deliver(20, 1, 2), *gone(21, 2)], TWO, set()),
    "a copy that was read behind an answer to a question since was not under way": (
        [*joined(0, 2), *joined(2), *send(4, 1), *send(6, 2, group="h"), *again(8), *refused(9),
         *again(11), *refused(12), *deliver(14, 2, 2, group="h"), *answer(15, 2, 2, group="h"),
         *again(20, 2), *gone(21, 2)], TWO, TWICE),
    "a restart may have forgotten refusals": (
        [*HELD, *refused(6), *killed(8), *gone(10, 1), *joined(11, 2), *again(13, 2), *refused(14, session=2),
         *again(16, 2)], TWO, set()),
    "so may a broker that no row names": (
        [*nameless(HELD), *nameless(refused(6)), *killed(8), *gone(10, 1), *nameless(joined(11, 2)),
         *nameless(again(13, 2)), *nameless(refused(14, session=2)), *nameless(again(16, 2))], TWO, set()),
    "and another one may have sent it": (
        [*role(0, "a1", "live", 0, 0), *nameless(joined(1)), *nameless(send(3, 1)), *nameless(deliver(5, 1)),
         *nameless(refused(6)), *gone(10, 1), *nameless(joined(11, 2)), *nameless(again(13, 2)),
         *nameless(refused(14, session=2)), *nameless(again(16, 2))], TWO, set()),
    "where nobody tells of any broker, one is meant": (
        [*nameless(HELD), *nameless(refused(6)), *gone(10, 1), *nameless(joined(11, 2)),
         *nameless(again(13, 2)), *nameless(refused(14, session=2)), *nameless(again(16, 2))], TWO, TWICE),
    "and if it was only paused": (
        [*nameless(HELD), *nameless(refused(6)), *killed(8, seen="paused"), *gone(10, 1),
         *nameless(joined(11, 2)), *nameless(again(13, 2)), *nameless(refused(14, session=2)),
         *nameless(again(16, 2))], TWO, TWICE),
    "not where a durable count is promised": (
        [*HELD, *refused(6), *killed(8), *gone(10, 1), *joined(11, 2), *again(13, 2), *refused(14, session=2),
         *again(16, 2)], DURABLE, TWICE),
    "in another session of the same life it is a duplicate": (
        [*HELD, *refused(6), *gone(10, 1), *joined(11, 2), *again(13, 2), *refused(14, session=2),
         *again(16, 2)], TWO, TWICE),
    "another role may be another life": (
        [*HELD, *refused(6), *role(8, "a1", "live", 7, 8), *gone(10, 1), *joined(11, 2), *again(13, 2),
         *refused(14, session=2), *again(16, 2)], TWO, set()),
    "a role that was over before says nothing": (
        [*HELD, *refused(6), *gone(10, 1), *joined(11, 2), *again(13, 2), *refused(14, session=2),
         *again(16, 2), *role(17, "a1", "stopped", 17, 17)], TWO, TWICE),
    "another broker need not know of refusals": (
        [*HELD, *refused(6), *gone(10, 1), *joined(11, 2, "a2"), *again(13, 2, broker="a2"),
         *refused(14, session=2, broker="a2"), *again(16, 2, broker="a2")], TWO, set()),
    "a roll-back is known to the broker that answered it": (
        [*HELD, *undone(6, 9), *gone(10, 1), *joined(11, 2), *again(13, 2), *refused(14, session=2),
         *again(16, 2)], TWO, TWICE),
    "whichever broker took the ack": (
        [*HELD, *answer(6, 1, transaction=9), *end(8, "abort", 9, broker="a2"), *gone(10, 1),
         *joined(11, 2), *again(13, 2), *refused(14, session=2), *again(16, 2)], TWO, set()),
    "a refusal in a transaction to the broker that answered its commit": (
        [*HELD, *refused(6, transaction=9), *end(8, "commit", 9, broker="a2"), *gone(10, 1),
         *joined(11, 2), *again(13, 2), *refused(14, session=2), *again(16, 2)], TWO, set()),
    "one of the same node does where a durable count is promised": (
        [*role(60, "a1", "stopped", 59, 60), *role(61, "a2", "live", 60, 61),
         *HELD, *refused(6), *gone(10, 1), *joined(11, 2, "a2"), *again(13, 2, broker="a2"),
         *refused(14, session=2, broker="a2"), *again(16, 2, broker="a2")], DURABLE, TWICE),
    "one of another node never does": (
        [*HELD, *refused(6), *gone(10, 1), *joined(11, 2, "b1"), *again(13, 2, broker="b1"),
         *refused(14, session=2, broker="b1"), *again(16, 2, broker="b1")], DURABLE, set()),
    "where stale refusals are answered, too, the answer counts": (
        [*HELD, *refused(6), *again(8), refused(9)[0], *gone(10, 1), *joined(11, 2), *again(13, 2),
         refused(19)[1]], Promises(most_attempts=2, refuses_stale_acks=False), set()),
    "what is read behind that answer is a duplicate all the same": (
        [*HELD, *refused(6), *again(8), *refused(9), *joined(11, 2), *again(13, 2)],
        Promises(most_attempts=2, refuses_stale_acks=False), TWICE),
    "a refusal that nobody answered, and an answer without a question, are two": (
        [*HELD, refused(6)[0], refused(7)[1] | {"process": 99}, *DEAD], Promises(delivery_attempts=2), set()),
    "a refusal that nobody answered was not answered by what failed elsewhere": (
        [*HELD, refused(6)[0], refused(7, "fail")[1] | {"process": 99}, *DEAD],
        Promises(delivery_attempts=1), set()),
    "a roll-back was not heard by the broker of its begin that was gone": (
        [*send(2, 1), *deliver(4, 1, broker=None), *begun(6), *answer(10, 1, broker=None, transaction=9),
         *stopped(15), *end(20, "abort", 9, "info"), *DEAD], Promises(delivery_attempts=1), EARLY),
    "an answer behind an answer is a refusal of its own": (
        [*HELD, *refused(6), refused(8)[1], *DEAD], Promises(delivery_attempts=2), set()),
    "a roll-back of unknown outcome that was asked of a process that was gone is none": (
        [*HELD, *refused(6), *again(8), *answer(10, 1, transaction=9), *stopped(13),
         *end(15, "abort", 9, "info"), *DEAD], TWO, EARLY),
    "a roll-back that was answered is one, whatever was seen": (
        [*HELD, *refused(6), *again(8), *answer(10, 1, transaction=9), *stopped(13), *end(15, "abort", 9),
         *DEAD], TWO, set()),
    "so it is if nobody knows who answered it": (
        [*HELD, *refused(6), *again(8), *answer(10, 1, transaction=9), *stopped(13),
         *end(15, "abort", 9, broker=None), *DEAD], TWO, set()),
    "a refusal that was answered is one, whatever was seen and whoever answered it": (
        [*HELD, *refused(6), *again(8), *stopped(9), *refused(10, broker=None), *DEAD], TWO, set()),
    "a refusal of unknown outcome may have been heard if its session was answered later": (
        [*OTHER_GROUP, *refused(10), *again(12), *stopped(13), *refused(14, "info", broker=None),
         *answer(16, 2, group="h"), *DEAD], TWO, set()),
    "so may a roll-back": (
        [*OTHER_GROUP, *refused(10), *again(12), *answer(14, 1, transaction=9), *stopped(16),
         *end(17, "abort", 9, "info"), *answer(20, 2, group="h"), *DEAD], TWO, set()),
    "an ack of unknown outcome is no refusal": (
        [*HELD, *refused(6), *again(8), *answer(10, 1, outcome="info"), *gone(12, 1), *DEAD], TWO, EARLY),
    "where a refusal is a death what nobody refused has died early": (
        [*HELD, *gone(6, 1), *DEAD], Promises(nack="dead-letter"), EARLY),
    "what a refusal consumed has not": ([*HELD, *refused(6), *DEAD], Promises(nack="consume"), set()),
    "what a commit settled has not, but came back": (
        [*HELD, *answer(6, 1, transaction=9), *end(8, "commit", 9), *gone(10, 1), *DEAD], TWO,
        {("resurrected", None)}),
    "what was taken back counts where all does that is given back": (
        [*HELD, *DEAD], Promises(delivery_attempts=2, attempts="given back", ack_wait_s=0.01), set()),
    "what was not has one attempt": (
        [*HELD, *DEAD], Promises(delivery_attempts=2, attempts="given back", ack_wait_s=10), EARLY),
    "two deliveries to a session that is there may have been given back once": (
        [*HELD, *refused(6), *again(8), *DEAD], Promises(delivery_attempts=3, attempts="given back"), EARLY),
    "what came in no session may have been given back once": (
        [*send(2, 1), *({**row, "session": None} for row in deliver(4, 1)), *DEAD], GIVEN_BACK, EARLY),
    "what failed without a question was no refusal": (
        [*HELD, refused(6, "fail")[1] | {"process": 99}, *DEAD], Promises(delivery_attempts=1), EARLY),
    "what no session refused is no refusal": (
        [*HELD, *no_session(refused(6)), *gone(8, 1), *again(9, 2), *no_session(refused(10, session=2)),
         *gone(12, 2), *again(13, 3)], TWO, set()),
    "nor is what none acknowledged and rolled back": (
        [*HELD, *no_session(answer(6, 1, transaction=9)), *end(8, "abort", 9), *gone(10, 1), *again(11, 2)],
        ONCE, set()),
    "nor an ack without an answer, though its roll-back was answered later": (
        [*HELD, o(6, 11, "invoke", "ack", 1, session=1, transaction=9),
         o(8, 1, "invoke", "abort", transaction=9), *again(10),
         o(12, 1, "ok", "abort", transaction=9, broker="a1")], ONCE, set()),
    "where acks do not last, a refusal may be forgotten, too": (
        [*HELD, *refused(6), *again(9)], once(durable_acks=False), set()),
    "where a nack is a death, a roll-back is none": (
        [*HELD, *answer(6, 1, transaction=9), *end(8, "abort", 9), *again(11)],
        Promises(nack="dead-letter"), set()),
    "what comes before the refusal was answered comes after it": (BEFORE_THE_ANSWER, ONCE, TWICE),
    "not where two brokers may have it": (BEFORE_THE_ANSWER, once(single=False), set()),
    "nor where a broker takes back what is late": (BEFORE_THE_ANSWER, once(ack_wait_s=30.0), set()),
    "nor where a row says that it was taken back": (
        [*BEFORE_THE_ANSWER, o(20, 13, "info", "timeout", 1, session=3)], ONCE, set()),
    "two refusals of what is in no row are two": (
        [*HELD, *gone(5, 1), *refused(6, session=2), *refused(8, session=3), *again(12, 4)], TWO, TWICE),
    "one that is not answered yet is none, if nobody knows what it refuses": (
        [*HELD, *gone(5, 1), refused(6, session=2)[0], *again(10, 3),
         o(20, 12, "ok", "nack", 1, session=2, broker="a1")], ONCE, set()),
    "what was asked for after a delivery was read does not count for it": (
        [*joined(0), *send(2, 1), *deliver(4, 1, broker="a2"), *refused(6, broker="a2"), *again(9, 2),
         *refused(10, session=2), *again(12, 3), *again(14, 4), *refused(16, session=3)], TWO, set()),
    "what a session got before says nothing of what it reads when it has asked to leave": (
        [*joined(0, 2), *send(2, 1), *deliver(4, 1, 2), *refused(5, session=2),
         o(7, 12, "invoke", "unsubscribe", session=2), *again(8), *refused(9), *again(14, 2),
         o(20, 12, "ok", "unsubscribe", session=2, broker="a1")], TWO, set()),
    "what a session reads after what it refused was sent later, though it was lost": (
        [*HELD, *refused(5), *again(8), refused(9)[0], *again(10),
         o(11, 11, "ok", "nack", 1, session=1, broker="a1"), *gone(12, 1)], TWO, TWICE),
    "where two brokers may have it, what a lost session reads may have been under way": (
        [*joined(0), *joined(2, 2), *send(4, 1), *deliver(6, 1), *refused(7), *again(10, 2), *gone(12, 2)],
        once(single=False), set()),
    "what a session refused that never got it says nothing to another broker": (
        [*HELD, *gone(5, 1), *refused(6, session=3), *again(10, 3, broker="a2")], ONCE, set()),
    "where no row names a broker, all is of one": (
        [*HELD, *refused(6, broker=None), *gone(8, 1), *again(9, 2),
         *refused(11, session=2, broker=None), *gone(13, 2), *again(14, 3, broker=None)], DURABLE, TWICE),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.slow
def test_refusals_that_may_have_happened_excuse_and_certain_ones_accuse(tmp_path, name):
    rows, promises, expected = REFUSALS[name]
    assert found(rows, promises, tmp_path) == expected


SENT = send(0, 1)
NEVER = {("lost", "never delivered")}
UNREAD = finished(90, read=())
AT_ONCE = [dict(row, time=90) for row in UNREAD if row["value"] in ("drain", "browse", "end")]
PAIR = [*role(10, "a1", "live", 9, 10), *role(11, "a2", "backup", 10, 11)]
FAILED_OVER = [*PAIR, *role(20, "a1", "stopped", 19, 20), *role(30, "a2", "live", 29, 30)]
OTHERS_ID = [*role(10, "a1", "live", 9, 10, "n1"), *role(11, "a2", "backup", 10, 11, "n2")]


def seen(at: int, broker: str, store: str = "main") -> list[Row]:
    return [o(at, -3, "ok", "browse", 1, broker=broker, value=store)]


READINGS: dict[str, tuple[list[Row], set[tuple[str, str | None]]]] = {
    "where no row says that a store was read nothing is lost": ([*SENT, *UNREAD], set()),
    "where the store of the only broker was read it is": ([*SENT, *DONE], NEVER),
    "where brokers have no names a store must have been read, too": (
        [dict(row, broker=None) for row in SENT] + UNREAD, set()),
    "a reading before the drain was over says nothing": (
        [*SENT, o(80, -3, "ok", "browse", broker="a1"), *UNREAD], set()),
    "nor does one of what was sent only then": ([*DONE, *send(97, 1)], set()),
    "a message that was found is stuck, whether or not the reading was complete": (
        [*SENT, *seen(80, "a1"), *UNREAD], {("stuck", "never delivered")}),
    "so it is where another store was not read": (
        [*SENT, *role(10, "b1", "live", 9, 10, "other"), *seen(80, "a1"), *DONE],
        {("stuck", "never delivered")}),
    "where all were read it is stuck": (
        [*SENT, *role(10, "b1", "live", 9, 10, "other"), *seen(80, "a1"), *finished(90, read=("a1", "b1"))],
        {("stuck", "never delivered")}),
    "the stores of its taker were not read": ([*SENT, *finished(90, read=("b1",))], set()),
    "nor were those of a broker that may have got it from there": (
        [*SENT, *role(10, "b1", "live", 9, 10, "other"), *DONE], set()),
    "nor those of one that gave out something": (
        [*SENT, *send(5, 2, group="h"), *deliver(7, 2, broker="b1", group="h"), *DONE], set()),
    "nor those of one that took something of unknown outcome": (
        [*SENT, *send(5, 2, "info", broker="b1"), *DONE], set()),
    "of one node one is enough": ([*SENT, *FAILED_OVER, *finished(90, read=("a2",))], NEVER),
    "of two nodes one is not": (
        [*SENT, *OTHERS_ID, *role(30, "a2", "live", 29, 30, "n2"), *finished(90, read=("a2",))], set()),
    "who took over what the other had has it": (
        [*SENT, *OTHERS_ID, *role(30, "a2", "live", 29, 30, "n2"), *takeover(40, "a2", 30, 31, 2, "n1"),
         *finished(90, read=("a2",))], NEVER),
    "not who was taken over": (
        [*SENT, *OTHERS_ID, *role(30, "a2", "live", 29, 30, "n2"), *takeover(40, "a1", 30, 31, 2, "n2"),
         *finished(90, read=("a2",))], set()),
    "not where a third took it over": (
        [*SENT, *OTHERS_ID, *role(30, "a2", "live", 29, 30, "n2"), *takeover(40, "c1", 30, 31, 2, "n1"),
         *finished(90, read=("a2",))], set()),
    "a broker that never served has nothing to be read": (
        [*SENT, *PAIR, *role(40, "b2", "backup", 39, 40, "other"), *DONE], NEVER),
    "a store that could not be read may have it": (
        [*SENT, o(80, -3, "info", "browse", broker="b1"), *DONE], set()),
    "what was received until nothing came any more was read": (
        [*SENT, *UNREAD[:3], phase(94, "drained"), phase(95, "browse"), phase(96, "end")], NEVER),
    "so it was where a history of others says it by three phases at once": ([*SENT, *AT_ONCE], NEVER),
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_nothing_is_missing_before_every_store_was_read_that_may_have_it(tmp_path, name):
    rows, expected = READINGS[name]
    assert found(rows, ANY, tmp_path) == expected


STUCK = {("stuck", "either way")}
LET_GO = [*gone(22, 1)]
STAYS = [*finished(90)[:4], *seen(94, "a1"), *[dict(row, index=row["index"] + 1) for row in finished(90)[4:]]]


def of_temporary(rows: list[Row]) -> list[Row]:
    """The same of a temporary queue."""
    return [{**row, "queue": "/temp-queue/r"} if row.get("queue") else row for row in rows]


ON_ITS_WAY = [dict(row, value="store-and-forward") if row.get("value") == "main" else row for row in STAYS]

EITHER_WAY: dict[str, tuple[list[Row], Promises, set[tuple[str, str | None]]]] = {
    "what may have been acknowledged long ago is in no store rightly": (
        [*HELD, *UNKNOWN, *LET_GO, *STAYS], ANY, STUCK),
    "so it is where the session was left in order": (
        [*HELD, *UNKNOWN, o(22, 11, "invoke", "unsubscribe", session=1),
         o(23, 11, "ok", "unsubscribe", session=1), *STAYS], ANY, STUCK),
    "a session that only asked to leave may hold it": (
        [*HELD, *UNKNOWN, o(22, 11, "invoke", "unsubscribe", session=1), *STAYS], ANY, set()),
    "the drain's own ack may have been processed or not": (
        [*HELD, *UNKNOWN, *finished(90)[:3], *gone(93, 1), phase(94, "browse"), *seen(95, "a1"),
         *[dict(row, index=row["index"] + 2) for row in finished(90)[4:]]], ANY, set()),
    "who may hold it all the time decides nothing": ([*HELD, *UNKNOWN, *STAYS], ANY, set()),
    "who was given what is in a queue that ended with his session may hold it": (
        [*of_temporary([*HELD, *UNKNOWN]), *LET_GO, *of_temporary(STAYS)], ANY, set()),
    "another that got it may hold it": (
        [*HELD, *UNKNOWN, *LET_GO, *joined(24, 2), *deliver(26, 1, 2, redelivered=True), *STAYS], ANY, set()),
    "unless it is over, too": (
        [*HELD, *UNKNOWN, *LET_GO, *joined(24, 2), *deliver(26, 1, 2, redelivered=True), *gone(28, 2),
         *STAYS], ANY, STUCK),
    "where acks need not last it may have come back": (
        [*HELD, *UNKNOWN, *LET_GO, *STAYS], Promises(durable_acks=False), set()),
    "whether or not another store was read": (
        [*HELD, *UNKNOWN, *LET_GO, *role(30, "b1", "live", 29, 30, "other"), *STAYS], ANY, STUCK),
    "an ack that was answered is undone": (
        [*HELD, *answer(20, 1), *LET_GO, *STAYS], ANY, {("resurrected", None)}),
    "an ack that failed was not processed": (
        [*HELD, *answer(20, 1, outcome="fail"), *LET_GO, *STAYS], ANY, {("stuck", "after delivery")}),
    "nor was one that was asked of a process that was gone": (
        [*HELD, *stopped(8), *role(9, "a1", "live", 8, 9), *UNKNOWN, *LET_GO, *STAYS], ANY,
        {("stuck", "after delivery")}),
    "a commit of unknown outcome decides as little": (
        [*TAKEN, *NO_COMMIT_HEARD, *LET_GO, *STAYS], ANY, STUCK),
    "a transaction may be open where its session was left in order": (
        [*TAKEN, *NO_COMMIT_HEARD, o(22, 11, "invoke", "unsubscribe", session=1),
         o(23, 11, "ok", "unsubscribe", session=1), *STAYS], ANY, set()),
    "an ack in a transaction that is open is held": ([*TAKEN, *STAYS], ANY, set()),
    "an ack in a transaction that ended with its connection was not processed": (
        [*TAKEN, *LET_GO, *STAYS], ANY, {("stuck", "after delivery")}),
    "a broker that is no longer live may have old stores": (
        [*HELD, *UNKNOWN, *LET_GO, *role(30, "a1", "live", 29, 30), *role(40, "a1", "backup", 39, 40),
         *STAYS], ANY, set()),
    "what is forwarded may be on its way": (
        [*HELD, *UNKNOWN, *LET_GO, *ON_ITS_WAY], ANY, set()),
    "what is to come later may wait": (
        [*joined(0), *send(2, 1, value='{"delay": [1, 99000000]}'), *deliver(4, 1), *UNKNOWN, *LET_GO,
         *STAYS], ANY, set()),
    "of unknown sends nothing is said": (
        [*joined(0), *send(2, 1, "info"), *deliver(4, 1), *UNKNOWN, *LET_GO, *STAYS], ANY, set()),
    "a dead letter that nobody refused died early, whatever became of its ack": (
        [*HELD, *UNKNOWN, *LET_GO, *DEAD], ANY, EARLY),
    "whoever still held it": ([*HELD, *UNKNOWN, *DEAD], ANY, EARLY),
    "not where it may have expired": (
        [*joined(0), *send(2, 1, value='{"expires": [50000000, 60000000]}'), *deliver(4, 1), *UNKNOWN,
         *LET_GO, *DEAD], ANY, set()),
    "nor where it may have been refused often enough": (
        [*HELD, *refused(6, "info"), *UNKNOWN, *LET_GO, *DEAD], Promises(delivery_attempts=1), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", EITHER_WAY)
def test_what_an_ack_of_unknown_outcome_left_in_a_store_is_wrong_either_way(tmp_path, name):
    rows, promises, expected = EITHER_WAY[name]
    assert found(rows, promises, tmp_path) == expected


COUNTS = Promises(counts="given back")
STILL: set[tuple[str, str | None]] = {("count-stuck", None)}


def first(at: int, **columns: object) -> list[Row]:
    return deliver(at, 1, delivery_count=1, **columns)


def counted(at: int, count: int, session: int = 1, **columns: object) -> list[Row]:
    return again(at, session, delivery_count=count, **columns)


GIVEN = [*joined(0), *send(2, 1), *first(4)]

COUNTED: dict[str, tuple[list[Row], Promises, set[tuple[str, str | None]]]] = {
    "what was refused must be counted higher": ([*GIVEN, *refused(6), *counted(8, 1)], COUNTS, STILL),
    "it is": ([*GIVEN, *refused(6), *counted(8, 2)], COUNTS, set()),
    "not where nobody promised it": ([*GIVEN, *refused(6), *counted(8, 1)], ANY, set()),
    "not where a refusal makes it a dead letter, which is not to come again": (
        [*GIVEN, *refused(6), *counted(8, 1)], Promises(counts="given back", nack="dead-letter"),
        set()),
    "not where two brokers may have it, of which each counts its own copy": (
        [*GIVEN, *refused(6), *counted(8, 1)], Promises(counts="given back", single=False), set()),
    "what was read before the answer to its refusal counts, too": (
        [*GIVEN, refused(6)[0], *counted(7, 1), refused(6)[1]], COUNTS, STILL),
    "what fell did not grow either": (
        [*GIVEN, *refused(6), *counted(8, 2), *refused(9), *counted(11, 1)], COUNTS,
        {("count-fell", None), *STILL}),
    "where nobody tells a count nothing is said": ([*GIVEN, *refused(6), *again(8)], COUNTS, set()),
    "a refusal that failed gives nothing back": (
        [*GIVEN, *refused(6, "fail"), *counted(8, 1)], COUNTS, set()),
    "nor does one of unknown outcome, for certain": (
        [*GIVEN, *refused(6, "info"), *counted(8, 1)], COUNTS, set()),
    "an ack that failed does": (
        [*GIVEN, *answer(6, 1, outcome="fail"), *joined(8, 2), *counted(10, 1, 2)], COUNTS, STILL),
    "a roll-back does": ([*GIVEN, *undone(6, 9), *counted(10, 1)], COUNTS, STILL),
    "it must have been answered": ([*GIVEN, *undone(6, 9, "info"), *counted(10, 1)], COUNTS, set()),
    "a commit that failed does not, for certain": (
        [*GIVEN, *answer(6, 1, transaction=9), *end(8, "commit", 9, "fail"), *counted(10, 1)], COUNTS,
        set()),
    "a refusal does when its transaction is committed": (
        [*GIVEN, *refused(6, transaction=9), *end(8, "commit", 9), *counted(10, 1)], COUNTS, STILL),
    "not when that is rolled back": (
        [*GIVEN, *refused(6, transaction=9), *end(8, "abort", 9), *counted(10, 1)], COUNTS, set()),
    "an ack that failed gives back what had been read when it was asked for": (
        [*GIVEN, answer(6, 1)[0], *counted(7, 1), answer(7, 1, outcome="fail")[1], *counted(9, 2)], COUNTS,
        STILL),
    "a lost session does": ([*GIVEN, *gone(6, 1), *joined(8, 2), *counted(10, 1, 2)], COUNTS, STILL),
    "what may have been sent before says nothing": (
        [*joined(0, 2), *GIVEN[2:], *gone(6, 1), *counted(10, 1, 2)], COUNTS, set()),
    "after a restart it may be counted anew": (
        [*GIVEN, *killed(5), *gone(7, 1), *joined(8, 2), *counted(10, 1, 2)], COUNTS, set()),
    "so it may if no row names the broker": (
        [*nameless(GIVEN), *killed(5), *gone(7, 1), *nameless(joined(8, 2)), *nameless(counted(10, 1, 2))],
        COUNTS, set()),
    "not if nothing tells that it was restarted": (
        [*nameless(GIVEN), *gone(7, 1), *nameless(joined(8, 2)), *nameless(counted(10, 1, 2))], COUNTS,
        STILL),
    "a lower count before it was given back says nothing": (
        [*GIVEN, *counted(5, 2), *refused(6), *counted(8, 2)], COUNTS, STILL),
    "a count that grew since is not lower than one before": (
        [*joined(0), *send(2, 1), *counted(3, 3), *first(4), *refused(6), *counted(8, 2)], COUNTS,
        {("count-fell", None)}),
    "what comes late to a session that is over was given back by no later delivery": (
        [*joined(0, 2), *joined(2, 1), *send(4, 1), *counted(6, 2, 2), *left(8, 1), *counted(11, 1),
         *counted(12, 2)], COUNTS, {("count-fell", None)}),
    "a refusal in another session gives nothing back": (
        [*joined(0), *joined(1, 2), *send(3, 1), *first(5), *again(6, 2), *refused(7, session=2),
         *counted(10, 1)], COUNTS, set()),
    "a refusal that was asked for afterwards gave nothing back before": (
        [*GIVEN, *joined(5, 2), *counted(8, 1, 2), *refused(9)], COUNTS, set()),
    "an ack gives nothing back": (
        [*GIVEN, *answer(6, 1), *joined(8, 2), *counted(10, 1, 2)], COUNTS, set()),
    "a session that ended afterwards gave nothing back before": (
        [*GIVEN, *counted(5, 1), *left(6, 1)], COUNTS, set()),
    "within a session it must be counted higher, though another broker tells": (
        [*GIVEN, *refused(6), *counted(8, 1, broker="a2")], COUNTS, STILL),
    "by another broker, too": (
        [*GIVEN, *gone(7, 1), *joined(8, 2, "a2"), *counted(10, 1, 2, broker="a2")], COUNTS, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_what_was_given_back_must_be_counted(tmp_path, name):
    rows, promises, expected = COUNTED[name]
    assert {one for one in found(rows, promises, tmp_path) if one[0].startswith("count")} == expected


def test_counts_of_histories_that_are_judged_together_are_judged_apart():
    some = [rows for rows, promises, _ in COUNTED.values() if promises == COUNTS]
    histories = [numbered(sorted(rows, key=lambda row: row["index"])) for rows in some]
    options = CheckOptions(broker=COUNTS)
    assert on_columns(histories, options, 1) == [by_reference(rows, options) for rows in histories]


WITH_HEADERS = send(0, 1, headers=5)
CORRUPTED: set[tuple[str, str | None]] = {("corrupted", None)}

HEADERS: dict[str, tuple[list[Row], set[tuple[str, str | None]]]] = {
    "headers that arrive as they were sent are sound": ([*WITH_HEADERS, *deliver(4, 1, headers=5)], set()),
    "others are corrupted": ([*WITH_HEADERS, *deliver(4, 1, headers=6)], CORRUPTED),
    "so they are in a store": (
        [*WITH_HEADERS, *[dict(row, headers=6) for row in seen(80, "a1")]], CORRUPTED),
    "in the second delivery, too": (
        [*WITH_HEADERS, *deliver(4, 1, headers=5), *refused(5), *again(7, headers=6)], CORRUPTED),
    "where nobody looked nothing is said": ([*WITH_HEADERS, *deliver(4, 1)], set()),
    "nor where nobody told what was sent": ([*send(0, 1), *deliver(4, 1, headers=6)], set()),
    "each attempt may have its own": (
        [*send(0, 1, "info", headers=5), *send(2, 1, headers=6), *deliver(4, 1, headers=5)], set()),
    "those of none are corrupted": (
        [*send(0, 1, "info", headers=5), *send(2, 1, headers=6), *deliver(4, 1, headers=7)], CORRUPTED),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_headers_must_arrive_as_they_were_sent(name):
    rows, expected = HEADERS[name]
    assert found(rows, ANY) == expected
