"""Feeds of the broker itself, and what clients of a demoted broker hear: nothing."""

import asyncio
import json
import random

import pytest
from brokers import Raw
from test_sessions_at_random import Transport

from broker import config
from broker.core.engine import Engine
from broker.core.feed import WatchedValue
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.stomp.server import StompServer
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stomp_protocol.codec import Parser, encode


class OneClient:
    """An engine with a server and one logged-in client, without a network."""

    @classmethod
    async def start(cls):
        self = cls()
        self.journal, recovered = await Journal.open(MemoryVolume(), "journal")
        self.gate = DurabilityGate(self.journal.synced)
        parsed = config.validate({"broker": {"name": "a1"}})
        seams = Seams(random.Random(1), lambda: 0.0)
        self.engine = Engine(self.journal, recovered, self.gate, EngineSettings.of(parsed, "n1"), seams)
        self.journal.on_synced = lambda sequence: setattr(self.gate, "local", sequence)
        self.server = StompServer(parsed, self.engine)
        self.protocol = self.server._accept()
        self.transport = Transport(self.protocol)
        self.protocol.connection_made(self.transport)
        self.parser = Parser()
        self.send("CONNECT", {"accept-version": "1.2", "host": "h"})
        return self

    def send(self, command, headers, body=b""):
        self.transport.arrive(encode(command, headers, body))

    async def frames(self):
        for _ in range(3):
            await self.journal.flush()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        found = [frame for data in self.transport.out for frame in self.parser.feed(data)]
        self.transport.out.clear()
        return [frame for frame in found if frame.command != "CONNECTED"]


def test_a_feed_is_shown_at_once_and_after_each_change_and_no_more_after_unsubscribe():
    async def scenario():
        client = await OneClient.start()
        feed = client.engine.feeds["$SYS.x"] = WatchedValue()
        feed.publish(b"1")
        client.send("SUBSCRIBE", {"id": "t", "destination": "$SYS.x"})
        feed.publish(b"2")
        feed.publish(b"2")
        feed.publish(b"3")
        got = await client.frames()
        assert [(frame.command, frame.body) for frame in got] == [
            ("MESSAGE", b"1"),
            ("MESSAGE", b"2"),
            ("MESSAGE", b"3"),
        ]
        assert {frame.headers["destination"] for frame in got} == {"$SYS.x"}
        assert {frame.headers["content-type"] for frame in got} == {"application/json"}
        client.protocol.pause_writing()
        feed.publish(b"4")
        feed.publish(b"5")
        assert await client.frames() == []
        client.protocol.resume_writing()
        assert [frame.body for frame in await client.frames()] == [b"5"]
        client.send("UNSUBSCRIBE", {"id": "t"})
        feed.publish(b"6")
        assert await client.frames() == []
        await client.journal.close()

    asyncio.run(scenario())


def test_a_demoted_broker_answers_nobody_even_what_was_durable_a_moment_later():
    async def scenario():
        client = await OneClient.start()
        assert await client.frames() == []
        client.gate.hold()
        client.send("SEND", {"destination": "q", "receipt": "1"}, b"x")
        client.send("BEGIN", {"transaction": "t", "receipt": "2"})
        assert await client.frames() == []
        client.engine.abandon()
        client.gate.release()
        assert await client.frames() == []
        assert client.transport.closed
        assert client.server.connections == {}
        await client.journal.close()

    asyncio.run(scenario())


def test_receipts_wait_for_a_held_gate_and_then_come_in_order():
    async def scenario():
        client = await OneClient.start()
        await client.frames()
        client.gate.hold()
        client.send("SEND", {"destination": "q", "receipt": "1"}, b"x")
        client.send("BEGIN", {"transaction": "t", "receipt": "2"})
        client.send("COMMIT", {"transaction": "t", "receipt": "3"})
        client.send("SUBSCRIBE", {"id": "s", "destination": "new", "receipt": "4"})
        assert await client.frames() == []
        client.gate.release()
        assert [frame.headers["receipt-id"] for frame in await client.frames()] == ["1", "2", "3", "4"]
        await client.journal.close()

    asyncio.run(scenario())


def test_receipts_wait_for_the_backup():
    async def scenario():
        client = await OneClient.start()
        await client.frames()
        client.gate.remote = client.journal.last_sequence
        client.send("SEND", {"destination": "q", "receipt": "1"}, b"x")
        client.send("SUBSCRIBE", {"id": "s", "destination": "q", "ack": "client", "receipt": "2"})
        assert await client.frames() == []
        client.gate.remote = client.journal.last_sequence
        got = await client.frames()
        assert [frame.command for frame in got] == ["RECEIPT", "RECEIPT", "MESSAGE"]
        await client.journal.close()

    asyncio.run(scenario())


@pytest.mark.cluster
def test_the_topology_is_a_feed_of_a_clustered_broker(brokerd):
    broker = brokerd(
        **{
            "cluster.host": "127.0.0.1",
            "cluster.port": 0,
            "cluster.cluster-password": "cluster-secret",
            "cluster.connector": "a1:61616",
            "cluster.stomp-connector": "a1:61613",
        }
    )
    raw = Raw(broker.port)
    assert raw.connected[0]["feeds"] == "$SYS.cluster.topology"
    raw.send("SUBSCRIBE", {"id": "t", "destination": "$SYS.cluster.topology"})
    headers, body = raw.read("MESSAGE")
    assert headers["content-type"] == "application/json"
    assert "a1:61613" in json.dumps(json.loads(body))
