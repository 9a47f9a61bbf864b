"""The admin port and brokerctl, against a policy that stands still."""

import asyncio
import json

import pytest

from broker import ctl
from broker.admin import REQUEST_MAX, AdminServer
from broker.config import AdminSection
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.views import EngineSettings
from broker.seams import real_seams
from broker.storage import DurabilityGate, Journal, MemoryVolume


class StandStill:
    """A policy that does nothing; its engine is real."""

    def __init__(self, role="live", engine=None):
        self.role = role
        self.epoch = 7
        self.node_id = "N"
        self.engine = engine
        self.replicating = False
        self.membership = None
        self.failover = "not asked"

    def request_stop(self, *, failover=None):
        self.failover = failover

    def details(self):
        return {"policy": "standalone", "configured": "standalone"}


class Admin:
    """A server on a port of its own, with a real engine unless it is a backup; an async context."""

    def __init__(self, role="live"):
        self.role = role
        self.stopping = asyncio.Event()

    async def __aenter__(self):
        engine = None
        self.journal, recovered = await Journal.open(MemoryVolume(), "journal")
        if self.role == "live":
            gate = DurabilityGate()
            self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
            engine = Engine(self.journal, recovered, gate, EngineSettings(node_id="N"), real_seams())
        self.policy = StandStill(self.role, engine)
        self.server = AdminServer(AdminSection(port=0), "a1", self.policy, self.stopping)
        await self.server.start()
        return self

    async def __aexit__(self, *_):
        await self.server.stop()
        await self.journal.close()

    async def send(self, queue, body, group=None):
        done = asyncio.Event()
        self.policy.engine.send(queue, Message(queue, b"", body, group), done.set)
        await done.wait()

    async def ask(self, *lines):
        """The answers to raw lines on one connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(b"".join(line + b"\n" for line in lines))
        answers = [json.loads(await reader.readline()) for _ in lines]
        writer.close()
        return answers

    async def ctl(self, *words):
        """brokerctl's (exit status), run beside the loop that answers it."""
        return await asyncio.to_thread(ctl.main, ["--admin", f"127.0.0.1:{self.server.port}", *words])


def test_requests_are_answered_in_order():
    async def scenario():
        async with Admin() as admin:
            await admin.send("q", b"one", "g")
            status, browse, purge, after = await admin.ask(
                b'{"command":"status"}',
                b'{"command":"browse","queue":"q"}',
                b'{"command":"purge","queue":"q"}',
                b'{"command":"browse"}',
            )
            assert (status["ok"], status["role"], status["epoch"], status["node-id"]) == (
                True,
                "live",
                7,
                "N",
            )
            assert [(queue["name"], queue["messages"]) for queue in status["queues"]] == [("q", 1)]
            (message,) = browse["messages"]
            assert (message["store"], message["queue"], message["group"], message["body"]) == (
                "main",
                "q",
                "g",
                "b25l",
            )
            assert purge == {"ok": True, "purged": 1}
            assert after == {"ok": True, "messages": []}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"hello", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"{}", "unknown command None; known: brokers, browse, purge, status, stop"),
        (b'{"command":"reboot"}', "unknown command 'reboot'"),
        (b'{"command":"purge"}', "purge wants the name of a queue"),
        (b'{"command":"purge","queue":"z"}', "no queue 'z' here"),
        (b'{"command":"browse","queue":5}', "queue must be text, not 5"),
        (b'{"command":"stop","failover":"yes"}', "failover must be true or false, not 'yes'"),
    ],
)
def test_what_cannot_be_done_is_said(line, error):
    async def scenario():
        async with Admin() as admin:
            refused, status = await admin.ask(line, b'{"command":"status"}')
            assert refused["ok"] is False
            assert error in refused["error"]
            assert status["ok"] is True, "the connection goes on"
            assert not admin.stopping.is_set()

    asyncio.run(scenario())


def test_a_backup_has_nothing_to_browse():
    async def scenario():
        async with Admin(role="backup") as admin:
            browse, purge = await admin.ask(b'{"command":"browse"}', b'{"command":"purge","queue":"q"}')
            assert browse == {
                "ok": False,
                "error": "a1 is not live (role backup): it has no queues to browse",
            }
            assert purge == {"ok": False, "error": "a1 is not live (role backup): it has no queues to purge"}

    asyncio.run(scenario())


def test_an_endless_request_is_cut_off():
    async def scenario():
        async with Admin() as admin:
            reader, writer = await asyncio.open_connection("127.0.0.1", admin.server.port)
            writer.write(b"x" * (REQUEST_MAX + 1))
            answer = json.loads(await reader.readline())
            assert answer["error"] == f"a request has at most {REQUEST_MAX} bytes"
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("words", "failover"), [((), None), (("--failover",), True), (("--no-failover",), False)]
)
def test_stop_says_what_shall_follow(words, failover, capsys):
    async def scenario():
        async with Admin() as admin:
            assert await admin.ctl("stop", *words) == 0
            assert admin.stopping.is_set()
            assert admin.policy.failover is failover

    asyncio.run(scenario())


def test_ctl_shows_tables_and_json(capsys):
    async def scenario():
        async with Admin() as admin:
            await admin.send("orders", b"first")
            assert await admin.ctl("status") == 0
            shown = capsys.readouterr().out
            assert "role         live\n" in shown
            assert "replicating  no: what is acknowledged is on this disk only" in shown
            assert "orders  main   1" in shown
            assert await admin.ctl("--json", "browse", "orders") == 0
            assert json.loads(capsys.readouterr().out)[0]["body"] == "Zmlyc3Q="
            assert await admin.ctl("list") == 0
            assert "a1      live" in capsys.readouterr().out
            assert await admin.ctl("purge", "orders") == 0
            assert capsys.readouterr().out == "1 messages purged from orders\n"

    asyncio.run(scenario())


def test_ctl_says_who_refused_and_who_does_not_answer(capsys):
    async def scenario():
        async with Admin(role="backup") as admin:
            port = admin.server.port
            assert await admin.ctl("browse") == 1
            assert "is not live (role backup)" in capsys.readouterr().err
        assert await asyncio.to_thread(ctl.main, ["--admin", str(port), "status"]) == 2
        assert (
            capsys.readouterr().err == f"brokerctl: nobody answers at 127.0.0.1:{port}: Connection refused\n"
        )

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--admin", "here", "status"], "'here' is not HOST:PORT"),
        (["--admin", "h:99999", "status"], "'h:99999' is not HOST:PORT"),
        (["explode"], "No such command 'explode'"),
        (["purge"], "Missing argument 'QUEUE'"),
        (["--config", "/nowhere/broker.toml", "status"], "/nowhere/broker.toml: cannot be read"),
    ],
)
def test_wrong_usage_is_254(words, error, capsys):
    assert ctl.main(words) == 254
    assert error in capsys.readouterr().err
