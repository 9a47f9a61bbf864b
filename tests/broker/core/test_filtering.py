"""Consumers with selectors on one queue: who gets what, in which order, and how often is tested.

What must hold under any order of events is in ``test_queue_model``.
"""

import asyncio
import time
from collections import Counter

import pytest
from engines import Broker, settings

from broker import turn_budget as budget
from broker.core.deletion import delete
from broker.core.message import Message
from broker.core.selector import Selector, compile_selector

RED = compile_selector("color = 'red'")
BLUE = compile_selector("color = 'blue'")


def paint(broker, text, color, group=None):
    broker.engine.send("q", Message("q", f"color:{color}\n".encode(), text.encode(), group))


def run(scenario):
    asyncio.run(scenario())


def test_each_gets_what_it_wants_in_order_and_the_rest_waits_for_who_wants_all():
    async def scenario():
        broker = await Broker.start()
        red, blue = broker.consume(selector=RED), broker.consume(selector=BLUE)
        for number, color in enumerate(["green", "red", "blue", "green", "blue", "red"]):
            paint(broker, str(number), color)
        await broker.settle()
        assert (red.texts, blue.texts) == (["1", "5"], ["2", "4"])
        rest = broker.consume()
        await broker.settle()
        assert rest.texts == ["0", "3"]

    run(scenario)


def test_headers_are_compared_as_the_client_meant_them():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(selector=compile_selector("\"a:b\" = 'c:d\\e' AND first = '1'"))
        broker.engine.send("q", Message("q", b"a\\cb:c\\cd\\\\e\nfirst:1\nfirst:2\n", b"x"))
        await broker.settle()
        assert client.texts == ["x"]

    run(scenario)


def test_what_comes_back_goes_before_what_is_younger():
    async def scenario():
        broker = await Broker.start()
        gone, other = broker.consume(window=2, selector=RED), broker.consume(window=1, selector=RED)
        for number in range(6):
            paint(broker, str(number), "red" if number % 2 == 0 else "blue")
        await broker.settle()
        assert (gone.texts, other.texts) == (["0", "4"], ["2"])
        gone.leave()
        other.ack("2")
        await broker.settle()
        assert other.texts == ["2", "0"]
        other.leave()
        plain = broker.consume()
        await broker.settle()
        assert plain.texts == ["0", "1", "3", "4", "5"]

    run(scenario)


def test_a_group_waits_for_its_refusal_with_a_selector_too():
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(window=3, selector=RED)
        for number in range(4):
            paint(broker, str(number), "red", "g")
        await broker.settle()
        client.nack("0")
        await asyncio.sleep(0)
        await broker.settle()
        assert client.texts == ["0", "1", "2", "0"], "3 does not overtake 0"

    run(scenario)


def test_what_the_owner_of_a_group_does_not_want_waits_until_the_group_is_free():
    """As in Artemis: the others of the group go on."""

    async def scenario():
        broker = await Broker.start()
        red = broker.consume(selector=RED)
        await broker.settle()
        paint(broker, "r1", "red", "g")
        await broker.settle()
        blue = broker.consume(selector=BLUE)
        for text, color in [("b1", "blue"), ("r2", "red"), ("b2", "blue")]:
            paint(broker, text, color, "g")
        await broker.settle()
        assert (red.texts, blue.texts) == (["r1", "r2"], [])
        red.ack("r1", "r2")
        await broker.settle()
        assert blue.texts == [], "acknowledging does not free a group"
        red.leave()
        await broker.settle()
        assert blue.texts == ["b1", "b2"]

    run(scenario)


def test_when_the_last_selector_leaves_everything_is_as_if_there_had_been_none():
    async def scenario():
        broker = await Broker.start()
        red, taker = broker.consume(selector=RED), broker.consume(window=2)
        for number in range(8):
            paint(broker, str(number), "red" if number % 3 == 1 else "blue", "g" if number % 2 else None)
        await broker.settle()
        red.leave()
        assert broker.engine.queue("q").filtering is None
        await broker.settle()
        taker.leave()
        last = broker.consume()
        await broker.settle()
        assert [text for text in last.texts if int(text) % 2] == ["1", "3", "5", "7"]
        assert [text for text in last.texts if int(text) % 2 == 0] == ["0", "2", "4", "6"]

    run(scenario)


class Counting(Selector):
    """Counts what it is asked."""

    tests = 0

    def matches(self, headers):
        type(self).tests += 1
        return super().matches(headers)


