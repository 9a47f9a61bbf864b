"""What does not fit in memory waits on the disk.

Nobody is held up, nothing is lost, doubled or overtaken, and memory is bounded.
"""

import asyncio
import logging
import random
from functools import partial

import pytest
from engines import Broker, settings

from broker.core.message import MESSAGE, QUEUE, Message
from broker.core.pages import Page
from broker.core.queue import SLACK
from broker.core.transactions import Transaction
from broker.storage.journal import Journal

ROOM = 20_000
PAGE_BYTES = 4_000
MANY = 500
PAGED = settings(max_size_bytes=ROOM, page_size_bytes=PAGE_BYTES)


def run(scenario):
    asyncio.run(scenario())


async def rest(broker):
    """Return when every page that is worth it was written, and those that are wanted were read."""
    paging = broker.engine.paging
    for _ in range(10_000):
        await broker.engine.journal.flush()
        await asyncio.sleep(0)
        if paging._writer is None and not paging._readers:
            break
    await broker.settle()


async def filled(count=MANY, made_of=PAGED, groups=1):
    """A broker with so many messages, numbered, most of them on pages."""
    broker = await Broker.start(made_of=made_of)
    for number in range(count):
        broker.send(str(number), f"g{number % groups}" if groups else None)
        if number % 50 == 0:
            await rest(broker)
    await rest(broker)
    assert pages(broker), "nothing is on a page"
    return broker


def pages(broker, queue="q"):
    return [item for item in broker.engine.queues[queue].all() if isinstance(item, Page)]


async def texts(broker):
    browsing = broker.engine.browse("q")
    return [one.message.body.decode() async for one in browsing]


async def consumed(broker, window=10):
    """Everything, by one consumer, in the order in which it came."""
    client = broker.consume(window=window)
    status = broker.engine.status
    while status()[0].messages:
        await rest(broker)
        assert client.held, "something is stored, and nobody gets it"
        broker.engine.acknowledge(client.held)
        assert broker.engine.memory.size <= ROOM + 3 * PAGE_BYTES
    client.leave()
    await broker.settle()
    return client


def kinds(journal_records):
    return [record.kind for record in journal_records]


async def on_disk(broker):
    return await broker.volume.list("paging")


def test_a_queue_holds_more_than_its_memory_in_order():
    async def scenario():
        broker = await filled()
        assert broker.engine.memory.size <= ROOM + 3 * PAGE_BYTES
        assert not broker.engine.memory.is_full("q")
        assert broker.engine.status()[0].messages == MANY
        assert await texts(broker) == [str(number) for number in range(MANY)]
        client = await consumed(broker)
        assert client.texts == [str(number) for number in range(MANY)]
        assert set(client.flags) == {(False, 1)}
        assert broker.engine.memory.size == 0

    run(scenario)


def test_what_is_consumed_leaves_nothing_on_the_disk():
    async def scenario():
        broker = await filled()
        assert await on_disk(broker) == sorted(
            f"{page.blob.id}.page" for page in pages(broker)
        )  # each page a file of its own
        assert broker.engine.journal.live < MANY / 2, "the records of what is on pages are gone"
        await consumed(broker)
        await broker.engine.journal.close()
        assert await on_disk(broker) == []
        _, recovered = await Journal.open(broker.volume, "journal")
        assert MESSAGE not in kinds(recovered.records)
        assert kinds(recovered.records) == [QUEUE]

    run(scenario)


@pytest.mark.slow
def test_a_message_is_durable_as_ever_whatever_becomes_of_its_page():
    """The answer waits for the journal alone.

    A crash before, while and after a page is written finds every answered message once.
    """

    async def scenario():
        for turns in range(0, 60, 2):
            broker = await Broker.start(made_of=PAGED)
            answered: list[str] = []
            for number in range(MANY):
                message = Message("q", b"destination:q\n", str(number).encode(), "g")
                broker.engine.send("q", message, partial(answered.append, str(number)))
                if number % 100 == 99:
                    await broker.engine.journal.flush()
            for _ in range(turns):
                await asyncio.sleep(0)
            before = list(answered)
            broker = await broker.crash()
            await broker.engine.journal.sweep()
            assert (await texts(broker))[: len(before)] == before
            assert len(before) >= MANY - 100
            client = await consumed(broker, window=50)
            assert client.texts[: len(before)] == before
            assert client.texts == sorted(client.texts, key=int)
            assert {redelivered for redelivered, _ in client.flags} == {True}, "a delivery cannot be excluded"
            await broker.engine.journal.close()
            assert await on_disk(broker) == []

    run(scenario)


