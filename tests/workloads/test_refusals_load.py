"""Workload ``refusals`` in a simulated cluster: what is asked for, refused, and comes of it."""

from collections import Counter

import msgspec
import pytest
from stomp_doubles import well_formed

from checkers.schema import COLUMNS, json_object
from harness.history import spec as specs
from harness.interface import UsageError, Wishes
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own import system
from harness.systems.own.dialect import DIALECT

GIVEN = {
    "policy": "standalone", "pairs": 1, "workload": "refusals", "time_limit_s": 10.0, "rate": 80.0,
    "producers": 2, "consumers": 3, "groups": 3, "seed": 3,
}  # fmt: skip
ATTEMPTS = 3


def run(**changes):
    ran = simulate(specs.build({**GIVEN, **changes}))
    assert ran.valid is True, (ran.grave, ran.trouble)
    return [{name: row[name] for name in COLUMNS} for row in ran.rows]


@pytest.fixture(scope="module")
def rows():
    return run()


def of(rows, f, type="ok"):  # noqa: A002 - the history's own name for it
    return [row for row in rows if (row["f"], row["type"]) == (f, type)]


def asked(rows, type="invoke"):  # noqa: A002 - the history's own name for it
    return {row["message"]: json_object(row["value"]) for row in of(rows, "send", type) if row["value"]}


def stored(rows, store):
    return Counter(row["message"] for row in of(rows, "browse") if row["value"] == store)


def test_messages_ask_for_all_that_there_is_and_only_those_without_a_group_for_another_turn(rows):
    well_formed([row for row in rows if row["process"] >= 0])
    kinds = Counter(kind for told in asked(rows).values() for kind in told)
    assert min(kinds[kind] for kind in ("expires", "delay", "priority")) > 10
    grouped = {row["message"] for row in of(rows, "send") if row["group"] is not None}
    assert grouped
    assert all(set(told) == {"expires"} for message, told in asked(rows).items() if message in grouped)


def test_what_is_refused_as_often_as_it_may_be_is_a_dead_letter_of_its_queue_and_group(rows):
    refused, dead = Counter(row["message"] for row in of(rows, "nack")), stored(rows, "dead-letter")
    assert len(dead) > 10
    assert set(dead.values()) == {1}
    assert all(refused[message] == ATTEMPTS for message in dead)
    sent = {row["message"]: (row["queue"], row["group"]) for row in of(rows, "send")}
    assert all(
        sent[row["message"]] == (row["queue"], row["group"])
        for row in of(rows, "browse")
        if row["value"] == "dead-letter"
    )


def test_what_was_refused_less_often_comes_again(rows):
    refused, got = (Counter(row["message"] for row in of(rows, f)) for f in ("nack", "deliver"))
    once = [message for message, times in refused.items() if times == 1]
    assert len(once) > 5
    expiring = asked(rows)
    assert all(got[message] > 1 for message in once if "expires" not in expiring.get(message, {}))


def test_what_expires_is_with_the_expired_and_when_that_was_is_known_once_it_was_answered(rows):
    expired, told = stored(rows, "expired"), asked(rows, "ok")
    assert expired
    last = rows[-1]["time"]
    assert all(low < last for low, _ in (told[message]["expires"] for message in expired if message in told))
    spans = [one["expires"] for one in told.values() if "expires" in one]
    assert all(low < high for low, high in spans)


def test_a_delayed_message_is_not_delivered_before_its_time(rows):
    first = {row["message"]: row["time"] for row in reversed(of(rows, "deliver"))}
    delays = {message: told["delay"][0] for message, told in asked(rows).items() if "delay" in told}
    came = [message for message in delays if message in first]
    assert came
    assert all(first[message] >= delays[message] for message in came)


def test_the_drain_waits_for_what_was_refused_however_long_that_takes():
    rows = run(time_limit_s=4.0, properties={"*": {"address-settings.#.redelivery-delay": 4000}})
    began = {row["value"]: row["time"] for row in of(rows, "phase", "info")}
    late = [row for row in of(rows, "deliver") if row["time"] > began["drain"] + 2 * 10**9]
    assert late
    assert not stored(rows, "main")


def of_a_dialect(monkeypatch, **changes):
    monkeypatch.setattr(system.OwnSystem, "dialect", msgspec.structs.replace(DIALECT, **changes))


def test_of_brokers_that_know_no_such_headers_nothing_is_asked(monkeypatch):
    of_a_dialect(monkeypatch, wishes=Wishes())
    rows = run(time_limit_s=4.0)
    assert of(rows, "nack")
    assert not asked(rows)


def test_of_brokers_that_know_no_refusal_messages_expire_and_are_urgent_and_none_is_kept(monkeypatch):
    of_a_dialect(monkeypatch, nacks=False)
    rows = run(time_limit_s=4.0)
    assert not of(rows, "nack", "invoke")
    assert {"expires", "priority"} <= {kind for told in asked(rows).values() for kind in told}
    left = {row["message"] for row in of(rows, "deliver")} - {row["message"] for row in of(rows, "ack")}
    assert not left


def test_brokers_that_know_neither_refusals_nor_wishes_are_refused(monkeypatch):
    of_a_dialect(monkeypatch, nacks=False, wishes=Wishes())
    lack = "--workload refusals: brokers of system own have no NACK, expiry, delay or priority"
    with pytest.raises(UsageError, match=lack):
        compose(specs.build({**GIVEN, "environment": "simulation"}))
