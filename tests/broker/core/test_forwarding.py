"""What a broker forwards and takes from another one: once, and as it was.

The traps of an identity between brokers, each with two or three engines and no links: a test takes
messages from a store-and-forward queue, as a bridge does, and gives them to the other engine.
"""

import asyncio
import struct

import pytest
from engines import Broker, settings
from stored import stored

from broker.core.identity import MessageId
from broker.core.message import DUPLICATE, Message
from broker.core.properties import Properties
from broker.core.subscription import Subscription
from broker.storage.entry import ADD, Operation


def run(scenario):
    asyncio.run(scenario())


def texts(broker):
    return [one.message.body.decode() for one in stored(broker.engine)]


class ToOther:
    """Sends every message to the broker n2."""

    def route(self, queue, message):
        return "n2"


def forwarded(text, record, origin="n1", moves=0, **more):
    message = Message("q", b"destination:q\n", text.encode(), **more)
    message.identity = MessageId(origin, record, moves)
    return message


def travelled(origin, message):
    """A message as another broker gets it."""
    copy = message.copy()
    copy.identity = message.identity_at(origin.made_of.node_id)
    copy.deliveries, copy.refusals = message.deliveries, message.refusals
    return copy


async def forward(origin, receiver):
    """Bring all that waits at one broker to another, each twice, and return the identities."""
    bridge = origin.consume(origin.made_of.forwarding_queue(receiver.made_of.node_id), internal=True)
    await origin.settle()
    messages = [delivery.message for delivery in bridge.held]
    for _ in range(2):
        arrivals = [travelled(origin, message) for message in messages]
        assert receiver.engine.accept_forwarded(origin.made_of.node_id, arrivals) == len(messages)
    origin.engine.acknowledge(bridge.held)
    bridge.leave()
    await origin.settle()
    await receiver.settle()
    return [message.identity_at(origin.made_of.node_id) for message in messages]


async def move(broker, node_id, queue="q"):
    """Move all of a main queue to the store-and-forward queue of another broker."""
    mover = broker.consume(queue, internal=True)
    await broker.settle()
    broker.engine.move(mover.held, node_id)
    mover.leave()
    await broker.settle()


def test_routed_messages_wait_in_the_store_and_forward_queue_and_arrive_once():
    async def scenario():
        origin = await Broker.start(router=ToOther())
        remote = await Broker.start(made_of=settings("n2"))
        bridge = origin.consume(origin.made_of.forwarding_queue("n2"), internal=True, window=10)
        origin.send("free")
        origin.send("grouped", "g")
        await origin.settle()
        assert [(one.store, one.queue) for one in stored(origin.engine)] == [
            ("store-and-forward", "q"),
            ("main", "q"),
        ]
        (delivery,) = bridge.got
        done = []
        for number in (1, 2):
            messages = [travelled(origin, delivery.message)]
            remote.engine.accept_forwarded("n1", messages, lambda number=number: done.append(number))
        await remote.settle()
        assert done == [1, 2]
        after = await remote.crash()
        after.engine.accept_forwarded("n1", [travelled(origin, delivery.message)], lambda: done.append(3))
        await after.settle()
        assert done == [1, 2, 3]
        assert texts(after) == ["free"]
        origin.engine.acknowledge(bridge.held)
        await origin.settle()
        assert texts(origin) == ["grouped"]

    run(scenario)


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_what_only_bridges_took_was_delivered_to_no_client(end):
    async def scenario():
        queue = settings().forwarding_queue("n2")
        broker = await Broker.start()
        bridge = broker.consume(queue, internal=True)
        broker.send("0", queue=queue)
        await broker.settle()
        bridge.leave()
        broker = await getattr(broker, end)()
        bridge = broker.consume(queue, internal=True)
        await broker.settle()
        assert [delivery.message.deliveries for delivery in bridge.got] == [0]

    run(scenario)


def test_messages_are_taken_until_the_queue_of_one_is_full_and_repeats_take_no_room():
    async def scenario():
        broker = await Broker.start(made_of=settings(max_size_bytes=1000, address_full_policy="BLOCK"))
        messages = [forwarded("x" * 300, record) for record in range(4)]
        done = []
        assert broker.engine.accept_forwarded("n1", messages, lambda: done.append(1)) == 2
        await broker.settle()
        assert done == [1]
        repeats = [forwarded("x" * 300, record) for record in (1, 0, 2)]
        assert broker.engine.accept_forwarded("n1", repeats) == 2
        client = broker.consume()
        await broker.settle()
        assert len(client.got) == 2
        broker.engine.acknowledge(client.held)
        await broker.settle()
        assert broker.engine.accept_forwarded("n1", messages[2:]) == 2
        await broker.settle()
        assert len(client.got) == 4

    run(scenario)


