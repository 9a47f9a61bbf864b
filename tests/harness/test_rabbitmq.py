"""RabbitMQ as a system under test: its files, its answers; where it is installed, its runs."""

import asyncio
import base64
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import needs
import psutil
import pytest
from msgspec import structs

from checkers import api as checks
from checkers.verdict import Verdict
from environments.homes import Homes
from harness.commands import cli
from harness.history import judge, recorder
from harness.history import store as stores
from harness.interface import Address, InfrastructureError, Layout, Status, TestSpec, UsageError
from harness.report import summary
from harness.run.compose import compose
from harness.run.conformance import Conformance
from harness.run.talk import tried
from harness.systems import given, registry
from harness.systems.rabbitmq import configuration, distribution, erlang, management
from harness.systems.rabbitmq.events import EVENTS
from workloads.registry import queues_of

WORDS = ("--system", "rabbitmq", "--policy", "quorum-queues")
LAYOUT = Layout(
    etc="/n x/etc",
    data="/n x/data",
    logs="/n x/logs",
    homes={distribution.SERVER: "/opt/rabbitmq", distribution.ERLANG: "/opt/erlang"},
)
LISTEN = {port: Address("127.9.9.9", number) for port, number in configuration.PORTS.items()}


def spec(**more):
    return TestSpec(name="t", system="rabbitmq", policy="quorum-queues", environment="local", **more)


def planned(a_spec):
    return registry.of(a_spec).plan(a_spec)


def files(node="a1", release=(4, 0, 5), loading=(), **properties):
    a_spec = spec(properties=properties)
    nodes = planned(a_spec)
    plan = next(each for each in nodes if each.name == node)
    return configuration.files(
        a_spec.properties, plan, nodes, LAYOUT, LISTEN, {"b1:25672": Address("127.3.2.1", 25672)},
        "erts-13/bin", release=release, loading=loading, cookie="SECRET", password="hidden",
    )  # fmt: skip


def settings_of(made):
    return dict(line.split(" = ") for line in made["rabbitmq.conf"].decode().splitlines())


def test_a_node_is_told_all_nodes_its_ports_and_what_a_test_sets():
    made = files(**{"*": {"cluster_partition_handling": "autoheal"}, "a1": {"erl.schedulers": 1}})
    conf = settings_of(made)
    assert conf["cluster_partition_handling"] == "autoheal"
    assert [conf[f"cluster_formation.classic_config.nodes.{n}"] for n in (1, 2, 3)] == [
        "a1@a1",
        "b1@b1",
        "c1@c1",
    ]
    assert conf["stomp.listeners.tcp.1"] == "127.9.9.9:61613"
    assert conf["management.tcp.port"] == "15672"
    assert conf["listeners.tcp"] == "none"
    assert int(conf["management.tcp.request_timeout"]) > 10_000_000  # else a role's kept connection ends
    assert conf["log.console.use_colors"] == "off"  # events are lines without escapes
    start = made["start"].decode()
    assert "+S 1:1" in start
    assert "-kernel inet_dist_use_interface {127,9,9,9}" in start
    assert "-erl_epmd_port 25672" in start
    assert "SECRET" not in start
    assert made[".erlang.cookie"] == b"SECRET\n"
    assert "chmod 700 '/n x/etc'/erl\n" in start


def test_a_release_is_not_given_what_has_no_effect_in_it():
    asked = {"cluster_partition_handling": "ignore", "mnesia_table_loading_retry_timeout": 9}
    assert settings_of(files(release=(4, 2, 9)))["cluster_partition_handling"] == "pause_minority"
    assert asked.keys() <= settings_of(files(release=(4, 2, 9), a1=asked)).keys()
    newer = settings_of(files(release=(4, 3, 0), a1=asked))
    assert not asked.keys() & newer.keys()
    assert newer.keys() - settings_of(files(release=(4, 2, 9))).keys() == {"consumer_disconnected_timeout"}


