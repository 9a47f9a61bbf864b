"""The deaths and lives of brokers' processes, by the rows that tell them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from checker_rows import MS, Row, o, table
from test_facts import whole
from test_findings import deliver, role, send

from checkers.attempts import attempts_of
from checkers.deaths import Answers, Deaths, brokers_gone, read, sealed
from checkers.ends import Keyed
from checkers.ends import read as ends_of
from checkers.facts import gather
from checkers.rows import NONE, PlaceTable, from_table

EVER = np.iinfo(np.int64).max


def deaths_of(rows: list[Row], control: list[Row] | None = None) -> Deaths:
    return read({0: gather(whole(rows))}, table(rows if control is None else control))


def fault(f: str, observed: Any, type_: str = "info") -> Row:
    return o(5, -1, type_, f, value=json.dumps({"label": "x", "observed": observed}))


GONE = {"a1": "gone", "b1": "running", "c1": "gone"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (fault("kill", GONE), ["a1", "c1"]),
        (fault("heal:kill", GONE), ["a1", "c1"]),
        (fault("hook", GONE), ["a1", "c1"]),
        (fault("kill", GONE, "invoke"), []),
        (fault("pause", GONE), []),
        (fault("kill", None), []),
        (fault("kill", ["a1"]), []),
        (o(5, -1, "info", "kill", value=None), []),
    ],
)
def test_brokers_that_a_fault_saw_gone(row, expected):
    assert list(brokers_gone(whole([row])[0])) == expected


def test_deaths_are_told_by_monitor_nemesis_and_harness():
    rows = [
        *role(1, "a1", "live", 0, 1, "A"), *role(4, "a1", "stopped", 3, 4, "A"), fault("kill", GONE),
        o(7, -3, "info", "restart", broker="b1"), *role(9, "b1", "live", 8, 9, None),
    ]  # fmt: skip
    deaths = deaths_of(rows)
    assert deaths.rows == {(0, "a1"): [4, 5], (0, "c1"): [5], (0, "b1"): [7]}
    assert deaths.possible_ns == {(0, "a1"): [3 * MS, EVER], (0, "c1"): [EVER], (0, "b1"): [EVER]}
    assert deaths.names == ["a1", "b1", "c1"]
    assert deaths.node_ids == {(0, "a1"): "A"}
    assert deaths.changes == {(0, "a1"): [(1, 0), (4, 3 * MS)], (0, "b1"): [(9, 8 * MS)]}


def test_lives_last_from_the_earliest_begin_to_the_latest_end():
    rows = [
        *role(1, "a1", "live", 0, 1), *role(2, "b1", "backup", 1, 2), *role(3, "a1", "unreachable", 2, 3),
        *role(5, "a1", "stopped", 4, 5), *role(8, "a1", "live", 7, 8),
    ]  # fmt: skip
    (lives,) = deaths_of(rows).lives.values()
    assert {name: [moments.tolist() for moments in one] for name, one in lives.items()} == {
        "a1": [[0, 7 * MS], [5 * MS, EVER]]
    }


NODES = Deaths(node_ids={(0, "a1"): "A", (0, "a2"): "A", (0, "b1"): "B", (1, "b1"): "A", (0, "d1"): "c1"})


def test_brokers_of_one_node_have_one_node_id():
    assert NODES.of_one_node(0, "a1", "a2")
    assert NODES.of_one_node(0, "c1", "c1")
    assert not NODES.of_one_node(0, "a1", "b1")
    assert not NODES.of_one_node(0, "c1", "e1")
    numbers = [NODES.node(0, name) for name in ("a1", "a2", "b1", "c1", "d1", "e1")]
    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 5
    assert NODES.node(1, "b1") == numbers[0]
    assert NODES.node(0, None) == NONE


def test_rows_have_the_nodes_of_their_brokers():
    rows = from_table(
        table([o(n, 1, "ok", "send", n, broker=name) for n, name in enumerate(("a2", None, "b1", "a1"))]),
        PlaceTable(),
    )
    numbers = NODES.nodes(rows, np.arange(4)).tolist()
    assert numbers == [NODES.node(0, name) for name in ("a1", None, "b1", "a1")]


ONE = deaths_of([*role(4, "a1", "live", 3, 4), fault("kill", {"a1": "gone"})])


def test_one_process_neither_dies_nor_changes_its_role():
    assert ONE.one_process(0, "a1", 5, 9, 9 * MS)
    assert not ONE.one_process(0, "a1", 4, 9, 9 * MS)
    assert ONE.one_process(0, "a1", 4, 5, 5 * MS)
    assert not ONE.one_process(0, "a1", 2, 3, 3 * MS)
    assert ONE.one_process(0, "a1", 2, 3, 3 * MS - 1)
    assert ONE.one_process(0, "b1", 2, 9, 9 * MS)
    assert ONE.one_process(1, "a1", 2, 9, 9 * MS)


def test_a_broker_without_a_name_may_be_any_of_its_run():
    assert not ONE.one_process(0, None, 5, 9, 9 * MS)
    assert ONE.one_process(1, None, 5, 9, 9 * MS)
    assert not deaths_of(role(1, "a1", "live", 0, 1)).one_process(0, None, 5, 9, 9 * MS)


def test_the_latest_answer_that_names_a_broker_tells_who_is_at_the_other_end():
    def subscribed(index: int, broker: str | None, type_: str = "ok", **columns: object) -> Row:
        return o(index, 1, type_, "subscribe", **{"session": 1, "broker": broker, **columns})

    rows = [
        subscribed(1, "a1"), subscribed(3, "c1"), subscribed(5, None), subscribed(6, "b1", "info"),
        subscribed(7, "b1", session=None), o(8, 1, "ok", "unsubscribe", session=1, broker="b1"),
        o(9, 1, "ok", "connect", connection=4, broker="b1"), o(10, 1, "ok", "connect", broker="a1"),
        o(11, 1, "ok", "begin", transaction=6, broker="z1"),
    ]  # fmt: skip
    deaths = deaths_of(
        [fault("kill", {"a1": "gone", "c1": "gone"}), o(0, -3, "info", "restart", broker="b1")], rows
    )

    def told(keyed: Keyed, number: int) -> tuple[int, int, int]:
        at = np.zeros(1, dtype=np.int64), np.array([number])
        return tuple(int(keyed.find(name, *at)[0]) for name in ("told", "ns", "broker"))

    assert deaths.names == ["a1", "b1", "c1"]
    assert told(deaths.sessions, 1) == (3, 3 * MS, 2)
    assert told(deaths.connections, 4) == (9, 9 * MS, 1)
    assert told(deaths.transactions, 6) == (11, 11 * MS, 3)
    for keyed in (deaths.sessions, deaths.connections, deaths.transactions):
        assert told(keyed, NONE) == (NONE, NONE, NONE)
    runs, numbers = np.zeros(3, dtype=np.int64), np.array([1, 1, 2])
    answers = Answers.of(deaths.sessions, runs, numbers, np.array([3, 4, 9]))
    assert answers.told.tolist() == [NONE, 3, NONE]
    assert answers.ns.tolist() == [NONE, 3 * MS, NONE]
    assert answers.broker.tolist() == [NONE, 2, NONE]


def answers(*told: tuple[int, int]) -> Answers:
    rows, brokers = np.array(told, dtype=np.int64).T
    return Answers(rows, np.where(rows == NONE, NONE, rows * 10), brokers)


def test_the_later_answer_counts_and_two_brokers_are_none():
    some = answers((3, 0), (5, 0), (3, 0), (NONE, NONE), (3, 0), (NONE, NONE))
    others = answers((5, 0), (3, 0), (5, 1), (5, 1), (NONE, NONE), (NONE, NONE))
    later, given = some.with_(others), some.or_deliveries(others)
    assert later.told.tolist() == [5, 5, 5, 5, 3, NONE]
    assert later.ns.tolist() == [50, 50, 50, 50, 30, NONE]
    assert later.broker.tolist() == given.broker.tolist() == [0, 0, NONE, 1, 0, NONE]
    assert given.told.tolist() == [3, 5, 3, 5, 3, NONE]
    assert given.ns.tolist() == [30, 50, 30, 50, 30, NONE]


# ------------------------------------------------------------------------------- sends and commits


def sealed_by(rows: list[Row], told: list[Row], unknown: tuple[int, ...] = (1,)) -> dict[int, int]:
    """The row by which each message was stored or never will be, where one says so."""
    part = from_table(table(sorted(rows, key=lambda row: row["index"])), PlaceTable())
    messages = part.message[part.first_row]
    control = table([o(0, 9, "info", "disconnect")])
    attempts = attempts_of(part, ends_of(control), atomic=True)
    found = sealed(part, np.isin(messages, unknown), deaths_of(told, told), attempts)
    return {int(one): int(row) for one, row in zip(messages, found, strict=True) if row != NONE}


UNKNOWN = send(0, 1, "info", broker="a1")
KILLED = [fault("kill", {"a1": "gone"})]
LIVE = [*role(0, "a1", "live", 0, 0, "A"), *KILLED]


def test_a_send_is_sealed_by_the_death_of_the_process_that_took_it():
    read_it = deliver(30, 1)
    assert sealed_by([*UNKNOWN, *read_it], KILLED) == {1: 5}
    assert sealed_by([*UNKNOWN, *read_it], []) == {}
    assert sealed_by([*UNKNOWN, *read_it], KILLED, ()) == {}
    assert sealed_by([*UNKNOWN, *deliver(30, 1, broker="b1")], KILLED) == {}
    assert sealed_by([*UNKNOWN, *send(2, 2, broker="a1"), *deliver(30, 1, broker=None)], KILLED) == {}
    assert sealed_by([*send(0, 1, "info", broker="a1", transaction=9), *read_it], KILLED) == {}
    assert sealed_by([*send(6, 1, "info", broker="a1"), *read_it], KILLED) == {}


def test_only_messages_that_are_asked_about_are_sealed():
    others = [*UNKNOWN, *send(2, 2, "info", broker="a1"), *deliver(30, 1), *deliver(31, 2)]
    assert sealed_by(others, KILLED) == {1: 5}
    again = [*send(6, 2, "fail", broker="a1"), *send(14, 1, "fail", broker="a1")]
    again += [*send(10, 3, "info", broker="a1"), *deliver(32, 3)]
    assert sealed_by([*others, *again], [{**KILLED[0], "index": 12}]) == {1: 12}


def test_each_attempt_of_unknown_outcome_must_be_sealed():
    nobody = send(2, 1, "info", broker=None)
    assert sealed_by([*UNKNOWN, *nobody, *deliver(30, 1)], KILLED) == {}
    assert sealed_by([*UNKNOWN, *nobody, *deliver(30, 1)], LIVE) == {1: 5}


def test_a_send_of_which_nobody_knows_the_taker_is_sealed_by_the_death_of_all_that_were_live():
    unnamed = [*send(2, 1, "info", broker=None), *deliver(30, 1)]
    other = role(1, "b1", "live", 0, 1, "B")
    assert sealed_by(unnamed, LIVE) == {1: 5}
    assert sealed_by(unnamed, [*LIVE, *other]) == {}
    assert sealed_by(unnamed, [*other, *LIVE]) == {}
    assert sealed_by(unnamed, [*LIVE, *role(1, "b1", "backup", 0, 1, "B")]) == {1: 5}
    assert sealed_by([unnamed[0], unnamed[2]], LIVE) == {}


def test_a_commit_that_was_answered_was_not_asked_of_a_process_that_was_gone():
    begun = o(1, 1, "ok", "begin", transaction=9, broker="a1")
    one, nobody = np.zeros(1, dtype=np.int64), np.full(1, NONE)
    for outcome, expected in (("info", 5), ("ok", NONE)):
        control = [
            begun,
            o(6, 1, "invoke", "commit", transaction=9),
            o(7, 1, outcome, "commit", transaction=9),
        ]
        deaths = deaths_of(KILLED, control)
        found = deaths.gone_before_commit(ends_of(table(control)), one, np.array([9]), nobody, nobody)
        assert found.tolist() == [expected]
