"""What each queue holds at a start, whose store has records of several brokers."""

from broker.core import recovery
from broker.core.message import MESSAGE, QUEUE, Message, encode
from broker.storage.records import Record


def message(id_, queue_id):
    return Record(id_, MESSAGE, encode(Message("q", b"", b"x", None), queue_id), ())


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
    lines = recovery.read(records).lines()
    assert {name: [record.id for record in line] for name, (line, _) in lines.items()} == {
        "q": [6, 7, 11, 12, 13],
        "r": [10],
    }
