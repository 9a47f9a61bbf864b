"""An attached cluster: what its file may say, and hooks that are undone whatever happens."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from environments.attached import cluster, hooks, records
from environments.attached.environment import AttachedEnvironment
from environments.labels import identify
from harness.interface import Address, InfrastructureError, UsageError

NODE = '[[node]]\nname = "a1"\nstomp = "127.0.0.1:1"\n'
HOOK = '[[hook]]\nname = "{}"\nbegin = "{}"\nend = "{}"\nprobe = "{}"\n'


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def described(tmp_path, text):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return cluster.load(path)


def flags(tmp_path, *names, **more):
    """A cluster whose hooks make a file for each node, and look for it."""
    text = NODE + NODE.replace("a1", "b1")
    for name in names:
        file = f"{tmp_path}/{name}-{{node}}"
        text += HOOK.format(name, f"echo {{host}}:{{port}} > {file}", f"rm {file}", f"test -e {file}")
        text += "".join(f"{key} = {value}\n" for key, value in more.items())
    return described(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no [[node]]"),
        ("[[node]", "is not TOML"),
        (NODE.replace("127.0.0.1:1", "127.0.0.1"), '"127.0.0.1" is no address: expected host:port'),
        (NODE.replace("127.0.0.1:1", "h:70000"), "is no address"),
        (NODE.replace("a1", "A 1"), 'node "A 1": a name consists of small letters'),
        (NODE + NODE, 'node "a1" is listed twice'),
        (NODE.replace("stomp", "stmop"), '[[node]] 1: unknown key "stmop": did you mean "stomp"?'),
        ("polcy = 1\n" + NODE, 'unknown key "polcy": did you mean "policy"?'),
        (
            NODE + HOOK.format("kill", "a", "b", "c").replace("probe", "prob"),
            '[[hook]] 1: unknown key "prob"',
        ),
        (NODE + "[[hook]]\nname = 'kill'\nbegin = 'a'\nend = 'b'\n", "missing required field probe"),
        (NODE + HOOK.format("kill", "a", "b", "c") + "patience-s = 0", "[[hook]] 1: "),
        (NODE + "[roles]\ncommand = 'a'\nurl = 'b'", '[roles] has either "command" or "url"'),
        (NODE + "[roles]\ncommand = 'a'\nwords = {'(' = 'live'}", "is no pattern"),
        ("queue-prefix = ''\n" + NODE, '"queue-prefix" is ""'),
        ("leftovers = 'eat'\n" + NODE, '"leftovers": invalid enum value'),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line(tmp_path, text, complaint):
    with pytest.raises(UsageError) as caught:
        described(tmp_path, text)
    assert complaint.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_secret_stays_out_of_what_is_stored(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("hush\n")
    found = described(tmp_path, 'passcode-file = "secret"\n' + NODE)
    assert cluster.passcode(found) == "hush"
    assert "hush" not in msgspec.json.encode(found).decode()
    named = described(tmp_path, 'passcode-env = "HUSH"\n' + NODE)
    with pytest.raises(UsageError, match="the environment variable HUSH is not set"):
        cluster.passcode(named)
    monkeypatch.setenv("HUSH", "hush")
    assert cluster.passcode(named) == "hush"


def test_it_can_what_there_are_hooks_for(tmp_path):
    can = AttachedEnvironment(flags(tmp_path, "kill")).supports()
    assert can["kill"] == ""
    assert "has no [[hook]] pause" in can["pause"]
    assert "has no [[hook]] of another name" in can["hook"]
    assert "never stops or wipes" in can["stop"]
    assert "cannot touch the links" in can["cut"]
    assert AttachedEnvironment(flags(tmp_path, "fill")).supports()["hook"] == ""


def deployed(tmp_path, found, body):
    """Run ``body`` with an environment that has its agent."""

    async def main():
        environment = AttachedEnvironment(found)
        await environment.deploy(None, None, (), tmp_path)
        try:
            return await body(environment)
        finally:
            await environment.teardown()

    return asyncio.run(main())


def test_a_kill_is_begun_seen_and_undone(tmp_path):
    async def body(environment):
        assert environment.resolve("zone1", "a1", "stomp") == Address("127.0.0.1", 1)
        await environment.start("a1")  # nothing of ours is in force: nothing is done
        await environment.kill("a1")
        assert (tmp_path / "kill-a1").read_text() == "127.0.0.1:1\n"
        assert dict((await environment.probe(nodes=["a1", "b1"])).observed) == {"a1": "gone", "b1": "running"}
        assert not await environment.running("a1")
        await environment.start("a1")
        assert not (tmp_path / "kill-a1").exists()
        assert await environment.running("a1")
        assert (await environment.probe(nodes=["a1"])).observed == {"a1": "running"}

    deployed(tmp_path, flags(tmp_path, "kill"), body)


def test_hooks_of_other_names_come_in_turn_and_overlap(tmp_path):
    async def body(environment):
        first = await environment.inject("hook", nodes=["a1"])
        second = await environment.inject("hook", nodes=["a1"])
        third = await environment.inject("hook", nodes=["a1"], options={"name": "fill"})
        assert {path.name for path in tmp_path.glob("*-a1")} == {"fill-a1", "slow-a1"}
        assert (await environment.probe(nodes=["a1/hook"])).observed == {"a1/hook": "in force (fill)"}
        await environment.heal(first)
        assert (tmp_path / "fill-a1").exists(), "another fault wants it"
        await environment.heal(third)
        await environment.heal(second)
        assert (await environment.probe(nodes=["a1/hook"])).observed == {"a1/hook": "over"}
        with pytest.raises(UsageError, match='no hook "fil"; there are fill, slow'):
            await environment.inject("hook", nodes=["a1"], options={"name": "fil"})

    deployed(tmp_path, flags(tmp_path, "fill", "slow"), body)


def test_one_that_fails_is_told_and_undone(tmp_path):
    found = described(
        tmp_path, NODE + HOOK.format("kill", f"touch {tmp_path}/half; false", f"rm {tmp_path}/half", "true")
    )

    async def body(environment):
        with pytest.raises(InfrastructureError, match="hook kill of a1: .* failed"):
            await environment.kill("a1")
        assert not (tmp_path / "half").exists()
        assert await environment.running("a1")

    deployed(tmp_path, found, body)


@pytest.mark.parametrize("slow", ["begin", "end"])
def test_who_is_interrupted_during_a_command_lets_it_end_and_undoes_it_once(tmp_path, slow):
    """As by Ctrl-C: the request is given up, and then the environment is taken down."""
    log = tmp_path / "log"
    words = {name: f"echo {name}+ >> {log}; true; echo {name}- >> {log}" for name in ("begin", "end")}
    words[slow] = words[slow].replace("true", "sleep 1")
    found = described(tmp_path, NODE + HOOK.format("kill", words["begin"], words["end"], "true"))

    async def body(environment):
        if slow == "end":
            await environment.kill("a1")
        asked = asyncio.create_task(environment.kill("a1") if slow == "begin" else environment.start("a1"))
        while f"{slow}+" not in (log.read_text() if log.exists() else ""):
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    deployed(tmp_path, found, body)
    assert log.read_text().split() == ["begin+", "begin-", "end+", "end-"]
    assert list(records._root().glob("*.json")) == []


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    assert asyncio.run(hooks.run("sleep 600 & echo $! > " + f"{tmp_path}/pid; wait", 0.5)) == (None, "")
    while identify(int((tmp_path / "pid").read_text())) is not None:
        time.sleep(0.05)


def test_a_daemon_that_it_starts_is_not_waited_for():
    began = time.monotonic()
    assert asyncio.run(hooks.run("sleep 30 & echo started $!", 25.0))[0] == 0
    assert time.monotonic() - began < 25


def test_its_time_is_over_though_it_is_renewed(tmp_path):
    async def body(environment):
        await environment.kill("a1")
        while (tmp_path / "kill-a1").exists():
            await asyncio.sleep(0.05)
        await environment.start("a1")

    deployed(tmp_path, flags(tmp_path, "kill", **{"limit-s": 0.3}), body)


def test_nothing_of_the_cluster_is_ours(tmp_path):
    async def body(environment):
        for refused in (
            environment.destroy_data("a1"),
            environment.copy_data("a1", "a2"),
            environment.edit_data("a1", dict),
            environment.reconfigure("a1", "slave"),
        ):
            with pytest.raises(UsageError, match="never stops or wipes"):
                await refused
        await environment.collect(tmp_path / "logs")
        assert not (tmp_path / "logs").exists()

    deployed(tmp_path, flags(tmp_path, "kill"), body)


HARNESS = """
import asyncio, os, sys
from pathlib import Path
from environments.attached import cluster
from environments.attached.environment import AttachedEnvironment

