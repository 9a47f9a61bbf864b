"""Results fit into a terminal, are coloured on one that has colours, and can be copied."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from test_summary import SPEC, STATISTICS, STORE, finding

from checkers.verdict import Verdict
from harness.interface import program
from harness.report import summary, terminal

ROOT = Path(__file__).parents[2]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def verdict(valid):
    found = () if valid is not False else (finding("split-brain", rows=9), finding("late", "warning"))
    reasons = ("no engine answers " * 9,) if valid is None else ()
    return Verdict(valid=valid, findings=found, reasons=reasons, statistics=STATISTICS)


def text(valid):
    return summary.text(SPEC, STORE / ("long" * 30), verdict(valid), story="Producer 1 sent it. " * 20)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def shown(valid, stream=None):
    stream = stream or io.StringIO()
    terminal.show(stream, text(valid))
    return stream.getvalue()


@pytest.mark.parametrize("valid", [True, False, None])
@pytest.mark.parametrize("columns", [None, "60", "200"])
def test_no_line_of_a_verdict_is_wider_than_80_except_what_is_copied(monkeypatch, valid, columns):
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    printed = shown(valid)
    wide = [line for line in printed.splitlines() if len(line) > int(columns or 80)]
    copied = ("Again ", "Judge ", "Replay ", "Report ", "VALID ", "INVALID ", "UNKNOWN ")
    assert all(line.startswith(copied) for line in wide), wide
    # Nothing is lost, and what scripts look for is on one line.
    assert printed.split() == text(valid).split()
    assert [line for line in text(valid).splitlines() if line.startswith(copied)] == [
        line for line in printed.splitlines() if line.startswith(copied)
    ]


@pytest.mark.parametrize(
    ("valid", "colour"),
    [(True, "\x1b[1;32mVALID"), (False, "\x1b[1;31mINVALID"), (None, "\x1b[1;33mUNKNOWN")],
)
def test_a_verdict_is_coloured_on_a_terminal_alone(monkeypatch, valid, colour):
    plainly = shown(valid)
    coloured = shown(valid, Terminal())
    assert colour in coloured
    assert ESCAPES.sub("", coloured) == plainly
    assert "\x1b" not in plainly
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(valid, Terminal()) == plainly


def test_grave_findings_are_bold_and_others_are_not():
    coloured = shown(False, Terminal())
    assert "\x1b[1;31msplit-brain x 9 (grave)" in coloured
    assert "\x1b[33mlate x 1 (warning)" in coloured
    assert "\x1b[2m      #0 at 1.500 s" in coloured


def test_a_broken_line_is_indented_behind_its_label_or_its_beginning():
    lines = shown(False).splitlines()
    story = next(number for number, line in enumerate(lines) if line.startswith("Story    "))
    assert lines[story + 1].startswith(" " * 9 + "sent")
    fault = next(number for number, line in enumerate(lines) if line.startswith("  kill-1"))
    assert re.match(r" {4}\S", lines[fault + 1])


def test_any_line_with_a_command_stays_whole():
    line = (
        f"interrupted: 3 of 7 runs are kept; continue with: {program.command('sweep', '--resume', 'x' * 70)}"
    )
    stream = io.StringIO()
    terminal.show(stream, line)
    assert stream.getvalue() == f"{line}\n"


def test_no_number_is_parted_from_its_unit_and_no_option_from_its_value():
    for columns in range(40, 60):
        lines = list(
            terminal.wrapped("it took 3.5 s with --environment docker or sudo apt-get install x", columns)
        )
        assert all("3.5 s" in line or "3.5" not in line for line in lines)
        assert sum("--environment docker" in line for line in lines) == 1
        assert sum("sudo apt-get install x" in line for line in lines) == 1


def test_a_terminal_says_its_width_and_one_that_knows_none_is_80_wide():
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        for columns, expected in ((0, 80), (132, 132), (10, terminal.NARROWEST)):
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            assert terminal.width(stream) == expected
    os.close(ours)


def test_a_foreign_text_is_seen_on_a_real_terminal_and_not_obeyed():
    """Colours are ours; those of a name are not."""
    code = (
        "import sys; from harness.commands import cli; from harness.report import terminal\n"
        "from checkers.visible import visible\n"
        "sys.stdout = cli._for_any_reader(sys.stdout)\n"
        "terminal.show(sys.stdout, visible('VALID  all: \\x1b[2J'))\n"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    told = os.read(ours, 4096).decode()
    os.close(ours)
    assert told.startswith("\x1b[1;32mVALID\x1b[0m  all: \\x1b[2J")
