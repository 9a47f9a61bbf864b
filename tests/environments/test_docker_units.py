"""What of the docker environment can be proven without an engine.

Rules, hashes, labels, phrases, the agent's own parts.
"""

import ast
import asyncio
import contextlib
import dataclasses
import gzip
import ipaddress
import itertools
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import requests

from environments import payload
from environments.agent import AGENT_MODULES, firewall
from environments.agent.firewall import SlowTarget, disciplines, ruleset
from environments.agent.prober import DATAGRAMS, Prober, clock
from environments.board import FaultBoard
from environments.docker import base_image, clean, deployment, engine, environment, image, kernel
from environments.docker.container import Container
from environments.docker.deployment import _must_publish
from environments.docker.environment import DockerEnvironment
from environments.docker.network import host_address
from environments.labels import LEFT, judge
from environments.machines import probes
from environments.machines.deployment import Deployment
from harness.interface import InfrastructureError, Link, NodePlan, Provision, Runtime

ROOT = Path(__file__).parents[2]


# ---- rules


def rules(**hit):
    return [line.strip() for line in ruleset(hit).splitlines() if "saddr" in line]


def broken(under_test, **asked):
    board = FaultBoard([under_test])
    return [board.fault(primitive, (), (), wanted) for primitive, wanted in asked.items()]


@pytest.fixture
def tools(monkeypatch):
    """The commands that a firewall runs, each with what it is given."""
    commands = []

    def run(command, **options):
        commands.append((" ".join(command), options.get("input")))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(firewall.subprocess, "run", run)
    return commands


def test_no_fault_leaves_no_table():
    assert ruleset({}) == "table inet jepsen_run {}\ndelete table inet jepsen_run\n"


def test_a_cut_drops_every_protocol_of_the_source_only():
    assert rules(cut=["10.0.0.2"]) == ["ip saddr 10.0.0.2 counter drop"]


def test_a_reset_answers_tcp_and_drops_the_rest():
    assert rules(reset=["10.0.0.2"]) == [
        "ip saddr 10.0.0.2 meta l4proto tcp counter reject with tcp reset",
        "ip saddr 10.0.0.2 counter drop",
    ]


def test_a_stall_lets_handshakes_pass():
    found = rules(stall=["10.0.0.2"])
    assert found
    assert all("psh" in rule or "length" in rule or "udp" in rule for rule in found)


def test_some_or_all_datagrams_of_a_source_are_lost_and_no_connection_is_touched(tools):
    under_test = firewall.Firewall("eth0")
    lossy = [{"source": "10.0.0.2", "chance": 0.3}, {"source": "10.0.0.3", "chance": 1.0}]
    (loss,) = broken(under_test, **{"datagram-loss": lossy})
    under_test.apply([loss], loss)
    assert [line.strip() for line in tools[0][1].splitlines() if "saddr" in line] == [
        "ip saddr 10.0.0.2 meta l4proto udp numgen random mod 1000 < 300 counter drop",
        "ip saddr 10.0.0.3 meta l4proto udp counter drop",
    ]


def test_overlapping_cuts_are_one_rule_and_a_cut_beats_a_reset(tools):
    under_test = firewall.Firewall("eth0")
    one = broken(under_test, cut=["10.0.0.2"])
    other = broken(under_test, cut=["10.0.0.2"], reset=["10.0.0.2"])
    under_test.apply([*one, *other], other[0])
    both = [line.strip() for line in tools[0][1].splitlines() if "saddr" in line]
    assert both.count("ip saddr 10.0.0.2 counter drop") == 2
    assert both[0] == "ip saddr 10.0.0.2 counter drop"


def test_delays_of_overlapping_faults_add_up_and_the_lowest_rate_limits():
    slowed = [
        SlowTarget("10.0.0.2", 100.0, 10.0, 9000.0),
        SlowTarget("10.0.0.2", 50.0, rate_bytes_s=1000.0),
        SlowTarget("10.0.0.3", 5.0),
    ]
    commands = disciplines(slowed, "eth0")
    assert [" ".join(command) for command in commands] == [
        "qdisc add dev eth0 root handle 1: prio bands 3 priomap" + " 0" * 16,
        "qdisc add dev eth0 parent 1:2 handle 20: netem delay 155.000ms 5.000ms rate 8000bit limit 100000",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.2/32 flowid 1:2",
        "qdisc add dev eth0 parent 1:3 handle 30: netem delay 5.000ms limit 100000",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.3/32 flowid 1:3",
    ]


