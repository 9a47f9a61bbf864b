"""Messages that expire: never delivered from then on, and where they go."""

import asyncio
import random
from dataclasses import replace

import pytest
from engines import Broker, Client, settings
from stored import stored

from broker.core.addresses import INTERNAL_PREFIX
from broker.core.engine import Engine
from broker.core.groups import RANK, Lane
from broker.core.message import Message, decode, encode, stored_size
from broker.core.properties import Properties, bounded
from broker.core.selector import compile_selector
from broker.core.transactions import Transaction
from broker.sections import AddressSettings
from broker.storage.blobs import Blob


class Clock:
    """Wall time that stands still."""

    seconds = 1000.0

    def __call__(self):
        return self.seconds


def expiring(text, in_s, group=None, now=1000.0, **more):
    properties = Properties(expires=int((now + in_s) * 1000))
    headers = b"destination:q\nexpires:1\n"
    return Message("q", headers, text.encode(), group, properties=properties, **more)


def run(scenario, scan_s=30.0, **options):
    clock = Clock()

    async def start():
        made_of = replace(settings(**options), expiry_scan_period_s=scan_s)
        await scenario(await Broker.start(clock=clock, made_of=made_of), clock)

    asyncio.run(start())


def texts(broker, queue):
    return [one.message.body.decode() for one in stored(broker.engine, queue)]


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("selector", [None, "TRUE"])
def test_what_has_expired_is_not_delivered_and_goes_to_the_expiry_address(group, selector):
    async def scenario(broker, clock):
        for number in range(5):
            broker.engine.send("q", expiring(str(number), 10 if number % 2 else 20, group))
        await broker.settle()
        clock.seconds += 10
        client = broker.consume(selector=selector and compile_selector(selector))
        await broker.settle()
        assert client.texts == ["0", "2", "4"]
        assert texts(broker, "ExpiryQueue") == ["1", "3"]
        client.ack("0", "2", "4")
        await broker.settle()
        letters = broker.consume("ExpiryQueue")
        await broker.settle()
        assert letters.got[0].message.headers == (
            b"_AMQ_ORIG_ADDRESS:q\n_AMQ_ORIG_QUEUE:q\n_AMQ_ACTUAL_EXPIRY:1010000\ndestination:q\n"
        )
        letters.ack("1", "3")
        await broker.settle()
        assert broker.engine.memory.size == 0

    run(scenario)


def test_a_group_goes_on_behind_what_has_expired_for_its_owner_and_for_others():
    async def scenario(broker, clock):
        owner, other = broker.consume(window=1), broker.consume(window=1)
        broker.send("0", "g")
        await broker.settle()
        for number in (1, 2):
            broker.engine.send("q", expiring(str(number), 5, "g"))
        broker.send("3", "g")
        await broker.settle()
        clock.seconds += 5
        owner.ack("0")
        await broker.settle()
        assert (owner.texts, other.texts) == (["0", "3"], [])

    run(scenario)


def test_what_is_held_when_it_expires_stays_with_its_consumer_and_expires_when_it_comes_back():
    async def scenario(broker, clock):
        for text in ("acknowledged", "given back", "refused"):
            broker.engine.send("q", expiring(text, 5))
        client = broker.consume()
        await broker.settle()
        clock.seconds += 50
        assert broker.engine.queue("q").take_expired(10) == []
        client.ack("acknowledged")
        client.nack("refused")
        await broker.settle()
        assert texts(broker, "ExpiryQueue") == ["refused"]
        client.leave()
        await broker.settle()
        assert texts(broker, "ExpiryQueue") == ["refused"], "nobody looks until the scan"
        assert not broker.engine._scan(broker.engine.queue("q"))
        await broker.settle()
        assert texts(broker, "ExpiryQueue") == ["refused", "given back"]
        assert texts(broker, "q") == []

    run(scenario)


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("filtered", [False, True])
def test_the_scan_finds_what_nobody_takes(group, filtered):
    async def scenario(broker, clock):
        if filtered:
            broker.consume(selector=compile_selector("FALSE"))
        elif group:
            owner = broker.consume(window=1)
            broker.send("held", group)
            await broker.settle()
        for number in range(600):
            broker.engine.send("q", expiring(str(number), 5 if number % 3 else 500, group))
        await broker.settle()
        await asyncio.sleep(0.05)
        assert len(broker.engine.queue("q")) == 600 + bool(group and not filtered)
        clock.seconds += 5
        while len(broker.engine.queue("q")) > 201:
            await asyncio.sleep(0.01)
        await broker.settle()
        assert texts(broker, "ExpiryQueue") == [str(number) for number in range(600) if number % 3]
        if group and not filtered:
            owner.ack("held")
            await broker.settle()
            assert owner.texts == ["held", "0"]

    run(scenario, scan_s=0.01)


