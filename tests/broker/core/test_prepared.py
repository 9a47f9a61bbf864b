"""Prepared transactions: what they hold is with nobody, after any end of the broker.

What became of it is what the coordinator decides, once.
"""

import asyncio
import contextlib
import logging

import pytest
from engines import Broker, settings
from stored import stored

from broker.core.deletion import QueueInUseError, delete
from broker.core.message import DECIDED, PREPARED, Message
from broker.core.properties import Properties
from broker.core.transactions import Transaction
from broker.core.two_phase import TransactionId, parse_transaction_id
from broker.storage.errors import JournalFailedError
from broker.storage.journal import Journal

ID = TransactionId("n2", 7)
PAGED = settings(max_size_bytes=4_000, page_size_bytes=2_000)


def run(scenario):
    asyncio.run(scenario())


def bodies(broker, queue="q"):
    return [one.message.body.decode() for one in stored(broker.engine, queue, broker.volume)]


async def finish(broker, how):
    """End the transaction in a task: a page may have to be read first."""
    act = broker.engine.commit_prepared if how == "commit" else broker.engine.roll_back_prepared
    ending = asyncio.create_task(act(ID))
    while not ending.done():
        await broker.settle()
    return ending.result()


async def kinds_stored(broker):
    """End the broker cleanly, and return the kinds of the records that it has left."""
    await broker.engine.stop()
    await broker.engine.journal.close()
    journal, recovered = await Journal.open(broker.volume, "journal")
    await journal.close()
    return {record.kind for record in recovered.records}


def prepared_of(client, *texts, refused=(), for_good=()):
    transaction = Transaction()
    transaction.acknowledge([client.delivery(text) for text in texts])
    transaction.refuse([client.delivery(text) for text in refused])
    transaction.refuse([client.delivery(text) for text in for_good], for_good=True)
    return transaction


async def prepared(*texts, groups=(), made_of=None, count=4, **more):
    """A broker with messages 0, 1 ..., of which one consumer got all, and that prepared these."""
    broker = await Broker.start(made_of=made_of)
    client = broker.consume(window=count)
    for number in range(count):
        broker.send(str(number), "g" if number in groups else None)
    await broker.settle()
    done = []
    broker.engine.prepare(ID, prepared_of(client, *texts, **more), lambda: done.append(1))
    assert not done, "answered before it was durable"
    await broker.settle()
    assert done == [1]
    return broker, client


ENDS = {"go on": None, "crash": Broker.crash, "restart": Broker.restart}


async def ended(broker, client, end):
    """The broker after that end, where its consumer is gone in any case."""
    client.leave()
    return broker if ENDS[end] is None else await ENDS[end](broker)


@pytest.mark.parametrize("how", ["commit", "roll back"])
@pytest.mark.parametrize("end", ENDS)
def test_nobody_gets_what_is_prepared_until_it_is_decided(end, how):
    async def scenario():
        broker, client = await prepared("1", "2", groups=(2, 3))
        broker = await ended(broker, client, end)
        late = broker.consume(window=10)
        await broker.settle()
        assert late.texts == ["0"]  # 3 waits for 2, which is of its group
        assert bodies(broker) == ["0", "1", "2", "3"]
        assert await broker.engine.purge("q") == 1
        assert bodies(broker) == ["0", "1", "2"]
        with pytest.raises(QueueInUseError, match="or prepared transactions hold"):
            await delete(broker.engine, "q", remove_consumers=True, remove_messages=True)
        late = broker.consume(window=10)
        assert await finish(broker, how)
        await broker.settle()
        assert late.texts == ([] if how == "commit" else ["1", "2"])
        assert all(is_redelivered for is_redelivered, _ in late.flags)
        if late.texts:
            late.ack(*late.texts)
        await broker.settle()
        assert broker.engine.memory.size == 0
        assert not await finish(broker, how)
        assert not {PREPARED, DECIDED} & await kinds_stored(broker)

    run(scenario)


@pytest.mark.parametrize("end", ENDS)
def test_what_is_rolled_back_is_at_its_old_place(end):
    async def scenario():
        broker, client = await prepared("1", groups=(0, 1, 2, 3))
        broker = await ended(broker, client, end)
        assert await finish(broker, "roll back")
        late = broker.consume(window=10)
        await broker.settle()
        assert late.texts == ["0", "1", "2", "3"]

    run(scenario)


