"""Workload ``transactions`` in a simulated cluster: what it does, and that it is written down."""

from collections import Counter, defaultdict

import msgspec
import pytest
from stomp_doubles import well_formed

from checkers.schema import COLUMNS
from harness.history import spec as specs
from harness.run.simulate import simulate
from harness.systems.own import system
from harness.systems.own.dialect import DIALECT
from stomp_protocol.client.connection import Connection

GIVEN = {
    "policy": "standalone", "pairs": 1, "workload": "transactions", "time_limit_s": 12.0, "rate": 80.0,
    "producers": 2, "consumers": 6, "groups": 3, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def ran():
    return simulate(specs.build(GIVEN))


@pytest.fixture(scope="module")
def rows(ran):
    return [{name: row[name] for name in COLUMNS} for row in ran.rows]


def of(rows, f, type):  # noqa: A002 - the history's own name for it
    return [row for row in rows if (row["f"], row["type"]) == (f, type)]


@pytest.mark.slow
def test_a_sound_broker_is_found_sound(ran):
    assert ran.valid is True, (ran.grave, ran.trouble)
    assert not ran.findings


def test_transactions_commit_roll_back_and_are_left_alone(rows):
    well_formed([row for row in rows if row["process"] >= 0])
    begun = {row["transaction"] for row in of(rows, "begin", "ok")}
    committed = {row["transaction"] for row in of(rows, "commit", "ok")}
    aborted = {row["transaction"] for row in of(rows, "abort", "ok")}
    assert not committed & aborted
    assert committed | aborted < begun
    assert len(committed) > 5 * len(aborted) > 0
    assert len(begun - committed - aborted) > 1


def test_a_transaction_acknowledges_what_it_passes_on_to_queues_further_down(rows):
    inside = defaultdict(Counter)
    reached = defaultdict(set)
    for row in of(rows, "ack", "invoke") + of(rows, "send", "invoke"):
        if row["transaction"] is not None:
            inside[row["transaction"]][row["f"]] += 1
            reached[row["transaction"], row["f"]].add(row["queue"])
    whole = [number for number in inside if set(inside[number]) == {"ack", "send"}]
    assert len(whole) > 0.9 * len(inside)
    for number in whole:
        assert min(reached[number, "ack"]) < min(reached[number, "send"])
    queues = {row["queue"] for row in of(rows, "send", "invoke") if row["transaction"] is not None}
    assert queues == {"q1", "q2"}
    assert {row["queue"] for row in of(rows, "send", "invoke") if row["transaction"] is None} == {"q0"}


def test_what_was_rolled_back_comes_again_in_the_same_session(rows):
    aborted = {row["transaction"]: row["index"] for row in of(rows, "abort", "ok")}
    undone = {
        (row["message"], row["session"]): aborted[row["transaction"]]
        for row in of(rows, "ack", "ok")
        if row["transaction"] in aborted
    }
    again = [
        row
        for row in of(rows, "deliver", "ok")
        if row["index"] > undone.get((row["message"], row["session"]), row["index"])
    ]
    assert again
    assert all(row["redelivered"] for row in again)


def test_transactions_are_held_open_for_as_long_as_drawn(rows):
    begun = {row["transaction"]: row["time"] for row in of(rows, "begin", "ok")}
    ends = of(rows, "commit", "invoke") + of(rows, "abort", "invoke")
    open_s = sorted((row["time"] - begun[row["transaction"]]) / 1e9 for row in ends)
    assert open_s[0] < 0.01
    assert open_s[-1] > 0.5


def of_a_dialect(monkeypatch, **changes):
    monkeypatch.setattr(system.OwnSystem, "dialect", msgspec.structs.replace(DIALECT, **changes))
    ran = simulate(specs.build({**GIVEN, "time_limit_s": 3.0}))
    assert ran.valid is True, (ran.grave, ran.trouble)
    return ran.rows


def test_where_brokers_have_no_groups_there_are_none(monkeypatch):
    rows = of_a_dialect(monkeypatch, group_header=None)
    assert {row["group"] for row in rows if row["f"] == "send"} == {None}


def test_where_an_ack_cannot_be_part_of_a_transaction_it_comes_behind_the_commit(monkeypatch):
    rows = of_a_dialect(monkeypatch, transactional_acks=False)
    assert of(rows, "commit", "ok")
    assert {row["transaction"] for row in of(rows, "ack", "invoke")} == {None}
    moved = {row["message"] for row in of(rows, "ack", "ok") if row["queue"] == "q0"}
    assert len(moved) > 20


def test_where_a_roll_back_gives_nothing_back_a_mover_comes_again_for_it(monkeypatch):
    rows = of_a_dialect(monkeypatch, redelivers_aborted=False)
    aborted = {row["connection"]: row["index"] for row in of(rows, "abort", "ok")}
    assert aborted
    later = [
        row
        for row in rows
        if row["index"] > aborted.get(row["connection"], row["index"]) and row["f"] in ("deliver", "begin")
    ]
    assert not [row for row in later if row["f"] == "begin"]


@pytest.mark.slow
def test_transactions_of_one_name_are_told_apart_by_their_connections_and_order(rows, monkeypatch):
    named = set()
    request = Connection.request

    def seen(self, head, *arguments):
        named.update(line for line in head.split(b"\n") if line.startswith(b"transaction:"))
        request(self, head, *arguments)

    monkeypatch.setattr(Connection, "request", seen)
    ran = simulate(specs.build({**GIVEN, "reuse_transactions": True}))
    assert named == {b"transaction:tx"}
    assert ran.valid is True, (ran.grave, ran.trouble)
    assert len({row["transaction"] for row in ran.rows}) > 10
