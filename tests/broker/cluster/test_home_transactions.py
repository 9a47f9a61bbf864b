"""Transactions over several homes: done at all of them or at none, whatever ends in between."""

import asyncio

import pytest
from conventional import CALL_TIMEOUT_S, TTL_S
from hypothesis import given, settings
from hypothesis import strategies as st
from stateful.machines import CHECKS, factor
from test_home_model import NAMES, STEPS, Walk, rest, run

from broker.core.consumer import Part
from broker.core.message import Message
from broker.core.transactions import Transaction


class Commit:
    """A transaction that takes all that a client holds, and sends one message to its broker."""

    def __init__(self, client, sent, queue="q"):
        self.client = client
        self.broker = client.broker
        self.life = client.broker.lives
        self.texts = list(client.held)
        self.sent = sent
        self.answer = None
        self.transaction = Transaction()
        self.transaction.acknowledge([client.held.pop(text) for text in self.texts])
        headers = b"text:%b\n" % sent.encode()
        self.transaction.send(queue, Message(queue, headers, b""))
        self.parts = self.transaction.take_remote()
        self.commit = self.broker.engine.homes.begin_commit(self.parts)

    @property
    def is_alive(self):
        return self.broker.is_up and self.broker.lives == self.life

    async def finish(self):
        """What a session does: decide, and answer its client, or end with an ERROR."""
        await self.commit.prepared
        if not self.is_alive:
            return
        if self.commit.failure or self.client.is_over:
            self.answer = "rolled back"
            self.commit.roll_back()
            self.broker.engine.roll_back(self.transaction, refused=False)
            self.client.leave()
        else:
            self.commit.commit(self.transaction, self._committed)

    def _committed(self):
        self.answer = "committed"


async def holding(cluster, brokers, host):
    """A client of a broker that holds a message of each."""
    for broker in brokers:
        await broker.send(f"{broker.name}1")
    client = host.consume(window=10)
    await rest()
    assert len(client.held) == len(brokers)
    return client


def left(brokers):
    """What is stored anywhere, and what of transactions has not ended."""
    engines = [broker.engine for broker in brokers]
    open_ = [id_ for engine in engines for id_ in (*engine.prepared.by_id, *engine.decided)]
    return sorted(text for broker in brokers for text in broker.stored()), open_


def test_a_transaction_over_homes_is_done_at_all_of_them():
    async def scenario(cluster, *brokers):
        client = await holding(cluster, brokers, brokers[1])
        one = Commit(client, "b9", "out")
        await one.finish()
        assert not one.answer, "answered before it was durable"
        await rest()
        assert one.answer == "committed"
        assert left(brokers) == ([], [])
        assert brokers[1].stored("out") == ["b9"]
        for broker in brokers:
            await broker.kill()
            await broker.start()
        assert left(brokers) == ([], [])

    run(scenario, "abc")


@pytest.mark.parametrize("who", ["a", "b"])
def test_what_nobody_has_decided_goes_back_when_a_broker_ends(who):
    """Each has prepared; then the coordinator (b) or a home ends, and the client with it."""

    async def scenario(cluster, *brokers):
        a, b, _ = brokers
        client = await holding(cluster, brokers, b)
        one = Commit(client, "b9", "out")
        await one.commit.prepared
        assert not one.commit.failure
        other = cluster.brokers[who]
        await other.kill()
        assert left(brokers)[1]
        if who == "a":
            one.commit.roll_back()
            b.engine.roll_back(one.transaction, refused=False)
            client.leave()
        await rest(1)
        await other.start()
        await rest(2)
        assert left(brokers) == (["a1", "b1", "c1"], [])
        again = a.consume(window=10)
        await rest(3 * TTL_S)
        assert sorted(again.got) == ["a1", "b1", "c1"]

    run(scenario, "abc")


@pytest.mark.parametrize("who", ["a", "b"])
def test_what_is_decided_is_done_when_a_broker_is_back(who):
    async def scenario(cluster, *brokers):
        a, b, _ = brokers
        client = await holding(cluster, brokers, b)
        one = Commit(client, "b9", "out")
        await one.commit.prepared
        cluster.cut("a", "b")
        await one.finish()
        await rest(0.01)
        assert one.answer == "committed", "the client waits for a home that is not needed any more"
        await cluster.brokers[who].kill()
        late = a.consume(window=10) if who == "b" else None
        await rest(4 * TTL_S)
        assert late is None or "a1" not in late.got, "what is prepared is given to another"
        cluster.heal()
        await cluster.brokers[who].start()
        await rest(2 * TTL_S)
        assert left(brokers) == ([], [])
        assert b.stored("out") == ["b9"]

    run(scenario, "abc")


