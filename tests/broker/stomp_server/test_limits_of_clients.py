"""Limits on messages, producers and clients, as a client of a broker meets them."""

import pytest
from brokers import BOUND_S, Raw, Subscriber

pytestmark = pytest.mark.cluster

LIMITS = {
    "broker.max-connections": 6,
    "address-settings.waiting.max-messages": 2,
    "address-settings.refused.max-messages": 2,
    "address-settings.refused.limit-behavior": "REJECT_NEWEST",
    "address-settings.newest.max-messages": 2,
    "address-settings.newest.limit-behavior": "REMOVE_OLDEST",
    "address-settings.few.max-producers": 1,
}


@pytest.fixture
def connect(brokerd):
    """Makes clients of one broker with limits, and closes them."""
    broker, made = brokerd(**LIMITS), []

    def make(kind=Raw, **options):
        made.append(kind(broker.port, **options))
        return made[-1]

    make.broker = broker
    yield make
    for client in made:
        client.close()
    assert not any("internal error" in line for line in broker.lines), broker.lines


def certainly_refused(client, receipt):
    text = client.error()
    assert (client.last_error["receipt-id"], client.last_error["not-done"]) == (receipt, "true")
    client.close()
    return text


def test_each_limit_is_kept_and_its_refusals_are_certain(connect):
    producer = connect()
    for queue in ("waiting", "refused", "newest"):
        producer.publish("1", queue)
        producer.publish("2", queue)
    producer.publish("3", "newest")
    producer.send("SEND", {"destination": "/queue/refused", "receipt": "r"}, b"3")
    assert "is full: 2 messages are stored, and 2 may be" in certainly_refused(producer, "r")

    in_a_transaction = connect()
    in_a_transaction.send("BEGIN", {"transaction": "t"})
    in_a_transaction.send("SEND", {"destination": "/queue/other", "transaction": "t"}, b"other")
    in_a_transaction.send("SEND", {"destination": "/queue/refused", "transaction": "t"}, b"3")
    in_a_transaction.send("COMMIT", {"transaction": "t", "receipt": "c"})
    assert "is full" in certainly_refused(in_a_transaction, "c")

    waits, commits = connect(), connect()
    waits.send("SEND", {"destination": "/queue/waiting", "receipt": "w"}, b"3")
    commits.send("BEGIN", {"transaction": "t"})
    commits.send("SEND", {"destination": "/queue/waiting", "transaction": "t"}, b"4")
    commits.send("COMMIT", {"transaction": "t", "receipt": "c"})
    commits.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        commits.frame()
    commits.socket.settimeout(BOUND_S)
    consumer = connect(Subscriber)
    for queue in ("waiting", "refused", "newest", "other"):
        consumer.subscribe(queue, name=queue, receipt=queue)
        consumer.receipt(queue)
    got = {}
    while sum(map(len, got.values())) < 8:
        text, headers = consumer.message()
        got.setdefault(headers["subscription"], []).append(text)
        consumer.send("ACK", {"id": headers["ack"]})
    waits.receipt("w")
    commits.receipt("c")
    assert {queue: sorted(texts) for queue, texts in got.items()} == {
        "waiting": ["1", "2", "3", "4"],
        "refused": ["1", "2"],
        "newest": ["2", "3"],
    }


def test_more_producers_or_clients_than_may_be_are_refused_until_one_leaves(connect):
    first, second = connect(client_id="first"), connect()
    first.publish("1", "few")
    second.send("SEND", {"destination": "/queue/few", "receipt": "r"}, b"2")
    assert "max-producers" in certainly_refused(second, "r")
    first.send("DISCONNECT", {"receipt": "bye"})
    first.receipt("bye")
    assert first.frame()[0] == "EOF"
    others = [connect(client_id=f"c{number}") for number in range(6)]
    others[0].publish("2", "few")
    refused = connect(connect=False)
    login = {"accept-version": "1.2", "host": "h", "login": "guest", "passcode": "secret"}
    refused.send("CONNECT", login)
    assert "broker.max-connections" in refused.error()
    connect(client_id="c1").publish("a client that connects again takes its own place")