def test_more_slow_links_than_bands_are_refused_by_number():
    many = [SlowTarget(f"10.0.0.{n}", 1.0) for n in range(16)]
    with pytest.raises(ValueError, match="15 others, not 16"):
        disciplines(many, "eth0")


def test_slow_links_of_several_faults_are_slowed_together_and_heal_one_by_one(tools):
    under_test = firewall.Firewall("eth0")
    (one,), (other,) = (broken(under_test, slow=[{"target": f"10.0.0.{n}", "delay_ms": 5.0}]) for n in (2, 3))
    under_test.apply([one, other], other)
    assert sum("netem" in command for command, _ in tools) == 2
    tools.clear()
    under_test.apply([other], one)
    assert tools[0][0] == "tc qdisc del dev eth0 root"
    assert next(command for command, _ in tools if "match" in command).endswith("10.0.0.3/32 flowid 1:2")
    tools.clear()
    under_test.apply([], other)
    assert [command for command, _ in tools] == ["tc qdisc del dev eth0 root"]


def test_a_delay_that_could_not_be_taken_away_is_taken_away_next_time(monkeypatch):
    deleted, refused = [], ["busy"]

    def run(command, **_):
        if "del" in command:
            deleted.append(command)
            if refused:
                return subprocess.CompletedProcess(command, 1, "", refused.pop())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(firewall.subprocess, "run", run)
    under_test = firewall.Firewall("eth0")
    (slow,) = broken(under_test, slow=[{"target": "10.0.0.2", "delay_ms": 5.0}])
    under_test.apply([slow], slow)
    with pytest.raises(OSError, match="busy"):
        under_test.apply([], slow)
    under_test.apply([], slow)
    assert len(deleted) == 2


def test_rules_that_may_have_been_loaded_by_a_tool_that_was_ended_are_taken_away(tools, monkeypatch):
    under_test = firewall.Firewall("eth0")
    (cut,) = broken(under_test, cut=["10.0.0.2"])
    run = firewall.subprocess.run

    def late(command, **options):
        run(command, **options)
        raise subprocess.TimeoutExpired(command, 10)

    with monkeypatch.context() as slow, pytest.raises(OSError, match="did not end"):
        slow.setattr(firewall.subprocess, "run", late)
        under_test.apply([cut], cut)
    under_test.apply([], cut)
    assert tools[-1] == ("nft -f -", ruleset({}))


def test_silent_connections_are_ended_once_when_a_reset_begins(tools):
    under_test = firewall.Firewall("eth0")
    (reset,), (cut,) = broken(under_test, reset=["10.0.0.2"]), broken(under_test, cut=["10.0.0.3"])
    under_test.apply([reset], reset)
    under_test.apply([reset, cut], cut)
    under_test.apply([], cut)
    under_test.apply([reset], reset)
    kill = "ss --kill --tcp dst 10.0.0.2"
    assert [command for command, _ in tools] == [
        "nft -f -",
        kill,
        "nft -f -",
        "nft -f -",
        "nft -f -",
        kill,
    ]


def test_a_refused_rule_set_names_the_tools_own_words(monkeypatch):
    def refuse(command, **_):
        return subprocess.CompletedProcess(
            command, 1, "", "Error: Could not process rule:\n Operation not supported\n"
        )

    monkeypatch.setattr(firewall.subprocess, "run", refuse)
    under_test = firewall.Firewall("eth0")
    (cut,) = broken(under_test, cut=["10.0.0.2"])
    with pytest.raises(OSError, match="nft -f -: Error: Could not process rule: Operation not supported"):
        under_test.apply([cut], cut)


def test_a_kernel_without_netem_is_told_by_its_name(monkeypatch):
    def run(command, **_):
        bad = command[0] == "tc"
        return subprocess.CompletedProcess(
            command, int(bad), "", "Error: Specified qdisc kind is unknown.\n" if bad else ""
        )

    monkeypatch.setattr(firewall.subprocess, "run", run)
    assert firewall.missing() == {"cut": "", "datagram-loss": "", "slow": "no sch_netem in this kernel"}


