"""Runs on machines over ssh: what is left when the harness, a connection or a machine fails."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import beds
import pytest
from docker_deployed import SPEC, SYSTEM, begin, deployed, observe
from docker_echo import until

from environments.labels import LEFT
from environments.ssh import clean
from environments.ssh import host as host_module
from environments.ssh.environment import SshEnvironment
from harness.interface import InfrastructureError, Link, UsageError

pytestmark = pytest.mark.ssh

ABANDONED = """
import asyncio, sys
sys.path[:0] = {path!r}
from docker_deployed import ROOT, SPEC, SYSTEM, begin
from environments.ssh.environment import SshEnvironment
from harness.interface import Link

async def main():
    environment = SshEnvironment(({hosts!r},), lease_s=2.0, orphan_s={orphan_s})
    await environment.deploy(SYSTEM, SPEC, SYSTEM.plan(SPEC, ("a1", "a2")), ROOT)
    for node in ("a1", "a2"):
        await begin(environment, node)
    leases = [
        await environment.inject("cut", links=[Link("a1", "a2")]),
        await environment.inject("pause", nodes=["a1"]),
    ]
    print("broken", flush=True)
    while True:
        for lease in leases:
            await environment.renew(lease)
        await asyncio.sleep(0.3)

asyncio.run(main())
"""


@pytest.fixture
def bed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with beds.namespaces(2, tmp_path / "bed") as bed:
        yield bed


def rules(machine):
    return machine.do("nft", "list", "ruleset").count("drop")


def programs(machine):
    """Of ours, that run there."""
    lines = machine.do("ps", "-ww", "-eo", "stat=,args=").splitlines()
    return [line.split()[0] for line in lines if "environments.agent" in line or "program/echo.py" in line]


def left(machine):
    return (
        machine.do("ls", "-A", beds.DIRECTORY.rpartition("/")[0]).split()
        + machine.do("nft", "list", "tables").split()
    )


@contextlib.contextmanager
def killed_harness(bed, orphan_s=600):
    """Its faults are in force, then it is killed."""
    path = [str(Path(__file__).parents[3]), str(Path(__file__).parents[1])]
    script = ABANDONED.format(path=path, hosts=str(bed.hosts), orphan_s=orphan_s)
    harness = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert harness.stdout.readline() == "broken\n"
        assert rules(bed.machines[1])
        assert any("T" in state for state in programs(bed.machines[0]))
        yield harness.pid
    finally:
        harness.kill()
        harness.wait()
        harness.stdout.close()


async def what(question, *arguments):
    return question(*arguments)


def test_the_machines_heal_without_a_killed_harness_and_clean_leaves_nothing_on_them(bed):
    with killed_harness(bed) as pid:
        assert [line for line in clean.leftovers() if "left alone" in line and str(pid) in line]
        assert [line for line in clean.remove() if "left alone" in line]  # it runs
        os.kill(pid, signal.SIGKILL)
    first, second = bed.machines
    asyncio.run(until(lambda: what(rules, second), 0))
    asyncio.run(until(lambda: what(lambda: [s for s in programs(first) if "T" in s]), []))
    assert len(programs(first)) == len(programs(second)) == 2, "agents and brokers go on"
    assert [line for line in clean.leftovers() if "a1 on " in line and "a2 on " in line]
    (line,) = clean.remove()
    assert "a1 from" in line
    assert "a2 from" in line
    for machine in bed.machines:
        assert programs(machine) == []
        assert left(machine) == []
    assert clean.leftovers() == clean.remove() == []


def test_agents_that_nobody_asks_any_more_end_their_brokers_and_themselves(bed):
    with killed_harness(bed, orphan_s=3):
        pass
    for machine in bed.machines:
        asyncio.run(until(lambda machine=machine: what(programs, machine), []))
        assert rules(machine) == 0


def test_nothing_is_put_anywhere_where_one_machine_is_not_fit(bed):
    text = bed.hosts.read_text().rpartition("\n")[0]
    for wrong, told in (
        ('python = "/nowhere/python3"', "cannot be run there"),
        ('inner = "10.219.255.254"', "no network device there has the address"),
    ):
        bed.hosts.write_text(f"{text}\n{wrong}\n")
        with pytest.raises(InfrastructureError, match=f"host {bed.machines[1].address}.*{told}") as caught:
            asyncio.run(deployed(hosts=(str(bed.hosts),)))
        assert "\n" not in str(caught.value)
        assert clean.leftovers() == []
        assert [left(machine) for machine in bed.machines] == [[], []]


def test_a_lost_machine_is_told_in_one_line_and_what_is_left_on_it_is_removed_later(bed, monkeypatch):
    """It takes 40 s: a silent machine is given up after ten, and asked more than once."""

    async def lose():
        environment = await deployed(hosts=(str(bed.hosts),))
        for node in ("a1", "a2"):
            await begin(environment, node)
        bed.machines[1].cut()
        with pytest.raises(InfrastructureError, match=f"host {bed.machines[1].address}") as caught:
            while True:
                await environment.inject("pause", nodes=["a2"])
        assert "\n" not in str(caught.value)
        with pytest.raises(InfrastructureError, match="`jepsen-run clean` tries again"):
            await environment.teardown()

    asyncio.run(lose())
    assert left(bed.machines[0]) != []  # our program, for the next run
    assert programs(bed.machines[0]) == []
    monkeypatch.setattr(host_module, "CONNECT_TIMEOUT_S", 1.0)
    _, silent, again = clean.remove(force=True)  # a line for each machine, and one for what to do
    lost = f"host {bed.machines[1].address}: no ssh server can be reached on port 22 (no answer within 1 s)"
    assert silent.startswith(f"{LEFT}ssh run ")
    assert silent.endswith(f": {lost}")
    assert "`jepsen-run clean` tries again, until " in again
    bed.machines[1].mend()
    clean.remove(force=True)
    assert [left(machine) for machine in bed.machines] == [[], []]


def test_a_machine_that_another_run_uses_is_not_touched(bed):
    async def two():
        first = await deployed(hosts=(str(bed.hosts),))
        await begin(first, "a1")
        lease = await first.inject("cut", links=[Link("a1", "a2")])
        with pytest.raises(InfrastructureError, match="belongs to another deployment"):
            await deployed(hosts=(str(bed.hosts),))
        assert await observe(first, "a1->a2") == ("lost",)
        await first.heal(lease)
        assert await observe(first, "a1->a2") == ("open",)
        await first.teardown()

    asyncio.run(two())


def test_who_names_too_few_machines_or_none_is_told_so(bed):
    plan = SYSTEM.plan(SPEC, ("a1", "a2", "b1"))
    assert "--hosts" in SshEnvironment().refuses(plan)
    assert "each of the 3 brokers" in SshEnvironment((str(bed.hosts),)).refuses(plan)
    with pytest.raises(UsageError, match="cannot be read"):
        SshEnvironment((str(bed.directory / "none.toml"),)).refuses(plan)


def test_a_machine_whose_owner_allows_it_has_its_clock_set_and_set_right_again(bed):
    """The clock of this very machine, by a tenth of a second: namespaces have none of their own."""
    assert "may not be set" in SshEnvironment((str(bed.hosts),)).supports()["clock-skew"]
    bed.hosts.write_text(bed.hosts.read_text().replace("[[host]]", "[[host]]\nclock = true"))

    async def wrong():
        environment = await deployed(hosts=(str(bed.hosts),))
        assert environment.supports()["clock-skew"] == ""

        async def seen():
            return (await environment.probe(nodes=["a1/clock"])).observed["a1/clock"]

        assert await seen() == "true"
        lease = await environment.inject("clock-skew", nodes=["a1"], options={"skew_ms": 100})
        assert 60 < int((await seen()).removeprefix("skewed ").removesuffix(" ms")) < 140
        await environment.heal(lease)
        assert await seen() == "true"
        options = {"step_ms": 100, "period_ms": 100}
        lease = await environment.inject("clock-strobe", nodes=["a1"], options=options)
        assert "strobing" in await seen()
        await environment.heal(lease)
        assert await seen() == "true"
        # and by `clean`, where the agent was killed
        before = time.time() - time.monotonic()
        await environment.inject("clock-skew", nodes=["a1"], options={"skew_ms": 100})
        bed.machines[0].do("pkill", "-9", "-f", "environments.agent.agent")
        with contextlib.suppress(InfrastructureError):
            await environment.teardown()
        clean.remove(force=True)
        assert abs(time.time() - time.monotonic() - before) < 0.04

    asyncio.run(wrong())
