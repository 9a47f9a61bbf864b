"""Receipts leave in the order of their frames, whoever settles the messages that these name."""

import asyncio
import random

import pytest
from stateful.stomp_client import Reader, Transport, spell
from stateful.virtual_loop import VirtualLoop

from broker import config
from broker.core.consumer import Delivery
from broker.core.engine import Engine
from broker.core.groups import Lane
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.stomp.server import StompServer
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume


class Home:
    """A settler that answers when the test says so."""

    def __init__(self, name):
        self.message_prefix = f"{name}-"
        self.asked = []
        self.taken = []
        self.given_back = []

    def settle(self, part):
        for delivery in (*part.acknowledged, *part.refused):
            delivery.consumer.unacknowledged.pop(delivery.tag, None)
        future = asyncio.get_running_loop().create_future()
        self.asked.append((len(part.acknowledged), len(part.refused), len(part.given_up), future))
        return future

    def take(self, delivery):
        self.taken.append(delivery)

    def give_back(self, deliveries):
        self.given_back += deliveries


class HomesCommit:
    """A commit over homes whose answers the test gives."""

    def __init__(self, homes, parts):
        self.homes = homes
        self.count = len(parts)
        self.prepared = asyncio.get_running_loop().create_future()
        self.failure = "not all have answered"
        self.is_rolled_back = False

    def commit(self, transaction, done):
        assert not self.failure
        return self.homes.engine.commit(transaction, done)

    def roll_back(self):
        self.is_rolled_back = True


class Homes:
    """Gives each consumer the messages that the test wants it to get from elsewhere."""

    def __init__(self, engine):
        self.engine = engine
        self.commits = []

    def begin_commit(self, parts):
        self.commits.append(HomesCommit(self, parts))
        return self.commits[-1]

    def consume(self, consumer, lost):
        self.consumer = consumer
        self.lost = lost

    def deliver(self, home):
        consumer = self.consumer
        consumer.tags += 1
        message = Message("q", b"destination:/queue/q\n", b"remote")
        message.id = consumer.tags
        delivery = Delivery(message, consumer, Lane(None), consumer.tags, home)
        consumer.unacknowledged[delivery.tag] = delivery
        consumer.deliver(delivery)


class Quiet(Transport):
    """One that is not read while its last receipt waits."""

    def pause_reading(self):
        pass

    resume_reading = pause_reading


class Client:
    def __init__(self, server):
        protocol = server._accept()
        self.transport = Quiet(protocol)
        protocol.connection_made(self.transport)
        self.protocol = protocol
        self.reader = Reader(self.transport)
        self.said = []
        self.acks = []

    async def say(self, command, headers=(), body=b""):
        self.protocol.data_received(spell(command, dict(headers), body))
        await self.hear()

    async def hear(self):
        await asyncio.sleep(0.1)
        for frame in self.reader.frames():
            if frame.command == "ERROR":
                self.error = frame.headers["message"]
                self.is_certain = frame.headers.get("not-done") == "true"
            if frame.command == "MESSAGE":
                self.acks.append(frame.headers["ack"])
            self.said.append(frame.headers.get("receipt-id", frame.command))

    def heard(self):
        said, self.said = self.said, []
        return said


async def start(**settings):
    journal, recovered = await Journal.open(MemoryVolume(latency_s=0.001), "journal")
    gate = DurabilityGate(journal.synced)
    parsed = config.validate({"broker": {"name": "b"}, **settings})
    engine = Engine(
        journal, recovered, gate, EngineSettings.of(parsed, "b"), Seams(random.Random(1), lambda: 0.0)
    )
    journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
    engine.homes = Homes(engine)
    client = Client(StompServer(parsed, engine))
    await client.say("CONNECT", {"accept-version": "1.2", "host": "b"})
    await client.say("SUBSCRIBE", {"id": "1", "destination": "q", "ack": "client-individual"})
    client.heard()
    return engine, client


def run(scenario):
    loop = VirtualLoop()
    try:
        loop.run(scenario())
    finally:
        loop.discard()
    assert not loop.complaints, loop.complaints


