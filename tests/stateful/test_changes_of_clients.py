"""A session whose durable subscriptions are made and dropped by the whole cluster."""

import asyncio
import gc
import random
from contextlib import contextmanager

import pytest

from broker import config
from broker.core.changes import ChangeRefusedError
from broker.core.engine import Engine
from broker.core.settings import EngineSettings
from broker.core.subscription import decode_subscription
from broker.seams import Seams
from broker.stomp.server import StompServer
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.stomp_client import Reader, Transport, spell
from stateful.virtual_loop import VirtualLoop

DURABLE = {"destination": "/topic/x", "id": "1", "durable-subscription-name": "s", "receipt": "made"}


class Cluster:
    """Stands for the change record: makes a change when the test says so."""

    has_master = True

    def __init__(self, engine):
        self.engine = engine
        self.asked = []

    async def request(self, kind, key, value):
        answered = asyncio.get_running_loop().create_future()
        self.asked.append((value, answered))
        return await answered

    def make(self):
        value, answered = self.asked.pop(0)
        if value is None:
            queues = [queue for queue in self.engine.queues.values() if queue.subscription is not None]
            self.engine.change(queues, (), (), ())
        else:
            self.engine.change((), (), [decode_subscription(value.encode())], ())
        answered.set_result(True)

    def refuse(self):
        self.asked.pop(0)[1].set_exception(ChangeRefusedError("no master"))


class Client:
    def __init__(self, loop, server):
        self.loop = loop
        with loop.inside():
            self.protocol = server._accept()
            self.transport = Transport(self.protocol)
            self.transport.pause_reading = self.transport.resume_reading = lambda: None
            self.protocol.connection_made(self.transport)
        self.reader = Reader(self.transport)
        self.say("CONNECT", {"accept-version": "1.2", "host": "h", "client-id": "c"})

    def say(self, command, headers, body=b""):
        with self.loop.inside():
            self.protocol.data_received(spell(command, headers, body))

    def heard(self):
        self.loop.settle()
        frames = [(frame.command, frame.headers.get("receipt-id")) for frame in self.reader.frames()]
        return [frame for frame in frames if frame[0] != "CONNECTED"]


@contextmanager
def cluster():
    loop = VirtualLoop()
    parsed = config.validate({"broker": {"name": "a1"}})
    journal, recovered = loop.run(Journal.open(MemoryVolume(), "journal"))
    gate = DurabilityGate(journal.synced)
    journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
    with loop.inside():
        settings = EngineSettings.of(parsed, "n1")
        engine = Engine(journal, recovered, gate, settings, Seams(random.Random(1), lambda: 0.0))
        engine.changes = Cluster(engine)
        server = StompServer(parsed, engine)
    yield engine.changes, Client(loop, server)
    assert not loop.complaints, loop.complaints
    loop.discard()


def test_frames_behind_a_durable_subscribe_wait_for_the_master_and_keep_their_order():
    with cluster() as (changes, client):
        client.say("SUBSCRIBE", DURABLE)
        client.say("SEND", {"destination": "/topic/x", "receipt": "sent"}, b"m")
        client.say("UNSUBSCRIBE", {"id": "1", "durable-subscription-name": "s", "receipt": "dropped"})
        client.say("SEND", {"destination": "q", "receipt": "last"})
        assert client.heard() == []
        with client.loop.inside():
            changes.make()
        assert client.heard() == [("RECEIPT", "made"), ("RECEIPT", "sent")]
        with client.loop.inside():
            changes.make()
        assert client.heard() == [("RECEIPT", "dropped"), ("RECEIPT", "last")]
        assert not [queue for queue in changes.engine.queues.values() if queue.subscription]


def test_a_refused_change_is_an_error_and_nothing_behind_it_is_done():
    with cluster() as (changes, client):
        client.say("SUBSCRIBE", DURABLE)
        client.say("SEND", {"destination": "q", "receipt": "sent"})
        client.loop.settle()
        with client.loop.inside():
            changes.refuse()
        assert client.heard() == [("ERROR", "made")]
        assert not changes.engine.queues


def test_what_exists_needs_no_master():
    with cluster() as (changes, client):
        client.say("SUBSCRIBE", {**DURABLE, "receipt": "1"})
        client.loop.settle()
        with client.loop.inside():
            changes.make()
        assert client.heard() == [("RECEIPT", "1")]
        client.say("UNSUBSCRIBE", {"id": "1", "receipt": "2"})
        client.say("SUBSCRIBE", {**DURABLE, "receipt": "3"})
        client.say("SUBSCRIBE", {"destination": "/topic/x", "id": "2", "receipt": "4"})
        assert client.heard() == [("RECEIPT", str(number)) for number in (2, 3, 4)]
        assert not changes.asked


@pytest.mark.parametrize("makes", [True, False])
def test_a_client_that_leaves_while_the_master_is_asked_does_no_harm(makes):
    with cluster() as (changes, client):
        client.say("SUBSCRIBE", DURABLE)
        client.loop.settle()
        with client.loop.inside():
            client.transport.abort()
        client.loop.settle()
        with client.loop.inside():
            (changes.make if makes else changes.refuse)()
        client.loop.settle()
        gc.collect()  # which tells of an exception that was never seen
        assert not any(queue.consumers for queue in changes.engine.queues.values())
