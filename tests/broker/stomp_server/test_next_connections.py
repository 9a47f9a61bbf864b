"""A client that comes again.

What its dead connection had sent is not taken behind what the next one sends.

Sockets are real; the disk takes a large body when the test says so, since a slow disk is what keeps
a connection unread.
"""

import asyncio
import random
import socket
import struct

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Request

from broker import config
from broker.core.engine import Engine
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.stomp.intake import PARKED_BYTES_MAX
from broker.stomp.server import StompServer
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stomp_protocol.codec import Parser, encode

LARGE = b"x" * (200 * 1024)
RESET = struct.pack("ii", 1, 0)


class Broker:
    """One in this process, on a port of its own."""

    @classmethod
    async def start(cls, **acceptor):
        self = cls()
        self.journal, recovered = await Journal.open(MemoryVolume(), "journal")
        self.gate = DurabilityGate(self.journal.synced)
        self.journal.on_synced = lambda sequence: setattr(self.gate, "local", sequence)
        parsed = config.validate(
            {"broker": {"name": "a1"}, "acceptor": {"host": "127.0.0.1", "port": 0, **acceptor}}
        )
        seams = Seams(random.Random(1), lambda: 0.0)
        self.engine = Engine(self.journal, recovered, self.gate, EngineSettings.of(parsed, "n1"), seams)
        self.server = StompServer(parsed, self.engine)
        await self.server.start()
        self.disk = asyncio.Event()
        store = self.engine.large.store
        begin = store.begin

        async def slow():
            await self.disk.wait()
            return await begin()

        store.begin = slow
        return self

    async def stop(self):
        await self.server.stop()
        await self.journal.close()


class Client:
    @classmethod
    async def connect(cls, broker, **headers):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        self.parser, self.frames = Parser(), []
        await self.log_in(**headers)
        return self

    async def log_in(self, **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send("CONNECT", {"accept-version": "1.2", "host": "h", **names})
        assert (await self.frame()).command == "CONNECTED"

    def send(self, command, headers, body=b""):
        self.writer.write(encode(command, headers, body))

    async def frame(self):
        while not self.frames:
            data = await self.read()
            if not data:
                return None
            self.frames += self.parser.feed(data)
        return self.frames.pop(0)

    async def read(self):
        return await self.reader.read(65536)

    async def publish(self, text):
        self.send("SEND", {"destination": "q", "receipt": "r"}, text.encode())
        assert (await self.frame()).headers["receipt-id"] == "r"

    async def upload(self, broker):
        """A large message, and small ones behind it, which wait: the disk is slow."""
        self.send("SEND", {"destination": "q"}, LARGE)
        for n in range(3):
            self.send("SEND", {"destination": "q"}, f"late{n}".encode())
        await self.writer.drain()
        while not any(one.uploads.busy and one._blocked for one in broker.server.connections):
            await asyncio.sleep(0.001)

    async def consume(self, count):
        self.send("SUBSCRIBE", {"id": "s", "destination": "q", "ack": "auto"})
        return [(await self.frame()).body[:5].decode() for _ in range(count)]

    def reset(self):
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()


class WebClient(Client):
    """The same by WebSocket."""

    @classmethod
    async def connect(cls, broker, **headers):
        self = cls()
        self.web = WSConnection(ConnectionType.CLIENT)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        self.writer.write(self.web.send(Request(host="h", target="/stomp")))
        self.web.receive_data(await self.reader.readuntil(b"\r\n\r\n"))
        assert isinstance(next(self.web.events()), AcceptConnection)
        self.parser, self.frames = Parser(), []
        await self.log_in(**headers)
        return self

    def send(self, command, headers, body=b""):
        self.writer.write(self.web.send(BytesMessage(encode(command, headers, body))))

    async def read(self):
        data = b""
        while not data:
            self.web.receive_data(await self.reader.read(65536))
            data = b"".join(
                bytes(event.data) for event in self.web.events() if isinstance(event, BytesMessage)
            )
        return data


async def stored(broker, reader):
    """All that is in the queue once the disk has taken what it will."""
    broker.disk.set()
    for _ in range(50):
        await asyncio.sleep(0.002)
    await reader.publish("end")
    got = []
    reader.send("SUBSCRIBE", {"id": "s", "destination": "q", "ack": "auto"})
    while not got or got[-1] != "end":
        got.append((await reader.frame()).body[:5].decode())
    return got


def test_what_a_reset_connection_had_sent_is_not_taken_after_the_reset():
    async def scenario():
        broker = await Broker.start()
        dead = await Client.connect(broker)
        await dead.upload(broker)
        dead.reset()
        following = await Client.connect(broker)
        await following.publish("next")
        assert await stored(broker, following) == ["next", "end"]
        await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["it stays open", "it was closed", "it was reset"])
def test_a_client_that_names_itself_ends_its_last_connection_before_it_is_connected(how):
    async def scenario():
        broker = await Broker.start()
        dead = await Client.connect(broker, client_id="me")
        await dead.upload(broker)
        if how == "it was closed":
            dead.writer.close()
        elif how == "it was reset":
            dead.reset()
        following = await Client.connect(broker, client_id="me")
        await following.publish("next")
        assert await stored(broker, following) == ["next", "end"]
        if how == "it stays open":
            error = await dead.frame()
            assert error.headers["message"].startswith("client-id 'me' has connected again")
            assert await dead.frame() is None
        assert len(broker.server.connections) == 1
        await broker.stop()

    asyncio.run(scenario())