def test_each_message_is_tested_once_for_each_distinct_selector_and_in_slices():
    async def scenario():
        broker = await Broker.start()
        Counting.tests = 0
        in_turn = Counter()

        class CountingByTurn(Counting):
            def matches(self, headers):
                in_turn[broker.engine.budget.turns] += 1
                return super().matches(headers)

        clients = [broker.consume(selector=CountingByTurn(RED.text, RED._evaluate, 100)) for _ in range(3)]
        a_turn = budget.TURN // (budget.TEST + 100) + 1
        for number in range(3 * a_turn):
            paint(broker, str(number), "blue")
        await broker.engine.journal.flush()
        for _ in range(20):
            await asyncio.sleep(0)
        assert in_turn.total() == 3 * a_turn
        assert max(in_turn.values()) <= a_turn
        for client in clients[1:]:
            client.leave()
        broker.engine.queue("q").wake()
        paint(broker, "last", "red")
        await broker.settle()
        assert in_turn.total() == 3 * a_turn + 1
        assert clients[0].texts == ["last"]

    run(scenario)


def test_a_consumer_without_room_has_nothing_tested_and_remembers_little():
    """Or what others consume meanwhile would be kept for it."""

    async def scenario():
        broker = await Broker.start()
        Counting.tests = 0
        stalled = broker.consume(selector=Counting(RED.text, RED._evaluate))
        stalled.consumer.pause()
        taker = broker.consume(auto=True)
        paint(broker, "kept", "blue")
        for number in range(5000):
            paint(broker, str(number), "red")
            if number % 500 == 0:
                await broker.settle()
        await broker.settle()
        assert Counting.tests == 0
        assert len(taker.got) == 5001
        [line] = broker.engine.queue("q").filtering.lines.values()
        assert len(line.messages) < 3000

    run(scenario)


def test_many_selectors_share_what_waits():
    """A client may have a thousand, and a queue a hundred thousand messages in memory."""

    async def scenario():
        broker = await Broker.start()
        for number in range(500):
            paint(broker, str(number), "red" if number % 2 else "blue")
        await broker.settle()
        stalled = [
            broker.consume(selector=compile_selector(f"color = 'red' AND {number} = {number}"))
            for number in range(20)
        ]
        for client in stalled:
            client.consumer.pause()
        filtering = broker.engine.queue("q").filtering
        [line] = filtering.lines.values()
        assert (len(line.messages), [view for view in filtering._views.values() if view.back]) == (500, [])
        taker = broker.consume(window=3)
        await broker.settle()
        taker.leave()
        assert [view for view in filtering._views.values() if view.back] == [], "nobody has read so far"
        stalled[0].consumer.window = 2
        stalled[0].consumer.resume()
        await broker.settle()
        assert stalled[0].texts == ["1", "3"]
        stalled[0].leave()
        stalled[1].consumer.resume()
        await broker.settle()
        assert stalled[1].texts == [str(number) for number in range(1, 500, 2)]
        filtering.forget()
        stalled[1].leave()
        assert len(line.messages) + len(filtering.beside) == 500
        last = broker.consume()
        await broker.settle()
        assert last.texts == [str(number) for number in range(500)]
        assert filtering.beside == {}

    run(scenario)


def test_a_queue_that_nobody_matches_stops_nobody():
    async def scenario():
        broker = await Broker.start(made_of=settings(max_size_bytes=-1))
        for number in range(20_000):
            paint(broker, str(number), "blue")
        await broker.settle()
        begun = time.process_time()
        client = broker.consume(selector=RED)
        longest, turns = 0.0, 0
        while turns < 300:
            before = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - before)
            turns += 1
        assert longest < 0.5 * (time.process_time() - begun), "no turn takes most of it"
        paint(broker, "r", "red")
        await broker.settle()
        for _ in range(300):
            await asyncio.sleep(0)
        assert client.texts == ["r"]

    run(scenario)


@pytest.mark.parametrize("group", [None, "g"])
def test_purging_and_deleting_take_what_waits_for_no_selector(group):
    async def scenario():
        broker = await Broker.start()
        client = broker.consume(selector=RED)
        for number in range(600):
            paint(broker, str(number), "red" if number == 5 else "blue", group)
        await broker.settle()
        assert client.texts == ["5"]
        assert await broker.engine.purge("q") == 599
        client.ack("5")
        await broker.settle()
        assert broker.engine.memory.size == 0
        paint(broker, "6", "blue", group)
        await broker.settle()
        assert await delete(broker.engine, "q", remove_consumers=True, remove_messages=True) == 1

    run(scenario)