def test_what_was_lined_up_before_its_outcome_was_known_is_at_its_old_place():
    async def scenario():
        broker, client = await prepared("2")
        broker = await ended(broker, client, "crash")
        slow = broker.consume(window=1)
        await broker.settle()
        assert slow.texts == ["0"]
        assert await finish(broker, "roll back")
        for _ in range(4):
            slow.ack(slow.held[0].message.body.decode())
            await broker.settle()
        assert slow.texts == ["0", "1", "2", "3"]

    run(scenario)


@pytest.mark.parametrize("end", ENDS)
def test_refusals_count_when_the_transaction_commits(end):
    async def scenario():
        broker, client = await prepared("0", refused=["1"], for_good=["2"])
        broker = await ended(broker, client, end)
        assert await finish(broker, "commit")
        late = broker.consume(window=10)
        await broker.settle()
        assert late.texts == ["1", "3"]
        assert [one.message.refusals for one in late.got] == [1, 0]
        assert bodies(broker, "DLQ") == ["2"]

    run(scenario)


@pytest.mark.parametrize("how", ["commit", "roll back"])
def test_what_is_prepared_does_not_expire(how):
    async def scenario():
        now = [0.0]
        broker = await Broker.start(made_of=settings(expiry_address=""), clock=lambda: now[0])
        client = broker.consume()
        broker.send("0", properties=Properties(expires=1000))
        await broker.settle()
        broker.engine.prepare(ID, prepared_of(client, "0"))
        await broker.settle()
        broker = await ended(broker, client, "crash")
        now[0] = 2.0
        late = broker.consume()
        await broker.settle()
        assert bodies(broker) == ["0"]
        assert await finish(broker, how)
        await broker.settle()
        assert (late.texts, bodies(broker)) == ([], [])

    run(scenario)


TEXTS = [f"{number:02}" for number in range(90)]


async def prepared_of_pages():
    """A broker with messages 20 to 59, of which the consumer got the first from pages.

    The third and the last that it holds are prepared.
    """
    broker = await Broker.start(made_of=PAGED)
    for text in TEXTS[:60]:
        broker.send(text)
    await paged(broker)
    client = broker.consume(window=12)
    for text in TEXTS[:20]:
        await until(broker, lambda: client.held)
        client.ack(text)
    await until(broker, lambda: len(client.held) == 12)
    texts = [client.held[2].message.body.decode(), client.held[-1].message.body.decode()]
    assert all(client.delivery(text).message.page is not None for text in texts)
    broker.engine.prepare(ID, prepared_of(client, *texts))
    await paged(broker)
    return broker, client, texts


@pytest.mark.parametrize("end", ["crash", "restart"])
@pytest.mark.parametrize("how", ["commit", "roll back"])
def test_what_is_prepared_of_a_page_stays_on_it(end, how):
    """Pages are read before the transaction ends, and no new page gets what is prepared."""

    async def scenario():
        broker, client, texts = await prepared_of_pages()
        broker = await ended(broker, client, end)
        for text in TEXTS[60:]:
            broker.send(text)
        await paged(broker)
        broker = await broker.crash()
        assert sorted(bodies(broker)) == TEXTS[20:]
        assert await finish(broker, how)
        late = broker.consume(window=5)
        left = [text for text in TEXTS[20:] if how == "roll back" or text not in texts]
        for text in left:
            await until(broker, lambda: late.held)
            late.ack(text)
        await paged(broker)
        assert late.texts == left
        assert broker.engine.memory.size == 0
        assert len(broker.engine.queues["q"]) == 0

    run(scenario)


@pytest.mark.parametrize("how", ["commit", "roll back"])
def test_no_page_gets_what_is_prepared(how):
    """Its record says where it is, so it must stay there while all others are paged."""

    async def scenario():
        broker, client = await prepared("0", "12", count=24, made_of=PAGED)
        broker = await ended(broker, client, "crash")
        for number in range(100, 160):
            broker.send(str(number))
        await paged(broker)
        broker.engine.memory.bound = 1  # then pages are cut from anywhere
        broker.engine.paging.relieve()
        await paged(broker)
        broker = await broker.crash()
        assert await finish(broker, how)
        late = broker.consume(window=5)
        numbers = [*range(24), *range(100, 160)]
        left = [str(number) for number in numbers if how == "roll back" or number not in (0, 12)]
        for text in left:
            await until(broker, lambda: late.held)
            late.ack(text)
        await paged(broker)
        assert late.texts == left
        assert broker.engine.memory.size == 0

    run(scenario)


