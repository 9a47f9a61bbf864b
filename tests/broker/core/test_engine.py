"""The engine: what survives, what is answered, dead letters, transactions, forwarding, memory."""

import asyncio

import pytest
from engines import Broker, settings
from stored import stored

from broker.core.engine import DemotedError
from broker.core.message import Message
from broker.core.transactions import Transaction


def run(scenario):
    asyncio.run(scenario())


def bodies(broker, queue=None):
    return [one.message.body.decode() for one in stored(broker.engine, queue)]


def test_what_was_durable_survives_a_crash_and_is_flagged():
    async def scenario():
        broker = await Broker.start()
        broker.send("0", "g")
        broker.send("1", "h", queue="other")
        await broker.settle()
        broker.engine.gate.hold()
        after = await broker.crash()
        assert bodies(after) == ["0", "1"]
        client = after.consume()
        await after.settle()
        assert client.texts == ["0"]
        assert client.flags == [(True, 2)]
        assert client.got[0].message.group == "g"
        assert client.got[0].message.headers == b"destination:q\n"

    run(scenario)


def test_a_clean_end_keeps_the_exact_counts():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=1)
        broker.send("seen")
        broker.send("unseen")
        await broker.settle()
        assert client.texts == ["seen"]
        after = await broker.restart()
        late = after.consume()
        await after.settle()
        assert late.texts == ["seen", "unseen"]
        assert late.flags == [(True, 2), (False, 1)]
        crashed = await after.crash()
        assert [one.message.deliveries > 0 for one in stored(crashed.engine)] == [True, True]

    run(scenario)


def test_acknowledged_messages_do_not_return():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume()
        for n in range(4):
            broker.send(str(n))
        await broker.settle()
        client.ack("1", "2")
        await broker.settle()
        after = await broker.crash()
        assert bodies(after) == ["0", "3"]

    run(scenario)


def test_a_message_refused_too_often_becomes_a_dead_letter_with_its_origin():
    async def scenario():
        broker = await Broker.start(made_of=settings(max_delivery_attempts=3))
        client = broker.consume()
        broker.send("bad", "g")
        await broker.settle()
        for attempt in range(3):
            assert client.flags[-1] == (attempt > 0, attempt + 1)
            client.nack("bad")
            await broker.settle()
        assert client.texts == ["bad"] * 3
        (dead,) = stored(broker.engine)
        assert (dead.store, dead.holder, dead.message.body) == ("dead-letter", "DLQ", b"bad")
        assert dead.message.headers == b"_AMQ_ORIG_QUEUE:q\ndestination:q\n"
        late = broker.consume("DLQ")
        await broker.settle()
        assert late.flags == [(True, 4)]  # it was delivered before, under its old name
        after = await broker.restart()
        assert [(one.store, one.message.deliveries > 0) for one in stored(after.engine)] == [
            ("dead-letter", True)
        ]

    run(scenario)


@pytest.mark.parametrize("attempts", [-1, 10])
def test_what_is_refused_for_good_is_a_dead_letter_at_once(attempts):
    async def scenario():
        broker = await Broker.start(made_of=settings(max_delivery_attempts=attempts))
        client = broker.consume()
        broker.send("bad")
        await broker.settle()
        broker.engine.refuse([client.delivery("bad")], for_good=True)
        await broker.settle()
        assert client.texts == ["bad"]
        dead = broker.consume("DLQ")
        await broker.settle()
        broker.engine.refuse([dead.delivery("bad")], for_good=True)
        await broker.settle()
        assert dead.texts == ["bad", "bad"]  # it stays where it is

    run(scenario)


def test_a_refusal_for_good_in_a_transaction_counts_when_that_commits():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume()
        broker.send("bad")
        broker.send("worse")
        await broker.settle()
        for end in (broker.engine.roll_back, broker.engine.commit):
            transaction = Transaction()
            transaction.refuse([client.delivery("bad")], for_good=True)
            transaction.refuse([client.delivery("worse")])
            end(transaction)
            await broker.settle()
        assert (bodies(broker, "q"), bodies(broker, "DLQ")) == (["worse"], ["bad"])

    run(scenario)


def test_refusals_are_remembered_over_a_crash():
    async def scenario():
        broker = await Broker.start(made_of=settings(max_delivery_attempts=2))
        client = broker.consume()
        broker.send("bad")
        await broker.settle()
        client.nack("bad")
        await broker.settle()
        after = await broker.crash()
        late = after.consume()
        await after.settle()
        late.nack("bad")
        await after.settle()
        assert [one.store for one in stored(after.engine)] == ["dead-letter"]

    run(scenario)


