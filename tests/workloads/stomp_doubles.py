"""A scripted STOMP server, a recorder in memory, and a dialect.

What workloads need, under a test's control.
"""

import asyncio
import contextlib
import random

import msgspec

from harness.interface import Address, Dialect, NodePlan, TestSpec, WorkloadContext
from stomp_protocol.codec import Parser, encode

PLAIN = Dialect(
    login="user",
    passcode="secret",
    count_header="count",
    name_header="broker",
    store_header="store-session",
    redirect_header="redirect",
)
DIALECT = msgspec.structs.replace(PLAIN, refused=lambda headers: headers.get("definite") == "yes")


class Rows:
    """``harness.interface.Recorder`` as a list of dictionaries without the empty columns."""

    def __init__(self):
        self.rows = []
        self.processes = self.connections = 0

    def event(self, process, type, f, **columns):  # noqa: A002
        row = {"process": process, "type": type, "f": f}
        row |= {name: value for name, value in columns.items() if value is not None}
        self.rows.append(row)
        return len(self.rows) - 1

    def now_ns(self):
        return len(self.rows)

    def next_process(self):
        self.processes += 1
        return self.processes - 1

    def next_connection(self):
        self.connections += 1
        return self.connections

    def of(self, *f, type=None):  # noqa: A002
        return [row for row in self.rows if row["f"] in f and (type is None or row["type"] == type)]

    def types(self, f):
        return [row["type"] for row in self.of(f)]


class Peer(asyncio.Protocol):
    """One client as the server sees it. ``frames`` is what it sent."""

    def __init__(self, server):
        self.server = server
        self.parser = Parser()
        self.frames = []
        self.heart_beats = 0
        self.gone = asyncio.Event()
        self.subscriptions = {}

    def connection_made(self, transport):
        self.transport = transport
        self.server.peers.append(self)
        if self.server.refuse:
            transport.abort()

    def data_received(self, data):
        if data == b"\n":
            self.heart_beats += 1
        for frame in self.parser.feed(data):
            self.frames.append(frame)
            self.server.handle(self, frame)

    def connection_lost(self, exc):
        self.gone.set()

    def say(self, command, headers, body=b""):
        if not self.transport.is_closing():
            self.transport.write(encode(command, headers, body))

    def receipt(self, frame):
        if "receipt" in frame.headers:
            self.say("RECEIPT", {"receipt-id": frame.headers["receipt"]})


class Server:
    """Answers as a broker would, but for the commands in ``script``.

    Command -> what to do with (peer, frame).
    """

    def __init__(self, name="a1", heart_beat="0,0", tls=None):
        self.name = name
        self.heart_beat = heart_beat
        self.tls = tls
        self.peers = []
        self.script = {}
        self.refuse = False
        self.stored = []  # (headers, body) of sends that nobody consumes yet
        self.unacknowledged = {}
        self.tags = 0
        self.deliver = True

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.listener = await loop.create_server(lambda: Peer(self), "127.0.0.1", 0, ssl=self.tls)
        self.address = Address("127.0.0.1", self.listener.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_):
        self.listener.close()
        for peer in self.peers:
            peer.transport.abort()

    def handle(self, peer, frame):
        scripted = self.script.get(frame.command)
        if scripted is not None:
            scripted(peer, frame)
        else:
            self.answer(peer, frame)

    def answer(self, peer, frame):
        """As a broker with one queue and one consumer would."""
        headers = frame.headers
        if frame.command == "CONNECT":
            peer.say("CONNECTED", {"version": "1.2", "heart-beat": self.heart_beat, "broker": self.name})
            return
        if frame.command == "SEND":
            self.stored.append(frame)
        elif frame.command == "SUBSCRIBE":
            peer.subscriptions[headers["id"]] = headers["destination"]
        elif frame.command == "UNSUBSCRIBE":
            self.give_back(peer, headers["id"])
        elif frame.command == "ACK":
            del self.unacknowledged[headers["id"]]
        elif frame.command == "DISCONNECT":
            self.give_back(peer, *peer.subscriptions)
        peer.receipt(frame)
        self.dispatch()

    def give_back(self, peer, *subscriptions):
        """Subscriptions end: what they hold goes to others, marked."""
        for number in subscriptions:
            del peer.subscriptions[number]
            held = [tag for tag, (owner, _) in self.unacknowledged.items() if owner == (peer, number)]
            for tag in reversed(held):
                frame = self.unacknowledged.pop(tag)[1]
                frame.headers["redelivered"] = "true"
                self.stored.insert(0, frame)

    def dispatch(self):
        if not self.deliver:
            return
        for peer in self.peers:
            if peer.gone.is_set():
                self.give_back(peer, *peer.subscriptions)
        for frame in tuple(self.stored):
            for peer in self.peers:
                for number, destination in peer.subscriptions.items():
                    if destination == frame.headers["destination"] and frame in self.stored:
                        self.stored.remove(frame)
                        self.tags += 1
                        self.unacknowledged[f"t{self.tags}"] = ((peer, number), frame)
                        peer.say(
                            "MESSAGE",
                            {
                                "subscription": number,
                                "message-id": f"m{self.tags}",
                                "ack": f"t{self.tags}",
                                "destination": destination,
                                "redelivered": frame.headers.get("redelivered", "false"),
                                **{
                                    name: frame.headers[name]
                                    for name in ("jrstamp",)
                                    if name in frame.headers
                                },
                                "count": "1",
                            },
                            frame.body,
                        )


