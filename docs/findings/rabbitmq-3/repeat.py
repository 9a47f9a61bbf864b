"""Refuse a message, get it again, close the connection, and see what the next consumer gets.

``python repeat.py HOST STOMP-PORT HTTP-PORT USER PASSWORD LIMIT``; ``LIMIT`` is the delivery limit of
the queue, or ``none``. The queue is a new quorum queue with a single active consumer.
"""

import base64
import json
import socket
import sys
import time
import urllib.request

host, port, http, user, password, limit = sys.argv[1:]
name = f"refused{time.time_ns()}"
queue = f"/amq/queue/{name}"


def declared():
    """Make the queue: over STOMP one cannot say that it has a single active consumer."""
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    if limit != "none":
        arguments["x-delivery-limit"] = int(limit)
    request = urllib.request.Request(
        f"http://{host}:{http}/api/queues/%2F/{name}",
        json.dumps({"durable": True, "arguments": arguments}).encode(),
        {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=10).close()


def connected():
    """A client that is logged in."""
    stream = socket.create_connection((host, int(port)), 10).makefile("rwb")
    tell(stream, f"CONNECT\naccept-version:1.2\nhost:/\nlogin:{user}\npasscode:{password}\n\n")
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


def messages(stream, count):
    """The next so many messages: their headers and bodies."""
    found = []
    while len(found) < count:
        command, headers, body = read(stream)
        if command == "MESSAGE":
            found.append((headers, body))
    return found


def subscribe(stream):
    """Be a consumer of the queue."""
    tell(stream, f"SUBSCRIBE\nid:1\ndestination:{queue}\nack:client-individual\nprefetch-count:5\n\n")


declared()
first, second, sender = connected(), connected(), connected()
for number in range(5):
    tell(sender, f"SEND\ndestination:{queue}\npersistent:true\nreceipt:{number}\n\nm{number}")
    assert read(sender)[0] == "RECEIPT"
subscribe(first)
given = messages(first, 5)
print("the first consumer gets", *(body for _, body in given))
subscribe(second)
tell(first, f"NACK\nid:{given[0][0]['ack']}\n\n")
headers, body = messages(first, 1)[0]
print(f"it refuses {given[0][1]}, and gets {body} again, x-delivery-count {headers.get('x-delivery-count', 'missing')}")
tell(first, "DISCONNECT\n\n")
print("it disconnects, and the next one gets", *(body for _, body in messages(second, 5)))
