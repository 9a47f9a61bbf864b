"""For each anomaly a history that has it, and neighbours that look alike and have it not.

Both implementations must say so.

The names of the cases are what they prove.
"""

from __future__ import annotations

import json

import pytest
from checker_rows import MS, Row, S, finished, o, phase, spark_instances, table

from checkers import admitted, reference
from checkers.takeovers import life_of
from checkers.verdict import CheckOptions

OPTIONS = CheckOptions(unavailable_bound_s=10.0, recovery_bound_s=10.0)


def send(at: int, message: int, outcome: str = "ok", *, producer: int = 1, **columns: object) -> list[Row]:
    place = {"producer": producer, "sequence": message, "digest": message, **columns}
    return [
        o(at, producer, "invoke", "send", message, **place),
        o(at + 1, producer, outcome, "send", message, **{"broker": "a1", **place}),
    ]


def deliver(
    at: int, message: int, session: int = 1, *, redelivered: bool | None = False, **columns: object
) -> list[Row]:
    values = {
        "session": session,
        "redelivered": redelivered,
        "digest": message,
        "producer": 1,
        "sequence": message,
        "broker": "a1",
    }
    return [o(at, 10 + session, "ok", "deliver", message, **{**values, **columns})]


def answer(
    at: int, message: int, session: int = 1, outcome: str = "ok", f: str = "ack", **columns: object
) -> list[Row]:
    place = {"session": session, "producer": 1, "sequence": message, **columns}
    return [
        o(at, 10 + session, "invoke", f, message, **place),
        o(at + 1, 10 + session, outcome, f, message, **{"broker": "a1", **place}),
    ]


def end(at: int, f: str, transaction: int, outcome: str = "ok", broker: str | None = "a1") -> list[Row]:
    return [
        o(at, 1, "invoke", f, transaction=transaction),
        o(at + 1, 1, outcome, f, transaction=transaction, broker=broker),
    ]


def gone(at: int, session: int, **columns: object) -> list[Row]:
    return [o(at, 10 + session, "info", "disconnect", session=session, broker="a1", **columns)]


def role(at: int, broker: str, name: str, low: int, high: int, node_id: str = "n") -> list[Row]:
    return [
        o(
            at,
            -2,
            "info",
            "role",
            broker=broker,
            node_id=node_id,
            role=name,
            time_low=low * MS,
            time_high=high * MS,
        )
    ]


def live(at: int, broker: str, low: int, high: int, life: int, node_id: str = "n") -> list[Row]:
    return [dict(row, value=str(life)) for row in role(at, broker, "live", low, high, node_id)]


def takeover(at: int, broker: str, low: int, high: int, life: int | None, node_id: str = "n") -> list[Row]:
    number = None if life is None else str(life)
    return [
        o(at, -2, "info", "takeover", broker=broker, node_id=node_id, value=number, time_low=low * MS,
          time_high=high * MS)
    ]  # fmt: skip


def view(
    at: int, broker: str, value: str | None, low: int, high: int, key: str = "n", kind: str = "members"
) -> list[Row]:
    told = json.dumps({"kind": kind, "key": key, "value": value})
    return [o(at, -3, "ok", "view", broker=broker, value=told, time_low=low * MS, time_high=high * MS)]


def kept(at: int, message: int, store: str = "main", **columns: object) -> list[Row]:
    return [o(at, -3, "ok", "browse", message, **{"broker": "a1", "value": store, **columns})]


