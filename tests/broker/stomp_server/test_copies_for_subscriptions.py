"""Copies of one message for many subscriptions: one body on the disk, and bounds for the rest."""

import ssl
from pathlib import Path

import pytest
from authority import Authority
from brokers import Raw, until

pytestmark = pytest.mark.cluster

BODY = bytes(range(256)) * 234
"""60 KB."""
SUBSCRIPTIONS = 100
TOPIC = "/topic/t"
NAME = "durable-subscription-name"


class Encrypted(Raw):
    """A client that speaks TLS."""

    def __init__(self, port, trust, **headers):
        super().__init__(port, connect=False)
        context = ssl.create_default_context(cafile=trust)
        context.check_hostname = False
        self.socket = context.wrap_socket(self.socket)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send("CONNECT", {"accept-version": "1.2", "host": "h", **given})
        self.read("CONNECTED")


def files(broker, kind):
    """The sizes of all files in a directory of the broker's data."""
    directory = Path(broker.directory) / "data" / kind
    return [one.stat().st_size for one in directory.rglob("*") if one.is_file()]


def subscribe(client, count=SUBSCRIPTIONS, **headers):
    for number in range(count):
        name = str(number)
        client.send("SUBSCRIBE", {"id": name, "destination": TOPIC, NAME: name, "receipt": name, **headers})
        client.receipt(name)


def send(client, body=BODY, destination=TOPIC, **headers):
    client.send("SEND", {"destination": destination, "content-length": str(len(body)), **headers}, body)


def logged(broker, text):
    until(lambda: any(text in line for line in broker.lines), f"{text} is in the log")


def consume(client, names):
    """Get one message of each of these subscriptions, and end each of them."""
    for name in names:
        client.send("SUBSCRIBE", {"id": name, "destination": TOPIC, NAME: name, "ack": "client-individual"})
        headers, body = client.read("MESSAGE")
        assert body == BODY
        client.send("ACK", {"id": headers["ack"]})
        client.send("UNSUBSCRIBE", {"id": name, NAME: name, "receipt": "ended"})
        client.receipt("ended")


def test_copies_share_one_body_with_users_rights_and_tls_until_the_last_is_consumed(brokerd, tmp_path):
    """Some are consumed, then the broker is killed; those that are left need the body."""
    authority = Authority(tmp_path)
    broker = brokerd(
        **{
            "acceptor.ssl-enabled": True,
            "acceptor.key-store-path": str(authority.store("a1")),
            "acceptor.users.alice": "a",
            "acceptor.users.bob": "b",
            "security-settings.t.send": ["alice"],
            "security-settings.t.consume": ["bob"],
            "security-settings.DLQ.consume": ["bob"],
            "security-settings.ExpiryQueue.consume": ["bob"],
        }
    )

    def bob():
        return Encrypted(broker.port, authority.trust, login="bob", passcode="b", client_id="bob")

    client = bob()
    subscribe(client)
    client.close()
    before = sum(files(broker, "journal"))
    alice = Encrypted(broker.port, authority.trust, login="alice", passcode="a")
    send(alice, receipt="1")
    alice.receipt("1")
    assert files(broker, "large-messages") == [len(BODY)]
    assert sum(files(broker, "journal")) - before < SUBSCRIPTIONS * 1000
    client = bob()
    consume(client, map(str, range(0, SUBSCRIPTIONS, 2)))
    broker.kill()
    broker.start()
    client = bob()
    consume(client, map(str, range(1, SUBSCRIPTIONS, 2)))
    until(lambda: files(broker, "large-messages") == [], "the body is gone")
    assert not any("internal error" in line for line in broker.lines)


def test_short_bodies_and_few_copies_stay_in_the_journal(brokerd):
    broker = brokerd()
    client = Raw(broker.port, client_id="c")
    subscribe(client, 10)
    client.send("SUBSCRIBE", {"id": "now", "destination": TOPIC})
    for body in (b"short", BODY):
        send(client, body)
        for _ in range(11):
            assert client.read("MESSAGE")[1] == body
    assert files(broker, "large-messages") == []


