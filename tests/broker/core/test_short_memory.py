"""Memory is full: what is not needed next goes to pages, and no producer waits for ever."""

import asyncio
import logging
from dataclasses import replace

import pytest
from engines import Broker, settings

from broker.core.message import Message
from broker.core.pages import Page
from broker.core.properties import Properties
from broker.core.selector import compile_selector
from broker.core.transactions import Transaction

ROOM = 100_000
PAGE_BYTES = 4_000
BODY = "x" * 5_000
BOUND_S = 60.0
"""Bounds every wait of a test; reached only when the test fails."""
SLACK = 8 * PAGE_BYTES + 2 * len(BODY)
"""Of memory beyond its bound: what queues may have while pages are written, and one message."""


def made_of(room=ROOM, **address):
    return replace(settings(page_size_bytes=PAGE_BYTES, **address), global_max_size=room)


async def send(broker, queue, text=BODY, **more):
    """Send as a session does: wait for room, as long as there is none."""
    memory = broker.engine.memory
    while memory.is_full(queue):
        room = asyncio.Event()
        memory.wait(queue, room.set)
        await asyncio.wait_for(room.wait(), BOUND_S)
    broker.engine.send(queue, Message(queue, b"kind:0\n", text.encode(), **more))
    await broker.engine.journal.flush()


async def rest(broker):
    """Return when nothing is written or read any more."""
    await broker.settle()
    paging = broker.engine.paging
    while paging._writer is not None or paging._readers:
        await broker.settle()
    await broker.settle()


async def fill(broker, queues=100, each=1, body=BODY, **more):
    """Send to so many queues; the most bytes that were in memory."""
    most = 0
    for number in range(queues * each):
        await send(broker, f"q{number % queues}", f"{number} {body}", **more)
        most = max(most, broker.engine.memory.size)
    return most


async def drain(broker, queue, **options):
    """The beginnings of all that a queue has, consumed."""
    client = broker.consume(queue, window=1, **options)
    await rest(broker)
    while client.held:
        broker.engine.acknowledge(client.held)
        await rest(broker)
    client.leave()
    return [text.partition(" ")[0] for text in client.texts]


def pages(broker):
    return [item for queue in broker.engine.queues.values() for item in queue.all() if isinstance(item, Page)]


@pytest.mark.parametrize("each", [1, 3])
def test_queues_that_nobody_consumes_never_stop_the_producers_of_others(each, caplog):
    async def scenario():
        broker = await Broker.start(made_of=made_of())
        most = await fill(broker, each=each)
        assert most <= ROOM + SLACK
        assert "cannot be paged" not in caplog.text
        broker = await broker.crash()
        await send(broker, "another")
        await rest(broker)
        assert broker.engine.memory.size < ROOM
        for number in range(100):
            assert await drain(broker, f"q{number}") == [str(number + 100 * place) for place in range(each)]

    asyncio.run(scenario())


def test_a_store_that_has_more_than_the_memory_goes_to_pages_when_it_is_served():
    async def scenario():
        broker = await Broker.start(made_of=made_of(room=10 * ROOM))
        await fill(broker)
        assert not pages(broker)
        broker.made_of = made_of()
        broker = await broker.crash()
        assert broker.engine.memory.over
        await rest(broker)
        assert broker.engine.memory.size < ROOM
        for number in range(100):
            assert await drain(broker, f"q{number}") == [str(number)]

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", [{"priority": 0}, {"priority": 9}, {"due": 10**15}, {"expires": 10**15}])
@pytest.mark.parametrize("group", [None, "g"])
def test_nothing_that_a_message_asks_for_keeps_it_in_memory(asked, group):
    async def scenario():
        broker = await Broker.start(made_of=made_of())
        most = await fill(broker, properties=Properties(**asked), group=group)
        assert most <= ROOM + SLACK

    asyncio.run(scenario())


def test_what_a_consumer_gave_back_goes_to_pages_and_comes_again_as_redelivered(caplog):
    async def scenario():
        broker = await Broker.start(made_of=made_of())
        for number in range(30):
            client = broker.consume(f"q{number}")
            await send(broker, f"q{number}", f"{number} {BODY}")
            await broker.settle()
            assert client.held
            client.leave()
        await send(broker, "another")
        await rest(broker)
        assert broker.engine.memory.size < ROOM
        assert "cannot be paged" not in caplog.text
        for number in range(30):
            client = broker.consume(f"q{number}")
            await rest(broker)
            assert client.flags == [(True, 2)]

    asyncio.run(scenario())


