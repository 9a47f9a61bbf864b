"""What of the docker environment can be proven without an engine.

Rules, hashes, labels, phrases, the agent's own parts.
"""

import ast
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from environments import payload
from environments.agent import AGENT_MODULES, firewall
from environments.agent.firewall import SlowTarget, disciplines, ruleset
from environments.board import FaultBoard
from environments.docker import engine, kernel
from environments.docker.deployment import _must_publish
from environments.docker.network import host_address
from environments.labels import judge
from environments.machines import probes
from harness.interface import InfrastructureError

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
    assert firewall.missing() == {"cut": "", "slow": "no sch_netem in this kernel"}


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
    assert kernel.missing(tmp_path) == {"cut": "", "slow": slow}


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


def test_node_addresses_are_fixed_by_their_number():
    import ipaddress

    subnet = ipaddress.IPv4Network("172.18.0.0/16")
    assert [host_address(subnet, number) for number in (0, 5)] == ["172.18.0.10", "172.18.0.15"]


# ---- phrases


@pytest.mark.parametrize(
    ("connection", "delay_ms", "expected"),
    [
        ("open", 0.05, "open"),
        ("lost", 0.05, "open"),  # only the way back is cut
        ("open", 120.4, "slow 120 ms"),
        ("lost", None, "lost"),
        ("silent", None, "lost"),
        ("refused", None, "refused"),
    ],
)
def test_one_direction_is_told_from_the_other(connection, delay_ms, expected):
    assert probes.phrase(connection, delay_ms) == expected


def test_no_host_name_of_a_registry_is_in_the_recipes():
    for name in ("base_image.py", "image.py"):
        assert not re.search(r"https?://|\.io/", (ROOT / "environments/docker" / name).read_text())
