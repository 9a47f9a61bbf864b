"""Messages stay at their homes, and consumers at all brokers get them, each message once."""

import asyncio

import conventional
import pytest
from conventional import TTL_S, Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from stateful.machines import CHECKS, factor
from stateful.virtual_loop import VirtualLoop

from broker.cluster import home_service, homes
from broker.core.consumer import Part
from broker.core.properties import Properties
from broker.core.selector import compile_selector
from broker.core.subscription import Subscription
from broker.core.transactions import Transaction


def run(scenario, names="ab", **address):
    async def whole():
        cluster = Cluster(names, **address)
        brokers = await cluster.start()
        try:
            await scenario(cluster, *brokers)
        finally:
            cluster.heal()
            await cluster.stop()

    loop = VirtualLoop()
    try:
        loop.run(whole())
    finally:
        loop.discard()
    assert not loop.complaints, loop.complaints


async def rest(seconds=0.2):
    await asyncio.sleep(seconds)


def test_a_consumer_gets_messages_of_all_homes_within_one_window_and_their_homes_settle_them():
    async def scenario(_, a, b, c):
        for home in (a, b, c):
            await home.send(f"{home.name}1", f"{home.name}2")
        client = b.consume(window=3)
        await rest()
        assert len(client.held) == 3
        for text in list(client.held):
            await client.ack(text)
        await rest()
        assert sorted(client.got) == ["a1", "a2", "b1", "b2", "c1", "c2"]
        for text in list(client.held):
            await client.ack(text)
        assert not any(home.stored() for home in (a, b, c))

    run(scenario, "abc")


def test_what_a_client_refuses_is_refused_at_home_and_its_dead_letter_stays_there():
    async def scenario(_, a, b):
        await a.send("m")
        client = b.consume()
        await rest()
        await client.nack("m")
        await rest()
        assert client.got == ["m", "m"]
        assert client.held["m"].message.deliveries == 2
        await client.nack("m")
        await rest()
        assert (a.stored(), a.stored("DLQ"), b.stored("DLQ")) == ([], ["m"], [])

    run(scenario, max_delivery_attempts=2, dead_letter_address="DLQ")


def test_groups_have_one_owner_and_selectors_choose_at_home():
    async def scenario(_, a, b, c):
        first = b.consume(window=10)
        await rest()
        second = c.consume(window=10)
        await rest()
        await a.send("1", group="g")
        await rest()
        owner = first if first.got else second
        await a.send("2", "3", group="g")
        await rest()
        assert owner.got == ["1", "2", "3"]
        red = c.consume("colours", selector=compile_selector("colour = 'red'"))
        await rest()
        await a.send("blue", queue="colours", headers=b"colour:blue\n")
        await a.send("red", queue="colours", headers=b"colour:red\n")
        await rest()
        assert red.got == ["red"]

    run(scenario, "abc")


def test_large_bodies_travel_and_leave_nothing_at_the_consumers_broker():
    async def scenario(_, a, b):
        await a.send("large", size=300_000)
        await a.send("small")
        client = b.consume()
        await rest(1)
        assert client.got == ["large", "small"]
        held = client.held["large"].message
        assert await b.site.content(held) == await a.site.content(a.site.stored()[0])
        await client.ack("large")
        client.leave()
        await rest(1)
        assert not b.engine.large.store.stored
        assert not a.engine.large.store.stored
        assert a.stored() == ["small"]

    run(scenario)


async def send_100_kb(broker, *texts):
    for text in texts:
        await broker.send(text, headers=b"padding:" + 100_000 * b"x" + b"\n")


def test_no_more_bytes_than_a_window_wait_for_a_client_that_reads_nothing():
    async def scenario(_, a, b):
        client, small = b.consume(window=1000), b.consume("small")
        await rest()
        client.consumer.pause()
        texts = [f"a{number}" for number in range(60)]
        await send_100_kb(a, *texts)
        await a.send("1", queue="small")
        await rest()
        (home,) = b.engine.homes._homes.values()
        most = home_service.WINDOW_BYTES + 101_000
        assert home_service.WINDOW_BYTES <= bytes_of(home.parts[1].waiting) <= most
        assert small.got == ["1"], "other consumers have windows of their own"
        await rest(2 * homes.GIVE_BACK_S)
        assert not home.parts[1].waiting
        client.consumer.resume()
        await rest(1)
        assert client.got == texts, "a client that acknowledges nothing gets its window of messages"

    run(scenario)


def bytes_of(waiting):
    return sum(one.message.size for one in waiting)


