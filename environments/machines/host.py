"""A host: a machine on which a node runs, as the harness uses it: put, run, fetch, reach.

The interface is small because every kind of machine has these four (compare Jepsen's
``control/Remote``). Three of them only run command lines: files go through tar's input and output.
What has to go on when the harness is gone is in the agent, which is put and run like anything else.
Nothing goes on for long when the connection is lost. The machine itself ends every program when its
time is over. The script that takes files removes what it has if it did not get all. Everything here
blocks; a caller with an event loop calls it in a thread.
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
_KILL_S: Final = 5  # the time that a program has to end when its time-out is over

_RUN: Final = """[ "$(id -u)" = 0 ] || root="sudo -n"; $root timeout -k "$@"; exit $?"""
"""A script that runs a program within a time-out, as root.

Its status is always a number, even if the program was killed; no status at all means that the
connection was lost.
"""

PUT: Final = """
umask 077
mkdir -p "$2" && [ -O "$2" ] && [ ! -L "$2" ] || { echo "$2 belongs to somebody else" >&2; exit 1; }
trap 'rm -rf "$got"; [ "$kept" ] || { cd "$2" && rmdir -p "${1#"$2"/}"; rmdir "$2"; } 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM PIPE
mkdir -p "$1" && got=$(mktemp -d "$1/.put-XXXXXX") || exit 1
tar -x -f - -C "$got" && cd "$got" && rm .complete || exit 1
find . -type d -exec mkdir -p "$1/{}" ';' && find . -type f -exec mv -fT {} "$1/{}" ';' && kept=1
"""
"""A script that takes an archive for a directory $1, which is $2 or below it.

The last file of the archive is ``.complete``.
"""

_FETCH: Final = """
if [ -d "$1" ]; then exec tar -c -f - -C "$1" .; fi
if [ -e "$1" ]; then cd "$(dirname "$1")" && exec tar -c -f - "./$(basename "$1")"; fi
"""


class CommandError(Exception):
    """A program that was run on a host ended with another status than 0.

    ``status`` is this status; the text is the program's last line of output.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Host(abc.ABC):
    """A host on which ``user`` is root or may use sudo; all files and programs there are root's.

    Everything of ours on the host is in ``directory``. Each method raises InfrastructureError,
    which names the host, if the machine cannot be reached or refuses.
    """

    def __init__(self, name: str, user: str, directory: str) -> None:
        self.name = name
        self.user = user
        self.directory = directory
        self._forwards: dict[int, PortForward] = {}

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """The address by which the other hosts of the deployment reach it."""

    @abc.abstractmethod
    def tunnel(self, port: int) -> Any:
        """Open a channel (see `PortForward`) to a port, on the host's loopback or else its address.

        Raises ConnectionRefusedError if no program listens there, or InfrastructureError.
        """

    @abc.abstractmethod
    def run_line(self, line: str, text: bytes, bound_s: float) -> tuple[int, bytes, bytes]:
        """Run a command line; return its status, its output, and its error output.

        The status is -1 if ``bound_s`` was not enough. Raises InfrastructureError if the machine
        was lost meanwhile.
        """

    def put(self, directory: str, files: Mapping[str, bytes], executable: Container[str] = ()) -> None:
        """Write files (relative path -> content), readable by their owner alone.

        Either all of them are written, or none if something goes wrong. The directories above them
        are made. The owner may run the ``executable`` ones.
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
        """Run a program with ``text`` as its input; return its output. Raises CommandError."""
        status, out, said = self._execute(argv, text, timeout_s)
        if status:
            raise CommandError(f"{self.name}: {argv[0]}: {_last(said, status)}", status)
        return out

    def fetch(self, path: str) -> bytes:
        """Return a file, or all files in a directory, as a tar archive; empty if there is none."""
        status, out, said = self._execute(("sh", "-c", _FETCH, "sh", path), b"", _TRANSFER_TIMEOUT_S)
        if status and not all("changed as we read" in line or "removed before" in line for line in said):
            raise self.error(f"{path} cannot be read: {_last(said, status)}")
        return out

    def reach(self, port: int) -> Address:
        """Return where this process reaches a TCP port of the machine, outside every partition."""
        if port not in self._forwards:
            with contextlib.suppress(ConnectionRefusedError):  # nobody listens yet
                self.tunnel(port).close()
            self._forwards.setdefault(port, PortForward(functools.partial(self.tunnel, port)))
        return self._forwards[port].address

    def close(self) -> None:
        """End all forwards to the host, and do not reach it any more."""
        for forward in self._forwards.values():
            forward.close()

    def error(self, text: str) -> InfrastructureError:
        """Return an error about this host, with its name."""
        return InfrastructureError(f"host {self.name}: {text}")

    def _execute(self, argv: Sequence[str], text: bytes, timeout_s: float) -> tuple[int, bytes, list[str]]:
        """Run a program; return its status, its output, and the lines of its error output."""
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
