"""Limits on messages: what waits, what is refused, what is removed, and that the count is right."""

import asyncio
import random
from dataclasses import replace

import pytest
from engines import Broker, settings
from stored import stored

from broker.core import limits
from broker.core.identity import MessageId
from broker.core.limits import Demand, TransactionRoom
from broker.core.message import Message
from broker.core.properties import Properties
from broker.core.subscription import Subscription
from broker.core.transactions import Transaction
from broker.sections import AddressSettings
from broker.storage.journal import Journal

BEHAVIORS = ("FLOW_CONTROL", "REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY")
LIMIT = 5


def limited(behavior, limit=LIMIT, **more):
    return settings(max_messages=limit, limit_behavior=behavior, **more)


class Clock:
    """Wall time that stands still."""

    seconds = 1.0

    def __call__(self):
        return self.seconds


def run(scenario, made_of):
    async def start():
        await scenario(await Broker.start(made_of=made_of, clock=Clock()))

    asyncio.run(start())


def message(text, queue="q", **options):
    return Message(queue, b"destination:q\n", text.encode(), **options)


def urgent(text, priority):
    return message(text, properties=Properties(priority=priority))


def post(broker, sent, queue="q"):
    """Send as a session does; what becomes of it: "taken", "waits" or "refused"."""
    engine = broker.engine
    if engine.memory.is_full(queue):
        return "waits"
    if engine.limits.refusal(((queue, sent),)):
        return "refused"
    engine.send(queue, sent)
    return "taken"


async def fill(broker, number=LIMIT, first=0):
    for text in range(first, first + number):
        assert post(broker, message(str(text))) == "taken"
        await broker.settle()


def texts(broker, queue="q"):
    return [one.message.body.decode() for one in stored(broker.engine, queue, broker.volume)]


def transaction(*sends, acknowledged=()):
    made = Transaction()
    for sent in sends:
        made.send(sent.target, sent)
    made.acknowledge(acknowledged)
    return made


@pytest.mark.parametrize(
    ("behavior", "outcome", "left"),
    [
        ("FLOW_CONTROL", "waits", "01234"),
        ("REJECT_NEWEST", "refused", "01234"),
        ("REMOVE_OLDEST", "taken", "1234x"),
        ("REMOVE_LOW_PRIORITY", "taken", "1234x"),
    ],
)
def test_a_send_beyond_the_limit_does_what_the_settings_say_before_and_after_a_crash(behavior, outcome, left):
    async def scenario(broker):
        await fill(broker)
        assert post(broker, message("x")) == outcome
        await broker.settle()
        assert "".join(texts(broker)) == left
        broker = await broker.crash()
        assert "".join(texts(broker)) == left
        assert post(broker, message("y")) == outcome

    run(scenario, limited(behavior))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_messages_that_are_not_on_the_disk_yet_count(behavior):
    async def scenario(broker):
        outcomes = [post(broker, message(str(number))) for number in range(2 * LIMIT)]
        assert outcomes == ["taken"] * LIMIT + ["refused" if behavior == "REJECT_NEWEST" else "waits"] * LIMIT
        woken = asyncio.Event()
        broker.engine.memory.wait("q", woken.set)
        await broker.settle()
        assert woken.is_set() is behavior.startswith("REMOVE")

    run(scenario, limited(behavior))


@pytest.mark.parametrize("behavior", BEHAVIORS[2:])
def test_a_message_that_a_consumer_holds_is_not_removed(behavior):
    async def scenario(broker):
        await fill(broker)
        client = broker.consume(window=LIMIT - 1)
        await broker.settle()
        assert post(broker, message("x")) == "taken"
        await broker.settle()
        assert sorted(texts(broker)) == ["0", "1", "2", "3", "x"]
        client.ack("0")
        await broker.settle()
        assert client.texts == ["0", "1", "2", "3", "x"]
        await fill(broker, 1, 6)
        assert post(broker, message("y")) == "taken"
        await broker.settle()
        assert "6" not in texts(broker)
        another = broker.consume(window=1)
        await broker.settle()
        assert another.texts == ["y"]
        assert post(broker, message("z")) == "waits", "every message is held"
        woken = asyncio.Event()
        broker.engine.memory.wait("q", woken.set)
        another.leave()
        await broker.settle()
        assert woken.is_set(), "one came back, and can be removed"

    run(scenario, limited(behavior))