def test_a_store_and_forward_queue_keeps_its_order_whatever_the_groups_of_its_messages_are():
    async def scenario():
        broker = await Broker.start()
        queue = broker.made_of.forwarding_queue("n2")
        first = broker.consume(queue, internal=True, window=3)
        for number in range(12):
            group = None if number % 4 == 0 else f"g{number % 2}"
            broker.send(str(number), group, queue, closes=number % 3 == 0 and group is not None)
        await broker.settle()
        assert first.texts == ["0", "1", "2"]
        first.ack("0")
        await broker.settle()
        first.leave()
        second = broker.consume(queue, internal=True, window=20)
        await broker.settle()
        assert second.texts == [str(number) for number in range(1, 12)]

    run(scenario)


def test_identities_are_a_bounded_ring_also_on_disk():
    async def scenario():
        broker = await Broker.start()
        broker.engine._forwarded._size = 3
        for n in range(10):
            broker.engine.accept_forwarded("n2", [forwarded("x", n, "n2")])
        await broker.settle()
        assert broker.engine.journal.live == 1 + 10 + 3
        after = await broker.crash()
        assert after.engine._forwarded.sequence(MessageId("n2", 9)) is not None
        assert after.engine._forwarded.sequence(MessageId("n2", 6)) is None

    run(scenario)


def test_what_one_broker_may_send_again_is_not_forgotten_for_what_others_bring_of_the_same_origin():
    async def scenario():
        broker = await Broker.start()
        for start in (0, 5):
            broker.engine._forwarded._size = 3
            broker.engine.accept_forwarded("n2", [forwarded("moved", 7, "n3", moves=1)])
            for record in range(start, start + 5):
                broker.engine.accept_forwarded("n3", [forwarded(str(record), record, "n3")])
            broker.engine.accept_forwarded("n2", [forwarded("moved", 7, "n3", moves=1)])
            await broker.settle()
            assert texts(broker) == ["moved", *map(str, range(start + 5))]
            broker = await broker.crash()

    run(scenario)


def test_what_an_earlier_version_remembered_is_recognised():
    async def scenario():
        broker = await Broker.start()
        journal = broker.engine.journal
        journal.append([Operation(ADD, DUPLICATE, journal.next_id(), struct.pack("<Q", 7) + b"n2")])
        await broker.settle()
        broker = await broker.crash()
        broker.engine.accept_forwarded("n2", [forwarded("known", 7, "n2")])
        broker.engine.accept_forwarded("n2", [forwarded("new", 8, "n2")])
        await broker.settle()
        assert texts(broker) == ["new"]
        broker.engine._forwarded._size = 1
        broker.engine.accept_forwarded("n2", [forwarded("newer", 9, "n2")])
        await broker.settle()
        assert broker.engine.journal.live == 1 + 2 + 1, "the earlier record is deleted, too"

    run(scenario)


def test_a_message_that_comes_back_to_a_broker_is_no_repeat():
    async def scenario():
        a = await Broker.start(router=ToOther())
        b = await Broker.start(made_of=settings("n2"))
        sent = a.send("x")
        known = await forward(a, b)
        for moves in (1, 2, 3):
            here, there = (b, a) if moves % 2 else (a, b)
            await move(here, there.made_of.node_id)
            assert texts(here) == ["x"]
            known += await forward(here, there)
            assert (texts(here), texts(there)) == ([], ["x"])
        assert known == [MessageId("n1", sent.id, moves) for moves in range(4)]

    run(scenario)


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_a_message_that_goes_round_passes_a_broker_twice_and_arrives_once(end):
    async def scenario():
        b = await Broker.start(made_of=settings("n2"))
        first = MessageId("n1", 7)

        async def pass_on(sender, identity):
            message = Message("q", b"", b"x")
            message.identity = identity
            b.engine.accept_forwarded(sender, [message], passing="sf")
            await b.settle()

        await pass_on("n1", first.passed())
        b = await getattr(b, end)()
        await pass_on("n1", first.passed())  # its answer was lost
        taken = b.consume("sf", internal=True)
        await b.settle()
        assert [delivery.message.identity.hops for delivery in taken.held] == [1]
        b.engine.acknowledge(taken.held)
        taken.held.clear()
        again = first.passed().passed().passed()
        await pass_on("n3", again)
        assert [delivery.message.identity for delivery in taken.held] == [again]

        c = await Broker.start(made_of=settings("n4"))
        for sender, identity in (("n2", first.passed()), ("n3", again)):
            message = Message("q", b"", b"x")
            message.identity = identity.arrived()
            c.engine.accept_forwarded(sender, [message])
        await c.settle()
        assert texts(c) == ["x"]
        assert stored(c.engine)[0].message.identity == first
        assert (again.moved().moves, again.moved().hops) == (1, 0)

    run(scenario)


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_identity_and_counts_of_a_moved_message_outlive_its_broker(end):
    async def scenario():
        broker = await Broker.start(made_of=settings("n2"))
        message = forwarded("x", 7)
        message.deliveries, message.refusals = 3, 2
        broker.engine.accept_forwarded("n1", [message])
        await broker.settle()
        broker = await getattr(broker, end)()
        # A crash cannot lower a count, and says nothing of a message that had been delivered.
        (arrived,) = stored(broker.engine)
        assert (arrived.message.deliveries, arrived.message.refusals) == (3, 2)
        await move(broker, "n3")
        broker = await getattr(broker, end)()
        (moved,) = stored(broker.engine)
        assert moved.store == "store-and-forward"
        assert moved.message.identity == MessageId("n1", 7, 1)
        assert (moved.message.deliveries, moved.message.refusals) == (3, 2)

    run(scenario)


