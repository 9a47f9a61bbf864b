"""Brokers that are made faulty on purpose, each in one way that real brokers have been.

What they do must be found under its name, with the evidence.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from broker.cluster.directory import Directory
from broker.cluster.neighbours import Neighbours
from broker.policies.ownership.lease import Lease
from broker.stomp.session import StompSession
from broker.storage.database import Statement, schema
from broker.storage.database.registry import Registered, Registry
from checkers import reference
from checkers.witness import minimal
from harness.claims.scenarios import named
from harness.history.plain_judge import options_of
from harness.interface import Fault, Schedule
from harness.run.simulate import simulate


def run(scenario, faults=None, *, seed=1, **changes):
    case = named(scenario)
    schedule = case.schedule if faults is None else Schedule(faults=faults)
    return simulate(msgspec.structs.replace(case.spec, seed=seed, **changes), schedule)


def run_until(anomaly, *arguments, **changes):
    """The first of a few runs in which the broken brokers came to do it.

    Who is faster by a millisecond is the seed's luck.
    """
    ran = None
    for seed in range(1, 9):
        ran = run(*arguments, seed=seed, **changes)
        if anomaly in ran.grave:
            break
    return ran


def shown(ran, name):
    """The first instance of a kind and the rows that are left of a few thousand, none of which
    can be spared.
    """
    options = options_of(ran.spec, ran.schedule)
    found = next(one for one in ran.findings if one.name == name)
    at = ran.rows[found.index]
    needed = {"view"} if name == "diverged" else {"role", "takeover", "phase"}
    rows = [
        row
        for row in ran.rows
        if row["f"] in needed
        or row["index"] == found.index
        or (row["process"], row["f"]) == (at["process"], at["f"])
    ]
    small = minimal(rows, found, options)
    assert small is not None
    assert found in reference.find(small, options)
    for n in range(len(small)):
        assert found not in reference.find(small[:n] + small[n + 1 :], options)
    return [
        {key: value for key, value in row.items() if value is not None and not key.startswith("time")}
        for row in small
    ]


def rows_of(ran, f, *columns):
    return [tuple(row[name] for name in columns) for row in ran.rows if row["f"] == f]


# ---------------------------------------------------------------------------------- double takeover


async def begin_without_compare(self, registered, victim, *, forced=False):
    """What was read a while ago is written, whatever is there now."""
    await asyncio.sleep(HESITATION_S)
    write = Statement(
        "UPDATE store_broker SET state = ?, epoch = ?, taker = ?, taker_epoch = ? WHERE cluster_id = ? "
        "AND broker_id = ?",
        (schema.TAKEOVER_STARTED, victim.epoch + 1, self.broker_id, registered.epoch, self.cluster_id,
         victim.broker_id),
    )  # fmt: skip
    await self._transact([write])
    return victim.epoch + 1


async def begin_late(self, registered, victim, *, forced=False):
    """As it is, but a while after the victim was looked at."""
    await asyncio.sleep(HESITATION_S)
    return await begin(self, registered, victim, forced=forced)


HESITATION_S = 0.6
"""Longer than the time between two looks.

