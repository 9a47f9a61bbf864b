"""A master broker and two members that change destinations and subscriptions, and their links.

Real are engines, journals, both sides of the change record, and both ends of each link. The network
is in memory, and all run on a loop of virtual time.
"""

import asyncio
import random
from types import SimpleNamespace

import msgspec

from broker import config
from broker.cluster import messages as m
from broker.cluster.change_master import ChangeMaster
from broker.cluster.change_member import ChangeMember
from broker.cluster.link import ClusterLink, Terms
from broker.core.change_record import ChangeRecord
from broker.core.changes import ChangeRefusedError, ChangeUnknownError
from broker.core.engine import DemotedError, Engine
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.pipe import Pipe

SYNC_S = 0.01
LATENCY_S = 0.002
RETRY_S = 0.05
CALL_TIMEOUT_S = 5.0
MASTER = "a1"
MEMBERS = ("b1", "c1")


class Broker:
    """One broker; ``side`` is its part in the change record, None while it does not run."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.side = None
        self.life = 0
        self.clock_s = 1000.0

    async def start(self):
        self.life += 1
        self.member = m.Member(
            self.name, self.name, "live", f"{self.name}:1", f"{self.name}:2", None, self.life, 1, 1, True
        )
        parsed = config.validate({"broker": {"name": self.name}})
        self.journal, recovered = await Journal.open(self.volume, "journal")
        gate = DurabilityGate(self.journal.synced)
        seams = Seams(random.Random(self.life), lambda: self.clock_s)
        settings = EngineSettings.of(parsed, self.name)
        self.engine = Engine(self.journal, recovered, gate, settings, seams)
        self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        self.record = ChangeRecord(self.engine, recovered.records)
        self.membership = SimpleNamespace(
            handlers={}, on_linked=[], on_unlinked=[], own=self.member,
            neighbours=SimpleNamespace(links={}, terms=self.terms, static=self.world.listed),
        )  # fmt: skip
        self.master = SimpleNamespace(
            address=f"{MASTER}:1", on_linked=[], on_unlinked=[], link=lambda: self.world.links.get(self.name)
        )
        if self.name == MASTER:
            self.watch_master()
            self.side = ChangeMaster(self.membership, self.engine, self.record, "i0")
        else:
            self.watch_member()
            self.side = ChangeMember(self.membership, self.engine, self.record, self.master)

    @property
    def terms(self):
        return Terms(
            user="u", password="p", ttl_s=4.0, call_timeout_s=CALL_TIMEOUT_S,
            nonce=lambda: random.Random(self.name).randbytes(32), member=lambda: self.member,
        )  # fmt: skip

    def watch_master(self):
        """Note each change that the master stores, and in which entry of its journal."""
        append, world = self.record.append, self.world
        head = self.record.head
        world.stored = {
            place: stored for place, stored in world.stored.items() if head and place[1] <= head.sequence
        }

        def noted(*arguments):
            change = append(*arguments)
            world.stored[change.place] = change, self.record.written
            world.ever.append(change)
            return change

        self.record.append = noted

    def watch_member(self):
        """Demand that each change that is applied is the next one, and is durable at the master."""
        take, world = self.record.take, self.world

        def demanded(head, changes, **more):
            sequences = [change.sequence for change in changes]
            assert sequences == sorted(set(sequences))
            master = world.brokers[MASTER]
            for change in changes:
                stored, entry = world.stored[change.place]
                assert stored == change
                assert master.side is None or entry <= master.journal.synced or master.life > 1
            return take(head, changes, **more)

        self.record.take = demanded

    async def crash(self, seed):
        side, self.side = self.side, None
        if side is None:
            return
        side.stop()
        for name in MEMBERS if self.name == MASTER else (self.name,):
            self.world.cut(name)
        self.engine.abandon()
        self.volume.crash(random.Random(seed) if seed else None)
        await self.journal.close()

    @property
    def entities(self):
        """What there is by the engine itself, and by which change."""
        found = {}
        for change in self.record.entities:
            if change.kind == "destination":
                queue = self.engine.queues.get(change.key)
                found[change.entity] = change.place, queue is not None and queue.made == change.place
            else:
                named = {str(list(one.key)): one for one in self.engine.topics.durable}
                found[change.entity] = change.place, named.get(str(msgspec.json.decode(change.key)))
        return found


class World:
    def __init__(self):
        self.links = {}
        """Member -> the end of its link to the master, if that is open."""
        self.pipes = {}
        self.listed = [f"{name}:1" for name in MEMBERS]
        self.away = set()
        """The members that are not linked again."""
        self.stored = {}
        self.ever = []
        self.requests = []
        """Value, whether the master is linked, the life of the broker that asks, it, its task."""
        self.brokers = {name: Broker(self, name) for name in (MASTER, *MEMBERS)}

    def connect(self, name):
        member, master = self.brokers[name], self.brokers[MASTER]
        if name in self.pipes or name in self.away or member.side is None or master.side is None:
            return
        dialled = ClusterLink(member.terms, "cluster", on_open=lambda link: self.opened(member, link))
        accepted = ClusterLink(master.terms, None, on_open=lambda link: self.opened(master, link))
        self.pipes[name] = Pipe(dialled, accepted, piece=65_536, latency_s=LATENCY_S)

    def cut(self, name):
        pipe = self.pipes.pop(name, None)
        if pipe is not None:
            pipe.cut()

    def opened(self, broker, link):
        membership = broker.membership
        link.on_message = lambda message: self.take(membership, link, message)
        link.on_closed = lambda _: self.closed(broker, link)
        membership.neighbours.links[link] = None
        for observer in membership.on_linked:
            observer(link)
        if broker.name != MASTER:
            self.links[broker.name] = link
            for observer in broker.master.on_linked:
                observer(link)

    def take(self, membership, link, message):
        handler = membership.handlers.get(type(message))
        if handler is not None:
            handler(link, message)

    def closed(self, broker, link):
        broker.membership.neighbours.links.pop(link, None)
        if broker.name != MASTER:
            self.links.pop(broker.name, None)
            self.pipes.pop(broker.name, None)
            for observer in list(broker.master.on_unlinked):
                observer(link)
            asyncio.get_running_loop().call_later(RETRY_S, self.connect, broker.name)
        for observer in list(broker.membership.on_unlinked):
            observer(link)

    def request(self, name, kind, key, value):
        broker = self.brokers[name]
        if broker.side is not None:
            work = broker.side.request(kind, key, value)
            linked = name == MASTER or broker.side.feed in self.links.values()
            task = asyncio.ensure_future(self.outcome(work, value))
            self.requests.append((value, linked, broker.life, broker, task))

    async def outcome(self, work, value):
        try:
            made = await work
        except (ChangeUnknownError, DemotedError):
            return "unknown"
        except ChangeRefusedError:
            return "refused"
        if made and value:
            self.demand_known(value)
        return made

    def demand_known(self, value):
        """Demand that all members that have joined know of a change that was confirmed."""
        (number,) = [place[1] for place, (change, _) in self.stored.items() if change.value == value]
        for name in MEMBERS:
            broker = self.brokers[name]
            if broker.side is not None and broker.side.feed is not None and broker.side.feed.is_open:
                assert broker.record.head.sequence >= number, f"{name} does not know of a confirmed change"

    async def end(self):
        """Bring all brokers together, and give them time to agree."""
        self.away.clear()
        for broker in self.brokers.values():
            if broker.side is None:
                await broker.start()
        for _ in range(3):
            for name in MEMBERS:
                self.connect(name)
            await asyncio.sleep(2 * CALL_TIMEOUT_S)
