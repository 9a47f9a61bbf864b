"""Messages to a topic reach the subscriptions at all brokers of a cluster, each of them once."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from members import Hub, until
from sites import Site

from broker.cluster import messages as m
from broker.cluster.balancing import Balancing
from broker.core.deletion import delete
from broker.core.interests import Interest
from broker.core.message import Message
from broker.core.subscription import Subscription

TOPIC = "/topic/prices"
RED = "colour = 'red'"


class Broker:
    """A live broker of a cluster without clients, that can begin again with the same journal."""

    def __init__(self, member, site):
        self.member = member
        self.site = site
        self.balancing = Balancing(member, site.name)
        self.balancing.attach(site.engine)

    @property
    def engine(self):
        return self.site.engine

    @property
    def news(self):
        return self.engine.news

    def stop(self):
        self.balancing.detach()

    async def restart(self):
        """Begin another life of the engine, after a crash."""
        self.balancing.detach()
        self.engine.abandon()
        await self.engine.journal.close()
        again = Broker(self.member, await Site.start(self.site.name, self.site.volume))
        self.site, self.balancing = again.site, again.balancing

    def subscribe(self, name, selector="", *, durable=True):
        """The queue of a new subscription."""
        subscription = Subscription("prices", name, "c" if durable else "", selector, durable=durable)
        return self.engine.bind(subscription)

    async def subscribed(self, name, selector="", **more):
        """The same when a client would have its receipt."""
        queue = self.subscribe(name, selector, **more)
        await self.told()
        return queue

    async def told(self):
        if (told := self.news.told()) is not None:
            await told

    async def send(self, *colours):
        if (heard := self.news.heard()) is not None:
            await heard
        for colour in colours:
            headers = f"destination:{TOPIC}\ncolour:{colour}\n".encode()
            self.engine.send(TOPIC, Message(TOPIC, headers, colour.encode()))
        await self.engine.flushed()

    def kept_for(self, other):
        return [message.body.decode() for message in self.site.stored(self.site.forwarding_queue(other.site))]

    def wanted_by(self, other):
        return self.engine.interests.of_node(other.site.name)


@asynccontextmanager
async def cluster(names="ab", **properties):
    async with Hub(**properties) as hub:
        brokers = []
        for number, name in enumerate(names):
            member = await hub.add(name, *names[:number])
            brokers.append(Broker(member, await Site.start(f"node-{name}")))
        others = len(names) - 1
        await until(lambda: all(len(one.member.directory.lives()) >= others for one in brokers), "linked")
        yield brokers
        for broker in brokers:
            broker.stop()


def got(queue):
    return [message.body.decode() for message in sorted(queue.all(), key=lambda message: message.id)]


def test_every_subscription_gets_a_message_once_and_each_copy_is_a_message_of_its_own():
    async def scenario():
        async with cluster("abc") as (a, b, c):
            here = await a.subscribed("here")
            there = [await b.subscribed("1"), await b.subscribed("2", durable=False)]
            await c.subscribed("red", RED)
            await a.send("blue", "red")
            await until(lambda: len(got(there[1])) == 2 and not a.kept_for(b), "b has both")
            assert [got(queue) for queue in (here, *there)] == [["blue", "red"]] * 3
            identities = {message.identity_at("node-b") for queue in there for message in queue.all()}
            assert len(identities) == 4
            await until(lambda: not a.kept_for(c), "c has taken its own")
            assert [got(queue) for queue in c.engine.queues.values() if queue.subscription] == [["red"]]

    asyncio.run(scenario())


def test_nothing_is_sent_to_a_broker_whose_subscriptions_do_not_want_it():
    async def scenario():
        async with cluster() as (a, b):
            red = await b.subscribed("s", RED)
            a.balancing._bridges["node-b"].stop()
            await a.send("blue", "red")
            assert a.kept_for(b) == ["red"]
            b.engine.drop(red)
            await until(lambda: not a.wanted_by(b), "b wants nothing more")
            await a.send("red")
            assert a.kept_for(b) == ["red"]

    asyncio.run(scenario())


def test_a_subscription_is_answered_when_all_have_noted_it():
    async def scenario():
        async with cluster("abc") as (a, b, c):
            noted = a.balancing._interests._take
            held = []
            a.member.handlers[m.Interests] = lambda *news: held.append(news)
            b.subscribe("s")
            told = b.news.told()
            await until(lambda: c.wanted_by(b) and held, "c has noted it")
            await asyncio.sleep(0.05)
            assert not told.done()
            noted(*held[0])
            await told
            assert a.wanted_by(b)
            assert b.news.told() is None

    asyncio.run(scenario())


def test_a_subscription_waits_for_a_broker_that_is_linked_only_because_it_has_dialled():
    async def scenario():
        async with cluster() as (a, b):
            a.member.neighbours._peers["b:61616"].retire()
            await until(lambda: not a.member.directory.lives(), "a has no link of its own to b")
            await a.subscribed("s")
            assert b.wanted_by(a)

    asyncio.run(scenario())


@pytest.mark.parametrize("says_so", [True, False])
def test_a_restart_forgets_no_lasting_subscription_of_a_broker_that_is_away(says_so):
    async def scenario():
        async with cluster() as (a, b):
            await b.subscribed("s")
            await b.subscribed("p", durable=False)
            assert a.wanted_by(b)["prices"].passing
            if says_so:
                b.stop()
            await b.member.stop()
            await until(lambda: not a.wanted_by(b)["prices"].passing, "what has ended with b is forgotten")
            await a.restart()
            assert a.wanted_by(b)["prices"].durable == ("",)
            await a.send("red")
            assert a.kept_for(b) == ["red"]
            await delete(a.engine, a.site.forwarding_queue(b.site), remove_messages=True)
            assert not a.wanted_by(b)
            await a.restart()
            await a.send("red")
            assert (a.wanted_by(b), a.kept_for(b)) == ({}, [])

    asyncio.run(scenario())


def test_a_broker_that_has_not_tried_all_others_yet_answers_for_none_of_them(monkeypatch):
    async def scenario():
        tried = asyncio.Event()
        async with cluster() as (a, _):
            monkeypatch.setattr(type(a.member), "is_settled", property(lambda _: tried.is_set()))
            monkeypatch.setattr(type(a.member), "settled", lambda _: tried.wait())
            await a.restart()
            a.subscribe("s")
            told, heard = a.news.told(), a.news.heard()
            await asyncio.sleep(0.1)
            assert [told.done(), heard.done()] == [False, False]
            tried.set()
            await asyncio.gather(told, heard)

    asyncio.run(scenario())


def test_what_is_kept_for_another_broker_expires_by_the_settings_of_the_topic():
    async def scenario():
        site = await Site.start("node-a", match="prices", expiry_delay=5000)
        site.engine.take_interest("node-b", {"prices": Interest(durable=("",))}, whole=True)
        before = site.engine.now()
        site.engine.send(TOPIC, Message(TOPIC, f"destination:{TOPIC}\n".encode(), b"x"))
        await site.engine.flushed()
        (kept,) = site.stored(site.engine.settings.forwarding_queue("node-b"))
        assert before + 5000 <= kept.properties.expires <= site.engine.now() + 5000

    asyncio.run(scenario())


def test_a_broker_that_begins_asks_before_its_first_message_and_forgets_what_has_ended():
    async def scenario():
        async with cluster() as (a, b):
            queue = await b.subscribed("s")
            a.member.handlers.pop(m.Interests)
            b.engine.drop(queue)
            await a.restart()
            assert a.wanted_by(b)
            await a.send("red")
            assert (a.wanted_by(b), a.kept_for(b)) == ({}, [])
            a.member.handlers.pop(m.Interests)
            b.subscribe("t")
            await a.restart()
            assert not a.wanted_by(b)
            await a.send("red")
            assert a.kept_for(b) == ["red"]

    asyncio.run(scenario())


def test_a_broker_that_is_linked_after_all_when_its_queue_is_deleted_tells_again():
    async def scenario():
        async with cluster() as (a, b):
            queue = await b.subscribed("s")
            a.balancing._bridges.pop("node-b").stop()
            await a.send("red")
            await delete(a.engine, a.site.forwarding_queue(b.site), remove_messages=True)
            await a.send("blue")
            await until(lambda: got(queue) == ["blue"], "b has it")

    asyncio.run(scenario())


def test_a_subscription_does_not_get_what_was_on_its_way_when_it_was_made():
    async def scenario():
        async with cluster() as (a, b):
            first = await b.subscribed("1")
            a.balancing._bridges["node-b"].stop()
            await a.send("red")
            second = await b.subscribed("2")
            await a.send("blue")
            await b.restart()
            a.balancing._bridge("node-b")
            await until(lambda: not a.kept_for(b), "b has taken both")
            assert [got(b.engine.queues[queue.name]) for queue in (first, second)] == [
                ["red", "blue"],
                ["blue"],
            ]

    asyncio.run(scenario())


@asynccontextmanager
async def deaf(names="abc", **properties):
    """A cluster in which the first broker has subscriptions and no other has taken its news yet.

    ``take(name)`` lets a broker take what it was told until now.
    """
    async with cluster(names, **properties) as brokers:
        held = {broker.member.own.name: [] for broker in brokers[1:]}
        takes = {broker.member.own.name: broker.balancing._interests._take for broker in brokers[1:]}
        for broker in brokers[1:]:
            news = held[broker.member.own.name]
            broker.member.handlers[m.Interests] = lambda *told, news=news: news.append(told)

        async def take(name):
            await until(lambda: held[name], f"{name} is told")
            for told in held[name]:
                takes[name](*told)
            held[name].clear()

        yield brokers[0], take


def test_a_subscription_waits_for_its_own_news_alone():
    async def scenario():
        async with deaf("ab") as (a, take):
            a.subscribe("1")
            first = a.news.told()
            await take("b")
            a.subscribe("2")
            second = a.news.told()
            await asyncio.wait_for(first, 5)
            assert not second.done()

    asyncio.run(scenario())


def test_a_wait_that_ends_without_an_answer_ends_no_other():
    async def scenario():
        async with deaf(call_timeout=300) as (a, take):
            a.subscribe("1")
            first = a.news.told()
            await take("c")
            await asyncio.sleep(0.2)
            a.subscribe("2")
            second = a.news.told()
            await first
            a.news._check_waiting()
            await asyncio.sleep(0)
            assert not second.done()

    asyncio.run(scenario())


def test_a_broker_that_stops_answers_nothing_that_waits():
    async def scenario():
        async with deaf("ab") as (a, _take):
            a.subscribe("1")
            told, news = a.news.told(), a.news
            a.stop()
            await asyncio.sleep(0)
            assert not told.done()
            assert a.news is news
            assert not news.told().done()
            assert not news.heard().done()
            a.balancing.attach(a.engine)

    asyncio.run(scenario())


def test_an_answer_with_a_record_that_no_journal_has_is_not_understood():
    answer = m.encode(m.InterestsNoted("e", 1, 1, -1))
    with pytest.raises(m.NotUnderstoodError):
        m.decode(answer[m.LENGTH.size :])


def test_a_broker_that_answers_for_subscriptions_that_there_never_were_stops_nobody():
    async def scenario():
        async with cluster() as (a, b):
            await b.subscribed("1")
            channel = next(iter(b.news._channels))
            b.news._noted(channel, m.InterestsNoted(b.engine.incarnation, 1, 2**40, 1))
            queue = await b.subscribed("2")
            await a.send("red")
            await until(lambda: got(queue) == ["red"], "b has it")

    asyncio.run(scenario())
