"""Whatever strangers, and friends gone mad, send to a port: no traceback, bounded memory and log, and an honest client never notices."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from inputs import COUNT, hostile

from broker import config
from broker.admin_client import NobodyAnswersError, RefusedError, Target, ask, log_in
from broker.cluster import messages as m
from broker.cluster.link import Terms, connect
from broker.handshake import proof
from environments.link_proxy import reserve_port

pytestmark = pytest.mark.cluster

SECRET = "cluster-secret"
AT_ONCE = 50
GROWTH_MAX = 64 * 1024 * 1024
HERE = "127.0.0.1"


class Besieged:
    """A broker process, and an honest client of it whose round trips go on."""

    def __init__(self, directory):
        self.directory = directory
        reserved = {port: reserve_port() for port in ("acceptor", "cluster", "admin")}
        self.ports = {port: one.getsockname()[1] for port, one in reserved.items()}
        for one in reserved.values():
            one.close()
        table = {
            "broker": {"name": "a1", "data-directory": "data"},
            "cluster": {"connector": "a1:1", "stomp-connector": "a1:2", "cluster-password": SECRET},
        }
        for port, number in self.ports.items():
            table[port] = {"host": HERE, "port": number, **table.get(port, {})}
        config.validate(table)
        (directory / "broker.toml").write_text(config.dumps(table))
        self.round_trips = 0

    async def __aenter__(self):
        with (self.directory / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "broker.daemon",
                "--config",
                str(self.directory / "broker.toml"),
                stderr=log,
            )
        while True:
            with contextlib.suppress(OSError):
                self.witness = await asyncio.open_connection(HERE, self.ports["acceptor"])
                break
            await asyncio.sleep(0.05)
        self.witness[1].write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert (await self.witness[0].readuntil(b"\0")).startswith(b"CONNECTED\n")
        await self.round_trip()
        self.resident = self.memory()
        return self

    async def __aexit__(self, *_):
        self.witness[1].close()
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        assert await self.process.wait() == 0

    async def round_trip(self):
        self.round_trips += 1
        number = str(self.round_trips).encode()
        self.witness[1].write(b"SEND\ndestination:/queue/witness\nreceipt:" + number + b"\n\nx\0")
        assert b"receipt-id:" + number in await self.witness[0].readuntil(b"\0")

    def memory(self):
        with Path(f"/proc/{self.process.pid}/statm").open() as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def log(self):
        return (self.directory / "log").read_text()


async def _nothing_first(broker, reader, writer, chance):
    pass


async def _admin_offer(broker, reader, writer, chance):
    await reader.readline()


async def _admin_proof(broker, reader, writer, chance):
    at = Target(HERE, broker.ports["admin"], SECRET)
    await log_in(reader, writer, at, chance.randbytes(32))


async def _cluster_challenge(broker, reader, writer, chance):
    writer.write(m.encode(m.Hello(m.VERSION, "ACTIVEMQ.CLUSTER.ADMIN.USER", b"n" * 32)))
    await reader.readexactly(len(m.encode(m.Challenge(b"n" * 32))))


async def _cluster_welcome(broker, reader, writer, chance):
    writer.write(m.encode(m.Hello(m.VERSION, "ACTIVEMQ.CLUSTER.ADMIN.USER", b"n" * 32)))
    (size,) = m.LENGTH.unpack(await reader.readexactly(4))
    challenge = m.decode(await reader.readexactly(size))
    writer.write(m.encode(m.Proof(proof(SECRET, "cluster", "connecting", b"n" * 32, challenge.nonce))))
    (size,) = m.LENGTH.unpack(await reader.readexactly(4))
    await reader.readexactly(size)


def _stomp(version):
    """Logged in, holding a message, with that version's ways to name it."""

    async def first(broker, reader, writer, chance, wrap=bytes):
        writer.write(wrap(f"CONNECT\naccept-version:{version}\nhost:x\n\n\0".encode()))
        assert b"version:" + version.encode() in await reader.readuntil(b"\0")
        writer.write(
            wrap(
                b"SEND\ndestination:/queue/hostile\n\nm\0"
                b"SUBSCRIBE\nid:0\ndestination:/queue/hostile\nack:client\nprefetch-count:1\n\n\0"
            )
        )
        message = (await reader.readuntil(b"\n\n")).decode()
        held = dict(line.partition(":")[::2] for line in message.split("\n"))
        name = "id:" + held["ack"] if version == "1.2" else "message-id:" + held["message-id"]
        answers = [
            f"{command}\nsubscription:0\n{name}\n{more}\n\0" for command in ("ACK", "NACK") for more in MORE
        ]
        return [answer.encode() for answer in answers]

    return first


