"""Whatever strangers, and friends gone mad, send to a port.

No traceback, bounded memory and log, and an honest client never notices.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path
from ssl import TLSVersion

import pytest
import share
from authority import Authority
from inputs import COUNT, hostile
from records import CHUNK, Secured, context

from broker import config
from broker.admin_client import BrokerRefusedError, NobodyAnswersError, Target, ask, log_in
from broker.cluster import messages as m
from broker.cluster.link import Terms, connect
from broker.handshake import proof
from environments.link_proxy import reserve_port

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SECRET = "cluster-secret"
USER = "ACTIVEMQ.CLUSTER.ADMIN.USER"
AT_ONCE = 50
DELETED_EVERY = 5000
CLIENTS = 500
"""Of topics: enough to be rarely the same at one time, few enough to find one another's again."""
GROWTH_MAX = 64 * 1024 * 1024
IDS_MAX = 8 * 1024 * 1024
HERE = "127.0.0.1"


class Besieged:
    """A broker process, and an honest client of it whose round trips go on.

    With an authority, all but its admin port speak TLS.
    ``clients`` are the contexts of who knows a certificate of that authority, one for each version.
    """

    def __init__(self, directory, authority=None):
        self.directory = directory
        self.clients = []
        reserved = {port: reserve_port() for port in ("acceptor", "cluster", "admin")}
        self.ports = {port: one.getsockname()[1] for port, one in reserved.items()}
        for one in reserved.values():
            one.close()
        table = {
            "broker": {"name": "a1", "data-directory": "data", "max-duplicate-ids-size": IDS_MAX},
            "cluster": {"connector": "a1:1", "stomp-connector": "a1:2", "cluster-password": SECRET},
        }
        for port, number in self.ports.items():
            table[port] = {"host": HERE, "port": number, **table.get(port, {})}
        if authority is not None:
            key_store = str(authority.store("a1"))
            table["acceptor"] |= {"ssl-enabled": True, "key-store-path": key_store}
            table["cluster"] |= {
                "ssl-enabled": True,
                "key-store-path": key_store,
                "trust-store-path": str(authority.trust),
            }
            stranger = authority.store("client")
            self.clients = [
                context(version, stranger) for version in (TLSVersion.TLSv1_2, TLSVersion.TLSv1_3)
            ]
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
                self.witness = await asyncio.open_connection(
                    HERE, self.ports["acceptor"], ssl=self.clients[-1] if self.clients else None
                )
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
    writer.write(m.encode(m.Hello(m.VERSION, "", b"n" * 32)))
    await reader.readexactly(len(m.encode(m.Challenge(b"n" * 32, m.VERSION))))


async def _cluster_welcome(broker, reader, writer, chance):
    writer.write(m.encode(m.Hello(m.VERSION, "", b"n" * 32)))
    (size,) = m.LENGTH.unpack(await reader.readexactly(4))
    challenge = m.decode(await reader.readexactly(size))
    digest = proof(SECRET, "cluster", "connecting", b"n" * 32, challenge.nonce, user=USER)
    writer.write(m.encode(m.Proof(digest)))
    (size,) = m.LENGTH.unpack(await reader.readexactly(4))
    await reader.readexactly(size)


def _stomp(version, clients=0):
    """Logged in, holding a message, with that version's ways to name it.

    As one of so many clients, of whom two may come at once: then only one of them stays.
    """

    async def first(broker, reader, writer, chance, wrap=bytes):
        client = f"client-id:c{chance.randrange(clients)}\n" if clients else ""
        writer.write(wrap(f"CONNECT\naccept-version:{version}\nhost:x\n{client}\n\0".encode()))
        assert b"version:" + version.encode() in await reader.readuntil(b"\0")
        writer.write(
            wrap(
                b"SEND\ndestination:/queue/hostile\n\nm\0"
                b"SUBSCRIBE\nid:0\ndestination:/queue/hostile\nack:client\nprefetch-count:1\n\n\0"
            )
        )
        message = (await reader.readuntil(b"\n\n")).decode()
        if clients and message.startswith("ERROR"):
            return None
        held = dict(line.partition(":")[::2] for line in message.split("\n"))
        name = "id:" + held["ack"] if version == "1.2" else "message-id:" + held["message-id"]
        answers = [
            f"{command}\nsubscription:0\n{name}\n{more}\n\0" for command in ("ACK", "NACK") for more in MORE
        ]
        return [answer.encode() for answer in answers], wrap

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
        wrap = partial(in_web_frames, chance=chance)
        return await _stomp(version)(broker, Unframed(reader), writer, chance, wrap)

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


async def _tls_hello(broker, reader, writer, chance):
    """As far as the server's answer."""
    writer.write(chance.choice(HELLOS[:2]))
    await reader.read(CHUNK)


async def _secured(broker, reader, writer, chance):
    secured = Secured(chance.choice(broker.clients), reader, writer)
    await secured.handshake()
    return secured