DONE = finished(90)
ADMITTED = "internal error of the broker, please report it"
TAKEOVER = [*role(1, "a1", "live", 0, 1), *role(20, "a2", "live", 18, 20)]

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "an acknowledged message that nobody got and no store has is lost": ([*send(0, 1), *DONE], {"lost"}),
    "a delivered message is not lost": ([*send(0, 1), *deliver(5, 1), *DONE], set()),
    "a message of unknown outcome is not lost": ([*send(0, 1, "info"), *DONE], set()),
    "nothing is lost before everything was drained": (
        [*send(0, 1), phase(9, "heal"), phase(10, "drain")], set()),
    "nothing is lost while a broker's stores are closed": (
        [*send(0, 1), o(5, -3, "info", "browse", broker="b1"), *DONE], set()),
    "a committed message that vanished is lost": (
        [*send(0, 1, transaction=5), *end(3, "commit", 5), *DONE], {"lost"}),
    "a message of a transaction of unknown end is not lost": (
        [*send(0, 1, transaction=5), *end(3, "commit", 5, "info"), *DONE], set()),
    "a message in a dead letter store that nobody refused has died early, and is not lost": (
        [*send(0, 1), *kept(80, 1, "dead-letter"), *DONE], {"died-early"}),
    "a message that is given to a session that was asked for after it had expired is delivered expired": (
        [*send(0, 1, value='{"expires": [3000000, 4000000]}'),
         o(6, 11, "invoke", "subscribe", session=1), *deliver(7, 1)],
        {"expired-delivery"}),
    "a message that is read before it is due is delivered early": (
        [*send(0, 1, value='{"delay": [7000001, 8000000]}'), *deliver(7, 1)], {"early-delivery"}),
    "a message that is chosen although a more urgent one is there is an inversion of priorities": (
        [dict(r, group=None) if r["f"] in ("send", "deliver") else r for r in
         [*send(0, 1), *send(2, 2, value='{"priority": 9}'), o(4, 11, "invoke", "subscribe", session=1),
          *deliver(5, 1), *deliver(6, 2)]], {"priority-inversion"}),
    "a stored message that was delivered is not stuck": (
        [*send(0, 1), *deliver(5, 1), *kept(80, 1), *DONE], set()),
    "a message nobody sent is a phantom": (deliver(5, 1), {"phantom"}),
    "a message whose send is still open is no phantom": ([send(0, 1)[0], *deliver(5, 1)], set()),
    "other contents than sent are corrupted": ([*send(0, 1), *deliver(5, 1, digest=2)], {"corrupted"}),
    "a body that cannot be read is corrupted": (
        [*send(0, 1), *deliver(5, 1), o(7, 11, "ok", "deliver", session=1, broker="a1", error="no JSON")],
        {"corrupted"}),
    "a failed send that arrives is an aborted delivery": (
        [*send(0, 1, "fail"), *deliver(5, 1)], {"aborted-delivery"}),
    "an unknown send that arrives is fine": ([*send(0, 1, "info"), *deliver(5, 1)], set()),
    "a rolled back message that arrives is an aborted delivery, and nobody ever committed it": (
        [*send(0, 1, transaction=5), *end(3, "abort", 5), *deliver(8, 1)],
        {"aborted-delivery", "read-uncommitted"}),
    "of a transaction that was committed one message arrives and the other is nowhere": (
        [*send(0, 1, transaction=5), *send(2, 2, transaction=5), *end(4, "commit", 5), *deliver(8, 1), *DONE],
        {"lost", "torn-transaction"}),
    "what a consumer did not select is not for it": (
        [o(0, 11, "invoke", "subscribe", session=1, value='{"selector": {"colour": ["red"]}}'), *send(1, 1),
         *deliver(5, 1)],
        {"not-subscribed"}),
    "a roll-back of unknown end aborts nothing for certain, but commits nothing either": (
        [*send(0, 1, transaction=5), *end(3, "abort", 5, "info"), *deliver(8, 1)], {"read-uncommitted"}),
    "a delivery after a certain ack is a duplicate": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1), *gone(8, 1), *deliver(9, 1, 2, redelivered=True)],
        {"duplicate"}),
    "a delivery after a certain ack in a session that began before it and was lost may have been under way": (
        [o(0, 12, "invoke", "subscribe", session=2), *send(1, 1), *deliver(5, 1), *answer(6, 1), *gone(8, 1),
         *deliver(9, 1, 2, redelivered=True), *gone(10, 2)], set()),
    "a delivery after a certain ack in a session that began after it is a duplicate": (
        [*send(1, 1), *deliver(5, 1), *answer(6, 1), *gone(8, 1), o(9, 12, "invoke", "subscribe", session=2),
         *deliver(10, 1, 2, redelivered=True), *gone(11, 2)], {"duplicate"}),
    "a delivery after a certain ack is a duplicate in a session that goes on": (
        [o(0, 12, "invoke", "subscribe", session=2), *send(1, 1), *deliver(5, 1), *answer(6, 1),
         *deliver(9, 1, 2, redelivered=True)], {"duplicate"}),
    "a delivery after a certain ack is a duplicate in a session that is left in order": (
        [o(0, 12, "invoke", "subscribe", session=2), *send(1, 1), *deliver(5, 1), *answer(6, 1),
         *deliver(9, 1, 2, redelivered=True),
         o(10, 12, "invoke", "unsubscribe", session=2), o(11, 12, "ok", "unsubscribe", session=2)],
         {"duplicate"}),
    "a delivery after a certain ack is a duplicate if the broker takes an ack of it, too": (
        [o(0, 12, "invoke", "subscribe", session=2), *send(1, 1), *deliver(5, 1), *answer(6, 1), *gone(8, 1),
         *deliver(9, 1, 2, redelivered=True), *answer(10, 1, 2), *gone(13, 2)], {"duplicate"}),
    "a delivery after a certain ack that is read between asking to leave and the answer may have been "
    "under way": (
        [o(0, 12, "invoke", "subscribe", session=2), *send(1, 1),
         o(4, 12, "invoke", "unsubscribe", session=2), *deliver(5, 1),
         *answer(6, 1), *gone(8, 1), *deliver(9, 1, 2, redelivered=True),
         o(10, 12, "ok", "unsubscribe", session=2)], set()),
    "a marked delivery after an unknown ack is no duplicate": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1, outcome="info"), *gone(8, 1),
         *deliver(9, 1, 2, redelivered=True)], set()),
    "a delivery after a committed ack is a duplicate": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1, transaction=9), *end(8, "commit", 9), *gone(10, 1),
         *deliver(11, 1, 2, redelivered=True)], {"duplicate"}),
    "a delivery after a rolled back ack is no duplicate": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1, transaction=9), *end(8, "abort", 9),
         *deliver(11, 1, redelivered=True)], set()),
    "a delivery after an ack whose commit was refused is no duplicate": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1, transaction=9), *end(8, "commit", 9, "fail"),
         *deliver(11, 1, redelivered=True)], set()),
    "a commit that was refused before is no excuse for a delivery": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1, transaction=9), *end(8, "commit", 9, "fail"),
         *deliver(11, 1, redelivered=True), *deliver(12, 1, redelivered=True)], {"duplicate"}),
    "twice in one session with nothing between is a duplicate": (
        [*send(0, 1), *deliver(5, 1), *deliver(6, 1, redelivered=True)], {"duplicate"}),
    "twice in one session with a nack between is no duplicate": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1, f="nack"), *deliver(9, 1, redelivered=True)], set()),
    "a redelivery to another session without the mark is unflagged": (
        [*send(0, 1), *deliver(5, 1), *gone(6, 1), *deliver(7, 1, 2)], {"unflagged-redelivery"}),
    "a redelivery by a broker that never marks is not judged": (
        [*send(0, 1), *deliver(5, 1, redelivered=None), *gone(6, 1), *deliver(7, 1, 2, redelivered=None)],
        set()),
    "two working sessions holding one message is a double delivery and splits the group": (
        [*send(0, 1), *deliver(5, 1), *deliver(6, 1, 2, redelivered=True), *answer(8, 1, 1),
         *answer(10, 1, 2)],
        {"double-delivery", "group-split"}),
    "a session that its client only believes alive holds nothing for certain": (
        [*send(0, 1), *deliver(5, 1), *deliver(6, 1, 2, redelivered=True), *answer(8, 1, 1, "info"),
         *answer(10, 1, 2)], set()),
    "a session proven alive by another message still holds": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(6, 2), *deliver(7, 1, 2, redelivered=True),
         *answer(10, 2, 1),
         *answer(12, 1, 2)], {"double-delivery", "group-split"}),
    "a disconnected session holds nothing": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(6, 2), *gone(7, 1),
         *deliver(8, 1, 2, redelivered=True),
         *answer(12, 1, 2)], set()),
    "an ungrouped message may be doubly delivered too": (
        [dict(r, group=None) for r in
         [*send(0, 1), *deliver(5, 1), *deliver(6, 1, 2, redelivered=True), *answer(8, 1, 1),
          *answer(10, 1, 2)]],
        {"double-delivery"}),
    "two messages of one group in two working sessions split the group": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(6, 2, 2), *answer(8, 1, 1), *answer(10, 2, 2)],
        {"group-split"}),
    "a group that moves after its last ack is not split": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *answer(6, 1, 1), *deliver(8, 2, 2), *answer(10, 2, 2)],
        set()),
    "a message that its session refused and got again is held by it again": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *answer(6, 1, 1, f="nack"),
         *deliver(9, 1, redelivered=True), *deliver(10, 2, 2), *answer(11, 1, 1), *answer(13, 2, 2)],
        {"group-split"}),
    "two ungrouped messages in two sessions are fine": (
        [dict(r, group=None) for r in
         [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(6, 2, 2), *answer(8, 1, 1), *answer(10, 2, 2)]],
         set()),
    "a group whose holder acks in a transaction is held until its commit": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *answer(6, 1, 1, transaction=3), *deliver(8, 2, 2),
         *end(9, "commit", 3),
         *send(11, 3), *deliver(13, 3), *answer(14, 3, 1), *answer(16, 2, 2)], {"group-split"}),
    "first deliveries of one producer in the wrong sequence are reordered": (
        [*send(0, 1), send(2, 2)[0], *deliver(5, 2), *gone(6, 1), *deliver(7, 1, 2)],
        {"reordered", "reordered-realtime", "not-linearizable"}),
    "an unknown send that arrives late breaks no order, in no session": (
        [*send(0, 1, "info"), *send(2, 2), *deliver(5, 2), *deliver(7, 1), *gone(8, 1),
         *deliver(9, 2, 2, redelivered=True),
         *deliver(10, 1, 2, redelivered=True)], set()),
    "overlapping sends of two producers may arrive in any order": (
        [send(0, 1)[0], *send(2, 2, producer=2), send(3, 1)[1], *deliver(5, 2, producer=2), *deliver(7, 1)],
        set()),
    "a certain send before another's beginning fixes their order, whoever sent": (
        [*send(0, 1), *send(2, 2, producer=2), *deliver(5, 2, producer=2), *deliver(7, 1)],
        {"reordered-realtime", "not-linearizable"}),
    "what never came before something that was sent later makes its group no FIFO queue": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2)], {"not-linearizable"}),
    "nor is it one where that is lost": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), *answer(6, 2), *DONE], {"not-linearizable", "lost"}),
    "messages at the end of a group that nobody got yet are still in its queue": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1)], set()),
    "what never came and was sent meanwhile may be behind it": (
        [send(0, 1)[0], send(1, 2, producer=2)[0], send(2, 1)[1], send(3, 2, producer=2)[1],
         *deliver(5, 2, producer=2)], set()),
    "a message of unknown outcome that never came may never have been in the queue": (
        [*send(0, 1, "info"), *send(2, 2), *deliver(5, 2)], set()),
    "a message whose send failed never was in the queue": (
        [*send(0, 1, "fail"), *send(2, 2), *deliver(5, 2)], set()),
    "messages without a group make no queue": (
        [dict(r, group=None) for r in [*send(0, 1), *send(2, 2), *deliver(5, 2)]], set()),
    "each group is a queue of its own": (
        [*send(0, 1), *send(2, 2, group="h"), *deliver(5, 2, group="h")], set()),
    "what may be the body that cannot be read may have come": (
        [*send(0, 1), *send(2, 2), o(4, 11, "ok", "deliver", session=1, broker="a1", error="no JSON"),
         *deliver(5, 2)], {"corrupted"}),
    "what a consumer with a selector leaves out is overtaken rightly": (
        [*send(0, 1), *send(2, 2, value='{"properties": {"colour": "red"}}'),
         o(4, 11, "invoke", "subscribe", session=1, queue="q", value='{"selector": {"colour": ["red"]}}'),
         *deliver(5, 2)], set()),
    "what may have been received without being heard of may have come": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), o(6, 13, "info", "receive", queue="q")], set()),
    "what was received unheard in another queue says nothing": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), o(6, 13, "info", "receive", queue="r")],
        {"not-linearizable"}),
    "what is among the dead letters left the queue and was not overtaken": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), *kept(80, 1, "dead-letter")], {"died-early"}),
    "what has expired by a store left it, too": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), *kept(80, 1, "expired")], set()),
    "what is in the main store was": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), *kept(80, 1)], {"not-linearizable"}),
    "what was acknowledged somebody got, unseen or not": (
        [*send(0, 1), *send(2, 2), *deliver(5, 2), *answer(6, 1, outcome="info")], set()),
    "what failed for certain overtakes nothing": (
        [*send(0, 1), *send(2, 2, "fail"), *deliver(5, 2)], {"aborted-delivery"}),
    "a phantom overtakes nothing": (
        [*send(0, 1), *deliver(5, 2), *send(6, 2)], {"phantom"}),
    "what was in no queue before its commit was asked for is behind what was sent for certain by then": (
        [*send(0, 1, transaction=5), *send(2, 2, producer=2), *end(4, "commit", 5), *deliver(7, 1),
         *deliver(8, 2, producer=2)], {"not-linearizable"}),
    "what was sent for certain after its commit was asked for may be behind it": (
        [*send(0, 1, transaction=5), send(2, 2, producer=2)[0], end(3, "commit", 5)[0],
         send(3, 2, producer=2)[1], end(4, "commit", 5)[1], *deliver(7, 1),
         *deliver(8, 2, producer=2)], set()),
    "what was committed before another message was sent is in front of it": (
        [*send(0, 1, transaction=5), *end(2, "commit", 5), *send(4, 2, producer=2),
         *deliver(8, 2, producer=2)], {"not-linearizable"}),
    "what was not committed for certain before another message was sent may be behind it": (
        [*send(0, 1, transaction=5), *end(2, "commit", 5, "info"), *send(4, 2, producer=2),
         *deliver(8, 2, producer=2)], set()),
    "what was sent twice, in a transaction and before, may have been in the queue before the commit": (
        [*send(0, 1, "info"), *send(2, 1, transaction=5), *send(4, 2, producer=2), *end(6, "commit", 5),
         *deliver(9, 1), *deliver(10, 2, producer=2)], set()),
    "an unknown send fixes no order with others": (
        [*send(0, 1, "info"), *send(2, 2, producer=2), *deliver(5, 2, producer=2), *deliver(7, 1)], set()),
    "a session that goes backwards is reordered, redelivered or not": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(6, 2), *gone(7, 1),
         *deliver(8, 2, 2, redelivered=True),
         *deliver(9, 1, 2, redelivered=True)], {"reordered-session"}),
    "redelivery from the start in a new session is in order": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(6, 2), *gone(7, 1),
         *deliver(8, 1, 2, redelivered=True),
         *deliver(9, 2, 2, redelivered=True)], set()),
    "ungrouped messages promise no order": (
        [dict(r, group=None) for r in [*send(0, 1), *send(2, 2), *deliver(5, 2), *deliver(7, 1)]], set()),
    "two certain reigns under one node ID are a split brain": (
        [*TAKEOVER, *send(25, 1, broker="a2")], {"split-brain"}),
    "reigns that may touch but need not are no split brain": (
        [*role(1, "a1", "live", 0, 1), *role(20, "a2", "live", 10, 20), *role(22, "a1", "stopped", 15, 22)],
        set()),
    "nothing is claimed of a broker that cannot be reached": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "unreachable", 5, 5), *role(20, "a2", "live", 18, 20)],
        set()),
    "two node IDs may both be live": (
        [*role(1, "a1", "live", 0, 1), *role(2, "b1", "live", 0, 1, "m"), *send(25, 1)], set()),
    "a demoted broker that answers what was asked later is a zombie": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *send(10, 1)], {"zombie"}),
    "a broker that took over is not replaced by the old one that had fallen silent and then was seen live": (
        [*role(0, "a1", "live", 0, 0), *role(8, "a1", "unreachable", 5, 7), *role(11, "a2", "live", 10, 11),
         *role(20, "a1", "live", 5, 20), *role(24, "a1", "backup", 22, 24),
         *send(30, 1, broker="a2"), *deliver(35, 1, broker="a2")], {"split-brain"}),
    "it is replaced where the other one was certainly live later": (
        [*role(0, "a1", "live", 0, 0), *role(8, "a1", "backup", 5, 7), *role(11, "a2", "live", 10, 11),
         *role(20, "a1", "live", 12, 20), *role(24, "a1", "backup", 22, 24),
         *send(30, 1, broker="a2"), *deliver(35, 1, broker="a2")], {"split-brain", "zombie"}),
    "a demoted broker that delivers what was sent later is a zombie": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *send(10, 1, broker="a2"), *deliver(12, 1)], {"zombie"}),
    "so is one that delivers to a subscription what was sent to its topic later": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *send(10, 1, broker="a2", queue="/topic/t"),
         *deliver(12, 1, queue="/topic/t", subscription="alice")], {"zombie"}),
    "not one that delivers there what was sent before": (
        [*role(1, "a1", "live", 0, 1), *send(2, 1, queue="/topic/t"), *role(5, "a1", "backup", 4, 5),
         *role(8, "a2", "live", 7, 8), *deliver(12, 1, queue="/topic/t", subscription="alice")], set()),
    "what a demoted broker delivers may have been under way if it was sent before": (
        [*role(1, "a1", "live", 0, 1), *send(2, 1), *role(5, "a1", "backup", 4, 5),
         *role(8, "a2", "live", 7, 8), *deliver(12, 1)], set()),
    "a broker that delivers what was sent later when it may be live again is no zombie": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *send(9, 1, broker="a2"), *role(11, "a2", "stopped", 10, 11),
         *deliver(12, 1), *role(14, "a1", "live", 11, 14)], set()),
    "an answer to what was asked before the takeover is no zombie's": (
        [*role(1, "a1", "live", 0, 1), send(6, 1)[0], *role(7, "a1", "backup", 4, 5),
         *role(8, "a2", "live", 7, 8),
         send(9, 1)[1]], set()),
    "one process may ask for two sessions, of which the first was asked for before the takeover": (
        [*role(1, "a1", "live", 0, 1), o(3, 9, "invoke", "subscribe", session=2),
         *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         o(10, 9, "invoke", "subscribe", session=3), o(11, 9, "ok", "subscribe", session=2, broker="a1")],
        set()),
    "the second was asked for after it": (
        [*role(1, "a1", "live", 0, 1), o(3, 9, "invoke", "subscribe", session=2),
         *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         o(10, 9, "invoke", "subscribe", session=3), o(11, 9, "ok", "subscribe", session=3, broker="a1")],
        {"zombie"}),
    "one process may end two transactions, the first of them before the takeover": (
        [*role(1, "a1", "live", 0, 1), o(3, 9, "invoke", "commit", transaction=2),
         *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         o(10, 9, "invoke", "commit", transaction=3), o(11, 9, "ok", "commit", transaction=2, broker="a1")],
        set()),
    "a demoted broker that serves a session is a zombie, whatever name it gives the queue": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         o(10, 9, "invoke", "subscribe", session=2, queue="/temp-queue/mine"),
         o(11, 9, "ok", "subscribe", session=2, queue="/temp-queue/5", broker="a1")], {"zombie"}),
    "a login at a demoted broker promises nothing and is no zombie's": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         o(10, 9, "invoke", "connect"), o(11, 9, "ok", "connect", broker="a1")], set()),
    "a broker that began anew as another node before its old place was taken is no zombie": (
        [*role(1, "a1", "live", 0, 1), *role(4, "a1", "stopped", 3, 4),
         *role(6, "a1", "live", 5, 6, node_id="m"),
         *role(8, "a2", "live", 7, 8), *send(10, 1)], set()),
    "a broker that is live again after failback is no zombie": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *role(12, "a2", "backup", 11, 12),
         *role(14, "a1", "live", 13, 14), *send(15, 1)], set()),
    "a broker that may have been live once more between two looks is no zombie": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *role(12, "a2", "stopped", 11, 12),
         *role(13, "a1", "voting", 12, 13), *send(14, 1), *role(19, "a1", "backup", 13, 19)], set()),
    "a broker that certainly was not live again when it was asked and answered is a zombie": (
        [*role(1, "a1", "live", 0, 1), *role(5, "a1", "backup", 4, 5), *role(8, "a2", "live", 7, 8),
         *role(12, "a2", "stopped", 11, 12),
         *role(13, "a1", "voting", 12, 13), *role(15, "a1", "backup", 13, 15), *send(16, 1),
         *role(22, "a1", "voting", 21, 22)], {"zombie"}),
    "a broker that falls silent beside a successor that is certainly live throughout is a zombie by "
    "what it answers meanwhile": (
        [*role(1, "a1", "live", 0, 1), *role(4, "a1", "unreachable", 3, 4), *role(8, "a2", "live", 7, 8),
         *send(10, 1), *role(40, "a1", "backup", 3, 40),
         *role(50, "a2", "stopped", 49, 50)], {"zombie"}),
    "a broker that falls silent while its successor's reign was interrupted may have been live": (
        [*role(1, "a1", "live", 0, 1), *role(4, "a1", "unreachable", 3, 4), *role(8, "a2", "live", 7, 8),
         send(10, 1)[0],
         *role(11, "a2", "unreachable", 10, 11), *role(12, "a2", "live", 11, 12),
         *(dict(send(10, 1)[1], index=13, time=13 * MS) for _ in (1,)),
         *role(40, "a1", "backup", 3, 40)], set()),
    "a broker that falls silent beside a live of another node may have been live": (
        [*role(1, "a1", "live", 0, 1), *role(4, "a1", "unreachable", 3, 4),
         *role(8, "a2", "live", 7, 8, node_id="m"), *send(10, 1),
         *role(40, "a1", "backup", 3, 40)], set()),
    "a backup that was never live and answers beside its live is a zombie": (
        [*role(1, "a1", "live", 0, 1), *role(2, "a2", "backup", 1, 2), *send(10, 1, broker="a2"),
         phase(20, "load")], {"zombie"}),
    "a backup that answers when its live may be gone may have been live": (
        [*role(1, "a1", "live", 0, 1), *role(2, "a2", "backup", 1, 2), send(10, 1)[0],
         *role(12, "a1", "stopped", 10, 12),
         send(12, 1, broker="a2")[1], phase(20, "load")], set()),
    "a backup of another node owes nothing to this one": (
        [*role(1, "a1", "live", 0, 1), *role(2, "a2", "backup", 1, 2, node_id="m"), *send(10, 1, broker="a2"),
         phase(20, "load")], set()),
    "a broker that answers when it can have become live is no zombie": (
        [*role(1, "a1", "live", 0, 1), *role(2, "a2", "backup", 1, 2), *send(10, 1, broker="a2"),
         *role(14, "a2", "live", 9, 14, node_id="m")], set()),
    "a live one that answers beside its successor until it is seen to end is a zombie": (
        [*role(1, "a1", "live", 0, 1), *role(8, "a2", "live", 7, 8), *send(10, 1),
         *role(14, "a1", "stopped", 9, 14)], {"split-brain", "zombie"}),
    "a broker that another has taken over under a higher number is a zombie, whatever its taker is called": (
        [*live(1, "a1", 0, 1, 3), *live(2, "b1", 0, 1, 1, "m"), *takeover(8, "b1", 7, 8, 4), *send(10, 1)],
        {"zombie"}),
    "a commit that a broker takes after its takeover makes it a zombie": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), *end(10, "commit", 5)], {"zombie"}),
    "what a broker takes into a transaction after its takeover is not stored yet": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), *send(10, 1, transaction=5)], set()),
    "what needs no store is no zombie's where the store has fenced it": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), o(10, 9, "invoke", "subscribe", session=2),
         o(11, 9, "ok", "subscribe", session=2, broker="a1")], set()),
    "a broker that delivers what was sent after its takeover is a zombie": (
        [*live(1, "a1", 0, 1, 3), *live(2, "b1", 0, 1, 1, "m"), *takeover(8, "b1", 7, 8, 4),
         *send(10, 1, broker="b1"), *deliver(12, 1)], {"zombie"}),
    "what a broker delivers after its takeover may have been under way if it was sent before": (
        [*live(1, "a1", 0, 1, 3), *send(2, 1), *takeover(8, "b1", 7, 8, 4), *deliver(12, 1)], set()),
    "a broker that answers before its takeover is certain is no zombie": (
        [*live(1, "a1", 0, 1, 3), *send(8, 1), *takeover(10, "b1", 7, 10, 4)], set()),
    "a takeover with a lower number fences nobody": (
        [*live(1, "a1", 0, 1, 5), *takeover(8, "b1", 7, 8, 4), *send(10, 1)], set()),
    "a takeover of another node fences nobody": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4, "m"), *send(10, 1)], set()),
    "a broker that tells no number is fenced by no number": (
        [*role(1, "a1", "live", 0, 1), *takeover(8, "b1", 7, 8, 4), *send(10, 1)], set()),
    "a broker that was taken over and began a later life is no zombie": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), *role(10, "a1", "starting", 8, 10),
         *live(12, "a1", 10, 12, 5), *send(14, 1)], set()),
    "a broker that may have begun a later life unseen is no zombie": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 4), *role(10, "a1", "starting", 8, 10),
         *send(12, 1), *role(20, "a1", "stopped", 11, 20)], set()),
    "a broker that goes on in a life that was taken over is a zombie, however often it was in doubt": (
        [*live(1, "a1", 0, 1, 3), *role(5, "a1", "verifying", 4, 5), *takeover(8, "b1", 7, 8, 4),
         *live(12, "a1", 9, 12, 3), *send(14, 1)], {"zombie"}),
    "two takeovers under one number had no release between, whenever they were": (
        [*takeover(5, "b1", 4, 5, 4), *role(20, "b1", "stopped", 19, 20, "m"),
         *takeover(30, "c1", 29, 30, 4)], {"double-takeover"}),
    "two takeovers under two numbers may have had a release between": (
        [*takeover(5, "b1", 4, 5, 4), *takeover(30, "c1", 29, 30, 6)], set()),
    "a broker of which no role is known has what it took over at that moment alone": (
        [*takeover(5, "b1", 4, 5, 4), *takeover(30, "c1", 29, 30, 6), *role(50, "d1", "live", 49, 50, "m")],
        set()),
    "a broker that was seen as a backup before it took over is not certainly live since": (
        [*role(1, "b1", "backup", 0, 1), *role(2, "c1", "live", 1, 2), *takeover(5, "b1", 4, 5, 4),
         *takeover(12, "c1", 11, 12, 6), *role(20, "b1", "stopped", 19, 20)], set()),
    "a broker that was live with another node ID before it took over is not certainly live since": (
        [*role(1, "b1", "live", 0, 1, "m"), *role(2, "c1", "live", 1, 2), *takeover(5, "b1", 4, 5, 4),
         *takeover(12, "c1", 11, 12, 6), *role(20, "b1", "stopped", 19, 20, "m")], set()),
    "the earliest takeover with any higher number ends a life": (
        [*live(1, "a1", 0, 1, 3), *takeover(8, "b1", 7, 8, 5), *send(10, 1), *takeover(30, "c1", 29, 30, 4)],
        {"zombie"}),
    "two takeovers of two nodes are no double": (
        [*takeover(5, "b1", 4, 5, 4), *takeover(30, "c1", 29, 30, 4, "m")], set()),
    "a broker that tells twice of one takeover is no double": (
        [*takeover(5, "b1", 4, 5, 4), *takeover(30, "b1", 29, 30, 4)], set()),
    "a broker that takes over again what it certainly still has is no double": (
        [*live(5, "a2", 4, 5, 2), *takeover(6, "a2", 4, 5, 2), *takeover(11, "a2", 9, 10, 3)], set()),
    "two takeovers without numbers may have had a release between": (
        [*takeover(5, "b1", 4, 5, None), *takeover(30, "c1", 29, 30, None)], set()),
    "a takeover of what its first taker certainly still has is a double": (
        [*live(5, "a2", 4, 5, 2), *takeover(6, "a2", 4, 5, 2), *live(10, "a3", 9, 10, 3),
         *takeover(11, "a3", 9, 10, 3),
         *role(15, "a2", "stopped", 14, 15)], {"split-brain", "double-takeover"}),
    "a takeover after its first taker may have let go is no double": (
        [*live(5, "a2", 4, 5, 2), *takeover(6, "a2", 4, 5, 2), *live(10, "a3", 8, 10, 3),
         *takeover(11, "a3", 8, 10, 3),
         *role(15, "a2", "stopped", 9, 15)], set()),
    "a takeover beside a live that took nothing over is a split brain and no double": (
        [*live(1, "a1", 0, 1, 1), *live(5, "a2", 4, 5, 2), *takeover(6, "a2", 4, 5, 2),
         *send(9, 1, broker="a2")], {"split-brain"}),
    "brokers that say different things of one node, again and again, have diverged": (
        [*view(5, "a1", "a1 a1:1", 1, 5), *view(6, "b1", "a2 a2:1", 2, 6)], {"diverged"}),
    "a broker that knows nothing of what another says has diverged": (
        [*view(5, "a1", "c1 c1:1", 1, 5), *view(6, "b1", None, 2, 6)], {"diverged"}),
    "brokers that say the same have not diverged": (
        [*view(5, "a1", "a1 a1:1", 1, 5), *view(6, "b1", "a1 a1:1", 2, 6)], set()),
    "brokers that said different things one after the other may have learnt between": (
        [*view(5, "a1", "a1 a1:1", 1, 5), *view(9, "b1", "a2 a2:1", 6, 9)], set()),
    "an answer that was given once proves nothing against another": (
        [*view(5, "a1", "a1 a1:1", 5, 4), *view(6, "b1", "a2 a2:1", 2, 6)], set()),
    "different things may be said of different nodes, and of different kinds": (
        [*view(5, "a1", "a1 a1:1", 1, 5), *view(6, "b1", "a2 a2:1", 2, 6, "m"),
         *view(7, "b1", "a2 a2:2", 2, 6, kind="topology")], set()),
    "a broker that contradicts itself has not diverged from another": (
        [*view(5, "a1", "a1 a1:1", 1, 5), *view(6, "a1", "a2 a2:1", 2, 6)], set()),
    "what a broker said before it fell silent is no answer": (
        [*view(5, "a1", "a1 a1:1", 1, 5), dict(view(6, "b1", "a2 a2:1", 2, 6)[0], type="info")], set()),
    "a broker that could not be asked has not diverged": (
        [*view(5, "a1", "a1 a1:1", 1, 5), o(6, -3, "info", "view", broker="b1", error="silent")], set()),
    "a consumer that holds nothing and gets what waits for it only after the bound is starved": (
        [o(0, 11, "invoke", "subscribe", session=1, queue="q"),
         o(1, 11, "ok", "subscribe", session=1, queue="q", broker="a1"), *send(2, 1),
         dict(deliver(5, 1)[0], time=20 * S)], {"starved"}),
    "a consumer that gets it within the bound is not": (
        [o(0, 11, "invoke", "subscribe", session=1, queue="q"),
         o(1, 11, "ok", "subscribe", session=1, queue="q", broker="a1"), *send(2, 1),
         dict(deliver(5, 1)[0], time=9 * S)], set()),
    "questions unanswered for longer than the bound are unavailability": (
        [*send(0, 1), *(dict(r, time=n * S) for n in (2, 9, 16) for r in send(n, n, "info"))],
        {"unavailable"}),
    "a pause in which nobody asked is none": (
        [*send(0, 1), *(dict(r, time=r["time"] + 30 * S) for r in send(2, 2))], set()),
    "the harness saying so is not-recovered": (
        [phase(5, "heal"), phase(9, "not-recovered")], {"not-recovered"}),
    "operations that still fail after heal and bound are not-recovered": (
        [phase(5, "heal"), dict(send(6, 1)[0], time=19 * S), dict(send(6, 1, "fail")[1], time=20 * S)],
        {"not-recovered"}),
    "a send that is answered with an error of the broker's own is an internal error": (
        [send(0, 1)[0], dict(send(0, 1, "info")[1], error=f"refused: {ADMITTED}")], {"internal-error"}),
    "a session that ends with one is, too": (
        [*send(0, 1), *deliver(3, 1), *gone(5, 1, error=f"broker said: {ADMITTED}")], {"internal-error"}),
    "one of a broker that no row names is, too": (
        [send(0, 1)[0], dict(send(0, 1, "info")[1], error=ADMITTED, broker=None), *send(2, 2)],
        {"internal-error"}),
    "an error of another kind is none": (
        [send(0, 1)[0], dict(send(0, 1, "info")[1], error="refused: no room"),
         *gone(5, 1, error="internal error")], set()),
    "one success after heal and bound is recovery": (
        [phase(5, "heal"), *(dict(r, time=19 * S) for r in send(6, 1)),
         *(dict(r, time=20 * S) for r in send(8, 2, "fail"))], set()),
}  # fmt: skip