def test_a_message_larger_than_the_window_goes_alone(monkeypatch):
    monkeypatch.setattr(home_service, "WINDOW_BYTES", 50_000)
    monkeypatch.setattr(homes, "PASSED_BYTES", 25_000)

    async def scenario(_, a, b):
        client = b.consume(window=1000)
        await rest()
        client.consumer.pause()
        await send_100_kb(a, "a1", "a2")
        await rest()
        (home,) = b.engine.homes._homes.values()
        assert len(home.parts[1].waiting) == 1
        client.consumer.resume()
        await rest()
        assert client.got == ["a1", "a2"]

    run(scenario)


def test_bodies_that_cannot_be_read_use_up_no_window(monkeypatch):
    monkeypatch.setattr(home_service, "WINDOW_BYTES", 1)

    async def scenario(_, a, b):
        client = b.consume(window=10)
        await rest()
        a.engine.large.store.chunks = unreadable
        await a.send("large", size=300_000)
        await a.send("small")
        await rest()
        assert client.got == ["small"]

    run(scenario)


async def unreadable(_):
    raise FileNotFoundError
    yield b""


def test_what_waits_for_a_client_without_room_goes_to_another_after_a_second():
    async def scenario(_, a, b, c):
        slow = b.consume(window=2)
        await rest()
        await b.send("own1", "own2")
        await rest()
        await a.send("1", "2")
        await rest()
        other = c.consume(window=10)
        await rest(homes.GIVE_BACK_S / 2)
        assert not other.got
        await rest(2 * homes.GIVE_BACK_S)
        assert other.got == ["1", "2"]
        assert [delivery.message.deliveries for delivery in other.held.values()] == [1, 1]
        await a.send("3")
        await rest()
        assert other.got[2:] == ["3"]
        other.leave()
        await rest()
        for text in ("own1", "own2"):
            await slow.ack(text)
        await rest()
        assert slow.got == ["own1", "own2", "1", "2"], "it asks again when it has room"

    run(scenario, "abc")


def test_what_was_on_its_way_when_others_were_given_back_goes_back_behind_them():
    async def scenario(cluster, a, b):
        client = b.consume(window=3)
        await rest()
        own = ["own1", "own2", "own3"]
        await b.send(*own)
        await rest()
        cluster.slow("a", 0.3)
        await a.send("1", group="g")
        await rest(homes.GIVE_BACK_S)
        await a.send("2", group="g")
        await rest(0.5)
        for text in own:
            await client.ack(text)
        await rest(3)
        assert client.got == [*own, "1", "2"]

    run(scenario)


def test_a_message_that_expires_while_it_waits_is_expired_by_its_home():
    async def scenario(_, a, b):
        client = b.consume(window=1)
        await rest()
        await a.send("first")
        now = a.engine.now()
        await a.send("late", properties=Properties(expires=now + 500))
        await rest()
        assert client.got == ["first"]
        await asyncio.sleep(0.5)
        await client.ack("first")
        await rest(2)
        assert client.got == ["first"]
        assert (a.stored(), a.stored("old")) == ([], ["late"])

    run(scenario, expiry_address="old")


@pytest.mark.parametrize("end", ["commit", "roll back", "leave"])
def test_a_transaction_holds_messages_beyond_its_consumer(end):
    async def scenario(_, a, b):
        await a.send("1", "2")
        client = b.consume(window=1)
        await rest()
        transaction = Transaction()
        transaction.acknowledge([client.held.pop("1")])
        await rest()
        assert client.got == ["1", "2"], "the transaction makes room"
        client.leave()
        await rest()
        ((home, part),) = transaction.take_remote().items()
        if end == "commit":
            await home.settle(part)
        elif end == "roll back":
            await home.settle(Part((), part.acknowledged))
        else:
            home.give_back(part.acknowledged)
        await rest()
        assert a.stored() == (["2"] if end == "commit" else ["1", "2"])
        again = a.consume()
        await rest()
        assert again.got == a.stored()

    run(scenario)


def test_a_client_that_holds_a_message_of_a_lost_home_is_told_and_others_go_on():
    async def scenario(cluster, a, b):
        await a.send("m")
        holder, other = b.consume(), b.consume()
        await rest()
        if other.held:
            holder, other = other, holder
        cluster.cut("a", "b", both=False)
        await asyncio.sleep(TTL_S + 0.5)
        assert "the link with broker a is lost" in holder.reason
        assert not other.reason
        local = a.consume()
        await asyncio.sleep(TTL_S / 2)
        assert not local.got, "b may hold it as long as the lease lasts"
        await asyncio.sleep(2 * TTL_S)
        assert local.got == ["m"]

    run(scenario)