def test_a_move_that_a_crash_interrupts_has_happened_or_has_not():
    async def scenario():
        broker = await Broker.start()
        broker.send("x")
        await broker.settle()
        mover = broker.consume(internal=True)
        await broker.settle()
        broker.engine.move(mover.held, "n2")
        broker = await broker.crash()
        assert texts(broker) == ["x"]

    run(scenario)


@pytest.mark.parametrize("crashes", [False, True])
def test_each_copy_of_an_arrival_can_move_on(crashes):
    async def scenario():
        b = await Broker.start(made_of=settings("n2"))
        c = await Broker.start(made_of=settings("n3"))
        queues = [b.engine.bind(Subscription("q", client, "s", durable=True)).name for client in ("x", "y")]
        b.engine.note_known("n1", b.engine.topics.count, 1)
        for _ in range(2):
            message = Message("/topic/q", b"", b"x")
            message.identity = MessageId("n1", 7)
            b.engine.accept_forwarded("n1", [message])
        await b.settle()
        assert texts(b) == ["x", "x"]
        if crashes:
            b = await b.crash()
        for queue in queues:
            await move(b, "n3", queue)
        assert len(set(await forward(b, c))) == 2

    run(scenario)


def test_a_message_for_a_topic_that_nobody_wants_is_taken_and_dropped():
    async def scenario():
        broker = await Broker.start()
        message = Message("/topic/t", b"", b"x")
        message.identity = MessageId("n2", 7)
        done = []
        broker.engine.accept_forwarded("n2", [message], lambda: done.append(1))
        await broker.settle()
        assert done == [1]
        assert texts(broker) == []
        assert not broker.engine.queues

    run(scenario)


def test_the_expiry_is_bounded_where_a_message_enters_its_queue_and_at_no_other_hop():
    async def scenario():
        now = [1000.0]
        bounds = {"min_expiry_delay": 10_000, "max_expiry_delay": 60_000}
        a = await Broker.start(made_of=settings("n1", **bounds), clock=lambda: now[0], router=ToOther())
        b = await Broker.start(made_of=settings("n2", **bounds), clock=lambda: now[0])
        c = await Broker.start(made_of=settings("n3", **bounds), clock=lambda: now[0])
        a.send("short", properties=Properties(expires=1_001_000))
        a.send("long", properties=Properties(expires=9_000_000))
        now[0] += 5
        await forward(a, b)
        assert [one.message.properties.expires for one in stored(b.engine)] == [1_015_000, 1_065_000]
        await move(b, "n3")
        now[0] += 5
        await forward(b, c)
        assert [one.message.properties.expires for one in stored(c.engine)] == [1_015_000, 1_065_000]

    run(scenario)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("properties", [None, Properties(7, 1000)])
@pytest.mark.parametrize("group", [None, "g"])
def test_the_memory_of_a_forwarded_message_is_the_same_after_a_start(large, properties, group):
    async def scenario():
        broker = await Broker.start()
        message = forwarded("x" * 20, 7, "a node", group=group, properties=properties)
        if large:
            writer = await broker.engine.large.store.begin()
            writer.write(b"x" * 1000)
            message.large = await writer.finish()
        broker.engine.accept_forwarded("n2", [message])
        await broker.settle()
        broker = await broker.crash()
        assert broker.engine.queues["q"].size == message.size
        client = broker.consume()
        await broker.settle()
        (delivery,) = client.got
        known = delivery.message
        assert (known.body, known.large, known.properties) == (message.body, message.large, properties)
        assert (known.identity, known.group) == (MessageId("a node", 7), group)
        broker.engine.acknowledge(client.held)
        await broker.settle()
        assert broker.engine.memory.size == 0

    run(scenario)


def test_a_large_message_that_moves_keeps_its_file():
    async def scenario():
        broker = await Broker.start()
        store = broker.engine.large.store
        message = Message("q", b"", b"x")
        writer = await store.begin()
        writer.write(b"x" * 1000)
        message.large = await writer.finish()
        broker.engine.send("q", message)
        await broker.settle()
        await move(broker, "n2")
        assert message.large in broker.engine.large
        bridge = broker.consume(broker.made_of.forwarding_queue("n2"), internal=True)
        await broker.settle()
        broker.engine.acknowledge(bridge.held)
        await broker.settle()
        assert message.large not in broker.engine.large

    run(scenario)


def test_a_repeated_large_message_leaves_no_second_file():
    async def scenario():
        broker = await Broker.start()
        store = broker.engine.large.store
        for _ in range(2):
            message = forwarded("x", 7)
            writer = await store.begin()
            writer.write(b"x" * 1000)
            message.large = await writer.finish()
            broker.engine.accept_forwarded("n1", [message])
            await broker.settle()
        assert len(store.stored) == 1
        assert len(await store.medium.sizes()) == 1

    run(scenario)
