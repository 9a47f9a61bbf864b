"""A conventional cluster without sockets: engines, both halves of the home model, and links.

Real are engines, journals, ``HomeModel`` and both ends of each link; the loop's time is virtual. A
client is a consumer of an engine, and remembers what it holds. ``Cluster.held`` is what clients
hold, and no two may hold one message at a time.
"""

import asyncio
import random
from types import SimpleNamespace

from sites import Site
from stateful.pipe import Pipe

from broker.cluster import messages as m
from broker.cluster.home_model import HomeModel
from broker.cluster.link import ClusterLink, Terms
from broker.core.change_record import ChangeRecord
from broker.core.changes import SUBSCRIPTION, Change, Head, RequestId, key_of, value_of
from broker.core.consumer import Part

TTL_S = 2.0
CALL_TIMEOUT_S = 4.0
DIAL_S = 0.1


class Membership:
    """What the home model sees of a cluster: the links of one life of a broker."""

    def __init__(self, broker, life):
        self.broker = broker
        self.own = m.Member(
            broker.name, broker.name, "live", f"{broker.name}:1", f"{broker.name}:2", None, life, 1, 1, True
        )
        others = tuple(f"{name}:1" for name in broker.cluster.brokers if name != broker.name)
        self.section = SimpleNamespace(
            connection_ttl=TTL_S * 1000, call_timeout=CALL_TIMEOUT_S * 1000, static_connectors=others
        )
        self.handlers = {}
        self.on_change, self.on_linked, self.on_unlinked, self.on_leaving = [], [], [], []
        self.is_settled = True
        self.dialled = {}
        self.links = []
        self.known = {}
        self.directory = self.neighbours = self

    def is_over(self, member):
        links = [link for link in reversed(self.links) if link.member.name == member.name]
        return bool(links) and links[0].member.life != member.life

    def linked(self):
        return [(link.member, link) for link in self.dialled.values() if link.is_open]

    def lives(self):
        return {member.node_id: (member, link) for member, link in self.linked()}

    def live_with(self, node_id):
        return self.known.get(node_id)

    @property
    def terms(self):
        return Terms(
            user="u",
            password="p",
            ttl_s=TTL_S,
            call_timeout_s=CALL_TIMEOUT_S,
            nonce=lambda: random.Random(f"{self.own.life}").randbytes(32),
            member=lambda: self.own,
        )

    def opened(self, link):
        if not self.broker.is_up or self.broker.membership is not self:
            link.abort("this life is over")
            return
        self.links.append(link)
        self.known[link.member.name] = link.member
        link.on_message = lambda message: self._take(link, message)
        link.on_closed = lambda _: self._closed(link)
        former = self.dialled.get(link.member.name)
        if former is not None and former.is_open and former.member.life != link.member.life:
            former.abort("another life")
        if link.connecting:
            self.dialled[link.member.name] = link
        for observer in [*self.on_linked]:
            observer(link)
        self.changed()

    def changed(self):
        for observer in [*self.on_change]:
            observer()

    def _take(self, link, message):
        if isinstance(message, m.Leaving):
            for observer in [*self.on_leaving]:
                observer(message)
            self.known.pop(message.name, None)
            self.changed()
        elif (handler := self.handlers.get(type(message))) is not None:
            handler(link, message)

    def _closed(self, link):
        self.links.remove(link)
        for observer in [*self.on_unlinked]:
            observer(link)
        self.changed()


class Broker:
    """A broker that can be killed, and start again with its store."""

    def __init__(self, cluster, name, **address):
        self.cluster = cluster
        self.name = name
        self.address = address
        self.lives = 0
        self.site = None
        self.is_up = False
        self.clients = []

    @property
    def engine(self):
        return self.site.engine

    async def start(self):
        self.lives += 1
        volume = None if self.site is None else self.site.volume
        self.site = await Site.start(self.name, volume, stays_home=True, **self.address)
        self.membership = Membership(self, self.lives)
        self.model = self.engine.router = HomeModel(self.membership)
        self.model.attach(self.engine)
        self.record = ChangeRecord(self.engine, self.site.records)
        self.is_up = True

    def apply(self, number, subscription, *, drops=False):
        """Make or drop a durable subscription, by the change of that number."""
        value = None if drops else value_of(subscription)
        change = Change("i", number, RequestId("m", 1, number), SUBSCRIPTION, key_of(subscription.key), value)
        self.record.take(Head("i", sequence=number), [change])

    async def kill(self):
        """End without a word; the others hear of it if the network tells them."""
        self.is_up = False
        for client in list(self.clients):
            client.end()
        self.model.detach()
        self.membership.on_unlinked.clear()
        self.engine.abandon()
        self.site.volume.crash(random.Random(self.lives))
        for link in list(self.membership.links):
            link.abort("killed")
        self.membership.dialled.clear()
        await self.engine.journal.close()

    async def stop(self):
        """End cleanly, as ``SoloPolicy`` does."""
        self.model.detach()
        for client in list(self.clients):
            client.leave()
        await self.engine.stop()
        self.is_up = False
        for link in list(self.membership.links):
            link.send(m.Leaving(self.name, self.lives))
            link.close("stopping")
        await self.engine.journal.close()

    async def send(self, *texts, queue="q", group=None, properties=None, size=0, headers=b""):
        for text in texts:
            message = await self.site.message(text, size, group=group, properties=properties, headers=headers)
            message.target = queue
            self.engine.send(queue, message)
        await self.engine.flushed()

    def consume(self, queue="q", window=2, selector=None, **more):
        return Client(self, self.engine.subscribe(queue, print, window=window, selector=selector, **more))

    def stored(self, queue="q"):
        return [text_of(message) for message in self.site.stored(queue)]


