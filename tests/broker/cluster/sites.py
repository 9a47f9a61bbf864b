"""Brokers without clients, on a loop of virtual time, and the links over which they forward.

Real are engines, journals, bridges, arrivals and both ends of each link. The network is in memory,
and a test says which answer to a bridge is lost, with the link.
"""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace

from stateful.pipe import Pipe

from broker import config
from broker.cluster import messages as m
from broker.cluster.arrivals import Arrivals
from broker.cluster.bridge import Bridge
from broker.cluster.link import ClusterLink, Terms
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume

RETRY_MS = 20
CALL_TIMEOUT_S = 5.0
TTL_S = 4.0
EPOCH_S = 1000.0


def terms(site):
    member = m.Member(site.name, site.name, "live", f"{site.name}:1", f"{site.name}:2", None, 1, 1, 1, True)
    return Terms(
        user="u",
        password="p",
        ttl_s=TTL_S,
        call_timeout_s=CALL_TIMEOUT_S,
        nonce=lambda: random.Random(site.name).randbytes(32),
        member=lambda: member,
    )


class Site:
    """A broker's engine, under its name as node ID. ``router`` is asked where a message goes."""

    def __init__(self, name, loop, volume, engine):
        self.name = name
        self.loop = loop
        self.volume = volume
        self.engine = engine
        self.handlers = {}
        self.reached = set()
        """The names of the sites to which it passes messages on."""
        self.arrivals = Arrivals(engine, self.handlers, self.reached.__contains__)

    @classmethod
    async def start(cls, name, volume=None, router=None, *, stays_home=False, **address):
        loop = asyncio.get_running_loop()
        volume = volume or MemoryVolume()
        journal, recovered = await Journal.open(volume, "journal")
        gate = DurabilityGate(journal.synced)
        table = {"match": "#", **{key.replace("_", "-"): value for key, value in address.items()}}
        parsed = config.validate({"broker": {"name": name}, "address-settings": [table]})
        seams = Seams(random.Random(name), lambda: EPOCH_S + loop.time())
        settings = replace(EngineSettings.of(parsed, name), stays_home=stays_home)
        engine = Engine(journal, recovered, gate, settings, seams, router)
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        site = cls(name, loop, volume, engine)
        site.records = recovered.records
        return site

    async def message(self, text, size=0, **more):
        """A message for the queue q; with a ``size`` its body is a blob of as many bytes."""
        headers = more.pop("headers", b"") + b"text:" + text.encode() + b"\n"
        if not size:
            return Message("q", headers, text.encode(), **more)
        writer = await self.engine.large.store.begin()
        data = body(text, size)
        for start in range(0, size, 65_536):
            writer.write(data[start : start + 65_536])
            if writer.due:
                await writer.flush()
        return Message("q", headers, writer.start, large=await writer.finish(), **more)

    async def content(self, message):
        """The whole body of a message that is stored here."""
        if message.large is None:
            return message.body
        return b"".join([chunk async for chunk in self.engine.large.store.chunks(message.large)])

    def stored(self, queue="q"):
        """What the queue has, in the order in which it came."""
        known = self.engine.queues.get(queue)
        return [] if known is None else sorted(known.all(), key=lambda message: message.id)

    def forwarding_queue(self, other):
        return self.engine.settings.forwarding_queue(other.name)

    def mover(self, other):
        """Move what the queue q has and will have to the store-and-forward queue of another."""

        def move():
            self.engine.move(list(consumer.unacknowledged.values()), other.name)

        def deliver(_):
            if len(consumer.unacknowledged) == 1:
                self.loop.call_soon(move)

        consumer = self.engine.subscribe("q", deliver, window=100, internal=True)
        return consumer


def body(text, size):
    return random.Random(text).randbytes(size)


class Road:
    """The bridges from one site to another, and their link: a new one when it is lost.

    ``lost`` is the number of the answer, from 0, that is lost, and the link with it; ``answers``
    counts them all. The receiver passes messages on to ``destination`` if that is another site.
    """

    def __init__(self, sender, receiver, *, destination=None, lost=None, piece=65_536, latency_s=0.0001):
        self.sender = sender
        self.receiver = receiver
        self.lost = lost
        self.answers = 0
        self.links = 0
        self.link = self.pipe = None
        self.blocked = False
        self._pipe = {"piece": piece, "latency_s": latency_s}
        self.bridges = []
        self.share(receiver if destination is None else destination)
        self.connect()

    def share(self, destination):
        """Forward what is for another site over the same link, too."""
        membership = SimpleNamespace(section=SimpleNamespace(retry_interval=RETRY_MS))
        self.bridges.append(Bridge(self.sender.engine, membership, destination.name, self.next_to))

    def next_to(self, _):
        link = self.link
        return None if link is None or not link.is_open else (link.member, link)

    def connect(self):
        if self.blocked:
            return
        self.links += 1
        self.link = ClusterLink(terms(self.sender), "cluster", on_open=self._opened)
        accepted = ClusterLink(terms(self.receiver), None, on_open=self._accepted)
        self.pipe = Pipe(self.link, accepted, **self._pipe)

    def stop(self):
        self.blocked = True
        for bridge in self.bridges:
            bridge.stop()
        self.link.close("over")

    def _wake(self):
        for bridge in self.bridges:
            bridge.wake()

    def _opened(self, link):
        link.on_message = lambda message: self._told(link, message)
        link.on_closed = lambda _: self._closed()
        self._wake()

    def _told(self, link, message):
        if isinstance(message, m.BlobTaken):
            for bridge in self.bridges:
                bridge.taken(link, message.count)

    def _closed(self):
        self._wake()
        self.sender.loop.call_later(0.01, self.connect)

    def _accepted(self, link):
        send = link.send

        def answer(message):
            if isinstance(message, m.Reply):
                self.answers += 1
                if self.answers - 1 == self.lost:
                    self.pipe.cut()
                    return
            send(message)

        link.send = answer
        link.on_message = lambda message: self._take(link, message)

    def _take(self, link, message):
        handler = self.receiver.handlers.get(type(message))
        if handler is not None:
            handler(link, message)
