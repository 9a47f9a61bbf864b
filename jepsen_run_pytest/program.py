"""One command of ``jepsen-run``, in a process of its own.

Why not in the process of the tests: a run has signal handlers, an event loop, perhaps a JVM, and
hides pandas from Arrow. None of that may reach the user's other tests. A test that is itself a
coroutine can call it, too.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.interface.program import NAME

_ONE_LINE: Final = f"{NAME}: "
"""The beginning of the line in which the program says what is wrong."""


class JepsenRunError(Exception):
    """The program could not do what it was asked for: the text is the line in which it says why.

    This is about the arguments of a fixture or about the program itself, never about the brokers.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit status of a command, its JSON document if it has one, and its last complaint."""

    status: int
    document: dict[str, Any] | None
    complaint: str


def call(arguments: Sequence[str]) -> Answer:
    """Run a command with ``--json`` to its end; repeat on standard error what it says meanwhile.

    If the test is interrupted or runs out of time, the command is told to end once, and takes its
    cluster down.
    """
    command = [*_program(), *arguments, "--json"]
    complaint = ""
    with tempfile.TemporaryFile() as written:
        # In a process group of its own it is not interrupted by the terminal as well: the second
        # interrupt would end it at once and leave its cluster behind.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="replace", process_group=0,
        )  # fmt: skip
        assert process.stderr is not None
        with process.stderr:
            try:
                for line in process.stderr:
                    if line.startswith(_ONE_LINE):
                        complaint = line.removeprefix(_ONE_LINE).rstrip("\n")
                    sys.stderr.write(line)
                process.wait()
            except BaseException:
                process.send_signal(signal.SIGTERM)
                process.stderr.read()  # so that it can say what it does, and ends
                process.wait()
                raise
        written.seek(0)
        text = written.read()
    document: dict[str, Any] | None = msgspec.json.decode(text) if text else None
    return Answer(process.returncode, document, complaint)


def _program() -> list[str]:
    """Return the program of the environment that the tests run in.

    The commands that it prints name it as it was called.
    """
    script = Path(sys.executable).with_name(NAME)
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "harness.commands.start"]
