"""Break the connections of consumers, and see which messages nobody gets any more.

``python repeat.py HOST PORT USER PASSWORD``, and after the broker was started again
``python repeat.py HOST PORT USER PASSWORD QUEUES``, which only reads what is there. The queues are new ones.
"""

import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

QUEUES, MESSAGES, BREAKS, AT_ONCE = 4, 400, 400, 4
host, port, user, password = sys.argv[1], int(sys.argv[2]), *sys.argv[3:5]
queues = sys.argv[5] if len(sys.argv) > 5 else f"held{time.time_ns()}"


class Client:
    """A client that is logged in."""

    def __init__(self):
        self.socket = socket.create_connection((host, port), 10)
        self.stream = self.socket.makefile("rb")
        self.tell(f"CONNECT\naccept-version:1.2\nhost:x\nlogin:{user}\npasscode:{password}\n\n")
        assert self.read()[0] == "CONNECTED"

    def tell(self, text):
        """Send a frame."""
        self.socket.sendall(text.encode() + b"\0")

    def read(self):
        """The next frame: its command, headers and body."""
        data = b""
        while not data.endswith(b"\0"):
            byte = self.stream.read(1)
            if not byte:
                raise EOFError
            data += byte
        head, _, body = data[:-1].decode().lstrip("\n").partition("\n\n")
        command, *lines = head.split("\n")
        return command, dict(line.split(":", 1) for line in lines), body

    def subscribe(self):
        """Be a consumer of all queues; each message is acknowledged by itself."""
        for number in range(QUEUES):
            self.tell(
                f"SUBSCRIBE\nid:{number}\ndestination:{queues}-{number}\nsubscription-type:ANYCAST\n"
                "ack:client-individual\n\n"
            )

    def taken(self):
        """The next message, acknowledged."""
        while True:
            command, headers, body = self.read()
            if command == "MESSAGE":
                self.tell(f"ACK\nid:{headers['ack']}\n\n")
                return body

    def reset(self):
        """Break the connection: nothing more is sent, and what was not read is refused."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()
        self.socket.close()


def broken(_):
    """What a consumer has taken whose connection breaks while it has more."""
    consumer = Client()
    consumer.subscribe()
    body = consumer.taken()
    consumer.reset()
    return body


taken = set()
if len(sys.argv) == 5:
    sender, sent = Client(), set()
    for number in range(MESSAGES):
        for queue in range(QUEUES):
            sender.tell(
                f"SEND\ndestination:{queues}-{queue}\ndestination-type:ANYCAST\npersistent:true\nreceipt:x\n\n"
                f"{queue}/{number}"
            )
            assert sender.read()[0] == "RECEIPT"
            sent.add(f"{queue}/{number}")
    with ThreadPoolExecutor(AT_ONCE) as several:
        taken |= set(several.map(broken, range(BREAKS)))
    time.sleep(5)
last = Client()
last.subscribe()
last.socket.settimeout(10)
try:
    while True:
        taken.add(last.taken())
except TimeoutError:
    pass
if len(sys.argv) == 5:
    print(f"queues {queues}: of {len(sent)} messages {len(sent - taken)} came to nobody:", *sorted(sent - taken))
else:
    print(f"queues {queues}: {len(taken)} messages came:", *sorted(taken))
