"""What a client sends with an id (``_AMQ_DUPL_ID``) is taken once, whatever crashes."""

import asyncio
import dataclasses
import random

import pytest
from engines import Broker, settings
from stored import stored

from broker.core.duplicates import ID_BYTES, RING_BYTES, Duplicates, SentId, decode_sent, encode_sent
from broker.core.message import Message
from broker.core.properties import Properties
from broker.core.transactions import Transaction


def run(scenario, **options):
    async def start():
        await scenario(await Broker.start(made_of=settings(**options)))

    asyncio.run(start())


def message(text, once, queue="q"):
    return Message(queue, b"destination:q\n", text.encode(), properties=Properties(once=once))


def texts(broker, queue="q"):
    return [one.message.body.decode() for one in stored(broker.engine, queue)]


def test_a_repeated_send_is_answered_when_the_first_is_durable_and_not_stored():
    async def scenario(broker):
        answered = []
        broker.engine.gate.hold()
        for text, once in [("a", "1"), ("again", "1"), ("b", "2")]:
            broker.engine.send("q", message(text, once), lambda text=text: answered.append(text))
        broker.engine.send("r", message("elsewhere", "1", "r"))
        await broker.settle()
        assert answered == []
        broker.engine.gate.release()
        await broker.settle()
        assert answered == ["a", "again", "b"]
        assert texts(broker) == ["a", "b"]
        assert texts(broker, "r") == ["elsewhere"]

    run(scenario)


@pytest.mark.parametrize("end", ["crash", "restart"])
@pytest.mark.parametrize("consumed", [False, True])
def test_ids_survive_though_their_messages_are_consumed(end, consumed):
    async def scenario(broker):
        broker.engine.send("q", message("a", "1"))
        transaction = Transaction()
        transaction.send("q", message("b", "2"))
        broker.engine.commit(transaction)
        await broker.settle()
        if consumed:
            client = broker.consume()
            await broker.settle()
            client.ack("a", "b")
            await broker.settle()
            client.leave()
        again = await (broker.crash() if end == "crash" else broker.restart())
        for once in ("1", "2", "3"):
            again.engine.send("q", message(f"repeats {once}", once))
        await again.settle()
        assert texts(again) == ["repeats 3"] if consumed else ["a", "b", "repeats 3"]

    run(scenario)


def test_an_id_whose_send_was_never_durable_is_not_known():
    async def scenario(broker):
        broker.send("first")
        await broker.settle()
        broker.engine.send("q", message("lost", "1"))
        again = await broker.crash()
        if "lost" not in texts(again):
            again.engine.send("q", message("repeated", "1"))
            await again.settle()
            assert texts(again) == ["first", "repeated"]

    run(scenario)


def test_a_transaction_with_a_send_that_repeats_one_sends_nothing_and_acknowledges():
    async def scenario(broker):
        broker.engine.send("q", message("a", "1"))
        client = broker.consume()
        await broker.settle()
        transaction = Transaction()
        for text, once in [("new", ""), ("again", "1"), ("b", "2")]:
            transaction.send("r", message(text, once, "r")) if not once else transaction.send(
                "q", message(text, once)
            )
        transaction.acknowledge([client.delivery("a")])
        answered = []
        broker.engine.commit(transaction, lambda: answered.append(1))
        await broker.settle()
        assert answered == [1]
        assert (texts(broker), texts(broker, "r")) == ([], [])
        again = Transaction()
        for text in ("b", "twice"):
            again.send("q", message(text, "2"))
        broker.engine.commit(again)
        await broker.settle()
        assert texts(broker) == ["b"], "ids of what was not stored are not remembered"

    run(scenario)


@pytest.mark.parametrize("end", [None, "crash"])
def test_so_many_are_remembered_as_the_settings_say(end):
    async def scenario(broker):
        for number in range(5):
            broker.engine.send("q", message(str(number), str(number)))
        await broker.settle()
        if end:
            broker = await broker.crash()
        for number in (2, 3, 4, 1):
            broker.engine.send("q", message(f"{number} again", str(number)))
        await broker.settle()
        assert texts(broker) == ["0", "1", "2", "3", "4", "1 again"]

    run(scenario, id_cache_size=3)


def test_none_are_remembered_where_the_settings_say_so():
    async def scenario(broker):
        for text in "ab":
            broker.engine.send("q", message(text, "1"))
        await broker.settle()
        assert texts(broker) == ["a", "b"]

    run(scenario, id_cache_size=0)


def test_with_a_queue_go_its_ids():
    async def scenario(broker):
        broker.engine.send("q", message("a", "1"))
        await broker.settle()
        assert await broker.engine.purge("q") == 1
        broker.engine.remove(broker.engine.queue("q"))
        await broker.settle()
        again = await broker.crash()
        again.engine.send("q", message("b", "1"))
        await again.settle()
        assert texts(again) == ["b"]

    run(scenario)


def test_a_record_of_an_id_is_read_as_it_was_written():
    sent = SentId("queue ä", "id € 1")
    assert decode_sent(encode_sent(sent)) == sent


@pytest.mark.parametrize("end", [None, "crash"])
def test_a_client_that_names_many_destinations_makes_only_idle_ones_forget(end):
    """Each id takes memory, and a topic that nobody has subscribed to exists once it is named."""

    async def scenario():
        many = 200
        bound = (many + 2) * (RING_BYTES + ID_BYTES)
        made_of = dataclasses.replace(settings(), max_duplicate_ids_size=bound)
        broker = await Broker.start(made_of=made_of)
        for queue in ("used", "idle"):
            broker.engine.send(queue, message("first", "1", queue))
        for number in range(3 * many):
            topic = f"/topic/t{number}"
            broker.engine.send(topic, message("x", "1", topic))
            if number % 50 == 0:
                broker.engine.send("used", message("more", f"more{number}", "used"))
            assert broker.engine._sent.bytes <= bound
        await broker.settle()
        if end:
            broker = await broker.crash()
        assert broker.engine._sent.bytes <= bound
        for queue in ("used", "idle"):
            broker.engine.send(queue, message("again", "1", queue))
        await broker.settle()
        assert "again" not in texts(broker, "used")
        assert texts(broker, "idle") == ["first", "again"]

    asyncio.run(scenario())


def test_the_memory_for_ids_is_what_they_are():
    chance = random.Random(5)
    for _ in range(50):
        bound = chance.choice((3000, 10_000, 1 << 40))
        remembered = Duplicates(4, bound)
        records = set()
        for number in range(200):
            name = f"q{chance.randrange(8)}" * chance.randrange(1, 4)
            if chance.random() < 0.05:
                records.difference_update(remembered.forget(name))
            elif remembered.sequence(sent := SentId(name, str(chance.randrange(30)))) is None:
                records.add(number)
                forgotten = remembered.remember(name, sent, number, 0)
                assert records.issuperset(forgotten)
                records.difference_update(forgotten)
            rings = remembered._rings
            assert records == {record for ring in rings.values() for record, _ in ring}
            assert {one for ring in rings.values() for _, one in ring} == set(remembered._sequences)
            assert all(rings.values())
            assert remembered.bytes <= bound
            assert remembered.bytes == sum(
                RING_BYTES + len(name) + sum(ID_BYTES + len(one.id) for _, one in ring)
                for name, ring in rings.items()
            )