def test_a_lost_consumer_is_no_refusal():
    """AMQ-9829: prefetched messages went to the dead letters because connections were lost."""

    async def scenario():
        broker = await Broker.start(made_of=settings(max_delivery_attempts=2))
        broker.send("good")
        for _ in range(5):
            client = broker.consume()
            await broker.settle()
            assert client.texts == ["good"]
            client.leave()
        assert [one.store for one in stored(broker.engine)] == ["main"]

    run(scenario)


def test_a_transaction_is_all_or_nothing_wherever_the_disk_fails():
    async def scenario(fail_after):
        broker = await Broker.start()
        client = broker.consume()
        broker.send("in")
        await broker.settle()
        transaction = Transaction()
        transaction.acknowledge([client.delivery("in")])
        for n in range(5):
            transaction.send("out", Message("out", b"", str(n).encode()))
        done = []
        broker.volume.fail_after = broker.volume.operations + fail_after
        broker.engine.commit(transaction, lambda: done.append(1))
        try:
            await broker.settle()
        except Exception:
            assert not done
        after = await broker.crash()
        found = bodies(after)
        assert found in (["in"], ["0", "1", "2", "3", "4"])
        assert not done or found == ["0", "1", "2", "3", "4"]
        await after.engine.journal.close()
        return bool(done)

    outcomes = [asyncio.run(scenario(n)) for n in range(6)]
    assert True in outcomes
    assert False in outcomes


def test_an_aborted_transaction_gives_its_messages_back_and_counts_as_refusal():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=2)
        for n in range(3):
            broker.send(str(n))
        await broker.settle()
        transaction = Transaction()
        transaction.acknowledge([client.delivery("0")])
        transaction.send("q", Message("q", b"", b"never"))
        await broker.settle()
        assert client.texts == ["0", "1", "2"]
        done = []
        broker.engine.roll_back(transaction, done=lambda: done.append(1))
        client.ack("1", "2")
        await broker.settle()
        assert client.texts == ["0", "1", "2", "0"]
        assert client.got[-1].message.refusals == 1
        assert done == [1]
        assert bodies(broker) == ["0"]

    run(scenario)


def test_a_refusal_in_a_transaction_takes_effect_on_commit():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=1)
        broker.send("0")
        await broker.settle()
        transaction = Transaction()
        transaction.refuse([client.delivery("0")])
        await broker.settle()
        assert client.texts == ["0"]
        broker.engine.commit(transaction)
        await broker.settle()
        assert client.texts == ["0", "0"]
        assert client.flags[-1] == (True, 2)

    run(scenario)


def test_an_abandoned_engine_answers_nobody():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume()
        cut = []
        broker.engine.on_abandon.append(lambda: cut.append(1))
        broker.send("0")
        await broker.settle()
        done = []
        broker.engine.send("q", Message("q", b"", b"late"), lambda: done.append(1))
        broker.engine.abandon()
        await broker.settle()
        assert (done, cut) == ([], [1])
        with pytest.raises(DemotedError):
            broker.send("more")
        with pytest.raises(DemotedError):
            client.ack("0")

    run(scenario)


def test_a_suspended_engine_dispatches_nothing_until_resumed():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume()
        broker.engine.suspend()
        broker.send("0")
        await broker.settle()
        assert client.texts == []
        broker.engine.resume()
        await broker.settle()
        assert client.texts == ["0"]

    run(scenario)


def test_a_full_queue_calls_back_when_there_is_room():
    async def scenario():
        broker = await Broker.start(made_of=settings(max_size_bytes=1000, address_full_policy="BLOCK"))
        client = broker.consume(window=1)
        memory = broker.engine.memory
        for n in range(4):
            assert not memory.is_full("q")
            broker.send(str(n))
        assert memory.is_full("q")
        assert not memory.is_full("other")
        called = []
        memory.wait("q", lambda: called.append(memory.is_full("q")))
        await broker.settle()
        assert called == []
        client.ack("0")
        await broker.settle()
        assert called == [False]
        while client.held:
            client.ack(client.held[0].message.body.decode())
            await broker.settle()
        assert memory.size == 0

    run(scenario)


def test_purge_leaves_what_consumers_hold():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=1)
        for n in range(4):
            broker.send(str(n), "g" if n % 2 else None)
        await broker.settle()
        assert await broker.engine.purge("q") == 3
        assert bodies(broker) == ["0"]
        client.ack("0")
        await broker.settle()
        assert broker.engine.memory.size == 0
        broker.send("5", "g")
        await broker.settle()
        assert client.texts == ["0", "5"]

    run(scenario)
