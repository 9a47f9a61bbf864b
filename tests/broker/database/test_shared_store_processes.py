"""``brokerd`` itself on a store in a database, SQLite and a real PostgreSQL.

Who takes over, what a fenced live does, and that no password is seen anywhere.
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
from broker.admin_client import Target, ask
from broker.masking import mask
from environments.link_proxy import reserve_port
from harness.systems.own.dialect import DIALECT
from stomp_protocol.client.connection import connect
from workloads.failover import settings_of

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
BOUND_S = 90.0
"""Bounds every wait of a test; reached only when the test fails."""
MESSAGES = 20


class Broker:
    """One broker process on this machine."""

    def __init__(self, name, role, directory, database):
        self.name = name
        self.home = directory / name
        self.home.mkdir()
        self.log = self.home / "log"
        self.sockets = {port: reserve_port() for port in ("stomp", "cluster", "admin")}
        self.ports = {port: reserved.getsockname()[1] for port, reserved in self.sockets.items()}
        listen = {port: {"host": "127.0.0.1", "port": number} for port, number in self.ports.items()}
        table = {
            "broker": {"name": name, "data-directory": "data"},
            "acceptor": {**listen["stomp"], "users": {"tester": "tester-secret"}},
            "admin": listen["admin"],
            "cluster": {
                "cluster-password": "cluster-secret",
                **listen["cluster"],
                "connector": f"127.0.0.1:{self.ports['cluster']}",
                "stomp-connector": f"127.0.0.1:{self.ports['stomp']}",
            },
            "ha-policy": {"shared-store": {"store": "database", role: {"lock-poll-period": 100}}},
            "database-store": {
                "network-timeout": 2000,
                "lock-renew-period": 500,
                "lock-expiration": 8000,
                **database,
            },
        }
        config.validate(table)
        (self.home / "broker.toml").write_text(config.dumps(table))
        self.process = None

    async def start(self, until):
        """Return once its log has said so."""
        for reserved in self.sockets.values():
            reserved.close()
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "broker.daemon",
                "--config",
                str(self.home / "broker.toml"),
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        await self.says(until)

    async def says(self, words):
        async with asyncio.timeout(BOUND_S):
            while words not in self.log.read_text():
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.05)

    async def status(self):
        return await ask(Target("127.0.0.1", self.ports["admin"], "cluster-secret"), "status")

    async def connect(self):
        return await connect("127.0.0.1", self.ports["stomp"], settings_of(DIALECT, BOUND_S), node=self.name)

    async def ended(self):
        async with asyncio.timeout(BOUND_S):
            return await self.process.wait()


class Done:
    def __init__(self):
        self.future = asyncio.get_running_loop().create_future()

    def complete(self, outcome, error):
        self.future.set_result((outcome, error))


async def asked(connection, head, body=b""):
    done = Done()
    connection.request(head, done, body)
    return await done.future


async def send(broker):
    connection = await broker.connect()
    for number in range(MESSAGES):
        head = b"SEND\ndestination:/queue/q\nJMSXGroupID:g\n"
        assert await asked(connection, head, b"%d" % number) == ("ok", None)
    connection.close("enough")


async def receive(broker):
    consumer = await broker.connect()
    bodies, complete = [], asyncio.Event()

    def take(frame):
        bodies.append(frame.body)
        if len(bodies) == MESSAGES:
            complete.set()

    consumer.on_message = take
    assert (await asked(consumer, b"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:auto\n"))[0] == "ok"
    async with asyncio.timeout(BOUND_S):
        await complete.wait()
    consumer.close("enough")
    return bodies


@contextlib.asynccontextmanager
async def pair(directory, database):
    """A live with messages, and its backup."""
    brokers = [Broker("a1", "master", directory, database), Broker("a2", "slave", directory, database)]
    try:
        await brokers[0].start("life 1 of the shared store")
        await brokers[1].start("waiting for the live lock, next in line")
        await send(brokers[0])
        yield brokers
    finally:
        for broker in brokers:
            if broker.process is not None and broker.process.returncode is None:
                broker.process.kill()
                await broker.process.wait()


def test_on_sqlite_a_backup_takes_over_from_a_killed_live_and_a_stopped_one_stays_paused(tmp_path):
    async def main():
        async with pair(tmp_path, {"url": "sqlite:../store.sqlite"}) as (live, backup):
            live.process.kill()
            await backup.says("life 2 of the shared store")
            assert (await backup.status())["role"] == "live"
            assert await receive(backup) == [b"%d" % number for number in range(MESSAGES)]
            backup.process.send_signal(signal.SIGTERM)
            assert await backup.ended() == 0
            # failover-on-shutdown is off by default: only who was stopped, or a master, is live
            # again.
            other = Broker("a3", "slave", tmp_path, {"url": "sqlite:../store.sqlite"})
            try:
                await other.start("staying passive: a2 was stopped without failover")
            finally:
                other.process.kill()
                await other.process.wait()

    asyncio.run(main())


def test_on_postgresql_a_live_that_stood_still_past_its_lock_ends_with_3_and_serves_nobody(
    postgresql, tmp_path
):
    database = {"url": postgresql.url, "user": "tester", "password": mask(PASSWORD, os.environ)}

    async def main():
        async with pair(tmp_path, database) as (live, backup):
            live.process.send_signal(signal.SIGSTOP)
            await backup.says("life 2 of the shared store")
            assert await receive(backup) == [b"%d" % number for number in range(MESSAGES)]
            live.process.send_signal(signal.SIGCONT)
            assert await live.ended() == 3
            said = live.log.read_text()
            assert "this broker answers no client any more" in said
            # by the database's word, or by its own clock where the database took too long to say it
            reasons = ("somebody else has been given the live lock", "has not confirmed the live lock for")
            assert any(reason in said for reason in reasons)
            status = await backup.status()
            assert (status["role"], status["life"]) == ("live", 2)
            for text in (said, backup.log.read_text(), json.dumps(status)):
                assert PASSWORD not in text

    asyncio.run(main())
