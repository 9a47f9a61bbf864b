"""Topics and their subscriptions in the engine: who gets what, and what survives which crash."""

import asyncio
import functools

import pytest
from engines import Broker, Client, settings
from stored import stored

from broker.core.deletion import delete
from broker.core.message import CLAIMED, DROPPED, MESSAGE, SUBSCRIPTION, Message, encode
from broker.core.selector import Selector
from broker.core.subscription import Subscription, SubscriptionInUseError, encode_subscription
from broker.core.transactions import Transaction
from broker.storage.entry import ADD, DELETE, UPDATE, Operation
from broker.storage.journal import Recovered
from broker.storage.records import Record

TOPIC = "/topic/prices"
FAR = 1_000_000
"""Ids of another broker's records, in the same store."""


def scenario(test):
    """A test that runs in a loop of its own."""

    @functools.wraps(test)
    def run(*arguments, **more):
        asyncio.run(test(*arguments, **more))

    return run


def durable(name="s", client="c", topic="prices", **more):
    return Subscription(topic, name, client, durable=True, **more)


def shared(name="s", topic="prices"):
    return Subscription(topic, name, shared=True, durable=True)


def transient(name="1"):
    return Subscription("prices", name)


def publish(broker, *texts, done=None, **more):
    for text in texts:
        broker.engine.send(TOPIC, Message(TOPIC, b"destination:/topic/prices\n", text.encode(), **more), done)


def bind(broker, subscription):
    return broker.engine.bind(subscription)


def texts(broker, subscription):
    """What waits in the subscription's queue."""
    return [one.message.body.decode() for one in stored(broker.engine, subscription.queue, broker.volume)]


def entries(broker):
    """The entries appended from now on, as lists of operations."""
    journal, seen = broker.engine.journal, []
    append = journal.append

    def watched(operations):
        seen.append([(one.action, one.kind) for one in operations])
        return append(operations)

    journal.append = watched
    return seen


@scenario
async def test_each_subscription_gets_what_is_sent_after_it_was_made():
    broker = await Broker.start()
    publish(broker, "nobody's")
    bind(broker, durable("one"))
    publish(broker, "1")
    bind(broker, durable("two"))
    publish(broker, "2")
    await broker.settle()
    assert texts(broker, durable("one")) == ["1", "2"]
    assert texts(broker, durable("two")) == ["2"]


@scenario
async def test_a_send_is_one_entry_for_all_subscriptions_and_none_for_nobody():
    broker = await Broker.start()
    seen = entries(broker)
    answered = []
    publish(broker, "0", done=lambda: answered.append("0"))
    assert (seen, answered) == ([], [])
    for name in "abc":
        bind(broker, durable(name))
    del seen[:]
    publish(broker, "1", done=lambda: answered.append("1"))
    assert seen == [[(ADD, MESSAGE)] * 3]
    await broker.settle()
    assert answered == ["0", "1"]


@scenario
async def test_a_message_is_tested_once_for_all_subscriptions_with_one_selector(monkeypatch):
    tests = []
    matches = Selector.matches
    monkeypatch.setattr(
        Selector, "matches", lambda self, headers: tests.append(self.text) or matches(self, headers)
    )
    broker = await Broker.start()
    bind(broker, durable("all"))
    for number in range(20):
        bind(broker, durable(f"x{number}", selector="color = 'red'"))
        bind(broker, durable(f"y{number}", selector="(color='red')"))
        bind(broker, durable(f"z{number}", selector="color = 'blue'"))
    broker.engine.send(TOPIC, Message(TOPIC, b"color:red\n", b"1"))
    assert len(tests) == 2
    await broker.settle()
    assert (
        texts(broker, durable("all"))
        == texts(broker, durable("x0"))
        == texts(broker, durable("y19"))
        == ["1"]
    )
    assert texts(broker, durable("z0")) == []


@scenario
async def test_a_commit_takes_the_subscriptions_there_are_then_in_its_one_entry():
    broker = await Broker.start()
    transaction = Transaction()
    transaction.send(TOPIC, Message(TOPIC, b"", b"1"))
    transaction.send("q", Message("q", b"", b"2"))
    bind(broker, durable("a"))
    bind(broker, durable("b"))
    broker.engine.queue("q")
    seen = entries(broker)
    broker.engine.commit(transaction)
    assert seen == [[(ADD, MESSAGE)] * 3]
    await broker.settle()
    assert texts(broker, durable("a")) == texts(broker, durable("b")) == ["1"]


