"""The commands that are printed work where they are pasted."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.interface import program

ROOT = Path(__file__).parents[2]
SCRIPT = f"""#!{sys.executable}
from harness.interface import program
print(program.command("check", "a store"))
"""


def printed(words, cwd, path="/usr/bin:/bin"):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    return subprocess.run(
        words, cwd=cwd, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("typed", "path", "told"),
    [
        ("{place}/my env/bin/jepsen-run", "/bin", "'my env/bin/jepsen-run'"),
        ("my env/bin/jepsen-run", "/bin", "'my env/bin/jepsen-run'"),
        ("../{name}/my env/bin/jepsen-run", "/bin", "'../{name}/my env/bin/jepsen-run'"),
        ("{place}/my env/bin/jepsen-run", "/bin:{place}/my env/bin", "jepsen-run"),
        ("{place}/my env/bin/jepsen-run", "/bin:/usr/bin", "'my env/bin/jepsen-run'"),
    ],
)
def test_a_printed_command_runs_the_program_that_printed_it(tmp_path, typed, path, told):
    script = tmp_path / "my env" / "bin" / "jepsen-run"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)
    names = {"place": tmp_path, "name": tmp_path.name}
    path = path.format(**names)
    line = printed([typed.format(**names)], tmp_path, path)
    assert line == f"{told.format(**names)} check 'a store'"
    assert printed(["/bin/sh", "-c", line], tmp_path, path) == line


def test_a_path_outside_the_current_directory_stays_whole(tmp_path):
    script = tmp_path / "jepsen-run"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    assert printed([str(script)], "/usr") == f"{shlex.quote(str(script))} check 'a store'"
    assert printed([str(script)], tmp_path) == "./jepsen-run check 'a store'"


def test_who_imports_the_program_is_told_its_name():
    assert program.command("check", "a store") == "jepsen-run check 'a store'"
