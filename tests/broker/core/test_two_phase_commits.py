"""Transactions over several brokers, with drawn crashes, losses, repeats and cut links.

Whatever happens: each is done everywhere or nowhere, its client was told nothing else, nobody gets
what is prepared, and when all brokers are back nothing of it is left but its messages.
"""

import asyncio
import random

import pytest
from engines import Broker, settings
from share import OPTION, chosen
from stateful.virtual_loop import VirtualLoop
from stored import stored

from broker.cluster.coordinator import Coordinator
from broker.cluster.in_doubt import InDoubt
from broker.core.engine import DemotedError, Engine
from broker.core.message import DECIDED, PREPARED, Message
from broker.core.transactions import Transaction
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume

NODES = ("n1", "n2", "n3")
SEEDS = range(120)
TRANSACTIONS = 8
TIMEOUT_S = 1.0
CHAOS_S = 8.0


class Network:
    """Carries calls between brokers; as long as ``is_wild`` it loses, delays and repeats them."""

    def __init__(self, chance):
        self.chance = chance
        self.nodes = {}
        self.is_wild = True
        self.cut = set()
        self.tasks = []

    async def call(self, sender, node_id, name, *arguments):
        """Return what the other broker answers, or raise OSError, or never return."""
        await self._travel(sender.node_id, node_id)
        receiver = self.nodes[node_id]
        if self.is_wild and self.chance.random() < 0.2:
            self.tasks.append(asyncio.create_task(self._repeat(receiver, name, arguments)))
        if receiver.broker is None:
            raise OSError("not linked")
        answer = asyncio.create_task(getattr(receiver, name)(*arguments))
        self.tasks.append(answer)
        result = await asyncio.shield(answer)
        await self._travel(node_id, sender.node_id)
        return result

    async def _travel(self, sender, receiver):
        if not self.is_wild:
            return
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        if frozenset((sender, receiver)) in self.cut or self.chance.random() < 0.1:
            if self.chance.random() < 0.5:
                raise OSError("the link is lost")
            await asyncio.get_running_loop().create_future()

    async def _repeat(self, receiver, name, arguments):
        await asyncio.sleep(self.chance.uniform(0, 2))
        if receiver.broker is not None:
            await getattr(receiver, name)(*arguments)


class Node:
    """A broker that coordinates and takes part, from one crash to the next."""

    def __init__(self, node_id, network, chance):
        self.node_id = self.name = node_id
        self.network = network
        self.chance = chance
        self.volume = MemoryVolume(latency_s=0.1, chance=chance)
        self.broker = None
        self.outcomes = {}

    async def start(self):
        broker = await Broker.start(self.volume, settings(self.node_id), seed=self.chance.random())
        engine = broker.engine
        self.coordinator = Coordinator(engine, self._tell, TIMEOUT_S)
        self.in_doubt = InDoubt(engine, self._ask, TIMEOUT_S)
        self.client = broker.consume(window=1000)
        self.client.consumer.deliver = self._deliver
        self.broker = broker

    def _deliver(self, delivery):
        prepared = self.client.engine.prepared.by_id.values()
        taken = [one.message.id for each in prepared for one in each.transaction.acknowledged]
        assert delivery.message.id not in taken, "a client gets what is prepared"

    async def crash(self):
        broker, self.broker = self.broker, None
        self.coordinator.stop()
        self.in_doubt.stop()
        broker.engine.abandon()
        self.volume.crash(self.chance)
        await broker.engine.journal.close()

    async def _tell(self, node_id, id_, commits):
        await self.network.call(self, node_id, "told", id_, commits)

    async def _ask(self, id_):
        return await self.network.call(self, id_.coordinator, "asked", id_)

    # ---- what others ask

    async def prepare(self, id_, text):
        engine = self.broker.engine
        if id_ in engine.prepared.by_id:
            await engine.flushed()
            return
        held = [one for one in self.client.held if one.message.body.decode() == text]
        if not held:
            raise OSError("the message is not held")
        transaction = Transaction()
        transaction.acknowledge(held)
        durable = asyncio.get_running_loop().create_future()
        engine.prepare(id_, transaction, lambda: durable.done() or durable.set_result(None))
        await durable

    async def told(self, id_, commits):
        await self.in_doubt.end(id_, commits=commits)

    async def asked(self, id_):
        return self.coordinator.outcome(id_)


