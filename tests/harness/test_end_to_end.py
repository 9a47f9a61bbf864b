"""The command as a stranger types it, on real broker processes.

A verdict, an interruption, a murder.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.history import store as stores

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.java, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 400


@pytest.fixture
def jepsen_run(tmp_path):
    """Runs command lines with a store and a state directory of their own."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

    def start(*words):
        return subprocess.Popen(
            [sys.executable, "-m", "harness.commands.cli", *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(*words):
        process = start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    finish.start = start
    return finish


def short(store, *more):
    return (
        *("--policy", "replication", "--environment", "local", "--pairs", "1", "--rate", "100"),
        *("--store", str(store), "--seed", "7", *more),
    )


def local_leftovers(jepsen_run):
    _, out, _ = jepsen_run("clean", "--dry-run")
    return [line for line in out.splitlines() if line.startswith("local")]


def until_line(process, *parts):
    """Read standard output until a line with each of the parts has come, in whatever order."""
    deadline = time.monotonic() + PATIENCE_S
    seen = []
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        seen.append(line)
        if all(any(part in one for one in seen) for part in parts):
            return
    raise AssertionError(f"ended without {parts!r}:\n{''.join(seen)}\n{process.stderr.read()}")


def test_a_failover_is_survived_and_told_in_one_document(jepsen_run, tmp_path):
    """It takes some 25 s: a whole run on processes as a person starts it, with its JVM."""
    store = tmp_path / "store"
    faults = tmp_path / "faults.json"
    faults.write_text('{"faults": [{"kind": "kill", "start-s": 1.5, "duration-s": 2.0, "target": "a1"}]}')
    words = short(store, "--time-limit", "6", "--schedule", str(faults), "--json")
    status, out, err = jepsen_run(*words)
    document = json.loads(out)
    assert (status, document["verdict"]["valid"]) == (0, True), err
    assert "VALID  replication: no anomaly" in err
    assert document["exit-status"] == 0
    assert f"--schedule {faults}" in document["again"]
    fault = document["verdict"]["statistics"]["faults"][0]
    assert fault["bit"] is True
    run = Path(document["store"])
    for name in (
        "spec.json",
        "schedule.json",
        "run.json",
        "findings.json",
        "report.html",
        "junit.xml",
        "logs/a1/broker.log",
    ):
        assert (run / name).stat().st_size > 0, name
    assert not (run / "nodes").exists()
    assert local_leftovers(jepsen_run) == []


def test_a_killed_harness_leaves_a_history_that_is_judged_and_nothing_after_clean(jepsen_run, tmp_path):
    """It takes some 25 s: a run, a check, two cleanings, each a process as a person starts it."""
    store = tmp_path / "store"
    faults = tmp_path / "faults.json"
    faults.write_text(
        '{"faults": [{"kind": "partition", "start-s": 1.0, "duration-s": 60, "shape": "pair-link"}]}'
    )
    process = jepsen_run.start(*short(store, "--time-limit", "60", "--schedule", str(faults)))
    # In whatever order; that a2 is live lasts, while a vote may be over between two looks at it.
    until_line(process, "fault  partition", "a2     live")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    run = stores.find(store)[0]
    assert stores.load_run(run).state == "running"

    status, out, err = jepsen_run("check", str(run))
    assert status in (1, 2), err
    assert "the run was killed" in out
    assert (run / "findings.json").is_file()

    assert local_leftovers(jepsen_run) != []
    status, out, _ = jepsen_run("clean")
    assert status == 0
    assert local_leftovers(jepsen_run) == []


def test_an_interrupted_run_removes_its_cluster_and_says_how_to_judge_it(jepsen_run, tmp_path):
    store = tmp_path / "store"
    process = jepsen_run.start(*short(store, "--time-limit", "60"))
    until_line(process, "phase load")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert err == ""
    run = stores.find(store)[0]
    interpreter = Path(sys.executable).name
    judge = rf"judge it with: \S*{interpreter} -m harness.commands.cli check {re.escape(str(run))}\n"
    assert re.search(judge, out)  # below the current directory the interpreter is relative
    assert local_leftovers(jepsen_run) == []
    assert (run / "history" / "_complete.json").is_file()