def test_java_for_brokers_of_others_comes_from_a_newer_debian_than_our_own_image(monkeypatch):
    """Open MQ 6.7 needs Java 21, and Debian 12 has 17."""
    made = []

    def run(command, **_):
        made.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no network")

    monkeypatch.setattr(base_image, "_pull", lambda *_: "no registry")
    monkeypatch.setattr(base_image, "exists", lambda *_: False)
    monkeypatch.setattr(base_image.shutil, "which", lambda _: "/usr/bin/mmdebstrap")
    monkeypatch.setattr(base_image.subprocess, "run", run)
    java = Provision(runtimes=(Runtime(program="java", package="default-jre-headless"),))
    for make in (
        lambda: image.system_image(None, lambda _: None, "openmq", java),
        lambda: image.node_image(None, lambda _: None),
    ):
        with pytest.raises(InfrastructureError, match="mmdebstrap failed: no network"):
            make()
    assert [command[-2] for command in made] == ["trixie", "bookworm"]
    assert any("default-jre-headless" in word for word in made[0])


def test_two_that_need_one_image_at_the_same_time_make_it_once(monkeypatch):
    made, images = [], set()

    class Engine:
        """One that keeps the tags of what it imports."""

        @property
        def api(self):
            return self

        def import_image_from_file(self, _, *, repository, tag, **__):
            images.add(f"{repository}:{tag}")

    def run(command, **_):
        made.append(command)
        time.sleep(0.2)  # long enough for the other to begin
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(base_image, "_pull", lambda *_: "no registry")
    monkeypatch.setattr(base_image, "exists", lambda _, tag: tag in images)
    monkeypatch.setattr(base_image.shutil, "which", lambda _: "/usr/bin/mmdebstrap")
    monkeypatch.setattr(base_image.subprocess, "run", run)
    with ThreadPoolExecutor() as two:
        tags = [*two.map(lambda _: base_image.base_image(Engine(), lambda _: None), range(2))]
    assert {*tags} == images
    assert len(made) == 1


def test_further_packages_are_added_to_a_copy_of_the_image_that_was_made_here(monkeypatch):
    """Which takes a quarter of the time that a whole Debian takes."""
    made, removed = [], []

    class Engine:
        """With one image, whose files are two letters."""

        @property
        def containers(self):
            return self

        def create(self, image, command, labels):
            assert (image, command) == (ours, ["true"])
            assert engine.harness_of(labels).pid == os.getpid()
            return self

        def export(self):
            return iter([b"a", b"b"])

        def remove(self):
            removed.append(ours)

    def run(command, *, cwd, **_):
        made.append(command)
        assert (cwd / "start.tar").read_bytes() == b"ab"
        return subprocess.CompletedProcess(command, 1, "", "no network")

    ours = base_image._tag("debian", base_image.DEBIAN, *base_image.PYTHON_PACKAGES)
    monkeypatch.setattr(base_image, "_pull", lambda *_: "no registry")
    monkeypatch.setattr(base_image, "exists", lambda _, tag: tag == ours)
    monkeypatch.setattr(base_image.shutil, "which", lambda _: "/usr/bin/mmdebstrap")
    monkeypatch.setattr(base_image.subprocess, "run", run)
    with pytest.raises(InfrastructureError, match="mmdebstrap failed: no network"):
        base_image.with_packages(Engine(), lambda _: None, "ssh", ["openssh-server"], ["/usr/lib/large/*"])
    ((_, variant, unpack, include, remove, release, _),) = made
    assert (variant, include, release) == ("--variant=custom", "--include=openssh-server", "bookworm")
    assert re.search(r"tar .*/start\.tar", unpack)
    assert "./usr/lib/large/*" in remove
    assert removed == [ours]


@pytest.mark.parametrize(
    ("config", "slow"),
    [
        ("CONFIG_NET_SCH_NETEM=m\n", ""),
        ("# CONFIG_NET_SCH_NETEM is not set\n", "no sch_netem in this kernel"),
        (None, ""),  # a kernel that does not tell may be able to
    ],
)
def test_a_kernel_that_tells_is_believed_before_there_are_containers(tmp_path, config, slow):
    if config is not None:
        common = "".join(
            f"CONFIG_{name}=y\n" for name in ("NF_TABLES", "NF_TABLES_INET", "NFT_REJECT", "NET_SCH_PRIO")
        )
        (tmp_path / "proc").mkdir()
        text = common + "CONFIG_NET_CLS_U32=m\n" + config
        (tmp_path / "proc" / "config.gz").write_bytes(gzip.compress(text.encode()))
    loss = "" if config is None else "no nft_numgen in this kernel"
    assert kernel.missing(tmp_path) == {"cut": "", "datagram-loss": loss, "slow": slow}