@pytest.mark.parametrize("how", ["stop", "restart"])
def test_a_host_that_leaves_or_begins_another_life_gives_back_at_once(how):
    async def scenario(_, a, b):
        await a.send("m")
        b.consume()
        await rest()
        local = a.consume()
        if how == "stop":
            await b.stop()
        else:
            await b.kill()
            await rest()
            assert not local.got
            await b.start()
        await rest()
        assert local.got == ["m"]

    run(scenario)


def test_a_host_that_is_taken_out_of_the_list_keeps_what_it_may_still_hold():
    async def scenario(cluster, a, b):
        await a.send("m")
        holder = b.consume()
        await rest()
        local = a.consume()
        cluster.cut("a", "b")
        for link in [*a.membership.links]:
            link.refuse("b:1 is no longer in the list of brokers of a")
        del a.membership.known["b"]
        a.membership.changed()
        await rest()
        assert holder.held
        assert not local.got, "b has not heard of it"
        await asyncio.sleep(3 * TTL_S)
        assert not holder.held
        assert local.got == ["m"]

    run(scenario)


def test_a_home_that_restarts_gives_nothing_out_while_hosts_of_its_last_life_may_hold_messages():
    async def scenario(cluster, a, b, c):
        await a.send("m")
        client = b.consume()
        await rest()
        cluster.cut("a", "b")
        await a.kill()
        await a.start()
        local = a.consume()
        await asyncio.sleep(TTL_S / 2)
        assert client.held
        assert not local.got
        await asyncio.sleep(2 * TTL_S)
        assert client.reason
        assert local.got == ["m"]
        await a.kill()
        await a.start()
        local = a.consume()
        await rest(0.5)
        assert local.got == ["m"], "c has greeted it, and b was forgotten"
        cluster.heal()
        await rest(0.5)
        await a.kill()
        await a.start()
        local = a.consume()
        await rest(0.5)
        assert local.got == ["m"], "both have greeted it"

    run(scenario, "abc")


def test_subscriptions_get_what_each_broker_took_also_after_the_link_was_lost():
    async def scenario(cluster, a, b):
        passing = b.engine.bind(Subscription("t", "passing"))
        durable = Subscription("t", "lasting", "client", durable=True)
        for broker in (b, a):
            broker.apply(1, durable)
        lasting = b.engine.topics.named(durable.key)
        clients = [b.consume(queue.name, window=9) for queue in (passing, lasting)]
        told = b.engine.news.told()
        assert told is not None
        await told
        assert a.engine.news.heard() is None
        for broker in (a, b):
            await broker.send(broker.name, queue="/topic/t")
        await rest()
        assert [sorted(client.got) for client in clients] == [["a", "b"]] * 2
        for client in clients:
            for text in list(client.held):
                await client.ack(text)
        cluster.cut("a", "b")
        await asyncio.sleep(1.5 * TTL_S)
        await a.send("later", queue="/topic/t")
        cluster.heal()
        await asyncio.sleep(1)
        assert [client.got[2:] for client in clients] == [["later"]] * 2
        for client in clients:
            client.leave()
        b.engine.drop(passing)
        await rest()
        assert passing.name not in a.engine.queues
        assert a.stored(lasting.name) == ["later"]

    run(scenario)


def test_a_consumer_waits_for_the_change_that_made_its_subscription_and_gets_nothing_of_others():
    async def scenario(_, home, host):
        subscription = Subscription("t", "s", "client", durable=True)
        name = subscription.queue
        for broker in (home, host):
            broker.apply(1, subscription)
        await home.send("former", queue="/topic/t")
        host.apply(2, subscription, drops=True)
        host.apply(3, subscription)
        client = host.consume(name)  # of another subscription of that name: its home is behind
        told = host.engine.news.told()
        await rest(1)
        assert (client.got, client.reason, told.done()) == ([], "", False)
        host.consume(host.engine.bind(Subscription("t", "passing")).name)
        of_another = host.engine.news.told()
        await rest()
        assert of_another.done()
        home.apply(2, subscription, drops=True)
        await rest()
        assert name not in home.engine.queues
        assert not told.done()
        home.apply(3, subscription)
        await rest()
        assert told.done()
        await home.send("m", queue="/topic/t")
        await rest()
        assert (client.got, client.reason) == (["m"], "")
        client.leave()
        for number in (4, 5):
            home.apply(number, subscription, drops=number == 4)
        await home.send("later", queue="/topic/t")
        behind = host.consume(name)  # of the one that the home has dropped
        await rest(1)
        assert (behind.got, behind.reason) == ([], "")

    run(scenario)


