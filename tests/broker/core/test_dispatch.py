"""Queues: order, credit, groups, requeue."""

import asyncio

from engines import Broker, settings
from stored import stored


def run(scenario):
    asyncio.run(scenario())


def test_messages_come_in_the_order_they_were_sent_round_robin():
    async def scenario():
        broker = await Broker.start()
        one, two = broker.consume(), broker.consume()
        for n in range(6):
            broker.send(str(n))
        await broker.settle()
        assert one.texts == ["0", "2", "4"]
        assert two.texts == ["1", "3", "5"]

    run(scenario)


def test_nothing_is_delivered_before_it_is_durable():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume()
        await broker.settle()
        broker.engine.gate.hold()
        done = []
        message = broker.send("a")
        broker.engine.send("q", message.copy(), lambda: done.append(1))
        await broker.settle()
        assert client.texts == []
        assert done == []
        broker.engine.gate.release()
        await broker.settle()
        assert client.texts == ["a", "a"]
        assert done == [1]

    run(scenario)


def test_nothing_is_delivered_while_the_gate_is_held():
    async def scenario():
        broker = await Broker.start()
        for n in range(4):
            broker.send(str(n), queue=f"q{n % 2}")
        await broker.settle()
        broker.engine.gate.hold()
        clients = [broker.consume(f"q{n}", window=1) for n in range(2)]
        await broker.settle()
        assert [client.texts for client in clients] == [[], []]
        broker.engine.gate.release()
        await broker.settle()
        assert [client.texts for client in clients] == [["0"], ["1"]]

    run(scenario)


def test_a_consumer_holds_no_more_than_its_window():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=2)
        for n in range(5):
            broker.send(str(n))
        await broker.settle()
        assert client.texts == ["0", "1"]
        client.ack("0")
        await broker.settle()
        assert client.texts == ["0", "1", "2"]

    run(scenario)


def test_requeued_messages_return_to_their_original_places():
    """The family of ARTEMIS-4410, -4517 and -2458."""

    async def scenario():
        broker = await Broker.start()
        one, two = broker.consume(window=3), broker.consume(window=3)
        for n in range(10):
            broker.send(str(n))
        await broker.settle()
        two.leave()
        one.leave()
        late = broker.consume()
        await broker.settle()
        assert late.texts == [str(n) for n in range(10)]
        assert [flag for flag, _ in late.flags] == [True] * 6 + [False] * 4
        assert [count for _, count in late.flags] == [2] * 6 + [1] * 4

    run(scenario)


def test_a_refused_message_comes_again_before_younger_ones():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=1)
        for n in range(3):
            broker.send(str(n))
        await broker.settle()
        client.nack("0")
        await broker.settle()
        assert client.texts == ["0", "0"]
        client.ack("0")
        await broker.settle()
        assert client.texts == ["0", "0", "1"]

    run(scenario)


def test_a_group_stays_with_its_owner_and_does_not_hold_up_others():
    async def scenario():
        broker = await Broker.start()
        one, two = broker.consume(window=1), broker.consume(window=100)
        broker.send("a0", "a")
        broker.send("b0", "b")
        await broker.settle()
        assert (one.texts, two.texts) == (["a0"], ["b0"])
        for n in range(1, 4):
            broker.send(f"a{n}", "a")
            broker.send(f"b{n}", "b")
            broker.send(f"p{n}")
        await broker.settle()
        assert one.texts == ["a0"]
        assert two.texts == ["b0", "b1", "p1", "b2", "p2", "b3", "p3"]
        for n in range(4):
            one.ack(f"a{n}")
            await broker.settle()
        assert one.texts == ["a0", "a1", "a2", "a3"]

    run(scenario)


def test_a_group_moves_when_its_owner_leaves_and_its_order_holds():
    async def scenario():
        broker = await Broker.start()
        one, two = broker.consume(), broker.consume()
        for n in range(4):
            broker.send(str(n), "g")
        await broker.settle()
        assert (one.texts, two.texts) == (["0", "1", "2", "3"], [])
        one.ack("0")
        one.leave()
        await broker.settle()
        assert two.texts == ["1", "2", "3"]

    run(scenario)


def test_a_closed_group_is_free_only_when_its_last_message_is_settled():
    async def scenario():
        broker = await Broker.start()
        one, two = broker.consume(), broker.consume()
        broker.send("0", "g")
        broker.send("1", "g", closes=True)
        broker.send("2", "g")
        await broker.settle()
        assert (one.texts, two.texts) == (["0", "1"], [])
        one.ack("1")
        await broker.settle()
        assert two.texts == []
        one.ack("0")
        await broker.settle()
        assert two.texts == ["2"]

    run(scenario)


