"""Queues with groups, driven through the engine beside a plain model.

Who gets what, in which order, how often, and what survives.

A machine holds up to four consumers on a queue and its dead letters, two transactions, a slow disk
and sometimes a backup that is behind. Nothing happens between two rules but what a rule asks for:
turns of the loop, time, a flush.
"""

import random
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from stored import stored

from broker import config
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.core.transactions import Transaction
from broker.seams import Seams
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.machines import LoopMachine
from stateful.queue_model import HELD, Entry, QueueModel, Rules

SYNC_S = 0.01
QUEUES = ("q", "DLQ")
GROUPS = (None, None, "a", "a", "b")

numbers = st.integers(0, 7)
flips = st.booleans()
afterwards = st.sampled_from(["nothing", "turn", "durable", "durable"])
disturbances = st.sampled_from(
    [
        "hold",
        "suspend",
        "follow",
        "lose backup",
        "purge q",
        "purge DLQ",
        "crash",
        "crash",
        "restart",
        "restart",
    ]
)


class Client:
    """A consumer that holds each delivery against the model."""

    def __init__(self, machine, name, window, auto):
        self.machine = machine
        self.queue = name
        self.window = window
        self.auto = auto
        self.held = {}
        self.consumer = machine.engine.subscribe(name, self.deliver, window=window, auto=auto)

    def deliver(self, delivery):
        machine, message = self.machine, delivery.message
        model = machine.model
        assert not machine.engine.gate.held, "delivered while nobody knows who is live"
        assert not self.consumer.closed
        assert not self.consumer.paused
        copy = model.delivered(self, self.queue, message.body.decode(), message.deliveries)
        if self.auto:
            model.settled([copy], machine.engine.journal.last_sequence + 1)
        else:
            self.held[delivery.tag] = (delivery, copy)
            assert len(self.held) <= self.window, "more than its prefetch"

    def take(self, tags):
        """(deliveries, their copies), which are now somebody else's."""
        pairs = [self.held.pop(tag) for tag in tags]
        return [delivery for delivery, _ in pairs], [copy for _, copy in pairs]


class Open:
    """A transaction, and the copies it has."""

    def __init__(self):
        self.transaction = Transaction()
        self.sends = []
        self.acknowledged = []
        self.refused = []


