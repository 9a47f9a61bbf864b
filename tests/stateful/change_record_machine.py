"""The change record of a master and of a member that is often behind, beside a plain model.

The model is what each entity is, and by which change it was made. A message names the change that
made the entity for which it was sent: with an entity of the same name that was made later, it must
not be found.
"""

import random

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from stored import stored

from broker import config
from broker.core.change_record import ChangeRecord
from broker.core.changes import DESTINATION, SUBSCRIPTION, RequestId, key_of, value_of
from broker.core.engine import Engine
from broker.core.message import RESTORED, Message
from broker.core.settings import EngineSettings
from broker.core.subscription import Subscription, SubscriptionKey
from broker.seams import Seams
from broker.storage.entry import ADD, Operation
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.machines import LoopMachine

SYNC_S = 0.01
QUEUES = ("p", "q")
NAMES = ("s", "t")
TOPICS = ("x", "y")


class Broker:
    """An engine and its record, which begin again on the same disk."""

    def __init__(self, machine, name):
        self.machine = machine
        self.name = name
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.lives = 0
        self.start()

    def start(self):
        loop = self.machine.loop
        self.lives += 1
        parsed = config.validate({"broker": {"name": self.name}})
        self.journal, recovered = loop.run(Journal.open(self.volume, "journal"))
        gate = DurabilityGate(self.journal.synced)
        with loop.inside():
            seams = Seams(random.Random(self.lives), lambda: 0.0)
            settings = EngineSettings.of(parsed, self.name)
            self.engine = Engine(self.journal, recovered, gate, settings, seams)
            self.record = ChangeRecord(self.engine, recovered.records)
        self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)

    def flush(self):
        self.machine.loop.run(self.journal.flush())
        self.machine.loop.settle()

    def end(self, seed, *, cleanly):
        loop = self.machine.loop
        if cleanly:
            loop.run(self.engine.stop())
        with loop.inside():
            self.engine.abandon()
        if not cleanly:
            self.volume.crash(random.Random(seed) if seed else None)
        loop.run(self.journal.close())
        self.start()

    def queue(self, entity):
        kind, key = entity
        if kind == DESTINATION:
            return self.engine.queues.get(key)
        return self.engine.topics.named(SubscriptionKey(*msgspec.json.decode(key)))

    @property
    def entities(self):
        """What there is: entity -> what a subscription wants, and the place of the change."""
        return {change.entity: (change.value, change.place) for change in self.record.entities}