def test_the_oldest_of_the_lowest_priority_is_removed_which_may_be_the_new_one():
    async def scenario(broker):
        for text, priority in (("a", 9), ("b", 4), ("c", 1), ("d", 1), ("e", 4)):
            assert post(broker, urgent(text, priority)) == "taken"
        await broker.settle()
        for text, priority, left in (
            ("f", 4, "abdef"),
            ("g", 9, "abefg"),
            ("h", 0, "abefg"),
            ("i", 4, "aefgi"),
        ):
            assert post(broker, urgent(text, priority)) == "taken"
            await broker.settle()
            assert "".join(sorted(texts(broker))) == left
        assert broker.engine.queues["q"].count == LIMIT

    run(scenario, limited("REMOVE_LOW_PRIORITY"))


@pytest.mark.parametrize("behavior", BEHAVIORS[2:])
def test_a_group_goes_on_after_its_oldest_message_was_removed(behavior):
    async def scenario(broker):
        for number in range(2 * LIMIT):
            assert post(broker, message(str(number), group=f"g{number % 2}")) == "taken"
            await broker.settle()
        client = broker.consume()
        await broker.settle()
        assert client.texts == ["5", "6", "7", "8", "9"]

    run(scenario, limited(behavior))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_the_sends_of_a_transaction_count_less_what_it_acknowledges(behavior):
    async def scenario(broker):
        await fill(broker)
        limits = broker.engine.limits
        client = broker.consume(window=2)
        await broker.settle()
        exchange = transaction(
            message("x"), message("y"), acknowledged=[client.delivery("0"), client.delivery("1")]
        )
        assert (
            limits.must_wait(Demand.from_transaction(exchange)),
            limits.refusal(exchange.sends, exchange),
        ) == ("", "")
        broker.engine.commit(exchange)
        await broker.settle()
        assert sorted(texts(broker)) == ["2", "3", "4", "x", "y"]
        more = transaction(message("z"))
        assert limits.must_wait(Demand.from_transaction(more)) == ("q" if behavior == "FLOW_CONTROL" else "")
        assert bool(limits.refusal(more.sends, more)) is (behavior == "REJECT_NEWEST")
        much = transaction(*[message(str(number)) for number in range(LIMIT + 1)])
        assert limits.must_wait(Demand.from_transaction(much)) == "", "it would wait for ever"
        assert limits.refusal(much.sends, much)

    run(scenario, limited(behavior, default_consumer_window=2))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_transaction_that_sends_to_several_queues_needs_room_in_the_broker_for_all(behavior):
    async def scenario(broker):
        await fill(broker, LIMIT - 1)
        limits = broker.engine.limits
        one, two, much = (
            transaction(*[message("x", f"new{number}") for number in range(count)])
            for count in (1, 2, LIMIT + 1)
        )
        assert (limits.must_wait(Demand.from_transaction(one)), limits.refusal(one.sends, one)) == ("", "")
        refuses = behavior == "REJECT_NEWEST"
        assert limits.must_wait(Demand.from_transaction(two)) == ("" if refuses else "new0")
        assert ("broker.max-messages" in limits.refusal(two.sends, two)) is refuses
        assert limits.must_wait(Demand.from_transaction(much)) == ""
        assert limits.refusal(much.sends, much)
        broker.engine.commit(one)
        await broker.settle()
        assert post(broker, message("x", "new"), "new") == ("refused" if refuses else "waits")
        forwarded = message("x", "new")
        forwarded.identity = MessageId("n2", 1, 0)
        assert broker.engine.accept_forwarded("n2", [forwarded]) == 0

    run(scenario, replace(settings(limit_behavior=behavior, max_messages=-1), max_messages=LIMIT))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_transaction_that_never_fits_into_a_queue_is_refused_before_there_is_one(behavior):
    async def scenario(broker):
        limits = broker.engine.limits
        fits, much = (transaction(*[message("x")] * count) for count in (LIMIT, LIMIT + 1))
        assert f"sends {LIMIT + 1} messages more to queue 'q'" in limits.refusal(much.sends, much)
        assert (limits.must_wait(Demand.from_transaction(fits)), limits.refusal(fits.sends, fits)) == ("", "")

    run(scenario, limited(behavior))