def test_what_is_lined_up_while_its_refusal_is_written_comes_back():
    async def scenario():
        broker, client = await prepared(refused=["1", "3"], groups=(1, 2))
        broker = await ended(broker, client, "crash")
        broker.volume.latency_s = 0.01
        ending = asyncio.create_task(broker.engine.commit_prepared(ID))
        await asyncio.sleep(0)
        late = broker.consume(window=10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert late.texts == ["0"]
        assert await ending
        await broker.settle()
        assert sorted(late.texts) == ["0", "1", "2", "3"]
        assert late.texts.index("1") < late.texts.index("2")

    run(scenario)


def test_a_purge_leaves_what_is_prepared_on_a_page():
    async def scenario():
        broker, client, texts = await prepared_of_pages()
        broker = await ended(broker, client, "crash")
        assert await broker.engine.purge("q") == 38
        assert bodies(broker) == texts
        assert await finish(broker, "roll back")
        late = broker.consume()
        await broker.settle()
        assert late.texts == texts

    run(scenario)


async def until(broker, condition):
    for _ in range(100):
        if condition():
            return
        await paged(broker)
    raise AssertionError("it never comes to that")


async def paged(broker):
    """Return when every page that is worth it was written, and those that are wanted were read."""
    for _ in range(200):
        await broker.engine.journal.flush()
        await asyncio.sleep(0)
        if broker.engine.paging._writer is None and not broker.engine.paging._readers:
            await broker.settle()
            return
    raise AssertionError("pages are written or read for ever")


def test_a_decision_is_in_the_entry_of_its_commit():
    """Wherever the disk fails: both are there after it, or neither."""

    async def scenario(fail_after):
        broker = await Broker.start()
        transaction = Transaction()
        for number in range(3):
            transaction.send("out", Message("out", b"", str(number).encode()))
        id_ = broker.engine.new_transaction_id()
        broker.volume.fail_after = broker.volume.operations + fail_after
        broker.engine.commit(transaction, decision=broker.engine.new_decision(id_, ["n2", "n3"]))
        with contextlib.suppress(JournalFailedError):
            await broker.settle()
        after = await broker.crash()
        decided = dict(after.engine.decided)
        assert bool(decided) == (bodies(after, "out") == ["0", "1", "2"])
        if decided:
            assert decided[id_].homes == ("n2", "n3")
            after.engine.forget_decision(id_)
            after.engine.forget_decision(id_)
            await after.settle()
            assert not (await after.crash()).engine.decided
        return bool(decided)

    outcomes = [asyncio.run(scenario(number)) for number in range(6)]
    assert True in outcomes
    assert False in outcomes


def test_a_repeated_outcome_is_answered_when_the_first_is_durable():
    """The coordinator forgets the transaction then: a crash must not find it prepared."""

    async def scenario():
        broker, _ = await prepared("1")
        broker.engine.gate.hold()
        first = asyncio.create_task(broker.engine.commit_prepared(ID))
        again = asyncio.create_task(broker.engine.commit_prepared(ID))
        await broker.settle()
        assert not first.done()
        assert not again.done()
        broker.engine.gate.release()
        assert (await first, await again) == (True, False)

    run(scenario)


def test_a_start_names_what_is_prepared(caplog):
    async def scenario():
        broker, client = await prepared("1", "2")
        with caplog.at_level(logging.WARNING):
            await ended(broker, client, "crash")
        assert "transaction n2-7 is prepared here: its 2 messages wait" in caplog.text

    run(scenario)


@pytest.mark.parametrize(
    ("text", "id_"),
    [("n2-7", ID), ("a-b-7", TransactionId("a-b", 7)), ("n2", None), ("-7", None), ("n2-x", None)],
)
def test_ids_are_read_as_they_are_shown(text, id_):
    assert parse_transaction_id(text) == id_
    assert id_ is None or str(id_) == text
