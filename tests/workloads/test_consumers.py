"""Sessions, deliveries and acknowledgements as rows."""

import asyncio
import itertools

import pytest
from stomp_doubles import Server, in_loop, make_context, running, until, well_formed

from checkers.reference import find
from stomp_protocol.codec import encode
from stomp_protocol.frames import Frame
from workloads.consumer import Consumer
from workloads.failover import BACKOFF_S
from workloads.payload import Payload, digest
from workloads.payload import encode as body_of
from workloads.sessions import Sessions
from workloads.stamp import DROPPED

BODY = body_of(Payload(7, "q0", "g1", 2, 5), 40)
DELIVERY = {"queue": "q0", "group": "g1", "message": 7, "producer": 2, "sequence": 5}


def make_consumer(context, *, queues=("q0",), hold_s=0.0, sessions=None):
    nodes = tuple(node.name for node in context.nodes)
    return Consumer(context, "c1", nodes, queues, sessions or Sessions(), prefetch=10, hold_s=hold_s, seed=1)


def put(server, body=BODY):
    server.stored.append(Frame("SEND", {"destination": "/queue/q0"}, body))
    server.dispatch()


@in_loop
async def test_a_delivery_is_recorded_from_its_body_and_acknowledged():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            put(server)
            await until(lambda: "ok" in context.recorder.types("ack"))
            await consumer.leave("unsubscribe")
        rows = context.recorder
        session = {"queue": "q0", "session": 1, "connection": 1}
        assert rows.of("deliver") == [
            {
                "process": consumer.observer,
                "type": "ok",
                "f": "deliver",
                **DELIVERY,
                "session": 1,
                "connection": 1,
                "broker": "a1",
                "redelivered": False,
                "delivery_count": 1,
                "digest": digest(BODY),
                "headers": DROPPED,
            }
        ]
        invoke, ok = rows.of("ack")
        assert invoke == {
            "process": ok["process"],
            "type": "invoke",
            "f": "ack",
            **DELIVERY,
            "session": 1,
            "connection": 1,
        }
        assert ok == {**invoke, "type": "ok", "broker": "a1"}
        assert [
            (row["type"], {name: row[name] for name in session})
            for row in rows.of("subscribe", "unsubscribe")
        ] == [
            ("invoke", session),
            ("ok", session),
        ] * 2
        assert not rows.of("disconnect")
        well_formed(rows.rows)


@in_loop
async def test_a_delivery_before_the_receipt_of_subscribe_belongs_to_the_session():
    async with Server() as server:
        context = make_context({"a1": server})

        def deliver_first(peer, frame):
            headers = {"subscription": frame.headers["id"], "message-id": "m", "ack": "t"}
            server.unacknowledged["t"] = (None, frame)
            peer.say("MESSAGE", headers, BODY)
            server.answer(peer, frame)

        server.script["SUBSCRIBE"] = deliver_first
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await until(lambda: "ok" in context.recorder.types("ack"))
            await consumer.leave("disconnect")
        order = [
            (row["f"], row["type"]) for row in context.recorder.rows if row["f"] in ("subscribe", "deliver")
        ]
        assert order == [("subscribe", "invoke"), ("deliver", "ok"), ("subscribe", "ok")]
        assert {row["session"] for row in context.recorder.of("subscribe", "deliver", "ack")} == {1}


@in_loop
async def test_a_body_that_cannot_be_read_has_no_message_and_an_error():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            put(server, b"rubbish")
            await until(lambda: "ok" in context.recorder.types("ack"))
        (row,) = context.recorder.of("deliver")
        assert "message" not in row
        assert row["error"] == "unreadable body of 7 bytes: b'rubbish'"
        assert row["digest"] == digest(b"rubbish")


@in_loop
async def test_each_connection_has_new_sessions_and_each_lost_one_a_single_disconnect_row():
    async with Server() as server:
        context = make_context({"a1": server}, queues=2)
        consumer = make_consumer(context, queues=("q0", "q1"))
        async with running(consumer.run()):
            await consumer.attached.wait()
            server.peers[0].transport.abort()
            await until(lambda: len(context.recorder.of("subscribe", type="ok")) == 4)
            await consumer.leave("disconnect")
        lost = context.recorder.of("disconnect")
        assert [row["session"] for row in lost] == [1, 2, 3, 4]
        connected = [row["connection"] for row in context.recorder.of("connect", type="ok")]
        assert len(set(connected)) == 2
        assert [row["connection"] for row in lost] == [n for n in connected for _ in range(2)]
        assert [row["error"] for row in lost[2:]] == ["disconnected"] * 2
        assert {row["type"] for row in lost} == {"info"}
        assert {row["process"] for row in lost} == {consumer.observer}
        assert consumer.unclean_at is not None
        well_formed(context.recorder.rows)