@scenario
async def test_what_a_durable_subscription_has_survives_a_crash_and_others_are_gone():
    broker = await Broker.start()
    bind(broker, durable())
    bind(broker, shared("everybody"))
    bind(broker, transient())
    broker.engine.queue("/remote-temp-queue/n1.x-1")
    publish(broker, "1", "2")
    broker.engine.send("/remote-temp-queue/n1.x-1", Message("", b"", b"reply"))
    await broker.settle()
    broker = await broker.crash()
    assert sorted(broker.engine.queues) == [durable().queue, shared("everybody").queue]
    assert texts(broker, durable()) == ["1", "2"]
    publish(broker, "3")
    await broker.settle()
    assert texts(broker, shared("everybody")) == ["1", "2", "3"]
    size = sum(queue.size for queue in broker.engine.queues.values())
    assert broker.engine.memory.size == size, "nothing is kept of what was dropped"
    assert broker.engine.journal.live == 2 + 2 * 3


@scenario
async def test_messages_are_each_subscriptions_own():
    broker = await Broker.start()
    a = Client(broker.engine, bind(broker, durable("a")).name)
    b = Client(broker.engine, bind(broker, durable("b")).name)
    publish(broker, "1", "2")
    await broker.settle()
    a.ack("1", "2")
    b.nack("1")
    await broker.settle()
    assert (a.held, b.texts) == ([], ["1", "2", "1"])
    assert b.flags[-1] == (True, 2)
    broker = await broker.crash()
    assert (texts(broker, durable("a")), texts(broker, durable("b"))) == ([], ["1", "2"])


@pytest.mark.parametrize("backlog", [0, 3, 1000], ids=["empty", "few", "several slices"])
@scenario
async def test_a_name_that_is_made_again_is_empty_however_the_old_one_ends(backlog):
    broker = await Broker.start()
    old = bind(broker, durable())
    publish(broker, *map(str, range(backlog)))
    await broker.settle()
    broker.engine.drop(old)
    new = bind(broker, durable())
    assert new is not old
    publish(broker, "new")
    await broker.engine.flushed()
    assert texts(broker, durable()) == ["new"]
    for _ in range(20):
        await broker.settle()
    assert texts(broker, durable()) == ["new"]
    assert broker.engine.memory.size == new.size
    assert broker.engine.journal.live == 2
    broker = await broker.crash()
    assert texts(broker, durable()) == ["new"]


@scenario
async def test_a_start_goes_on_dropping_where_a_crash_left_off():
    broker = await Broker.start()
    bind(broker, durable())
    publish(broker, *map(str, range(600)))
    await broker.settle()
    broker.engine.drop(broker.engine.topics.named(durable().key))
    bind(broker, durable())
    await broker.engine.journal.flush()  # the drop, and perhaps a slice
    broker = await broker.crash()
    assert texts(broker, durable()) == []
    for _ in range(20):
        await broker.settle()
    assert broker.engine.journal.live == 1
    assert broker.engine.memory.size == 0


@scenario
async def test_a_drop_is_told_in_the_journal_before_anything_is_removed():
    broker = await Broker.start()
    queue = bind(broker, durable())
    publish(broker, "1")
    await broker.settle()
    seen = entries(broker)
    broker.engine.drop(queue)
    assert seen == [[(UPDATE, DROPPED)]]
    for _ in range(5):
        await broker.settle()
    assert seen == [[(UPDATE, DROPPED)], [(DELETE, MESSAGE)], [(DELETE, SUBSCRIPTION)]]


