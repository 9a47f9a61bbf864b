"""A message to a temporary queue of another broker is forwarded to it, and ends with the queue."""

import asyncio

import pytest
from test_interest_news import cluster, got, until

from broker import config
from broker.core.message import Message
from broker.core.transactions import Transaction
from broker.stomp.destinations import Destinations
from broker.stomp.headers import FrameRefusedError
from broker.stomp.rights import Rights

RIGHTS = Rights(config.validate({"broker": {"name": "any"}}))


def destinations(broker):
    broker.engine.router = broker.balancing
    return Destinations(broker.engine, RIGHTS, "session")


def reply(queue, text, **more):
    return Message(queue, f"destination:{queue}\n".encode(), text.encode(), **more)


async def send(broker, queue, *texts):
    """As a client does, a message with a group, too."""
    target = destinations(broker).target(queue)
    for text in texts:
        broker.engine.send(target, reply(queue, text, group="g" if text == "grouped" else None))
    await broker.engine.flushed()


def test_a_reply_is_forwarded_to_the_broker_of_its_queue_in_one_entry_also_in_a_transaction():
    async def scenario():
        async with cluster("abc") as (a, b, c):
            name = destinations(b).new_temporary("replies")
            await send(a, name, "1", "grouped")
            transaction = Transaction()
            transaction.sends += [(name, reply(name, "2")), ("q", reply("q", "beside"))]
            before = a.engine.journal.last_sequence
            assert a.engine.commit(transaction) == before + 2, "queue q is made, and one entry is written"
            await a.engine.flushed()
            queue = b.engine.queues[name]
            await until(lambda: got(queue) == ["1", "grouped", "2"] and not a.kept_for(b), "b has all")
            assert name not in a.engine.queues
            assert a.site.forwarding_queue(c.site) not in a.engine.queues

    asyncio.run(scenario())


def test_a_queue_that_has_ended_takes_nothing_that_arrives():
    async def scenario():
        async with cluster() as (a, b):
            name = destinations(b).new_temporary("replies")
            a.balancing.forwards_to("node-b")
            a.balancing._bridges.pop("node-b").stop()
            await send(a, name, "1")
            b.engine.drop(b.engine.queues[name])
            await until(lambda: not a.kept_for(b), "b has answered")
            assert name not in b.engine.queues
            assert not any(message for queue in b.engine.queues.values() for message in queue.all())

    asyncio.run(scenario())


def test_a_name_of_a_node_that_is_not_known_is_refused_and_makes_no_queue():
    async def scenario():
        async with cluster() as (a, _):
            queues = set(a.engine.queues)
            for name in ("node-x.1", "node-b", ".1", "node-bb.1"):
                with pytest.raises(FrameRefusedError, match="is no temporary queue of this broker"):
                    destinations(a).target(f"/remote-temp-queue/{name}")
            assert set(a.engine.queues) == queues
            assert not a.balancing._bridges
            a.balancing._mode = "OFF"
            with pytest.raises(FrameRefusedError, match="is no temporary queue of this broker"):
                destinations(a).target("/remote-temp-queue/node-b.1")

    asyncio.run(scenario())


def test_a_reply_waits_for_a_broker_that_cannot_be_reached_also_after_a_restart():
    async def scenario():
        async with cluster() as (a, b):
            name = destinations(b).new_temporary("replies")
            a.member.directory.forget = lambda leaving: not leaving  # as if b had not said goodbye
            b.stop()
            await b.member.stop()
            await until(lambda: not a.member.directory.lives(), "the link is lost")
            await send(a, name, "1")
            await a.restart()
            await send(a, name, "2")
            assert a.kept_for(b) == ["1", "2"]

    asyncio.run(scenario())


def test_a_full_store_and_forward_queue_makes_senders_of_replies_wait():
    async def scenario():
        async with cluster() as (a, b):
            name = destinations(b).new_temporary("replies")
            keeper = a.engine.queue(a.site.forwarding_queue(b.site))
            assert not a.engine.memory.is_full(name)
            keeper.size = 1 << 40
            assert a.engine.memory.is_full(name)

    asyncio.run(scenario())
