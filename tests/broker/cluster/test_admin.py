"""The admin port and brokerctl, against a policy that stands still."""

import asyncio
import contextlib
import json
import re
from types import SimpleNamespace

import pytest
from stored import stored

from broker import ctl
from broker.admin import AdminServer
from broker.admin_client import BrokerRefusedError, Target, ask, log_in
from broker.admin_connection import PROOF_MAX, REQUEST_MAX, STRANGERS_MAX
from broker.core.backlog import CHUNK
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.core.transactions import Transaction
from broker.core.two_phase import Decision, TransactionId
from broker.policies.policy import Succession
from broker.seams import real_seams
from broker.sections import AdminSection
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume


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
        self.commands = {}
        self.succession = Succession()

    def request_stop(self, *, failover=None):
        self.failover = failover

    def details(self):
        return {"policy": "standalone", "configured": "standalone"}


class Admin:
    """A server on a port of its own, with a real engine unless it is a backup; an async context."""

    def __init__(self, role="live", secret=None, proof_s=10.0):
        self.role = role
        self.secret = secret
        self.proof_s = proof_s
        self.stopping = asyncio.Event()

    async def __aenter__(self):
        engine = None
        self.journal, recovered = await Journal.open(MemoryVolume(), "journal")
        if self.role == "live":
            gate = DurabilityGate()
            self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
            engine = Engine(self.journal, recovered, gate, EngineSettings(node_id="N"), real_seams())
        self.policy = StandStill(self.role, engine)
        self.server = AdminServer(
            AdminSection(port=0), "a1", self.policy, self.stopping, self.secret, real_seams().nonce
        )
        self.server.proof_s = self.proof_s
        await self.server.start()
        return self

    async def __aexit__(self, *_):
        await self.server.stop()
        await self.journal.close()

    async def send(self, queue, body, group=None):
        done = asyncio.Event()
        self.policy.engine.send(queue, Message(queue, b"", body, group), done.set)
        await done.wait()

    async def connect(self):
        """The streams of a new connection, behind the broker's first line."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 24)
        offer = json.loads(await reader.readline())
        assert offer["authentication"] == ("none" if self.secret is None else "hmac-sha256")
        return reader, writer

    @property
    def target(self):
        return Target("127.0.0.1", self.server.port, self.secret)

    async def ask(self, *lines):
        """The answers to raw lines on one connection."""
        reader, writer = await self.connect()
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
        (
            b'{"command":"reboot"}',
            (
                "unknown command 'reboot'; known: brokers, browse, commit-transaction, create, delete, "
                "destinations, durables, pause"
            ),
        ),
        (b'{"command":"purge"}', "purge needs the name of a queue"),
        (b'{"command":"purge","queue":"z"}', "no queue 'z' here"),
        (b'{"command":"browse","queue":5}', "queue must be text, not 5"),
        (b'{"command":"status","queues":"no"}', "queues must be true or false, not 'no'"),
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
                "not-done": True,
            }
            assert purge == {
                "ok": False,
                "error": "a1 is not live (role backup): it has no queues to purge",
                "not-done": True,
            }

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"command":5}',
        b"\xff\xfe",
        b'{"command":"\xff"}',
        b"[" * 10_000,
        b"POST / HTTP/1.1\r\nHost: x\r\n\r",
    ],
)
def test_the_first_line_that_is_no_request_ends_the_connection(line, caplog):
    """A browser that was talked into a POST does not reach the line behind its headers."""

    async def scenario():
        async with Admin() as admin:
            reader, writer = await admin.connect()
            writer.write(line + b'\n{"command":"stop"}\n')
            assert json.loads(await reader.readline())["ok"] is False
            assert await reader.read() == b""
            writer.close()
            assert not admin.stopping.is_set()

    asyncio.run(scenario())
    (record,) = [record for record in caplog.records if record.name.startswith("broker.admin")]
    assert "admin: connection from 127.0.0.1 closed: no" in record.getMessage()


def test_an_endless_request_is_cut_off():
    async def scenario():
        async with Admin() as admin:
            reader, writer = await admin.connect()
            writer.write(b"x" * (REQUEST_MAX + 1))
            answer = json.loads(await reader.readline())
            assert answer["error"] == f"a request has at most {REQUEST_MAX} bytes"
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_who_knows_the_secret_is_answered_and_nobody_else():
    async def scenario():
        async with Admin(secret="s3cret") as admin:
            assert (await ask(admin.target, "status"))["role"] == "live"
            for secret, why in ((None, "asks for a secret"), ("guess", "wrong secret")):
                with pytest.raises(BrokerRefusedError, match=why):
                    await ask(Target("127.0.0.1", admin.server.port, secret), "stop")
            assert not admin.stopping.is_set()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"command":"stop"}\n', "no proof"),
        (b'{"nonce":"00","proof":"00"}\n', "no proof"),
        (b'{"nonce":"' + b"00" * 32 + b'","proof":"' + b"00" * 32 + b'"}\n', "wrong secret"),
        (b'{"nonce":"' + b"00" * 32 + b'","proof":"zz"}\n', "wrong secret"),
        (b"x" * (PROOF_MAX + 1), f"more than {PROOF_MAX} bytes before the proof"),
        (b"\n", "not a JSON object"),
    ],
)
def test_a_stranger_gets_no_further_than_the_proof(line, error):
    async def scenario():
        async with Admin(secret="s3cret") as admin:
            reader, writer = await admin.connect()
            writer.write(line + b'{"command":"stop"}\n')
            assert error in json.loads(await reader.readline())["error"]
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert not admin.stopping.is_set()

    asyncio.run(scenario())


def test_the_secret_never_crosses_the_wire():
    async def scenario():
        heard = []

        async def overhear(reader, writer):
            there = await asyncio.open_connection("127.0.0.1", admin.server.port)

            async def copy(source, sink):
                while data := await source.read(65536):
                    heard.append(data)
                    sink.write(data)
                sink.close()

            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

        async with Admin(secret="s3cret") as admin:
            proxy = await asyncio.start_server(overhear, "127.0.0.1", 0)
            async with proxy:
                at = Target(*proxy.sockets[0].getsockname(), "s3cret")
                assert (await ask(at, "status"))["role"] == "live"
                first = b"".join(heard)
                heard.clear()
                await ask(at, "status")
            assert b"s3cret" not in first
            assert b"proof" in first
            said = next(line for line in first.splitlines() if b'"proof"' in line and b'"nonce"' in line)
            reader, writer = await admin.connect()
            writer.write(said + b"\n")
            assert "wrong secret" in json.loads(await reader.readline())["error"], (
                "what was overheard is worth nothing"
            )
            writer.close()

    asyncio.run(scenario())


def test_an_impostor_that_takes_any_proof_is_asked_nothing():
    async def scenario():
        asked = asyncio.Queue()

        async def impostor(reader, writer):
            writer.write(b'{"authentication":"hmac-sha256","nonce":"' + b"00" * 32 + b'"}\n')
            await reader.readline()
            writer.write(b'{"ok":true,"proof":"' + b"00" * 32 + b'"}\n')
            asked.put_nowait(await reader.read())
            writer.close()

        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        async with server:
            with pytest.raises(BrokerRefusedError, match="does not know the secret itself"):
                await ask(Target(*server.sockets[0].getsockname(), "s3cret"), "purge", queue="q")
            assert await asked.get() == b""

    asyncio.run(scenario())


def test_of_too_many_strangers_the_oldest_gives_way_and_friends_stay():
    async def scenario():
        async with Admin(secret="s3cret") as admin:
            friend = await asyncio.open_connection("127.0.0.1", admin.server.port)
            await log_in(*friend, admin.target, b"n" * 32)
            strangers = [await admin.connect() for _ in range(STRANGERS_MAX + 3)]
            for reader, _ in strangers[:3]:
                assert "without a proof" in json.loads(await reader.readline())["error"]
            friend[1].write(b'{"command":"status"}\n')
            assert json.loads(await friend[0].readline())["ok"] is True
            for _, writer in (friend, *strangers):
                writer.close()

    asyncio.run(scenario())


def test_a_stranger_that_says_nothing_is_cut_off():
    async def scenario():
        async with Admin(secret="s3cret", proof_s=0.05) as admin:
            reader, writer = await admin.connect()
            assert "no proof within" in json.loads(await reader.readline())["error"]
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


async def turns_during(work):
    """How many turns of the loop others had meanwhile, and what it gave."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns, await task