@pytest.mark.parametrize(("name", "end"), [("q", Engine.remove), ("/temp-queue/t", Engine.drop)])
def test_a_queue_that_has_ended_is_not_scanned_any_more(name, end):
    async def scenario(broker, clock):
        queue = broker.engine.queue(name)
        broker.engine.send(name, expiring("x", 10**9))
        reader = broker.consume(name, auto=True)
        await broker.settle()
        assert reader.texts == ["x"]
        reader.leave()
        end(broker.engine, queue)
        broker.engine._expiry_scan._begin()
        await broker.settle()
        assert queue not in broker.engine._expiry_scan._queues

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_what_expires_leaves_the_others_of_its_lane_in_order(seed):
    chance = random.Random(seed)
    lane, messages = Lane(None), []
    for number in range(60):
        message = Message("q", b"", b"%d" % number)
        message.place = number + 1 + (RANK if number >= 40 else 0)
        messages.append(message)
    lane.fresh.extend(messages[20:40])
    for message in chance.sample(messages[:20] + messages[40:], 40):
        lane.put_back(message)
    expired = dict.fromkeys(messages[20:25] + chance.sample(messages[25:] + messages[:20], 20))
    assert set(lane.take_these(expired)) == set(expired)
    assert [lane.pop() for _ in range(len(lane))] == [one for one in messages if one not in expired]


def test_without_an_expiry_address_it_is_dropped_and_in_that_queue_nothing_expires():
    async def scenario(broker, clock):
        broker.engine.send("q", expiring("x", 5))
        await broker.settle()
        clock.seconds += 5
        client = broker.consume()
        await broker.settle()
        assert client.texts == []
        assert broker.engine.memory.size == 0

    run(scenario, expiry_address="")

    async def its_own(broker, clock):
        broker.engine.send("q", expiring("x", 5))
        await broker.settle()
        clock.seconds += 5
        assert broker.consume().consumer
        await broker.settle()
        assert broker.engine.queue("q").unacknowledged() == 1

    run(its_own, expiry_address="q")


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_an_expiry_survives_and_moves_in_one_entry(end):
    async def scenario(broker, clock):
        broker.engine.send("q", expiring("x", 5))
        broker.engine.send("q", expiring("y", 50))
        await broker.settle()
        again = await (broker.crash() if end == "crash" else broker.restart())
        clock.seconds += 5
        client = again.consume()
        await again.settle()
        assert client.texts == ["y"]
        assert texts(again, "ExpiryQueue") == ["x"]
        last = await again.crash()
        assert texts(last, "q") == ["y"]
        assert texts(last, "ExpiryQueue") == ["x"]

    run(scenario)


def test_in_a_transaction_and_on_pages():
    async def scenario(broker, clock):
        transaction = Transaction()
        transaction.send("q", expiring("t", 5))
        broker.engine.commit(transaction)
        for number in range(200):
            broker.engine.send("q", expiring(f"{number}" + "." * 1000, 5 if number % 2 else 500))
        await broker.settle()
        for _ in range(200):
            await asyncio.sleep(0)
            await broker.engine.journal.flush()
        assert broker.engine.queue("q").paged()
        clock.seconds += 5
        client = Client(broker.engine, "q", auto=True)
        while len(broker.engine.queue("q")):
            await broker.settle()
        assert [text.rstrip(".") for text in client.texts] == [str(number) for number in range(0, 200, 2)]
        assert len(broker.engine.queue("ExpiryQueue")) == 101

    run(scenario, max_size_bytes=20_000, page_size_bytes=2000)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [((-1, -1, -1, 0), 0), ((-1, -1, -1, 50), 50), ((10, -1, -1, 0), 110), ((10, -1, -1, 50), 50),
     ((-1, 10, 20, 0), 120), ((-1, 10, -1, 0), 110), ((-1, 10, 20, 105), 110), ((-1, 10, 20, 500), 120),
     ((-1, 10, 20, 115), 115), ((-1, -1, 0, 0), 100), ((-1, -1, 20, 50), 50)],
)  # fmt: skip
def test_the_bounds_that_address_settings_give(asked, expected):
    delay, least, most, expires = asked
    table = AddressSettings(expiry_delay=delay, min_expiry_delay=least, max_expiry_delay=most)
    got = bounded(Properties(expires=expires) if expires else None, table, 100)
    assert (got.expires if got else 0) == expected


def test_an_expiry_of_the_address_settings_is_stored_with_the_message():
    async def scenario(broker, clock):
        broker.send("x")
        await broker.settle()
        again = await broker.crash()
        clock.seconds += 0.01
        client = again.consume()
        await again.settle()
        assert client.texts == []
        assert texts(again, "ExpiryQueue") == ["x"]

    run(scenario, expiry_delay=10)


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("large", [None, Blob(1, 2, 3)])
def test_a_record_with_properties_is_read_as_it_was_written(group, large):
    properties = Properties(priority=9, expires=2**62, due=7)
    message = Message("q", b"a:b\n", b"body", group, large=large, properties=properties)
    data = encode(message, 5)
    queue, again = decode(1, data)
    assert queue == 5
    assert (again.properties, again.body, again.headers, again.group, again.large) == (
        properties, b"body", b"a:b\n", group, large,
    )  # fmt: skip
    assert stored_size(data) == message.size


def test_what_is_on_its_way_to_another_broker_does_not_expire_here():
    async def scenario(broker, clock):
        broker.engine.send(f"{INTERNAL_PREFIX}sf.c.n", expiring("gone", 10))
        await broker.settle()
        clock.seconds += 60
        bridge = broker.consume(f"{INTERNAL_PREFIX}sf.c.n")
        await broker.settle()
        assert bridge.texts == ["gone"]
        assert "ExpiryQueue" not in broker.engine.queues

    run(scenario)