def test_programs_of_a_tree_with_a_library_of_its_own_are_started_by_its_loader(tmp_path):
    assert files()["beam.smp"] == b'#!/bin/sh\nexec /opt/erlang/erts-13/bin/beam.smp "$@"\n'
    made = files(loading=distribution.loading("/l x/ld-linux.so.2"))
    assert made["inet_gethost"].decode().splitlines()[1] == (
        "exec '/l x/ld-linux.so.2' --library-path '/l x' /opt/erlang/erts-13/bin/inet_gethost \"$@\""
    )
    assert "chmod 700 '/n x/etc'/inet_gethost\n" in made["start"].decode()
    assert "export BINDIR='/n x/etc'\n" in made["start"].decode()


@pytest.mark.parametrize(
    ("asked", "added"),
    [
        (["-sname", "a1"], []),
        (["-hidden", "-x"], ["-start_epmd", "false", "-erl_epmd_port", "25672", "-dist_listen", "false"]),
    ],
)
def test_a_hidden_node_is_told_that_there_is_no_epmd(tmp_path, asked, added):
    for name, content in (("erl", files()["erl"]), ("erlexec", b'#!/bin/sh\nprintf "%s\\n" "$@"\n')):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    variables = {"BINDIR": str(tmp_path), "RABBITMQ_DIST_PORT": "25672"}
    said = subprocess.run(
        [tmp_path / "erl", *asked], env=variables, capture_output=True, text=True, check=True
    ).stdout
    quiet = ["-os_mon", "start_cpu_sup", "false", "-os_mon", "start_memsup", "false"]
    assert said.splitlines() == [*quiet, *added, *asked]


def test_names_resolve_in_each_node_to_its_own_links():
    made = files()
    assert made["hosts"].decode().splitlines() == ["127.0.0.1 localhost", "127.9.9.9 a1", "127.3.2.1 b1"]
    assert made["inetrc"].decode().splitlines() == ['{hosts_file, "/n x/etc/hosts"}.', "{lookup, [file]}."]


def test_every_node_is_a_member_that_serves_all():
    nodes = planned(spec(pairs=5))
    assert [node.name for node in nodes] == ["a1", "b1", "c1", "d1", "e1"]
    assert {node.configured for node in nodes} == {"member"}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"*": {"cluster_partition_handeling": "ignore"}}, 'did you mean "cluster_partition_handling"'),
        ({"*": {"cluster_partition_handling": "pray"}}, "must be one of pause_minority, ignore, autoheal"),
        ({"*": {"net_ticktime": "soon"}}, "net_ticktime=soon: it must be a whole number"),
        ({"*": {"net_ticktime": True}}, "it must be a whole number"),
        ({"a1": {"queue.x-delivery-limit": 3}}, "a queue is the same on all nodes"),
        ({"z1": {"net_ticktime": 1}}, 'no node "z1"'),
    ],
)
def test_a_property_that_is_none_is_one_line(setting, complaint):
    with pytest.raises(UsageError, match=complaint):
        planned(spec(properties=setting))


def test_groups_are_promised_by_one_active_consumer_of_the_queue():
    asked = management.arguments(spec(workload="groups"), 3)
    assert asked["x-single-active-consumer"] is True
    assert asked["x-quorum-initial-group-size"] == 3
    assert management.arguments(spec(workload="queue"), 3)["x-single-active-consumer"] is False
    assert registry.of(spec()).promises(spec()).groups
    several = spec(properties={"*": {"queue.x-single-active-consumer": False}})
    assert not registry.of(several).promises(several).groups
    limited = spec(properties={"*": {"queue.x-delivery-limit": 2}})
    assert management.arguments(limited, 3)["x-delivery-limit"] == 2
    promises = registry.of(limited).promises(limited)
    assert (promises.delivery_attempts, promises.attempts) == (3, "given back")