def test_a_commit_that_waits_looks_only_at_the_queue_that_lacks_room():
    async def scenario(broker):
        await fill(broker)
        limits, queues = broker.engine.limits, broker.engine.queues
        demand = Demand.from_transaction(transaction(message("x"), message("x", "other")))
        assert limits.must_wait(demand) == "q"
        demand.targets.clear()
        assert limits.must_wait(demand) == "q"
        await broker.engine.purge("q")
        assert limits.must_wait(demand) == ""
        demand = Demand.from_transaction(transaction(message("x")))
        await fill(broker)
        assert limits.must_wait(demand) == "q"
        queues["q"].dropped = True
        del queues["q"]
        assert limits.must_wait(demand) == ""

    run(scenario, limited("FLOW_CONTROL"))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_full_broker_has_room_for_what_a_transaction_moves_to_another_queue(behavior):
    async def scenario(broker):
        await fill(broker, LIMIT)
        consumer = broker.consume(window=2)
        await broker.settle()
        held, limits = [*consumer.held], broker.engine.limits
        too_much = transaction(*[message(str(n), "out") for n in range(2)], acknowledged=[held[0]])
        refuses = behavior == "REJECT_NEWEST"
        assert bool(limits.refusal(too_much.sends, too_much)) is refuses
        assert limits.must_wait(Demand.from_transaction(too_much)) == ("" if refuses else "out")
        moved = transaction(message("moved", "out"), acknowledged=[held[1]])
        assert (limits.must_wait(Demand.from_transaction(moved)), limits.refusal(moved.sends, moved)) == (
            "",
            "",
        )
        broker.engine.commit(moved)
        await broker.settle()
        assert limits.total.count == LIMIT
        assert texts(broker, "out") == ["moved"]

    run(scenario, replace(settings(limit_behavior=behavior, max_messages=-1), max_messages=LIMIT))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_broker_with_too_many_messages_lets_transactions_move_or_lessen_them(behavior):
    async def scenario(broker):
        await fill(broker)
        broker.made_of = replace(broker.made_of, max_messages=LIMIT - 2)
        broker = await broker.restart()
        consumer = broker.consume(window=3)
        await broker.settle()
        held, limits = [*consumer.held], broker.engine.limits
        broker.engine.queue("out")
        for acknowledged in (held[:1], held[1:]):
            moved = transaction(message("moved", "out"), acknowledged=acknowledged)
            demand = Demand.from_transaction(moved)
            assert (limits.must_wait(demand), limits.refusal(moved.sends, moved)) == ("", "")
            broker.engine.commit(moved)
            await broker.settle()

    run(scenario, replace(settings(limit_behavior=behavior, max_messages=-1), max_messages=LIMIT))


def test_a_message_of_another_broker_makes_no_room_here():
    async def scenario(broker):
        await fill(broker)
        consumer = broker.consume()
        await broker.settle()
        [held] = consumer.held[:1]
        exchange = transaction(message("x"), acknowledged=[held])
        assert broker.engine.limits.refusal(exchange.sends, exchange) == ""
        held.settler = object()
        assert "'q' is full" in broker.engine.limits.refusal(exchange.sends, exchange)

    run(scenario, limited("REJECT_NEWEST"))


def test_a_message_to_a_topic_counts_once_for_each_subscription():
    async def scenario(broker):
        limits, topic = broker.engine.limits, "/topic/t"
        for name in "st":
            broker.engine.bind(Subscription("t", name, "c", durable=True))
        assert limits.must_wait(Demand(((topic, message("x", topic)),))) == ""
        await fill(broker, 1)
        assert limits.must_wait(Demand(((topic, message("x", topic)),))).startswith("/")

    run(scenario, replace(settings(max_messages=-1), max_messages=2))


def test_a_commit_that_waits_for_a_topic_looks_again_at_all_its_subscriptions():
    async def scenario(broker):
        limits, topic = broker.engine.limits, "/topic/t"
        queues = [broker.engine.bind(Subscription("t", name, "c", durable=True)) for name in "st"]
        await fill(broker, 1)
        demand = Demand(((topic, message("x", topic)),))
        assert limits.must_wait(demand)
        broker.engine.drop(queues[1])
        assert limits.must_wait(demand) == ""

    run(scenario, replace(settings(max_messages=-1), max_messages=2))