def test_receipts_wait_for_the_homes_in_the_order_of_frames():
    async def scenario():
        engine, client = await start()
        first, second = Home("c"), Home("d")
        for home in (first, second, first):
            engine.homes.deliver(home)
        await client.say("SEND", {"destination": "q", "receipt": "s"})
        assert client.heard() == ["MESSAGE"] * 3 + ["s", "MESSAGE"]
        of_c, of_d, not_asked_about, own = client.acks
        await client.say("ACK", {"id": of_c, "receipt": "1"})
        await client.say("NACK", {"id": of_d, "receipt": "2"})
        await client.say("ACK", {"id": own, "receipt": "3"})
        await client.say("SEND", {"destination": "other", "receipt": "4"})
        await client.say("ACK", {"id": not_asked_about})
        assert not client.heard()
        assert [asked[:3] for asked in first.asked + second.asked] == [(1, 0, 0), (1, 0, 0), (0, 1, 0)]
        second.asked[0][3].set_result(None)
        await client.hear()
        assert not client.heard()
        first.asked[0][3].set_result(None)
        await client.hear()
        assert client.heard() == ["1", "2", "3", "4"]
        await client.say("DISCONNECT", {"receipt": "last"})
        assert not client.heard()
        first.asked[1][3].set_result(None)
        await client.hear()
        assert client.heard() == ["last"]

    run(scenario)


@pytest.mark.parametrize("ending", ["COMMIT", "ABORT", "loss"])
def test_a_transaction_of_one_home_is_one_request(ending):
    async def scenario():
        engine, client = await start()
        home = Home("c")
        engine.homes.deliver(home)
        engine.homes.deliver(home)
        await client.say("BEGIN", {"transaction": "t"})
        for command, ack in zip(("ACK", "NACK"), client.acks, strict=True):
            await client.say(command, {"id": ack, "transaction": "t"})
        assert len(home.taken) == 2
        if ending == "loss":
            client.protocol.abort()
            await asyncio.sleep(0.1)
            assert home.given_back == home.taken
            assert not home.asked
            return
        client.heard()
        await client.say(ending, {"transaction": "t", "receipt": "end"})
        await client.say("SEND", {"destination": "other", "receipt": "later"})
        assert not client.heard()
        ((*counts, future),) = home.asked
        assert counts == ([1, 1, 0] if ending == "COMMIT" else [0, 2, 0])
        future.set_result(None)
        await client.hear()
        assert client.heard() == ["end", "later"]

    run(scenario)


def test_a_commit_that_waited_keeps_its_place_before_what_came_behind_it():
    async def scenario():
        engine, client = await start()
        homes = Home("c"), Home("d")
        for home in homes:
            engine.homes.deliver(home)
        await client.hear()
        client.heard()
        await client.say("ACK", {"id": client.acks[0]})
        await client.say("BEGIN", {"transaction": "t"})
        await client.say("ACK", {"id": client.acks[1], "transaction": "t"})
        await client.say("COMMIT", {"transaction": "t", "receipt": "commit"})
        await client.say("SEND", {"destination": "other", "receipt": "send"})
        homes[0].asked[0][-1].set_result(None)
        await client.hear()
        assert not client.heard()
        homes[1].asked[0][-1].set_result(None)
        await client.hear()
        assert client.heard() == ["commit", "send"]

    run(scenario)


BESIDES = ["a send", "a second home", "a message of its own"]


async def committing(besides, **settings):
    """A session that has said COMMIT, of a message of a home and of something besides."""
    engine, client = await start(**settings)
    engine.homes.deliver(Home("c"))
    if besides == "a second home":
        engine.homes.deliver(Home("d"))
    elif besides == "a message of its own":
        await client.say("SEND", {"destination": "q"})
    await client.hear()
    await client.say("BEGIN", {"transaction": "t"})
    for ack in client.acks:
        await client.say("ACK", {"id": ack, "transaction": "t"})
    if besides == "a send":
        await client.say("SEND", {"destination": "other", "transaction": "t"})
    client.heard()
    await client.say("COMMIT", {"transaction": "t", "receipt": "end"})
    await client.say("SEND", {"destination": "later", "receipt": "later"})
    assert not client.heard()
    (commit,) = engine.homes.commits
    assert commit.count == 1 + (besides == "a second home")
    return engine, client, commit


@pytest.mark.parametrize("besides", BESIDES)
def test_a_transaction_over_brokers_is_committed_when_all_homes_have_prepared(besides):
    async def scenario():
        engine, client, commit = await committing(besides)
        commit.failure = ""
        commit.prepared.set_result(None)
        await client.hear()
        assert client.heard() == ["end", "later"]
        assert not commit.is_rolled_back
        assert len(engine.queues.get("other", ())) == (besides == "a send")
        assert not len(engine.queues["q"])
        assert not len(engine.transactions)

    run(scenario)


