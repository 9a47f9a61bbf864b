"""What no user may destroy, read or forge who has no right to it, in the clear and over TLS."""

import random
import ssl

import pytest
from authority import Authority
from brokers import Brokerd, Raw, Subscriber, until
from refused_start import refused_start

pytestmark = pytest.mark.cluster

PASSCODES = {"alice": "a", "eve": "e", "boss": "b"}
NAME = "durable-subscription-name"


class Guarded:
    """A broker with users and rights, over TLS or not, and its clients."""

    def __init__(self, directory, tls):
        encrypted = {}
        self.context = None
        if tls:
            authority = Authority(directory)
            encrypted = {
                "acceptor.ssl-enabled": True,
                "acceptor.key-store-path": str(authority.store("broker")),
            }
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.context.check_hostname = False
            self.context.load_verify_locations(authority.trust)
        self.made = Brokerd(
            directory,
            **{
                "acceptor.users": PASSCODES,
                "security-settings.secret.#.send": ["alice", "boss"],
                "security-settings.secret.#.consume": ["alice", "boss"],
                "security-settings.DLQ.consume": ["boss"],
                "security-settings.ExpiryQueue.consume": ["boss"],
                "broker.message-expiry-scan-period": 50,
                **encrypted,
            },
        )

    def client(self, login, kind=Subscriber, **headers):
        return kind(self.made.port, tls=self.context, login=login, passcode=PASSCODES[login], **headers)

    def logs(self, *texts):
        """Wait for a line of the log that has all of these."""
        until(
            lambda: any(all(text in line for text in texts) for line in self.made.lines),
            f"{texts} in the log",
        )


@pytest.fixture(params=[False, True], ids=["clear", "TLS"])
def broker(request, tmp_path):
    made = Guarded(tmp_path, request.param)
    yield made
    assert made.made.stop() == 0
    assert not any("internal error" in line for line in made.made.lines), made.made.lines


@pytest.fixture
def topic(queue):
    return f"secret.{queue}"


def subscribe(raw, topic, name, **headers):
    asked = {"id": "1", "destination": f"/topic/{topic}", "ack": "client-individual", NAME: name, **headers}
    raw.send("SUBSCRIBE", {"receipt": "subscribed", **asked})
    raw.receipt("subscribed")


def leave(raw):
    raw.send("UNSUBSCRIBE", id="1", receipt="left")
    raw.receipt("left")


def publish(raw, destination, *texts):
    for text in texts:
        raw.send("SEND", {"destination": destination, "receipt": "sent"}, text.encode())
        raw.receipt("sent")


def waits(raw, topic, name, *texts, **headers):
    """These are in a subscription, and nothing else."""
    subscribe(raw, topic, name, **headers)
    for text in texts:
        got, told = raw.message()
        assert got == text
        raw.send("ACK", id=told["ack"], receipt="ack")
        raw.receipt("ack")
    assert not raw.messages


def test_a_durable_subscription_is_its_users_whoever_says_the_client_id(broker):
    topic = "open.to.both"
    alice, sender = broker.client("alice", client_id="c"), broker.client("boss")
    subscribe(alice, topic, "s")
    leave(alice)
    publish(sender, f"/topic/{topic}", *"123")
    eve = broker.client("eve", client_id="c")
    waits(eve, topic, "s")
    leave(eve)
    publish(sender, f"/topic/{topic}", "4")
    eve.send("UNSUBSCRIBE", {NAME: "s", "receipt": "dropped"})
    eve.receipt("dropped")
    # Alice's connection has not been ended by that of the other user with the same client-id.
    waits(alice, topic, "s", *"1234")
    broker.made.kill()
    broker.made.start()
    eve = broker.client("eve", Raw, client_id="c")
    eve.send("UNSUBSCRIBE", {NAME: "s"})
    assert "there is no durable subscription 's' of client 'c'" in eve.error()
    alice = broker.client("alice", client_id="c")
    subscribe(alice, topic, "s")
    publish(alice, f"/topic/{topic}", "5")
    assert alice.message()[0] == "5"


