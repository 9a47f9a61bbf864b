"""Workload ``request-reply`` in a simulated cluster: replies come to who asked, while it lasts."""

import asyncio
import json
from collections import defaultdict

import msgspec
import pytest
from stomp_doubles import PLAIN, Server, in_loop, make_context, shortened, until, well_formed

from checkers.schema import COLUMNS, TEMPORARY
from harness.history import spec as specs
from harness.interface import Temporaries, UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own import system
from harness.systems.own.dialect import DIALECT
from stomp_protocol.frames import Frame
from workloads import consumer, request_reply
from workloads.names import Numbers
from workloads.payload import Payload
from workloads.payload import encode as body_of
from workloads.sessions import Sessions

GIVEN = {
    "policy": "standalone", "pairs": 2, "workload": "request-reply", "time_limit_s": 8.0, "rate": 80.0,
    "producers": 4, "consumers": 4, "groups": 7, "seed": 3,
}  # fmt: skip

SLOW = {
    "pairs": 1, "time_limit_s": 4.0, "rate": 40.0, "producers": 2, "consumers": 2, "groups": 2, "seed": 4,
    "hold_s": 1.0, "prefetch": 1, "quiet_period_s": 0.5,
}  # fmt: skip
"""A load whose clients hold each message for longer than the drain is to be quiet."""


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


def test_a_requester_that_has_left_by_its_own_choice_sends_nothing(rows):
    """A send that failed because its client had left would say that the broker did not answer."""
    away = [row for row in rows if (row["f"], row["type"], row["error"]) == ("send", "fail", "not connected")]
    assert not away


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


def test_replies_from_another_pair_come_to_who_asked():
    ran = simulate(specs.build({**GIVEN, "share_replies": True, "time_limit_s": 4.0}))
    assert ran.valid is True, (ran.grave, ran.trouble)
    rows = [{name: row[name] for name in COLUMNS} for row in ran.rows]
    where = {row["queue"]: row["broker"] for row in of(rows, "subscribe", "ok", temporary=True)}
    replies = of(rows, "send", "ok", temporary=True)
    assert {(where[row["queue"]], row["broker"]) for row in replies} == {("a1", "b1"), ("b1", "a1")}
    assert len({row["message"] for row in of(rows, "ack", "ok", temporary=True)}) > 50


@pytest.mark.slow
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


def test_who_waits_for_replies_acknowledges_all_of_them_before_it_leaves():
    """However long it holds each, and however few at once."""
    late = simulate(specs.build({**GIVEN, **SLOW})).rows
    drain = next(row["index"] for row in late if (row["f"], row["value"]) == ("phase", "drain"))
    stayed = {row["queue"] for row in of(late, "drop", "ok", temporary=True) if row["index"] > drain}
    replies, taken = (
        {row["message"] for row in of(late, f, "ok", temporary=True) if row["queue"] in stayed}
        for f in ("send", "ack")
    )
    assert replies == taken
    assert any(row["index"] > drain for row in of(late, "ack", "ok", temporary=True))


@in_loop
async def test_who_is_leaving_when_the_load_ends_does_leave():
    async with Server() as server:
        dialect = msgspec.structs.replace(PLAIN, temporaries=Temporaries())
        context = make_context({"a1": server}, dialect=dialect)
        rows = context.recorder
        one = request_reply.Requester(
            context, "c1", ("a1",), Sessions(), prefetch=5, hold_s=0.0, seed=1, prefix="", numbers=Numbers()
        )  # fmt: skip
        server.script["ACK"] = lambda peer, frame: None  # so it waits before it says DISCONNECT
        stays = request_reply.Stays([one], 1)
        stays.begin(asyncio.get_running_loop())
        await one.attached.wait()
        server.stored.append(
            Frame("SEND", {"destination": one.queue}, body_of(Payload(7, one.queue, "g", 1, 0), 40))
        )
        server.dispatch()
        await until(lambda: rows.of("ack"))
        with shortened(request_reply, "PRESENT_S", (0.0, 0.0)), shortened(request_reply, "SILENT", 0.0):
            coming_and_going = asyncio.create_task(stays.run())
            await until(lambda: one.leaving)
        coming_and_going.cancel()
        await asyncio.wait([coming_and_going])
        assert not rows.of("drop")
        with shortened(consumer, "LEAVE_PATIENCE_S", 0.05):
            await stays.end()
        assert rows.types("drop") == ["invoke", "ok"]
        well_formed(rows.rows)
