"""A paused destination takes nothing, delivers nothing, or both, until it is resumed."""

import asyncio

import pytest
from test_next_connections import Broker, Client

from broker.admin_destinations import DestinationCommands
from broker.policies.policy import RequestRefusedError


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 30.0))  # reached only when a test fails


class Paused:
    """A broker, its commands, and clients of it; an async context."""

    async def __aenter__(self):
        self.broker = await Broker.start()
        self.engine = self.broker.engine
        self.commands = DestinationCommands(lambda _: self.engine).commands
        return self

    async def __aexit__(self, *_):
        await self.broker.stop()

    async def ask(self, command, destination="q", **fields):
        return await self.commands[command]({"destination": destination, **fields})

    async def connect(self):
        return await Client.connect(self.broker)


async def nothing(client):
    """Assert that the client hears nothing for a moment."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.frame()


async def receipt(client, command, headers=None, **more):
    client.send(command, {**(headers or {}), **more, "receipt": command})
    frame = await client.frame()
    assert (frame.command, frame.headers.get("receipt-id")) == ("RECEIPT", command)


def send(client, destination="q", **headers):
    client.send("SEND", {"destination": destination, "receipt": "sent", **headers}, b"x")


def test_sends_and_commits_to_a_queue_that_is_paused_for_producers_wait():
    async def scenario():
        async with Paused() as paused:
            plain, committing, other, consumer = [await paused.connect() for _ in range(4)]
            await consumer.publish("before")
            answer = await paused.ask("pause", sides=["producers"])
            assert answer == {"state": "PRODUCERS_PAUSED"}
            send(plain)
            await receipt(committing, "BEGIN", transaction="t")
            for destination in ("other", "q"):
                committing.send("SEND", {"destination": destination, "transaction": "t"}, b"x")
            committing.send("COMMIT", {"transaction": "t", "receipt": "sent"})
            send(other, "other")
            assert (await other.frame()).headers == {"receipt-id": "sent"}
            await nothing(plain)
            await nothing(committing)
            assert await consumer.consume(1) == ["befor"]
            assert await paused.ask("resume") == {"state": "RUNNING"}
            for client in (plain, committing):
                assert (await client.frame()).headers == {"receipt-id": "sent"}

    run(scenario)


@pytest.mark.parametrize("destination", ["q", "/topic/t"])
def test_what_is_paused_for_consumers_keeps_its_messages(destination):
    async def scenario():
        async with Paused() as paused:
            consumer, late, producer = [await paused.connect() for _ in range(3)]
            await receipt(consumer, "SUBSCRIBE", id="1", destination=destination)
            assert await paused.ask("pause", destination, sides=["consumers"]) == {
                "state": "CONSUMERS_PAUSED"
            }
            await receipt(late, "SUBSCRIBE", id="1", destination=destination)
            for _ in range(2):
                send(producer, destination)
                assert (await producer.frame()).command == "RECEIPT"
            await nothing(consumer)
            await nothing(late)
            await paused.ask("resume", destination)
            assert (await consumer.frame()).command == "MESSAGE"
            assert (await late.frame()).command == "MESSAGE"

    run(scenario)


def test_a_queue_is_paused_for_one_side_more_and_no_longer_when_it_was_deleted():
    async def scenario():
        async with Paused() as paused:
            client = await paused.connect()
            await client.publish("1")
            await paused.ask("pause", sides=["consumers"])
            assert await paused.ask("pause", sides=["producers"]) == {"state": "DESTINATION_PAUSED"}
            [one] = (await paused.ask("destinations"))["destinations"]
            assert (one["name"], one["state"], one["messages"]) == ("q", "DESTINATION_PAUSED", 1)
            await paused.engine.purge("q")
            paused.engine.remove(paused.engine.queues["q"])
            await client.publish("2")
            assert (await paused.ask("query"))["destination"]["state"] == "RUNNING"

    run(scenario)


def test_a_topic_that_is_paused_for_producers_takes_nothing_while_nobody_subscribes_to_it():
    async def scenario():
        async with Paused() as paused:
            plain, committing, subscriber = [await paused.connect() for _ in range(3)]
            await receipt(subscriber, "SUBSCRIBE", id="1", destination="/topic/t")
            await paused.ask("pause", "/topic/t", sides=["producers"])
            await receipt(subscriber, "UNSUBSCRIBE", id="1")
            send(plain, "/topic/t")
            await receipt(committing, "BEGIN", transaction="t")
            committing.send("SEND", {"destination": "/topic/t", "transaction": "t"}, b"x")
            committing.send("COMMIT", {"transaction": "t", "receipt": "sent"})
            await nothing(plain)
            await nothing(committing)
            [one] = (await paused.ask("destinations"))["destinations"]
            assert (one["name"], one["type"], one["state"]) == ("t", "topic", "PRODUCERS_PAUSED")
            assert await paused.ask("resume", "/topic/t") == {"state": "RUNNING"}
            for client in (plain, committing):
                assert (await client.frame()).headers == {"receipt-id": "sent"}

    run(scenario)


def test_the_lists_show_queues_topics_and_durable_subscriptions():
    async def scenario():
        async with Paused() as paused:
            owner = await Client.connect(paused.broker, client_id="c1")
            name = {"durable-subscription-name": "news"}
            await receipt(owner, "SUBSCRIBE", name, id="1", destination="/topic/t", selector="a = 1")
            await receipt(owner, "SUBSCRIBE", id="2", destination="/topic/t", ack="client")
            await receipt(owner, "SUBSCRIBE", id="3", destination="/temp-queue/own")
            await owner.publish("1")
            send(owner, "/topic/t")
            assert {(await owner.frame()).command for _ in range(2)} == {"RECEIPT", "MESSAGE"}
            lists = (await paused.ask("destinations"))["destinations"]
            shown = [(one["name"], one["type"], one["messages"], one["consumers"]) for one in lists]
            assert shown == [("t", "topic", 1, 2), ("q", "queue", 1, 0)]
            [durable] = (await paused.ask("durables"))["durables"]
            assert durable["queue"] in paused.engine.queues
            facts = ("name", "client-id", "topic", "selector", "state", "messages")
            assert [durable[fact] for fact in facts] == ["news", "c1", "t", "a = 1", "ACTIVE", 0]
            await paused.ask("pause", "/topic/t", sides=["consumers"])
            assert (await paused.ask("durables"))["durables"][0]["state"] == "PAUSED"
            answer = await paused.ask("query", "/topic/t")
            assert answer["destination"]["subscriptions"] == 2
            assert answer["settings"]["max-delivery-attempts"] == 10

    run(scenario)


@pytest.mark.parametrize(
    ("command", "fields", "error"),
    [
        ("pause", {"destination": "nowhere"}, "no queue 'nowhere' here"),
        ("query", {"destination": "/topic/t"}, "no subscription to topic 't' here"),
        ("resume", {"destination": None}, "resume needs a destination: "),
        ("pause", {"sides": ["readers"]}, "sides must be some of producers, consumers, not ['readers']"),
        ("pause", {"sides": []}, "sides must be some of producers, consumers, not []"),
        ("pause", {"sides": [["producers"]]}, "sides must be some of producers, consumers, not"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(command, fields, error):
    async def scenario():
        async with Paused() as paused:
            paused.engine.queue("q")
            with pytest.raises(RequestRefusedError) as refused:
                await paused.ask(command, **{"destination": "q", **fields})
            assert error in str(refused.value)

    run(scenario)