@pytest.mark.parametrize("besides", BESIDES)
@pytest.mark.parametrize("how", ["a home fails", "the connection ends", "too many queues"])
def test_a_transaction_over_brokers_is_undone_when_it_cannot_be_committed(how, besides):
    async def scenario():
        engine, client, commit = await committing(besides)
        if how == "the connection ends":
            client.protocol.abort()
        elif how == "a home fails":
            commit.failure = "broker c has not prepared its part: no link"
            commit.prepared.set_result(None)
        elif besides == "a send":
            commit.failure = ""
            engine.queues.update({f"q{n}": engine.queues["q"] for n in range(engine.settings.max_queues)})
            commit.prepared.set_result(None)
        else:
            return
        await client.hear()
        if how == "a home fails":
            assert client.heard() == ["end"]
            assert "was rolled back, and nothing of it has happened: broker c has not" in client.error
            assert client.is_certain
        elif how == "too many queues":
            assert client.heard() == ["end"]
            assert "was rolled back, and nothing of it has happened: " in client.error
        assert commit.is_rolled_back
        assert "other" not in engine.queues
        assert len(engine.queues["q"]) == (besides == "a message of its own")
        assert not len(engine.transactions)

    run(scenario)


def test_a_commit_that_has_failed_waits_for_no_room():
    async def scenario():
        limit = {"match": "other", "max-messages": 1}
        engine, client, commit = await committing("a send", **{"address-settings": [limit]})
        engine.send("other", Message("other", b"destination:other\n", b"was faster"))
        await client.hear()
        commit.prepared.set_result(None)
        await client.hear()
        assert client.heard() == ["end"]

    run(scenario)


def test_a_message_of_its_own_that_is_refused_in_a_transaction_of_one_home_goes_back():
    async def scenario():
        engine, client = await start()
        engine.homes.deliver(Home("c"))
        await client.say("SEND", {"destination": "q"})
        await client.hear()
        await client.say("BEGIN", {"transaction": "t"})
        for command, ack in zip(("ACK", "NACK"), client.acks, strict=True):
            await client.say(command, {"id": ack, "transaction": "t"})
        await client.say("COMMIT", {"transaction": "t", "receipt": "end"})
        (commit,) = engine.homes.commits
        commit.failure = ""
        commit.prepared.set_result(None)
        client.heard()
        await client.hear()
        assert client.heard() == ["end", "MESSAGE"]

    run(scenario)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_commit_to_a_full_queue_is_refused_for_certain_unless_it_makes_room(is_replaced):
    async def scenario():
        limit = {"match": "q", "max-messages": 1, "limit-behavior": "REJECT_NEWEST"}
        _, client = await start(**{"address-settings": [limit]})
        await client.say("SEND", {"destination": "q"})
        await client.hear()
        await client.say("BEGIN", {"transaction": "t"})
        if is_replaced:
            await client.say("ACK", {"id": client.acks[0], "transaction": "t"})
        await client.say("SEND", {"destination": "q", "transaction": "t"})
        client.heard()
        await client.say("COMMIT", {"transaction": "t", "receipt": "end"})
        await client.hear()
        assert client.heard()[0] == "end"
        assert hasattr(client, "error") is not is_replaced
        assert is_replaced or client.is_certain

    run(scenario)


@pytest.mark.parametrize("lacks", ["room", "a resumed queue"])
def test_a_transaction_over_brokers_waits_for_room_again_when_all_homes_have_prepared(lacks):
    async def scenario():
        limit = {"match": "other", "max-messages": 1}
        engine, client, commit = await committing("a send", **{"address-settings": [limit]})
        if lacks == "room":
            engine.send("other", Message("other", b"destination:other\n", b"was faster"))
        else:
            engine.queue("other")
            engine.pause_destination("other", ["producers"])
        await client.hear()
        commit.failure = ""
        commit.prepared.set_result(None)
        await client.hear()
        assert not client.heard()
        if lacks == "room":
            await engine.purge("other")
        else:
            engine.resume_destination("other")
        await client.hear()
        assert client.heard() == ["end", "later"]
        assert len(engine.queues["other"]) == 1

    run(scenario)
