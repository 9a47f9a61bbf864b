"""Topics, durable and shared subscriptions, temporary queues, as clients see them."""

import asyncio

import pytest
from brokers import Raw, Subscriber, until

from broker.core.message import CLEAN, MESSAGE, QUEUE
from broker.storage.directory import DirectoryVolume
from broker.storage.inspection import inspect

pytestmark = pytest.mark.cluster

ARTEMIS = "durable-subscription-name"
DIALECTS = {
    "Artemis": {"durable-subscription-name": "s"},
    "Artemis, older": {"durable-subscriber-name": "s"},
    "ActiveMQ": {"activemq.subscriptionName": "s"},
    "ActiveMQ, as it is spelt": {"activemq.subcriptionName": "s"},
    "RabbitMQ": {"durable": "true", "auto-delete": "false"},
    "RabbitMQ, from Python": {"durable": "True", "auto-delete": "False"},
}
each_dialect = pytest.mark.parametrize("headers", DIALECTS.values(), ids=DIALECTS)


@pytest.fixture
def client(shared):
    made = []

    def make(**options):
        made.append(Subscriber(shared.port, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def topic(queue):
    return f"/topic/{queue}"


@pytest.fixture
def name(queue):
    """A client-id that no other test has."""
    return f"client-{queue}"


def subscribe(raw, topic, name="1", ack="client-individual", **headers):
    raw.send("SUBSCRIBE", {"id": name, "destination": topic, "ack": ack, "receipt": "subscribed", **headers})
    raw.receipt("subscribed")


def publish(raw, topic, *texts, **headers):
    for text in texts:
        raw.send("SEND", {"destination": topic, "receipt": "sent", **headers}, text.encode())
        raw.receipt("sent")


def take(raw, *expected):
    """Receive these and acknowledge them; the headers of the last."""
    for text in expected:
        got, headers = raw.message()
        assert got == text
        if "ack" in headers:
            raw.send("ACK", id=headers["ack"], receipt="a")
            raw.receipt("a")
    return headers


def nothing_comes(raw):
    """Everything before the answer to a harmless frame would be something."""
    raw.send("BEGIN", transaction="t", receipt="nothing")
    raw.receipt("nothing")
    raw.send("ABORT", transaction="t")
    assert not raw.messages


def drop(raw, topic, **headers):
    raw.send("UNSUBSCRIBE", {"receipt": "dropped", **headers})
    raw.receipt("dropped")


def away(raw):
    raw.send("DISCONNECT", receipt="bye")
    raw.receipt("bye")
    raw.close()


def test_every_subscriber_gets_what_is_sent_and_says_for_which_topic(client, topic):
    one, two, sender = client(), client(), client()
    publish(sender, topic, "before")
    subscribe(one, topic)
    subscribe(two, topic, ack="auto")
    publish(sender, topic, "m", kind="x")
    for raw in (one, two):
        headers = take(raw, "m")
        assert (headers["destination"], headers["subscription"], headers["kind"]) == (topic, "1", "x")
    one.send("UNSUBSCRIBE", id="1", receipt="u")
    one.receipt("u")
    publish(sender, topic, "after")
    take(two, "after")
    nothing_comes(one)


@each_dialect
def test_a_durable_subscription_outlives_its_connection_and_ends_when_it_is_dropped(
    client, topic, name, headers
):
    sender, first = client(), client(client_id=name)
    subscribe(first, topic, **headers)
    away(first)
    publish(sender, topic, "1", "2")
    second = client(client_id=name)
    subscribe(second, topic, **headers)
    take(second, "1")
    away(second)
    third = client(client_id=name)
    subscribe(third, topic, **headers)
    take(third, "2")
    drop(third, topic, id="1", **headers)
    publish(sender, topic, "3")
    subscribe(third, topic, **headers)
    nothing_comes(third)
    publish(sender, topic, "4")
    take(third, "4")
    drop(third, topic, id="1", **headers)


def test_what_waited_is_gone_with_the_name_and_does_not_come_back(client, topic, name):
    sender, raw = client(), client(client_id=name)
    subscribe(raw, topic, **{ARTEMIS: "s"})
    raw.send("UNSUBSCRIBE", id="1", receipt="u")
    raw.receipt("u")
    publish(sender, topic, "1", "2", "3")
    drop(raw, topic, **{ARTEMIS: "s"})
    subscribe(raw, topic, **{ARTEMIS: "s"})
    nothing_comes(raw)
    publish(sender, topic, "4")
    take(raw, "4")


def test_a_subscription_survives_kill_9_and_its_drop_too(brokerd):
    broker = brokerd()
    raw = Subscriber(broker.port, client_id="c")
    for name in ("stays", "goes"):
        subscribe(raw, "/topic/t", name=name, **{ARTEMIS: name})
    subscribe(raw, "/topic/t", name="transient")
    subscribe(raw, "/temp-queue/r", name="temporary")
    publish(raw, "/topic/t", "1")
    drop(raw, "/topic/t", id="goes", **{ARTEMIS: "goes"})
    broker.kill()
    broker.start()
    raw = Raw(broker.port, client_id="c")
    raw.send("UNSUBSCRIBE", {ARTEMIS: "goes"})
    assert "there is no durable subscription 'goes' of client 'c'" in raw.error()
    raw = Subscriber(broker.port, client_id="c")
    subscribe(raw, "/topic/t", **{ARTEMIS: "stays"})
    assert take(raw, "1")["redelivered"] == "true"
    away(raw)
    assert broker.stop() == 0
    assert not any("Traceback" in line for line in broker.lines)


def test_shared_subscriptions_have_several_consumers_and_no_owner(client, topic, queue):
    consumers = [client(), client()]
    for raw in consumers:
        subscribe(raw, topic, shared="true", **{ARTEMIS: f"s-{queue}"}, **{"prefetch-count": "1"})
    publish(client(), topic, "1", "2")
    assert {raw.message()[0] for raw in consumers} == {"1", "2"}


def test_one_consumer_at_a_time(client, topic, name):
    raw = client(client_id=name)
    subscribe(raw, topic, **{ARTEMIS: "s"})
    raw.send("SUBSCRIBE", {"id": "2", "destination": topic, ARTEMIS: "s"})
    assert (
        f"subscription 's' of client '{name}' of user 'guest' to topic '{topic[7:]}' has a consumer already"
        in raw.error()
    )


def test_who_comes_again_takes_over_his_own_subscription(client, topic, name):
    old, new = client(client_id=name), None
    subscribe(old, topic, **{ARTEMIS: "s"})
    publish(client(), topic, "1")
    assert old.message()[0] == "1"
    new = client(client_id=name)
    subscribe(new, topic, **{ARTEMIS: "s"})
    assert take(new, "1")["redelivered"] == "true"


def test_a_subscription_has_what_its_selector_wants(client, topic, name):
    raw = client(client_id=name)
    subscribe(raw, topic, selector="kind = 'a'", **{ARTEMIS: "s"})
    raw.send("UNSUBSCRIBE", id="1")
    publish(raw, topic, "1", kind="a")
    publish(raw, topic, "2", kind="b")
    subscribe(raw, topic, selector="kind='a'", **{ARTEMIS: "s"})  # the same, written otherwise
    take(raw, "1")
    nothing_comes(raw)
    raw.send("UNSUBSCRIBE", id="1")
    publish(raw, topic, "3", kind="a")
    subscribe(raw, topic, selector="kind = 'b'", **{ARTEMIS: "s"})
    publish(raw, topic, "4", kind="b")
    take(raw, "4")
    nothing_comes(raw)


def test_another_topic_under_the_name_begins_anew(client, topic, name):
    raw = client(client_id=name)
    subscribe(raw, topic, **{ARTEMIS: "s"})
    raw.send("UNSUBSCRIBE", id="1")
    publish(raw, topic, "1")
    subscribe(raw, f"{topic}-other", **{ARTEMIS: "s"})
    publish(raw, topic, "2")
    publish(raw, f"{topic}-other", "3")
    take(raw, "3")
    nothing_comes(raw)


@pytest.mark.parametrize(
    ("command", "headers", "text"),
    [
        ("SUBSCRIBE", {"durable-subscription-name": "s"}, "durable subscription 's' needs a client-id"),
        ("SUBSCRIBE", {"shared": "true"}, "shared:true needs the header"),
        ("SUBSCRIBE", {"shared": "yes", "durable": "true"}, "expected true or false"),
        ("SUBSCRIBE", {"durable": "true", "auto-delete": "true"}, "needs auto-delete:false"),
        ("SUBSCRIBE", {"browser": "true"}, "a topic keeps nothing to browse"),
        ("SUBSCRIBE", {"destination": "/topic/a.*"}, "wildcards are not supported"),
        ("SUBSCRIBE", {"destination": "/topic/"}, "the name of a topic has 1 to 255 bytes"),
        ("SUBSCRIBE", {"destination": "/topic/a::b"}, "a topic's name has no '::'"),
        (
            "SUBSCRIBE",
            {"destination": "/queue/a", "durable-subscription-name": "s"},
            "only a topic has durable",
        ),
        ("SUBSCRIBE", {"subscription-type": "ANYCAST"}, "topics are /topic/NAME"),
        (
            "SUBSCRIBE",
            {"destination": "/queue/a", "subscription-type": "MULTICAST"},
            "topics are /topic/NAME",
        ),
        ("SUBSCRIBE", {"selector": "a ="}, "header 'selector' is 'a ='"),
        ("SUBSCRIBE", {"destination": "/remote-temp-queue/x"}, "only the connection that created it"),
        ("SUBSCRIBE", {"destination": "/temp-topic/x"}, "use /queue/NAME, /topic/NAME or /temp-queue/NAME"),
        ("SEND", {"destination": "/topic/a::b"}, "a topic's name has no '::'"),
        ("SEND", {"destination": "/temp-queue/x"}, "is no temporary queue of this connection"),
        ("SEND", {"destination": "/remote-temp-queue/x"}, "is no temporary queue of this broker"),
        ("SEND", {"reply-to": "/temp-topic/x"}, "temporary topics are not supported"),
        ("SEND", {"destination-type": "ANYCAST"}, "topics are /topic/NAME"),
        (
            "UNSUBSCRIBE",
            {"durable-subscription-name": "s", "shared": "true"},
            "there is no durable subscription",
        ),
        ("UNSUBSCRIBE", {"durable": "true"}, "there is no durable subscription '1@t'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(client, command, headers, text):
    raw = client()
    raw.send(command, {"id": "1", "destination": "/topic/t", **headers})
    assert text in raw.error()


def test_a_queue_of_a_subscription_is_no_destination(client, topic, name):
    raw = client(client_id=name)
    subscribe(raw, topic, **{ARTEMIS: "s"})
    raw.send("SEND", {"destination": f"/queue/{topic}\\c\\c{name}.s"}, b"x")
    assert "use /queue/NAME" in raw.error()


def test_a_commit_reaches_all_subscriptions(client, topic):
    one, two, sender = client(), client(), client()
    subscribe(one, topic)
    subscribe(two, topic)
    sender.send("BEGIN", transaction="t")
    sender.send("SEND", {"destination": topic, "transaction": "t"}, b"1")
    sender.send("COMMIT", transaction="t", receipt="c")
    sender.receipt("c")
    take(one, "1")
    take(two, "1")


def test_large_messages_reach_all_subscriptions_and_none_is_left(brokerd):
    broker = brokerd(**{"acceptor.min-large-message-size": 10_000, "acceptor.max-body-bytes": 1_000_000})
    consumers = [Subscriber(broker.port), Subscriber(broker.port)]
    for raw in consumers:
        subscribe(raw, "/topic/t")
    body = "0123456789" * 5000
    for topic in ("/topic/nobody", "/topic/t"):
        publish(Raw(broker.port), topic, body, **{"content-length": str(len(body))})
    files = list(broker.directory.rglob("large-messages/*.msg"))
    assert len(files) == 1, "one file for all subscriptions"
    take(consumers[0], body)
    assert files[0].exists()
    take(consumers[1], body)
    until(lambda: not files[0].exists(), "the file is removed")
    for raw in consumers:
        away(raw)
    assert broker.stop() == 0


def test_a_reply_comes_to_a_temporary_queue_that_only_its_connection_consumes(client, queue):
    asker, worker = client(), client()
    worker.subscribe(queue, ack="auto")
    subscribe(asker, "/temp-queue/replies", ack="auto")
    asker.publish("question", queue, **{"reply-to": "/temp-queue/replies"})
    _, headers = worker.message()
    reply_to = headers["reply-to"]
    assert reply_to.startswith("/remote-temp-queue/")
    publish(worker, reply_to, "answer")
    assert take(asker, "answer")["subscription"] == "1"
    worker.send("SUBSCRIBE", {"id": "2", "destination": reply_to})
    assert "only the connection that created it may consume" in worker.error()
    asker.send("UNSUBSCRIBE", id="1", receipt="u")
    asker.receipt("u")
    publish(client(), reply_to, "late")  # goes nowhere, and is answered
    subscribe(asker, "/temp-queue/replies", ack="auto")
    nothing_comes(asker)


def test_who_only_names_a_temporary_queue_is_subscribed_to_it_as_in_rabbitmq(client, queue):
    asker, worker = client(), client()
    worker.subscribe(queue, ack="auto")
    asker.publish("question", queue, **{"reply-to": "/temp-queue/foo"})
    asker.publish("another", queue, **{"reply-to": "/temp-queue/foo"})
    first, second = (worker.message()[1]["reply-to"] for _ in range(2))
    assert first == second
    publish(worker, first, "answer")
    headers = take(asker, "answer")
    assert headers["subscription"] == "/temp-queue/foo"
    asker.send("UNSUBSCRIBE", id="/temp-queue/foo", receipt="u")
    asker.receipt("u")


def test_what_is_temporary_ends_with_its_connection_and_leaves_nothing(brokerd):
    broker = brokerd()
    asker = Subscriber(broker.port)
    subscribe(asker, "/temp-queue/r")
    subscribe(asker, "/topic/t", name="2")
    publish(asker, "/temp-queue/r", "mine")
    publish(asker, "/topic/t", "1")
    asker.close()
    sender = Subscriber(broker.port)
    publish(sender, "/queue/q", "stays")
    away(sender)
    assert broker.stop() == 0
    (journal,) = broker.directory.rglob("journal")

    async def kinds():
        volume = DirectoryVolume(journal.parent)
        try:
            found = await inspect(volume, journal.name)
            return sorted(record.kind for record in found.records.values())
        finally:
            await volume.close()

    assert asyncio.run(kinds()) == sorted([QUEUE, MESSAGE, CLEAN])


def test_rights_hold_for_topics_by_name(brokerd):
    broker = brokerd(
        **{
            "acceptor.users": {"guest": "secret", "boss": "secret"},
            "security-settings.prices.send": ["boss"],
            "security-settings.prices.consume": ["guest"],
            "address-settings.#.dead-letter-address": "",
            "address-settings.#.expiry-address": "",
        }
    )
    raw = Raw(broker.port)
    raw.send("SEND", {"destination": "/topic/prices"}, b"x")
    assert "user 'guest' may not send to topic 'prices'" in raw.error()
    raw = Raw(broker.port, login="boss")
    raw.send("SUBSCRIBE", {"id": "1", "destination": "/topic/prices"})
    assert "user 'boss' may not consume from topic 'prices'" in raw.error()


def test_1_0_without_ids(client, topic, name):
    raw = client(accept_version="1.0")
    raw.send("SUBSCRIBE", {"destination": topic, "durable": "true"})
    assert "durable:true needs the headers id and destination" in raw.error()
    raw = client(accept_version="1.0", client_id=name)
    raw.send("SUBSCRIBE", {"destination": topic, ARTEMIS: "s", "ack": "client", "receipt": "s"})
    raw.receipt("s")
    publish(raw, topic, "1")
    _, headers = raw.message()
    raw.send("ACK", {"message-id": headers["message-id"], "receipt": "a"})
    raw.receipt("a")
    raw.send("UNSUBSCRIBE", {"destination": topic, "receipt": "u"})
    raw.receipt("u")
    publish(raw, topic, "2")
    raw.send("SUBSCRIBE", {"destination": topic, ARTEMIS: "s", "ack": "client", "receipt": "s"})
    raw.receipt("s")
    assert raw.message()[0] == "2"
    drop(raw, topic, destination=topic, **{ARTEMIS: "s"})
    raw.send("UNSUBSCRIBE", {"destination": topic, ARTEMIS: "s"})
    assert "there is no durable subscription 's'" in raw.error()


def test_selectors_beyond_the_bounds_are_refused_with_the_property(brokerd):
    broker = brokerd(**{"acceptor.max-selector-terms": 5, "acceptor.max-selector-characters": 40})
    for number, destination in enumerate(("/queue/q", "/topic/t")):
        for text, name in (
            ("a = 1 OR b = 2", "acceptor.max-selector-terms"),
            (f"a = '{'x' * 40}'", "acceptor.max-selector-characters"),
        ):
            raw = Raw(broker.port)
            raw.send("SUBSCRIBE", {"id": "s", "destination": destination, "selector": text})
            assert name in raw.error(), (number, text)
    raw = Raw(broker.port)
    raw.send("SUBSCRIBE", {"id": "s", "destination": "/queue/q", "selector": "a = 'x'", "receipt": "s"})
    raw.receipt("s")
