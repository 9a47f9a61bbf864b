"""A test of a cluster that runs already: what is known of it is judged, what is not is named."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from jolokia_stub import jolokia, voting  # noqa: F401 - fixtures
from second_broker import Server

from checkers import api
from checkers.starting import Starting
from environments.attached import cluster
from harness.commands import cli
from harness.interface import InfrastructureError, Status, StoredMessage, TestSpec, UsageError
from harness.run import attaching
from harness.systems import attached, registry
from stomp_protocol.codec import encode
from workloads import payload

BROKER = Path(__file__).with_name("second_broker.py")


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(api, "start_in_background", lambda master, wanted: Starting(master, wanted=False))


@pytest.fixture
def broker(tmp_path):
    """A broker that somebody has started: (its process, its STOMP port)."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = {"stomp": one.getsockname(), "admin": other.getsockname()}
    (tmp_path / "second.json").write_text(json.dumps({"name": "a1", "listen": ports}))
    with subprocess.Popen([sys.executable, str(BROKER), str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"listening a1\n"
        yield process, ports["stomp"][1]
        process.kill()


FILE = """
{top}
[dialect]
name-header = "broker"

[promises]
nack = "consume"
{roles}
[[node]]
name = "a1"
stomp = "127.0.0.1:{port}"
"""


def write(path, port, *, top="", roles="", hook=""):
    path.write_text(FILE.format(top=top, port=port, roles=roles) + hook)
    return str(path)


def run(capsys, *words):
    status = cli.run(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


SHORT = ("--rate", "40", "--producers", "2", "--consumers", "3", "--groups", "4", "--seed", "1")


@pytest.mark.cluster
def test_a_run_names_what_it_does_not_know_and_leaves_the_cluster_alone(tmp_path, broker, capsys):
    process, port = broker
    pid = process.pid
    hook = (
        f'[[hook]]\nname = "freeze"\nbegin = "kill -STOP {pid}"\nend = "kill -CONT {pid}"\n'
        f"probe = \"grep -q 'State:.*T' /proc/{pid}/status\"\n"
    )
    file = write(tmp_path / "cluster.toml", port, hook=hook)
    store = tmp_path / "store"
    status, out, err = run(
        capsys, "--attach", file, "--nemesis", "hook", "--time-limit", "6", "--interval", "2",
        "--duration", "1", "--store", str(store), *SHORT,
    )  # fmt: skip
    assert status == 0, out + err
    assert re.search("split-brain, .*zombie.*: not judged, no broker can be asked for roles", out)
    assert "resurrected: not judged, no broker can be asked for stores" in out
    assert ", of which 0 took effect" not in out
    assert process.poll() is None, "it is still there"
    latest = store / "latest"
    suite = ET.parse(latest / "junit.xml").getroot()
    assert suite.find("testcase[@name='split-brain']/skipped").get("message").startswith("not judged")
    assert suite.find("testcase[@name='lost']/skipped") is None
    assert "not judged, no broker can be asked for roles" in (latest / "report.html").read_text()
    Path(file).unlink()
    assert run(capsys, "check", str(latest))[0] == 0, "what is stored says it all"


def test_a_queue_that_is_not_empty_is_refused_and_keeps_its_message(tmp_path, broker, capsys):
    _, port = broker
    file = write(tmp_path / "cluster.toml", port, top='queue-prefix = "their."')
    system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
    words = ("--attach", file, "--store", str(tmp_path / "store"))

    async def send(body):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode("CONNECT", {"accept-version": "1.2", "host": "a"}, b""))
        await reader.readuntil(b"\0")
        writer.write(encode("SEND", {"destination": "/queue/their.q0", "receipt": "1"}, body))
        await reader.readuntil(b"\0")
        writer.close()

    asyncio.run(send(b"an order of a customer"))
    for _ in range(2):
        status, out, err = run(capsys, *words)
        assert (status, out, err.count("\n")) == (254, "", 1)
        assert "/queue/their.q0 of a1 is not empty: it has a message of somebody else" in err
    assert not (tmp_path / "store").exists()
    assert system.dialect.queue == "/queue/their.{}"


@pytest.mark.slow
def test_what_an_earlier_test_left_is_taken_away_only_where_the_file_says_so(tmp_path, broker, capsys):
    _, port = broker
    body = payload.encode(payload.Payload(1, "q0", "g", 0, 0), 64)

    async def looked(leftovers):
        file = write(tmp_path / "cluster.toml", port, top=f'leftovers = "{leftovers}"')
        system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
        reach = cluster.load(Path(file)).named("a1").address
        return await system.look_first(TestSpec(name="t"), lambda node: reach)

    async def steps():
        from harness.systems.stomp_client import StompClient

        file = write(tmp_path / "cluster.toml", port)
        system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
        at = cluster.load(Path(file)).named("a1").address
        async with await StompClient.open(at, system.dialect, 5.0) as client:
            await client.ask("SEND", body.decode(), destination=system.dialect.destination("q0"))
        with pytest.raises(UsageError, match='an earlier test, or one that goes on.*leftovers = "remove"'):
            await looked("refuse")
        assert await looked("remove") == ["1 messages of an earlier test were removed from q0 of a1"]
        assert await looked("refuse") == []

    asyncio.run(steps())


def copies(server, count):
    """Makes a server give what is sent to ``count`` of its subscribers, as a topic does to each."""

    def send(peer, frame):
        for other in [each for each in server.peers if each.subscriptions][:count]:
            server.tags += 1
            server.unacknowledged[f"t{server.tags}"] = ((other, "0"), frame)
            tag = {"message-id": f"m{server.tags}", "ack": f"t{server.tags}", "subscription": "0"}
            other.say("MESSAGE", {**tag, "destination": frame.headers["destination"]}, frame.body)
        peer.receipt(frame)

    server.script["SEND"] = send


@pytest.mark.parametrize(
    ("count", "complaint"),
    [
        (1, None),
        (2, "jepsen-run.q0 of a1 is no queue: both of two subscribers"),
        (0, "no subscriber within 1 s"),
    ],
)
def test_a_topic_is_no_queue_and_refused_before_anything_is_found_in_it(
    tmp_path, monkeypatch, count, complaint
):
    """Each subscriber has a copy there: each message would be a duplicate, by no fault."""
    monkeypatch.setattr(attached, "LOOK_S", 0.1)
    monkeypatch.setattr(attached, "CONNECT_S", 1.0)

    async def looked():
        async with Server() as server:
            copies(server, count)
            file = write(tmp_path / "cluster.toml", server.address.port)
            system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
            try:
                return await system.look_first(TestSpec(name="t"), lambda _: server.address)
            finally:
                assert server.unacknowledged == {}, "what was sent to try it is taken away"

    if complaint is None:
        assert asyncio.run(looked()) == []
    else:
        with pytest.raises(UsageError, match=complaint):
            asyncio.run(looked())


def test_what_makes_a_queue_of_artemis_is_said_in_each_send_and_subscription(tmp_path):
    """Its own distribution has no prefix for queues: there all else is a topic."""
    (tmp_path / "cluster.toml").write_text(
        'system = "artemis"\n[[node]]\nname = "a1"\nstomp = "127.0.0.1:1"\n'
    )
    described = attaching.attached(tmp_path / "cluster.toml", {}, ())["attached"]
    dialect = attached.of(described, registry.get).dialect
    assert dialect.send_headers("g")["destination-type"] == "ANYCAST"
    assert dialect.subscribe_headers(2)["subscription-type"] == "ANYCAST"
    (tmp_path / "cluster.toml").write_text(
        '[[node]]\nname = "a1"\nstomp = "127.0.0.1:1"\n[dialect]\nsubscribe = { kind = "queue" }\n'
    )
    described = attaching.attached(tmp_path / "cluster.toml", {}, ())["attached"]
    assert attached.of(described, registry.get).dialect.subscribe_headers(2)["kind"] == "queue"


def test_where_nobody_lets_clients_in_it_is_unknown(tmp_path, capsys):
    file = write(tmp_path / "cluster.toml", 1)
    status, _, err = run(capsys, "--attach", file, "--store", str(tmp_path / "store"))
    assert status == 2
    assert "no broker accepts clients: a1: " in err


ROLES = """[roles]
command = '''{}'''
words = {{ "ACTIVE" = "live", "PASSIVE" = "backup" }}
"""


@pytest.mark.parametrize(
    ("command", "role", "node_id", "epoch"),
    [
        ("echo it is ACTIVE", "live", "a1", 0),
        ("echo live", "live", "a1", 0),
        ("echo Something else", "unclear", "a1", 0),
        ("""echo '{"role": "live", "node-id": "n", "epoch": 3}'""", "live", "n", 3),
    ],
)
def test_roles_are_asked_for_by_a_command(tmp_path, command, role, node_id, epoch):
    file = write(tmp_path / "cluster.toml", 1, roles=ROLES.format(command))
    system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
    status = asyncio.run(system.status(cluster.Address("a1", 0)))
    assert (status.role, status.node_id, status.epoch) == (role, node_id, epoch)
    assert system.promises(TestSpec(name="t")).untold == ("stores",)


@pytest.mark.parametrize(
    ("command", "error", "complaint"),
    [
        ("echo ACTIVE", None, ""),
        (
            """echo '{"error": "Origin is not allowed"}'""",
            UsageError,
            r"""\[roles\]: a1 accepts clients, but its answer is no role, .*: "{"error": "Origin""",
        ),
        (
            "nonsense || echo stopped",
            UsageError,
            'a1 accepts clients, but its answer means stopped: "stopped"',
        ),
        (
            "echo no console >&2; false",
            InfrastructureError,
            "a1 accepts clients, but the request for its role failed: .*no console",
        ),
    ],
)
def test_a_broker_that_serves_and_says_no_role_that_can_be_true_is_told_at_once(
    tmp_path, monkeypatch, command, error, complaint
):
    """Else a test would wait minutes for a live broker, and could not say why there is none."""
    monkeypatch.setattr(attached, "LOOK_S", 0.1)
    monkeypatch.setattr(attached, "CONNECT_S", 1.0)

    async def looked():
        async with Server() as server:
            copies(server, 1)
            file = write(tmp_path / "cluster.toml", server.address.port, roles=ROLES.format(command))
            system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
            return await system.look_first(TestSpec(name="t"), lambda _: server.address)

    if error is None:
        assert asyncio.run(looked()) == []
    else:
        with pytest.raises(error, match=complaint):
            asyncio.run(looked())


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("echo live", r"\[roles\]: b1 is reported as live, but accepts no client \(.*\): does \[roles\] ask"),
        ("[ {node} = a1 ] && echo live || echo stopped", ""),
        ("[ {node} = a1 ] && echo live", ""),
    ],
)
def test_two_brokers_that_ask_one_console_are_no_split_brain(tmp_path, monkeypatch, command, complaint):
    """One of them lets nobody in: what is said of it is said by the other."""
    monkeypatch.setattr(attached, "LOOK_S", 0.1)
    monkeypatch.setattr(attached, "CONNECT_S", 1.0)

    async def looked():
        async with Server() as server:
            copies(server, 1)
            file = Path(write(tmp_path / "cluster.toml", server.address.port, roles=ROLES.format(command)))
            file.write_text('[[node]]\nname = "b1"\nstomp = "127.0.0.1:1"\n' + file.read_text())
            system = attached.of(attaching.attached(file, {}, ())["attached"], registry.get)
            there = {"a1": server.address, "b1": cluster.Address("127.0.0.1", 1)}
            return await system.look_first(TestSpec(name="t"), there.__getitem__)

    if not complaint:
        assert asyncio.run(looked()) == []
    else:
        with pytest.raises(UsageError, match=complaint):
            asyncio.run(looked())