def test_who_subscribes_now_gets_a_shared_body_without_a_look_into_its_file(brokerd):
    broker = brokerd()
    client = Raw(broker.port, client_id="c")
    subscribe(client)
    client.send("UNSUBSCRIBE", {"id": "0"})
    send(client, receipt="sent")
    frames = [client.frame() for _ in range(SUBSCRIPTIONS)]
    bodies = [body for command, _, body in frames if command == "MESSAGE"]
    assert bodies == [BODY] * (SUBSCRIPTIONS - 1)
    [path] = (Path(broker.directory) / "data" / "large-messages").iterdir()
    path.unlink()
    client.send("SUBSCRIBE", {"id": "0", "destination": TOPIC, NAME: "0"})
    assert client.read("MESSAGE")[1] == BODY


def test_frames_behind_a_shared_body_keep_their_order(brokerd):
    broker = brokerd()
    client = Raw(broker.port, client_id="c")
    subscribe(client)
    client.send("SUBSCRIBE", {"id": "now", "destination": TOPIC, "ack": "client"})
    other = Raw(broker.port)
    for number in range(5):
        send(other, BODY + str(number).encode())
        send(other, str(number).encode(), receipt=str(number))
    for number in range(5):
        other.receipt(str(number))
    got = []
    while len(got) < 10:
        headers, body = client.read("MESSAGE")
        if headers["subscription"] == "now":
            got.append(body.removeprefix(BODY).decode())
    assert got == [str(number) for number in range(5) for _ in range(2)]


def test_a_transaction_shares_bodies_as_well_and_undoes_them(brokerd):
    broker = brokerd()
    client = Raw(broker.port, client_id="c")
    subscribe(client)
    client.send("DISCONNECT", receipt="away")
    client.receipt("away")
    producer = Raw(broker.port)
    for end in ("ABORT", "COMMIT"):
        producer.send("BEGIN", transaction="t")
        for _ in range(3):
            send(producer, transaction="t", receipt="sent")
            producer.receipt("sent")
        assert files(broker, "large-messages") == [len(BODY)] * 3
        producer.send(end, transaction="t", receipt="ended")
        producer.receipt("ended")
        left = [] if end == "ABORT" else [len(BODY)] * 3
        until(lambda left=left: files(broker, "large-messages") == left, f"after {end}")


@pytest.mark.parametrize("transacted", [False, True])
def test_copies_of_headers_and_of_all_of_a_transaction_are_bounded(brokerd, transacted):
    broker = brokerd(**{"acceptor.max-copies-size": SUBSCRIPTIONS * 10_000})
    client = Raw(broker.port, client_id="c")
    subscribe(client)
    client.send("DISCONNECT", receipt="away")
    client.receipt("away")
    before = sum(files(broker, "journal"))
    producer = Raw(broker.port)
    if transacted:
        producer.send("BEGIN", transaction="t")
        for _ in range(10):
            send(producer, b"short", transaction="t", h="x" * 1000)
        producer.send("COMMIT", transaction="t")
    else:
        send(producer, b"short", h="x" * 10_000)
    assert "bytes, and may have 1000000 (acceptor.max-copies-size)" in producer.error()
    producer = Raw(broker.port)
    send(producer, b"short", h="x" * 1000, receipt="sent")
    producer.receipt("sent")
    send(producer, b"short", "/queue/q", h="x" * 10_000, receipt="sent")
    producer.receipt("sent")
    assert sum(files(broker, "journal")) - before < SUBSCRIPTIONS * 1500 + 11_000
    logged(broker, "acceptor.max-copies-size")


