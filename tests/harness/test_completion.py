"""A shell completes commands, options and the names that options take."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from harness.commands import cli
from harness.systems import registry as systems
from nemesis.registry import KINDS

ROOT = Path(__file__).parents[2]


def offered(*words):
    """What is offered for the last word."""
    complete = BashComplete(cli.cli, {}, "jepsen-run", "_JEPSEN_RUN_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_the_first_word_is_a_command():
    assert offered("") == sorted(cli.cli.commands)
    assert offered("sh") == ["shrink"]


def test_options_are_those_of_the_command_and_without_one_those_of_a_test():
    assert offered("shrink", "--n") == ["--need"]
    assert offered("--nem") == ["--nemesis"]
    assert offered("--ver") == ["--version", "--verbose"]
    assert set(offered("--")) > set(offered("test", "--")) - {"--help"}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--nemesis", "parti"], ["partition"]),
        (["test", "--nemesis", "partition,ki"], ["partition,kill"]),
        (["test", "--nemesis", "kill,ki"], []),
        (["--system", "art"], ["artemis"]),
        (["test", "--system", "artemis", "--policy", "lock"], ["lock-manager"]),
        (["test", "--policy", "multi"], ["multi-instance"]),
        (["search", "--workload", "groups,ba"], ["groups,bank"]),
        (["sweep", "--environment", "simu"], ["simulation"]),
        (["test", "--shape", "pair"], ["pair-link"]),
        (["test", "--target", "min"], ["minority"]),
        (["import", "--guarantee", "ex"], ["exactly-once"]),
        (["shrink", "--finding", "split"], ["split-brain"]),
    ],
)
def test_values_are_the_names_that_the_option_takes(words, names):
    assert offered(*words) == names


def test_every_name_of_a_registry_is_offered():
    assert offered("--nemesis", "") == list(KINDS)
    assert offered("--system", "") == list(systems.names())


def test_bash_completes_a_program_that_is_called_by_its_path(tmp_path):
    program = tmp_path / "jepsen-run"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness.commands.start "$@"\n')
    program.chmod(0o755)
    script = f"""
        eval "$(_JEPSEN_RUN_COMPLETE=bash_source {program})" || exit 9
        complete -p jepsen-run >/dev/null || exit 8
        COMP_WORDS=({program} --nemesis partition,ki) COMP_CWORD=2
        _jepsen_run_completion {program} partition,ki --nemesis
        echo "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "partition,kill\n", "")
