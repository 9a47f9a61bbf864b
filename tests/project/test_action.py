"""The steps of the GitHub Action, run by a shell as a runner runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
SPLIT_BRAIN = (
    "--environment simulation --policy replication --pairs 1 --nemesis partition --shape pair-link "
    "--time-limit 8 --rate 20 --seed 1"
)


class Runner:
    """A machine that runs steps: its files, and what a step left in them."""

    def __init__(self, root):
        self.root, self.temp = root, root / "temp"
        self.programs = self.temp / "jepsen-run" / "bin"
        self.programs.mkdir(parents=True)
        (root / "work").mkdir()
        self.program("python", f'exec {sys.executable} "$@"')
        self.program("jepsen-run", "from harness.commands.start import main\nmain()", sys.executable)

    def program(self, name, script, interpreter="/bin/bash"):
        path = self.programs / name
        path.write_text(f"#!{interpreter}\n{script}\n")
        path.chmod(0o755)

    def run(self, name, **inputs):
        """Run a step with the inputs that differ from their defaults; return its exit status."""
        given = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        expressions = {f"${{{{ inputs.{name} }}}}": value for name, value in given.items()}
        expressions["${{ steps.python.outputs.python-path }}"] = str(self.programs / "python")
        step = STEPS[name]
        self.output, self.summary = self.temp / "output", self.temp / "summary"
        for path in (self.output, self.summary):
            path.write_text("")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_ACTION_PATH": str(ROOT),
            **{name: expressions[value] for name, value in step.get("env", {}).items()},
        }
        assert step["shell"] == "bash"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.root / "work", env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        return done.returncode


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


@pytest.mark.slow
def test_a_run_that_ends_invalid_keeps_its_status_and_writes_the_summary(runner):
    """Two seconds of simulation: both brokers of a pair are live."""
    assert runner.run("Run", arguments=SPLIT_BRAIN) == 1, runner.said
    assert runner.output.read_text().splitlines() == ["exit-status=1", "verdict=invalid"]
    summary = runner.summary.read_text()
    assert summary.startswith("## INVALID  replication-partition: split-brain (1)")
    assert "| **split-brain** | 1 | a1 and a2 were live under one node ID" in summary
    assert "| **zombie** | 223 | Follows from the split brain: all 223 happened at a1 and a2" in summary
    assert "What led to it: partition pair-link of a1 and a2 began" in summary
    assert "~~~console\njepsen-run --policy replication --pairs 1 --environment simulation" in summary
    (report,) = (runner.root / "work" / "store").glob("*/2*/report.html")
    assert f"`{report.relative_to(runner.root / 'work')}`" in summary


@pytest.mark.parametrize(
    ("status", "verdict", "may_be_unknown", "red"),
    [
        (0, "valid", "false", 0),
        (1, "invalid", "true", 1),
        (2, "unknown", "false", 2),
        (2, "unknown", "true", 0),
        (130, "failed", "false", 130),
        (254, "failed", "true", 254),
    ],
)
def test_the_status_of_the_program_is_that_of_the_step(runner, status, verdict, may_be_unknown, red):
    runner.program("jepsen-run", f'[ "$1" != summary ] || exit 254\nexit {status}')
    assert runner.run("Run", may_be_unknown=may_be_unknown) == red
    assert runner.output.read_text().splitlines() == [f"exit-status={status}", f"verdict={verdict}"]
    assert f"exit status {status}" in runner.summary.read_text()
    assert ("::warning::" in runner.said) == (status == 2 and red == 0)


def test_inputs_are_words_and_never_code(runner):
    runner.program("jepsen-run", """[ "$1" = summary ] || printf '<%s>' "$@" >words""")
    inputs = {
        "arguments": "--name \"a  b\"\n $(touch hacked) '; touch hacked' *",
        "store": "the store; touch hacked",
        "known": "a b.toml",
    }
    assert runner.run("Run", **inputs) == 0
    words = (runner.root / "work" / "words").read_text()
    given = "<--name><a  b><$(touch><hacked)><; touch hacked><*>"
    assert words == f"{given}<--known><a b.toml><--store><the store; touch hacked>"
    assert sorted(path.name for path in (runner.root / "work").iterdir()) == [
        "the store; touch hacked",
        "words",
    ]


def test_arguments_that_no_shell_can_read_run_nothing(runner):
    runner.program("jepsen-run", "touch ran")
    assert runner.run("Run", arguments="--name 'a") != 0
    assert "No closing quotation" in runner.said
    assert not (runner.root / "work" / "ran").exists()


def test_the_program_is_installed_once_from_the_version_of_the_action_that_is_used(runner):
    (runner.programs / "jepsen-run").unlink()
    runner.program(
        "python",
        f"""echo "$@" >>"{runner.temp}/installed"; [ "$2" != pip ] || cp "$0" "${{0%python}}jepsen-run" """,
    )
    assert runner.run("Install") == 0, runner.said
    assert runner.run("Install") == 0
    assert (runner.temp / "installed").read_text().splitlines() == [
        f"-m venv {runner.temp}/jepsen-run", f"-m pip install --quiet --no-compile {ROOT}",
    ]  # fmt: skip


def test_what_a_red_run_left_is_removed_and_uploaded(runner):
    runner.program("jepsen-run", 'echo "$@"')
    assert runner.run("Remove what an interrupted run left") == 0
    assert runner.said == "clean\n"
    for name in ("Remove what an interrupted run left", "Keep the evidence"):
        assert STEPS[name]["if"] == "always()"
    assert STEPS["Keep the evidence"]["with"]["path"] == "${{ inputs.store }}"
    assert [output["value"] for output in ACTION["outputs"].values()] == [
        "${{ steps.run.outputs.exit-status }}", "${{ steps.run.outputs.verdict }}",
    ]  # fmt: skip