async def main():
    environment = AttachedEnvironment(cluster.load(Path(sys.argv[1])))
    await environment.deploy(None, None, (), Path())
    await environment.kill("a1")
    print(environment._agent.process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def harness(tmp_path):
    """A harness in a process of its own that has killed a1; (its pid, its agent's pid)."""
    flags(tmp_path, "kill")
    command = [sys.executable, "-c", HARNESS, str(tmp_path / "cluster.toml")]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        agent = int(process.stdout.readline())
        assert (tmp_path / "kill-a1").exists()
        yield process, agent
        process.kill()


def gone(path):
    while path.exists():
        time.sleep(0.05)


def test_a_harness_that_is_killed_leaves_nothing_in_force(tmp_path, harness):
    harness[0].kill()
    gone(tmp_path / "kill-a1")
    while list(records._root().glob("*.json")):
        time.sleep(0.05)


def test_where_its_agent_is_killed_too_clean_undoes_it(tmp_path, harness):
    process, agent = harness
    assert "left alone" in records.remove()[0]
    os.kill(agent, signal.SIGKILL)
    process.kill()
    process.wait()
    while (lines := records.leftovers()) and "left alone" in lines[0]:
        time.sleep(0.05)
    (line,) = lines
    assert line.endswith(f": rm {tmp_path}/kill-a1")
    (said,) = records.remove()
    assert f"ran rm {tmp_path}/kill-a1" in said
    assert not (tmp_path / "kill-a1").exists()
    assert records.remove() == []


def test_what_cannot_be_undone_is_said_with_the_line(tmp_path):
    found = described(tmp_path, NODE + HOOK.format("kill", "true", "false {node}", "true"))
    said = []

    async def body():
        runner = hooks.HookRunner(found, said.append)
        await runner.set("kill", "a1", wanted=True)
        await runner.close()

    asyncio.run(body())
    assert said == ["jepsen-run: NOT UNDONE, type: false a1"]