def test_a_command_that_fails_says_no_role(tmp_path):
    file = write(tmp_path / "cluster.toml", 1, roles=ROLES.format("echo ACTIVE; false"))
    system = attached.of(attaching.attached(Path(file), {}, ())["attached"], registry.get)
    with pytest.raises(OSError, match="failed"):
        asyncio.run(system.status(cluster.Address("a1", 0)))


def test_roles_are_asked_for_by_a_url(tmp_path):
    page = tmp_path / "page"
    page.write_text("state: PASSIVE")
    roles = ROLES.replace("command", "url").format(f"file://{page}")
    system = attached.of(
        attaching.attached(Path(write(tmp_path / "cluster.toml", 1, roles=roles)), {}, ())["attached"],
        registry.get,
    )
    assert asyncio.run(system.status(cluster.Address("a1", 0))).role == "backup"
    page.write_text("live\n")
    assert asyncio.run(system.status(cluster.Address("a1", 0))).role == "live"
    page.unlink()
    with contextlib.suppress(InfrastructureError), pytest.raises(OSError):
        asyncio.run(system.status(cluster.Address("a1", 0)))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--policy", "replication"], "--policy and --attach: the file says which cluster it is"),
        (["--set", "*:a=1"], "--set and --attach"),
        (["--nemesis", "kill"], "fault 1 (kill): this environment cannot do it: an attached cluster"),
        (["--nemesis", "partition"], "fault 1 (partition): this environment cannot do it"),
        (["--nemesis", "hook", "--target", "live"], "hook: target live needs the roles of the brokers"),
        (
            ["--nemesis", "late-start"],
            "never starts, configures or commands an attached cluster:",
        ),
        (
            ["--nemesis", "reconfigure"],
            "never starts, configures or commands an attached cluster:",
        ),
        (["--nemesis", "clock-skew"], "cannot touch the clocks of an attached cluster: give a hook"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, capsys, words, complaint):
    hook = '[[hook]]\nname = "x"\nbegin = "a"\nend = "b"\nprobe = "c"\n'
    node = '[[node]]\nname = "b1"\nstomp = "127.0.0.1:1"\n'
    file = write(tmp_path / "cluster.toml", 1, hook=hook + node)
    status, out, err = run(capsys, "--attach", file, *words, "--store", str(tmp_path / "store"))
    assert (status, out, err.count("\n")) == (254, "", 1)
    assert complaint in err