class Part:
    """The part of a transaction at another broker; see ``Participant``."""

    def __init__(self, sender, node_id, text):
        self.sender = sender
        self.node_id = self.name = node_id
        self.text = text

    async def prepare(self, id_):
        await self.sender.network.call(self.sender, self.node_id, "prepare", id_, self.text)

    def give_back(self):
        pass  # the other broker's own consumer still holds what is not prepared


class Run:
    """One run: transactions of clients at drawn brokers, while all goes wrong."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.network = Network(self.chance)
        for node_id in NODES:
            self.network.nodes[node_id] = Node(node_id, self.network, self.chance)
        self.answers = {}

    async def run(self):
        nodes = self.network.nodes.values()
        for node in nodes:
            await node.start()
            for number in range(TRANSACTIONS):
                node.broker.send(f"{number}")
            await node.broker.engine.journal.flush()
        clients = [asyncio.create_task(self.client(number)) for number in range(TRANSACTIONS)]
        chaos = [asyncio.create_task(self.crashes()), asyncio.create_task(self.cuts())]
        await asyncio.gather(*clients, *chaos)
        self.network.is_wild = False
        for node in nodes:
            if node.broker is None:
                await node.start()
        await asyncio.sleep(10 * TIMEOUT_S)
        return [self.check(number) for number in range(TRANSACTIONS)]

    async def crashes(self):
        while asyncio.get_running_loop().time() < CHAOS_S:
            await asyncio.sleep(self.chance.uniform(0, 2))
            node = self.network.nodes[self.chance.choice(NODES)]
            await node.crash()
            await asyncio.sleep(self.chance.uniform(0, 2))
            await node.start()

    async def cuts(self):
        while asyncio.get_running_loop().time() < CHAOS_S:
            await asyncio.sleep(self.chance.uniform(0, 2))
            self.network.cut.add(frozenset(self.chance.sample(NODES, 2)))
            await asyncio.sleep(self.chance.uniform(0, 1))
            self.network.cut.clear()

    async def client(self, number):
        """Take message ``number`` of each broker, and send one, in one transaction."""
        await asyncio.sleep(self.chance.uniform(0, CHAOS_S))
        node = self.network.nodes[self.chance.choice(NODES)]
        while node.broker is None:
            await asyncio.sleep(0.1)
        broker, text = node.broker, str(number)
        transaction = Transaction()
        held = [one for one in node.client.held if one.message.body.decode() == text]
        if not held:
            return  # it has just started, and is yet to deliver
        transaction.acknowledge(held)
        transaction.send("out", Message("out", b"", text.encode()))
        commit = node.coordinator.begin([Part(node, other, text) for other in NODES if other != node.node_id])
        leaves_after_s = self.chance.choice([None, None, None, 0.05, 0.2])
        await asyncio.wait([commit.prepared], timeout=leaves_after_s)
        if node.broker is not broker:
            return
        if commit.prepared.done() and not commit.failure:
            node.coordinator.commit(commit, transaction, lambda: self.answers.update({number: True}))
        else:
            if commit.prepared.done():
                self.answers[number] = False
            node.coordinator.roll_back(commit)
            broker.engine.roll_back(transaction, refused=False)

    def check(self, number):
        """Return whether a transaction has committed; all of it must have, or nothing."""
        nodes = self.network.nodes.values()
        text = str(number)
        sent = [node for node in nodes for one in stored(node.broker.engine, "out") if body(one) == text]
        left = [node for node in nodes for one in stored(node.broker.engine, "q") if body(one) == text]
        assert (len(sent), len(left)) in ((1, 0), (0, len(NODES))), f"{number}: {sent} {left}"
        assert self.answers.get(number, bool(sent)) == bool(sent), "its client was told something else"
        return bool(sent)

    async def end(self):
        """Nothing but messages is left."""
        for node in self.network.nodes.values():
            engine = node.broker.engine
            assert not engine.prepared.by_id
            assert not engine.decided
            node.coordinator.stop()
            node.in_doubt.stop()
            await engine.stop()
            await engine.journal.close()
            journal, recovered = await Journal.open(node.volume, "journal")
            await journal.close()
            assert not {PREPARED, DECIDED} & {record.kind for record in recovered.records}


def body(one):
    return one.message.body.decode()


def drawn(seed):
    """Run with that seed, and return which transactions have committed."""
    loop = VirtualLoop()
    run = Run(seed)

    async def whole():
        outcomes = await run.run()
        await run.end()
        return outcomes

    try:
        outcomes = loop.run(whole())
        for task in run.network.tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                expected = (OSError, DemotedError, JournalError)
                assert isinstance(task.exception(), expected), task.exception()
        assert not loop.complaints
        return outcomes
    finally:
        loop.discard()


def test_a_transaction_over_several_brokers_is_all_or_nothing(pytestconfig):
    outcomes = [outcome for seed in chosen(pytestconfig.getoption(OPTION), SEEDS) for outcome in drawn(seed)]
    assert True in outcomes
    assert False in outcomes


def found():
    """Is something wrong in one of these runs?"""
    try:
        for seed in SEEDS:
            drawn(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.in_turn
def test_a_coordinator_that_forgets_what_is_under_way_is_found(monkeypatch):
    monkeypatch.setattr(
        Coordinator,
        "outcome",
        lambda self, id_: "committed" if id_ in self._engine.decided else "rolled back",
    )
    assert found()


@pytest.mark.in_turn
def test_a_participant_that_answers_before_its_commit_is_durable_is_found(monkeypatch):
    async def at_once(_):
        pass

    monkeypatch.setattr(Engine, "flushed", at_once)
    assert found()


@pytest.mark.in_turn
@pytest.mark.parametrize(("part", "name"), [(InDoubt, "_look"), (Coordinator, "_tell_until_done")])
def test_a_broker_that_never_asks_or_tells_is_found(monkeypatch, part, name):
    async def never(*_):
        pass

    monkeypatch.setattr(part, name, never)
    assert found()


class Answer:
    """A participant that answers so: with an error, never (None), or that it has prepared ("")."""

    def __init__(self, node_id, answer):
        self.node_id = self.name = node_id
        self.answer = answer

    async def prepare(self, _):
        if self.answer is None:
            await asyncio.get_running_loop().create_future()
        elif self.answer:
            raise OSError(self.answer)

    def give_back(self):
        pass


def test_a_commit_that_is_rolled_back_at_once_leaves_nothing():
    async def scenario():
        broker = await Broker.start()
        one = Coordinator(broker.engine, never_told, 1.0)
        commit = one.begin([Answer("n2", None)])
        one.roll_back(commit)
        await commit.prepared
        assert commit.failure
        assert one.outcome(commit.id) == "rolled back"
        assert not one._preparing
        one.stop()

    asyncio.run(scenario())


async def never_told(*_):
    raise OSError("not linked")


@pytest.mark.parametrize(
    ("answers", "failure"),
    [
        (["", ""], ""),
        (["", "the disk is full"], "broker n3 has not prepared its part: the disk is full"),
        ([None, "gone"], "broker n3 has not prepared its part: gone"),
        ([None, ""], "broker n2 has not prepared its part: it has not answered within 0.01 s"),
    ],
)
def test_who_has_not_prepared_is_named_and_all_are_told(answers, failure):
    async def scenario():
        broker = await Broker.start()
        told = []

        async def tell(*what):
            told.append(what)

        one = Coordinator(broker.engine, tell, 0.01)
        commit = one.begin([Answer(f"n{2 + place}", answer) for place, answer in enumerate(answers)])
        assert one.outcome(commit.id) == "open"
        await commit.prepared
        assert commit.failure == failure
        if not failure:
            one.commit(commit, Transaction())
            assert one.outcome(commit.id) == "open"  # until it is durable
        await broker.settle()
        assert one.outcome(commit.id) == "rolled back"  # or all have committed, and nobody asks
        assert sorted(told) == [("n2", commit.id, not failure), ("n3", commit.id, not failure)]
        one.stop()

    asyncio.run(scenario())