@pytest.mark.parametrize(
    ("release", "limit", "workload", "attempts"),
    [
        ("3.10.8", None, "queue", -1),
        ("3.10.8", 5, "queue", 6),
        ("3.10.8", -1, "queue", -1),
        ("4.0.5", None, "queue", 21),
        ("4.0.5", 5, "queue", 6),
        ("4.0.5", -1, "queue", -1),
        ("4.0.5", -1, "queue,subscriptions", 21),  # their queues are declared without an argument
        ("4.0.5", 5, "queue,subscriptions", 6),
        ("3.10.8", -1, "queue,subscriptions", -1),
        ("", None, "queue", 21),
    ],
)
def test_since_4_0_a_message_that_is_given_back_too_often_is_dropped(release, limit, workload, attempts):
    asked = {} if limit is None else {"*": {"queue.x-delivery-limit": limit}}
    test = spec(workload=workload, properties=asked)
    assert registry.promises(test, release).delivery_attempts == attempts


@pytest.mark.parametrize(("release", "workload", "limit", "groups"), [
    ("3.10.8", "groups", None, True), ("3.10.8", "refusals", None, False), ("3.10.8", "refusals", 2, True),
    ("3.10.8", "mixed", None, False), ("4.0.5", "refusals", None, True), ("4.0.5", "refusals", -1, False),
    ("", "refusals", None, False), ("", "groups", None, True),
])  # fmt: skip
def test_who_refuses_is_promised_no_order_by_a_queue_without_a_delivery_limit(
    release, workload, limit, groups
):
    asked = {} if limit is None else {"*": {"queue.x-delivery-limit": limit}}
    test = spec(workload=workload, properties=asked)
    assert registry.promises(test, release).groups is groups


def test_a_queue_is_declared_as_its_release_takes_it():
    asked = {"*": {"queue.x-delivery-limit": -1, "queue.x-max-in-memory-length": 9}}
    older, newer = (
        management.arguments(spec(properties=asked), 3, release) for release in ((3, 12, 1), (4, 0, 5))
    )
    assert older.keys() - newer.keys() == {"x-max-in-memory-length"}
    assert newer.keys() - older.keys() == {"x-delivery-limit"}


def test_a_stored_run_is_judged_by_what_its_release_promises(tmp_path, monkeypatch):
    judged = []
    monkeypatch.setattr(recorder, "recover", lambda *_, **__: None)
    monkeypatch.setattr(checks, "rows_of", lambda _: 1)
    monkeypatch.setattr(
        checks, "check", lambda _, options, __: judged.append(options.broker) or Verdict(valid=True)
    )
    stores.save(tmp_path, stores.SPEC, spec(workload="refusals"))
    for version in ("4.0.5", "3.10.8"):
        stores.save(tmp_path, stores.RUN, stores.RunRecord(state="ended", versions={"rabbitmq": version}))
        judge.judge(tmp_path, lambda: None, keep=False)
    assert [(each.delivery_attempts, each.groups) for each in judged] == [(21, True), (-1, False)]
    assert "rabbitmq keeps no groups" in summary.promised(spec(workload="refusals"), "3.10.8")
    assert "rabbitmq keeps no groups" not in summary.promised(spec(workload="refusals"), "4.0.5")


def status(name, *queues):
    return Status(name=name, node_id=name, role="live", epoch=1, details={"queues": queues})


def test_what_lacks_is_a_node_or_a_member_of_a_queue():
    system = registry.get("rabbitmq")
    nodes = planned(spec())
    members = ["a1@a1", "b1@b1", "c1@c1"]
    whole = {"name": "q0", "members": members, "online": members}
    short = {**whole, "online": members[:2]}
    all_of = {name: status(name) for name in ("a1", "b1", "c1")}
    assert system.lacking(nodes, all_of) == {}
    assert system.lacking(nodes, {**all_of, "a1": status("a1", whole)}) == {}
    assert system.lacking(nodes, {**all_of, "a1": status("a1", short)}) == {"c1": "q0 has no member on c1"}
    unknown = status(
        "a1", {"name": "q1", "members": None}, {"name": "q0", "members": members, "online": None}
    )
    assert system.lacking(nodes, {**all_of, "a1": unknown}).keys() == all_of.keys()
    del all_of["b1"]
    assert system.lacking(nodes, all_of) == {"b1": "b1 does not serve"}


