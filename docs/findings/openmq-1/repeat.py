"""Acknowledge a message of its own and ask what is left: ``python repeat.py HOST PORT MODE``.

``MODE`` is client-individual or client. The queue is a new one; user guest, as brokers begin.
"""

import socket
import sys
import time

host, port, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
queue = f"/queue/ack{time.time_ns()}"


def connected():
    """A client that is logged in."""
    stream = socket.create_connection((host, port), 10).makefile("rwb")
    tell(stream, "CONNECT\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\n\n")
    assert read(stream)[0] == "CONNECTED"
    return stream


def tell(stream, text):
    """Send a frame."""
    stream.write(text.encode() + b"\0")
    stream.flush()


def read(stream):
    """The next frame: its command, headers and body."""
    data = b""
    while not data.endswith(b"\0"):
        data += stream.read(1)
    head, _, body = data[:-1].decode().lstrip("\n").partition("\n\n")
    command, *lines = head.split("\n")
    return command, dict(line.split(":", 1) for line in lines), body


def subscribed(stream):
    """The first message that comes."""
    tell(stream, f"SUBSCRIBE\nid:1\ndestination:{queue}\nack:{mode}\n\n")
    return read(stream)


sender = connected()
for body in ("first", "second"):
    tell(sender, f"SEND\ndestination:{queue}\nreceipt:{body}\n\n{body}")
    assert read(sender)[0] == "RECEIPT"
consumer = connected()
_, headers, body = subscribed(consumer)
print("delivered:", body)
tell(consumer, f"ACK\nid:{headers['ack']}\nreceipt:ack\n\n")
command, headers, answer = read(consumer)
while command == "MESSAGE":
    command, headers, answer = read(consumer)
print("answer to the ACK:", command, headers.get("message", headers.get("receipt-id")))
consumer.close()
time.sleep(1)
print("left in the queue:", subscribed(connected())[2])