def test_a_subscription_that_was_stored_without_a_login_goes_to_the_first_who_may_have_it(tmp_path, broker):
    """As brokers stored it that knew no logins, and as those without users do."""
    directory = tmp_path / "old"
    directory.mkdir()
    old = Brokerd(directory, **{"acceptor.users": None})
    raw = Subscriber(old.port, client_id="c")
    for name in ("kept", "left"):
        subscribe(raw, "secret.old", name)
        leave(raw)
    publish(raw, "/topic/secret.old", "1", "2")
    assert old.stop() == 0
    broker.made.stop()
    broker.made.path.write_text(
        broker.made.path.read_text().replace(
            'name = "a1"', f'name = "a1"\ndata-directory = "{tmp_path}/old/data"'
        )
    )
    broker.made.start()
    broker.logs("that were stored without a login: 2, such as subscription 'kept' of client 'c'")
    eve = broker.client("eve", client_id="c")
    subscribe(eve, "open", "kept")
    assert not eve.messages
    leave(eve)
    alice = broker.client("alice", client_id="c")
    subscribe(alice, "secret.old", "kept")
    broker.logs(
        "subscription 'kept' of client 'c' to topic 'secret.old', stored without a login", "user 'alice'"
    )
    assert alice.message()[0] == "1"
    broker.made.kill()
    broker.made.start()
    broker.logs("that were stored without a login: 1, such as subscription 'left'")
    boss = broker.client("boss", client_id="c")
    waits(boss, "secret.old", "kept")
    waits(broker.client("alice", client_id="c"), "secret.old", "kept", "1", "2")
    boss.send("UNSUBSCRIBE", {NAME: "left", "receipt": "dropped"})
    boss.receipt("dropped")


def test_subscriptions_of_users_who_are_gone_are_told_at_the_start(tmp_path):
    made = Brokerd(tmp_path, **{"acceptor.users": PASSCODES})
    raw = Subscriber(made.port, login="alice", passcode="a", client_id="c")
    subscribe(raw, "t", "s")
    made.stop()
    made = Brokerd(tmp_path, **{"acceptor.users": {"eve": "e"}})
    line = "of users that acceptor.users does not have: 1, such as subscription 's'"
    assert any(line in one for one in made.lines)
    assert made.stop() == 0


SHARED = {"shared": "true"}


@pytest.mark.parametrize("asks", ["another topic", "another topic and selector", "drop"])
def test_who_may_not_consume_a_topic_destroys_no_shared_subscription_to_it(broker, topic, queue, asks):
    alice = broker.client("alice")
    subscribe(alice, topic, queue, **SHARED)
    leave(alice)
    publish(alice, f"/topic/{topic}", *"12345")
    eve = broker.client("eve", Raw)
    if asks == "drop":
        eve.send("UNSUBSCRIBE", {NAME: queue, **SHARED, "receipt": "r"})
        text, request = f"subscription '{queue}' exists for a topic", "drop refused"
    else:
        selector = {"selector": "a = 1"} if "selector" in asks else {}
        eve.send(
            "SUBSCRIBE",
            {
                "id": "1",
                "destination": f"/topic/of-eve-{queue}",
                NAME: queue,
                **SHARED,
                **selector,
                "receipt": "r",
            },
        )
        text, request = (
            f"subscription '{queue}' exists for another topic",
            f"move to topic 'of-eve-{queue}' refused",
        )
    said = eve.error()
    assert f"{text} that user 'eve' may not consume from: choose another name" in said
    assert topic not in said
    broker.logs(
        "(user 'eve', ",
        request,
        f"may not consume from topic '{topic}': ",
    )
    waits(alice, topic, queue, *"12345", **SHARED)


