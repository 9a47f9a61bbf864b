"""A queue against a model, under random orders of sends, joins with and without selectors, leaves,
acknowledgements, refusals and transactions.

What must hold at every moment
    one owner      messages of one group are held by one consumer (or by transactions it filled)
                   only
    the selector   a consumer gets only what matches
    the order      what a consumer gets is, of all that waits and it may have, the oldest of its
                   group, and of what has no group the most urgent and of these the oldest
    nothing idle   no message waits that a consumer with room wants, and may have by its group
    the flag       a delivery is flagged redelivered exactly if it is not the first, and counted
    the window     nobody holds more than its window
and at the end
    nothing lost   what was neither acknowledged nor sent to the dead letters is delivered to one
                   last consumer, in order
All of it is tried once more where memory is short: what waits moves between lanes, backlog and
pages, again and again. There are no priorities then, of which pages know nothing.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import replace
from unittest.mock import patch

import pytest
from engines import Broker, Client
from engines import settings as engine_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.message import Message
from broker.core.properties import Properties
from broker.core.selector import compile_selector
from broker.core.transactions import Transaction

GROUPS = (None, None, "a", "b", "c")
PRIORITIES = (4, 4, 9, 4, 0, 5, 3)
SELECTORS = (None, None, "kind = '0'", "kind <> '0'", "kind IN ('1', '2')", "missing = 'x'")

sends = st.tuples(st.just("send"), st.sampled_from(GROUPS), st.booleans())
joins = st.tuples(st.just("join"), st.integers(1, 4), st.booleans(), st.sampled_from(SELECTORS))

pressing = [st.tuples(st.just("relieve"))] * 3
changes = [
    sends,
    sends,
    sends,
    joins,
    joins,
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("ack"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("ack through"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("nack"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("take"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("abort"), st.booleans()),
    st.tuples(st.just("pause"), st.integers(0, 9)),
    st.tuples(st.just("resume"), st.integers(0, 9)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("restart")),
]
steps = st.lists(st.one_of(*changes), min_size=15, max_size=80)
steps_under_pressure = st.lists(st.one_of(*changes, *pressing), min_size=15, max_size=80)
SMALL = 2000
"""Bytes of memory for all queues: seven messages."""


class Watched(Client):
    """A client whose every delivery is held against the model."""

    def __init__(self, model, **options):
        self.model = model
        super().__init__(model.broker.engine, "q", **options)

    def _deliver(self, delivery):
        super()._deliver(delivery)
        try:
            self.model.delivered(self, delivery)
        except AssertionError as error:  # within a callback of the loop it would only be logged
            self.model.broken.append(error)


class Model:
    def __init__(self, broker):
        self.broker = broker
        self.priorities = (4,) if broker.made_of.global_max_size == SMALL else PRIORITIES
        self.sent = []
        self.lane_of = {}
        self.deliveries = defaultdict(int)
        self.unsettled = set()  # on its way into the queue, or back to it
        self.acked = set()
        self.clients = []
        self.in_transaction = []  # (text, group, client)
        self.recovered = frozenset()  # what a crash made uncertain: flagged, delivered or not
        self.transaction = Transaction()
        self.broken = []

    def delivered(self, client, delivery):
        message = delivery.message
        text = message.body.decode()
        group = message.group
        assert text not in self.acked, f"{text} was acknowledged"
        redelivered = message.deliveries > 1
        assert redelivered == (self.deliveries[text] > 0) or (text in self.recovered and redelivered)
        assert matches(client.consumer.selector, text)
        waiting = {one for one in self.waiting if self.lane_of[one] == group} - self.unsettled
        wanted = {one for one in waiting if matches(client.consumer.selector, one)} | {text}
        assert min(wanted, key=self.rank) == text, f"of {wanted} {text} is not the first"
        self.unsettled.discard(text)
        self.deliveries[text] += 1
        assert len(client.consumer.unacknowledged) <= client.consumer.window
        if group is not None:
            holders = {other for other in self.clients for held in other.held if held.message.group == group}
            holders |= {holder for _, of, holder in self.in_transaction if of == group}
            assert holders <= {client}, f"group {group} is held by others when {text} is delivered"

    @property
    def waiting(self):
        held = {one.message.body.decode() for client in self.clients for one in client.held}
        return set(self.sent) - held - self.acked - {text for text, _, _ in self.in_transaction}

    def rank(self, text):
        number = int(text)
        return 0 if self.lane_of[text] else -self.priorities[number % len(self.priorities)], number

    async def settle(self):
        engine = self.broker.engine
        await self.broker.settle()
        while engine.paging._writer is not None or engine.paging._readers or engine.queue("q")._scheduled:
            await self.broker.settle()

    def check_that_nothing_waits_in_vain(self):
        queue = self.broker.engine.queue("q")
        lanes = queue.lanes
        if queue.backlog and queue.filtering is not None and queue.filtering.waiting:
            return  # memory is short: what selectors do not want keeps the rest from being seen
        for text in self.waiting:
            lane = lanes.get(self.lane_of[text])
            for client in self.clients:
                allowed = lane is None or (
                    not lane.delayed and (lane.owner is client.consumer or not (lane.owner or lane.held))
                )
                wanted = client.consumer.is_available() and matches(client.consumer.selector, text)
                assert not (allowed and wanted), f"{text} waits, and {client.consumer.selector} has room"


def matches(selector, text):
    return selector is None or selector.matches({"kind": str(int(text) % 3)})


def pick(things, number):
    return things[number % len(things)] if things else None


async def play(plan, room=None):
    def failed(loop, context):
        model.broken.append(context)

    asyncio.get_running_loop().set_exception_handler(failed)
    made_of = engine_settings(max_delivery_attempts=-1)
    if room is not None:
        made_of = replace(
            engine_settings(max_delivery_attempts=-1, page_size_bytes=1024), global_max_size=room
        )
    broker = await Broker.start(made_of=made_of)
    model = Model(broker)
    for number, step in enumerate(plan):
        await take_step(model, number, *step)
    await model.settle()
    model.broker.engine.roll_back(model.transaction, refused=False)
    model.in_transaction.clear()
    for client in list(model.clients):
        client.leave()
    model.clients.clear()
    await model.settle()
    last = Watched(model, window=1000)
    model.clients.append(last)
    await model.settle()
    while last.held:  # a closed group goes on when its last message is acknowledged
        model.in_transaction += [(one.message.body.decode(), one.message.group, last) for one in last.held]
        model.broker.engine.acknowledge(last.held)
        await model.settle()
    left = defaultdict(list)
    for delivery in last.got:
        left[delivery.message.group].append(model.rank(delivery.message.body.decode()))
    assert all(ranks == sorted(ranks) for ranks in left.values()), "what is left comes in order"
    assert set(model.sent) == model.acked | set(last.texts), "nothing is lost"
    assert not model.acked & set(last.texts), "nothing acknowledged returns"
    assert model.broker.engine.memory.size == 0
    assert not model.broken, model.broken
    await model.broker.engine.journal.close()


async def take_step(model, number, kind, *arguments):
    broker = model.broker
    client = pick(model.clients, arguments[0]) if kind not in ("send", "join") and arguments else None
    delivery = pick(client.held, arguments[1]) if client and len(arguments) > 1 else None
    if kind == "send":
        group, closes = arguments
        text = str(number)
        model.lane_of[text] = group
        model.unsettled.add(text)
        properties = Properties(model.priorities[number % len(model.priorities)])
        message = Message(
            "q",
            b"kind:%d\n" % (number % 3),
            text.encode(),
            group,
            closes=closes and group is not None,
            properties=None if properties == Properties() else properties,
        )
        model.sent.append(text)
        broker.engine.send("q", message)
    elif kind == "join" and len(model.clients) < 4:
        window, paused, selector = arguments
        client = Watched(model, window=window, selector=selector and compile_selector(selector))
        model.clients.append(client)
        if paused:
            client.consumer.pause()
    elif kind == "leave" and client:
        client.leave()
        model.clients.remove(client)
    elif kind in ("ack", "ack through") and delivery:
        deliveries = [delivery] if kind == "ack" else client.consumer.through(delivery)
        model.acked |= {one.message.body.decode() for one in deliveries}
        broker.engine.acknowledge(deliveries)
    elif kind == "nack" and delivery:
        model.unsettled.add(delivery.message.body.decode())
        broker.engine.refuse([delivery])
    elif kind == "take" and delivery:
        model.in_transaction.append((delivery.message.body.decode(), delivery.message.group, client))
        model.transaction.acknowledge([delivery])
    elif kind == "commit":
        model.acked |= {text for text, _, _ in model.in_transaction}
        model.in_transaction.clear()
        broker.engine.commit(model.transaction)
        model.transaction = Transaction()
    elif kind == "abort":
        model.unsettled |= {text for text, _, _ in model.in_transaction}
        model.in_transaction.clear()
        broker.engine.roll_back(model.transaction, refused=arguments[0])
        model.transaction = Transaction()
    elif kind == "pause" and client:
        client.consumer.pause()
    elif kind == "resume" and client:
        client.consumer.resume()
    elif kind == "relieve":
        broker.engine.paging.relieve()
    elif kind == "settle":
        await model.settle()
        model.unsettled.clear()
        model.check_that_nothing_waits_in_vain()
    elif kind in ("crash", "restart"):
        await model.settle()
        model.unsettled = set(model.sent)
        model.in_transaction.clear()
        if kind == "restart":
            broker.engine.roll_back(model.transaction, refused=False)
        model.transaction = Transaction()
        model.clients.clear()
        model.broker = await (broker.crash() if kind == "crash" else broker.restart())
        if kind == "crash":
            model.recovered = frozenset(model.sent)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
@pytest.mark.slow
def test_a_queue_keeps_its_promises_whatever_happens(plan):
    asyncio.run(play(plan))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps_under_pressure)
@pytest.mark.slow
def test_a_queue_keeps_its_promises_while_memory_is_short(plan):
    play_while_memory_is_short(plan)


def play_while_memory_is_short(plan):
    with patch("broker.core.paging.LEAST_BYTES", 1):
        asyncio.run(play(plan, SMALL))


def walk(seed, *, pressure=False):
    """A long plan with the proportions of a busy broker.

    Hypothesis shrinks well but seldom walks far.
    """
    chance = random.Random(seed)
    kinds = {
        "send": lambda: (chance.choice(GROUPS), chance.random() < 0.15),
        "join": lambda: (chance.randint(1, 4), chance.random() < 0.1, chance.choice(SELECTORS)),
        "leave": lambda: (chance.randrange(10),),
        "ack": lambda: (chance.randrange(10), chance.randrange(10)),
        "ack through": lambda: (chance.randrange(10), chance.randrange(10)),
        "nack": lambda: (chance.randrange(10), chance.randrange(10)),
        "take": lambda: (chance.randrange(10), chance.randrange(10)),
        "commit": lambda: (True,),
        "abort": lambda: (chance.random() < 0.5,),
        "pause": lambda: (chance.randrange(10),),
        "resume": lambda: (chance.randrange(10),),
        "settle": lambda: (),
        "crash": lambda: (),
        "restart": lambda: (),
    }
    weights = [12, 3, 1, 4, 1, 2, 2, 1, 1, 0.3, 1, 8, 0.2, 0.2]
    if pressure:
        kinds["relieve"] = lambda: ()
        weights = [20, 3, 1, 4, 1, 2, 2, 1, 1, 0.3, 1, 8, 0.2, 0.2, 5]
    return [(kind, *kinds[kind]()) for kind in chance.choices(list(kinds), weights, k=120)]


@pytest.mark.parametrize("seed", range(100))
def test_long_walks_keep_the_promises(seed):
    asyncio.run(play(walk(seed)))


@pytest.mark.parametrize("seed", range(100))
def test_long_walks_keep_the_promises_while_memory_is_short(seed):
    play_while_memory_is_short(walk(seed, pressure=True))
