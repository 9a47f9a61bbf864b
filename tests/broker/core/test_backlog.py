"""What a broker finds when it becomes live is delivered as if it had never been away, though it
is looked at only when its turn comes.
"""

import asyncio

import pytest
from engines import Broker, settings
from stored import stored

from broker.core import backlog, recovery
from broker.core.backlog import Backlog
from broker.core.message import Message
from broker.core.pages import Page
from broker.storage.blobs import Blob
from broker.storage.journal import ID_BLOCK_BITS

GROUPS = 7
STORED = 5 * backlog.CHUNK
BLOCK = 1 << ID_BLOCK_BITS


async def filled(count=STORED, **options):
    """A broker that crashed with so many messages, numbered, in groups and without."""
    broker = await Broker.start(made_of=settings(**options))
    for number in range(count):
        broker.send(str(number), None if number % (GROUPS + 1) == 0 else f"g{number % (GROUPS + 1)}")
    await broker.settle()
    return await broker.crash()


def counted(monkeypatch):
    """How many stored messages have been decoded so far, as the length of a list."""
    decoded = []
    decode = backlog.decode
    monkeypatch.setattr(backlog, "decode", lambda id_, data: decoded.append(id_) or decode(id_, data))
    return decoded


async def drained(broker, clients):
    """Acknowledge whatever comes until nothing is left.

    Texts in the order of the acknowledgements.
    """
    texts = []
    while broker.engine.status()[0].messages:
        for client in clients:
            held = client.held
            texts += [one.message.body.decode() for one in held]
            if held:
                broker.engine.acknowledge(held)
        await broker.settle()
    return texts


def test_a_broker_is_ready_before_any_message_is_decoded(monkeypatch):
    async def scenario():
        decoded = counted(monkeypatch)
        broker = await filled()
        done = []
        broker.engine.send("q", broker.send("new").copy(), lambda: done.append(True))
        await broker.settle()
        assert done == [True]
        [status] = broker.engine.status()
        assert status.messages == STORED + 2
        assert decoded == []

    asyncio.run(scenario())


def test_only_what_a_consumer_has_room_for_is_decoded(monkeypatch):
    async def scenario():
        decoded = counted(monkeypatch)
        broker = await filled()
        client = broker.consume(window=10)
        await broker.settle()
        assert client.texts == [str(number) for number in range(10)]
        assert len(decoded) <= backlog.CHUNK

    asyncio.run(scenario())


def test_what_arrives_after_a_start_comes_after_what_was_stored():
    async def scenario():
        broker = await filled()
        for number in range(STORED, STORED + 100):
            broker.send(str(number), f"g{number % (GROUPS + 1)}")
        await broker.settle()
        clients = [broker.consume(window=window) for window in (1, 3, 50)]
        await broker.settle()
        texts = await drained(broker, clients)
        assert sorted(texts, key=int) == [str(number) for number in range(STORED + 100)]
        for group in range(1, GROUPS + 1):
            owners = [
                client
                for client in clients
                if any(int(text) % (GROUPS + 1) == group for text in client.texts)
            ]
            assert len(owners) == 1
            mine = [int(text) for text in owners[0].texts if int(text) % (GROUPS + 1) == group]
            assert mine == sorted(mine)

    asyncio.run(scenario())


def test_a_consumer_gets_a_group_behind_many_messages_of_a_group_whose_owner_is_full():
    """What nobody may take must not hide what somebody may.

    The backlog is looked through, a piece in each turn of the loop.
    """

    async def scenario():
        broker = await Broker.start()
        for number in range(STORED):
            broker.send(str(number), "busy")
        broker.send("free", "other")
        await broker.settle()
        broker = await broker.crash()
        owner = broker.consume(window=1)
        await broker.settle()
        other = broker.consume(window=1)
        for _ in range(STORED // backlog.CHUNK + 2):
            await broker.settle()
        assert owner.texts == ["0"]
        assert other.texts == ["free"]

    asyncio.run(scenario())


def test_what_is_seen_of_the_store_is_the_same_before_and_after():
    async def scenario():
        broker = await Broker.start()
        for number in range(100):
            broker.send(str(number), "g" if number % 2 else None)
        await broker.settle()
        before = broker.engine.status()
        size = broker.engine.memory.size
        browsed = [one.message.id for one in stored(broker.engine)]
        broker = await broker.restart()
        assert broker.engine.status() == before
        assert broker.engine.memory.size == size
        assert [one.message.id for one in stored(broker.engine)] == browsed
        assert broker.engine.status() == before
        assert sum(broker.engine.purging("q")) == 100
        assert broker.engine.memory.size == 0

    asyncio.run(scenario())


def test_a_clean_end_records_the_deliveries_of_what_was_never_looked_at():
    async def scenario():
        broker = await filled(STORED)
        broker = await broker.restart()
        client = broker.consume(window=STORED)
        await broker.settle()
        assert client.flags
        assert all(redelivered and deliveries == 2 for redelivered, deliveries in client.flags)

    asyncio.run(scenario())


def test_sizes_are_those_of_the_messages():
    async def scenario():
        broker = await filled(20)
        sizes = sum(one.message.size for one in stored(broker.engine))
        assert sizes
        assert broker.engine.memory.size == sizes
        assert recovery.read([]).count == 0

    asyncio.run(scenario())


def line(*ids):
    """A backlog of messages with these ids, of 100 bytes each."""
    made = Backlog()
    for id_ in ids:
        message = Message("q", b"", b"")
        message.id, message.size = id_, 100
        made.append(message)
    return made


@pytest.mark.parametrize(
    ("ids", "kept", "most", "least", "found"),
    [
        ((1, 2, 3, 4), 0, 1000, 1, [1, 2, 3, 4]),
        ((1, 2, 3, 4), 0, 200, 1, [1, 2]),
        ((1, 2, 3, 4), 250, 1000, 1, [3, 4]),
        ((1, 2, 3, 4), 50, 1000, 1, [1, 2, 3, 4]),
        ((1, 2, 3, 4), 400, 1000, 1, []),
        ((1, 2, 3, 4), 0, 1000, 500, []),
        ((5, 1, 2, 3), 0, 1000, 1, [5]),
        ((5, 1, 2, 3), 0, 1000, 200, [1, 2, 3]),
        ((1, 2, BLOCK + 1, BLOCK + 2), 0, 1000, 1, [1, 2]),
    ],
)
def test_a_page_holds_messages_in_the_order_of_their_ids_and_of_one_block(ids, kept, most, least, found):
    assert [item.id for item in line(*ids).run_behind(kept, most, least)] == found


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_a_page_stands_where_its_messages_stood_unless_a_consumer_was_faster(taken):
    waiting = line(1, 2, 3, 4, 5)
    run = waiting.run_behind(200, 200, 1)
    assert [item.id for item in run] == [3, 4]
    for _ in range(taken):
        waiting.take()
    page = Page(9, Blob(9, 1, 0), 3, 2, {})
    freed = waiting.cut(run, page)
    assert freed == (200 if taken <= 2 else None)
    ids = [item.id for item in waiting.items()]
    assert ids == ([1, 2, 9, 5] if taken <= 2 else [1, 2, 3, 4, 5])[taken:]
    assert len(waiting) == 5 - taken
    assert waiting.size == 100 * (5 - taken) - (freed or 0)
