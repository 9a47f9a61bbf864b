"""The unmodified stomp.py client against a real broker, in each version that it speaks.

``stomp.Connection``, its default, is 1.1.
"""

import queue as queues
import threading

import pytest
import stomp
from brokers import BOUND_S, until

pytestmark = pytest.mark.cluster


class Listener(stomp.ConnectionListener):
    def __init__(self):
        self.messages = queues.Queue()
        self.receipts = queues.Queue()
        self.errors = queues.Queue()
        self.gone = threading.Event()
        self.beats_missed = threading.Event()

    def on_message(self, frame):
        self.messages.put(frame)

    def on_receipt(self, frame):
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame):
        self.errors.put(frame)

    def on_disconnected(self):
        self.gone.set()

    def on_heartbeat_timeout(self):
        self.beats_missed.set()

    def receipt(self, name):
        assert self.receipts.get(timeout=BOUND_S) == name

    def message(self):
        return self.messages.get(timeout=BOUND_S)


@pytest.fixture
def connect(shared):
    made = []

    def make(kind=stomp.Connection12, heartbeats=(0, 0), passcode="secret"):
        # 1.0 has no heart-beats, and its class no such parameter
        more = {} if kind is stomp.Connection10 else {"heartbeats": heartbeats}
        connection = kind([("127.0.0.1", shared.port)], reconnect_attempts_max=1, **more)
        listener = Listener()
        connection.set_listener("", listener)
        connection.connect("guest", passcode, wait=True)
        made.append(connection)
        return connection, listener

    yield make
    for connection in made:
        if connection.is_connected():
            connection.disconnect()


VERSIONS = [stomp.Connection10, stomp.Connection, stomp.Connection12]
in_each_version = pytest.mark.parametrize("kind", VERSIONS, ids=["1.0", "its default", "1.2"])


def answer(say, connection, frame, **more):
    """ACK or NACK as each class wants it: by message-id, that and the subscription, or ack."""
    headers = frame.headers
    if isinstance(connection, stomp.Connection12):
        say(headers["ack"], **more)
    elif isinstance(connection, stomp.Connection10):
        say(headers["message-id"], **more)
    else:
        say(headers["message-id"], headers["subscription"], **more)


@pytest.mark.parametrize(
    ("kind", "ack"),
    [(stomp.Connection10, "auto"), (stomp.Connection10, "client")]
    + [(kind, ack) for kind in VERSIONS[1:] for ack in ("auto", "client", "client-individual")],
)
def test_every_ack_mode(connect, queue, ack, kind):
    connection, listener = connect(kind)
    for n in range(3):
        connection.send(f"/queue/{queue}", f"m{n}", headers={"n": str(n)}, receipt=f"r{n}")
        listener.receipt(f"r{n}")
    connection.subscribe(f"/queue/{queue}", id="1", ack=ack)
    got = [listener.message() for _ in range(3)]
    assert [(frame.body, frame.headers["n"]) for frame in got] == [("m0", "0"), ("m1", "1"), ("m2", "2")]
    if ack == "client":
        answer(connection.ack, connection, got[2], receipt="a")
        listener.receipt("a")
    elif ack == "client-individual":
        for frame in got:
            answer(connection.ack, connection, frame, receipt="a")
            listener.receipt("a")
    connection.disconnect(receipt="bye")
    listener.receipt("bye")
    late, heard = connect()
    late.send(f"/queue/{queue}", "last")
    late.subscribe(f"/queue/{queue}", id="1", ack="auto")
    assert heard.message().body == "last"


@in_each_version
def test_transactions(connect, queue, kind):
    connection, listener = connect(kind)
    connection.subscribe(f"/queue/{queue}", id="1", ack="client")
    transaction = connection.begin()
    connection.send(f"/queue/{queue}", "undone", transaction=transaction)
    connection.abort(transaction)
    transaction = connection.begin()
    connection.send(f"/queue/{queue}", "done", transaction=transaction)
    connection.commit(transaction, receipt="c")
    listener.receipt("c")
    frame = listener.message()
    assert frame.body == "done"
    transaction = connection.begin()
    answer(connection.ack, connection, frame, transaction=transaction)
    connection.commit(transaction, receipt="a")
    listener.receipt("a")
    assert listener.messages.empty()


