"""Workload ``selectors`` in a simulated cluster: who wants what, and who gets it."""

import pytest

from checkers.schema import json_object
from harness.history import spec as specs
from harness.interface import UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate

GIVEN = {
    "pairs": 1, "workload": "selectors", "time_limit_s": 10.0, "rate": 60.0, "producers": 2, "consumers": 4,
    "queues": 2, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    ran = simulate(specs.build(GIVEN))
    assert ran.valid is True, (ran.grave, ran.trouble)
    return ran.rows


def wanted(rows):
    """By session the colours that it asked for."""
    asked = [r for r in rows if (r["f"], r["type"]) == ("subscribe", "invoke") and r.get("value")]
    return {r["session"]: tuple(json_object(r["value"])["selector"]["colour"]) for r in asked}


def colours(rows):
    sends = (r for r in rows if (r["f"], r["type"]) == ("send", "invoke"))
    return {r["message"]: json_object(r["value"])["properties"]["colour"] for r in sends}


def test_all_is_wanted_by_some_and_each_gets_what_it_wants(rows):
    by_session, colour = wanted(rows), colours(rows)
    assert set(by_session.values()) == {("red",), ("green", "blue")}
    got = [r for r in rows if r["f"] == "deliver" and r.get("session") in by_session]
    assert {colour[r["message"]] for r in got} == {"red", "green", "blue"}
    assert all(colour[r["message"]] in by_session[r["session"]] for r in got)


def test_what_nobody_asked_for_at_the_end_is_drained(rows):
    begun = next(r["index"] for r in rows if r["f"] == "phase" and r.get("value") == "drain")
    joined = [r["session"] for r in rows if r["f"] == "subscribe" and r["index"] > begun]
    assert joined
    assert not set(joined) & set(wanted(rows))


def test_one_consumer_alone_takes_all():
    ran = simulate(specs.build({**GIVEN, "consumers": 1, "time_limit_s": 3.0}))
    assert ran.valid is True
    assert not wanted(ran.rows)


@pytest.mark.parametrize(("consumers", "pairs"), [(2, 2), (3, 3)])
def test_selected_by_pair_nobody_takes_at_a_broker_what_its_consumers_do_not_want(consumers, pairs):
    given = {**GIVEN, "pairs": pairs, "policy": "standalone", "consumers": consumers, "time_limit_s": 4.0}
    at = ("a1", "b1", "c1")[:pairs]
    off = {"*": {"cluster.message-load-balancing": "OFF"}}
    ran = simulate(
        specs.build(
            {**given, "select_by_pair": True, "consume_at": ("a1", "b1"), "drain_at": at, "properties": off}
        )
    )
    assert ran.grave == {"stuck"}
    by_session, colour = wanted(ran.rows), colours(ran.rows)
    at = {r["session"]: r["broker"] for r in ran.rows if (r["f"], r["type"]) == ("subscribe", "ok")}
    wants = {"a1": ("red",), "b1": ("green", "blue")}
    assert {by_session.get(session) for session, broker in at.items() if broker == "c1"} <= {None}
    assert all(by_session[session] == wants[broker] for session, broker in at.items() if broker != "c1")
    assert ("c1" in at.values()) == (pairs == 3), "the drain consumes at a broker without consumers, too"
    left = {
        (r["broker"], colour[r["message"]])
        for r in ran.rows
        if r["f"] == "browse" and r.get("message") is not None
    }
    assert left == {("a1", "green"), ("a1", "blue"), ("b1", "red")}


def test_selected_by_pair_a_drain_at_no_named_node_takes_all():
    given = {**GIVEN, "pairs": 2, "policy": "standalone", "consumers": 2, "time_limit_s": 4.0}
    off = {"*": {"cluster.message-load-balancing": "OFF"}}
    ran = simulate(specs.build({**given, "select_by_pair": True, "properties": off}))
    assert ran.valid is True, (ran.grave, ran.trouble)
    begun = next(r["index"] for r in ran.rows if r["f"] == "phase" and r.get("value") == "drain")
    drained = {r["session"] for r in ran.rows if r["f"] == "deliver" and r["index"] > begun}
    assert drained
    assert not drained & set(wanted(ran.rows))


def test_brokers_without_selectors_are_refused_in_one_line():
    with pytest.raises(UsageError, match="brokers of system rabbitmq have no selectors"):
        compose(specs.build({**GIVEN, "system": "rabbitmq", "policy": "quorum-queues"}))