def web_frame(data, chance, kind=2, *, last=True):
    """One of a WebSocket client (RFC 6455, 5.2)."""
    size = len(data)
    if size < 126:
        length = bytes((0x80 | size,))
    else:
        length = b"\xfe" + size.to_bytes(2) if size < 1 << 16 else b"\xff" + size.to_bytes(8)
    mask = chance.randbytes(4)
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return bytes((kind | 0x80 * last,)) + length + mask + masked


def in_web_frames(data, chance):
    """The same bytes in several messages, of which some come in parts."""
    wire = b""
    while data:
        size = chance.choice((1, 7, 100, 5000))
        part, data = data[:size], data[size:]
        half = chance.randrange(len(part) + 1)
        if chance.random() < 0.3:
            wire += web_frame(part[:half], chance, last=False) + web_frame(part[half:], chance, 0)
        else:
            wire += web_frame(part, chance)
    return wire


async def _web_open(broker, reader, writer, chance):
    writer.write(UPGRADES[0])
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")


def _web_stomp(version):
    async def first(broker, reader, writer, chance):
        await _web_open(broker, reader, writer, chance)
        return await _stomp(version)(
            broker, Unframed(reader), writer, chance, partial(in_web_frames, chance=chance)
        )

    return first


class Unframed:
    """What is in a server's WebSocket frames, read as far as each NUL."""

    def __init__(self, reader):
        self.reader, self.data = reader, b""

    async def readuntil(self, end):
        while end not in self.data:
            head = await self.reader.readexactly(2)
            size = head[1] & 0x7F
            if size > 125:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
            self.data += await self.reader.readexactly(size)
        found, end, self.data = self.data.partition(end)
        return found + end


MEMBER = m.Member("x", None, "live", "x:1", "x:2", None, 1, 1, 0)
REQUESTS = [
    b'{"command":"status"}\n',
    b'{"command":"status","queues":false}\n',
    b'{"command":"browse","queue":"none"}\n',
    b'{"command":"purge","queue":"none"}\n',
    b'{"command":"views"}\n',
    b'{"command":"brokers"}\n',
]
PROOFS = [json.dumps({"nonce": "ab" * 32, "proof": "cd" * 32}).encode() + b"\n"]
HANDSHAKE = [
    m.encode(message)
    for message in (
        m.Hello(m.VERSION, "ACTIVEMQ.CLUSTER.ADMIN.USER", b"n" * 32),
        m.Challenge(b"n" * 32),
        m.Proof(b"p" * 32),
        m.Welcome(b"p" * 32, MEMBER),
        m.Introduction(MEMBER, "probe"),
        m.Refusal("no"),
        m.Ping(1.0),
    )
]
MORE = ("", "transaction:t\n", "receipt:4\n")
CONNECTS = [
    b"CONNECT\naccept-version:1.2\nhost:x\nlogin:x\npasscode:y\nheart-beat:1000,1000\n\n\0",
    b"CONNECT\n\n\0",
    b"CONNECT\naccept-version:1.0,1.1\nclient-id:c\n\n\0\r\n",
]
FRAMES = [
    b"SEND\ndestination:/queue/hostile\ncontent-length:5\nreceipt:1\n\nhello\0",
    b"SEND\ndestination:/queue/hostile\nJMSXGroupID:g\ntransaction:t\n\nhello\0",
    b"SEND\r\ndestination: /queue/hostile\r\nwhat\\c is\\n:\\\\ this\r\n\r\nhello\0",
    b"SUBSCRIBE\nid:1\ndestination:/queue/hostile\nack:client-individual\n\n\0",
    b"SUBSCRIBE\ndestination:/queue/hostile\nack:client\n\n\0",
    b"ACK\nid:1\n\n\0",
    b"BEGIN\ntransaction:t\nreceipt:2\n\n\0",
    b"COMMIT\ntransaction:t\n\n\0",
    b"ABORT\ntransaction:t\n\n\0",
    b"UNSUBSCRIBE\nid:1\n\n\0",
    b"UNSUBSCRIBE\ndestination:/queue/hostile\n\n\0",
    b"DISCONNECT\nreceipt:3\n\n\0",
    b"\n",
]
VERSIONS = ("1.0", "1.1", "1.2")
UPGRADES = [
    b"GET /stomp HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v10.stomp, v11.stomp\r\n"
    + more
    + b"\r\n"
    for more in (
        b"",
        b"Origin: https://shop.example\r\n",
        b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
        b"Content-Length: 10\r\n",
        b"Transfer-Encoding: chunked\r\n",
    )
]
_MASKS = random.Random(0)
WEB_FRAMES = [
    *(web_frame(frame, _MASKS) for frame in CONNECTS + FRAMES),
    web_frame(b"SEND\ndestination:hostile\n\n\xc3", _MASKS, 1, last=False),
    web_frame(b"\xa9\0", _MASKS, 0),
    web_frame(b"ping", _MASKS, 9),
    web_frame(b"pong", _MASKS, 10),
    web_frame(b"\x03\xe8bye", _MASKS, 8),
    web_frame(b"\x03", _MASKS, 8),
    web_frame(b"\n" * 300, _MASKS, 1),
]