@scenario
async def test_crashes_after_every_entry_leave_all_or_nothing():
    """The journal of a whole story, cut after each of its entries."""
    for cut in range(1, 30):
        broker = await Broker.start()
        journal = broker.engine.journal
        append, written = journal.append, []

        def recorded(operations, append=append, written=written):
            written.append(list(operations))
            return append(operations)

        journal.append = recorded
        bind(broker, durable("a"))
        b = bind(broker, durable("b"))
        publish(broker, "1", "2")
        await broker.settle()
        broker.engine.drop(b)
        bind(broker, durable("b"))
        publish(broker, "3")
        bind(broker, durable("a", selector=""))
        for _ in range(5):
            await broker.settle()
        kept = written[:cut]
        other = await Broker.start()
        for operations in kept:
            other.engine.journal.append(operations)
        await other.engine.journal.flush()
        other = await other.crash()
        a, b = durable("a"), durable("b")
        there = {name: texts(other, name) for name in (a, b) if name.queue in other.engine.queues}
        assert there.get(a, []) in ([], ["1"], ["1", "2"], ["1", "2", "3"])
        assert there.get(b, []) in ([], ["1"], ["1", "2"], ["3"])
        if ("3" in there.get(a, [])) or ("3" in there.get(b, [])):
            assert there == {a: ["1", "2", "3"], b: ["3"]}
        elif b in there:
            assert there[b] in (there[a], []), "both or neither"
        if cut >= len(written):
            assert there == {a: ["1", "2", "3"], b: ["3"]}
            return
    raise AssertionError("the story has more entries than were tried")


@scenario
async def test_another_topic_under_the_same_name_begins_anew(caplog):
    broker = await Broker.start()
    old = bind(broker, durable())
    publish(broker, "1", "2")
    await broker.settle()
    consumer = Client(broker.engine, old.name)
    with pytest.raises(SubscriptionInUseError, match="has a consumer"):
        bind(broker, durable(topic="news"))
    consumer.leave()
    seen = entries(broker)
    bind(broker, durable(topic="news"))
    assert seen == [[(UPDATE, DROPPED), (ADD, SUBSCRIPTION)]], "a crash finds the one or the other"
    assert "its 2 waiting messages are deleted" in caplog.text
    publish(broker, "3")
    for _ in range(5):
        await broker.settle()
    assert texts(broker, durable(topic="news")) == []
    assert old.name not in broker.engine.queues


@scenario
async def test_what_a_transaction_holds_of_a_dropped_subscription_goes_when_it_ends():
    for commits in (True, False):
        broker = await Broker.start()
        queue = bind(broker, durable())
        client = Client(broker.engine, queue.name)
        publish(broker, "1", "2", group="g")
        await broker.settle()
        transaction = Transaction()
        transaction.acknowledge([client.delivery("1")])
        client.leave()
        broker.engine.drop(queue)
        for _ in range(5):
            await broker.settle()
        assert broker.engine.journal.live == 2, "its record, and the message that is held"
        if commits:
            broker.engine.commit(transaction)
        else:
            broker.engine.roll_back(transaction)
        for _ in range(5):
            await broker.settle()
        assert (broker.engine.journal.live, broker.engine.memory.size) == (0, 0)


@scenario
async def test_what_was_on_its_way_when_a_subscription_was_dropped_goes_too():
    broker = await Broker.start()
    queue = bind(broker, durable())
    publish(broker, "1")
    broker.engine.drop(queue)  # the message is not durable yet
    for _ in range(5):
        await broker.settle()
    assert (broker.engine.journal.live, broker.engine.memory.size) == (0, 0)


@scenario
async def test_a_full_subscription_stops_those_who_send_to_its_topic():
    broker = await Broker.start(made_of=settings(max_size_bytes=600, address_full_policy="BLOCK"))
    queue = bind(broker, durable("slow"))
    bind(broker, durable("other"))
    called = []
    publish(broker, "1", "2", "3")
    assert broker.engine.memory.is_full(TOPIC)
    broker.engine.memory.wait(TOPIC, lambda: called.append(True))
    await broker.settle()
    fast = Client(broker.engine, durable("other").queue)
    await broker.settle()
    fast.ack("1", "2", "3")
    await broker.settle()
    assert not called, "the slow one is full still"
    broker.engine.drop(queue)
    for _ in range(3):
        await broker.settle()
    assert called
    assert not broker.engine.memory.is_full("/topic/of-nobody")


@scenario
async def test_a_slow_subscription_pages():
    made_of = settings(max_size_bytes=8192, page_size_bytes=2048)
    broker = await Broker.start(made_of=made_of)
    bind(broker, durable())
    publish(broker, *map(str, range(200)))
    for _ in range(20):
        await broker.settle()
    assert broker.engine.status([durable().queue])[0].paged
    broker = await broker.crash()
    client = Client(broker.engine, durable().queue, auto=True)
    for _ in range(100):
        await broker.settle()
    assert client.texts == [str(n) for n in range(200)]


