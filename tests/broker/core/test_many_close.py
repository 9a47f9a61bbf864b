"""What it costs when thousands of consumers and subscriptions end: steps in proportion to them."""

import asyncio
import sys
from collections import deque

import pytest
from engines import Broker

from broker.core.queue import Queue
from broker.core.selector import compile_selector
from broker.core.subscription import Subscription

SOME = 200


class Steps:
    """Counts calls of functions, and what happens without a call.

    Lists compare queues, and loops go through the consumers of a queue's rotation.
    """

    def __init__(self, monkeypatch):
        self.count = 0
        monkeypatch.setattr(Queue, "__eq__", self._equal, raising=False)

    def _equal(self, other):
        self.count += 1
        return self is other

    def rotation(self, consumers):
        steps = self

        class Counted(deque):
            def __iter__(self):
                steps.count += len(self)
                return super().__iter__()

        return Counted(consumers)

    def _called(self, *_):
        self.count += 1

    def __enter__(self):
        self.count = 0
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)


async def close_consumers(broker, steps, count, selector=None):
    clients = [broker.consume(selector=selector) for _ in range(count)]
    await broker.settle()
    queue = broker.engine.queue("q")
    queue.rotation = steps.rotation(queue.rotation)
    with steps:
        for client in reversed(clients):
            client.leave()
    return steps.count


async def close_subscriptions(broker, steps, count):
    queues = [broker.engine.bind(Subscription("prices", str(number))) for number in range(count)]
    with steps:
        for queue in reversed(queues):  # a list would find the last one last
            broker.engine.drop(queue)
    return steps.count


async def close_selecting(broker, steps, count):
    return await close_consumers(broker, steps, count, compile_selector("color = 'red'"))


@pytest.mark.parametrize("close", [close_consumers, close_selecting, close_subscriptions])
def test_twice_as_many_that_end_cost_about_twice_as_much(monkeypatch, close):
    async def scenario():
        broker = await Broker.start()
        steps = Steps(monkeypatch)
        some = await close(broker, steps, SOME)
        many = await close(broker, steps, 4 * SOME)
        assert some < many < 5 * some

    asyncio.run(scenario())


def test_a_queue_counts_its_clients_consumers_while_they_come_and_go():
    async def scenario():
        broker = await Broker.start()
        clients = [broker.consume() for _ in range(3)]
        internal = broker.consume(internal=True)
        assert broker.engine.consumers("q") == 3
        clients[1].leave()
        clients[1].leave()
        internal.leave()
        assert broker.engine.consumers("q") == 2

    asyncio.run(scenario())
