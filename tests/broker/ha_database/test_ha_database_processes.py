"""Real brokers on a real PostgreSQL and on SQLite.

A killed one's messages are served by another, and no password is seen anywhere.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from database_places import PASSWORD

from broker import config
from broker.admin_client import NobodyAnswersError, Target, ask
from broker.masking import mask
from environments.link_proxy import reserve_port
from harness.systems.own.dialect import DIALECT
from stomp_protocol.client.connection import ConnectError, connect
from workloads.failover import settings_of

ROOT = Path(__file__).parents[3]
BOUND_S = 240.0
"""Bounds every wait of a test; reached only when the test fails."""
MESSAGES = 20
BODIES = [b"%d" % number * (60_000 if number == 11 else 1) for number in range(MESSAGES)]
"""One of them is large."""


async def until(condition, what):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BOUND_S
    while True:
        value = await condition()
        if value:
            return value
        assert loop.time() < deadline, f"not within {BOUND_S} s: {what}"
        await asyncio.sleep(0.05)


class Node:
    """One broker process on this machine."""

    def __init__(self, name, directory, store):
        self.name = name
        self.home = directory / name
        (self.home / "etc").mkdir(parents=True)
        self.log = self.home / "log"
        self.sockets = {port: reserve_port() for port in ("stomp", "cluster", "admin")}
        self.ports = {port: reserved.getsockname()[1] for port, reserved in self.sockets.items()}
        table = {
            "broker": {"name": name, "data-directory": "../data"},
            "acceptor": {
                "host": "127.0.0.1",
                "port": self.ports["stomp"],
                "users": {"tester": "tester-secret"},
            },
            "admin": {"host": "127.0.0.1", "port": self.ports["admin"]},
            "cluster": {
                "cluster-password": "cluster-secret",
                "host": "127.0.0.1",
                "port": self.ports["cluster"],
                "connector": f"127.0.0.1:{self.ports['cluster']}",
                "stomp-connector": f"127.0.0.1:{self.ports['stomp']}",
                "message-load-balancing": "OFF",
                "connection-ttl": 6000,
            },
            "ha-policy": {
                "ha-database": {"cluster-id": "test", "heartbeat-interval": 250, "monitor-interval": 200}
            },
            "database-store": {
                "network-timeout": 5000,
                "lock-renew-period": 500,
                "lock-expiration": 8000,
                **store,
            },
        }
        config.validate(table)
        (self.home / "etc" / "broker.toml").write_text(config.dumps(table))
        self.process = None

    async def start(self):
        for reserved in self.sockets.values():
            reserved.close()
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "broker.daemon",
                "--config",
                str(self.home / "etc" / "broker.toml"),
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    async def status(self):
        try:
            return await ask(Target("127.0.0.1", self.ports["admin"], "cluster-secret"), "status")
        except NobodyAnswersError:
            return {"role": "gone"}

    async def live(self):
        return (await self.status())["role"] == "live"

    async def kill(self, number=signal.SIGKILL):
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)
            await self.process.wait()

    async def connect(self, store_session=None):
        return await connect(
            "127.0.0.1",
            self.ports["stomp"],
            settings_of(DIALECT, BOUND_S),
            node=self.name,
            store_session=store_session,
        )


class Done:
    def __init__(self):
        self.future = asyncio.get_running_loop().create_future()

    def complete(self, outcome, error):
        self.future.set_result((outcome, error))


async def asked(connection, head, body=b""):
    done = Done()
    connection.request(head, done, body)
    return await done.future


@contextlib.asynccontextmanager
async def brokers(directory, store, names=("a1", "b1")):
    nodes = [Node(name, directory, store) for name in names]
    try:
        for node in nodes:
            await node.start()
        for node in nodes:
            await until(node.live, f"{node.name} is live; its log: {node.log.read_text()[-2000:]}")
        yield nodes
    finally:
        for node in nodes:
            await node.kill()


async def kill_one_and_read_at_the_other(directory, store):
    async with brokers(directory, store) as (first, second):
        producer = await first.connect()
        for body in BODIES:
            head = b"SEND\ndestination:/queue/q\nJMSXGroupID:g\n"
            assert await asked(producer, head, body) == ("ok", None)
        session = producer.store_session
        assert session is not None
        producer.close("enough")
        with pytest.raises(ConnectError, match="is not served here"):
            await second.connect(session)
        await first.kill()

        async def let_in():
            try:
                return await second.connect(session)
            except ConnectError:
                return None

        consumer = await until(let_in, "the other broker lets the client of the killed one in")
        bodies = []
        complete = asyncio.Event()

        def take(frame):
            bodies.append(frame.body)
            if len(bodies) == MESSAGES:
                complete.set()

        consumer.on_message = take
        assert (await asked(consumer, b"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:auto\n"))[0] == "ok"
        async with asyncio.timeout(BOUND_S):
            await complete.wait()
        consumer.close("enough")
        assert bodies == BODIES
        status = await second.status()
        assert status["taken-over"] == ["a1"]
        assert {row["broker-id"]: row["state"] for row in status["brokers"]}["b1"] == "OPERATING"
        await first.start()
        await until(first.live, "the killed broker is a member again")
        assert (await first.status())["queues"] == []
        await second.kill(signal.SIGTERM)
        assert second.process.returncode == 0
        return [node.log.read_text() for node in (first, second)], json.dumps(status)


@pytest.mark.cluster
def test_on_postgresql_another_broker_serves_what_a_killed_one_had_confirmed(postgresql, tmp_path):
    store = {"url": postgresql.url, "user": "tester", "password": mask(PASSWORD, os.environ)}
    logs, status = asyncio.run(kill_one_and_read_at_the_other(tmp_path, store))
    for said in (*logs, status):
        assert PASSWORD not in said


@pytest.mark.cluster
def test_on_sqlite_another_broker_serves_what_a_killed_one_had_confirmed(tmp_path):
    asyncio.run(kill_one_and_read_at_the_other(tmp_path, {"url": "sqlite:../../store.sqlite"}))
