"""Large messages and pages of a broker whose store is a database.

In pieces, as with files, and no row is left of what nobody needs.
"""

import sqlite3

import pytest
from brokers import Raw, until
from test_large_messages import LARGE, MIB, body, memory_kib, received, send, stream

pytestmark = pytest.mark.cluster


def start(brokerd, **properties):
    """A live on a store in SQLite."""
    return brokerd(
        **{
            "acceptor.max-body-bytes": 100 * MIB,
            "cluster.host": "127.0.0.1",
            "cluster.port": 0,
            "cluster.cluster-password": "cluster-secret",
            "cluster.connector": "127.0.0.1:1",
            "cluster.stomp-connector": "127.0.0.1:2",
            "ha-policy.shared-store.store": "database",
            "ha-policy.shared-store.master.lock-poll-period": 50,
            "database-store.url": "sqlite:store.sqlite",
            "database-store.network-timeout": 20_000,
            "database-store.lock-renew-period": 250,
            "database-store.lock-expiration": 60_000,
            **properties,
        }
    )


@pytest.fixture
def on_rows(brokerd):
    """One as it is by default."""
    return start(brokerd)


def ask(broker, question):
    """The one number that answers it."""
    connection = sqlite3.connect(broker.directory / "store.sqlite", timeout=60, isolation_level=None)
    try:
        return connection.execute(question).fetchone()[0]
    finally:
        connection.close()


def blobs(broker, kind="large-messages"):
    """How many there are, whole or not."""
    return ask(broker, f"SELECT COUNT(DISTINCT id) FROM store_blob WHERE kind = '{kind}'")


def kill_and_start(broker):
    """Without waiting for the lock of the killed process to expire."""
    broker.kill()
    ask(broker, "UPDATE store_lock SET expires = 0 RETURNING 0")
    broker.start()


def test_forty_megabytes_pass_through_a_database_and_a_broker_that_has_no_memory_for_them(on_rows):
    size = 40 * MIB
    raw = Raw(on_rows.port)
    raw.publish("x" * 1000, queue="warm")
    before = memory_kib(on_rows, "VmRSS")
    sent = stream(raw, size, body(1, MIB))
    raw.receipt("big")
    assert ask(on_rows, "SELECT SUM(length(data)) FROM store_blob") == size
    assert ask(on_rows, "SELECT MAX(length(data)) FROM store_record") < MIB
    raw.subscribe()
    got, headers = received(raw, size)
    assert got == sent
    assert headers["content-length"] == str(size)
    assert memory_kib(on_rows, "VmHWM") - before < 24 * 1024
    raw.send("ACK", {"id": headers["ack"], "receipt": "done"})
    raw.buffer = b""
    raw.receipt("done")
    until(lambda: blobs(on_rows) == 0, "its rows are removed when its message is acknowledged")
    raw.close()


def test_a_kill_within_a_large_send_leaves_no_row_after_the_restart(on_rows):
    raw = Raw(on_rows.port)
    send(raw, body(1), "whole")
    raw.receipt("whole")
    raw.bytes(b"SEND\ndestination:/queue/q\ncontent-length:%d\n\n" % (3 * MIB) + body(2, 2 * MIB))
    until(lambda: blobs(on_rows) == 2, "rows of the second one are there")
    kill_and_start(on_rows)
    raw.close()
    assert blobs(on_rows) == 1
    raw = Raw(on_rows.port)
    raw.subscribe()
    headers, data = raw.read("MESSAGE")
    assert data == body(1, LARGE)
    assert headers["redelivered"] == "true"
    raw.send("ACK", {"id": headers["ack"], "receipt": "done"})
    raw.receipt("done")
    until(lambda: blobs(on_rows) == 0, "nothing is left")
    raw.close()


def test_pages_are_rows_that_outlive_a_kill_and_end_with_their_messages(brokerd):
    settings = {"max-size-bytes": 100_000, "page-size-bytes": 20_000}
    broker = start(brokerd, **{f"address-settings.#.{name}": value for name, value in settings.items()})
    raw = Raw(broker.port)
    texts = [f"{number} " + "x" * 1000 for number in range(600)]
    for text in texts:
        raw.send("SEND", {"destination": "/queue/q", "JMSXGroupID": "g", "receipt": "sent"}, text.encode())
    for _ in texts:
        raw.receipt("sent")
    until(lambda: blobs(broker, "paging") > 10, "most of them wait on pages")
    raw.close()
    kill_and_start(broker)
    raw = Raw(broker.port)
    raw.subscribe()
    for text in texts:
        got, headers = raw.message()
        assert got == text
        raw.send("ACK", {"id": headers["ack"]})
    until(lambda: blobs(broker, "paging") == 0, "nothing is left")
    raw.close()