def test_who_may_consume_both_topics_moves_a_subscription_and_is_named_in_the_log(broker, topic, queue):
    alice, boss = broker.client("alice"), broker.client("boss")
    subscribe(alice, topic, queue, **SHARED)
    leave(alice)
    publish(alice, f"/topic/{topic}", "1", "2")
    subscribe(boss, f"{topic}.other", queue, **SHARED)
    broker.logs(
        f"subscription '{queue}' to topic '{topic}'",
        "2 waiting messages are deleted",
        "user 'boss'",
        f"'{topic}.other'",
    )
    publish(alice, f"/topic/{topic}.other", "3")
    assert boss.message()[0] == "3"


def test_a_temporary_queue_cannot_be_guessed(broker, queue):
    asker, worker = broker.client("alice"), broker.client("boss")
    subscribed = {"id": "1", "destination": "/temp-queue/answers", "receipt": "s"}
    asker.send("SUBSCRIBE", subscribed)
    asker.receipt("s")
    worker.send("SUBSCRIBE", id="1", destination=f"/queue/{queue}", receipt="s")
    worker.receipt("s")
    eve = broker.client("eve")
    eve.send("SUBSCRIBE", {**subscribed, "destination": f"/queue/{queue}.of-eve"})
    eve.receipt("s")
    publish_asking(eve, f"{queue}.of-eve")
    own = eve.message()[1]["reply-to"]
    # All that a temporary queue's name has in common with another's, and what can be counted.
    head, _, _ = own.rpartition(eve.connected[0]["session"])
    life, _, number = eve.connected[0]["session"].rpartition("-")
    for connection in range(int(number)):
        for count in range(3):
            for rest in ("", own[own.rindex("-") :]):
                publish(eve, f"{head}{life}-{connection}-{count}{rest}", "forged")
    publish_asking(asker, queue)
    reply_to = worker.message()[1]["reply-to"]
    publish(worker, reply_to, "answer")
    assert asker.message()[0] == "answer"
    eve.send("SUBSCRIBE", {"id": "2", "destination": reply_to})
    assert "only the connection that created it may consume" in eve.error()


def publish_asking(raw, queue):
    raw.send(
        "SEND", {"destination": f"/queue/{queue}", "reply-to": "/temp-queue/answers", "receipt": "sent"}, b"?"
    )
    raw.receipt("sent")


def test_what_dies_or_expires_is_as_protected_as_where_it_was(broker, queue):
    alice, boss = broker.client("alice"), broker.client("boss")
    for headers in ({}, {"expiration": "1"}):
        alice.send("SEND", {"destination": f"/queue/secret.{queue}", **headers, "receipt": "sent"}, b"secret")
        alice.receipt("sent")
    alice.subscribe(f"secret.{queue}")
    alice.send("NACK", id=alice.message()[1]["ack"], requeue="false", receipt="refused")
    alice.receipt("refused")
    alice.close()  # what came before it had expired goes back, and expires
    for name, address in enumerate(("DLQ", "ExpiryQueue")):
        for browser in ("true", "false"):
            eve = broker.client("eve", Raw)
            eve.subscribe(address, browser=browser)
            assert f"user 'eve' may not {'browse' if browser == 'true' else 'consume from'}" in eve.error()
        boss.subscribe(address, ack="auto", name=str(name))
        assert boss.message()[0] == "secret"


def test_a_configuration_that_shows_dead_letters_to_others_starts_no_broker(tmp_path):
    rights = {"match": "secret", "consume": ["alice"]}
    table = {"broker": {"name": "a1"}, "acceptor": {"users": PASSCODES}, "security-settings": [rights]}
    assert "messages are moved from there to 'DLQ'" in refused_start(tmp_path, table)


def test_a_broker_says_at_its_start_whom_the_setting_of_dead_letters_lets_in(brokerd):
    made = brokerd(
        **{
            "acceptor.users": PASSCODES,
            "security-settings.secret.consume": ["alice"],
            "security-settings.DLQ.consume": ["boss"],
            "address-settings.#.expiry-address": "",
        }
    )
    assert any(
        "WARNING" in line and "security-settings of 'DLQ' let 'boss' consume" in line for line in made.lines
    )