@pytest.mark.parametrize(
    ("top", "complaint"),
    [
        ('system = "owm"', 'unknown system "owm": did you mean "own"?'),
        ('passcode-env = "NOT_THERE"', "the environment variable NOT_THERE is not set"),
    ],
)
def test_a_system_or_a_secret_that_is_not_there_is_one_line(tmp_path, capsys, top, complaint):
    file = write(tmp_path / "cluster.toml", 1, top=top)
    status, out, err = run(capsys, "--attach", file, "--store", str(tmp_path / "store"))
    assert (status, out, err.count("\n")) == (254, "", 1)
    assert complaint in err


NODE = {"name": "a1", "stomp": "127.0.0.1:1"}


def looked_first(table):
    """What is said of a cluster before its brokers are reached."""
    spec = TestSpec(name="x", policy="attached", environment="attached", pairs=1, attached=table)
    return asyncio.run(registry.of(spec).look_first(spec, lambda _: cluster.Address("127.0.0.1", 1)))


@pytest.mark.parametrize("system", ["rabbitmq", "own"])
def test_brokers_whose_secrets_nobody_has_are_not_asked_with_others(system, monkeypatch):
    monkeypatch.setenv("SECRET", "theirs")
    asked = {"system": system, "passcode-env": "SECRET", "node": [NODE | {"admin": "127.0.0.1:1"}]}
    with pytest.raises(
        UsageError, match=f"admin: brokers of {system} answer only the program that deployed them"
    ):
        looked_first(asked)
    with pytest.raises(InfrastructureError, match="no broker accepts clients"):
        looked_first({**asked, "node": [NODE]})