def distribute(place, version="3.10.8", erlang_at="usr/lib/erlang"):
    """What a tree of packages has, as far as it is looked at."""
    server = place / f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}"
    for name in ("sbin/rabbitmq-server", f"plugins/rabbit-{version}/ebin/rabbit.app"):
        (server / name).parent.mkdir(parents=True, exist_ok=True)
        (server / name).touch()
    for name in ("erts-13.1.5/bin/erlexec", "bin/erl_call", "bin/erl"):
        program = place / erlang_at / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)


def test_what_is_missing_is_said_with_the_line_that_brings_it(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert cli.run([*WORDS]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jepsen-run: system rabbitmq: {tmp_path}: no sbin/rabbitmq-server; install it, ")
    assert line.endswith(". To get it: apt-get install rabbitmq-server")
    distribute(tmp_path, "3.9.13", "bin/..")
    assert "is RabbitMQ 3.9.13: only 3.10 and later can be tested" in distribution.missing()
    newer = tmp_path / "unpacked"
    distribute(newer, erlang_at="elsewhere")
    monkeypatch.setenv(distribution.HOME, str(newer))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no Erlang/OTP" in distribution.missing()
    monkeypatch.setenv("PATH", str(newer / "elsewhere" / "bin"))
    assert distribution.missing() == ""
    distribute(newer)
    monkeypatch.setenv("PATH", "/nowhere")
    found = distribution.find_distribution()
    assert (found.version, found.erlang) == ("3.10.8", newer / "usr/lib/erlang")


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ("3.10.8", False),
        ("3.13.7", True),
        ("4.0.5", False),
        ("4.1.8", True),
        ("4.3.6", False),
        ("4.4.0", True),
    ],
)
def test_a_release_that_was_never_tried_is_tried_with_a_warning(tmp_path, monkeypatch, version, warned):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    distribute(tmp_path, version)
    test = compose(spec())
    assert test.system.release == version
    start = f"warning: RabbitMQ {version} is untried (tried: 3.10, 3.11, 3.12, 4.0, 4.3): "
    assert [line.startswith(start) for line in test.warnings] == [True] * warned


def test_a_setting_without_effect_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    distribute(tmp_path, "4.0.5")
    asked = {"a1": {"cluster_partition_handling": "ignore"}, "*": {"queue.x-max-in-memory-length": 9}}
    (line,) = compose(spec(properties=asked)).warnings
    assert line == (
        "warning: --set *:queue.x-max-in-memory-length: it has no effect since RabbitMQ 4.0, "
        "and 4.0.5 is not given it"
    )
    (line,) = compose(spec(properties={"*": {"consumer_disconnected_timeout": 9}})).warnings
    assert "it has no effect before RabbitMQ 4.3, and 4.0.5 is not given it" in line
    distribute(tmp_path, "4.3.1")
    first, second = compose(spec(properties=asked)).warnings
    assert first.startswith("warning: --set *:queue.x-max-in-memory-length: ")
    assert second.startswith(
        "warning: --set a1:cluster_partition_handling: it has no effect since RabbitMQ 4.3, "
    )


def test_a_fault_after_which_a_node_stays_alone_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    for version, said in (("3.10.8", 0), ("4.0.5", 1), ("4.3.6", 0)):
        distribute(tmp_path, version)
        lines = [line for line in compose(spec(nemeses=("destroy",))).warnings if "destroy: " in line]
        assert len(lines) == said


def test_one_that_is_installed_needs_no_home(tmp_path, monkeypatch):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.delenv(distribution.HOME, raising=False)
    monkeypatch.setattr(distribution, "INSTALLED", str(tmp_path))
    assert distribution.missing().startswith("not installed; install it, or unpack it")
    distribute(tmp_path)
    assert distribution.missing() == ""