# ---- images


def test_the_requirements_are_what_the_broker_imports():
    names = {"google_crc32c": "google-crc32c"}
    found = set()
    for path in (path for package in payload.BROKER_PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    foreign = {
        names.get(name, name) for name in found - set(sys.stdlib_module_names) - {*payload.BROKER_PACKAGES}
    }
    assert foreign <= set(payload.BROKER_REQUIREMENTS), "add to BROKER_REQUIREMENTS what the broker needs"


def test_the_agent_runs_on_the_copied_modules_and_the_standard_library_alone(tmp_path):
    for path, content in payload.sources(ROOT).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    command = [
        sys.executable,
        "-S",
        "-c",
        "import environments.agent.agent, sys; print(sorted(sys.modules))",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'docker'" not in done.stdout
    assert "'harness'" not in done.stdout


def test_sources_have_no_compiled_files_and_a_changed_byte_changes_the_hash(tmp_path):
    for path in AGENT_MODULES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    cache = tmp_path / "broker" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "daemon.cpython-311.pyc").write_bytes(b"compiled")
    (tmp_path / "broker" / "daemon.py").write_text("x = 1\n")
    first = payload.sources(tmp_path)
    assert [path for path in first if path.startswith("broker")] == ["broker/daemon.py"]
    assert payload.content_hash(first) == payload.content_hash(dict(reversed(first.items())))
    (tmp_path / "broker" / "daemon.py").write_text("x = 2\n")
    assert payload.content_hash(payload.sources(tmp_path)) != payload.content_hash(first)


def test_bytes_do_not_move_between_files_without_changing_the_hash():
    assert payload.content_hash({"a": b"xy", "b": b""}) != payload.content_hash({"a": b"x", "b": b"y"})


# ---- engine and labels


def test_labels_lead_back_to_a_living_harness():
    harness = engine.harness_of(engine.labels("run-1"))
    assert harness is not None
    assert harness.pid == os.getpid()
    assert judge(harness) == "alive"


def test_a_harness_that_has_ended_is_dead():
    found = engine.labels("run-1")
    with subprocess.Popen([sys.executable, "-c", "pass"]) as other:
        other.wait()
    found[engine.HARNESS_LABEL] = f"{other.pid}:1"
    harness = engine.harness_of(found)
    assert harness is not None
    assert judge(harness) == "dead"


@pytest.mark.parametrize("label", ["", "x:1", "12"])
def test_labels_that_name_no_harness(label):
    assert engine.harness_of({engine.HARNESS_LABEL: label}) is None


def test_a_named_engine_that_does_not_run_is_told_by_its_name(monkeypatch, tmp_path):
    where = f"unix://{tmp_path}/none.sock"
    monkeypatch.setenv("DOCKER_HOST", where)
    answers, reason = engine.engine_answers()
    assert not answers
    assert (
        reason
        == f"no Docker engine answers at {where}: it is not running; unset DOCKER_HOST, or start it there"
    )
    with pytest.raises(InfrastructureError, match="unset DOCKER_HOST"):
        engine.connect()


@pytest.mark.parametrize(
    ("error", "mend"),
    [
        (
            OSError("('Connection aborted.', FileNotFoundError(2, 'No such file'))"),
            "sudo systemctl start docker",
        ),
        (OSError("('Connection aborted.', PermissionError(13, 'Permission denied'))"), "usermod -aG docker"),
        (TimeoutError("timed out"), "systemctl restart docker"),
    ],
)
def test_what_mends_an_engine_that_does_not_answer(monkeypatch, error, mend):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert mend in engine._cannot_reach(error)


def test_an_engine_of_another_machine_is_refused():
    class Client:
        class api:  # noqa: N801
            base_url = "http://10.1.2.3:2375"

    with pytest.raises(InfrastructureError, match="on another machine"):
        _must_publish(Client)


def test_no_port_of_this_host_is_given_twice(monkeypatch):
    held = set()

    @contextlib.contextmanager
    def reserve():
        port = next(number for number in itertools.count(1000) if number not in held)
        held.add(port)
        yield SimpleNamespace(getsockname=lambda: ("127.0.0.1", port))
        held.remove(port)

    monkeypatch.setattr(deployment, "reserve_port", reserve)
    network = SimpleNamespace(name="n"), ipaddress.IPv4Network("172.18.0.0/16")
    networks = []
    monkeypatch.setattr(
        deployment, "create_network", lambda *_, internal: networks.append(internal) or network
    )
    made = Deployment("run", lambda: None)
    plans = [NodePlan(name=name, pair="a", configured="master", ports={"stomp": 1}) for name in ("a1", "a2")]
    deployment.make_known(None, made, plans, "image", print, services=(), options={}, publish=True, homes={})
    given = [port for node in made.nodes.values() for port in node.machine.published.values()]
    assert len(given) == len(set(given)) == 4
    for broadcasts in (False, True):
        some = [msgspec.structs.replace(plans[0], broadcasts=broadcasts)]
        made = Deployment("run", lambda: None)
        deployment.make_known(
            None, made, some, "image", print, services=(), options={}, publish=False, homes={}
        )
    assert networks == [False, True, False], "multicasts do not cross an internal network"


def test_brokers_that_find_each_other_by_files_are_refused():
    node = NodePlan(name="a1", pair="a", configured="standalone", ports={}, finds_by_files=True)
    refusal = DockerEnvironment().refuses([node])
    assert refusal.startswith("brokers cannot find each other by files, because containers share no dir")


def things(**containers):
    """An engine with containers: name -> whether they can be removed."""

    def thing(name, removable):
        def remove(**_):
            if not removable:
                raise OSError("device or resource busy")

        return SimpleNamespace(name=name, attrs={"Labels": {engine.RUN_LABEL: f"run-{name}"}}, remove=remove)

    def listed(*, filters, **_):
        wanted = filters["label"].partition("=")[2]
        return [thing(*one) for one in containers.items() if wanted in ("", f"run-{one[0]}")]

    none = SimpleNamespace(list=lambda **_: [])
    return SimpleNamespace(
        containers=SimpleNamespace(list=listed), networks=none, volumes=none, close=lambda: None
    )


def test_one_run_that_cannot_be_removed_keeps_no_other(monkeypatch):
    monkeypatch.setattr(clean, "connect", lambda: things(a=True, b=False, c=True))
    first, stays, last = clean.remove()
    assert (first, last) == ("docker run run-a: removed container a", "docker run run-c: removed container c")
    assert stays.startswith(f"{LEFT}docker run run-b: the engine did not remove container b (device or ")


def test_what_was_not_removed_is_tried_again_by_the_next_teardown():
    ending = DockerEnvironment()
    ending.run, ending._client = "run-b", things(b=False)
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="did not remove container b"):
            ending._remove()