def test_a_group_whose_message_is_in_a_transaction_waits_for_it_though_its_owner_left():
    async def scenario():
        from broker.core.transactions import Transaction

        broker = await Broker.start()
        one = broker.consume()
        broker.send("0", "g")
        broker.send("1", "g")
        await broker.settle()
        transaction = Transaction()
        transaction.acknowledge([one.delivery("0")])
        one.leave()
        two = broker.consume()
        await broker.settle()
        assert two.texts == []
        broker.engine.roll_back(transaction, refused=False)
        await broker.settle()
        assert two.texts == ["0", "1"]

    run(scenario)


def test_a_group_waits_out_a_redelivery_delay_and_others_do_not():
    async def scenario():
        broker = await Broker.start(made_of=settings(redelivery_delay=1000))
        client = broker.consume()
        broker.send("a0", "a")
        await broker.settle()
        client.nack("a0")
        broker.send("a1", "a")
        broker.send("b0", "b")
        await broker.settle()
        assert client.texts == ["a0", "b0"]
        async with asyncio.timeout(60):
            while len(client.got) < 4:
                await asyncio.sleep(0.005)
        assert client.texts == ["a0", "b0", "a0", "a1"]

    run(scenario)


def test_a_paused_consumer_gets_nothing_and_others_do():
    async def scenario():
        broker = await Broker.start()
        one, two = broker.consume(), broker.consume()
        one.consumer.pause()
        broker.send("0")
        broker.send("1")
        await broker.settle()
        assert (one.texts, two.texts) == ([], ["0", "1"])
        one.consumer.resume()
        broker.send("2")
        broker.send("3")
        await broker.settle()
        assert len(one.texts) == 1

    run(scenario)


def test_auto_mode_settles_at_dispatch():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(auto=True)
        for n in range(3):
            broker.send(str(n), "g")
        await broker.settle()
        assert client.texts == ["0", "1", "2"]
        assert stored(broker.engine) == []
        assert broker.engine.memory.size == 0
        again = await broker.crash()
        assert stored(again.engine) == []

    run(scenario)


def test_what_waits_in_a_group_that_its_consumer_closes_is_not_passed_over():
    async def scenario():
        broker = await Broker.start()
        for text, group in ("0b", "1a", "2a", "3a", "4b"):
            broker.send(text, group, closes=text == "2")
        await broker.settle()
        client = broker.consume(auto=True)
        await broker.settle()
        assert client.texts == ["0", "1", "2", "3", "4"]

    run(scenario)


def test_consumers_of_an_idle_queue_that_come_and_go_are_forgotten():
    async def scenario():
        broker = await Broker.start()
        stays = broker.consume(window=2)
        for _ in range(100):
            broker.engine.unsubscribe(broker.consume().consumer)
        await broker.settle()
        assert len(broker.engine.queues["q"].rotation) <= 2
        broker.send("x")
        await broker.settle()
        assert stays.texts == ["x"]

    run(scenario)


def test_a_deep_queue_costs_no_scan_per_dispatch():
    """100,000 messages of an owner without credit.

    The operations counted are heap comparisons, not time.
    """

    async def scenario():
        from broker.core import groups

        broker = await Broker.start()
        one = broker.consume(window=1)
        broker.send("first", "slow")
        await broker.settle()
        for n in range(50_000):
            broker.send(str(n), "slow")
        await broker.settle()
        heads = 0
        original = groups.Lane.head

        def counted(lane):
            nonlocal heads
            heads += 1
            return original(lane)

        groups.Lane.head = counted
        try:
            two = broker.consume()
            for n in range(100):
                broker.send(f"x{n}", f"g{n % 10}")
            await broker.settle()
        finally:
            groups.Lane.head = original
        assert two.texts == [f"x{n}" for n in range(100)]
        assert len(one.texts) == 1
        assert heads < 2000

    run(scenario)


def test_the_number_of_clients_consumers_is_observed_and_bridges_do_not_count():
    async def scenario():
        broker = await Broker.start()
        seen = []
        broker.engine.consumer_observers.append(lambda queue, count: seen.append((queue, count)))
        one = broker.consume()
        bridge = broker.consume(internal=True)
        two = broker.consume()
        one.leave()
        bridge.leave()
        two.leave()
        assert seen == [("q", 1), ("q", 2), ("q", 1), ("q", 0)]

    run(scenario)


def test_owners_of_idle_groups_are_forgotten_beyond_a_bound(monkeypatch):
    async def scenario():
        from broker.core import queue

        monkeypatch.setattr(queue, "GROUPS_MAX", 10)
        broker = await Broker.start()
        client = broker.consume()
        for n in range(100):
            broker.send(str(n), f"g{n}")
        broker.send("first", "kept")
        broker.send("second", "kept")
        await broker.settle()
        assert len(client.held) == 102
        other = broker.consume()
        client.ack(*[str(n) for n in range(100)], "first")
        await broker.settle()
        assert len(broker.engine.queues["q"].lanes) == 10
        broker.send("third", "kept")
        await broker.settle()
        assert client.texts[-1] == "third"
        assert other.texts == []

    run(scenario)