def test_what_is_found_here_is_brought_to_other_machines(tmp_path, monkeypatch):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    distribute(tmp_path)
    provision = registry.get("rabbitmq").provision(spec())
    assert provision.directories == {
        "rabbitmq": str(tmp_path / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8"),
        "erlang": str(tmp_path / "usr/lib/erlang"),
    }
    assert set(Homes(provision).executable) >= {"erlang/bin/erl_call", "erlang/erts-13.1.5/bin/erlexec"}


LISTED = """\
\tlinux-vdso.so.1 (0x00007ffe)
\tlibz.so.1 => {0}/libz.so.1 (0x00007f01)
\tlibgone.so.1 => not found
\t/lib64/ld-linux.so.2 => {0}/ld-linux.so.2 (0x00007f03)
"""
"""What a loader lists of a program."""


def test_other_machines_get_the_libraries_of_its_programs(tmp_path, monkeypatch):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    distribute(tmp_path)
    place = tmp_path / "usr/lib/some-gnu"
    place.mkdir()
    (place / "libz.so.1").touch()
    loader = place / "ld-linux.so.2"
    loader.write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/asked\ncat <<'END'\n{LISTED.format(place)}END\n")
    loader.chmod(0o755)
    system = registry.get("rabbitmq")
    provision = system.provision(spec())
    assert provision.files == {
        f"libraries/{name}": f"{place}/{name}" for name in ("ld-linux.so.2", "libz.so.1")
    }
    asked = (tmp_path / "asked").read_text().splitlines()
    assert f"--library-path {place} --list {tmp_path}/usr/lib/erlang/erts-13.1.5/bin/beam.smp" in asked
    brought = Homes(provision)
    assert ("libraries/ld-linux.so.2" in brought.executable, "libraries/libz.so.1" in brought.files) == (
        True,
        True,
    )
    homes = {name: f"/opt/{name}" for name in provision.names}
    nodes = planned(spec())
    here, there = (
        system.files(spec(), nodes[0], nodes, structs.replace(LAYOUT, homes=each), LISTEN, {})[
            "erlexec"
        ].decode()
        for each in (provision.directories, homes)
    )
    program = "erts-13.1.5/bin/erlexec"
    assert f"exec {loader} --library-path {place} {tmp_path}/usr/lib/erlang/{program} " in here
    monkeypatch.setattr(distribution, "INSTALLED", str(tmp_path))
    assert distribution.find_distribution().loader is None  # of the machine itself
    assert f"exec /opt/libraries/ld-linux.so.2 --library-path /opt/libraries /opt/erlang/{program} " in there


class Answers(BaseHTTPRequestHandler):
    """The HTTP API as it answered: (method, path) -> status and value."""

    protocol_version = "HTTP/1.1"
    said = {}
    closes = False

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.removeprefix("/api/").partition("?")[0]
        status_code, value = self.said.get((self.command, path), (404, {"error": "not_found"}))
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status_code)
        self.send_header("Content-Length", str(len(body)))
        if self.closes:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = answer  # noqa: N815 - names of the library

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    """An address, and what is said there from now on."""
    handler = type("Said", (Answers,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Address(*server.server_address), lambda said: setattr(handler, "said", said)
        finally:
            server.shutdown()
            thread.join()


QUEUE = {"name": "q0", "members": ["a1@a1"], "online": ["a1@a1"]}
UP = {
    ("GET", "whoami"): (200, {"name": "tester"}),
    ("GET", "overview"): (200, {"node": "a1@a1", "listeners": []}),
    ("GET", "queues/%2F"): (200, [QUEUE]),
}


def test_who_answers_is_live_and_tells_of_its_queues_a_moment_later(api):
    address, say = api
    say(UP)

    async def asked():
        system = management.Management()
        first = await system.status(address)
        await asyncio.sleep(0)
        while not (second := await system.status(address)).details["queues"]:
            pass
        return first, second

    first, second = asyncio.run(asked())
    assert (first.name, first.role, first.node_id, first.epoch) == ("a1", "live", "a1@a1", second.epoch)
    assert second.details["queues"] == [QUEUE]


def test_a_connection_that_the_server_closes_is_not_the_same_as_the_next(api, monkeypatch):
    address, say = api
    say(UP)

    async def epochs():
        system = management.Management()
        before = (await system.status(address)).epoch
        monkeypatch.setattr(Answers, "closes", True)
        return before, (await system.status(address)).epoch, (await system.status(address)).epoch

    before, closing, after = asyncio.run(epochs())
    assert before <= closing < after


@pytest.mark.parametrize("answer", [(503, b""), (401, {"error": "no"}), (200, b"<html>")])
def test_an_answer_that_is_none_is_an_error_of_the_network(api, answer):
    address, say = api
    say({**UP, ("GET", "whoami"): answer})
    with pytest.raises(OSError, match=str(address)):
        asyncio.run(management.Management().status(address))


def test_a_queue_without_all_its_members_is_the_machines_fault(api, monkeypatch):
    address, say = api
    monkeypatch.setattr(management, "_DECLARE_S", 0.2)
    monkeypatch.setattr(management, "_LOOK_S", 0.05)
    there = {("PUT", "queues/%2F/q0"): (201, b""), ("DELETE", "queues/%2F/q0"): (204, b"")}
    admins = {"a1": address, "b1": address}
    for members, complaint in ((["a1@a1"], "it has a1@a1"), (["a1@a1", "b1@b1"], None)):
        say({**there, ("GET", "queues/%2F/q0"): (200, {"members": members})})
        prepared = management.Management().prepare(spec(), admins)
        if complaint is None:
            asyncio.run(prepared)
        else:
            with pytest.raises(InfrastructureError, match=complaint):
                asyncio.run(prepared)


def erl_call(tmp_path, monkeypatch, said):
    """A program that says what ``erl_call`` said, and keeps what it was asked."""
    distribute(tmp_path)
    program = tmp_path / "usr/lib/erlang/bin/erl_call"
    (tmp_path / "said").write_bytes(said)
    program.write_text(
        f'#!/bin/sh\ncat > {tmp_path}/asked\necho "$@" "$(cat $HOME/.erlang.cookie)" > {tmp_path}/called\n'
        f"exec cat {tmp_path}/said\n"
    )
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))