def silent(*_, **__):
    raise requests.exceptions.ReadTimeout("Read timed out. (read timeout=60)")


def test_an_engine_that_falls_silent_is_the_machines_fault(monkeypatch):
    monkeypatch.setattr(environment, "connect", lambda: SimpleNamespace(images=SimpleNamespace(get=silent)))
    deploying = DockerEnvironment()
    deploying._provision = None
    with pytest.raises(InfrastructureError, match="Read timed out"):
        asyncio.run(deploying._prepare([]))
    one = Container(**dict.fromkeys(field.name for field in dataclasses.fields(Container) if field.init))
    one._container = SimpleNamespace(get_archive=silent)
    with pytest.raises(InfrastructureError, match="could not read the files of the container of None"):
        one.fetch("/logs")


def test_an_old_image_keeps_the_names_that_others_gave_it():
    removed = []
    found = [
        SimpleNamespace(attrs={"Created": str(number)}, tags=[f"jepsen-run/node:{number}", f"mine:{number}"])
        for number in range(8)
    ]
    images = SimpleNamespace(list=lambda name: found, remove=removed.append)
    image._forget_old(SimpleNamespace(images=images), "jepsen-run/node")
    assert sorted(removed) == ["jepsen-run/node:0", "jepsen-run/node:1", "jepsen-run/node:2"]


def test_node_addresses_are_fixed_by_their_number():
    subnet = ipaddress.IPv4Network("172.18.0.0/16")
    assert [host_address(subnet, number) for number in (0, 5)] == ["172.18.0.10", "172.18.0.15"]


