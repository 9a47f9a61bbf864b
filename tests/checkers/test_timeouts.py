"""Messages that a broker takes back because their acknowledgement is late.

Of each clause a history that is guilty, and one as near as can be that is innocent. Times are in
seconds; the broker waits 30 s where it says so.
"""

from __future__ import annotations

import msgspec
import pytest
from checker_rows import S, lay_out, o

from checkers import check, judge
from checkers.api import CheckOptions, HistoryError
from checkers.verdict import CAUTIOUS, Promises

WAIT = 30.0
STRICT = Promises()
"""Stale acknowledgements are refused, and answers come in order with deliveries."""


def history(*steps: tuple) -> list[dict]:
    """Rows of (seconds, type, f, process and session, columns), all about message 1."""
    rows = []
    for at, type_, f, who, *more in steps:
        usual = {"queue": "q", "group": None, "message": 1, "producer": 9, "sequence": 0}
        usual |= {} if f == "send" else {"session": who}
        columns = {**usual, "process": who, **dict(*more)}
        process, message = columns.pop("process"), columns.pop("message")
        rows.append(o(0, process, type_, f, message, time=int(at * S), **columns))
    rows.sort(key=lambda row: row["time"])
    return [{**row, "index": index} for index, row in enumerate(rows)]


def sent(at: float, **columns: object) -> list[tuple]:
    return [(at, "invoke", "send", 9, columns), (at + 0.01, "ok", "send", 9, columns)]


def got(at: float, session: int, **columns: object) -> tuple:
    return (at, "ok", "deliver", session, columns)


def acked(at: float, session: int, **columns: object) -> list[tuple]:
    return [(at, "invoke", "ack", session, columns), (at + 0.1, "ok", "ack", session, columns)]


def refused(at: float, session: int, **columns: object) -> list[tuple]:
    return [(at, "invoke", "ack", session, columns), (at + 0.1, "fail", "ack", session, columns)]


def taken_back(at: float, session: int, **columns: object) -> tuple:
    return (at, "info", "timeout", session, columns)


SENT = sent(1)
BOTH = [*acked(50, 1), *acked(51, 2)]
"""Both sessions are alive until the end."""

GUILTY: dict[str, tuple[list[tuple], float | None, Promises, str]] = {
    "held by two, and no time-out": (
        [*SENT, got(2, 1), got(40, 2), *BOTH], None, CAUTIOUS, "double-delivery",
    ),
    "given away before its time": (
        [*SENT, got(2, 1), got(20, 2), *BOTH], WAIT, CAUTIOUS, "double-delivery",
    ),
    "taken back of somebody else": (
        [*SENT, got(2, 1), taken_back(10, 3), got(20, 2), *BOTH], None, CAUTIOUS, "double-delivery",
    ),
    "taken back once, given away twice": (
        [*SENT, got(2, 1), got(33, 2), got(40, 3), *acked(50, 2), *acked(51, 3)], WAIT, CAUTIOUS,
        "double-delivery",
    ),
    "taken back, held again and given away": (
        [*SENT, got(2, 1), taken_back(10, 1), got(11, 1), got(12, 2), *BOTH], None, CAUTIOUS,
        "double-delivery",
    ),
    "asked for long after it was sent": (
        [*SENT, got(100, 1, time_low=99 * S), got(120, 2, time_low=119 * S), *acked(150, 1), *acked(151, 2)],
        WAIT, CAUTIOUS, "double-delivery",
    ),
    "twice in one session before its time": (
        [*SENT, got(2, 1), got(20, 1), *acked(50, 1)], WAIT, CAUTIOUS, "duplicate",
    ),
    "again after an acknowledgement in time": (
        [*SENT, got(2, 1), *acked(3, 1), got(60, 2)], WAIT, CAUTIOUS, "duplicate",
    ),
    "again after a late acknowledgement, where stale ones are refused": (
        [*SENT, got(2, 1), *acked(40, 1), got(60, 2)], WAIT, STRICT, "duplicate",
    ),
    "a group in two sessions before its time": (
        [*sent(1, group="g"), *sent(1, group="g", message=2, sequence=1), got(2, 1, group="g"),
         got(20, 2, group="g", message=2, sequence=1), *acked(50, 1, group="g"),
         *acked(51, 2, group="g", message=2, sequence=1)], WAIT, CAUTIOUS, "group-split",
    ),
    "refused for long before its time": (
        [*SENT, got(2, 1), *refused(3, 1), *refused(15, 1), *refused(29, 1), *acked(30, 1)], WAIT, STRICT,
        "unavailable",
    ),
    "refused for long, taken back of somebody else": (
        [*SENT, got(2, 1), taken_back(10, 3), *refused(32, 1), *refused(40, 1), *refused(60, 1),
         *acked(61, 1)], None, STRICT, "unavailable",
    ),
}  # fmt: skip