def test_the_status_of_many_queues_is_told_in_slices():
    async def scenario():
        async with Admin() as admin:
            for number in range(2000):
                admin.policy.engine.queue(f"q{number:05}")
            reader, writer = await admin.connect()
            writer.write(b'{"command":"status"}\n')
            turns, line = await turns_during(reader.readline())
            assert turns >= 10
            names = [queue["name"] for queue in json.loads(line)["queues"]]
            assert names == [f"q{number:05}" for number in range(2000)]
            writer.write(b'{"command":"status","queues":false}\n')
            assert json.loads(await reader.readline())["queues"] == []
            writer.close()

    asyncio.run(scenario())


def test_a_quick_request_that_comes_while_a_slow_one_is_answered_waits_for_it():
    async def scenario():
        async with Admin() as admin:
            for number in range(2000):
                admin.policy.engine.queue(f"q{number:05}")
            reader, writer = await admin.connect()
            writer.write(b'{"command":"status"}\n')
            while not admin.server._asking:
                await asyncio.sleep(0)
            writer.write(b'{"command":"brokers"}\n')
            assert "queues" in json.loads(await reader.readline())
            assert "brokers" in json.loads(await reader.readline())
            writer.close()

    asyncio.run(scenario())


def test_a_broker_that_is_demoted_while_it_tells_its_status_is_live_no_more():
    async def scenario():
        async with Admin() as admin:
            for number in range(2000):
                admin.policy.engine.queue(f"q{number:05}")
            reader, writer = await admin.connect()
            writer.write(b'{"command":"status"}\n')
            while not admin.server._asking:
                await asyncio.sleep(0)
            admin.policy.role, admin.policy.engine = "backup", None
            answer = json.loads(await reader.readline())
            assert (answer["role"], answer["queues"]) == ("backup", [])
            writer.close()

    asyncio.run(scenario())


