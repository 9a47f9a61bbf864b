"""The workflows that people copy, and the action in them: the program takes their commands."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from harness.commands.cli import DEFAULT_COMMAND, cli
from harness.history import known
from harness.systems import given, registry

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
BROKERS = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly-brokers.yml").read_text())["jobs"][
    "brokers"
]
SYSTEMS = BROKERS["strategy"]["matrix"]["include"]
OURS = "./"
"""The action in its own repository; others name the repository and a version."""


def steps(path):
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


def filled(text, entry):
    """A text of one job: what the matrix says stands where it is named."""
    text = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name: entry.get(name[1], "some"), text)
    return re.sub(r"\$\{\{.*?\}\}", "", text)


def commands(step):
    """What a step has jepsen-run do: its arguments, without options that the action adds."""
    if step.get("uses") == OURS:
        yield shlex.split(filled(step["with"]["arguments"], {}))
    for line in filled(step.get("run", ""), {}).splitlines():
        if "jepsen-run " in line:
            yield shlex.split(line[line.index("jepsen-run ") :], comments=True)[1:]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_of_a_workflow_has_options_that_there_are(file):
    for step in steps(file):
        for words in commands(step):
            name = words[0] if words and not words[0].startswith("-") else DEFAULT_COMMAND
            options = {
                each
                for option in cli.commands[name].params
                for each in (*option.opts, *option.secondary_opts)
            }
            assert {word for word in words if word.startswith("--")} <= options, words
            added = {"--store"} | ({"--known"} if "known" in step.get("with", ()) else set())
            assert step.get("uses") != OURS or added <= options, words


def test_the_pythons_of_the_classifiers_have_a_session_and_a_job_each():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    pythons = jobs["pythons"]["strategy"]["matrix"]["python"]
    (sessions,) = re.findall(r"^PYTHONS = (.*)$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert sessions == json.dumps(pythons)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert classified == pythons
    assert project["requires-python"] == f">={pythons[0]}"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_what_the_action_is_given_are_its_inputs(file):
    for step in steps(file):
        if step.get("uses") == OURS:
            assert set(step["with"]) <= set(ACTION["inputs"])


@pytest.mark.parametrize("file", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda path: path.name)
def test_no_script_has_a_text_in_it_that_somebody_else_may_write(file):
    """A value in a script is code: what the file does not say itself must come by a variable."""
    in_scripts = [
        step["run"]
        for step in (ACTION["runs"]["steps"] if file.name == "action.yml" else steps(file))
        if "run" in step
    ]
    named = {name for script in in_scripts for name in re.findall(r"\$\{\{ ([\w.]+)", script)}
    assert {
        name for name in named if not re.fullmatch(r"matrix\.\w+|github\.event_name|.*\.sha", name)
    } == set()
    assert file.name != "action.yml" or not named


@pytest.mark.parametrize("job", ["run", "claims", "search", "sweep"])
def test_each_job_of_the_night_uses_the_action_and_keeps_its_own_artifact(job):
    (nightly,) = (path for path in WORKFLOWS if path.name == "nightly.yml")
    jobs = yaml.safe_load(nightly.read_text())["jobs"]
    (used,) = (step["with"] for step in jobs[job]["steps"] if step.get("uses") == OURS)
    for name in jobs[job].get("strategy", {}).get("matrix", {"include": [{}]}):
        if name not in {"include", "nemesis"}:  # a number distinguishes nemeses, which have commas
            assert f"matrix.{name} " in used["artifact"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_steps_of_each_system_are_commands_of_a_shell():
    for entry in SYSTEMS:
        for step in BROKERS["steps"]:
            if "run" in step:
                done = subprocess.run(
                    ["bash", "-n"],
                    input=filled(step["run"], entry),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert (done.returncode, done.stderr) == (0, ""), step


def test_each_system_is_one_of_ours_with_its_policies_and_its_package(monkeypatch):
    """The packages are those that ``list`` names, of the newest release last, and of older ones."""
    monkeypatch.delenv(given.HOME, raising=False)
    assert {entry["system"] for entry in SYSTEMS} == set(registry.SYSTEMS) - {"own"}
    for entry in SYSTEMS:
        name, line = entry["system"], entry["package"]
        monkeypatch.setenv(f"JEPSEN_RUN_{name.upper()}_HOME", "/nowhere")
        system = registry.get(name)
        assert set(entry["policy"].split(",")) <= set(system.policies)
        packages = r"-Dartifact=[^ ,]+|(?<= )rabbitmq-server"
        loop = re.match(r"for release in (.+?);", line)
        releases = loop[1].split() if loop else [""]
        newest = line.replace("$release", releases[-1])
        assert {*re.findall(packages, newest)} == {*re.findall(packages, system.missing())}
        assert len(entry["homes"].split()) == len(releases)
        for home, release in zip(entry["homes"].split(), reversed(releases), strict=True):
            assert release in home


def test_what_the_night_accepts_can_be_read_and_is_of_the_systems_of_the_night():
    accepted = known.load(ROOT / BROKERS["env"]["KNOWN"])
    assert {entry.system for entry in accepted} <= {entry["system"] for entry in SYSTEMS}
    for entry in accepted:
        page = entry.why.rpartition(" ")[2]
        assert (ROOT / page).is_file()
