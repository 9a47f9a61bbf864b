"""A STOMP client as bytes.

Valid frames in every spelling that STOMP 1.2 allows, and frames that it forbids.
"""

from stomp_protocol.codec import Parser
from stomp_protocol.frames import UNESCAPED


class Transport:
    """What the broker's connection sees of the network: bytes go into a list."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.loop = protocol._loop
        self.out = []
        self.closed = False

    def get_extra_info(self, name, default=None):
        return default

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        raise AssertionError("the queues of this test are never full")

    resume_reading = pause_reading

    def write(self, data):
        assert not self.closed, "written after the end"
        self.out.append(data)

    def close(self):
        if not self.closed:
            self.closed = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close


class Reader:
    """The frames that came, parsed as a client would."""

    def __init__(self, transport):
        self.transport = transport
        self.parser = Parser()

    def frames(self):
        out, self.transport.out = self.transport.out, []
        return [frame for data in out for frame in self.parser.feed(data)]


def escaped(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace(":", "\\c")


def spell(command, headers, body=b"", style=0):
    """A frame.

    ``style``: bits for line ends before it, CRLF, repeated headers (the first counts) and an
    explicit content-length.
    """
    escape = str if command in UNESCAPED else escaped
    lines = [f"{name}:{escape(value)}" for name, value in headers.items()]
    if style & 4:
        lines += [f"{name}:wrong" for name in headers if command != "CONNECT"]
    if style & 8 or b"\0" in body:
        lines.append(f"content-length:{len(body)}")
    end = "\r\n" if style & 2 else "\n"
    head = end.join([command, *lines, "", ""])
    return (b"\n\r\n" if style & 1 else b"") + head.encode() + body + b"\0"


BROKEN = (
    b"NONSENSE\n\n\0",
    b"send\ndestination:/queue/q\n\nx\0",
    b"SEND\ndestination\n\nx\0",
    b"SEND\n:/queue/q\n\nx\0",
    b"SEND\ndestination:/queue/q\nx:tab\\t\n\nx\0",
    b"SEND\ndestination:/queue/q\ncontent-length:1\n\nxyz\0",
    b"SEND\ndestination:/queue/q\ncontent-length:-1\n\nxyz\0",
    b"SEND\ndestination:/queue/\xff\xfe\n\nx\0",
    b"SUBSCRIBE\nid:z\ndestination:/queue/q\n\nbody\0",
    b"SEND\ndestination:/queue/q\nlong:" + b"y" * 70_000 + b"\n\nx\0",
)
"""No frames of STOMP 1.2: nothing after them can be understood."""

WRONG = {
    "SEND": ({}, {"destination": "/exchange/t"}, {"destination": "/queue/q", "transaction": "nobody"}),
    "SUBSCRIBE": (
        {"destination": "/queue/q"},
        {"id": "z"},
        {"id": "z", "destination": "/queue/q", "ack": "perhaps"},
        {"id": "z", "destination": "/queue/q", "prefetch-count": "many"},
    ),
    "UNSUBSCRIBE": ({}, {"id": "nobody"}),
    "ACK": ({}, {"id": "nobody"}),
    "NACK": ({}, {"id": "nobody-1.1"}),
    "BEGIN": ({},),
    "COMMIT": ({}, {"transaction": "nobody"}),
    "ABORT": ({}, {"transaction": "nobody"}),
    "CONNECT": ({"accept-version": "1.2", "host": "h"},),
    "MESSAGE": ({"message-id": "1", "destination": "/queue/q", "subscription": "s"},),
    "RECEIPT": ({"receipt-id": "1"},),
    "CONNECTED": ({"version": "1.2"},),
}
"""Frames that are well formed and can never be right once logged in."""

WRONG_FRAMES = [(command, headers) for command, variants in WRONG.items() for headers in variants]

WRONG_LOGINS = (
    ("CONNECT", {"accept-version": "1,2.0", "host": "h"}),
    ("STOMP", {"accept-version": "1.2", "host": "h", "heart-beat": "often"}),
    ("SEND", {"destination": "/queue/q"}),
    ("SUBSCRIBE", {"id": "s", "destination": "/queue/q"}),
    ("DISCONNECT", {}),
)