def test_nobody_comes_in_with_a_passcode_that_was_made_for_the_run():
    with pytest.raises(UsageError, match="brokers of rabbitmq refuse clients without a secret"):
        looked_first({"system": "rabbitmq", "node": [NODE]})


@pytest.mark.parametrize(
    ("system", "policy", "not_promised"),
    [
        ("classic", "", {"durable_acks", "single", "fifo", "answers_in_order", "independent_pairs"}),
        ("classic", "shared-store", {"fifo", "answers_in_order"}),
        ("classic", "network", {"durable_acks", "single", "fifo", "answers_in_order", "independent_pairs"}),
        ("openmq", "", {"groups", "fifo", "independent_pairs"}),
        ("artemis", "", {"fifo"}),
    ],
)
def test_without_a_policy_only_what_all_of_them_promise_is_promised(system, policy, not_promised):
    table = {"system": system, "policy": policy, "node": [NODE]}
    spec = TestSpec(name="x", policy="attached", environment="attached", pairs=1, attached=table)
    told = msgspec.structs.asdict(registry.of(spec).promises(spec))
    of_ours = {"durable_counts", "keeps_expired", "monotonic_clocks"}  # which nobody else promises
    assert {name for name, value in told.items() if value is False} == not_promised | of_ours


def test_a_policy_that_the_system_has_not_is_refused():
    with pytest.raises(UsageError, match='unknown policy "netwrok": did you mean "network"'):
        attached.of({"system": "classic", "policy": "netwrok", "node": [NODE]}, registry.get)