def test_a_consumer_whose_client_is_gone_keeps_no_consumer_of_another_broker_away():
    async def scenario(cluster, a, b):
        subscription = Subscription("t", "s", "client", durable=True)
        for broker in (a, b):
            broker.apply(1, subscription)
        cluster.cut("a", "b")
        await asyncio.sleep(3 * TTL_S)
        a.engine.subscribe(subscription.queue, print).leave()
        client = b.consume(subscription.queue)
        cluster.heal()
        await a.send("m", queue="/topic/t")
        await rest()
        assert (client.got, client.reason) == (["m"], "")

    run(scenario)


def test_what_waits_for_brokers_that_were_listed_later_ends_when_these_were_tried():
    async def scenario(_, a, __):
        for _ in range(2):
            tried = asyncio.Event()
            a.membership.is_settled, a.membership.settled = False, tried.wait
            told = a.engine.news.told()
            await rest()
            assert not told.done()
            tried.set()
            await rest()
            assert told.done()

    run(scenario)


def test_a_later_claim_to_a_lasting_subscription_ends_the_earlier_consumer_anywhere():
    async def scenario(_, a, b, c):
        subscription = Subscription("t", "s", "client", durable=True)
        for broker in (a, b, c):
            broker.apply(1, subscription)
        first = b.consume(subscription.queue, window=9)
        await rest()
        await a.send("m", queue="/topic/t")
        await rest()
        assert first.held
        second = c.consume(subscription.queue, window=9)
        await rest()
        assert "is consumed by" in first.reason
        assert second.got == ["m"]
        a.engine.homes.claim(a.engine.topics.named(subscription.key))
        third = a.consume(subscription.queue, window=9)
        await rest()
        assert second.reason
        assert third.got == ["m"]

    run(scenario, "abc")


def test_a_reply_waits_at_its_home_for_its_queue_through_restarts_and_ends_with_it():
    async def scenario(cluster, a, b):
        name = "/remote-temp-queue/b.replies"
        b.engine.queue(name)
        client = b.consume(name)
        await b.engine.news.told()
        cluster.cut("a", "b")
        await asyncio.sleep(3 * TTL_S)
        await a.send("reply", queue=name)
        await a.kill()
        await a.start()
        assert a.stored(name) == ["reply"]
        cluster.heal()
        await rest(1)
        assert client.got == ["reply"]
        await client.ack("reply")
        await b.kill()
        await b.start()
        await rest(1)
        assert name not in a.engine.queues

    run(scenario)


# -------------------------------------------------------------------------------- drawn walks

NAMES = "abc"
names = st.sampled_from(NAMES)
STEPS = st.one_of(
    st.tuples(st.just("send"), names, st.none()),
    st.tuples(st.just("send"), names, st.sampled_from(["g", "h"])),
    st.tuples(st.just("consume"), names),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("nack"), st.integers(0, 9)),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("cut"), names, names, st.booleans()),
    st.tuples(st.just("slow"), names),
    st.tuples(st.just("heal")),
    st.tuples(st.just("pass"), st.just(TTL_S)),
    st.tuples(st.just("kill"), names),
    st.tuples(st.just("restart"), names),
    st.tuples(st.just("pass"), st.sampled_from([0.3, TTL_S, 4 * TTL_S])),
)