class ChangeRecordMachine(LoopMachine):
    @initialize()
    def begin(self):
        self.master, self.member = Broker(self, "a1"), Broker(self, "b1")
        with self.loop.inside():
            self.master.record.begin("i0")
        self.numbers = 0
        self.backups = []
        self.incarnations = 0
        self.join()

    # ---- changes

    @rule(name=st.sampled_from(QUEUES), there=st.booleans())
    def change_queue(self, name, there):
        self.change(DESTINATION, name, "" if there else None)

    @rule(name=st.sampled_from(NAMES), topic=st.sampled_from((*TOPICS, None)))
    def change_subscription(self, name, topic):
        wanted = Subscription(topic or "x", name, "c", durable=True)
        self.change(SUBSCRIPTION, key_of(wanted.key), value_of(wanted) if topic else None)

    def change(self, kind, key, value):
        self.numbers += 1
        with self.loop.inside():
            self.master.record.append(RequestId("b1", 1, self.numbers), kind, key, value)

    @rule()
    def join(self):
        """The member takes what the master has stored, and it has not."""
        self.master.flush()
        given, mine = self.master.record.head, self.member.record.head
        assert mine is None or mine.incarnation != given.incarnation or mine.sequence <= given.sequence
        same = mine is not None and mine.incarnation == given.incarnation and mine.sequence >= given.floor
        changes = self.master.record.changes_since(mine.sequence if same else 0)
        if not same:
            changes = [change for change in changes if change.value is not None]
        head = msgspec.structs.replace(given, keeps=False, requests={})
        with self.loop.inside():
            self.member.record.take(head, changes, whole=not same, drops_unrecorded=not same)
        self.both_have_the_same()

    @rule()
    def compact(self):
        mine = self.member.record.head
        with self.loop.inside():
            if mine is not None and mine.incarnation == self.master.record.head.incarnation:
                self.master.record.compact(mine.sequence)
                assert not [one for one in self.master.record.drops if one <= mine.sequence]

    @rule()
    def compact_all(self):
        """The master forgets drops that the member lacks, because there are too many."""
        with self.loop.inside():
            self.master.record.compact(self.master.record.head.sequence)
        assert len(self.master.record.changes) == len(self.master.entities)

    # ---- messages

    @rule(entity=st.integers(0, 3))
    def send(self, entity):
        there = sorted(self.member.entities)
        if there:
            kind, key = there[entity % len(there)]
            queue = self.member.queue((kind, key))
            _, place = self.member.entities[kind, key]
            target = key if kind == DESTINATION else f"/topic/{queue.subscription.topic}"
            if kind == DESTINATION:
                with self.loop.inside():
                    self.member.engine.send(target, Message(target, b"", repr(place).encode()))

    @rule(entity=st.integers(0, 3))
    def consume(self, entity):
        """A consumer that holds messages when its queue is dropped is told that it is gone."""
        there = sorted(self.member.entities)
        if there:
            queue = self.member.queue(there[entity % len(there)])
            with self.loop.inside():
                self.member.engine.subscribe(queue.name, lambda _: None, window=2, gone=lambda: None)

    @rule(name=st.sampled_from(QUEUES))
    def make_locally(self, name):
        """A client makes a queue that the record may get later."""
        with self.loop.inside():
            self.member.engine.queue(name)

    @rule(turns=st.integers(1, 4))
    def go_on(self, turns):
        """Something of what was written reaches the disks."""
        self.loop.turn(turns)

    # ---- ends

    @rule(master=st.booleans(), seed=st.integers(0, 15), cleanly=st.booleans())
    def end(self, master, seed, cleanly):
        (self.master if master else self.member).end(seed, cleanly=cleanly)
        self.all_is_well(self.member)

    @rule()
    def back_up(self):
        self.master.flush()
        self.backups.append(self.master.record.backup())

    @precondition(lambda self: self.backups)
    @rule(which=st.integers(0, 7))
    def restore(self, which):
        """The master begins again with an earlier record, as a new incarnation."""
        backup = self.backups[which % len(self.backups)]
        self.incarnations += 1
        former = self.master.record.head
        ancestors = dict.fromkeys(
            (*backup.head.ancestors, backup.head.incarnation, *former.ancestors, former.incarnation)
        )
        head = msgspec.structs.replace(
            backup.head, incarnation=f"i{self.incarnations}", ancestors=tuple(ancestors)
        )
        data = msgspec.msgpack.encode(msgspec.structs.replace(backup, head=head))
        journal = self.master.journal
        with self.loop.inside():
            journal.append((Operation(ADD, RESTORED, journal.next_id(), data),))
        self.master.flush()
        self.master.end(0, cleanly=False)
        assert self.master.record.head.incarnation == head.incarnation
        expected = {one.entity: (one.value, one.place) for one in backup.changes if one.value is not None}
        assert self.master.entities == expected
        self.join()

    # ---- what must hold

    def both_have_the_same(self):
        assert self.member.entities == self.master.entities
        for broker in (self.master, self.member):
            self.all_is_well(broker)
        self.complain()

    def all_is_well(self, broker):
        """What the record says is there, and nothing waits in it that was sent to a former one."""
        subscriptions = {one.key for one in broker.engine.topics.durable}
        assert len(subscriptions) == sum(kind == SUBSCRIPTION for kind, _ in broker.entities)
        for entity, (value, place) in broker.entities.items():
            queue = broker.queue(entity)
            assert queue is not None, f"{broker.name} lacks {entity}"
            assert queue.made == place
            if value:
                assert value_of(queue.subscription) == value
            places = {one.message.body.decode() for one in stored(broker.engine, queue.name)}
            assert places <= {repr(place)}, f"{entity} of {place} has messages of {places}"
        for name in QUEUES:
            queue = broker.engine.queues.get(name)
            assert queue is None or queue.made is None or (DESTINATION, name) in broker.entities
