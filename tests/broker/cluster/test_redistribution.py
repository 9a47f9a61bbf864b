"""Messages that wait where nobody consumes move, after the delay, to where somebody does."""

import asyncio
import itertools

import pytest
from sites import Site
from stateful.virtual_loop import VirtualLoop

from broker.cluster import redistribution
from broker.cluster.redistribution import Demand, Redistribution
from broker.core.deletion import delete
from broker.core.properties import Properties
from broker.core.selector import compile_selector, ungrouped

B, C = (f"$.artemis.internal.sf.my-cluster.{node_id}" for node_id in "bc")


def run(scenario):
    loop = VirtualLoop()
    try:
        return loop.run(scenario())
    finally:
        loop.discard()
        assert not loop.complaints, loop.complaints


class Cluster:
    """The other brokers of a site, and the queues that clients consume there."""

    def __init__(self, site, **consumed):
        self.site = site
        self.consumed = consumed
        self.selector = None
        self._turn = itertools.count()
        self.redistribution = Redistribution(site.engine, self.route, self.demand)

    @classmethod
    async def start(cls, *, consumed=None, **address):
        return cls(await Site.start("a", **address), **({"b": {"q"}} if consumed is None else consumed))

    def route(self, queue, message):
        nodes = [node for node, queues in self.consumed.items() if queue in queues]
        return nodes[next(self._turn) % len(nodes)] if nodes else None

    def demand(self, queue):
        return Demand(self.selector) if any(queue in queues for queues in self.consumed.values()) else None

    def review(self):
        self.redistribution.review(["q"])

    async def send(self, *texts, group=None, queue="q", headers=b"", properties=None):
        for text in texts:
            message = await self.site.message(text, group=group, headers=headers, properties=properties)
            message.target = queue
            self.site.engine.send(queue, message)
        await self.site.engine.flushed()

    def consume(self, window=10):
        held = []
        consumer = self.site.engine.subscribe("q", held.append, window=window)
        self.review()  # as whoever observes consumers does
        return consumer, held

    def leave(self, consumer):
        self.site.engine.unsubscribe(consumer)
        self.review()

    def stored(self, queue="q"):
        return [text(message) for message in self.site.stored(queue)]


def text(message):
    return message.headers.rpartition(b"text:")[2].decode().strip()


def test_messages_move_when_the_delay_has_passed_since_the_last_consumer_left():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=5000)
        first, _ = cluster.consume(window=0)
        second, _ = cluster.consume(window=0)
        await cluster.send("1", "2")
        await asyncio.sleep(60)
        cluster.leave(first)
        await asyncio.sleep(60)
        cluster.leave(second)
        await asyncio.sleep(4.9)
        assert (cluster.stored(), cluster.stored(B)) == (["1", "2"], [])
        await asyncio.sleep(0.2)
        assert (cluster.stored(), cluster.stored(B)) == ([], ["1", "2"])

    run(scenario)


def test_nothing_moves_if_a_consumer_returns_before_the_delay_is_over():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=5000)
        await cluster.send("1")
        await asyncio.sleep(3)
        consumer, _ = cluster.consume()
        await asyncio.sleep(3)
        assert cluster.stored() == ["1"]
        cluster.leave(consumer)
        await asyncio.sleep(4.9)
        assert cluster.stored() == ["1"]
        await asyncio.sleep(0.2)
        assert cluster.stored(B) == ["1"]

    run(scenario)


def test_a_consumer_that_comes_ends_it_and_gets_the_rest_in_order():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(redistribution, "WINDOW", 2)
            await cluster.send(*map(str, range(6)))
            await asyncio.sleep(0)
            consumer, held = cluster.consume()
            await asyncio.sleep(10)
            moved = cluster.stored(B)
            assert [text(delivery.message) for delivery in held] == [str(n) for n in range(len(moved), 6)]
            assert {delivery.message.deliveries for delivery in held} == {1}
            cluster.leave(consumer)
            await asyncio.sleep(1)
            assert sorted(cluster.stored(B)) == [str(n) for n in range(6)]

    run(scenario)


@pytest.mark.parametrize("large", [0, 200])
def test_messages_of_groups_stay_and_those_behind_them_move(large):
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0)
        await cluster.send("g1", group="g")
        await cluster.send("1")
        await cluster.send("g2", "g3", group="g")
        await cluster.send(*map(str, range(2, 3 + large)))
        await asyncio.sleep(10)
        assert cluster.stored() == ["g1", "g2", "g3"]
        assert cluster.stored(B) == [str(n) for n in range(1, 3 + large)]
        _, held = cluster.consume()
        await asyncio.sleep(0.1)
        assert [text(delivery.message) for delivery in held] == ["g1", "g2", "g3"]

    run(scenario)


def test_it_begins_when_another_broker_has_consumers_and_ends_when_none_has():
    async def scenario():
        cluster = await Cluster.start(consumed={"b": set()}, redistribution_delay=1000)
        cluster.site.engine.queue("q")
        await asyncio.sleep(30)
        assert cluster.redistribution.running == []
        await cluster.send("1")
        await asyncio.sleep(30)
        assert cluster.stored() == ["1"]
        cluster.consumed["b"].add("q")
        cluster.review()
        await asyncio.sleep(0.1)
        assert cluster.stored(B) == ["1"], "the delay was over long ago"
        cluster.consumed["b"].clear()
        cluster.review()
        await cluster.send("2")
        await asyncio.sleep(30)
        assert (cluster.stored(), cluster.stored(B)) == (["2"], ["1"])
        assert cluster.redistribution.running == []

    run(scenario)


