"""The first acknowledgement after a broker's start: is it carried out?

``python repeat.py HOST PORT``, once after each start; the queue is a new one; user guest, as
brokers begin. Says whether the message came again after its ACK was answered.
"""

import re
import socket
import sys
import time

host, port = sys.argv[1], int(sys.argv[2])
queue, quiet_s = f"/queue/first{time.time_ns()}", 2


class Client:
    """A connection that is logged in."""

    def __init__(self):
        self.sock = socket.create_connection((host, port), 10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.tell("CONNECT\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\n\n")
        assert self.frame().startswith(b"CONNECTED")

    def tell(self, text):
        """Send a frame."""
        self.sock.sendall(text.encode() + b"\0")

    def frame(self):
        """The next frame. Raises TimeoutError."""
        while b"\0" not in self.rest.lstrip(b"\n"):
            data = self.sock.recv(65536)
            assert data, "the broker has closed the connection"
            self.rest += data
        frame, self.rest = self.rest.lstrip(b"\n").split(b"\0", 1)
        return frame


producer, consumer = Client(), Client()
producer.tell(f"SEND\ndestination:{queue}\nreceipt:sent\n\none")
assert producer.frame().startswith(b"RECEIPT")
consumer.tell(f"SUBSCRIBE\nid:1\ndestination:{queue}\nack:client\n\n")
(name,) = re.findall(rb"^ack:(.*)$", consumer.frame(), re.MULTILINE)
time.sleep(0.0005)
began_s = time.perf_counter()
consumer.tell(f"ACK\nid:{name.decode()}\nreceipt:acknowledged\n\n")
answer = consumer.frame()
assert answer.startswith(b"RECEIPT"), answer
took_ms = (time.perf_counter() - began_s) * 1000
consumer.tell("UNSUBSCRIBE\nid:1\nreceipt:gone\n\n")
assert consumer.frame().startswith(b"RECEIPT")
consumer.tell(f"SUBSCRIBE\nid:2\ndestination:{queue}\nack:client\n\n")
consumer.sock.settimeout(quiet_s)
try:
    marked = b"redelivered:true" in consumer.frame()
    outcome = f"the message came again, marked as redelivered: {marked}"
except TimeoutError:
    outcome = "the message did not come again"
print(f"RECEIPT for the ACK after {took_ms:.1f} ms; {outcome}")
