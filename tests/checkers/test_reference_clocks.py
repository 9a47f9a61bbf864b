"""Which faults leave unsaid what takes a broker's clock, by the reference alone.

For each clause a fault that does, and one as near as can be that does not.
"""

from __future__ import annotations

import json

import pytest
from checker_rows import MS, Row, finished, o
from test_findings import answer, deliver, role, send
from test_owed import joined

from checkers import reference

EXPIRING = json.dumps({"expires": [20 * MS, 25 * MS]})
FAULT: dict[str, object] = {"label": "f", "links": [], "nodes": ["a1"], "target": "a1"}
PAIRS = [*role(0, "a1", "live", 0, 0, "a"), *role(0, "a2", "backup", 0, 0, "a"),
         *role(0, "b1", "live", 0, 0, "b")]  # fmt: skip


def rows_with(*events: Row, broker: str | None = "a1", giver: str | None = "a1") -> list[Row]:
    """A message that was given to a session that was asked for when it had expired."""
    some = [
        *PAIRS,
        *send(10, 1, value=EXPIRING, broker=broker),
        *joined(40, broker="a1"),
        *deliver(42, 1, broker=giver),
        *answer(43, 1, broker=giver),
        *finished(90),
        *events,
    ]
    return [dict(row, index=n) for n, row in enumerate(sorted(some, key=lambda row: row["time"]))]


def fault(at: int, kind: str, type_: str = "info", **told: object) -> Row:
    return o(at, -1, type_, kind, value=json.dumps({**FAULT, **told}))


def asked(at: int = 12, kind: str = "clock-skew", **told: object) -> Row:
    return fault(at, kind, "invoke", **told)


SKEWED = {"bit": True, "observed": {"a1": "skewed 1000 ms"}}
SEEN = fault(13, "clock-skew", **SKEWED)
HEALED = fault(31, "heal:clock-skew", bit=True, observed={"a1": "true"})
OF_B1 = {"nodes": ["b1"], "target": "b1"}
SEEN_AT_B1 = fault(13, "clock-skew", **OF_B1, bit=True, observed={"b1": "skewed 1000 ms"})

LEAVES_UNSAID = {
    "its clock was seen to be wrong": rows_with(asked(), SEEN),
    "nobody looked at its clock": rows_with(asked()),
    "nothing was told of what was seen": rows_with(asked(), fault(13, "clock-skew")),
    "its clock was wrong when it was sent, and until that was healed": rows_with(
        asked(5), fault(6, "clock-skew", **SKEWED), HEALED),
    "its clock was asked to be healed before it was sent, and was so only later": rows_with(
        asked(5), fault(6, "clock-skew", **SKEWED), fault(8, "heal:clock-skew", "invoke"), HEALED),
    "the clock of the other of its pair was wrong": rows_with(
        asked(nodes=["a2"]), fault(13, "clock-skew", nodes=["a2"], bit=True, observed={"a2": "skewed"})),
    "the clock of who gave it out was wrong": rows_with(asked(**OF_B1), SEEN_AT_B1, giver="b1"),
    "the clock of some broker was wrong, and who took it is not told": rows_with(
        asked(**OF_B1), SEEN_AT_B1, broker=None, giver=None),
    "what somebody else did may be to its clock": rows_with(
        asked(kind="nemesis:bump", nodes=[], target=""), fault(13, "nemesis:bump", nodes=[], target="")),
}  # fmt: skip
SAYS = {
    "no fault was there": rows_with(),
    "the fault found no broker": rows_with(
        asked(nodes=[]), fault(13, "clock-skew", nodes=[], bit=False, observed={})),
    "its clock was seen to be right": rows_with(
        asked(), fault(13, "clock-skew", bit=False, observed={"a1": "true"})),
    "the clock of another pair was wrong": rows_with(asked(**OF_B1), SEEN_AT_B1),
    "that was healed before it was sent": rows_with(
        asked(3), fault(4, "clock-skew", **SKEWED),
        fault(8, "heal:clock-skew", bit=True, observed={"a1": "true"})),
    "its clock was wrong only afterwards": rows_with(asked(50), fault(51, "clock-skew", **SKEWED)),
    "its disk was slow": rows_with(
        asked(kind="disk-slow"), fault(13, "disk-slow", bit=True, observed={"a1": "slow"})),
}  # fmt: skip


def found(rows: list[Row]) -> set[str]:
    return {one.name for one in reference.find(rows)}


@pytest.mark.parametrize("name", LEAVES_UNSAID)
def test_nothing_is_said_of_a_message_while_the_clock_of_its_broker_may_be_wrong(name):
    assert found(LEAVES_UNSAID[name]) == set()


@pytest.mark.parametrize("name", SAYS)
def test_what_has_expired_is_said_to_have_where_the_clock_of_its_broker_was_right(name):
    assert found(SAYS[name]) == {"expired-delivery"}


WAITING = send(10, 1, value=json.dumps({"expires": [10**12, 10**12 + 1]}))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([], {"lost"}), ([asked(nodes=["b1"]), SEEN_AT_B1], {"lost"}), ([asked(), SEEN], set()),
     ([asked(nodes=["b1"]), SEEN_AT_B1, *joined(20, broker="b1")], set())],
)  # fmt: skip
def test_what_is_missing_may_have_expired_wherever_it_may_have_been_forwarded(rows, expected):
    some = [*PAIRS, *WAITING, *finished(90, read=("a1", "b1")), *rows]
    in_order = [dict(row, index=n) for n, row in enumerate(sorted(some, key=lambda row: row["time"]))]
    assert found(in_order) == expected
