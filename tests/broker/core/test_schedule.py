"""Messages that are not delivered before their time, and those that are more urgent than others."""

import asyncio

import pytest
from engines import Broker, settings
from stored import stored

from broker.core.deletion import delete
from broker.core.message import Message
from broker.core.properties import Properties
from broker.core.selector import compile_selector


def run(scenario, **options):
    async def start():
        loop = asyncio.get_running_loop()
        began = loop.time()

        def clock():
            return 1000 + loop.time() - began

        await scenario(await Broker.start(clock=clock, made_of=settings(**options)))

    asyncio.run(start())


def send(broker, text, group=None, *, wait_s=0.0, priority=4, queue="q", expires=0):
    due = broker.engine.now() + int(wait_s * 1000) if wait_s else 0
    properties = Properties(priority, expires, due)
    broker.engine.send(queue, Message(queue, b"color:red\n", text.encode(), group, properties=properties))


async def until(client, count):
    while len(client.got) < count:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("selector", [None, "color = 'red'"])
def test_it_comes_when_it_is_due_as_the_youngest_then(group, selector):
    async def scenario(broker):
        client = broker.consume(selector=selector and compile_selector(selector))
        due = broker.engine.now() + 100
        send(broker, "late", group, wait_s=0.3)
        send(broker, "soon", group, wait_s=0.1)
        send(broker, "now", group)
        await broker.settle()
        assert client.texts == ["now"]
        await until(client, 2)
        assert client.texts == ["now", "soon"]
        assert broker.engine.now() >= due
        send(broker, "then", group)
        await until(client, 4)
        assert client.texts == ["now", "soon", "then", "late"]

    run(scenario)


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_it_is_not_early_after_a_restart(end):
    async def scenario(broker):
        due = broker.engine.now() + 300
        send(broker, "later", wait_s=0.3)
        send(broker, "now")
        await broker.settle()
        again = await (broker.crash() if end == "crash" else broker.restart())
        client = again.consume()
        await again.settle()
        assert client.texts == ["now"]
        await until(client, 2)
        assert again.engine.now() >= due

    run(scenario)


def test_it_counts_as_stored_is_purged_and_its_queue_may_be_deleted():
    async def scenario(broker):
        for number in range(3):
            send(broker, str(number), wait_s=0.05)
        await broker.settle()
        assert not broker.engine.queue("q").idle
        assert len(stored(broker.engine, "q")) == 3
        assert await broker.engine.purge("q") == 3
        assert broker.engine.memory.size == 0
        send(broker, "3", wait_s=0.05)
        await broker.settle()
        assert await delete(broker.engine, "q", remove_messages=True) == 1
        client = broker.consume()
        await asyncio.sleep(0.1)
        assert client.texts == []

    run(scenario)


def test_a_queue_that_has_ended_does_not_wait_for_what_is_due_later():
    async def scenario(broker):
        name = "/temp-queue/t"
        queue = broker.engine.queue(name)
        send(broker, "stored", wait_s=10**9, queue=name)
        await broker.settle()
        send(broker, "on its way to the disk", wait_s=10**9, queue=name)
        broker.engine.drop(queue)
        await broker.settle()
        assert not broker.engine._dropped.queues
        queue._look_for_due()
        assert queue._alarm is None

    run(scenario)


def test_a_queue_has_one_alarm_however_often_it_looks():
    async def scenario(broker):
        send(broker, "x", wait_s=10)
        await broker.settle()
        queue = broker.engine.queue("q")
        first = queue._alarm
        queue._look_for_due()
        assert first.cancelled()
        assert not queue._alarm.cancelled()

    run(scenario)


def test_one_that_expires_before_it_is_due_is_never_delivered():
    async def scenario(broker):
        client = broker.consume()
        send(broker, "x", wait_s=0.05, expires=broker.engine.now() + 20)
        await broker.settle()
        while not len(broker.engine.queue("ExpiryQueue")):
            await asyncio.sleep(0.005)
        assert client.texts == []

    run(scenario)


def test_more_than_fit_in_memory_wait_on_pages_and_come_when_they_are_due():
    async def scenario(broker):
        for number in range(100):
            send(broker, f"{number}" + "." * 1000, wait_s=0.4)
            if number % 20 == 0:
                await broker.settle()
        await broker.settle()
        client = broker.consume(auto=True)
        await asyncio.sleep(0.1)
        assert client.texts == []
        assert broker.engine.queue("q").size < 60_000
        await until(client, 100)
        assert sorted(int(text.rstrip(".")) for text in client.texts) == list(range(100))

    run(scenario, max_size_bytes=20_000, page_size_bytes=2000)


def test_the_urgent_come_first_and_those_of_a_group_in_their_turn():
    async def scenario(broker):
        for number, priority in enumerate([4, 0, 9, 4, 5, 0, 9]):
            send(broker, str(number), priority=priority)
            send(broker, f"g{number}", "g", priority=priority)
        await broker.settle()
        client = broker.consume()
        await broker.settle()
        assert [text for text in client.texts if text[0] != "g"] == ["2", "6", "4", "0", "3", "1", "5"]
        assert [text for text in client.texts if text[0] == "g"] == [f"g{number}" for number in range(7)]
        assert client.texts[:3] == ["2", "6", "4"]
        assert client.texts[-2:] == ["1", "5"], "behind all groups"
        client.leave()
        again = broker.consume()
        await broker.settle()
        assert again.texts == client.texts

    run(scenario)


def test_priority_survives_a_crash():
    async def scenario(broker):
        for number, priority in enumerate([4, 0, 9]):
            send(broker, str(number), priority=priority)
        await broker.settle()
        again = await broker.crash()
        client = again.consume()
        await again.settle()
        assert client.texts == ["2", "0", "1"]

    run(scenario)
