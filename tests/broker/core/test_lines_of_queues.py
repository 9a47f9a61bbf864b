"""What each queue holds at a start, whose store has records of several brokers."""

import asyncio

import pytest
from engines import Broker

from broker.core import recovery
from broker.core.message import MESSAGE, QUEUE, Message, encode
from broker.storage.journal import Recovered
from broker.storage.records import Record


def message(id_, queue_id, text="x", group=None):
    return Record(id_, MESSAGE, encode(Message("q", b"", text.encode(), group), queue_id), ())


def test_messages_of_one_name_stand_in_order_of_their_ids_whichever_record_they_name():
    own, taken, other = 1, 5, 9
    records = [
        Record(own, QUEUE, b"q", ()),
        Record(taken, QUEUE, b"q", ()),
        Record(other, QUEUE, b"r", ()),
        message(6, taken),
        message(7, taken),
        message(10, other),
        message(11, own),
        message(12, taken),
        message(13, own),
    ]
    image = recovery.read(records)
    lines = image.lines(image.queues)
    assert {name: [record.id for record in line] for name, (line, _) in lines.items()} == {
        "q": [6, 7, 11, 12, 13],
        "r": [10],
    }


@pytest.mark.parametrize("group", ["g", None])
def test_what_was_taken_over_stays_behind_what_was_there_though_its_ids_are_lower(group):
    async def scenario():
        broker = await (await Broker.start()).restart()
        for text in ("own 1", "own 2"):
            assert broker.send(text, group).id > 9
        await broker.settle()
        first = broker.consume()
        await broker.settle()
        taken = [
            Record(5, QUEUE, b"q", ()),
            message(6, 5, "taken 1", group),
            message(7, 5, "taken 2", group),
        ]
        broker.engine.adopt(Recovered(taken))
        await broker.settle()
        assert first.texts == ["own 1", "own 2", "taken 1", "taken 2"]
        first.leave()
        second = broker.consume(window=3)
        await broker.settle()
        assert second.texts == ["own 1", "own 2", "taken 1"]
        second.leave()
        third = broker.consume()
        await broker.settle()
        assert third.texts == first.texts

    asyncio.run(scenario())