WAYS_TO_WAIT = [
    "for room in the queue",
    "for the disk",
    "behind a commit that waits for the disk",
    "behind a body that waits for the disk",
]


@pytest.mark.parametrize("waits", WAYS_TO_WAIT)
@pytest.mark.parametrize("web", [False, True])
@pytest.mark.parametrize(
    "how", ["it was reset", "it stays open, and has a name", "it was closed, and had a name"]
)
def test_what_a_dead_connection_has_parked_is_never_taken(how, waits, web):
    async def scenario():
        broker = await Broker.start()
        memory = broker.engine.memory
        name = {"client_id": "me"} if "name" in how else {}
        dead = await (WebClient if web else Client).connect(broker, **name)
        other = await Client.connect(broker)
        if waits == "for room in the queue":
            memory.take(broker.engine.queue("q"), 1 << 30)
        else:
            memory.set_disk_full(True)
        if "commit" in waits:
            dead.send("BEGIN", {"transaction": "t"})
            dead.send("SEND", {"destination": "q", "transaction": "t"}, b"dead in t")
            dead.send("COMMIT", {"transaction": "t"})
        if "body" in waits:
            dead.send("SEND", {"destination": "q"}, LARGE)
            broker.disk.set()
        for n in range(3):
            dead.send("SEND", {"destination": "q"}, f"dead{n}".encode())
        await dead.writer.drain()
        while not any(one.session._intake or one._blocked for one in broker.server.connections):
            await asyncio.sleep(0.001)
        if how == "it was reset":
            dead.reset()
        elif "closed" in how:
            dead.writer.close()
        await asyncio.sleep(0.01)
        following = await Client.connect(broker, **name)
        if waits == "for room in the queue":
            memory.give(broker.engine.queue("q"), 1 << 30)
        else:
            memory.set_disk_full(False)
        await following.publish("next")
        assert await stored(broker, other) == ["next", "end"]
        await broker.stop()

    asyncio.run(scenario())


def test_it_does_so_again_and_again():
    async def scenario():
        broker = await Broker.start()
        for n in range(4):
            client = await Client.connect(broker, client_id="me")
            await client.publish(str(n))
        assert await client.consume(4) == ["0", "1", "2", "3"]
        client.send("DISCONNECT", {"receipt": "bye"})
        await client.frame()
        assert await client.frame() is None
        assert broker.server.clients == {}
        await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"client_id": "a"}, {"client_id": "b"}),
        ({"client_id": "a"}, {"client_id": "a", "login": "eve", "passcode": "2"}),
    ],
)
def test_nobody_ends_the_connection_of_another(one, other):
    async def scenario():
        broker = await Broker.start(users={"guest": "1", "eve": "2"})
        guest = {"login": "guest", "passcode": "1"}
        first = await Client.connect(broker, **{**guest, **one})
        second = await Client.connect(broker, **{**guest, **other})
        await first.publish("x")
        await second.publish("y")
        assert len(broker.server.connections) == 2
        await broker.stop()

    asyncio.run(scenario())


def test_a_wrong_passcode_ends_nobodys_connection():
    async def scenario():
        broker = await Broker.start(users={"guest": "1"})
        first = await Client.connect(broker, client_id="a", login="guest", passcode="1")
        with pytest.raises(AssertionError):
            await Client.connect(broker, client_id="a", login="guest", passcode="2")
        await first.publish("x")
        await broker.stop()

    asyncio.run(scenario())


class News:
    """Other brokers that have said nothing of their subscriptions, until ``come``."""

    def __init__(self):
        self.come = asyncio.get_running_loop().create_future()

    def heard(self):
        return None if self.come.done() else self.come

    told = heard


@pytest.mark.parametrize("sent", ["alone", "in a transaction"])
def test_what_has_waited_for_other_brokers_waits_for_the_disk_too(sent):
    async def scenario():
        broker = await Broker.start()
        news = broker.engine.news = News()
        client = await Client.connect(broker)
        transaction = {"transaction": "t"} if "transaction" in sent else {}
        if transaction:
            client.send("BEGIN", transaction)
        client.send("SEND", {"destination": "/topic/t", "receipt": "r", **transaction}, b"m")
        if transaction:
            assert (await client.frame()).headers["receipt-id"] == "r"
            client.send("COMMIT", {"receipt": "r", **transaction})
        [connection] = broker.server.connections
        while not connection.session._intake:
            await asyncio.sleep(0.001)
        broker.engine.memory.set_disk_full(True)
        news.come.set_result(None)
        await asyncio.sleep(0.02)
        assert connection.session._intake
        broker.engine.memory.set_disk_full(False)
        assert (await client.frame()).headers["receipt-id"] == "r"
        await broker.stop()

    asyncio.run(scenario())


def test_who_sends_much_behind_a_subscribe_that_waits_for_other_brokers_is_not_ended():
    async def scenario():
        broker = await Broker.start()
        news = broker.engine.news = News()
        client = await Client.connect(broker)
        client.send("SUBSCRIBE", {"id": "1", "destination": "/topic/t", "receipt": "subscribed"})
        body = bytes(60_000)
        for n in range(PARKED_BYTES_MAX // len(body) + 40):
            client.send("SEND", {"destination": "q", "receipt": str(n)}, body)
        [connection] = broker.server.connections
        while connection.session._intake.size <= PARKED_BYTES_MAX:
            await asyncio.sleep(0.001)
        news.come.set_result(None)
        receipts = [(await client.frame()).headers["receipt-id"] for _ in range(n + 2)]
        assert receipts == ["subscribed", *map(str, range(n + 1))]
        await broker.stop()

    asyncio.run(scenario())