@pytest.mark.parametrize("kind", VERSIONS[1:], ids=["its default", "1.2"])
def test_nack_and_dead_letters(connect, queue, kind):
    connection, listener = connect(kind)
    connection.send(f"/queue/poison.{queue}", "bad")
    connection.subscribe(f"/queue/poison.{queue}", id="1", ack="client-individual")
    for n in range(2):
        answer(connection.nack, connection, listener.message(), receipt=f"n{n}")
        listener.receipt(f"n{n}")
    connection.subscribe("/queue/DLQ", id="2", ack="client-individual")
    frame = listener.message()
    assert (frame.body, frame.headers["_AMQ_ORIG_QUEUE"]) == ("bad", f"poison.{queue}")
    answer(connection.ack, connection, frame, receipt="a")
    listener.receipt("a")


@in_each_version
def test_headers_with_all_that_needs_an_escape(connect, queue, kind):
    connection, listener = connect(kind)
    values = {"colon": "a:b"}
    if kind is not stomp.Connection10:  # in which there is no escape, although stomp.py reads some
        values |= {"slash": "a\\nb", "lines": "one\ntwo"}
    connection.send(f"/queue/{queue}", "x", headers=values, receipt="r:1")
    listener.receipt("r:1")
    connection.subscribe(f"/queue/{queue}", id="1", ack="auto")
    headers = listener.message().headers
    assert {name: headers[name] for name in values} == values


@in_each_version
def test_large_bodies_with_nul(connect, queue, kind):
    connection, listener = connect(kind)
    body = "\0€" * (1024 * 1024)
    connection.send(f"/queue/{queue}", body, receipt="r")
    listener.receipt("r")
    connection.subscribe(f"/queue/{queue}", id="1", ack="client")
    frame = listener.message()
    assert frame.body == body
    answer(connection.ack, connection, frame, receipt="a")
    listener.receipt("a")


def test_it_connects_as_its_manual_shows(shared, queue):
    """Nothing but the address: 1.1, and what the client sends by itself."""
    connection = stomp.Connection([("127.0.0.1", shared.port)])
    listener = Listener()
    connection.set_listener("", listener)
    connection.connect("guest", "secret", wait=True)
    connection.subscribe(destination=f"/queue/{queue}", id=1, ack="auto")
    connection.send(body="hello", destination=f"/queue/{queue}")
    assert listener.message().body == "hello"
    connection.disconnect()


def test_heart_beats_keep_an_idle_connection_alive_both_ways(connect, shared):
    connection, listener = connect(heartbeats=(1000, 1000))
    assert not listener.gone.wait(6.0)  # more than twice the broker's and the client's patience
    assert not listener.beats_missed.is_set()
    assert connection.is_connected()


def test_a_wrong_passcode_is_told(connect):
    with pytest.raises(stomp.exception.ConnectFailedException):
        connect(passcode="wrong")


def test_a_body_that_is_not_ascii(connect, queue):
    connection, listener = connect()
    connection.send(f"/queue/{queue}", "grüße: ☃\n\\n", content_type="text/plain")
    connection.subscribe(f"/queue/{queue}", id="1", ack="auto")
    assert listener.message().body == "grüße: ☃\n\\n"


def test_many_messages_in_groups_to_several_consumers(connect, queue):
    producer, _ = connect()
    consumers = [connect() for _ in range(3)]
    for n, (connection, listener) in enumerate(consumers):
        connection.subscribe(
            f"/queue/{queue}",
            id=str(n),
            ack="client-individual",
            headers={"receipt": "s", "prefetch-count": "5"},
        )
        listener.receipt("s")
    for n in range(300):
        producer.send(f"/queue/{queue}", str(n), headers={"JMSXGroupID": f"g{n % 7}"})
    seen = {}

    def drain():
        for name, (connection, listener) in enumerate(consumers):
            while not listener.messages.empty():
                frame = listener.messages.get()
                seen.setdefault(frame.headers["JMSXGroupID"], []).append((int(frame.body), name))
                connection.ack(frame.headers["ack"])
        return sum(map(len, seen.values())) == 300

    until(drain, "all 300 messages")
    for numbers in seen.values():
        assert [n for n, _ in numbers] == sorted(n for n, _ in numbers)
        assert len({name for _, name in numbers}) == 1