def test_a_transaction_may_send_more_than_fits_into_a_queue_if_it_acknowledges_as_much_there():
    async def scenario(broker):
        await fill(broker)
        consumer = broker.consume(window=LIMIT)
        await broker.settle()
        sends = [message(str(number)) for number in range(LIMIT + 1)]
        for acknowledged, refused in ((consumer.held, False), ([], True)):
            exchange = transaction(*sends, acknowledged=acknowledged)
            assert bool(broker.engine.limits.refusal(exchange.sends, exchange)) is refused

    run(scenario, limited("FLOW_CONTROL"))


def test_a_commit_that_waits_for_a_new_queue_may_remove_messages_once_that_is_there():
    async def scenario(broker):
        await fill(broker)
        consumer = broker.consume(window=1)
        await broker.settle()
        demand = Demand.from_transaction(transaction(message("x", "new")))
        assert broker.engine.limits.must_wait(demand) == "new"
        broker.engine.commit(transaction(message("moved", "new"), acknowledged=[*consumer.held]))
        await broker.settle()
        assert broker.engine.limits.must_wait(demand) == ""

    run(scenario, replace(settings(limit_behavior="REMOVE_OLDEST", max_messages=-1), max_messages=LIMIT))


@pytest.mark.parametrize(
    ("most", "target", "text"),
    [
        (-1, "q", "'q' has 4 messages, and may have 5 (address-settings: max-messages); 2 more are sent"),
        (4, "new", "all queues together have 4 messages, and may have 4 (broker.max-messages)"),
    ],
)
def test_the_log_says_which_limit_somebody_waits_for(most, target, text):
    async def scenario(broker):
        await fill(broker, LIMIT - 1)
        memory = broker.engine.memory
        if most < 0:
            one = transaction(message("1"), message("2"))
            room = TransactionRoom(broker.engine.limits, memory.pauses, one)
        else:
            room = target
        assert memory.must_wait(room)
        assert memory.reason(room) == text

    run(scenario, replace(limited("FLOW_CONTROL"), max_messages=most))


@pytest.mark.parametrize("behavior", BEHAVIORS[2:])
def test_a_delayed_message_that_is_removed_is_never_due(behavior):
    async def scenario(broker):
        clock, queue = broker.clock, broker.engine.queue("q")
        assert post(broker, message("early", properties=Properties(due=2000))) == "taken"
        await broker.settle()
        await fill(broker)
        assert texts(broker) == ["0", "1", "2", "3", "4"]
        clock.seconds = 3.0
        queue._look_for_due()
        client = broker.consume(window=100)
        await broker.settle()
        assert client.texts == ["0", "1", "2", "3", "4"]

    run(scenario, limited(behavior))


def test_a_delayed_message_that_became_due_is_removed_once():
    async def scenario(broker):
        for number in range(3):
            broker.send(str(number), properties=Properties(due=0 if number else 2000))
        await broker.settle()
        broker.made_of = limited("REMOVE_LOW_PRIORITY", 1)
        broker = await broker.restart()
        client = broker.consume(window=1)
        await broker.settle()
        assert client.texts == ["1"]
        broker.clock.seconds = 3.0
        broker.engine.queues["q"]._look_for_due()
        assert post(broker, message("x")) == "taken"
        await broker.settle()
        assert "".join(texts(broker)) == "1x"

    run(scenario, settings())


def test_what_is_removed_is_no_longer_in_memory_nor_in_files():
    async def scenario(broker):
        ended = []
        broker.engine.large.settled = ended.extend
        assert broker.engine.queue("q").paging is False
        await fill(broker, LIMIT + 2)
        assert [one.body for one in ended] == [b"0", b"1"]
        left = stored(broker.engine, "q", broker.volume)
        assert broker.engine.memory.size == sum(one.message.size for one in left)

    run(scenario, limited("REMOVE_OLDEST"))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_the_queue_of_messages_for_another_broker_is_full_and_removes_nothing(behavior):
    async def scenario(broker):
        name = broker.engine.settings.forwarding_queue("n2")
        for number in range(LIMIT):
            broker.send(str(number), queue=name)
        await broker.settle()
        queue = broker.engine.queues[name]
        assert (queue.full, queue.refuses_to_take(1)) == (True, False)
        broker.send("x", queue=name)
        await broker.settle()
        assert len(queue) == LIMIT + 1
        fresh = broker.engine.queue(broker.engine.settings.forwarding_queue("n3"))
        assert [fresh.is_full_with(0, count) for count in (LIMIT - 1, LIMIT)] == [False, True]

    run(scenario, limited(behavior))