@scenario
async def test_a_dropped_subscriptions_pages_are_removed():
    broker = await Broker.start(made_of=settings(max_size_bytes=8192, page_size_bytes=2048))
    queue = bind(broker, durable())
    publish(broker, *map(str, range(200)))
    for _ in range(20):
        await broker.settle()
    assert [path for path in broker.volume.image() if "paging/" in path]
    broker.engine.drop(queue)
    for _ in range(20):
        await broker.settle()
    assert (broker.engine.journal.live, broker.engine.memory.size) == (0, 0)
    assert not [path for path in broker.volume.image() if "paging/" in path]


@scenario
async def test_a_subscription_has_what_its_selector_wants_and_survives_with_it():
    broker = await Broker.start()
    long = " OR ".join(f"n = '{n}'" for n in range(300))
    wants = {"all": "", "some": "n = '1'", "long": long, "none": "n = 1"}
    for name, selector in wants.items():
        bind(broker, durable(name, selector=selector))
    for n in range(3):
        message = Message(TOPIC, b"n:%d\n" % n, b"%d" % n)
        broker.engine.send(TOPIC, message)
    await broker.settle()
    broker = await broker.crash()
    transaction = Transaction()
    transaction.send(TOPIC, Message(TOPIC, b"n:1\n", b"3"))
    broker.engine.commit(transaction)
    await broker.settle()
    found = {name: texts(broker, durable(name)) for name in wants}
    assert found == {"all": ["0", "1", "2", "3"], "some": ["1", "3"], "long": found["all"], "none": []}


@scenario
async def test_a_dead_letter_says_which_subscription_gave_up():
    broker = await Broker.start(made_of=settings(max_delivery_attempts=1))
    client = Client(broker.engine, bind(broker, durable()).name)
    publish(broker, "1")
    await broker.settle()
    client.nack("1")
    await broker.settle()
    (dead,) = stored(broker.engine, "DLQ", broker.volume)
    assert b"_AMQ_ORIG_QUEUE:/topic/prices\\c\\cc.s\n" in dead.message.headers
    assert b"_AMQ_ORIG_ADDRESS:/topic/prices\n" in dead.message.headers


@scenario
async def test_an_administrator_deletes_a_subscription_and_is_told_of_its_topic():
    broker = await Broker.start()
    queue = bind(broker, durable())
    publish(broker, "1")
    await broker.settle()
    (status,) = broker.engine.status()
    assert (status.name, status.store, status.topic) == (queue.name, "main", "prices")
    browsing = broker.engine.browse(queue.name)
    (told,) = [one async for one in browsing]
    assert (told.queue, told.holder, told.topic) == (queue.name, queue.name, "prices")
    assert await delete(broker.engine, queue.name, remove_messages=True) == 1
    publish(broker, "2")
    await broker.settle()
    broker = await broker.crash()
    assert (broker.engine.queues, broker.engine.journal.live) == ({}, 0)


@scenario
async def test_a_temporary_queue_that_is_gone_takes_nothing():
    broker = await Broker.start()
    queue = broker.engine.queue("/remote-temp-queue/n1.x-1")
    broker.engine.send(queue.name, Message(queue.name, b"", b"1"))
    await broker.settle()
    broker.engine.drop(queue)
    answered = []
    broker.engine.send(queue.name, Message(queue.name, b"", b"2"), lambda: answered.append(True))
    for _ in range(5):
        await broker.settle()
    assert answered
    assert (broker.engine.journal.live, broker.engine.memory.size) == (0, 0)


@scenario
async def test_no_two_subscriptions_have_one_queue():
    names = [
        Subscription("t", "b", "a", durable=True),
        Subscription("t", "a.b", shared=True, durable=True),
        Subscription("t", "b"),
        Subscription("t", ".b", shared=True, durable=True),
        Subscription("t", "\\.b", shared=True, durable=True),
        Subscription("t", "c", "a.b", durable=True),
        Subscription("t", "b.c", "a", durable=True),
        Subscription("t", "c", "b", durable=True, login="a"),
        Subscription("t", "c", "b", durable=True),
        Subscription("t", "c", "a.b", durable=True, login="a"),
        Subscription("t", "b.c", "b", durable=True, login="a"),
        Subscription("t", "c", "b", durable=True, login="a.b"),
    ]
    assert len({one.queue for one in names}) == len(names)
    assert names[0].queue == "/topic/t::a.b"
    assert names[5].queue == "/topic/t::a\\.b.c"


