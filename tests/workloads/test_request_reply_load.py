"""Workload ``request-reply`` in a simulated cluster: replies come to who asked, while it lasts."""

import json
from collections import defaultdict

import msgspec
import pytest
from stomp_doubles import well_formed

from checkers.schema import COLUMNS, TEMPORARY
from harness.history import spec as specs
from harness.interface import UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own import system
from harness.systems.own.dialect import DIALECT

GIVEN = {
    "policy": "standalone", "pairs": 2, "workload": "request-reply", "time_limit_s": 8.0, "rate": 80.0,
    "producers": 4, "consumers": 4, "groups": 7, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def ran():
    return simulate(specs.build(GIVEN))


@pytest.fixture(scope="module")
def rows(ran):
    return [{name: row[name] for name in COLUMNS} for row in ran.rows]


def of(rows, f, type, *, temporary):  # noqa: A002 - the history's own name for it
    mine = [row for row in rows if (row["f"], row["type"]) == (f, type) and row["queue"] is not None]
    return [row for row in mine if row["queue"].startswith(TEMPORARY) == temporary]


def test_a_sound_broker_is_found_sound(ran, rows):
    assert ran.valid is True, (ran.grave, ran.trouble)
    assert not ran.findings
    well_formed([row for row in rows if row["process"] >= 0])


def test_a_request_names_the_queue_of_its_own_connection(rows):
    owner = {row["queue"]: row["connection"] for row in of(rows, "subscribe", "ok", temporary=True)}
    asked = of(rows, "send", "ok", temporary=False)
    assert len(asked) > 100
    assert all(owner[json.loads(row["value"])["reply_to"]] == row["connection"] for row in asked)


def test_nearly_every_request_is_answered_and_the_reply_read(rows):
    asked = len(of(rows, "send", "ok", temporary=False))
    read = {row["message"] for row in of(rows, "ack", "ok", temporary=True)}
    assert asked * 0.8 < len(read) < asked * 1.1


def test_each_temporary_queue_is_of_one_connection_and_ends_with_it_once(rows):
    begun, ended = (
        [row["queue"] for row in of(rows, f, type_, temporary=True)]
        for f, type_ in (("subscribe", "invoke"), ("drop", "invoke"))
    )
    assert len(set(begun)) == len(begun) > 10
    assert sorted(begun) == sorted(ended)
    assert {row["type"] for row in rows if row["f"] == "drop"} == {"invoke", "ok", "info"}


def test_who_is_there_at_the_end_of_the_load_leaves_behind_the_drain(rows):
    drain = next(row["index"] for row in rows if (row["f"], row["value"]) == ("phase", "drain"))
    late = [row for row in of(rows, "drop", "ok", temporary=True) if row["index"] > drain]
    assert late
    assert of(rows[drain:], "send", "invoke", temporary=True) == []


def test_a_request_is_answered_in_its_pair(rows):
    where = {row["queue"]: row["broker"] for row in of(rows, "subscribe", "ok", temporary=True)}
    replies = of(rows, "send", "ok", temporary=True)
    assert {(where[row["queue"]], row["broker"]) for row in replies} == {("a1", "a1"), ("b1", "b1")}


def test_the_same_seed_gives_the_same_history(rows):
    again = simulate(specs.build(GIVEN))
    assert [{name: row[name] for name in COLUMNS} for row in again.rows] == rows


def test_sequences_of_replies_have_no_gap(rows):
    told = defaultdict(list)
    for row in of(rows, "send", "invoke", temporary=True):
        told[row["queue"], row["group"], row["producer"]].append(row["sequence"])
    assert all(sequences == list(range(len(sequences))) for sequences in told.values())


def test_brokers_without_temporary_queues_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(system.OwnSystem, "dialect", msgspec.structs.replace(DIALECT, temporaries=None))
    with pytest.raises(UsageError, match="have no temporary queues that clients can name"):
        compose(specs.build({**GIVEN, "environment": "simulation"}))
