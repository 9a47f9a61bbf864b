"""Consumers of subscriptions that are dropped and made again, while some brokers are behind."""

import asyncio

import pytest
from conventional import TTL_S
from hypothesis import given, settings
from hypothesis import strategies as st
from stateful.machines import CHECKS, factor
from test_home_model import NAMES, run

from broker.cluster.home_service import HomeService
from broker.core.subscription import Subscription

names = st.sampled_from(NAMES)
STEPS = st.one_of(
    st.tuples(st.just("send"), names),
    st.tuples(st.just("consume"), names),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("change"), st.sampled_from([1, 2, 2])),
    st.tuples(st.just("apply"), names),
    st.tuples(st.just("apply"), names),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("cut"), names, names, st.booleans()),
    st.tuples(st.just("heal")),
    st.tuples(st.just("kill"), names),
    st.tuples(st.just("restart"), names),
    st.tuples(st.just("pass"), st.sampled_from([0.3, TTL_S, 4 * TTL_S])),
)


class Walk:
    """A drawn walk; the text of a message names the change that made the subscription it is for."""

    def __init__(self, cluster, subscription):
        self.cluster = cluster
        self.subscription = subscription
        self.name = subscription.queue
        self.last = 0
        """The last change; those with odd numbers make the subscription, the others drop it."""
        self.count = 0
        self.sent = []
        self.settled = set()
        self.acked = set()
        cluster.on_deliver = self.deliver

    def queue(self, broker):
        return broker.engine.queues.get(self.name)

    def deliver(self, client, text, delivery):
        assert text not in self.acked, f"{text} is delivered after its ack was answered"
        made = client.consumer.queue.made[1]
        assert text.endswith(f"/{made}"), f"{text} is delivered to a consumer of {made}"

    async def take(self, step, *rest):
        brokers = self.cluster.brokers
        broker = brokers.get(rest[0], None) if rest else None
        if step == "change":
            self.last += rest[0]
        elif step == "apply" and broker.is_up:
            self.apply(broker)
        elif step == "send" and broker.is_up:
            await self.send(broker)
        elif step == "consume" and broker.is_up:
            self.consume(broker)
        elif step == "ack":
            held = {text: client for client in self.cluster.clients for text in client.held}
            if held:
                text = sorted(held)[rest[0] % len(held)]
                self.settle(held[text], text)
        elif step == "leave" and self.cluster.clients:
            self.cluster.clients[rest[0] % len(self.cluster.clients)].leave()
        elif step == "cut" and rest[0] != rest[1]:
            self.cluster.cut(rest[0], rest[1], both=rest[2])
        elif step == "heal":
            self.cluster.heal()
        elif step == "kill" and broker.is_up:
            await broker.kill()
        elif step == "restart" and not broker.is_up:
            await broker.start()
        elif step == "pass":
            await asyncio.sleep(rest[0])

    def apply(self, broker):
        """Let a broker catch up."""
        head = broker.record.head
        for number in range(1 if head is None else head.sequence + 1, self.last + 1):
            broker.apply(number, self.subscription, drops=number % 2 == 0)

    async def send(self, broker):
        queue = self.queue(broker)
        for _ in range(2):
            self.count += 1
            text = f"{broker.name}{self.count}/{queue.made[1] if queue else 0}"
            await broker.send(text, queue=f"/topic/{self.subscription.topic}")
            if queue:
                self.sent.append(text)

    def consume(self, broker):
        """Consume as a session does."""
        queue, homes = self.queue(broker), broker.engine.homes
        if queue is None:
            return None
        if not self.subscription.shared:
            homes.claim(queue)
            if queue.consumers:
                return None
        client = broker.consume(self.name, gone=lambda: client._lost("gone"))
        return client

    def settle(self, client, text):
        self.settled.add(text)
        client.ack(text).add_done_callback(lambda _: self.acked.add(text))

    async def drain(self):
        self.cluster.heal()
        for broker in self.cluster.brokers.values():
            if not broker.is_up:
                await broker.start()
        self.last += self.last % 2 == 0
        for broker in self.cluster.brokers.values():
            self.apply(broker)
        for client in self.cluster.clients:
            client.leave()
        await asyncio.sleep(4 * TTL_S)
        client = self.consume(self.cluster.brokers["b"])
        client.consumer.window = 1000
        got = set()
        for _ in range(20):
            await asyncio.sleep(0.3)
            for text in list(client.held):
                got.add(text)
                await client.ack(text)
        assert not client.reason, client.reason
        owed = {text for text in self.sent if text.endswith(f"/{self.last}")} - self.settled
        assert owed <= got, f"lost: {owed - got}"
        for broker in self.cluster.brokers.values():
            assert not broker.stored(self.name)
            for host in broker.model._service._hosts.values():
                assert len(host.consumers) == (host.name == "b"), f"{broker.name} keeps consumers that ended"
            wanted = broker.model._service._wanted
            assert not wanted, f"{broker.name} has {wanted}"


def walk(steps, *, shared=False):
    async def scenario(cluster, *_):
        one = Walk(cluster, Subscription("t", "s", "" if shared else "client", shared=shared, durable=True))
        for step in [("change", 1), *(("apply", name) for name in NAMES), ("consume", "b"), *steps]:
            await asyncio.sleep(0.05)
            await one.take(*step)
        await one.drain()

    run(scenario, NAMES, max_delivery_attempts=-1)


@settings(max_examples=15 * factor(), deadline=None, suppress_health_check=CHECKS)
@given(st.lists(STEPS, max_size=30), st.booleans())
def test_no_message_of_a_former_subscription_comes_and_none_is_lost(steps, shared):
    walk(steps, shared=shared)


def test_a_home_that_gives_what_it_has_under_that_name_is_found(monkeypatch):
    steps = [("leave", 0), ("send", "a"), ("change", 2), ("apply", "b"), ("consume", "b"), ("pass", 0.3)]
    walk(steps)

    def queue_for(self, request):
        return self._engine.queues.get(request.queue)

    monkeypatch.setattr(HomeService, "_queue_for", queue_for)
    with pytest.raises(AssertionError):
        walk(steps)