@in_loop
async def test_an_ack_whose_fate_is_unknown_is_info_and_its_process_is_dropped():
    async with Server() as server:
        context = make_context({"a1": server})

        def lose(peer, _):
            peer.transport.abort()
            del server.script["ACK"]

        server.script["ACK"] = lose
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            put(server)
            await until(lambda: "ok" in context.recorder.types("ack"))
        first, unknown, second, _ = context.recorder.of("ack")
        assert [row["redelivered"] for row in context.recorder.of("deliver")] == [False, True]
        assert unknown["type"] == "info"
        assert first["process"] == unknown["process"] != second["process"]
        well_formed(context.recorder.rows)


@in_loop
async def test_messages_are_held_before_they_are_acknowledged_and_dropped_on_leaving():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context, hold_s=30.0)
        async with running(consumer.run()):
            await consumer.attached.wait()
            put(server)
            await until(lambda: context.recorder.of("deliver"))
            await consumer.leave("disconnect")
        assert not context.recorder.of("ack")
        assert [frame.headers["redelivered"] for frame in server.stored] == ["true"]


@in_loop
async def test_a_consumer_is_busy_until_what_it_was_given_is_acknowledged_and_that_answered():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context, hold_s=0.05)
        asked = []
        server.script["ACK"] = lambda *question: asked.append(question)
        async with running(consumer.run()):
            await consumer.attached.wait()
            assert not consumer.busy
            put(server)
            await until(lambda: context.recorder.of("deliver"))
            assert consumer.busy
            await until(lambda: asked)
            assert consumer.busy
            assert consumer.active_at == consumer.delivered_at
            server.answer(*asked.pop())
            await until(lambda: "ok" in context.recorder.types("ack"))
            assert not consumer.busy
            assert consumer.active_at > consumer.delivered_at
            await consumer.leave("disconnect")


@in_loop
async def test_what_was_held_on_a_lost_connection_is_not_acknowledged_on_the_next():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context, hold_s=1.0)
        async with running(consumer.run()):
            await consumer.attached.wait()
            put(server)
            await until(lambda: context.recorder.of("deliver"))
            server.peers[0].transport.abort()
            await until(lambda: "ok" in context.recorder.types("ack"))
            await consumer.leave("disconnect")
        assert [row["session"] for row in context.recorder.of("deliver")] == [1, 2]
        assert [row["session"] for row in context.recorder.of("ack")] == [2, 2]


@in_loop
async def test_held_messages_are_acknowledged_in_order():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context, hold_s=0.02)
        async with running(consumer.run()):
            await consumer.attached.wait()
            for number in range(1, 30):
                put(server, body_of(Payload(number, "q0", None, 0, number)))
            await until(lambda: context.recorder.types("ack").count("ok") == 29)
        assert [row["message"] for row in context.recorder.of("ack", type="invoke")] == list(range(1, 30))


@in_loop
async def test_what_arrives_before_the_answer_to_disconnect_is_delivered_and_not_acknowledged():
    """The session ends with that answer, so the disconnect row comes after what was still sent
    to it.
    """
    async with Server() as server:
        context = make_context({"a1": server})

        def deliver_late(peer, frame):
            peer.transport.write(
                encode("MESSAGE", {"subscription": "1", "message-id": "m", "ack": "t"}, BODY)
            )
            server.answer(peer, frame)

        server.script["DISCONNECT"] = deliver_late
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            await consumer.leave("disconnect")
        assert [row["f"] for row in context.recorder.rows[-2:]] == ["deliver", "disconnect"]
        assert not context.recorder.of("ack")


@in_loop
async def test_what_arrives_while_acknowledgements_settle_is_not_held_again():
    """It would be acknowledged behind the DISCONNECT."""
    async with Server() as server:
        context = make_context({"a1": server})
        said = []

        def deliver_another(peer, frame):
            peer.say("MESSAGE", {"subscription": "1", "message-id": "m", "ack": "t"}, BODY)
            asyncio.get_running_loop().call_later(0.05, server.answer, peer, frame)

        def answer_late(peer, frame):
            asyncio.get_running_loop().call_later(0.2, server.answer, peer, frame)

        server.script["ACK"] = lambda peer, frame: (said.append("ACK"), deliver_another(peer, frame))
        server.script["DISCONNECT"] = lambda peer, frame: (
            said.append("DISCONNECT"),
            answer_late(peer, frame),
        )
        consumer = make_consumer(context, hold_s=0.05)
        async with running(consumer.run()):
            await consumer.attached.wait()
            put(server)
            await until(lambda: context.recorder.of("ack"))
            await consumer.leave("disconnect")
        assert said == ["ACK", "DISCONNECT"]
        assert len(context.recorder.of("deliver")) == 2