class Client:
    """A client's consumer, and what it holds: deliveries by text."""

    def __init__(self, broker, consumer):
        self.broker = broker
        self.consumer = consumer
        self.queue = consumer.queue.name
        self.cluster = broker.cluster
        self.held = {}
        self.got = []
        self.reason = ""
        self.is_over = False
        consumer.deliver = self._deliver
        broker.clients.append(self)
        broker.engine.homes.consume(consumer, self._lost)

    def _deliver(self, delivery):
        text = text_of(delivery.message)
        assert not self.is_over, f"{text} is given to a client that has ended"
        self.held[text] = delivery
        self.got.append(text)
        self.cluster.deliver(self, text, delivery)

    def _lost(self, reason):
        self.reason = reason
        self.leave()

    def end(self):
        """The client's connection ends: it holds nothing any more."""
        self.is_over = True
        self.held.clear()
        if self in self.broker.clients:
            self.broker.clients.remove(self)

    def leave(self):
        if not self.is_over:
            self.end()
            self.broker.engine.unsubscribe(self.consumer)

    def ack(self, text):
        return self._settle(text, refuse=False)

    def nack(self, text):
        return self._settle(text, refuse=True)

    def _settle(self, text, *, refuse):
        """Settle a message; the future is done when the client would have its receipt."""
        delivery = self.held.pop(text)
        done = asyncio.get_running_loop().create_future()
        if delivery.settler is not None:
            answer = delivery.settler.settle(Part((), [delivery]) if refuse else Part([delivery]))
            answer.add_done_callback(lambda _: self.is_over or done.set_result(None))
            return done
        engine = self.broker.engine
        (engine.refuse if refuse else engine.acknowledge)([delivery], lambda: done.set_result(None))
        return done


class Cluster:
    """Brokers, and the network between them, which can be cut in one direction or both."""

    def __init__(self, names="abc", **address):
        self.brokers = dict.fromkeys(names)
        self.brokers = {name: Broker(self, name, **address) for name in names}
        self.cuts = set()
        self.delays = {}
        self.pipes = {}
        self.on_deliver = lambda client, text, delivery: None

    async def start(self):
        for broker in self.brokers.values():
            await broker.start()
        self._task = asyncio.create_task(self._dial())
        await asyncio.sleep(2 * DIAL_S)
        return tuple(self.brokers.values())

    async def stop(self):
        self._task.cancel()
        for broker in self.brokers.values():
            if broker.is_up:
                await broker.kill()

    @property
    def clients(self):
        return [client for broker in self.brokers.values() for client in broker.clients]

    def deliver(self, client, text, delivery):
        others = [one for one in self.clients if one is not client and one.queue == client.queue]
        holders = [one for one in others if text in one.held]
        assert not holders, (
            f"{text} is held by a client of {holders[0].broker.name} and by one of {client.broker.name}"
        )
        group = delivery.message.group
        for other in others if group is not None else ():
            shared = [
                one
                for one in other.held.values()
                if (one.message.group, home_of(one)) == (group, home_of(delivery))
            ]
            assert not shared, f"clients of {other.broker.name} and {client.broker.name} share group {group}"
        self.on_deliver(client, text, delivery)

    async def _dial(self):
        while True:
            for one in self.brokers.values():
                for other in self.brokers.values():
                    if one is not other and one.is_up and other.is_up:
                        self._connect(one, other)
            await asyncio.sleep(DIAL_S)

    def _connect(self, one, other):
        link = one.membership.dialled.get(other.name)
        if (link is not None and not link.closed) or self._is_cut(one.name, other.name):
            return
        dialling = ClusterLink(one.membership.terms, "cluster", on_open=one.membership.opened)
        accepting = ClusterLink(other.membership.terms, None, on_open=other.membership.opened)
        one.membership.dialled[other.name] = dialling
        pipe = Pipe(dialling, accepting, piece=65_536, latency_s=self.delays.get(one.name, 0.001))
        self.pipes.setdefault((one.name, other.name), []).append(pipe)

    def _is_cut(self, one, other):
        return (one, other) in self.cuts or (other, one) in self.cuts

    def cut(self, one, other, *, both=True):
        """Let nothing that ``one`` says arrive at ``other``, or (``both``) the other way, too."""
        for source, target in [(one, other), (other, one)][: 1 + both]:
            self.cuts.add((source, target))
            for pipe in self.pipes.get((source, target), ()):
                pipe.stall(pipe.one)
            for pipe in self.pipes.get((target, source), ()):
                pipe.stall(pipe.other)

    def slow(self, name, latency_s):
        self.delays[name] = latency_s
        for (one, other), pipes in self.pipes.items():
            if name in (one, other):
                for pipe in pipes:
                    pipe.latency_s = latency_s

    def heal(self):
        self.cuts.clear()
        for pipes in self.pipes.values():
            for pipe in pipes:
                pipe.latency_s = 0.001
                pipe.heal()
        self.delays.clear()


def text_of(message):
    return message.headers.rpartition(b"text:")[2].partition(b"\n")[0].decode()


def home_of(delivery):
    """The home of a message that a client holds; texts begin with its name."""
    return text_of(delivery.message)[0]