def test_what_was_consumed_of_a_page_does_not_come_back():
    async def scenario():
        broker = await filled(groups=0)
        client = broker.consume(window=1000)
        await rest(broker)
        held = client.held
        assert any(one.message.page is not None for one in held)
        gone = held[: len(held) - 2]
        broker.engine.acknowledge(gone)
        await broker.settle()
        broker = await broker.crash()
        left = [
            str(number) for number in range(MANY) if number not in {int(one.message.body) for one in gone}
        ]
        assert await texts(broker) == left
        assert (await consumed(broker)).texts == left

    run(scenario)


def test_a_clean_end_keeps_the_counts_of_what_came_from_a_page():
    async def scenario():
        broker = await filled()
        first = broker.consume(window=1)
        while True:
            await rest(broker)
            [held] = first.held
            if held.message.page is not None:
                break
            broker.engine.acknowledge([held])
        text = held.message.body.decode()
        first.nack(text)
        await rest(broker)
        assert first.flags[-1] == (True, 2)
        unread = pages(broker)
        broker = await broker.restart()
        again = broker.consume(window=1)
        await rest(broker)
        assert again.texts == [text]
        assert again.flags == [(True, 3)]
        again.leave()
        await broker.settle()
        client = await consumed(broker)
        assert client.flags[1:] == [(False, 1)] * (len(client.texts) - 1), "never delivered before"
        assert unread

    run(scenario)


def test_what_waits_on_pages_for_another_broker_was_delivered_to_no_client():
    async def scenario():
        queue = PAGED.forwarding_queue("n2")
        broker = await Broker.start(made_of=PAGED)
        for number in range(MANY):
            broker.send(str(number), queue=queue)
            if number % 100 == 0:
                await rest(broker)
        await rest(broker)
        assert pages(broker, queue)
        broker = await broker.crash()
        bridge = broker.consume(queue, internal=True, window=MANY)
        while len(bridge.got) < MANY:
            await rest(broker)
            broker.engine.acknowledge(bridge.held)
        assert {delivery.message.deliveries for delivery in bridge.got} == {0}

    run(scenario)


def test_what_may_have_been_delivered_before_a_crash_is_flagged_after_a_clean_end_too():
    async def scenario():
        broker = await filled()
        broker = await broker.crash()
        broker = await broker.restart()
        client = await consumed(broker)
        assert {redelivered for redelivered, _ in client.flags} == {True}

    run(scenario)


def test_a_page_is_there_until_its_deletion_is_durable():
    async def scenario():
        broker = await filled()
        client = broker.consume(window=MANY)
        engine = broker.engine
        while True:
            await rest(broker)
            if engine.queues["q"].backlog is None:
                break
            engine.acknowledge(client.held)
        before = await on_disk(broker)
        engine.gate.remote = engine.journal.last_sequence  # a backup that has nothing of what comes now
        engine.acknowledge(client.held)
        await rest(broker)
        assert engine.status()[0].messages == 0
        assert await on_disk(broker) == before != []
        engine.gate.remote = None
        await rest(broker)
        await engine.journal.pages.close()
        assert await on_disk(broker) == []

    run(scenario)


def test_purge_takes_pages_too():
    async def scenario():
        broker = await filled()
        client = broker.consume(window=1)
        await broker.settle()
        assert await broker.engine.purge("q") == MANY - 1
        await rest(broker)
        assert await texts(broker) == ["0"]
        client.ack("0")
        await broker.settle()
        assert broker.engine.memory.size == 0
        await broker.engine.journal.close()
        assert await on_disk(broker) == []

    run(scenario)


def test_a_group_whose_owner_takes_nothing_does_not_fill_the_memory():
    async def scenario():
        broker = await filled(groups=3)
        stuck = broker.consume(window=1)
        await rest(broker)
        assert broker.engine.memory.size <= ROOM + 3 * PAGE_BYTES
        assert stuck.texts == ["0"]
        stuck.leave()
        clients = [broker.consume(window=window) for window in (1, 3)]
        while broker.engine.status()[0].messages:
            await rest(broker)
            for client in clients:
                if client.held:
                    broker.engine.acknowledge(client.held)
            assert broker.engine.memory.size <= ROOM + 3 * PAGE_BYTES
        for group in range(3):
            mine = [
                (place, int(text))
                for place, client in enumerate(clients)
                for text in client.texts
                if int(text) % 3 == group
            ]
            assert len({place for place, _ in mine}) == 1, "a group has one owner"
            assert [number for _, number in mine] == sorted(number for _, number in mine)

    run(scenario)


