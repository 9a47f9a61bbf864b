"""Topics with subscriptions that come, go, and come again, beside a model that replays entries.

What each subscription has, who gets it in which order, and what survives a crash in the middle.

The model is a list of what each journal entry did. What must be there at any time is what these
amount to; after a crash, those of them that are on the disk, of which everything that somebody was
told must be one.
"""

import asyncio
import random
from collections import defaultdict
from contextlib import nullcontext

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from stored import stored

from broker import config
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.core.subscription import Subscription, SubscriptionInUseError
from broker.core.transactions import Transaction
from broker.seams import Seams
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.machines import LoopMachine

SYNC_S = 0.01
CLIENTS = ("c", "")  # "" for shared ones
NAMES = ("s", "t")
TOPICS = ("x", "y")

numbers = st.integers(0, 7)
afterwards = st.sampled_from(["nothing", "turn", "turns", "durable", "durable"])


class Client:
    """A consumer of one subscription, which must get what that has, in order."""

    def __init__(self, machine, queue):
        self.machine = machine
        self.queue = queue
        self.held = {}
        self.consumer = machine.engine.subscribe(queue.name, self.deliver, window=3)

    def deliver(self, delivery):
        text = delivery.message.body.decode()
        waiting = [
            other
            for other in self.machine.state()[self.queue.name][1]
            if other not in self.machine.with_somebody(self.queue)
        ]
        assert waiting, f"{text} is delivered to {self.queue.name}, which has nothing"
        assert waiting[0] == text, f"{text} is delivered before {waiting}"
        self.held[text] = delivery