def test_what_comes_later_moves_too_also_to_a_queue_that_is_new():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0)
        await cluster.send("1")
        await asyncio.sleep(1)
        await cluster.send("2")
        await asyncio.sleep(1)
        assert (cluster.stored(), cluster.stored(B)) == ([], ["1", "2"])

    run(scenario)


def test_brokers_with_consumers_get_messages_in_turn():
    async def scenario():
        cluster = await Cluster.start(consumed={"b": {"q"}, "c": {"q"}, "d": set()}, redistribution_delay=0)
        await cluster.send(*map(str, range(6)))
        await asyncio.sleep(1)
        assert cluster.stored(B) == ["0", "2", "4"]
        assert cluster.stored(C) == ["1", "3", "5"]

    run(scenario)


@pytest.mark.parametrize(
    "room", [{"max_size_bytes": 2000, "address_full_policy": "BLOCK"}, {"max_messages": 8}]
)
def test_while_the_other_broker_takes_nothing_the_rest_stays_until_there_is_room(room):
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0, **room)
        held = []
        bridge = cluster.site.engine.subscribe(B, held.append, window=100, internal=True)
        await cluster.send(*map(str, range(20)))
        await asyncio.sleep(10)
        assert len(cluster.stored(B)) <= 8
        assert cluster.stored()
        assert sorted(cluster.stored() + cluster.stored(B), key=int) == [str(n) for n in range(20)]
        for _ in range(20):
            if bridge.unacknowledged:
                cluster.site.engine.acknowledge(list(bridge.unacknowledged.values()))
            await asyncio.sleep(1)
        assert (cluster.stored(), cluster.stored(B)) == ([], [])
        assert [text(delivery.message) for delivery in held] == [str(n) for n in range(20)]

    run(scenario)


@pytest.mark.parametrize(("delay", "queue"), [(-1, "q"), (0, C), (0, "/temp-queue/x")])
def test_what_may_not_move_stays(delay, queue):
    async def scenario():
        cluster = await Cluster.start(consumed={"b": {queue}}, redistribution_delay=delay)
        if queue.startswith("/"):
            cluster.site.engine.queue(queue)
        await cluster.send("1", queue=queue)
        cluster.redistribution.review([queue])
        await asyncio.sleep(10)
        assert cluster.stored(queue) == ["1"]
        assert cluster.redistribution.running == []

    run(scenario)


def test_a_queue_that_is_empty_is_deleted_as_one_without_consumers_and_made_again():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0, auto_delete_queues=True)
        for number in ("1", "2"):
            await cluster.send(number)
            await asyncio.sleep(1)
            assert "q" not in cluster.site.engine.queues
            assert cluster.redistribution.running == []
        assert cluster.stored(B) == ["1", "2"]

    run(scenario)


def test_a_queue_whose_last_message_expires_is_deleted_as_one_without_consumers():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0, auto_delete_queues=True, expiry_address="")
        cluster.selector = ungrouped([compile_selector("text = 'other'")])
        soon = Properties(expires=cluster.site.engine.now() + 1000)
        await cluster.send("1", properties=soon)
        await asyncio.sleep(0.5)
        assert cluster.redistribution.running == ["q"]
        await asyncio.sleep(120)
        assert "q" not in cluster.site.engine.queues

    run(scenario)


def test_an_administrator_deletes_a_queue_whose_messages_are_redistributed():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0)
        await cluster.send("1", group="g")
        await asyncio.sleep(1)
        assert cluster.redistribution.running == ["q"]
        assert await delete(cluster.site.engine, "q", remove_messages=True) == 1
        assert cluster.redistribution.running == []
        assert "q" not in cluster.site.engine.queues

    run(scenario)


@pytest.mark.parametrize("end", ["stop", "abandon"])
def test_nothing_moves_after_the_end(end):
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=1000)
        await cluster.send("1")
        await asyncio.sleep(0.5)
        if end == "abandon":
            cluster.site.engine.abandon()
        cluster.redistribution.stop()
        await asyncio.sleep(10)
        cluster.review()
        await asyncio.sleep(10)
        assert (cluster.stored(), cluster.stored(B)) == (["1"], [])

    run(scenario)


def test_only_what_consumers_elsewhere_want_moves_and_the_rest_when_somebody_wants_it():
    async def scenario():
        cluster = await Cluster.start(redistribution_delay=0)
        cluster.selector = ungrouped([compile_selector("text IN ('1', '3', 'g')")])
        cluster.review()
        await cluster.send("g", group="g", headers=b"JMSXGroupID:g\n")
        await cluster.send("0", "1", "2", "3")
        await asyncio.sleep(1)
        assert (cluster.stored(), cluster.stored(B)) == (["g", "0", "2"], ["1", "3"])
        cluster.selector = ungrouped([compile_selector("text = '2'")])
        cluster.review()
        await asyncio.sleep(1)
        assert (cluster.stored(), cluster.stored(B)) == (["g", "0"], ["1", "3", "2"])
        cluster.selector = None
        cluster.review()
        await asyncio.sleep(1)
        assert (cluster.stored(), cluster.stored(B)) == (["g"], ["1", "3", "2", "0"])

    run(scenario)


def test_a_selector_of_several_matches_what_any_of_them_does_outside_of_groups():
    either = ungrouped([compile_selector("a = '1'"), compile_selector("b = '2'")])
    assert either.matches({"a": "1"})
    assert either.matches({"b": "2", "a": "7"})
    assert not either.matches({"a": "2"})
    assert not either.matches({"a": "1", "JMSXGroupID": "g"})
    assert either == ungrouped([compile_selector("b = '2'"), compile_selector("a = '1'")])
    assert either != ungrouped([compile_selector("a = '1'")])
    assert ungrouped([compile_selector("a = '1'")]) != compile_selector("a = '1'")