def test_transactions_and_dead_letters_take_messages_of_pages():
    async def scenario():
        made_of = settings(max_size_bytes=ROOM, page_size_bytes=PAGE_BYTES, max_delivery_attempts=1)
        broker = await filled(made_of=made_of)
        client = broker.consume(window=2)
        while not client.held or any(one.message.page is None for one in client.held):
            await rest(broker)
            if any(one.message.page is None for one in client.held):
                broker.engine.acknowledge(client.held)
        first, second = client.held
        transaction = Transaction()
        transaction.acknowledge([first])
        transaction.refuse([second])
        broker.engine.commit(transaction)
        await rest(broker)
        broker = await broker.crash()
        stored = await texts(broker)
        assert first.message.body.decode() not in stored
        assert second.message.body.decode() not in stored
        [dead] = [one async for one in broker.engine.browse("DLQ")]
        assert dead.message.body == second.message.body

    run(scenario)


def test_a_large_body_on_a_page_outlives_a_start():
    async def scenario():
        broker = await Broker.start(made_of=PAGED)
        large = broker.engine.journal.large
        for number in range(MANY):
            if number == 200:
                writer = await large.begin()
                writer.write(b"x" * 5000)
                body = await writer.finish()
                broker.send(str(number), "g", large=body)
            else:
                broker.send(str(number), "g")
            if number % 50 == 0:
                await rest(broker)
        await rest(broker)
        assert any(page.large for page in pages(broker))
        for end in (broker.crash, None):
            broker = await (end or broker.restart)()
            await broker.engine.journal.sweep()
            assert await broker.volume.list("large-messages") == [f"{body.id}.msg"]
        client = await consumed(broker)
        assert [one.message.large for one in client.got if one.message.large] == [body]
        await broker.engine.journal.close()
        assert await broker.volume.list("large-messages") == []

    run(scenario)


def test_a_message_that_is_more_than_a_page_holds_up_no_page_behind_it():
    async def scenario():
        broker = await Broker.start(made_of=PAGED)
        expected = ["x" * ROOM, "y" * 3 * PAGE_BYTES, *map(str, range(MANY))]
        for text in expected:
            broker.send(text)
            await rest(broker)
        assert pages(broker), "nothing is on a page"
        assert (await consumed(broker, window=1)).texts == expected

    run(scenario)


def test_who_browses_sees_all_with_one_page_in_memory():
    async def scenario():
        broker = await filled()
        before = broker.engine.memory.size
        browsing = broker.engine.browse("q")
        seen = [(await anext(browsing)).message.body.decode()]
        client = await consumed(broker)  # meanwhile everything is consumed
        assert before <= ROOM + 3 * PAGE_BYTES
        assert len(client.texts) == MANY
        seen += [one.message.body.decode() async for one in browsing]
        assert seen == sorted(seen, key=int)
        browsing.close()
        await broker.engine.journal.close()
        assert await on_disk(broker) == [], "what was held for who browses is let go"

    run(scenario)


def test_pages_are_read_though_the_queue_pages_no_more():
    async def scenario():
        broker = await filled()
        broker.made_of = settings(max_size_bytes=ROOM, address_full_policy="BLOCK")
        broker = await broker.restart()
        assert (await consumed(broker)).texts == [str(number) for number in range(MANY)]

    run(scenario)


def test_what_a_start_finds_beyond_the_memory_goes_to_pages():
    async def scenario():
        broker = await Broker.start(made_of=settings(address_full_policy="BLOCK"))
        for number in range(MANY):
            broker.send(str(number), "g")
        await broker.settle()
        broker.made_of = PAGED
        broker = await broker.restart()
        await rest(broker)
        assert pages(broker)
        assert broker.engine.memory.size <= ROOM + 3 * PAGE_BYTES
        assert (await consumed(broker)).texts == [str(number) for number in range(MANY)]

    run(scenario)


class Full:
    """A disk that takes no page for now."""

    def __init__(self, volume):
        self.volume = volume
        self.full = True
        self.open = volume.open
        volume.open = self.opened

    async def opened(self, path):
        if self.full and path.startswith("paging/"):
            raise OSError(28, "No space left on device")
        return await self.open(path)