SECRET_NAMES = ("secret", "secret.t", "secret.q", "DLQ", "ExpiryQueue")
"""What eve has no right to; ``open`` she has all rights to."""


def attack(chance, guessed):
    """A frame that eve might try, which names what is not hers."""
    name = chance.choice((*SECRET_NAMES, *["open"] * 5))
    kept = chance.choice(("s", "shared", "1@secret.t", "alice.c.s", "c.s"))
    destination = chance.choice(
        (
            f"/queue/{name}",
            *[f"/topic/{name}"] * 4,
            f"/queue//topic/{name}::{kept}",
            f"/topic/{name}::{kept}",
            f"{name}::{kept}",
            f"/queue/{name}.*",
            f"/topic/{name}.#",
            "/temp-queue/answers",
            chance.choice(guessed),
        )
    )
    extras = {
        NAME: kept,
        "durable": "true",
        "auto-delete": "false",
        "shared": "true",
        "browser": "true",
        "selector": chance.choice(("a = 1", "TRUE")),
        "client-id": "c",
        "requeue": "false",
        "expiration": "1",
        "_AMQ_ORIG_QUEUE": "open",
    }
    headers = {"id": chance.choice(("1", kept)), "destination": destination, "receipt": "r"}
    headers |= {extra: extras[extra] for extra in chance.sample(sorted(extras), chance.randint(0, 3))}
    if chance.random() < 0.2:
        del headers["id"]
    command = chance.choice(("SUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE", "SEND", "SEND", "ACK", "NACK"))
    return command, headers


def test_whatever_a_user_asks_for_gets_and_destroys_nothing_that_is_anothers(broker):
    """One who knows all names and the client-id of the other, and tries what comes to mind."""
    alice = broker.client("alice", client_id="c")
    for number, (name, headers) in enumerate({"s": {}, "shared": SHARED}.items()):
        subscribe(alice, "secret.t", name, id=str(number), **headers)
        alice.send("UNSUBSCRIBE", id=str(number))
    durable = {"id": "1", "destination": "/topic/secret.t", "durable": "true", "auto-delete": "false"}
    alice.send("SUBSCRIBE", {**durable, "receipt": "by-id"})
    alice.receipt("by-id")
    leave(alice)
    publish(alice, "/topic/secret.t", *"123")
    publish(alice, "/queue/secret.q", *"123")
    alice.send("SUBSCRIBE", id="t", destination="/temp-queue/answers", receipt="t")
    alice.receipt("t")
    life, _, number = alice.connected[0]["session"].rpartition("-")
    node = f"/remote-temp-queue/{alice.connected[0]['node-id']}"
    guessed = [f"{node}.{life}-{connection}-{count}" for connection in (1, number) for count in (1, 2)]
    chance = random.Random(29)
    done = 0
    for _ in range(150):
        eve = broker.client("eve", Raw, client_id=chance.choice(("c", "other")))
        for _ in range(5):
            command, headers = attack(chance, guessed)
            eve.send(command, headers, b"forged" if command == "SEND" else b"")
            while (frame := eve.frame())[0] == "MESSAGE":
                assert frame[2] in (b"forged", b""), (command, headers, frame)
            assert frame[0] in ("RECEIPT", "ERROR"), frame
            if frame[0] == "ERROR":
                break
            done += 1
        eve.close()
    assert done > 20, "much is allowed, and leads to nothing"
    waits(alice, "secret.t", "s", *"123", id="s")
    waits(alice, "secret.t", "shared", *"123", id="shared", **SHARED)
    alice.send("SUBSCRIBE", {**durable, "ack": "auto", "receipt": "by-id"})
    alice.receipt("by-id")
    assert [alice.message()[0] for _ in range(3)] == [*"123"]
    alice.subscribe("secret.q", ack="auto", name="q")
    assert [alice.message()[0] for _ in range(3)] == [*"123"]
    alice.send("BEGIN", transaction="t", receipt="nothing")
    alice.receipt("nothing")
    assert not alice.messages