def test_a_full_subscription_refuses_for_its_topic_and_forwarded_messages_wait():
    async def scenario(broker):
        broker.engine.bind(Subscription("t", "s", "c", durable=True))
        broker.engine.bind(Subscription("t", "other", "c", durable=True))
        topic = "/topic/t"
        for number in range(LIMIT):
            assert post(broker, message(str(number), topic), topic) == "taken"
        assert post(broker, message("x", topic), topic) == "refused"
        forwarded = message("x", topic)
        forwarded.identity = MessageId("n2", 1, 0)
        assert broker.engine.accept_forwarded("n2", [forwarded]) == 0

    run(scenario, limited("REJECT_NEWEST"))


def test_a_repeated_send_needs_no_room():
    async def scenario(broker):
        once = Properties(once="1")
        assert post(broker, message("0", properties=once)) == "taken"
        await fill(broker, LIMIT - 1)
        assert post(broker, message("x")) == "refused"
        assert post(broker, message("0", properties=once)) == "taken"
        await broker.settle()
        assert broker.engine.queues["q"].count == LIMIT

    run(scenario, limited("REJECT_NEWEST"))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_dead_letters_always_enter(behavior):
    async def scenario(broker):
        for number in range(LIMIT + 2):
            assert post(broker, message(str(number), "work"), "work") == "taken"
            await broker.settle()
            client = broker.consume("work")
            await broker.settle()
            client.nack(str(number))
            client.leave()
            await broker.settle()
        removes = behavior.startswith("REMOVE")
        assert "".join(texts(broker, "DLQ")) == ("23456" if removes else "0123456")

    run(scenario, limited(behavior, max_delivery_attempts=1))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_what_another_broker_has_accepted_waits_there_or_removes_others(behavior):
    async def scenario(broker):
        await fill(broker, 1)
        forwarded = [message(str(number)) for number in range(1, LIMIT + 1)]
        for number, one in enumerate(forwarded):
            one.identity = MessageId("n2", number, 0)
        removes = behavior.startswith("REMOVE")
        assert broker.engine.accept_forwarded("n2", forwarded) == (LIMIT if removes else LIMIT - 1)
        await broker.settle()
        left = LIMIT - broker.engine.accept_forwarded("n2", forwarded)
        await broker.settle()
        assert left == (0 if removes else 1)
        assert "".join(texts(broker)) == ("12345" if removes else "01234")

    run(scenario, limited(behavior))


def test_the_limit_of_the_broker_counts_all_queues():
    async def scenario(broker):
        for number in range(LIMIT):
            assert post(broker, message(str(number)), f"q{number % 2}") == "taken"
        assert [post(broker, message("x"), queue) for queue in ("q0", "new")] == ["waits", "waits"]
        await broker.settle()
        client = broker.consume("q1")
        await broker.settle()
        client.ack("1")
        assert post(broker, message("x"), "new") == "taken"
        assert await broker.engine.purge("q0") == 3
        assert broker.engine.limits.total.count == 2

    run(scenario, replace(settings(), max_messages=LIMIT))


def test_what_another_broker_had_counts_when_it_is_taken_over():
    async def scenario(broker):
        await fill(broker, 3)
        other = await Broker.start(made_of=broker.made_of)
        for _ in range(100):
            other.engine.journal.next_id()  # so that no record of either broker has an id of the other
        await fill(other, 4)
        await other.engine.journal.close()
        journal, recovered = await Journal.open(other.volume, "journal")
        broker.engine.adopt(recovered)
        assert broker.engine.queues["q"].count == len(broker.engine.queues["q"]) == 7
        assert post(broker, message("x")) == "waits"
        await journal.close()

    run(scenario, limited("FLOW_CONTROL"))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_start_with_more_than_the_limit_removes_nothing_until_there_is_more(behavior):
    async def scenario(broker):
        for number in range(3 * LIMIT):
            broker.send(str(number))
        await broker.settle()
        broker.made_of = limited(behavior)
        broker = await broker.restart()
        assert len(texts(broker)) == 3 * LIMIT
        outcome = {"FLOW_CONTROL": "waits", "REJECT_NEWEST": "refused"}.get(behavior, "taken")
        assert post(broker, message("x")) == outcome
        await broker.settle()
        assert len(texts(broker)) == (LIMIT if outcome == "taken" else 3 * LIMIT)
        client = broker.consume(window=100)
        await broker.settle()
        assert client.texts == ([*map(str, range(11, 15)), "x"] if outcome == "taken" else client.texts)

    run(scenario, settings())