def test_a_disk_that_takes_no_page_makes_producers_wait(monkeypatch, caplog):
    monkeypatch.setattr("broker.core.paging.RETRY_S", 0.01)

    async def scenario():
        broker = await Broker.start(made_of=PAGED)
        disk = Full(broker.volume)
        memory = broker.engine.memory
        number = 0
        while not memory.is_full("q"):
            broker.send(str(number))
            number += 1
            await broker.settle()
        assert ROOM + SLACK * PAGE_BYTES <= memory.size <= ROOM + (SLACK + 1) * PAGE_BYTES
        called = asyncio.Event()
        memory.wait("q", called.set)
        disk.full = False
        await called.wait()
        await rest(broker)
        assert (await consumed(broker)).texts == [str(n) for n in range(number)]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "could not be written, so its messages stay in memory" in caplog.text


@pytest.mark.parametrize("harm", ["flipped", "removed"])
def test_a_damaged_page_ends_the_broker_and_passes_nothing_over(harm):
    async def scenario():
        broker = await filled()
        first = pages(broker)[0]
        path = broker.engine.journal.pages.medium.path(first.blob.id)
        if harm == "flipped":
            broker.volume._files[path].data[40] ^= 1
        else:
            await broker.volume.remove(path)
        failures = []
        broker.engine.journal.on_failed = failures.append
        client = broker.consume(window=MANY)
        for _ in range(20):
            await rest(broker)
            if client.held:
                broker.engine.acknowledge(client.held)
        [failure] = failures
        assert path in str(failure)
        assert client.texts == [str(n) for n in range(len(client.texts))]
        assert len(client.texts) < first.first

    run(scenario)


def test_a_page_that_a_consumer_reaches_first_is_not_written():
    """Its messages stay where they are, and what was written of it goes."""

    async def scenario():
        broker = await Broker.start(made_of=PAGED)
        for number in range(MANY):
            broker.send(str(number))
        await broker.engine.journal.flush()
        client = broker.consume(window=MANY)
        while broker.engine.status()[0].messages:
            await broker.settle()
            broker.engine.acknowledge(client.held)
        assert client.texts == [str(number) for number in range(MANY)]
        await rest(broker)
        await broker.engine.journal.close()
        assert await on_disk(broker) == []

    run(scenario)


def test_many_queues_that_fill_the_memory_together_page():
    async def scenario():
        made_of = settings(page_size_bytes=PAGE_BYTES)
        made_of = type(made_of)(node_id="n1", global_max_size=ROOM, addresses=made_of.addresses)
        broker = await Broker.start(made_of=made_of)
        names = [f"q{number}" for number in range(10)]
        for number in range(MANY):
            for name in names:
                broker.send(str(number), queue=name)
            if number % 5 == 0:
                await rest(broker)
        await rest(broker)
        memory = broker.engine.memory
        assert memory.size <= ROOM + len(names) * PAGE_BYTES
        assert any(pages(broker, name) for name in names)
        assert not any(memory.is_full(name) for name in names)
        broker = await broker.crash()
        for name in names:
            client = broker.consume(name, window=50)
            while len(client.texts) < MANY or client.held:
                await rest(broker)
                broker.engine.acknowledge(client.held)
            assert client.texts == [str(number) for number in range(MANY)]

    run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_power_loss_at_any_moment_keeps_pages_and_records_together(seed):
    """Everything goes on at once: producers, consumers, pages written and read.

    Then the power is out.
    """

    async def scenario():
        chance = random.Random(seed)
        broker = await Broker.start(made_of=PAGED)
        sent, answered, acknowledged, settled = 0, set(), set(), set()
        for _ in range(4):
            client = broker.consume(window=chance.choice([1, 20, 200]))
            for _ in range(chance.randrange(20, 60)):
                for _ in range(chance.randrange(30)):
                    text = str(sent)
                    message = Message("q", b"destination:q\n", text.encode(), f"g{sent % 3}")
                    broker.engine.send("q", message, lambda text=text: answered.add(text))
                    sent += 1
                if client.held and chance.random() < 0.6:
                    some = client.held[: chance.randrange(1, 1 + len(client.held))]
                    mine = {one.message.body.decode() for one in some}
                    acknowledged |= mine
                    broker.engine.acknowledge(some, lambda mine=mine: settled.update(mine))
                if chance.random() < 0.3:
                    await broker.engine.journal.flush()
                for _ in range(chance.randrange(6)):
                    await asyncio.sleep(0)
            broker = await broker.crash()
            stored = await texts(broker)
            assert len(stored) == len(set(stored)), "a message is stored once"
            assert answered - acknowledged <= set(stored), "an answered message is there"
            assert not settled & set(stored), "a consumed message is not"
            for group in range(3):
                mine = [int(text) for text in stored if int(text) % 3 == group]
                assert mine == sorted(mine)

    run(scenario)
