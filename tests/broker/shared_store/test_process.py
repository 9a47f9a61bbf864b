"""``brokerd`` itself on a directory of this machine.

It serves under its lock, leaves its place as it was told, and ends when the lock is gone.
"""

import asyncio
import re
import signal
import subprocess
import sys

import pytest

from broker import config
from harness.systems.stomp_client import StompClient

pytestmark = pytest.mark.cluster


@pytest.fixture
def start(tmp_path):
    """Start a broker on the one store; it is returned when its log has said ``until``."""
    running = []

    def begin(name, role, until, users=None, **section):
        table = {
            "broker": {"name": name, "data-directory": str(tmp_path / "store")},
            "acceptor": {"host": "127.0.0.1", "port": 0, "users": users or {}},
            "admin": {"host": "127.0.0.1", "port": 0},
            "cluster": {
                "cluster-password": "cluster-secret",
                "host": "127.0.0.1",
                "port": 0,
                "connector": f"{name}:1",
                "stomp-connector": f"{name}:2",
            },
            "ha-policy": {
                "shared-store": {role: {"lock-renew-period": 50, "lock-poll-period": 50, **section}}
            },
        }
        path = tmp_path / f"{name}.toml"
        path.write_text(config.dumps(table))
        process = subprocess.Popen(
            [sys.executable, "-m", "broker.daemon", "--config", str(path)], stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        process.said = read_until(process, until)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def read_until(process, words):
    """Lines of the log up to the one with these words; fails when the broker ends without them."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"{words!r} was never said: {''.join(lines)}")


def test_a_broker_whose_lock_file_is_deleted_ends_with_3(start, tmp_path):
    live = start("a1", "master", "live as node")
    (tmp_path / "store" / "journal" / "server.lock").unlink()
    read_until(live, "this broker answers no client any more")
    assert live.wait() == 3


def test_a_killed_live_is_replaced_and_a_stopped_one_as_it_was_told(start, tmp_path):
    first = start("a1", "master", "live as node")
    second = start("a2", "slave", "waiting for the live lock, next in line")
    first.kill()
    said = read_until(second, "live as node")
    assert any("life 2 of the shared store" in line for line in said)
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0
    state = (tmp_path / "store" / "journal" / "server.lock").read_bytes()[:1]
    assert state == b"P"  # failover-on-shutdown is off by default: whoever waits stays passive
    start("a3", "slave", "staying passive: a2 was stopped without failover")
    again = start("a2", "slave", "life 3 of the shared store")
    again.send_signal(signal.SIGTERM)
    assert again.wait() == 0


def test_who_takes_over_a_store_has_the_subscriptions_as_they_were_left(start):
    """With what waited; not what was dropped, nor what was its client's connection's only."""
    first = start("a1", "master", "serving STOMP on", **{"failover-on-shutdown": True})
    port = int(re.search(r"serving STOMP on \S+:(\d+)", first.said[-1])[1])

    async def before():
        async with await StompClient.connect(port, client_id="c") as client:
            for name in ("stays", "goes", "again"):
                await client.ask("SUBSCRIBE", id=name, destination="/topic/t", more=_durable(name))
                await client.ask("UNSUBSCRIBE", id=name)
            await client.ask("SUBSCRIBE", id="now", destination="/topic/t")
            await client.ask("SEND", "1", destination="/topic/t")
            for name in ("goes", "again"):
                await client.ask("UNSUBSCRIBE", more=_durable(name))
            await client.ask("SUBSCRIBE", id="again", destination="/topic/t", more=_durable("again"))
            await client.ask("UNSUBSCRIBE", id="again")  # or it gets what it shall find
            await client.ask("SEND", "2", destination="/topic/t")
            first.kill()

    asyncio.run(before())
    second = start("a2", "slave", "serving STOMP on")
    port = int(re.search(r"serving STOMP on \S+:(\d+)", second.said[-1])[1])

    async def after():
        async with await StompClient.connect(port, client_id="c") as client:
            refused = await client.ask("UNSUBSCRIBE", more=_durable("goes"))
            assert b"there is no durable subscription 'goes' of client 'c'" in refused.body
        async with await StompClient.connect(port, client_id="c") as client:
            for name, left in (("stays", [b"1", b"2"]), ("again", [b"2"])):
                await client.ask("SUBSCRIBE", id=name, destination="/topic/t", more=_durable(name))
                assert [frame.body for frame in await client.messages(len(left))] == left

    asyncio.run(after())


def test_who_takes_over_a_store_knows_whose_a_subscription_is(start):
    users = {"tester": "tester-secret", "eve": "x"}
    first = start("a1", "master", "serving STOMP on", users=users)
    port = int(re.search(r"serving STOMP on \S+:(\d+)", first.said[-1])[1])

    async def before():
        async with await StompClient.connect(port, client_id="c") as client:
            await client.ask("SUBSCRIBE", id="1", destination="/topic/t", more=_durable("s"))
            await client.ask("UNSUBSCRIBE", id="1")
            await client.ask("SEND", "1", destination="/topic/t")
            first.kill()

    asyncio.run(before())
    second = start("a2", "slave", "serving STOMP on", users=users)
    port = int(re.search(r"serving STOMP on \S+:(\d+)", second.said[-1])[1])

    async def after():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"CONNECT\naccept-version:1.2\nhost:h\nlogin:eve\npasscode:x\nclient-id:c\n\n\0"
            b"UNSUBSCRIBE\ndurable-subscription-name:s\n\n\0"
        )
        assert b"there is no durable subscription 's' of client 'c'" in await reader.read()
        writer.close()
        async with await StompClient.connect(port, client_id="c") as client:
            await client.ask("SUBSCRIBE", id="1", destination="/topic/t", more=_durable("s"))
            assert [frame.body for frame in await client.messages(1)] == [b"1"]

    asyncio.run(after())


def _durable(name):
    return {"durable-subscription-name": name}