def test_pages_of_an_earlier_configuration_are_read_before_what_is_on_them_is_removed():
    async def scenario(broker):
        for number in range(100):
            broker.send(f"{number} {'x' * 500}")
            await broker.settle()
        assert broker.engine.queues["q"].paged()
        broker.made_of = limited("REMOVE_OLDEST", 90)
        broker = await broker.crash()
        for number in range(100, 120):
            async with asyncio.timeout(10):
                while post(broker, message(f"{number} ")) != "taken":
                    await broker.settle()
        await broker.settle()
        assert [text.split()[0] for text in texts(broker)] == [str(number) for number in range(30, 120)]

    run(scenario, settings(max_size_bytes=8192, page_size_bytes=2048))


def test_messages_that_always_enter_remove_what_is_on_pages():
    async def scenario(broker):
        for number in range(100):
            broker.send(f"{number} {'x' * 500}")
            await broker.settle()
        broker.made_of = limited("REMOVE_OLDEST", 10)
        broker = await broker.crash()
        for number in range(100, 200):
            broker.send(f"{number} ")
            await broker.settle()
        assert [text.split()[0] for text in texts(broker)] == [str(number) for number in range(190, 200)]

    run(scenario, settings(max_size_bytes=8192, page_size_bytes=2048))


def test_no_send_removes_more_than_can_be_done_in_one_turn(monkeypatch):
    monkeypatch.setattr(limits, "CHUNK", 4)

    async def scenario(broker):
        await fill(broker, 15)
        broker.made_of = limited("REMOVE_OLDEST")
        broker = await broker.restart()
        for left in (12, 9, 6, 5):
            assert post(broker, message("x")) == "taken"
            await broker.settle()
            assert len(texts(broker)) == left

    run(scenario, limited("REMOVE_OLDEST", 100))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_the_count_is_right_whatever_clients_do(behavior):
    async def scenario(broker):
        chance = random.Random(behavior)
        clients = [broker.consume(window=2) for _ in range(3)]
        for number in range(300):
            options = {"group": chance.choice(("a", "b", None))}
            if options["group"] is None:
                options["properties"] = Properties(priority=chance.choice((0, 4, 9)))
            post(broker, message(str(number), **options))
            client = chance.choice(clients)
            if client.held and chance.random() < 0.7:
                held = chance.choice(client.held)
                action = chance.choice(("acknowledge", "refuse", "commit", "roll back"))
                if action == "acknowledge":
                    broker.engine.acknowledge([held])
                elif action == "refuse":
                    broker.engine.refuse([held])
                else:
                    one = transaction(message(f"t{number}"), acknowledged=[held])
                    broker.engine.commit(one) if action == "commit" else broker.engine.roll_back(one)
            if chance.random() < 0.1:
                clients.remove(client)
                client.leave()
                clients.append(broker.consume(window=2))
            if chance.random() < 0.5:
                await broker.settle()
                queues = broker.engine.queues
                assert all(queue.count == len(queue) for queue in queues.values())
                assert broker.engine.limits.total.count == sum(map(len, queues.values()))
                assert len(queues["q"]) <= LIMIT
        for client in clients:
            client.leave()
        await broker.settle()
        await broker.engine.purge("q")
        assert broker.engine.queues["q"].count == 0

    run(scenario, limited(behavior, max_delivery_attempts=3))


def test_a_session_is_one_producer_of_each_destination():
    async def scenario(broker):
        limits = broker.engine.limits
        assert [limits.enter("q", session) for session in ("s1", "s1", "s2")] == ["", "", ""]
        assert "max-producers" in limits.enter("q", "s3")
        assert limits.enter("q", "s1") == "", "it is one already"
        assert limits.enter("/topic/q", "s3") == ""
        limits.leave("s1")
        assert limits.enter("q", "s3") == ""

    run(scenario, settings(max_producers=2))


def test_queues_without_a_limit_count_nothing():
    async def scenario(broker):
        broker.send("0")
        assert type(broker.engine.queues["q"]).__name__ == "Queue"
        assert broker.engine.limits is None

    run(scenario, settings())
    assert not AddressSettings().limit_behavior.startswith("REMOVE")