class TopicMachine(LoopMachine):
    @initialize()
    def begin(self):
        table = {"match": "#", "max-size-bytes": 4096, "page-size-bytes": 1024}
        parsed = config.validate({"broker": {"name": "a1"}, "address-settings": [table]})
        self.settings = EngineSettings.of(parsed, "n1")
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.entries = []  # (sequence, effect)
        self.confirmed = 0
        self.texts = 0
        self.lives = 0
        self.transients = 0
        self.start()

    def start(self):
        self.clients = []
        self.taken = []  # (queue, text): with the transaction
        self.open = (Transaction(), [])
        self.lives += 1
        journal, recovered = self.loop.run(Journal.open(self.volume, "journal"))
        gate = DurabilityGate(journal.synced)
        with self.loop.inside():
            seams = Seams(random.Random(self.lives), lambda: 0.0)
            self.engine = Engine(journal, recovered, gate, self.settings, seams)
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        return recovered.last_sequence

    # ---- the model

    def state(self):
        """Queue -> (topic, texts that are stored), after all entries."""
        found = {}
        for _, effect in self.entries:
            effect(found)
        return found

    def did(self, sequence, *effects):
        """An entry did that, and whoever asked is told when it is durable."""
        self.entries += [(sequence, effect) for effect in effects]
        inside = nullcontext() if asyncio._get_running_loop() is self.loop else self.loop.inside()
        with inside:
            self.engine.gate.when_durable(sequence, lambda: self.told(sequence))

    def told(self, sequence):
        self.confirmed = max(self.confirmed, sequence)

    def with_somebody(self, queue):
        held = [text for client in self.clients if client.queue is queue for text in client.held]
        return {*held, *(text for other, text in self.taken if other is queue)}

    def subscribed(self):
        return [queue for queue in self.engine.queues.values() if queue.subscription is not None]

    # ---- subscriptions

    @rule(
        client=st.sampled_from(CLIENTS),
        name=st.sampled_from(NAMES),
        topic=st.sampled_from(TOPICS),
        then=afterwards,
    )
    def subscribe(self, client, name, topic, then):
        """Make one, find it again, or change it."""
        wanted = Subscription(topic, name, client, shared=not client, durable=True)
        known = self.engine.topics.named(wanted.key)
        with self.loop.inside():
            try:
                queue = self.engine.bind(wanted)
            except SubscriptionInUseError:
                assert known.consumers
                return
            if queue is not known:
                if known is not None:
                    self.forget(known)
                self.bound(queue, known)
            if not queue.consumers or wanted.shared:
                self.clients.append(Client(self, queue))
        self.go_on(then)

    @rule(topic=st.sampled_from(TOPICS))
    def subscribe_for_now(self, topic):
        self.transients += 1
        with self.loop.inside():
            queue = self.engine.bind(Subscription(topic, f"{self.lives}-{self.transients}"))
            self.bound(queue, None)
            self.clients.append(Client(self, queue))

    def bound(self, queue, known):
        name, topic = queue.name, queue.subscription.topic

        def made(state):
            if known is not None:
                del state[known.name]
            assert name not in state
            state[name] = (topic, [])

        self.did(self.engine.journal.last_sequence, made)

    def forget(self, queue):
        """Its consumers are gone, and with the transaction it has nothing to do any more."""
        assert not [client for client in self.clients if client.queue is queue]
        self.taken = [(other, text) for other, text in self.taken if other is not queue]

    @precondition(lambda self: self.clients)
    @rule(which=numbers)
    def leave(self, which):
        client = self.clients.pop(which % len(self.clients))
        with self.loop.inside():
            self.engine.unsubscribe(client.consumer)
        if not client.queue.subscription.durable:
            self.drop_queue(client.queue)

    @precondition(lambda self: any(not queue.consumers for queue in self.subscribed()))
    @rule(which=numbers, then=afterwards)
    def drop(self, which, then):
        free = [queue for queue in self.subscribed() if not queue.consumers]
        self.drop_queue(free[which % len(free)])
        self.go_on(then)

    def drop_queue(self, queue):
        name = queue.name
        with self.loop.inside():
            sequence = self.engine.drop(queue)
        self.forget(queue)
        assert name not in self.engine.queues
        if queue.subscription.durable:
            self.did(sequence, lambda state: state.pop(name))
        else:
            self.entries.append((sequence, lambda state: state.pop(name)))

    # ---- messages

    def text(self):
        self.texts += 1
        return f"m{self.texts}"

    def sent(self, topic, text):
        def added(state):
            for name, (of, texts) in state.items():
                if of == topic:
                    state[name] = (of, [*texts, text])

        return added

    @rule(
        topic=st.sampled_from(TOPICS),
        count=st.integers(1, 3),
        size=st.sampled_from([0, 0, 0, 600]),
        then=afterwards,
    )
    def send(self, topic, count, size, then):
        for _ in range(count):
            text = self.text()
            target = f"/topic/{topic}"
            message = Message(target, b"h:" + b"x" * size + b"\n", text.encode())
            before = self.engine.journal.last_sequence
            with self.loop.inside():
                sequence = self.engine.send(target, message)
            assert sequence - before in (0, 1), "one entry for all"
            self.did(sequence, *([self.sent(topic, text)] if sequence > before else []))
        self.go_on(then)

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(which=numbers, many=st.booleans(), then=afterwards)
    def acknowledge(self, which, many, then):
        client, texts = self.pick(which, many)
        with self.loop.inside():
            sequence = self.engine.acknowledge([client.held.pop(text) for text in texts])
        self.did(sequence, self.removed(client.queue.name, texts))
        self.go_on(then)

    def pick(self, which, many):
        holding = [client for client in self.clients if client.held]
        client = holding[which % len(holding)]
        return client, list(client.held) if many else list(client.held)[:1]

    def removed(self, name, texts):
        def gone(state):
            if name in state:
                of, left = state[name]
                state[name] = (of, [text for text in left if text not in texts])

        return gone

    @rule(topic=st.sampled_from(TOPICS))
    def send_in_transaction(self, topic):
        text = self.text()
        self.open[0].send(f"/topic/{topic}", Message(f"/topic/{topic}", b"", text.encode()))
        self.open[1].append((topic, text))

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(which=numbers, many=st.booleans())
    def take_into_transaction(self, which, many):
        client, texts = self.pick(which, many)
        with self.loop.inside():
            self.open[0].acknowledge([client.held.pop(text) for text in texts])
        self.taken += [(client.queue, text) for text in texts]

    @rule(commits=st.booleans(), then=afterwards)
    def finish(self, commits, then):
        (transaction, sends), self.open = self.open, (Transaction(), [])
        taken, self.taken = self.taken, []
        with self.loop.inside():
            if not commits:
                self.engine.roll_back(transaction, refused=False)
            else:
                before = self.engine.journal.last_sequence
                sequence = self.engine.commit(transaction)
                assert sequence - before in (0, 1), "one entry for all of it"
                by_queue = defaultdict(list)
                for queue, text in taken:
                    by_queue[queue.name].append(text)
                self.did(
                    sequence,
                    *(self.removed(name, texts) for name, texts in by_queue.items()),
                    *(self.sent(topic, text) for topic, text in sends),
                )
        self.go_on(then)

    # ---- time, the disk, ends

    def go_on(self, then):
        if then.startswith("turn"):
            self.loop.turn(1 if then == "turn" else 4)
        elif then == "durable":
            self.calm()

    @rule()
    def calm(self):
        """All that was asked for is done, and all that was dropped is gone."""
        for _ in range(3):
            self.loop.run(self.engine.journal.flush())
            self.loop.settle()

    @rule(seed=st.integers(0, 15))
    def crash(self, seed):
        with self.loop.inside():
            self.engine.abandon()
        self.volume.crash(random.Random(seed) if seed else None)
        self.loop.run(self.engine.journal.close())
        self.began(self.start())

    @rule()
    def restart(self):
        self.taken = []
        with self.loop.inside():
            self.engine.roll_back(self.open[0], refused=False)
        self.loop.run(self.engine.stop())
        self.loop.run(self.engine.journal.close())
        self.began(self.start())

    def began(self, last_sequence):
        assert last_sequence >= self.confirmed, f"{self.confirmed} was told, {last_sequence} is there"
        self.entries = [(sequence, effect) for sequence, effect in self.entries if sequence <= last_sequence]

        def transient_ones_end(state):
            for name in [name for name in state if "::." in name]:
                del state[name]

        self.entries.append((last_sequence, transient_ones_end))
        self.nothing_else_is_there()

    # ---- what must hold

    @invariant()
    def nothing_complains(self):
        self.complain()

    @invariant()
    def subscriptions_are_those_that_are_wanted(self):
        assert {queue.name: queue.subscription.topic for queue in self.subscribed()} == {
            name: topic for name, (topic, _) in self.state().items()
        }

    @invariant()
    def at_rest_all_of_it_is_there(self):
        journal = self.engine.journal
        if not self.loop._ready and self.engine.gate.durable >= journal.last_sequence:
            self.nothing_else_is_there()

    def nothing_else_is_there(self):
        for name, (_, texts) in self.state().items():
            there = [one.message.body.decode() for one in stored(self.engine, name, self.volume)]
            assert sorted(there) == sorted(texts), name

    def teardown(self):
        try:
            if hasattr(self, "engine"):
                self.drain()
        finally:
            super().teardown()

    def drain(self):
        """In the end every subscription's messages come, and when all are gone nothing is left."""
        with self.loop.inside():
            self.engine.roll_back(self.open[0], refused=False)
            self.taken = []
            for client in self.clients:
                self.engine.unsubscribe(client.consumer)
        self.clients = []
        for queue in self.subscribed():
            if not queue.subscription.durable:
                self.drop_queue(queue)
        self.calm()
        self.subscriptions_are_those_that_are_wanted()
        self.nothing_else_is_there()
        assert not self.engine._dropped.queues, "all that was dropped is gone"
        state = self.state()
        for queue in self.subscribed():
            with self.loop.inside():
                client = Client(self, queue)
            self.clients.append(client)
            for _ in range(200):
                self.calm()
                if not client.held:
                    break
                with self.loop.inside():
                    sequence = self.engine.acknowledge(list(client.held.values()))
                self.did(sequence, self.removed(queue.name, list(client.held)))
                client.held.clear()
            assert not self.state()[queue.name][1], f"{queue.name} had {state[queue.name]}"
            with self.loop.inside():
                self.engine.unsubscribe(client.consumer)
            self.clients.remove(client)
            self.drop_queue(queue)
        self.calm()
        assert (self.engine.journal.live, self.engine.memory.size) == (0, 0), "and leaves nothing"
        self.complain()