def test_an_unknown_field_of_the_dialect_is_one_line(tmp_path, capsys):
    path = tmp_path / "cluster.toml"
    write(path, 1)
    path.write_text(path.read_text().replace("name-header", "nmae-header"))
    status, _, err = run(capsys, "--attach", str(path))
    assert status == 254
    assert '[dialect]: unknown key "nmae-header": did you mean "name-header"?' in err


def test_the_environment_needs_a_cluster(capsys):
    status, _, err = run(capsys, "--environment", "attached", "--policy", "standalone")
    assert (status, "name the cluster by --attach FILE" in err) == (254, True)


def test_a_broker_that_dies_while_its_page_is_read_is_not_reached(tmp_path):
    async def asked():
        async def half(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nli")
            writer.close()

        server = await asyncio.start_server(half, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        roles = ROLES.replace("command", "url").format(f"http://127.0.0.1:{port}/")
        file = Path(write(tmp_path / "cluster.toml", 1, roles=roles))
        system = attached.of(attaching.attached(file, {}, ())["attached"], registry.get)
        async with server:
            with pytest.raises(OSError, match="no whole answer"):
                await system.status(cluster.Address("a1", 0))

    asyncio.run(asked())


@pytest.mark.parametrize(("pair", "ids"), [("", ("a1", "b1")), ("p", ("p", "p"))])
def test_brokers_without_ids_are_told_apart_by_the_file_and_not_by_their_names(jolokia, pair, ids):  # noqa: F811
    """Each that nobody has named calls itself localhost."""
    address, say = jolokia
    bean = "org.apache.activemq:type=Broker,brokerName=localhost"
    say([{"status": 200, "value": value} for value in ({bean: {"Slave": False}}, 5, [], [bean])])
    nodes = [{"name": name, "stomp": "h:1", "admin": str(address), "pair": pair} for name in ("a1", "b1")]

    async def asked():
        system = attached.of({"system": "classic", "node": nodes}, registry.get)
        return [(await system.status(cluster.Address(node["name"], 0))).node_id for node in nodes]

    assert tuple(asyncio.run(asked())) == ids


def test_dead_letters_of_an_earlier_test_are_not_taken_for_those_of_the_next(tmp_path, monkeypatch):
    left = StoredMessage(
        store="dead-letter", queue="DLQ", group=None, body=payload.encode(payload.Payload(1, "q0", "g", 0, 0))
    )
    stored = [left]

    class Inner(type(registry.get("classic"))):
        async def browse(self, admin):
            return stored

        async def status(self, admin):
            return Status(name="a1", node_id=None, role="live", epoch=0)

    monkeypatch.setattr(attached, "LOOK_S", 0.1)

    async def looked():
        async with Server() as server:
            copies(server, 1)
            nodes = [{"name": "a1", "stomp": str(server.address), "admin": "h:1"}]
            system = attached.of({"system": "classic", "node": nodes}, lambda _: Inner())
            return await system.look_first(TestSpec(name="t"), lambda _: server.address)

    with pytest.raises(UsageError, match=r"DLQ of a1 has messages of another test \(1 in all\)"):
        asyncio.run(looked())
    stored[:] = [msgspec.structs.replace(left, body=b"an order of a customer")]
    assert asyncio.run(looked()) == []