@scenario
async def test_subscriptions_of_a_broker_that_is_taken_over_become_one_with_ours(caplog):
    ours = await Broker.start()
    bind(ours, durable("same"))
    moved = bind(ours, durable("moved", topic="news"))
    publish(ours, "o1")
    await ours.settle()
    theirs = [
        Record(FAR + n, SUBSCRIPTION, encode_subscription(one))
        for n, one in enumerate([durable("same"), durable("other"), durable("moved"), transient()])
    ]
    theirs += [
        Record(FAR + 10 * n + place, MESSAGE, encode(Message(TOPIC, b"", f"t{n}".encode()), FAR + place))
        for n in (1, 2)
        for place in range(4)
    ]
    for record in theirs:  # the rows of one store
        ours.engine.journal.append([Operation(ADD, record.kind, record.id, record.data)])
    ours.engine.adopt(Recovered(theirs))
    for _ in range(5):
        await ours.settle()
    assert texts(ours, durable("same")) == ["o1", "t1", "t2"]
    assert texts(ours, durable("other")) == ["t1", "t2"]
    assert ours.engine.topics.named(durable("moved").key) is moved
    assert (
        "'moved' of client 'c' to topic 'prices' with selector '', which this broker took over" in caplog.text
    )
    assert "is deleted with its 2 messages" in caplog.text
    publish(ours, "o2")
    await ours.settle()
    assert texts(ours, durable("same")) == ["o1", "t1", "t2", "o2"]
    assert texts(ours, durable("other")) == ["t1", "t2", "o2"]
    names = sorted(one.queue for one in (durable("same"), durable("other"), durable("moved", topic="news")))
    ours = await ours.crash()
    assert sorted(ours.engine.queues) == names
    assert sorted(texts(ours, durable("same"))) == ["o1", "o2", "t1", "t2"]
    ours.engine.drop(ours.engine.topics.named(durable("same").key))
    for _ in range(5):
        await ours.settle()
    ours = await ours.crash()
    assert sorted(ours.engine.queues) == [name for name in names if name != durable("same").queue], (
        "both records of it are gone"
    )


OLD_RECORD = b'{"topic":"prices","name":"s","client":"c","selector":"","shared":false,"durable":true}'
"""A durable subscription as brokers stored it that knew no logins."""


async def with_old_record(*bodies):
    """A broker that has started on the store of one that knew no logins."""
    broker = await Broker.start()
    holder = broker.engine.journal.next_id()
    broker.engine.journal.append([Operation(ADD, SUBSCRIPTION, holder, OLD_RECORD)])
    for body in bodies:
        message = encode(Message(TOPIC, b"", body.encode()), holder)
        broker.engine.journal.append([Operation(ADD, MESSAGE, broker.engine.journal.next_id(), message)])
    await broker.engine.journal.flush()
    return await broker.crash()


def test_where_nobody_logs_in_records_are_as_they_were():
    assert encode_subscription(durable()) == OLD_RECORD
    assert b'"login":"alice"' in encode_subscription(durable(login="alice"))


@scenario
async def test_two_logins_with_one_client_and_name_have_a_subscription_each():
    broker = await Broker.start()
    logins = ("alice", "eve", "")
    for login in logins:
        bind(broker, durable(login=login))
        publish(broker, f"after {login}")
    await broker.settle()
    bind(broker, durable(login="eve", topic="news"))
    await broker.settle()
    broker = await broker.crash()
    assert texts(broker, durable(login="alice")) == ["after alice", "after eve", "after "]
    assert texts(broker, durable()) == ["after "]
    assert {one.key for one in broker.engine.topics.durable} == {durable(login=one).key for one in logins}


