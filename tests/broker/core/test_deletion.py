"""Queues that are deleted: by an administrator, or because nobody needs them any more."""

import asyncio

import pytest
from engines import Broker, settings

from broker.core.deletion import QueueInUseError, delete
from broker.core.transactions import Transaction
from broker.storage.entry import ADD, Operation


def run(scenario):
    asyncio.run(scenario())


def names(broker):
    return sorted(broker.engine.queues)


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_a_deleted_queue_is_gone_after_a_restart_and_its_journal_is_empty(end):
    async def scenario():
        broker = await Broker.start()
        broker.send("m")
        broker.send("other", queue="kept")
        await broker.settle()
        assert await delete(broker.engine, "q", remove_messages=True) == 1
        assert names(broker) == ["kept"]
        broker = await getattr(broker, end)()
        assert names(broker) == ["kept"]
        broker.send("anew")
        await broker.settle()
        client = broker.consume()
        await broker.settle()
        assert client.texts == ["anew"]

    run(scenario)


def test_a_queue_with_messages_or_consumers_is_deleted_only_when_told_so():
    async def scenario():
        broker = await Broker.start()
        broker.send("m")
        await broker.settle()
        gone = []
        consumer = broker.consume(gone=lambda: gone.append("told"))
        await broker.settle()
        with pytest.raises(QueueInUseError, match="1 consumers: stop them, or give remove-consumers"):
            await delete(broker.engine, "q", remove_messages=True)
        with pytest.raises(
            QueueInUseError, match="1 messages: consume or purge them, or give remove-messages"
        ):
            await delete(broker.engine, "q", remove_consumers=True)
        assert consumer.held
        assert not gone
        assert await delete(broker.engine, "q", remove_consumers=True, remove_messages=True) == 1
        assert gone == ["told"]
        assert names(broker) == []
        with pytest.raises(QueueInUseError, match="no queue 'q' here"):
            await delete(broker.engine, "q")

    run(scenario)


def test_a_message_in_a_transaction_keeps_its_queue():
    async def scenario():
        broker = await Broker.start()
        broker.send("held")
        await broker.settle()
        consumer = broker.consume()
        await broker.settle()
        transaction = Transaction()
        transaction.acknowledge(consumer.held)
        consumer.leave()
        with pytest.raises(QueueInUseError, match="transactions hold"):
            await delete(broker.engine, "q", remove_messages=True)
        broker.engine.commit(transaction)
        await broker.settle()
        assert await delete(broker.engine, "q") == 0

    run(scenario)


def test_a_send_on_its_way_to_the_disk_is_waited_for():
    async def scenario():
        broker = await Broker.start()
        broker.send("m")
        assert len(broker.engine.queues["q"]) == 0
        assert await delete(broker.engine, "q", remove_messages=True) == 1
        broker = await broker.crash()
        assert names(broker) == []

    run(scenario)


def test_all_records_of_a_queue_that_came_from_several_brokers_are_deleted():
    async def scenario():
        broker = await Broker.start()
        broker.engine.queue("q")
        broker.engine.journal.append([Operation(ADD, 1, broker.engine.journal.next_id(), b"q")])
        await broker.settle()
        broker = await broker.restart()
        await delete(broker.engine, "q")
        assert names(await broker.restart()) == []

    run(scenario)


def test_pages_go_with_their_queue():
    async def scenario():
        broker = await Broker.start(made_of=settings(max_size_bytes=20_000, page_size_bytes=4096))
        for n in range(200):
            broker.send(f"{n:0500d}")
        await broker.settle()
        while not broker.engine.queues["q"].paged():
            await broker.settle()
        assert await delete(broker.engine, "q", remove_messages=True) == 200
        await broker.settle()
        assert broker.engine.memory.size == 0
        assert not [path for path in broker.volume.image() if path.endswith(".page")]
        assert names(await broker.crash()) == []

    run(scenario)


# ---- auto-delete-queues


def test_a_queue_is_deleted_when_its_last_consumer_has_gone_and_nothing_is_left():
    async def scenario():
        broker = await Broker.start(made_of=settings(auto_delete_queues=True))
        broker.send("m")
        broker.send("m", queue="never consumed")
        await broker.settle()
        one, two = broker.consume(), broker.consume()
        await broker.settle()
        (one if one.held else two).ack("m")
        one.leave()
        await broker.settle()
        assert "q" in names(broker)
        two.leave()
        await asyncio.sleep(0.01)
        assert names(broker) == ["never consumed"]
        broker = await broker.crash()
        assert names(broker) == ["never consumed"]

    run(scenario)


def test_a_queue_with_a_message_or_used_within_the_delay_stays():
    async def scenario():
        broker = await Broker.start(
            made_of=settings(auto_delete_queues=True, auto_delete_queues_delay=60_000)
        )
        broker.consume().leave()
        await asyncio.sleep(0.01)
        assert names(broker) == ["q"]
        broker = await Broker.start(made_of=settings(auto_delete_queues=True))
        consumer = broker.consume()
        broker.send("m")
        await broker.settle()
        consumer.leave()
        await asyncio.sleep(0.01)
        assert names(broker) == ["q"]
        again = broker.consume()
        await broker.settle()
        assert again.flags == [(True, 2)]

    run(scenario)


def test_what_a_transaction_settles_after_its_consumer_has_gone_frees_the_queue():
    async def scenario():
        broker = await Broker.start(made_of=settings(auto_delete_queues=True))
        broker.send("m")
        await broker.settle()
        consumer = broker.consume()
        await broker.settle()
        transaction = Transaction()
        transaction.acknowledge(consumer.held)
        consumer.leave()
        await asyncio.sleep(0.01)
        assert names(broker) == ["q"]
        broker.engine.commit(transaction)
        await broker.settle()
        await asyncio.sleep(0.01)
        assert names(broker) == []

    run(scenario)


def test_a_paused_queue_is_kept_until_it_is_resumed_so_that_it_stays_paused():
    async def scenario():
        broker = await Broker.start(made_of=settings(auto_delete_queues=True))
        consumer = broker.consume()
        broker.engine.pause_destination("q", ["producers"])
        consumer.leave()
        await asyncio.sleep(0.01)
        assert names(broker) == ["q"]
        assert broker.engine.memory.is_full("q")
        broker.engine.resume_destination("q")
        await asyncio.sleep(0.01)
        assert names(broker) == []

    run(scenario)


def test_queues_are_kept_by_default():
    async def scenario():
        broker = await Broker.start()
        broker.consume().leave()
        await asyncio.sleep(0.01)
        assert names(broker) == ["q"]

    run(scenario)