@in_loop
async def test_what_arrives_after_the_end_of_an_unsubscribe_is_recorded():
    """Late, so that it can be found; nobody acknowledges it."""
    async with Server() as server:
        context = make_context({"a1": server})

        def deliver_late(peer, frame):
            server.answer(peer, frame)
            peer.say("MESSAGE", {"subscription": "1", "message-id": "m", "ack": "t"}, BODY)

        server.script["UNSUBSCRIBE"] = deliver_late
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            await consumer.leave("unsubscribe")
        order = [
            (row["f"], row["type"]) for row in context.recorder.rows if row["f"] in ("unsubscribe", "deliver")
        ]
        assert order == [("unsubscribe", "invoke"), ("unsubscribe", "ok"), ("deliver", "ok")]
        assert not context.recorder.of("ack")
        rows = [{**row, "index": n, "time": n} for n, row in enumerate(context.recorder.rows)]
        assert "late-delivery" in {found.name for found in find(rows)}


@in_loop
async def test_what_arrives_around_the_end_of_an_unsubscribe_is_recorded_but_not_acknowledged():
    async with Server() as server:
        context = make_context({"a1": server})

        def deliver_late(peer, frame):
            headers = {"subscription": "1", "message-id": "m", "ack": "t"}
            peer.say("MESSAGE", headers, BODY)
            server.answer(peer, frame)
            peer.say("MESSAGE", headers, BODY)

        server.script["UNSUBSCRIBE"] = deliver_late
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            await consumer.leave("unsubscribe")
        assert len(context.recorder.of("deliver")) == 2
        assert not context.recorder.of("ack", "disconnect")


@in_loop
async def test_a_subscribe_without_an_answer_is_tried_on_a_new_connection():
    async with Server() as server:
        server.script["SUBSCRIBE"] = lambda *_: server.script.clear()
        context = make_context({"a1": server}, operation_timeout_s=1.5)
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            await consumer.leave("disconnect")
        unknown, good = context.recorder.of("subscribe")[1], context.recorder.of("subscribe", type="ok")[0]
        assert (unknown["session"], unknown["error"]) == (1, "time-out")
        assert [row["session"] for row in context.recorder.of("disconnect")] == [1, good["session"]]
        well_formed(context.recorder.rows)


@in_loop
async def test_headers_that_make_no_sense_make_no_claim():
    async with Server() as server:
        context = make_context({"a1": server})
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            server.unacknowledged["t:1"] = (None, None)
            headers = {"subscription": "1", "message-id": "m", "ack": "t:1", "count": "many"}
            server.peers[0].say("MESSAGE", headers, BODY)
            await until(lambda: "ok" in context.recorder.types("ack"))
        (row,) = context.recorder.of("deliver")
        assert "redelivered" not in row
        assert "delivery_count" not in row


@in_loop
async def test_who_was_interrupted_while_it_left_says_nothing_behind_its_disconnect():
    async with Server() as server:
        server.script["DISCONNECT"] = lambda peer, frame: None
        context = make_context({"a1": server})
        consumer = make_consumer(context)
        async with running(consumer.run()):
            await consumer.attached.wait()
            leaving = asyncio.create_task(consumer.leave("disconnect"))
            await until(lambda: server.peers[0].frames[-1].command == "DISCONNECT")
            leaving.cancel()
            await asyncio.wait([leaving])
            again = asyncio.create_task(consumer.leave("unsubscribe"))
            await asyncio.sleep(0.1)
            server.peers[0].receipt(server.peers[0].frames[-1])
            await again
        assert [frame.command for frame in server.peers[0].frames][-1] == "DISCONNECT"
        assert [frame.command for frame in server.peers[0].frames].count("DISCONNECT") == 1
        assert consumer.unclean_at is None


@pytest.mark.parametrize(("definite", "outcome"), [("yes", "fail"), ("no", "info")])
def test_a_consumer_whose_subscribe_is_refused_does_not_ask_again_at_once(definite, outcome):
    @in_loop
    async def scenario():
        async with Server() as server:
            asked = []

            def refuse(peer, frame):
                asked.append(asyncio.get_running_loop().time())
                told = {"receipt-id": frame.headers["receipt"], "definite": definite, "message": "no"}
                peer.say("ERROR", told)

            server.script["SUBSCRIBE"] = refuse
            context = make_context({"a1": server})
            consumer = make_consumer(context)
            async with running(consumer.run()):
                await until(lambda: len(asked) > 3)
                await consumer.leave("disconnect")
            assert all(later - earlier >= BACKOFF_S[0] for earlier, later in itertools.pairwise(asked))
            assert outcome in context.recorder.types("subscribe")

    scenario()
