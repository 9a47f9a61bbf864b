"""A host: a machine on which a node runs, as the harness uses it: put, run, fetch, reach.

As small as this because every kind of machine has these four (compare Jepsen's
``control/Remote``), and three of them by running command lines alone: files go through tar's input
and output. What has to go on when the harness is gone is not here but in the agent, which is put
and run like anything else. Nothing goes on for long when the connection is lost: the machine itself
ends every program when its time is over, and the script that takes files removes what it has when
it did not get all. Everything here blocks; who has a loop calls it in a thread.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import math
import shlex
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from environments.machines.forward import PortForward
from environments.payload import archive
from harness.interface import Address, InfrastructureError

_TRANSFER_TIMEOUT_S: Final = 600.0
_KILL_S: Final = 5  # what a program has to end when its time is over

_RUN: Final = """[ "$(id -u)" = 0 ] || root="sudo -n"; $root timeout -k "$@"; exit $?"""
"""The status is a number so, a killed program's too; none at all is a lost connection's."""

PUT: Final = """
umask 077
mkdir -p "$2" && [ -O "$2" ] && [ ! -L "$2" ] || { echo "$2 belongs to somebody else" >&2; exit 1; }
trap 'rm -rf "$got"; [ "$kept" ] || { cd "$2" && rmdir -p "${1#"$2"/}"; rmdir "$2"; } 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM PIPE
mkdir -p "$1" && got=$(mktemp -d "$1/.put-XXXXXX") || exit 1
tar -x -f - -C "$got" && cd "$got" && rm .complete || exit 1
find . -type d -exec mkdir -p "$1/{}" ';' && find . -type f -exec mv -fT {} "$1/{}" ';' && kept=1
"""
"""Takes an archive whose last file is ``.complete`` for a directory $1, which is $2 or below it."""

_FETCH: Final = """
if [ -d "$1" ]; then exec tar -c -f - -C "$1" .; fi
if [ -e "$1" ]; then cd "$(dirname "$1")" && exec tar -c -f - "./$(basename "$1")"; fi
"""


class CommandError(Exception):
    """What was run on a host ended with another status than 0.

    ``status`` is it, the text what the program said last, in one line.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Host(abc.ABC):
    """A host on which ``user`` is root or may use sudo, and what is written and run is root's.

    All that is ours there is in ``directory``. Each method raises InfrastructureError, naming the
    host, where the machine cannot be reached or will not do it.
    """

    def __init__(self, name: str, user: str, directory: str) -> None:
        self.name = name
        self.user = user
        self.directory = directory
        self._forwards: dict[int, PortForward] = {}

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """Where the other hosts of the deployment reach it."""

    @abc.abstractmethod
    def tunnel(self, port: int) -> Any:
        """A channel (see `PortForward`) to a port, on its loopback or else on its address.

        Raises ConnectionRefusedError where nobody listens, InfrastructureError.
        """

    @abc.abstractmethod
    def run_line(self, line: str, text: bytes, bound_s: float) -> tuple[int, bytes, bytes]:
        """Run a command line: its status, what it wrote, and its errors.

        Status -1 if ``bound_s`` was not enough. Raises InfrastructureError if the machine was lost
        meanwhile.
        """

    def put(self, directory: str, files: Mapping[str, bytes], executable: Container[str] = ()) -> None:
        """Write files (relative path -> content), readable by their owner alone.

        All of them or, when something goes wrong, none. The directories above them are made. The
        ``executable`` ones it may run.
        """
        top = self.directory if f"{directory}/".startswith(f"{self.directory}/") else directory
        content = archive({**files, ".complete": b""}, executable=executable)
        argv = ("sh", "-c", PUT, "sh", directory, top)
        status, _, said = self._execute(argv, content, _TRANSFER_TIMEOUT_S)
        if status:
            full = any("No space left" in line or "Wrote only" in line for line in said)
            why = "No space left on device" if full else _last(said, status)
            raise self.error(f"{directory} cannot be written: {why}")

    def run(self, argv: Sequence[str], *, text: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """What a program wrote to its end, with ``text`` as its input. Raises CommandError."""
        status, out, said = self._execute(argv, text, timeout_s)
        if status:
            raise CommandError(f"{self.name}: {argv[0]}: {_last(said, status)}", status)
        return out

    def fetch(self, path: str) -> bytes:
        """A file, or all that is in a directory, as a tar archive; empty where there is none."""
        status, out, said = self._execute(("sh", "-c", _FETCH, "sh", path), b"", _TRANSFER_TIMEOUT_S)
        if status and not all("changed as we read" in line or "removed before" in line for line in said):
            raise self.error(f"{path} cannot be read: {_last(said, status)}")
        return out

    def reach(self, port: int) -> Address:
        """Where this process reaches a TCP port of the machine, outside every partition."""
        if port not in self._forwards:
            with contextlib.suppress(ConnectionRefusedError):  # nobody listens yet
                self.tunnel(port).close()
            self._forwards.setdefault(port, PortForward(functools.partial(self.tunnel, port)))
        return self._forwards[port].address

    def close(self) -> None:
        """Reach it no more."""
        for forward in self._forwards.values():
            forward.close()

    def error(self, text: str) -> InfrastructureError:
        """What is wrong with it."""
        return InfrastructureError(f"host {self.name}: {text}")

    def _execute(self, argv: Sequence[str], text: bytes, timeout_s: float) -> tuple[int, bytes, list[str]]:
        """The status of a program, what it wrote, and the lines of its errors."""
        limits = (str(_KILL_S), str(math.ceil(timeout_s)))
        line = shlex.join(("env", "LC_ALL=C.UTF-8", "sh", "-c", _RUN, "sh", *limits, *argv))
        began = time.monotonic()
        status, out, errors = self.run_line(line, text, timeout_s + 2 * _KILL_S)
        if status in (-1, 124, 137) and time.monotonic() - began >= timeout_s:
            raise self.error(f"{argv[0]} did not end within {timeout_s:g} s")
        said = errors.decode(errors="replace").strip().splitlines()
        if status and said and ("sudo: " in said[-1] or said[-1].startswith("Sorry, user ")):
            user = self.user
            raise self.error(
                f"user {user} is not root and may not use sudo without a password ({said[-1].strip()}); "
                f"allow it: echo '{user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/jepsen-run there, as root"
            )
        return status, out, said


def _last(said: Sequence[str], status: int) -> str:
    return said[-1].strip() if said else f"it ended with status {status}"