@pytest.mark.parametrize("ends", ["crash", "restart"])
@scenario
async def test_a_subscription_of_an_old_store_becomes_a_logins_with_what_waits(ends, caplog):
    broker = await with_old_record("1", "2")
    queue = broker.engine.topics.named(durable().key)
    assert queue.subscription.is_unclaimed
    seen = entries(broker)
    broker.engine.claim(queue, "alice")
    assert seen == [[(UPDATE, CLAIMED)]]
    assert "now belongs to user 'alice', with its 2 messages" in caplog.text
    mine = durable(login="alice")
    assert bind(broker, mine) is queue
    assert queue.name == mine.queue
    publish(broker, "3")
    await broker.settle()
    for _ in range(2):
        broker = await getattr(broker, ends)()
        assert list(broker.engine.queues) == [mine.queue]
        assert texts(broker, mine) == ["1", "2", "3"]
    bind(broker, durable())
    assert texts(broker, durable()) == [], "who comes without a login gets nothing of it"


@scenario
async def test_a_subscription_of_two_old_stores_is_claimed_with_the_records_of_both():
    broker = await with_old_record("1")
    theirs = [
        Record(FAR, SUBSCRIPTION, OLD_RECORD),
        Record(FAR + 1, MESSAGE, encode(Message(TOPIC, b"", b"2"), FAR)),
    ]
    broker.engine.journal.append([Operation(ADD, one.kind, one.id, one.data) for one in theirs])
    broker.engine.adopt(Recovered(theirs))
    broker.engine.claim(broker.engine.topics.named(durable().key), "alice")
    assert broker.engine.topics.owned(durable(login="alice")) == 1
    assert broker.engine.topics.owned(durable()) == 0
    await broker.settle()
    for _ in range(2):
        broker = await broker.crash()
        assert [one.login for one in broker.engine.topics.durable] == ["alice"]
        assert texts(broker, durable(login="alice")) == ["1", "2"]


@scenario
async def test_a_claimed_subscription_is_dropped_as_any_other():
    broker = await with_old_record("1")
    queue = broker.engine.topics.named(durable().key)
    broker.engine.claim(queue, "alice")
    broker.engine.drop(queue)
    for _ in range(5):
        await broker.settle()
    broker = await broker.crash()
    assert (broker.engine.queues, broker.engine.journal.live) == ({}, 0)


OWNERS = {
    "ours had no login": (("",), ("alice",), [("alice", ["o", "t"])]),
    "theirs had no login": (("alice",), ("",), [("alice", ["o", "t"])]),
    "neither had one": (("",), ("",), [("", ["o", "t"])]),
    "two logins have it here": (
        ("alice", "eve"),
        ("",),
        [("", ["t"]), ("alice", ["o"]), ("eve", ["o"])],
    ),
    "two logins have it there": (
        ("",),
        ("alice", "eve"),
        [("", ["o"]), ("alice", ["t"]), ("eve", ["t"])],
    ),
    "each has another": (("alice",), ("eve",), [("alice", ["o"]), ("eve", ["t"])]),
}


@pytest.mark.parametrize(("here", "there", "expected"), OWNERS.values(), ids=OWNERS)
@scenario
async def test_of_two_stores_the_one_without_logins_takes_over_the_others(here, there, expected):
    ours = await Broker.start()
    for login in here:
        bind(ours, durable(login=login))
    publish(ours, "o")
    await ours.settle()
    theirs = []
    for place, login in enumerate(there):
        data = encode_subscription(durable(login=login))
        theirs += [
            Record(FAR + place, SUBSCRIPTION, data),
            Record(FAR + 10 + place, MESSAGE, encode(Message(TOPIC, b"", b"t"), FAR + place)),
        ]
    ours.engine.journal.append([Operation(ADD, one.kind, one.id, one.data) for one in theirs])
    ours.engine.adopt(Recovered(theirs))
    for _ in range(2):
        await ours.settle()
        found = sorted((one.login, sorted(texts(ours, one))) for one in ours.engine.topics.durable)
        assert found == expected
        ours = await ours.crash()


@scenario
async def test_a_start_of_our_own_claims_nothing():
    broker = await Broker.start()
    bind(broker, durable(login="alice"))
    bind(broker, durable())
    await broker.settle()
    broker = await broker.crash()
    assert [one.login for one in broker.engine.topics.durable] == ["alice", ""]