# ---- phrases


@pytest.mark.parametrize(
    ("connection", "delay_ms", "count", "expected"),
    [
        ("open", 0.05, 5, "open"),
        ("lost", 0.05, 5, "open"),  # only the way back is cut
        ("open", 0.05, 2, "lossy 3 of 5"),
        ("open", 120.4, 2, "slow 120 ms"),  # the others may still come
        ("open", None, 0, "lost"),
        ("lost", None, 0, "lost"),
        ("silent", None, 0, "lost"),
        ("refused", None, 0, "refused"),
    ],
)
def test_one_direction_is_told_from_the_other(connection, delay_ms, count, expected):
    assert probes.phrase(connection, delay_ms, count) == expected


class OtherMachine:
    """A node whose monotonic clock is another, and whose link to the next delays."""

    def __init__(self, ahead_ms, delay_ms=0.0):
        self.address = ""
        self.ahead_ms, self.delay_ms = ahead_ms, delay_ms

    async def ask(self, operation, **asked):
        if operation == "now":
            await asyncio.sleep(0.001)
            return {"clock": "another", "ms": time.monotonic_ns() / 1e6 + self.ahead_ms}
        if operation == "probe":
            return {target: {"connection": "open", "nonce": target} for target in asked["targets"]}
        return dict.fromkeys(asked["nonces"], (self.delay_ms, DATAGRAMS))


@pytest.mark.parametrize(("until_ms", "took_ms"), [(-5e7, 0.3), (5e7, 0.3), (5e7, 200.0)])
def test_machines_whose_clocks_differ_are_not_slow_by_that(until_ms, took_ms):
    there, here = OtherMachine(until_ms, until_ms + took_ms), OtherMachine(0.0)
    seen = asyncio.run(probes.probe({"a1": here, "a2": there}, [Link("a1", "a2")]))
    assert seen["a1->a2"].partition(" ")[0] == ("slow" if took_ms > 100 else "open")


@pytest.mark.parametrize(("delays_ms", "expected"), [([22.0, 0.1], "open"), ([22.0] * 3, "slow 22 ms")])
def test_a_machine_that_was_busy_once_is_no_slow_link(delays_ms, expected):
    class Busy(OtherMachine):
        async def ask(self, operation, **asked):
            self.delay_ms = delays_ms.pop(0) if operation == "arrived" else 0.0
            return (
                {"clock": clock(), "ms": 0.0} if operation == "now" else await super().ask(operation, **asked)
            )

    seen = asyncio.run(probes.probe({"a1": Busy(0.0), "a2": Busy(0.0)}, [Link("a1", "a2")]))
    assert (seen, delays_ms) == ({"a1->a2": expected}, [])


class Narrow(asyncio.DatagramProtocol):
    """Passes on what comes, no faster than so many bytes a second."""

    def __init__(self, target, rate_bytes_s):
        self.target, self.rate_bytes_s, self.free_s = target, rate_bytes_s, 0.0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        loop = asyncio.get_running_loop()
        self.free_s = max(self.free_s, loop.time()) + len(data) / self.rate_bytes_s
        loop.call_at(self.free_s, self.transport.sendto, data, self.target)


def test_a_link_with_a_limited_rate_is_slow():
    async def test():
        loop = asyncio.get_running_loop()
        source, target = Prober(), Prober()
        await source.listen("127.0.0.1", 0)
        await target.listen("127.0.0.1", 0)
        to = target._datagrams.get_extra_info("sockname")
        relay, _ = await loop.create_datagram_endpoint(
            lambda: Narrow(to, 200_000.0), local_addr=("127.0.0.1", 0)
        )
        _, port = relay.get_extra_info("sockname")
        found = await source.probe({"a2": "127.0.0.1"}, 0.8, port)
        await asyncio.sleep(0.1)
        ((delay_ms, count),) = target.arrived([found["a2"]["nonce"]]).values()
        assert probes.phrase(found["a2"]["connection"], delay_ms, count).startswith("slow ")

    asyncio.run(test())


def test_no_host_name_of_a_registry_is_in_the_recipes():
    for name in ("base_image.py", "image.py"):
        assert not re.search(r"https?://|\.io/", (ROOT / "environments/docker" / name).read_text())
