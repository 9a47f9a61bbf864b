"""Large messages: through a broker in pieces, in order with all else, and gone from the disk
when nobody needs them.
"""

import re
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest
from brokers import BOUND_S, Raw, until

pytestmark = pytest.mark.cluster

MIB = 1024 * 1024
LARGE = 200 * 1024


def body(seed, size=LARGE):
    """Bytes of all values, zeros among them."""
    pattern = bytes((seed * 7 + place) % 256 for place in range(256))
    return (pattern * (size // 256 + 1))[:size]


def files(broker):
    """What is in large-messages."""
    directory = Path(broker.directory) / "data" / "large-messages"
    return sorted(one.name for one in directory.iterdir()) if directory.exists() else []


def memory_kib(broker, field):
    """``VmRSS`` (now) or ``VmHWM`` (the most so far) of the broker's process."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1])


def send(raw, data, receipt="sent", queue="q", **headers):
    raw.send(
        "SEND",
        {"destination": f"/queue/{queue}", "content-length": str(len(data)), "receipt": receipt, **headers},
        data,
    )


def stream(raw, size, piece):
    """Send a body of ``size`` bytes without ever having all of it; its CRC-32C."""
    checksum = google_crc32c.Checksum()
    raw.bytes(b"SEND\ndestination:/queue/q\nreceipt:big\ncontent-length:%d\n\n" % size)
    for _ in range(size // len(piece)):
        raw.bytes(piece)
        checksum.update(piece)
    raw.bytes(b"\0")
    return checksum.digest()


def received(raw, size):
    """The CRC-32C of the body of the MESSAGE that comes now, which is never held as a whole, and
    its headers.
    """
    head = b""
    while b"\n\n" not in head:
        head += raw.socket.recv(65536)
    head, _, rest = head.partition(b"\n\n")
    checksum = google_crc32c.Checksum(rest)
    count = len(rest)
    while count <= size:
        data = raw.socket.recv(min(MIB, size + 1 - count))
        assert data, f"the connection ended after {count} of {size} bytes"
        count += len(data)
        checksum.update(data if count <= size else data[:-1])
        last = data
    assert last[-1:] == b"\0"
    return checksum.digest(), dict(line.split(":", 1) for line in head.decode().strip().split("\n")[1:])


def test_sixty_four_megabytes_pass_through_a_broker_that_has_no_memory_for_them(brokerd):
    size = 64 * MIB
    broker = brokerd(**{"acceptor.max-body-bytes": 100 * MIB})
    raw = Raw(broker.port)
    raw.publish("x" * 1000, queue="warm")
    before = memory_kib(broker, "VmRSS")
    sent = stream(raw, size, body(1, MIB))
    raw.receipt("big")
    raw.subscribe()
    got, headers = received(raw, size)
    assert got == sent
    assert headers["content-length"] == str(size)
    assert memory_kib(broker, "VmHWM") - before < 24 * 1024
    raw.send("ACK", {"id": headers["ack"], "receipt": "done"})
    raw.buffer = b""
    raw.receipt("done")
    until(lambda: files(broker) == [], "the file is removed when its message is acknowledged")
    raw.close()


def test_a_consumer_that_does_not_read_takes_no_memory_and_holds_nobody_up(brokerd):
    broker = brokerd(**{"acceptor.max-body-bytes": 100 * MIB})
    raw = Raw(broker.port)
    stream(raw, 32 * MIB, body(1, MIB))
    raw.receipt("big")
    before = memory_kib(broker, "VmRSS")
    idle = Raw(broker.port)
    idle.subscribe()
    for number in range(20):
        raw.publish(str(number), queue="other")
    assert memory_kib(broker, "VmHWM") - before < 24 * 1024
    idle.close()
    raw.subscribe()
    assert received(raw, 32 * MIB)[1]["redelivered"] == "true"
    raw.close()


def test_large_and_small_messages_of_a_group_keep_their_order(client, queue):
    raw = client()
    expected = []
    for number in range(9):
        data = body(number) if number % 3 == 1 else str(number).encode()
        send(raw, data, f"r{number}", queue, JMSXGroupID="g")
        expected.append(data)
    for number in range(9):
        raw.receipt(f"r{number}")
    raw.subscribe(queue)
    got = []
    for _ in range(9):
        headers, data = raw.read("MESSAGE")
        got.append(data)
        raw.send("ACK", {"id": headers["ack"]})
    assert got == expected


def test_a_body_without_a_length_is_large_too(client, queue, shared):
    raw = client()
    text = b"y" * (3 * LARGE)
    raw.send("SEND", {"destination": f"/queue/{queue}", "receipt": "sent"}, text)
    raw.receipt("sent")
    until(lambda: len(files(shared)) == 1, "its file is there")
    raw.subscribe(queue, ack="auto")
    headers, data = raw.read("MESSAGE")
    assert data == text
    assert headers["content-length"] == str(len(text))
    until(lambda: files(shared) == [], "handed over, and gone")


def test_a_large_message_of_a_transaction_is_there_when_it_is_committed_and_not_before(client, queue, shared):
    raw = client()
    for name, end in (("t1", "ABORT"), ("t2", "COMMIT")):
        raw.send("BEGIN", {"transaction": name})
        send(raw, body(3), f"sent-{name}", queue, transaction=name)
        raw.receipt(f"sent-{name}")
        assert len(files(shared)) == 1
        raw.send(end, {"transaction": name, "receipt": end})
        raw.receipt(end)
        if end == "ABORT":
            until(lambda: files(shared) == [], "aborted, and gone")
    raw.subscribe(queue)
    headers, data = raw.read("MESSAGE")
    assert data == body(3)
    raw.send("BEGIN", {"transaction": "t3"})
    raw.send("ACK", {"id": headers["ack"], "transaction": "t3"})
    raw.send("COMMIT", {"transaction": "t3", "receipt": "acknowledged"})
    raw.receipt("acknowledged")
    until(lambda: files(shared) == [], "acknowledged, and gone")


def test_a_connection_that_ends_within_a_large_message_leaves_nothing(client, queue, shared):
    raw = client()
    raw.bytes(b"SEND\ndestination:/queue/%b\ncontent-length:%d\n\n" % (queue.encode(), 10 * LARGE) + body(1))
    until(lambda: len(files(shared)) == 1, "it has begun")
    raw.close()
    until(lambda: files(shared) == [], "what nobody will end is removed")
    other = client()
    other.publish("small", queue)
    other.subscribe(queue)
    assert other.message()[0] == "small"
    other.send("DISCONNECT", {"receipt": "bye"})
    other.receipt("bye")


def test_a_dead_letter_keeps_its_large_body(client, shared):
    queue = "poison.large"
    raw = client()
    send(raw, body(5), queue=queue)
    raw.receipt("sent")
    raw.subscribe(queue)
    for _ in range(2):
        headers, _ = raw.read("MESSAGE")
        raw.send("NACK", {"id": headers["ack"]})
    raw.subscribe("DLQ", name="dead")
    headers, data = raw.read("MESSAGE")
    assert data == body(5)
    assert headers["_AMQ_ORIG_QUEUE"] == queue
    raw.send("ACK", {"id": headers["ack"], "receipt": "done"})
    raw.receipt("done")
    until(lambda: files(shared) == [], "the dead letter is acknowledged, and its body gone")


def test_a_browser_sees_a_large_message_and_leaves_it(client, queue):
    raw = client()
    send(raw, body(6), queue=queue)
    raw.receipt("sent")
    raw.send("SUBSCRIBE", {"id": "b", "destination": f"/queue/{queue}", "browser": "true"})
    assert raw.read("MESSAGE")[1] == body(6)
    assert raw.read("MESSAGE")[0]["browser"] == "end"
    raw.subscribe(queue)
    headers, data = raw.read("MESSAGE")
    assert data == body(6)
    raw.send("ACK", {"id": headers["ack"], "receipt": "done"})
    raw.receipt("done")


def test_a_kill_within_a_large_send_leaves_no_file_after_the_restart(brokerd):
    broker = brokerd()
    raw = Raw(broker.port)
    send(raw, body(1), "whole")
    raw.receipt("whole")
    raw.bytes(b"SEND\ndestination:/queue/q\ncontent-length:%d\n\n" % (10 * LARGE) + body(2, 5 * LARGE))
    until(lambda: len(files(broker)) == 2, "the second one has begun")
    broker.kill()
    raw.close()
    assert len(files(broker)) == 2
    broker.start()
    assert len(files(broker)) == 1
    raw = Raw(broker.port)
    raw.subscribe()
    headers, data = raw.read("MESSAGE")
    assert data == body(1)
    assert headers["redelivered"] == "true"
    raw.send("ACK", {"id": headers["ack"], "receipt": "done"})
    raw.receipt("done")
    until(lambda: files(broker) == [], "nothing is left")
    raw.close()


def test_a_damaged_large_body_is_never_delivered_as_a_whole_one(brokerd):
    broker = brokerd()
    raw = Raw(broker.port)
    send(raw, body(1))
    raw.receipt("sent")
    [name] = files(broker)
    path = Path(broker.directory) / "data" / "large-messages" / name
    damaged = bytearray(path.read_bytes())
    damaged[LARGE // 2] ^= 1
    path.write_bytes(damaged)
    raw.subscribe()
    assert raw.frame()[0] == "EOF"
    until(lambda: any("the checksum does not match" in line for line in broker.lines), "the log says why")
    raw.close()


def test_a_broker_whose_large_body_is_missing_refuses_to_start(brokerd):
    broker = brokerd()
    raw = Raw(broker.port)
    send(raw, body(1))
    raw.receipt("sent")
    raw.close()
    broker.kill()
    [name] = files(broker)
    (Path(broker.directory) / "data" / "large-messages" / name).unlink()
    ended = subprocess.run(
        [sys.executable, "-m", "broker.daemon", "--config", str(broker.path)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert ended.returncode != 0
    assert f"large-messages/{name}" in ended.stderr
    assert "missing" in ended.stderr


def test_a_large_send_to_nowhere_is_refused_before_its_body_is_stored(client, shared):
    raw = client()
    raw.bytes(b"SEND\ndestination:/exchange/x\ncontent-length:%d\n\n" % (10 * LARGE))
    assert "use /queue/NAME, /topic/NAME" in raw.error()
    assert files(shared) == []