def make_context(servers, *, dialect=None, zones=("c1",), seed=1, **spec):
    """A context whose nodes are the servers.

    Name -> Server, or None for one that nobody listens on.
    """
    addresses = {name: server.address if server else UNREACHABLE for name, server in servers.items()}
    return WorkloadContext(
        spec=TestSpec(
            name="test",
            **{
                "operation_timeout_s": 30.0,
                "rate": 400.0,
                "quiet_period_s": 0.4,
                "recovery_bound_s": 1.0,
                **spec,
            },
        ),
        recorder=Rows(),
        dialect=dialect or DIALECT,
        random=random.Random(seed),
        nodes=tuple(
            NodePlan(
                name=name, pair=name[0], configured="master" if name.endswith("1") else "slave", ports={}
            )
            for name in servers
        ),
        zones=zones,
        resolve=lambda zone, node: addresses[node],
        stopping=asyncio.Event(),
    )


UNREACHABLE = Address("127.0.0.1", 1)


BOUND_S = 60.0
"""Bounds every wait of a test; reached only when the test fails."""


async def until(condition, bound_s=BOUND_S):
    """Wait for a condition, bounded."""
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(coroutine):
    """Run beside the body; cancelled after it, and its error is raised."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def shortened(module, name, value):
    """A constant of a module has another value meanwhile."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def in_loop(test):
    """Run an async test in a loop of its own; a method of a class keeps its ``self``."""

    def run(*arguments):
        asyncio.run(test(*arguments))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def well_formed(rows):
    """What every history must be.

    Completions follow their invocations, an ``info`` is a process' last word, and all is asked over
    connections there were.
    """
    under_way = {}
    ended = set()
    connections = {None}
    of_session = {}
    for row in rows:
        process = row["process"]
        connection = row.get("connection")
        if row["f"] == "connect":
            assert (connection is not None) == (row["type"] == "ok"), row
            assert connection is None or connection not in connections, row
            connections.add(connection)
        assert connection in connections, row
        assert (
            connection is not None or row["f"] == "connect" or row.get("error") in (None, "not connected")
        ), row
        if row.get("session") is not None:
            assert of_session.setdefault(row["session"], connection) == connection, row
            assert connection is not None, row
        if row["f"] in ("deliver", "disconnect"):
            continue
        if row["type"] == "invoke":
            assert process not in ended, row
            assert process not in under_way, row
            under_way[process] = row
        else:
            begun = under_way.pop(process)
            same = ["f", "message", "session", "producer", "sequence", "group", "queue"]
            if row["f"] != "connect":
                same.append("connection")
            assert [begun.get(name) for name in same] == [row.get(name) for name in same], row
            if row["type"] == "info":
                ended.add(process)
    assert not under_way
