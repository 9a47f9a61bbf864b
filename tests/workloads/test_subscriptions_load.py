"""Workload ``subscriptions`` in a simulated cluster: what it does, and that it is written down."""

from collections import defaultdict

import msgspec
import pytest
from stomp_doubles import well_formed

from checkers.schema import COLUMNS, json_object
from harness.history import spec as specs
from harness.interface import Fault, Schedule, UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own import system
from harness.systems.own.dialect import DIALECT

pytestmark = pytest.mark.slow  # most look at one run, which takes two seconds

GIVEN = {
    "policy": "standalone", "pairs": 1, "workload": "subscriptions", "time_limit_s": 15.0, "rate": 60.0,
    "producers": 2, "consumers": 6, "groups": 3, "seed": 3,
}  # fmt: skip


def run(*faults, **changes):
    ran = simulate(specs.build({**GIVEN, **changes}), Schedule(faults=faults))
    assert ran.valid is True, (ran.grave, ran.trouble)
    return [{name: row[name] for name in COLUMNS} for row in ran.rows]


@pytest.fixture(scope="module")
def rows():
    return run()


def of(rows, f, type="ok"):  # noqa: A002 - the history's own name for it
    return [row for row in rows if (row["f"], row["type"]) == (f, type)]


def names(rows):
    return {row["subscription"] for row in rows}


def test_every_row_of_a_consumer_says_which_subscription_it_is_of(rows):
    well_formed([row for row in rows if row["process"] >= 0])
    for f in ("subscribe", "unsubscribe", "deliver", "ack", "disconnect", "drop"):
        mine = [row for row in rows if row["f"] == f]
        assert mine
        assert all(row["subscription"] and row["queue"] == "/topic/t0" for row in mine), f


def test_a_durable_subscription_is_left_and_found_again_with_what_was_sent_meanwhile(rows):
    back = [row for row in of(rows, "subscribe") if row["subscription"] == "durable0-t0"]
    assert len(back) > 2
    left = max(
        row["index"]
        for row in rows
        if row["index"] < back[1]["index"] and row["session"] == back[0]["session"]
    )
    sent = {row["message"] for row in of(rows, "send") if left < row["index"] < back[1]["index"]}
    got = {row["message"] for row in of(rows, "deliver") if row["session"] == back[1]["session"]}
    assert sent
    assert sent <= got


def test_a_subscription_is_dropped_and_made_again_by_its_name(rows):
    drops = [row for row in of(rows, "drop") if "plain" not in row["subscription"]]
    again = {row["subscription"]: row["index"] for row in of(rows, "subscribe")}
    assert sum(again[row["subscription"]] > row["index"] for row in drops) > 2
    together = {row["index"] + 1 for row in of(rows, "unsubscribe", "invoke")}
    assert {row["index"] in together for row in of(rows, "drop", "invoke")} == {True, False}


def test_a_shared_one_has_several_consumers_and_a_plain_one_ends_with_its_session(rows):
    sessions = defaultdict(set)
    for row in of(rows, "deliver"):
        sessions[row["subscription"]].add(row["session"])
    assert len(sessions["shared1-t0"]) > 2
    plain = [name for name in sessions if name.startswith("plain")]
    assert len(plain) > 2
    assert all(len(sessions[name]) == 1 for name in plain)
    assert set(plain) <= names(of(rows, "drop"))


def test_a_plain_one_is_dropped_from_when_its_end_is_asked_for_to_the_answer(rows):
    """If it were asked for later, a late answer would be that of a broker that is over."""
    begun = {row["subscription"]: row["time"] for row in of(rows, "drop", "invoke")}
    ended = {row["subscription"]: row["time"] for row in of(rows, "drop")}
    asked = {row["subscription"]: row["time"] for row in of(rows, "unsubscribe", "invoke")}
    plain = [name for name in ended if name.startswith("plain")]
    assert len(plain) > 2
    assert all(begun[name] < ended[name] for name in plain)
    unsubscribed = [name for name in plain if name in asked]
    assert unsubscribed
    assert all(begun[name] == asked[name] for name in unsubscribed)