LISTENERS = [
    {"node": "b1@b1", "protocol": "clustering", "ip_address": "127.1.1.2", "port": 25672},
    {"node": "a1@a1", "protocol": "clustering", "ip_address": "127.1.1.1", "port": 25672},
]
HERE = {("GET", "overview"): (200, {"node": "a1@a1", "listeners": LISTENERS})}


def read(messages, delivered=0):
    return json.dumps([{"queue": "q0", "delivered": delivered, "messages": messages}]).encode()


def test_a_store_is_read_by_who_leads_it_without_consuming(api, tmp_path, monkeypatch):
    address, say = api
    say(HERE)
    body = base64.b64encode(b"\x00\xffbody").decode()
    erl_call(
        tmp_path,
        monkeypatch,
        read([{"body": body, "group": "g1"}, {"body": "", "group": None}]) + b"{ok, done}",
    )
    system = management.Management()
    stored = asyncio.run(system.browse(address))
    assert [(each.queue, each.store, each.group, each.body) for each in stored] == [
        ("q0", "main", "g1", b"\x00\xffbody"),
        ("q0", "main", None, b""),
    ]
    called = (tmp_path / "called").read_text()
    assert "-address 127.1.1.1:25672" in called
    assert called.split()[-1] == system.cookie  # from a file, not from the command line
    assert "{peek, Position}" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (read([], delivered=3) + b"{ok, done}", "3 messages are with consumers"),
        (b'{error, "*** eval: no_leader"}', "no_leader"),
        (b"", "no answer"),
    ],
)
def test_a_store_that_is_not_read_whole_is_not_read(api, tmp_path, monkeypatch, said, complaint):
    address, say = api
    say(HERE)
    erl_call(tmp_path, monkeypatch, said)
    with pytest.raises(OSError, match=complaint):
        asyncio.run(management.Management().browse(address))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            "queue/led",
            "[notice] <0.1.0> queue 'q0' in vhost '/': candidate -> leader in term: 2 machine version: 2",
        ),
        ("node/down", "[info] <0.500.0> node a1@a1 down: connection_closed"),
        ("node/up", "[info] <0.500.0> node a1@a1 up"),
        ("broker/served", "[info] <0.866.0> started STOMP TCP listener on 127.0.0.1:60255"),
    ],
)
def test_lines_of_the_log_are_known(event, line):
    assert [name for name, known in EVENTS.items() if known.line.search(line)] == [event]