async def _tls_open(broker, reader, writer, chance):
    secured = await _secured(broker, reader, writer, chance)
    return [secured.records(frame) for frame in CONNECTS + FRAMES[:2]], bytes


async def _tls_link(broker, reader, writer, chance):
    return [], (await _secured(broker, reader, writer, chance)).records


def _tls_stomp(version):
    async def first(broker, reader, writer, chance):
        secured = await _secured(broker, reader, writer, chance)
        return await _stomp(version)(broker, secured, writer, chance, secured.records)

    return first


HELLOS = [
    *(Secured(context(version), None, None).hello() for version in (TLSVersion.TLSv1_2, TLSVersion.TLSv1_3)),
    b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80",  # SSL 2
]
RECORDS = [
    *HELLOS[:2],
    b"\x14\x03\x03\x00\x01\x01",  # change cipher spec
    b"\x15\x03\x03\x00\x02\x01\x00",  # alerts: close notify, unexpected message
    b"\x15\x03\x03\x00\x02\x02\x0a",
    # handshake: server hello done, key update, a certificate of 16 MB
    b"\x16\x03\x03\x00\x04\x0e\x00\x00\x00",
    b"\x16\x03\x03\x00\x05\x18\x00\x00\x01\x01",
    b"\x16\x03\x03\x40\x00\x0b\xff\xff\xff" + b"\0" * 1000,
    b"\x17\x03\x03\x00\x20" + b"d" * 32,  # data
    b"\x18\x03\x03\x00\x03\x01\x40\x00",  # heartbeat, and its length is a lie
]
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
        m.Hello(m.VERSION, "", b"n" * 32),
        m.Challenge(b"n" * 32, m.VERSION),
        m.Proof(b"p" * 32),
        m.Welcome(b"p" * 32, MEMBER, {"cluster.name": "blue"}),
        m.Introduction(MEMBER, "probe", {"cluster.name": "blue"}),
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
LIKE = b"NOT a LIKE 'x%_' ESCAPE '\\\\' OR colour IS NULL"
TOPIC_FRAMES = [
    *FRAMES[6:9],
    b"SEND\ndestination:/topic/hostile\nreceipt:1\ncolour:red\nsize:7\n\nhello\0",
    b"SEND\ndestination:/topic/hostile\ntransaction:t\ncolour:blue\npriority:9\n\nhello\0",
    b"SEND\ndestination:/topic/hostile\nexpiration:1\nJMSXGroupID:g\nJMSXGroupSeq:-1\n\nhello\0",
    b"SEND\ndestination:/topic/hostile\n_AMQ_DUPL_ID:1\nx-delay:5\ncontent-length:2000\n\n"
    + b"x" * 2000
    + b"\0",
    b"SEND\ndestination:/queue/hostile\nreply-to:/temp-queue/answers\ntransaction:t\n\nhello\0",
    b"SUBSCRIBE\nid:p\ndestination:/topic/hostile\nack:client\nselector:colour = 'red' AND size > 3\n\n\0",
    b"SUBSCRIBE\nid:d\ndestination:/topic/hostile\ndurable-subscription-name:d\n\n\0",
    b"SUBSCRIBE\nid:d\ndestination:/topic/other\ndurable-subscription-name:d\nselector:a IN ('1','2')\n\n\0",
    b"SUBSCRIBE\nid:e\ndestination:/topic/hostile\nactivemq.subscriptionName:e\nselector:" + LIKE + b"\n\n\0",
    b"SUBSCRIBE\nid:s\ndestination:/topic/hostile\ndurable-subscription-name:s\nshared:true\nack:client-individual\n\n\0",
    b"SUBSCRIBE\nid:r\ndestination:/topic/hostile\ndurable:true\nauto-delete:false\n\n\0",
    b"SUBSCRIBE\nid:t\ndestination:/temp-queue/answers\nack:client\n\n\0",
    b"SUBSCRIBE\nid:b\ndestination:/queue/hostile\nbrowser:true\nselector:"
    + b"(" * 40
    + b"a=1"
    + b")" * 40
    + b"\n\n\0",
    b"UNSUBSCRIBE\nid:d\ndurable-subscription-name:d\n\n\0",
    b"UNSUBSCRIBE\nid:s\ndurable-subscription-name:s\nshared:true\n\n\0",
    b"UNSUBSCRIBE\nid:p\n\n\0",
]
"""Topics, subscriptions of every kind, selectors, temporary queues and transactions."""
VERSIONS = ("1.0", "1.1", "1.2")
UPGRADES = [
    b"GET /stomp HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
    b"Upgrade\r\nSec-WebSocket-Version: 13\r\n"
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


PORTS = {
    "admin": [(_nothing_first, PROOFS), (_admin_offer, PROOFS + REQUESTS), (_admin_proof, REQUESTS)],
    "cluster": [
        (_nothing_first, HANDSHAKE),
        (_cluster_challenge, HANDSHAKE[2:4]),
        (_cluster_welcome, HANDSHAKE[4:5]),
    ],
    "acceptor": [(_nothing_first, CONNECTS + FRAMES), *((_stomp(version), FRAMES) for version in VERSIONS)],
    "topics": [(_stomp(version, CLIENTS), TOPIC_FRAMES) for version in VERSIONS],
    "web": [
        (_nothing_first, UPGRADES),
        (_web_open, WEB_FRAMES),
        *((_web_stomp(version), FRAMES) for version in VERSIONS),
    ],
    "tls-acceptor": [
        (_nothing_first, HELLOS + CONNECTS + UPGRADES),
        (_tls_hello, RECORDS),
        (_tls_open, RECORDS),
        *((_tls_stomp(version), FRAMES) for version in VERSIONS),
    ],
    "tls-cluster": [
        (_nothing_first, HELLOS + HANDSHAKE),
        (_tls_hello, RECORDS),
        (_tls_open, RECORDS),
        (_tls_link, HANDSHAKE),
    ],
}
"""Of each port: what a client does first, and what is valid then."""


async def attack(broker, port, seed):
    """One connection: what is valid first, then the hostile input.

    Returns when the broker has closed it.

    What TLS draws for itself does not come from the seed.
    """
    chance = random.Random(f"{port} {seed}")
    first, valid = chance.choice(PORTS[port])
    at = broker.ports["acceptor" if port in ("web", "topics") else port.removeprefix("tls-")]
    reader, writer = await asyncio.open_connection(HERE, at, limit=1 << 24)
    try:
        with contextlib.suppress(
            OSError, asyncio.IncompleteReadError, NobodyAnswersError, BrokerRefusedError
        ):
            held, wrap = await first(broker, reader, writer, chance) or ([], bytes)
            writer.write(wrap(hostile(chance, valid + held)))
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
    finally:
        writer.close()


async def delete(broker):
    """Delete the queues that friends have made, with their messages: they are no leak."""
    at = Target(HERE, broker.ports["admin"], SECRET)
    for queue in (await ask(at, "status"))["queues"]:
        more = {"remove-messages": True, "remove-consumers": True}
        with contextlib.suppress(BrokerRefusedError):  # it is gone
            await ask(at, "delete", queue=queue["name"], **more)


async def admin_works(broker):
    assert (await ask(Target(HERE, broker.ports["admin"], SECRET), "status"))["role"] == "live"


async def cluster_works(broker):
    terms = Terms(
        user=USER,
        password=SECRET,
        ttl_s=30.0,
        call_timeout_s=30.0,
        nonce=lambda: os.urandom(32),
        member=lambda: MEMBER,
    )
    link = await connect(terms, (HERE, broker.ports["cluster"]), "probe")
    assert link.member.name == "a1"
    link.close("done")


def works_in_each_version(first):
    async def works(broker):
        for version in VERSIONS:
            reader, writer = await asyncio.open_connection(HERE, broker.ports["acceptor"])
            assert await first(version)(broker, reader, writer, random.Random(0))
            writer.close()

    return works


async def tls_cluster_works(broker):
    reader, writer = await asyncio.open_connection(HERE, broker.ports["cluster"])
    secured = await _secured(broker, reader, writer, random.Random(0))
    writer.write(secured.records(HANDSHAKE[0]))
    assert (await secured.readuntil(b"\0")).endswith(b"\0")  # the length of its challenge
    writer.close()


WORKS = {
    "admin": admin_works,
    "cluster": cluster_works,
    "acceptor": works_in_each_version(_stomp),
    "topics": works_in_each_version(_stomp),
    "web": works_in_each_version(_web_stomp),
    "tls-acceptor": works_in_each_version(_tls_stomp),
    "tls-cluster": tls_cluster_works,
}


def pytest_generate_tests(metafunc):
    """Ports in turn: thousands of connections take ten seconds of a processor, over TLS more."""
    if "port" in metafunc.fixturenames:
        share.parametrize(metafunc, "port", {port: port for port in PORTS})


def test_hostile_inputs_harm_nobody(port, tmp_path):
    """Each takes 10 to 30 s: fewer connections would not show what a broker keeps of each."""

    async def scenario():
        authority = Authority(tmp_path) if port.startswith("tls-") else None
        async with Besieged(tmp_path, authority) as broker:
            for begin in range(0, COUNT, AT_ONCE):
                batch = range(begin, min(begin + AT_ONCE, COUNT))
                async with asyncio.TaskGroup() as group:
                    for seed in batch:
                        group.create_task(attack(broker, port, seed))
                    await broker.round_trip()
                if begin % DELETED_EVERY == 0:
                    await delete(broker)
            await WORKS[port](broker)
            await delete(broker)
            assert broker.memory() < broker.resident + GROWTH_MAX
            return broker.log

    log = asyncio.run(scenario())
    assert "Traceback" not in log
    assert "internal error" not in log
    assert all(line.isprintable() for line in log.splitlines())