class Walk:
    """A drawn walk, and what clients know: what was sent, and what was settled for certain."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.count = 0
        self.sent = []
        self.acked = set()
        self.unknown = set()
        self.newest = {}
        cluster.on_deliver = self.deliver

    def deliver(self, client, text, delivery):
        assert text not in self.acked, f"{text} is delivered again after its ack was answered"
        group = delivery.message.group
        if group is not None and delivery.message.deliveries == 1:
            line, number = (client, text[0], group), int(text[1:])
            assert number > self.newest.get(line, 0), f"{text} comes to one client after {self.newest[line]}"
            self.newest[line] = number

    async def take(self, step, *rest):
        brokers = self.cluster.brokers
        broker = brokers.get(rest[0]) if rest else None
        if step == "send" and broker.is_up:
            for _ in range(3):
                self.count += 1
                text = f"{broker.name}{self.count}"
                await broker.send(text, group=rest[1])
                self.sent.append(text)
        elif step == "consume" and broker.is_up and len(broker.clients) < 3:
            broker.consume(window=2)
        elif step in ("ack", "nack"):
            held = {text: client for client in self.cluster.clients for text in client.held}
            if held:
                text = sorted(held)[rest[0] % len(held)]
                self.settle(held[text], text, step)
        elif step == "leave" and self.cluster.clients:
            self.cluster.clients[rest[0] % len(self.cluster.clients)].leave()
        elif step == "cut" and rest[0] != rest[1]:
            self.cluster.cut(rest[0], rest[1], both=rest[2])
        elif step == "slow":
            self.cluster.slow(rest[0], 0.4)
        elif step == "heal":
            self.cluster.heal()
        elif step == "kill" and broker.is_up:
            await broker.kill()
        elif step == "restart" and not broker.is_up:
            await broker.start()
        elif step == "pass":
            await asyncio.sleep(rest[0])

    def settle(self, client, text, step):
        if step == "ack":
            self.unknown.add(text)
            client.ack(text).add_done_callback(lambda _: self.acked.add(text))
        else:
            client.nack(text)

    async def drain(self):
        """Heal all, and consume what is left at one broker: all that is owed, and nothing else."""
        self.cluster.heal()
        for broker in self.cluster.brokers.values():
            if not broker.is_up:
                await broker.start()
        await asyncio.sleep(4 * TTL_S)
        for client in self.cluster.clients:
            client.leave()
        await asyncio.sleep(0.5)
        last = self.cluster.brokers["b"].consume(window=1000)
        await asyncio.sleep(4 * TTL_S)
        owed = set(self.sent) - self.unknown
        assert owed <= set(last.got), f"lost: {sorted(owed - set(last.got))}"
        assert len(last.got) == len(set(last.got)), "delivered twice"
        for text in list(last.held):
            await last.ack(text)
        assert not any(broker.stored() for broker in self.cluster.brokers.values())


def walk(steps, *, alone=False):
    """Take these steps; ``alone`` makes windows so small that each message goes alone."""

    async def scenario(cluster, *_):
        walk = Walk(cluster)
        await walk.take("send", "a", None)  # so that two hosts hold messages from the first step on
        for name in "bc":
            await walk.take("consume", name)
        for step in steps:
            await asyncio.sleep(0.05)
            await walk.take(*step)
        await walk.drain()

    with pytest.MonkeyPatch.context() as patch:
        if alone:
            patch.setattr(home_service, "WINDOW_BYTES", 1)
            patch.setattr(homes, "PASSED_BYTES", 1)
        run(scenario, NAMES, max_delivery_attempts=-1)


@settings(max_examples=40 * factor(), deadline=None, suppress_health_check=CHECKS)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_nothing_is_lost_held_twice_or_given_out_of_order_whatever_happens(steps, alone):
    walk(steps, alone=alone)


# ---- parts broken on purpose that a walk must find

HALF_OPEN = [("cut", "a", "b", True), ("kill", "a"), ("restart", "a"), ("consume", "a"), ("pass", 0.3)]
LOST = [("cut", "a", "b", True), ("pass", 4 * TTL_S), ("consume", "c"), ("pass", 0.3)]
ENDED = [("leave", 0), ("pass", 0.3)]


@pytest.mark.parametrize(
    ("place", "name", "broken", "steps"),
    [
        (home_service, "LEASE_MARGIN", 0.01, HALF_OPEN),
        (conventional.Client, "_lost", lambda self, reason: None, LOST),
        (home_service.HomeService, "_ended", lambda self, link, message: None, ENDED),
        (homes.HomePart, "passed", lambda self, waiting: None, []),
        (home_service.RemoteConsumer, "note_passed", lambda self, tag: None, []),
    ],
    ids=[
        "no lease",
        "a client that goes on",
        "a consumer that never ends",
        "a host that does not say what waits no more",
        "a home that does not hear it",
    ],
)
def test_a_broken_part_is_found(monkeypatch, place, name, broken, steps):
    walk(steps, alone=True)
    monkeypatch.setattr(place, name, broken)
    with pytest.raises(AssertionError):
        walk(steps, alone=True)


def test_a_host_with_a_longer_lease_holds_messages_no_longer_than_its_home_allows():
    async def scenario(cluster, a, b):
        await b.kill()
        await b.start()
        b.model._homes._lease_s = 100 * TTL_S
        await rest(1.0)
        await a.send("m")
        client = b.consume()
        await rest()
        assert client.got == ["m"]
        cluster.cut("a", "b")
        other = a.consume()
        await rest(TTL_S + home_service.LEASE_MARGIN * TTL_S + 1)
        assert other.got == ["m"]

    run(scenario)