def left_behind(store):
    """Programs of Erlang that a run with this store started; other tests have theirs meanwhile."""
    found = []
    for process in psutil.process_iter():
        try:
            if {"beam.smp", "epmd", "erl_child_setup"} & {
                Path(word).name for word in process.cmdline()
            } and process.environ().get("HOME", "").startswith(f"{store}/"):
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.distribution("rabbitmq")
def test_a_killed_node_is_followed_by_others_and_nothing_is_left(tmp_path, capsys):
    words = ["--nemesis", "kill", "--target", "a1", "--rate", "50", "--time-limit", "10"]
    exit_status = cli.run([*WORDS, "--environment", "local", *words, "--store", str(tmp_path)])
    out = capsys.readouterr().out
    assert exit_status in (0, 1), out  # what a broker of others does is not for our tests to judge
    run = json.loads((tmp_path / "latest" / "run.json").read_text())
    assert run["versions"]["rabbitmq"] == distribution.find_distribution().version, run
    assert "a1     stopped" in out
    assert "could not be read" not in out
    assert left_behind(tmp_path) == []


async def stated(test, store):
    """What the row of each of these statements says of a real node."""
    await test.environment.deploy(test.system, test.spec, test.nodes, store)
    try:
        conforming = Conformance(test, lambda row: None)
        rows = [await conforming._row("starts", conforming._starts)]
        talk = conforming._talk("a1", iter(queues_of(test.spec)), iter(()))
        rows.append(await tried("browse", "", talk.browses))
        assert left_behind(store), "a node that runs is seen"
        rows.append(await conforming._row("stops", conforming._stops))
    finally:
        await test.environment.teardown()
    return [f"{row.what}: {row.state}, {row.seen}" for row in rows]


@pytest.mark.cluster
@pytest.mark.parametrize(
    "series",
    [
        pytest.param("", marks=pytest.mark.distribution("rabbitmq"), id="newest"),
        pytest.param("3", marks=[pytest.mark.distribution("rabbitmq", "3"), pytest.mark.in_turn]),
    ],
)
def test_a_node_starts_shows_its_store_and_stops(tmp_path, monkeypatch, series):
    """A message of its log has another form in 4.0 than in 3.10."""
    monkeypatch.setenv(distribution.HOME, needs.need_distribution("rabbitmq", series))
    assert asyncio.run(stated(compose(spec(pairs=1, queues=5)), tmp_path)) == [
        "starts: as said, a1 live",
        "browse: as said, 3 shown twice, 3 delivered after it",
        "stops: as said, a1 ended (0)",
    ]
    assert left_behind(tmp_path) == []


@pytest.mark.cluster
@pytest.mark.distribution("rabbitmq")
def test_a_node_that_is_not_there_is_said_by_erl_call():
    program = distribution.find_distribution().program("erl_call")
    with pytest.raises(OSError, match="failed to connect"):
        asyncio.run(erlang.evaluate(program, Address("127.0.0.1", 1), "SECRET", "done."))
