"""Consumers that go away while messages come, and what is left for one that stays.

``python repeat.py HOST PORT ROUNDS``; the queue is a new one; user guest, as brokers begin.
"""

import contextlib
import re
import socket
import struct
import sys
import time

host, port, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
queue, count, size, quiet_s = f"/queue/gone{time.time_ns()}", 600, 2000, 10


def connected():
    """A socket that is logged in."""
    sock = socket.create_connection((host, port), 10)
    tell(sock, "CONNECT\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\n\n")
    assert b"CONNECTED" in sock.recv(65536)
    return sock


def tell(sock, text):
    """Send a frame."""
    sock.sendall(text.encode() + b"\0")


def send(sock, numbers):
    """Send a message for each number, and wait for all receipts."""
    for number in numbers:
        tell(sock, f"SEND\ndestination:{queue}\nreceipt:{number}\n\n<{number:06}>{'x' * size}")
    answers = 0
    while answers < len(numbers):
        answers += sock.recv(65536).count(b"RECEIPT")


def subscribed():
    """A consumer of the queue."""
    sock = connected()
    tell(sock, f"SUBSCRIBE\nid:1\ndestination:{queue}\nack:client\n\n")
    return sock


def received(sock):
    """Numbers of the messages that come, until nothing more does."""
    sock.settimeout(quiet_s)
    data = b""
    try:
        while chunk := sock.recv(1 << 20):
            data += chunk
    except TimeoutError:
        pass
    return {int(number) for number in re.findall(rb"<(\d{6})>", data)}


sender = connected()
send(sender, range(count))
print(count, "messages sent, each with its receipt")
for _ in range(rounds):
    sock = subscribed()
    sock.settimeout(2)
    with contextlib.suppress(TimeoutError):  # those that hang have all messages
        sock.recv(20000)
    tell(sock, "DISCONNECT\nreceipt:bye\n\n")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()  # with a reset: what was on its way is not read; nothing was acknowledged
    time.sleep(0.5)
print(rounds, "consumers came and went; none has acknowledged anything")
stays = subscribed()
print(f"one that stays gets {len(received(stays))} of {count}, and nothing more for {quiet_s} s")
send(sender, range(count, 2 * count))
print(f"of {count} more it gets {len(received(stays))}, and nothing more for {quiet_s} s")