def tidy(rows: list[Row]) -> list[Row]:
    """Without nulls, and each index once (``finished`` and friends keep theirs)."""
    rows = sorted(({k: v for k, v in r.items() if v is not None} for r in rows), key=lambda r: r["index"])
    assert len({r["index"] for r in rows}) == len(rows), [r["index"] for r in rows]
    return rows


@pytest.fixture(scope="module")
def judged(spark):
    """All cases in one go on Spark."""
    found = spark_instances(spark, [tidy(rows) for rows, _ in CASES.values()], OPTIONS)
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize(("value", "life"), [(None, None), ("", None), ("7", 7), ("x", None), ("\xb2", None)])
def test_the_number_of_a_life_is_in_plain_digits(value, life):
    assert life_of({"value": value}) == life


@pytest.mark.parametrize("case", CASES)
def test_reference(case):
    rows, expected = CASES[case]
    assert {i.name for i in reference.find(tidy(rows), OPTIONS)} == expected


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES)
def test_spark(case, judged):
    rows, expected = CASES[case]
    assert {i.name for i in judged[case]} == expected
    assert judged[case] == set(reference.find(tidy(rows), OPTIONS))


def test_brokers_without_such_words_and_histories_without_errors_have_no_internal_error():
    rows = table([send(0, 1)[0], dict(send(0, 1, "info")[1], error=ADMITTED)])
    assert [*admitted.of_table(rows, ADMITTED)]
    assert not [*admitted.of_table(rows, "")]
    assert not [*admitted.of_table(rows.drop_columns("error"), ADMITTED)]
