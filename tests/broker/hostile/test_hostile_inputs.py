"""Whatever strangers, and friends gone mad, send to a port: no traceback, bounded memory and log, and an honest client never notices."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
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


async def _stomp_connected(broker, reader, writer, chance):
    writer.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    await reader.readuntil(b"\0")


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
FRAMES = [
    b"CONNECT\naccept-version:1.2\nhost:x\nlogin:x\npasscode:y\nheart-beat:1000,1000\n\n\0",
    b"SEND\ndestination:/queue/hostile\ncontent-length:5\nreceipt:1\n\nhello\0",
    b"SEND\ndestination:/queue/hostile\nJMSXGroupID:g\ntransaction:t\n\nhello\0",
    b"SUBSCRIBE\nid:1\ndestination:/queue/hostile\nack:client-individual\n\n\0",
    b"ACK\nid:1\n\n\0",
    b"BEGIN\ntransaction:t\nreceipt:2\n\n\0",
    b"COMMIT\ntransaction:t\n\n\0",
    b"UNSUBSCRIBE\nid:1\n\n\0",
    b"DISCONNECT\nreceipt:3\n\n\0",
    b"\n",
]
PORTS = {
    "admin": [(_nothing_first, PROOFS), (_admin_offer, PROOFS + REQUESTS), (_admin_proof, REQUESTS)],
    "cluster": [
        (_nothing_first, HANDSHAKE),
        (_cluster_challenge, HANDSHAKE[2:4]),
        (_cluster_welcome, HANDSHAKE[4:5]),
    ],
    "acceptor": [(_nothing_first, FRAMES), (_stomp_connected, FRAMES[1:])],
}


async def attack(broker, port, seed):
    """One connection: what is valid first, then the hostile input; returns when the broker has closed it."""
    chance = random.Random(f"{port} {seed}")
    first, valid = chance.choice(PORTS[port])
    reader, writer = await asyncio.open_connection(HERE, broker.ports[port], limit=1 << 24)
    try:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, NobodyAnswersError, RefusedError):
            await first(broker, reader, writer, chance)
            writer.write(hostile(chance, valid))
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
    reader, writer = await asyncio.open_connection(HERE, broker.ports["acceptor"])
    await _stomp_connected(broker, reader, writer, None)
    writer.close()


@pytest.mark.parametrize(
    ("port", "works"), [("admin", admin_works), ("cluster", cluster_works), ("acceptor", acceptor_works)]
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