All who watch have seen the victim dead before the first of them acts.
"""
begin = Registry.begin_takeover
QUIET = {"rate": 15.0, "producers": 3, "consumers": 3}


def test_with_compare_and_set_those_who_come_late_take_nothing_over(monkeypatch):
    monkeypatch.setattr(Registry, "begin_takeover", begin_late)
    ran = run("HA1", **QUIET)
    assert ran.valid, (ran.grave, ran.trouble)
    assert any("not taken over" in line for log in ran.logs.values() for line in log)
    [(taker, _)] = rows_of(ran, "takeover", "broker", "node_id")
    assert taker != "a1"


def test_without_compare_and_set_those_who_come_late_take_over_what_another_has(monkeypatch):
    monkeypatch.setattr(Registry, "begin_takeover", begin_without_compare)
    ran = run_until("double-takeover", "HA1", **QUIET)
    assert "double-takeover" in ran.grave, (ran.grave, ran.trouble)
    first, second = shown(ran, "double-takeover")
    assert (first["f"], second["f"]) == ("takeover", "takeover")
    assert first["node_id"] == second["node_id"]
    assert first["value"] == second["value"]
    assert first["broker"] != second["broker"]


async def for_ever(_):
    await asyncio.Event().wait()


def test_a_live_without_a_lease_still_has_the_store_when_another_takes_it_over(monkeypatch):
    """Failback has made the master a taker itself.

    Then it is cut off from the store and does not notice.
    """
    monkeypatch.setattr(Lease, "run", for_ever)
    monkeypatch.setattr(Lease, "certain", lambda self: True)
    faults = (
        Fault(kind="kill", start_s=2.0, duration_s=1.0, target="a1"),
        Fault(kind="nfs-disconnect", start_s=5.0, duration_s=8.0, target="a1"),
    )
    ran = run("SS4-true", faults, time_limit_s=14.0, rate=15.0)
    assert {"split-brain", "double-takeover"} <= ran.grave
    small = shown(ran, "double-takeover")
    (first, life), (second, later) = (
        (row["broker"], int(row["value"])) for row in small if row["f"] == "takeover"
    )
    assert (first, second) == ("a1", "a2")
    assert life < later
    assert {(row["broker"], row["value"]) for row in small if row.get("role") == "live"} == {
        ("a1", str(life)),
        ("a2", str(later)),
    }


def test_with_its_lease_it_has_let_go_before():
    faults = (
        Fault(kind="kill", start_s=2.0, duration_s=1.0, target="a1"),
        Fault(kind="nfs-disconnect", start_s=5.0, duration_s=8.0, target="a1"),
    )
    ran = run("SS4-true", faults, time_limit_s=14.0, rate=15.0)
    assert ran.valid, (ran.grave, ran.trouble)
    assert len(rows_of(ran, "takeover", "broker")) >= 3


# ------------------------------------------------------------------------------------------- zombie


def test_a_broker_of_a_database_whose_proofs_prove_nothing_is_told_by_the_takeover_that_fenced_it(
    monkeypatch,
):
    def unproved(registered, *_):
        return Statement(
            "UPDATE store_broker SET heartbeat = clock_ms() WHERE cluster_id = ? AND broker_id = ?",
            (registered.cluster_id, registered.broker_id),
        )

    monkeypatch.setattr(Registered, "prove", unproved)
    monkeypatch.setattr(Registered, "prove_batch", unproved)
    monkeypatch.setattr(Lease, "_stale", lambda self: False)
    monkeypatch.setattr(Lease, "_end_s", lambda self: self._asked_s + 3600.0)
    ran = run("HA4", **QUIET)
    assert "zombie" in ran.grave
    *seen, asked, answered = shown(ran, "zombie")
    [own] = [row for row in seen if row["f"] == "role"]
    [by] = [row for row in seen if row["f"] == "takeover"]
    assert (own["broker"], own["role"]) == ("a1", "live")
    assert by["node_id"] == own["node_id"]
    assert int(by["value"]) == int(own["value"]) + 1
    assert by["broker"] != "a1"
    assert (asked["type"], answered["type"], answered["broker"]) == ("invoke", "ok", "a1")


# ----------------------------------------------------------------------------------- internal error


def stumbles(self, frame):
    """An error of its own at some sends."""
    if frame.command == "SEND" and sum(frame.body) % 20 == 0:
        raise ZeroDivisionError("a bug")
    handle(self, frame)


handle = StompSession.handle


def test_a_broker_that_says_that_it_has_an_error_of_its_own_is_found(monkeypatch):
    monkeypatch.setattr(StompSession, "handle", stumbles)
    ran = run("HA1", (), **QUIET)
    assert "internal-error" in ran.grave, (ran.grave, ran.trouble)
    [answered] = shown(ran, "internal-error")
    assert answered["error"] == "refused: internal error of the broker, please report it"


# ----------------------------------------------------------------------------------------- diverged


def forget_whom_it_lost(self, link, reason):
    """A link that ended has ended for good.

    That address is never dialled again, though it is known.
    """
    for peer in self._peers.values():
        if peer.link is link:
            peer.retire()
    self.on_closed(link)


def learn_once(self, member, *, direct):
    """What is known of a broker is kept, whatever it says later."""
    if member.name not in self.known:
        learn(self, member, direct=direct)


learn = Directory.learn
SEPARATED = Fault(kind="partition", start_s=3.0, duration_s=4.0, shape="halves")


@pytest.mark.parametrize(
    ("part", "method", "broken", "kind"),
    [
        (Neighbours, "_lost", forget_whom_it_lost, "members"),
        (Directory, "learn", learn_once, "topology"),
    ],
)
def test_brokers_that_do_not_learn_of_each_other_again_have_diverged(monkeypatch, part, method, broken, kind):
    ran = run("HA1", (SEPARATED,), **QUIET)
    assert ran.valid, (ran.grave, ran.trouble)
    assert rows_of(ran, "view", "broker")
    monkeypatch.setattr(part, method, broken)
    ran = run_until("diverged", "HA1", (SEPARATED,), **QUIET, recovery_bound_s=8.0)
    assert "diverged" in ran.grave, (ran.grave, ran.trouble)
    found = [one for one in ran.findings if one.name == "diverged"]
    assert kind in {one.key.split(" ")[0] for one in found}
    first, second = shown(ran, "diverged")
    one, other = (msgspec.json.decode(row["value"]) for row in (first, second))
    assert (one["kind"], one["key"]) == (other["kind"], other["key"])
    assert one["value"] != other["value"]