class QueueMachine(LoopMachine):
    MEMORY = {}
    """Settings of the queues' memory: by default they are never full."""

    @initialize(
        attempts=st.sampled_from([-1, 1, 2, 3]),
        address=st.sampled_from(["DLQ", "DLQ", ""]),
        delay_ms=st.sampled_from([0, 0, 100]),
    )
    def begin(self, attempts, address, delay_ms):
        self.rules = Rules(attempts, address, delay_ms)
        table = {
            "match": "#",
            "max-delivery-attempts": attempts,
            "dead-letter-address": address,
            "redelivery-delay": delay_ms,
            **self.MEMORY,
        }
        parsed = config.validate({"broker": {"name": "a1"}, "address-settings": [table]})
        self.settings = EngineSettings.of(parsed, "n1")
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.model = QueueModel(self.rules, self.loop.time)
        self.texts = 0
        self.lives = 0
        self.sound = True  # else nothing can be expected of what is there
        self.start()
        self.subscribe("q", 3, auto=0, paused=0, then="nothing")

    def start(self):
        self.clients = []
        self.open = [Open(), Open()]
        self.lives += 1
        seams = Seams(random.Random(self.lives), lambda: 0.0)
        journal, recovered = self.loop.run(Journal.open(self.volume, "journal"))
        gate = DurabilityGate(journal.synced)
        with self.loop.inside():
            self.engine = Engine(journal, recovered, gate, self.settings, seams)
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        return recovered.last_sequence

    def stopped(self, last_sequence, *, clean):
        """A new life has begun on what the old one left."""
        found = sorted(
            ((one.holder, one.message) for one in stored(self.engine, volume=self.volume)),
            key=lambda one: (one[0], one[1].id),
        )
        self.sound = False
        self.model.recovered(last_sequence, found, clean=clean)
        self.sound = True

    # ---- producing

    def message(self, text, group, closes):
        return Message("q", b"", text.encode(), group, closes=closes and group is not None)

    def text(self):
        self.texts += 1
        return f"m{self.texts}"

    @rule(
        name=st.sampled_from(("q", "q", "q", "DLQ")),
        group=st.sampled_from(GROUPS),
        closes=st.integers(0, 5),
        count=st.integers(1, 3),
        then=afterwards,
    )
    def send(self, name, group, closes, count, then):
        """``closes`` 5: the last of them closes its group."""
        for place in range(count):
            message = self.message(self.text(), group, closes == 5 and place == count - 1)
            copy = self.model.create(name, message.body.decode(), group, message.closes, message.size)
            done = Confirmation(self.model, [copy])
            with self.loop.inside():
                done.sequence = self.engine.send(name, message, done)
            self.model.entries.append(Entry(done.sequence, added=[replace(copy)]))
        self.go_on(then)

    def go_on(self, then):
        if then == "turn":
            self.loop.turn()
        elif then == "durable":
            self.flush()

    # ---- consuming

    @precondition(lambda self: len(self.clients) < 4)
    @rule(
        name=st.sampled_from(("q", "q", "q", "DLQ")),
        window=st.integers(1, 3),
        auto=st.integers(0, 7),
        paused=st.integers(0, 7),
        then=afterwards,
    )
    def subscribe(self, name, window, auto, paused, then):
        """``auto`` 7: acknowledged when handed over; ``paused`` 7: takes nothing for now."""
        with self.loop.inside():
            client = Client(self, name, window, auto == 7)
            if paused == 7:
                client.consumer.pause()
        self.clients.append(client)
        self.go_on(then)

    @precondition(lambda self: self.clients)
    @rule(which=numbers, how=st.sampled_from(["leave", "pause", "resume", "resume"]))
    def change(self, which, how):
        if how == "leave":
            self.leave(which)
            return
        consumer = self.clients[which % len(self.clients)].consumer
        with self.loop.inside():
            (consumer.pause if how == "pause" else consumer.resume)()

    def leave(self, which):
        client = self.clients.pop(which % len(self.clients))
        with self.loop.inside():
            self.engine.unsubscribe(client.consumer)
        client.held.clear()
        self.model.left(client)

    def pick(self, which, cumulative):
        """(client, deliveries, copies) of one message somebody holds, or of all up to it."""
        client, tag = self.holding()[which % len(self.holding())]
        tags = [other for other in client.held if other <= tag] if cumulative else [tag]
        if cumulative:
            assert client.consumer.through(client.held[tag][0]) == [client.held[one][0] for one in tags]
        return client.take(tags)

    def holding(self):
        return [(client, tag) for client in self.clients for tag in client.held]

    @precondition(lambda self: self.holding())
    @rule(which=st.integers(0, 11), cumulative=flips, then=afterwards)
    def acknowledge(self, which, cumulative, then="nothing"):
        deliveries, copies = self.pick(which, cumulative)
        done = Confirmation(self.model)
        with self.loop.inside():
            done.sequence = self.engine.acknowledge(deliveries, done)
        self.model.settled(copies, done.sequence)
        self.go_on(then)

    @precondition(lambda self: self.holding())
    @rule(which=st.integers(0, 11), cumulative=flips, then=afterwards)
    def refuse(self, which, cumulative, then):
        deliveries, copies = self.pick(which, cumulative)
        self.refusal(copies, lambda done: self.engine.refuse(deliveries, done))
        self.go_on(then)

    def refusal(self, copies, act, sends=(), removed=()):
        dead, again, entry = self.model.refuse(copies)
        done = Confirmation(self.model, [*sends, *dead], again)
        with self.loop.inside():
            done.sequence = entry.sequence = act(done)
        entry.added[:0] = [replace(copy) for copy in sends]
        entry.removed += removed
        self.model.entries.append(entry)

    # ---- transactions

    @rule(slot=st.integers(0, 1), name=st.sampled_from(QUEUES), group=st.sampled_from(GROUPS), closes=flips)
    def send_in_transaction(self, slot, name, group, closes):
        message = self.message(self.text(), group, closes)
        self.open[slot].transaction.send(name, message)
        self.open[slot].sends.append((name, message))

    @precondition(lambda self: self.holding())
    @rule(slot=st.integers(0, 1), which=st.integers(0, 11), cumulative=flips, refused=flips)
    def take_into_transaction(self, slot, which, cumulative, refused):
        deliveries, copies = self.pick(which, cumulative)
        one = self.open[slot]
        with self.loop.inside():
            (one.transaction.refuse if refused else one.transaction.acknowledge)(deliveries)
        (one.refused if refused else one.acknowledged).extend(copies)
        self.model.taken(copies)

    def closing(self, slot):
        one, self.open[slot] = self.open[slot], Open()
        return one

    @rule(slot=st.integers(0, 1), how=st.sampled_from(["commit", "commit", "abort", "lost"]), then=afterwards)
    def finish(self, slot, how, then):
        """By the client's COMMIT or ABORT, or because it is gone."""
        if how == "commit":
            self.commit(slot)
        else:
            self.abort(slot, refused=how == "abort")
        self.go_on(then)

    def commit(self, slot):
        one = self.closing(slot)
        sends = [
            self.model.create(name, message.body.decode(), message.group, message.closes, message.size)
            for name, message in one.sends
        ]
        if not (sends or one.acknowledged or one.refused):
            with self.loop.inside():
                self.engine.commit(one.transaction)
            return
        for copy in one.acknowledged:
            self.model.copies.remove(copy)
        self.refusal(
            one.refused,
            lambda done: self.engine.commit(one.transaction, done),
            sends,
            [copy.number for copy in one.acknowledged],
        )

    def abort(self, slot, refused):
        one = self.closing(slot)
        copies = one.acknowledged + one.refused
        if refused and copies:
            self.refusal(copies, lambda done: self.engine.roll_back(one.transaction, done=done))
        else:
            with self.loop.inside():
                assert self.engine.roll_back(one.transaction, refused=refused) is None
            self.model.give_back(copies)

    # ---- the disk, the backup, time

    @rule(how=st.sampled_from(["turn", "turns", "5 ms", "60 ms", "120 ms", "calm", "calm"]))
    def wait(self, how):
        if how == "calm":
            self.calm()
        elif how.startswith("turn"):
            self.loop.turn(1 if how == "turn" else 3)
        else:
            self.loop.advance(int(how.removesuffix(" ms")) / 1000)

    def flush(self):
        self.loop.run(self.engine.journal.flush())
        self.loop.settle()

    @rule(what=disturbances, seed=st.integers(0, 15))
    def disturb(self, what, seed):
        """What happens seldom."""
        gate = self.engine.gate
        with self.loop.inside():
            if what == "hold":
                gate.hold()
            elif what == "suspend":
                self.engine.suspend()
            elif what in ("follow", "lose backup"):
                # It has what is on our disk, or is gone; between two of these it falls behind.
                gate.remote = gate.local if what == "follow" else None
            elif what.startswith("purge"):
                name = what.removeprefix("purge ")
                count = sum(self.engine.purging(name))
                assert count == self.model.purged(name, self.engine.journal.last_sequence)
        if what == "crash":
            self.crash(seed)
        elif what == "restart":
            self.restart()

    def crash(self, seed):
        """The power goes out; 0: everything that was not synced is lost, else it may be torn."""
        with self.loop.inside():
            self.engine.abandon()
        self.volume.crash(random.Random(seed) if seed else None)
        self.loop.run(self.engine.journal.close())
        self.stopped(self.start(), clean=False)

    def restart(self):
        self.calm()
        with self.loop.inside():
            for one in self.open:
                self.engine.roll_back(one.transaction, refused=False)
                self.model.give_back(one.acknowledged + one.refused)
        self.loop.run(self.engine.stop())
        for client in self.clients:
            self.model.left(client)
        self.loop.run(self.engine.journal.close())
        self.stopped(self.start(), clean=True)

    def calm(self):
        """Nothing keeps the engine from working, and all that was asked for is done."""
        with self.loop.inside():
            self.engine.gate.remote = None
            self.engine.gate.release()
            self.engine.resume()
        self.flush()

    # ---- what must hold

    @invariant()
    def nothing_complains(self):
        self.complain()

    @invariant()
    def counts_add_up(self):
        model = self.model
        seen = {status.name: status for status in self.engine.status()}
        for name in QUEUES:
            copies = model.stored(name)
            assert [one.message.body.decode() for one in stored(self.engine, name, self.volume)] == [
                copy.text for copy in sorted(copies, key=lambda copy: copy.number)
            ]
            if name in seen:
                status = seen[name]
                assert status.messages == len(copies)
                assert status.unacknowledged == sum(copy.state == HELD for copy in copies)
                assert status.consumers == sum(client.queue == name for client in self.clients)
        self.sizes_add_up(seen)

    def sizes_add_up(self, seen):
        """All of it is in memory."""
        for name in seen:
            assert seen[name].size == self.model.size(name)
        assert self.engine.memory.size == self.model.size()

    @invariant()
    def nothing_waits_for_nothing(self):
        """At rest, with all on the disk, who has credit has what it may have."""
        gate, journal = self.engine.gate, self.engine.journal
        if gate.held or self.engine._suspended or self.loop._ready or gate.durable < journal.last_sequence:
            return
        for client in self.clients:
            if client.consumer.paused or (not client.auto and len(client.held) >= client.window):
                continue
            if not self.looks_further(client.consumer.queue):
                continue
            waiting = [
                copy.text
                for copy in self.model.copies
                if copy.queue == client.queue and self.model.may_have(client, copy)
            ]
            assert not waiting, f"{waiting} could go to {client}"

    def looks_further(self, queue):
        """Would it find what lies behind? Here all of it is at hand."""
        return queue is not None

    def teardown(self):
        try:
            if hasattr(self, "engine") and self.sound:
                self.drain()
        finally:
            super().teardown()

    def drain(self):
        """What was neither acknowledged nor given up is delivered to one last consumer of each
        queue.
        """
        for slot in (0, 1):
            self.abort(slot, refused=False)
        while self.clients:
            self.leave(0)
        self.calm()
        last = []
        with self.loop.inside():
            last = [Client(self, name, 1000, auto=False) for name in QUEUES]
        self.clients += last
        while self.model.copies:
            self.loop.advance(0.2)
            self.flush()
            assert self.holding(), f"nobody gets {[copy.text for copy in self.model.copies]}"
            while self.holding():
                self.acknowledge(0, cumulative=False)
            self.complain()
        assert self.engine.memory.size == 0
        self.loop.run(self.engine.journal.close())


class Confirmation:
    """What the engine calls when an entry is durable."""

    def __init__(self, model, arrived=(), refused=()):
        self.model = model
        self.arrived = arrived
        self.refused = refused
        self.sequence = None

    def __call__(self):
        assert self.sequence is not None, "called within the call"
        self.model.durable(self.sequence, self.arrived, self.refused)
        self.arrived = self.refused = ()