def test_grouped_messages_for_another_broker_come_back_from_pages_in_their_order():
    async def scenario():
        broker = await Broker.start(made_of=made_of())
        queue = broker.made_of.forwarding_queue("n2")
        for number in range(60):
            await send(broker, queue, f"{number} {BODY}", group=f"g{number % 3}", closes=number % 5 == 0)
        await rest(broker)
        assert pages(broker)
        assert await drain(broker, queue, internal=True) == [str(number) for number in range(60)]

    asyncio.run(scenario())


def test_what_no_selector_wants_goes_to_pages_and_what_one_wants_comes_when_there_is_room():
    async def scenario():
        broker = await Broker.start(made_of=made_of())
        clients = [
            broker.consume(f"q{number}", selector=compile_selector("kind = '1'")) for number in range(20)
        ]
        most = await fill(broker, 20, 60, BODY[:500])
        assert most <= ROOM + SLACK
        wanted = Message("q0", b"kind:1\n", b"wanted")
        broker.engine.send("q0", wanted)
        for number in range(1, 20):
            assert len(await drain(broker, f"q{number}")) == 60
        await rest(broker)
        assert clients[0].texts == ["wanted"]
        assert len(await drain(broker, "q0")) == 60

    asyncio.run(scenario())


def test_what_consumers_hold_stops_only_queues_that_block_up_to_twice_the_bound(caplog):
    """Held by one consumer that never answers: 30 messages, 1.6 times what all may have."""

    async def scenario():
        broker = await Broker.start(made_of=made_of())
        holder = broker.consume("held", window=1000)
        for _ in range(30):
            await send(broker, "held")
            await broker.settle()
        assert len(holder.held) == 30
        most = await fill(broker)
        assert most <= 2 * ROOM + SLACK
        assert "bytes of messages are in memory and cannot be paged" in caplog.text
        assert "'held' with" in caplog.text
        broker.engine.acknowledge(holder.held)
        await rest(broker)
        assert broker.engine.memory.size < ROOM
        for number in range(100):
            assert await drain(broker, f"q{number}") == [str(number)]

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.text.count("cannot be paged") == 1


def test_beyond_twice_the_bound_producers_wait_for_the_consumers():
    async def scenario():
        broker = await Broker.start(made_of=made_of())
        transaction = Transaction()
        broker.engine.memory.reserve(2 * ROOM + SLACK)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(broker, "q"), 0.05)
        assert "all queues together have 242000 bytes in memory" in broker.engine.memory.reason("q")
        broker.engine.memory.reserve(-2 * ROOM - SLACK)
        await send(broker, "q")
        broker.engine.roll_back(transaction, refused=False)

    asyncio.run(scenario())


def test_queues_that_block_wait_for_their_own_consumers_and_let_others_go_on():
    async def scenario():
        table = made_of()
        broker = await Broker.start(made_of=made_of(address_full_policy="BLOCK"))
        while not broker.engine.memory.is_full("block"):
            await send(broker, "block")
        broker.made_of = table
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(broker, "block"), 0.05)
        broker = await broker.crash()
        assert await fill(broker) <= ROOM + SLACK

    asyncio.run(scenario())


def test_a_purge_deletes_all_that_was_there_though_room_is_made_meanwhile():
    async def scenario():
        broker = await Broker.start(made_of=made_of(room=10 * ROOM))
        await fill(broker, 1, 300)
        slices = broker.engine.purging("q0")
        count = next(slices)
        broker.engine.queues["q0"].set_back(0, 10**9)
        count += sum(slices)
        await broker.settle()
        assert count == 300
        assert broker.engine.memory.size == 0

    asyncio.run(scenario())


def test_a_disk_that_takes_no_page_makes_producers_wait_until_it_does(monkeypatch):
    monkeypatch.setattr("broker.core.paging.RETRY_S", 0.01)

    async def scenario():
        broker = await Broker.start(made_of=made_of())
        opening, broker.volume.open = broker.volume.open, None

        async def opened(path):
            if path.startswith("paging/"):
                raise OSError(28, "No space left on device")
            return await opening(path)

        broker.volume.open = opened
        number = 0
        while not broker.engine.memory.is_full("another"):
            await send(broker, f"q{number}", f"{number} {BODY}")
            number += 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(broker, "another"), 0.05)
        broker.volume.open = opening
        await send(broker, "another")
        for queue in range(number):
            assert await drain(broker, f"q{queue}") == [str(queue)]

    asyncio.run(scenario())