INNOCENT: dict[str, tuple[list[tuple], float | None, Promises]] = {
    "given away after its time": ([*SENT, got(2, 1), got(40, 2), *BOTH], WAIT, CAUTIOUS),
    "read later than it was sent": ([*SENT, got(2, 1), got(31.5, 2), *BOTH], WAIT, CAUTIOUS),
    "the client hears of it before": (
        [*SENT, got(2, 1), taken_back(19, 1), got(20, 2), *BOTH], None, CAUTIOUS,
    ),
    "the client hears of it after": (
        [*SENT, got(2, 1), got(20, 2), taken_back(21, 1), *BOTH], None, CAUTIOUS,
    ),
    "the client reads it when it was taken back": (
        [*SENT, taken_back(15, 1), got(19, 1), got(20, 2), *BOTH], None, CAUTIOUS,
    ),
    "asked for long after it was sent": (
        [*SENT, got(100, 1, time_low=99 * S), got(130, 2), *acked(150, 1), *acked(151, 2)], WAIT, CAUTIOUS,
    ),
    "perhaps given to the other first, and read long after": (
        [*SENT, got(100, 1, time_low=99 * S), got(120, 2), *acked(150, 1), *acked(151, 2)], WAIT, CAUTIOUS,
    ),
    "twice in one session after its time": ([*SENT, got(2, 1), got(40, 1), *acked(50, 1)], WAIT, CAUTIOUS),
    "twice in one session, taken back": (
        [*SENT, got(2, 1), taken_back(15, 1), got(20, 1), *acked(50, 1)], None, CAUTIOUS,
    ),
    "acknowledged twice, both copies in hand": (
        [*SENT, got(2, 1), taken_back(15, 1), got(20, 1), (21, "invoke", "nack", 1, {}),
         (21.5, "invoke", "nack", 1, {"process": 8}), (22, "ok", "nack", 1, {}), got(23, 1),
         (23.5, "ok", "nack", 1, {"process": 8}), got(24, 1), *acked(50, 1)], None, STRICT,
    ),
    "again after a late acknowledgement by an old receipt": (
        [*SENT, got(2, 1), got(40, 2), *acked(41, 1), got(80, 3), *acked(90, 3)], WAIT, CAUTIOUS,
    ),
    "read when it had been taken back and acknowledged by another": (
        [*SENT, taken_back(20, 1), got(21, 2), *acked(22, 2), got(23, 1)], None, STRICT,
    ),
    "two late acknowledgements, where stale ones are refused": (
        [*SENT, got(2, 1), got(40, 2), *BOTH], WAIT, STRICT,
    ),
    "a group in two sessions after its time": (
        [*sent(1, group="g"), *sent(1, group="g", message=2, sequence=1), got(2, 1, group="g"),
         got(40, 2, group="g", message=2, sequence=1), *acked(50, 1, group="g"),
         *acked(51, 2, group="g", message=2, sequence=1)], WAIT, CAUTIOUS,
    ),
    "refused for long after its time": (
        [*SENT, got(2, 1), *refused(32, 1), *refused(40, 1), *refused(60, 1), *acked(61, 1)], WAIT, STRICT,
    ),
    "refused for long, taken back": (
        [*SENT, got(2, 1), taken_back(10, 1), *refused(32, 1), *refused(40, 1), *refused(60, 1),
         *acked(61, 1)], None, STRICT,
    ),
    "refused after its time, and once not answered": (
        [*SENT, got(2, 1), *refused(32, 1), *refused(40, 1), (60, "invoke", "ack", 1, {}),
         (60.1, "info", "ack", 1, {"error": "time-out"}), *acked(61, 1, process=8)], WAIT, STRICT,
    ),
}  # fmt: skip


def findings(tmp_path, steps: list[tuple], wait: float | None, promises: Promises) -> dict:
    options = CheckOptions(
        broker=msgspec.structs.replace(promises, ack_wait_s=wait, marks_redeliveries="never")
    )
    tmp_path.mkdir(exist_ok=True)
    verdict = judge.judge(lay_out(tmp_path / "history", history(*steps), slice_rows=1000), options)
    return {one.name: one for one in verdict.findings}


@pytest.mark.parametrize("name", GUILTY)
def test_guilty(tmp_path, name):
    *history_, anomaly = GUILTY[name]
    assert set(findings(tmp_path, *history_)) == {anomaly}


@pytest.mark.parametrize("name", INNOCENT)
def test_innocent(tmp_path, name):
    assert set(findings(tmp_path, *INNOCENT[name])) == set()


def test_a_double_delivery_names_the_promise_that_would_excuse_it(tmp_path):
    steps = [*SENT, got(2, 1), got(20, 2), *BOTH]
    sentence = findings(tmp_path, steps, None, CAUTIOUS)["double-delivery"].sentence
    assert "none is promised to (ack_wait_s, --ack-wait)" in sentence
    sentence = findings(tmp_path / "b", steps, WAIT, CAUTIOUS)["double-delivery"].sentence
    assert "for which 30 s are promised" in sentence


EVENTS = [
    {"time": 1 * S, "process": "p", "type": "invoke", "f": "send", "message": "a"},
    {"time": 2 * S, "process": "p", "type": "ok", "f": "send", "message": "a"},
    {"time": 3 * S, "process": "c", "type": "ok", "f": "deliver", "message": "a"},
    {"time": 40 * S, "process": "d", "type": "ok", "f": "deliver", "message": "a"},
    *({"time": 41 * S, "process": who, "type": type_, "f": "ack", "message": "a"}
      for who in "cd" for type_ in ("invoke", "ok")),
]  # fmt: skip


def test_events_and_their_promise():
    assert check(EVENTS, drained=True).valid is False
    assert check(EVENTS, drained=True, ack_wait_s=30).valid is True
    told = {"time": 4 * S, "process": "c", "type": "info", "f": "timeout", "message": "a"}
    assert check([*EVENTS[:3], told, *EVENTS[3:]], drained=True).valid is True
    with pytest.raises(HistoryError, match="timeout is ok: it has no invocation and must be info"):
        check([*EVENTS[:3], {**told, "type": "ok"}])
    with pytest.raises(HistoryError, match='timeout has no "message"'):
        check([*EVENTS[:3], {**told, "message": None}])
    with pytest.raises(ValueError, match="ack_wait_s is 0; it must be a number of seconds above 0"):
        check(EVENTS, ack_wait_s=0)
