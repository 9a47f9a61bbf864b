"""The workflows that people copy: their commands are ones that the program takes."""

import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from harness.commands.cli import DEFAULT_COMMAND, cli
from harness.history import known
from harness.systems import given, registry

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
BROKERS = (WORKFLOWS / "nightly-brokers.yml").read_text()


def scripts(text):
    """What a shell gets of each step: a line, a folded (>) or a literal (|) block."""
    for step in re.finditer(r"^( +)(?:- )?run: (.*)\n((?:\1  .*\n|\n)*)", text, re.MULTILINE):
        body = textwrap.dedent(step[3]).strip()
        yield step[2] if step[2] not in (">", "|") else body if step[2] == "|" else " ".join(body.split("\n"))


def entries(text):
    """The systems of the matrix: key -> value of each."""
    (matrix,) = re.findall(r"^        include:\n((?:          .*\n)+)", text, re.MULTILINE)
    for entry in re.split(r"^          - ", matrix, flags=re.MULTILINE)[1:]:
        yield dict(line.strip().split(": ", 1) for line in entry.splitlines())


def filled(script, entry):
    """A step of one job: what the matrix says stands where it is named."""
    script = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name: entry.get(name[1], "some"), script)
    return re.sub(r"\$\{\{ inputs.*?\}\}", "", script)


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_every_command_of_a_workflow_has_options_that_there_are(file):
    for script in scripts(file.read_text()):
        for line in filled(script, {}).splitlines():
            if "jepsen-run" not in line:
                continue
            words = shlex.split(line[line.index("jepsen-run") :], comments=True)[1:]
            name = words[0] if words and not words[0].startswith("-") else DEFAULT_COMMAND
            known_options = {
                each
                for option in cli.commands[name].params
                for each in (*option.opts, *option.secondary_opts)
            }
            assert {word for word in words if word.startswith("--")} <= known_options, line


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_steps_of_each_system_are_commands_of_a_shell():
    for entry in entries(BROKERS):
        for script in scripts(BROKERS):
            done = subprocess.run(
                ["bash", "-n"], input=filled(script, entry), capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), script


def test_each_system_is_one_of_ours_with_its_policies_and_its_package(monkeypatch):
    """The packages are those that ``list`` names, and unpacked to the system's name."""
    monkeypatch.delenv(given.HOME, raising=False)
    assert {entry["system"] for entry in entries(BROKERS)} == set(registry.SYSTEMS) - {"own"}
    for entry in entries(BROKERS):
        name, line = entry["system"], entry["package"]
        monkeypatch.setenv(f"JEPSEN_RUN_{name.upper()}_HOME", "/nowhere")
        system = registry.get(name)
        assert set(entry["policy"].split(",")) <= set(system.policies)
        packages = r"-Dartifact=[^ ,]+|(?<= )rabbitmq-server"
        assert {*re.findall(packages, line)} == {*re.findall(packages, system.missing())}
        assert re.search(rf"[ /]{name}(; done)?$", line)


def test_what_the_night_accepts_can_be_read_and_is_of_the_systems_of_the_night():
    (file,) = set(re.findall(r"KNOWN: (.*)", BROKERS))
    accepted = known.load(WORKFLOWS.parents[1] / file)
    assert {entry.system for entry in accepted} <= {entry["system"] for entry in entries(BROKERS)}
    for entry in accepted:
        page = entry.why.rpartition(" ")[2]
        assert (WORKFLOWS.parents[1] / page).is_file()
