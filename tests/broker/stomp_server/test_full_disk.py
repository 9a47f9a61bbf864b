"""Producers wait before a disk is full, and go on when there is room.

A disk that is full all the same ends the broker in order.
"""

import asyncio

import pytest
from brokers import Raw, until
from test_feeds_and_demotion import OneClient

from broker import config
from broker.core.disk import DiskWatch
from broker.storage.volume import Space


@pytest.mark.cluster
def test_on_a_disk_that_is_fuller_than_it_may_be_producers_wait_and_consumers_go_on(brokerd):
    broker = brokerd()
    Raw(broker.port).publish("m")
    broker.stop()
    broker.path.write_text(config.dumps(config.apply(_table(broker), {"broker.max-disk-usage": 0})))
    broker.start()
    until(
        lambda: any("% full (broker.max-disk-usage is 0): producers wait" in line for line in broker.lines),
        "why",
    )
    producer, consumer = Raw(broker.port), Raw(broker.port)
    producer.send("SEND", {"destination": "q", "receipt": "r"}, b"waits")
    consumer.subscribe()
    text, headers = consumer.message()
    consumer.send("ACK", {"id": headers["ack"], "receipt": "acked"})
    consumer.receipt("acked")
    assert text == "m"
    consumer.send("DISCONNECT", receipt="bye")
    consumer.receipt("bye")
    producer.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        producer.frame()


def _table(broker):
    import tomllib

    return tomllib.loads(broker.path.read_text())


class Disk:
    """A disk whose room the test decides."""

    def __init__(self):
        self.free = 50
        self.error = None

    async def space(self):
        if self.error is not None:
            raise self.error
        return Space(100, self.free)


def run(scenario):
    async def main():
        client, disk = await OneClient.start(), Disk()
        watch = DiskWatch(disk.space, client.engine.memory, 90, 0.0)
        await watch.start()

        async def look(free):
            disk.free = free
            for _ in range(5):
                await asyncio.sleep(0.001)

        try:
            await scenario(client, look, disk)
        finally:
            watch.stop()

    asyncio.run(main())


async def receipts(client):
    return [frame.headers["receipt-id"] for frame in await client.frames()]


def test_what_waited_goes_on_in_its_order_when_there_is_room():
    async def scenario(client, look, disk):
        await look(10)
        client.send("SEND", {"destination": "q", "receipt": "1"}, b"x")
        client.send("SEND", {"destination": "p", "receipt": "2"}, b"x")
        assert await receipts(client) == []
        await look(11)
        assert await receipts(client) == ["1", "2"]

    run(scenario)


def test_a_commit_waits_only_if_it_sends():
    async def scenario(client, look, disk):
        client.send("BEGIN", {"transaction": "empty"})
        client.send("BEGIN", {"transaction": "sends"})
        client.send("SEND", {"destination": "q", "transaction": "sends"}, b"x")
        await look(0)
        client.send("COMMIT", {"transaction": "empty", "receipt": "empty"})
        assert await receipts(client) == ["empty"]
        client.send("COMMIT", {"transaction": "sends", "receipt": "sends"})
        assert await receipts(client) == []
        await look(50)
        assert await receipts(client) == ["sends"]

    run(scenario)


def test_a_large_message_is_not_stored_before_there_is_room():
    async def scenario(client, look, disk):
        await look(0)
        before = set(client.journal._journal.volume.image())
        client.send("SEND", {"destination": "q", "receipt": "large"}, b"x" * 500_000)
        assert await receipts(client) == []
        assert set(client.journal._journal.volume.image()) == before
        await look(50)
        for _ in range(50):
            await asyncio.sleep(0)
        assert await receipts(client) == ["large"]

    run(scenario)


def test_a_connection_that_ends_while_it_waits_is_forgotten():
    async def scenario(client, look, disk):
        await look(0)
        client.send("SEND", {"destination": "q"}, b"x" * 500_000)
        await asyncio.sleep(0.001)
        client.transport.vanish()
        await look(50)
        assert client.engine.memory._waiting == {}
        assert not client.engine.queues

    run(scenario)


def test_a_disk_that_does_not_say_how_full_it_is_changes_nothing_and_is_told_once(caplog):
    async def scenario(client, look, disk):
        disk.error = OSError(5, "input/output error")
        await look(0)
        client.send("SEND", {"destination": "q", "receipt": "r"}, b"x")
        assert await receipts(client) == ["r"]

    run(scenario)
    assert sum("cannot read how full the disk is" in line for line in caplog.messages) == 1