def test_a_home_that_does_not_answer_means_that_it_is_rolled_back_for_certain():
    async def scenario(cluster, *brokers):
        b = brokers[1]
        client = await holding(cluster, brokers, b)
        cluster.cut("b", "a", both=False)
        one = Commit(client, "b9", "out")
        await asyncio.wait_for(one.finish(), CALL_TIMEOUT_S + 1)
        assert one.answer == "rolled back"
        assert one.commit.failure.startswith("broker a has not prepared its part: ")
        cluster.heal()
        late = b.consume(window=10)
        await rest(6 * TTL_S)
        assert sorted(late.got) == ["a1", "b1", "c1"]
        assert left(brokers) == (["a1", "b1", "c1"], [])

    run(scenario, "abc")


def test_a_home_that_does_not_know_a_message_refuses_to_prepare_it():
    async def scenario(cluster, *brokers):
        client = await holding(cluster, brokers, brokers[1])
        for host in brokers[0].model._service._hosts.values():
            host.consumers.clear()
        one = Commit(client, "b9", "out")
        await one.finish()
        assert one.answer == "rolled back"
        assert "broker a has not prepared its part: it may have given the message to" in one.commit.failure
        await rest()
        assert left(brokers) == (["a1", "b1", "c1"], [])

    run(scenario, "abc")


def test_a_host_that_prepares_twice_under_one_number_is_refused_and_loses_no_message():
    async def scenario(cluster, *brokers):
        home, host = brokers[:2]
        client = await holding(cluster, brokers, host)
        settler = next(one for one in Commit(client, "b9").parts if one.name == home.name)
        await home.send("again")
        await rest()
        (id_,) = home.engine.prepared.by_id
        with pytest.raises(OSError, match="is prepared here already"):
            await settler.prepare(id_, Part([client.held["again"]]))
        client.leave()
        last = host.consume(window=9)
        await rest()
        assert "again" in last.got

    run(scenario, "abc")


class TransactionWalk(Walk):
    """A walk in which clients also commit all that they hold."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.commits = []
        self.tries = {}
        """How often each message may have been consumed otherwise."""
        self.tasks = []

    async def take(self, step, *rest):
        holders = [client for client in self.cluster.clients if client.held]
        if step != "commit":
            await super().take(step, *rest)
        elif holders:
            client = holders[rest[0] % len(holders)]
            self.count += 1
            one = Commit(client, f"{client.broker.name}{self.count}")
            self.unknown.update(one.texts)
            self.commits.append(one)
            self.tasks.append(asyncio.create_task(one.finish()))

    def settle(self, client, text, step):
        if step == "ack":
            self.tries[text] = self.tries.get(text, 0) + 1
        super().settle(client, text, step)

    def deliver(self, client, text, delivery):
        for one in self.commits:
            assert one.answer != "committed" or text not in one.texts, f"{text} is delivered after its commit"
            assert one.answer != "rolled back" or text != one.sent, f"{text} was sent by what was rolled back"
        super().deliver(client, text, delivery)

    async def drain(self):
        delivered = set()
        on_deliver = self.cluster.on_deliver

        def note(client, text, delivery):
            delivered.add(text)
            on_deliver(client, text, delivery)

        self.cluster.on_deliver = note
        self.seen = delivered
        await super().drain()
        for task in self.tasks:
            task.cancel()
        assert left(self.cluster.brokers.values())[1] == []


def walk(steps):
    async def scenario(cluster, *_):
        one = TransactionWalk(cluster)
        ever = set()
        on_deliver = cluster.on_deliver

        def note(client, text, delivery):
            ever.add(text)
            on_deliver(client, text, delivery)

        cluster.on_deliver = note
        for step in steps:
            await one.take(*step)
        await one.drain()
        for commit in one.commits:
            is_done = commit.sent in ever | one.seen
            assert commit.answer != "committed" or is_done, f"{commit.sent} is lost"
            others = {text for other in one.commits if other is not commit for text in other.texts}
            for text in commit.texts:
                if is_done:
                    assert text not in one.seen, f"{text} is delivered, and its transaction was done"
                elif text not in others and not one.tries.get(text):
                    assert text in one.seen, f"{text} is lost, and its transaction was not done"

    run(scenario, NAMES, max_delivery_attempts=-1)


COMMIT = st.tuples(st.just("commit"), st.integers(0, 9))
START = [(step, name, *more) for name in NAMES for step, *more in [("send", None), ("consume",)]]


@settings(max_examples=40 * factor(), deadline=None, suppress_health_check=CHECKS)
@given(st.lists(st.one_of(STEPS, COMMIT, COMMIT), max_size=40))
def test_a_transaction_is_all_or_nothing_whatever_happens(steps):
    walk([*START, ("pass", 0.3), *steps])