def test_a_client_has_so_many_durable_subscriptions_and_those_in_the_store_stay(brokerd):
    broker = brokerd()
    subscribe(Raw(broker.port, client_id="c"), 3)
    broker.kill()
    broker = brokerd(**{"acceptor.max-durable-subscriptions": 2})
    client = Raw(broker.port, client_id="c")
    client.send("SUBSCRIBE", {"id": "3", "destination": TOPIC, NAME: "3"})
    assert client.error() == (
        "client 'c' has 3 durable subscriptions, and may have 2 (acceptor.max-durable-subscriptions): "
        "end one first, with UNSUBSCRIBE"
    )
    client = Raw(broker.port, client_id="c")
    subscribe(client, 3)
    for name in ("0", "1"):
        client.send("UNSUBSCRIBE", {"id": name, NAME: name, "receipt": "ended"})
        client.receipt("ended")
    client.send("SUBSCRIBE", {"id": "3", "destination": TOPIC, NAME: "3", "receipt": "made"})
    client.receipt("made")
    subscribe(Raw(broker.port, client_id="another"), 2)
    logged(broker, "max-durable-subscriptions")


@pytest.mark.parametrize("durable", [True, False])
def test_a_topic_has_so_many_subscriptions(brokerd, durable):
    broker = brokerd(**{"address-settings.t.max-subscriptions": 3})
    client = Raw(broker.port, client_id="c")
    subscribe(client, 2)
    client.send("SUBSCRIBE", {"id": "now", "destination": TOPIC, "receipt": "made"})
    client.receipt("made")
    client.send("SUBSCRIBE", {"id": "other", "destination": "/topic/other", "receipt": "made"})
    client.receipt("made")
    more = {NAME: "more"} if durable else {}
    another = Raw(broker.port, client_id="another")
    another.send("SUBSCRIBE", {"id": "more", "destination": TOPIC, **more})
    assert another.error() == (
        "topic 't' has 3 subscriptions, and may have 3 (address-settings: max-subscriptions): end one first"
    )
    client.send("UNSUBSCRIBE", {"id": "now"})
    client.send("UNSUBSCRIBE", {"id": "0", "receipt": "ended"})
    client.receipt("ended")
    again = Raw(broker.port, client_id="again")
    again.send("SUBSCRIBE", {"id": "more", "destination": TOPIC, **more, "receipt": "made"})
    again.receipt("made")
    logged(broker, "max-subscriptions")


def test_clients_make_so_many_queues_and_subscriptions_and_those_in_the_store_stay(brokerd):
    broker = brokerd(**{"broker.max-queues": 4})
    client = Raw(broker.port, client_id="c")
    send(client, b"one", "/queue/1", receipt="sent")
    client.receipt("sent")
    client.send("SUBSCRIBE", {"id": "2", "destination": "/queue/2", "receipt": "made"})
    client.receipt("made")
    subscribe(client, 1)
    client.send("SUBSCRIBE", {"id": "t", "destination": "/temp-queue/t", "receipt": "made"})
    client.receipt("made")
    full = (
        "the broker has 4 queues and subscriptions, and may have 4 (broker.max-queues): delete some first, "
        "with brokerctl delete"
    )
    for command, headers in [
        ("SEND", {"destination": "/queue/5"}),
        ("SUBSCRIBE", {"id": "5", "destination": "/queue/5"}),
        ("SUBSCRIBE", {"id": "5", "destination": TOPIC}),
        ("SUBSCRIBE", {"id": "5", "destination": TOPIC, NAME: "5"}),
        ("SUBSCRIBE", {"id": "5", "destination": "/temp-queue/5"}),
        ("SEND", {"destination": "/queue/1", "reply-to": "/temp-queue/5"}),
    ]:
        refused = Raw(broker.port, client_id="another")
        refused.send(command, headers)
        assert refused.error() == full
    client.send("UNSUBSCRIBE", {"id": "t", "receipt": "ended"})
    client.receipt("ended")
    refused = Raw(broker.port)
    refused.send("BEGIN", {"transaction": "t"})
    for number in (5, 6):
        send(refused, b"two at once", f"/queue/{number}", transaction="t")
    refused.send("COMMIT", {"transaction": "t"})
    assert refused.error() == full.replace("has 4", "has 3")
    logged(broker, "(broker.max-queues)")
    broker.kill()
    broker = brokerd(**{"broker.max-queues": 2})
    client = Raw(broker.port, client_id="c")
    subscribe(client, 1)
    send(client, b"two", "/queue/1", receipt="sent")
    client.receipt("sent")