def test_a_purge_is_done_in_slices_and_takes_what_was_there():
    async def scenario():
        async with Admin() as admin:
            engine = admin.policy.engine
            for number in range(3000):
                engine.send("q", Message("q", b"", b"old", f"g{number % 50}" if number % 2 else None))
            await admin.send("q", b"old")
            reader, writer = await admin.connect()
            writer.write(b'{"command":"purge","queue":"q"}\n')
            while len(engine.queues["q"]) == 3001:
                await asyncio.sleep(0)
            engine.send("q", Message("q", b"", b"new"))
            turns, line = await turns_during(reader.readline())
            assert json.loads(line) == {"ok": True, "purged": 3001}
            assert turns >= 3001 / CHUNK - 2
            (left,) = (await admin.ask(b'{"command":"browse"}'))[0]["messages"]
            assert left["body"] == "bmV3"
            writer.close()

    asyncio.run(scenario())


def test_a_flood_of_requests_lets_others_run_between_any_two():
    async def scenario():
        async with Admin() as admin:
            reader, writer = await admin.connect()
            writer.write(b'{"command":"status"}\n' * 3000)
            turns, _ = await turns_during(_lines(reader, 3000))
            assert turns >= 3000 / 2
            writer.close()

    asyncio.run(scenario())


async def _lines(reader, count):
    for _ in range(count):
        assert json.loads(await reader.readline())["ok"] is True


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
            listed = capsys.readouterr().out
            assert "Cluster Is Highly Available  False\n" in listed
            assert re.search(r"a1 +live .* OPERATING", listed)
            assert await admin.ctl("list", "destinations") == 0
            assert "orders  queue  RUNNING" in capsys.readouterr().out
            assert await admin.ctl("pause", "orders", "--consumers") == 0
            assert capsys.readouterr().out == "orders: CONSUMERS_PAUSED\n"
            assert await admin.ctl("query", "orders") == 0
            assert "CONSUMERS_PAUSED" in capsys.readouterr().out
            assert await admin.ctl("resume", "orders") == 0
            assert capsys.readouterr().out == "orders: RUNNING\n"
            assert await admin.ctl("list", "durables") == 0
            assert capsys.readouterr().out.startswith("NAME  CLIENT ID")
            assert await admin.ctl("purge", "orders") == 0
            assert capsys.readouterr().out == "1 messages purged from orders\n"

    asyncio.run(scenario())


@pytest.mark.parametrize(("how", "left"), [("commit", []), ("roll-back", ["orders"])])
def test_ctl_decides_of_a_prepared_transaction_whose_coordinator_is_gone(how, left, capsys):
    async def scenario():
        async with Admin() as admin:
            await admin.send("orders", b"first")
            engine = admin.policy.engine
            held = []
            engine.subscribe("orders", held.append)
            while not held:
                await asyncio.sleep(0)
            transaction = Transaction()
            transaction.acknowledge(held)
            engine.prepare(TransactionId("n2", 7), transaction)
            engine.decided[TransactionId("N", 8)] = Decision(9, TransactionId("N", 8), 0, ("n3", "n4"))
            linked = [(SimpleNamespace(name="b1", node_id="n2"), None)]
            admin.policy.membership = SimpleNamespace(neighbours=SimpleNamespace(linked=lambda: linked))
            assert await admin.ctl("transactions") == 0
            shown = capsys.readouterr().out.split("\n")
            assert shown[0].split() == ["PREPARED", "AGE", "MESSAGES", "COORDINATOR", "LINKED"]
            assert shown[1].split() == ["n2-7", "0", "s", "1", "n2", "b1"]
            assert "N-8" in shown[4]
            assert "n3, n4" in shown[4]
            assert await admin.ctl(f"{how}-transaction", "n2-8") == 1
            assert "no transaction 'n2-8' is prepared here" in capsys.readouterr().err
            assert await admin.ctl(f"{how}-transaction", "n2-7") == 1
            assert "its coordinator b1 is linked with this broker" in capsys.readouterr().err
            linked.clear()
            assert await admin.ctl(f"{how}-transaction", "n2-7") == 0
            assert "transaction n2-7 is " in capsys.readouterr().out
            assert [one.holder for one in stored(engine)] == left
            assert not engine.prepared.by_id

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
        (["reload"], "Missing argument '{cls}'. Choose from: cls"),
        (["--config", "/nowhere/broker.toml", "status"], "/nowhere/broker.toml: cannot be read"),
    ],
)
def test_wrong_usage_is_254(words, error, capsys):
    assert ctl.main(words) == 254
    told = capsys.readouterr().err
    assert error in told
    assert told.count("\n") == 1