def test_a_selector_is_asked_for_and_what_it_does_not_want_does_not_come(rows):
    (asked,) = {row["value"] for row in of(rows, "subscribe", "invoke")} - {None}
    assert json_object(asked) == {"selector": {"colour": ["red", "green"]}}
    colours = {
        row["message"]: json_object(row["value"])["properties"]["colour"]
        for row in of(rows, "send", "invoke")
    }
    got = defaultdict(set)
    for row in of(rows, "deliver"):
        got[row["subscription"]].add(colours[row["message"]])
    assert got["durable2-t0"] == {"red", "green"}
    assert got["durable0-t0"] == {"red", "green", "blue"}


def test_a_durable_subscription_is_made_again_with_another_selector_where_that_is_asked_for():
    rows = run(change_selectors=True, seed=4)
    asked = defaultdict(list)
    for row in of(rows, "subscribe"):
        asked[row["subscription"]].append(row["value"])
    assert len(set(asked.pop("durable2-t0"))) > 2
    assert all(len(set(some)) == 1 for some in asked.values())


def test_what_waits_for_a_subscription_is_found_in_the_stores(monkeypatch):
    async def nothing(self, context):
        pass

    monkeypatch.setattr("workloads.subscriptions.SubscriptionsLoad.drain", nothing)
    stored = simulate(specs.build({**GIVEN, "hold_s": 3.0, "time_limit_s": 6.0, "prefetch": 1})).rows
    kept = {(row["queue"], row["subscription"]) for row in of(stored, "browse") if row["message"] is not None}
    assert ("/topic/t0", "durable0-t0") in kept
    assert ("/topic/t0", "shared1-t0") in kept


def test_after_a_drop_of_unknown_outcome_the_next_name_is_taken_and_the_old_one_dropped_again():
    pauses = [
        Fault(kind="pause", start_s=2.0 + 7 * n, duration_s=5.0, target="a1", options={}) for n in range(2)
    ]
    rows = run(*pauses, time_limit_s=15.0, operation_timeout_s=1.0)
    unknown = {row["subscription"]: row["index"] for row in reversed(of(rows, "drop", "info"))}
    left = {name: index for name, index in unknown.items() if not name.startswith("plain")}
    assert left
    for name, index in left.items():
        assert name not in names(row for row in of(rows, "subscribe", "invoke") if row["index"] > index)
        assert name in names(row for row in of(rows, "drop", "invoke") if row["index"] > index)


def of_a_dialect(monkeypatch, **changes):
    topics = msgspec.structs.replace(DIALECT.topics, **changes)
    monkeypatch.setattr(system.OwnSystem, "dialect", msgspec.structs.replace(DIALECT, topics=topics))


def test_brokers_without_shared_subscriptions_or_selectors_are_loaded_with_the_others(monkeypatch):
    of_a_dialect(monkeypatch, shared=None, selector=None)
    rows = run(time_limit_s=5.0)
    assert {name.partition("-")[0] for name in names(of(rows, "subscribe"))} == {"durable0", "plain3"}
    assert {row["value"] for row in of(rows, "send", "invoke")} == {None}


def test_brokers_without_any_that_outlive_their_connections_are_refused(monkeypatch):
    of_a_dialect(monkeypatch, shared=None, durable=None)
    with pytest.raises(UsageError, match="system own have no subscriptions that outlive their connections"):
        compose(specs.build({**GIVEN, "environment": "simulation"}))


def test_churn_drops_and_makes_again_more_often_and_queues_are_topics(rows):
    often = run(churn=4.0, queues=2)
    assert len(of(often, "drop")) > 3 * len(of(rows, "drop"))
    assert {row["queue"] for row in of(often, "send")} == {"/topic/t0", "/topic/t1"}