def _plain(data, chance):
    return data


PORTS = {
    "admin": [
        (_nothing_first, PROOFS, _plain),
        (_admin_offer, PROOFS + REQUESTS, _plain),
        (_admin_proof, REQUESTS, _plain),
    ],
    "cluster": [
        (_nothing_first, HANDSHAKE, _plain),
        (_cluster_challenge, HANDSHAKE[2:4], _plain),
        (_cluster_welcome, HANDSHAKE[4:5], _plain),
    ],
    "acceptor": [
        (_nothing_first, CONNECTS + FRAMES, _plain),
        *((_stomp(version), FRAMES, _plain) for version in VERSIONS),
    ],
    "web": [
        (_nothing_first, UPGRADES, _plain),
        (_web_open, WEB_FRAMES, _plain),
        *((_web_stomp(version), FRAMES, in_web_frames) for version in VERSIONS),
    ],
}


async def attack(broker, port, seed):
    """One connection: what is valid first, then the hostile input; returns when the broker has closed it."""
    chance = random.Random(f"{port} {seed}")
    first, valid, wrap = chance.choice(PORTS[port])
    at = broker.ports["acceptor" if port == "web" else port]
    reader, writer = await asyncio.open_connection(HERE, at, limit=1 << 24)
    try:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, NobodyAnswersError, RefusedError):
            held = await first(broker, reader, writer, chance) or []
            writer.write(wrap(hostile(chance, valid + held), chance))
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
    finally:
        writer.close()


async def admin_works(broker):
    assert (await ask(Target(HERE, broker.ports["admin"], SECRET), "status"))["role"] == "live"


async def cluster_works(broker):
    terms = Terms(
        user="ACTIVEMQ.CLUSTER.ADMIN.USER",
        password=SECRET,
        ttl_s=30.0,
        call_timeout_s=30.0,
        nonce=lambda: os.urandom(32),
        member=lambda: MEMBER,
    )
    link = await connect(terms, (HERE, broker.ports["cluster"]), "probe")
    assert link.member.name == "a1"
    link.close("done")


async def acceptor_works(broker):
    for version in VERSIONS:
        reader, writer = await asyncio.open_connection(HERE, broker.ports["acceptor"])
        assert await _stomp(version)(broker, reader, writer, random.Random(0))
        writer.close()


async def web_works(broker):
    for version in VERSIONS:
        reader, writer = await asyncio.open_connection(HERE, broker.ports["acceptor"])
        assert await _web_stomp(version)(broker, reader, writer, random.Random(0))
        writer.close()


@pytest.mark.parametrize(
    ("port", "works"),
    [
        ("admin", admin_works),
        ("cluster", cluster_works),
        ("acceptor", acceptor_works),
        ("web", web_works),
    ],
)
def test_hostile_inputs_harm_nobody(port, works, tmp_path):
    async def scenario():
        async with Besieged(tmp_path) as broker:
            for begin in range(0, COUNT, AT_ONCE):
                batch = range(begin, min(begin + AT_ONCE, COUNT))
                async with asyncio.TaskGroup() as group:
                    for seed in batch:
                        group.create_task(attack(broker, port, seed))
                    await broker.round_trip()
            await works(broker)
            assert broker.memory() < broker.resident + GROWTH_MAX
            return broker.log

    log = asyncio.run(scenario())
    assert "Traceback" not in log
    assert "internal error" not in log
    assert all(line.isprintable() for line in log.splitlines())
