"""A host that belongs to somebody else, as a machine: it runs an agent of ours for one node.

Below a directory there are ``app-HASH`` (our sources and what they need, put there once) and
``RUN/NODE``, the node's root. The agent is a process of root's with its own session, so it goes on
when the connection is lost: leases heal, and after ``orphan_s`` without a request it ends its
broker and itself. Everything here blocks.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import shlex
import threading
from collections.abc import Mapping
from typing import Final

from environments import payload
from environments.agent.control import (
    CONTROL_HOST_VARIABLE,
    CONTROL_PORT,
    DEVICE_VARIABLE,
    ORPHAN_VARIABLE,
    ROOT_VARIABLE,
    TOKEN_VARIABLE,
)
from environments.homes import Homes
from environments.machines.host import CommandError, Host
from harness.interface import Address, InfrastructureError, Provision, Runtime

_PYTHON: Final = (3, 11)
_TOOLS: Final = {"nft": "nftables", "tc": "iproute2", "ip": "iproute2", "ss": "iproute2", "tar": "tar"}
_LOOK_PYTHON: Final = "import sys, platform; print(*sys.version_info[:2], platform.machine())"
_LOOK: Final = """
python=$1; address=$2; program=$3; shift 3
for tool; do command -v "$tool" >/dev/null || lacks="$lacks $tool"; done
echo $lacks
echo $("$python" -c "$program" 2>/dev/null)
echo $(ip -o addr show to "$address" 2>/dev/null | awk '{sub("@.*", "", $2); print $2; exit}')
"""
"""A script that prints three lines: missing tools, Python's and the machine's type, the device."""

_BEGIN: Final = """
umask 077
mkdir -p "$1/data" "$1/logs" && cd "$2" || exit 1
setsid "$3" -m environments.agent.agent >>"$1/agent.log" 2>&1 </dev/null &
echo $! >"$1/agent.pid"
"""
_END: Final = """
[ -e "$1" ] || exit 0
app=$(ls -d "$2"/app-???????????????? | tail -n 1)
[ "$app" ] || { echo "$2 has lost our program: remove $1 by hand" >&2; exit 1; }
cd "$app" && exec "$3" -m environments.agent.end "$1"
"""
_SWEEP: Final = """
cd "$1" 2>/dev/null && ! ls -d jepsen-run-* >/dev/null 2>&1 || exit 0
rm -rf -- app-???????????????? home-???????????????? && rmdir -- "$1" 2>/dev/null || true
"""

_PLACES: Final = 'for pattern; do for path in $pattern; do [ ! -x "$path" ] || echo "$path"; done; done'

_fetching = threading.Lock()
_site = functools.cache(payload.site)


class RemoteMachine:
    """A ``machines.node.Machine``: first ``look`` at it, then ``bring`` it our files."""

    mortal = False

    def __init__(
        self,
        host: Host,
        python: str,
        run: str,
        node: str,
        token: str = "",
        orphan_s: float = 0,
        provision: Provision | None = None,
        distribution: Homes | None = None,
    ) -> None:
        self.name = f"host {host.name}"
        self.root = f"{host.directory}/{run}/{node}"
        self.put, self.run, self.fetch = host.put, host.run, host.fetch
        self._host = host
        self._python = python
        self._token = token
        self._orphan_s = orphan_s
        self._provision = provision
        self._distribution = distribution
        self.homes: Mapping[str, str] = {}
        self._device = self._kind = self._app = ""
        self._programs: list[str] = []

    @property
    def address(self) -> str:
        """The address of the host."""
        return self._host.address

    def look(self) -> None:
        """Check that the machine has what is needed; nothing on it is changed.

        Raises InfrastructureError, which says what is missing and what would mend it.
        """
        python = self._python
        argv = (python, self.address, _LOOK_PYTHON, *_TOOLS)
        said = self.run(("sh", "-c", _LOOK, "sh", *argv)).decode()
        lacks, self._kind, self._device = said.splitlines()
        if lacks:
            packages = " ".join(dict.fromkeys(_TOOLS[tool] for tool in lacks.split()))
            raise self._error(f"{', '.join(lacks.split())} is missing there: apt-get install {packages}")
        if not self._kind:
            raise self._error(f'{python} cannot be run there: name Python 3.11 or newer as "python"')
        major, minor, _ = self._kind.split()
        if (int(major), int(minor)) < _PYTHON:
            raise self._error(
                f'{python} is Python {major}.{minor} there: name 3.11 or newer as "python" in hosts.toml'
            )
        if not self._device:
            raise self._error(
                f"no network device there has the address {self.address}: say by which the other hosts "
                'reach it ("inner" in hosts.toml)'
            )
        if self._provision is not None:
            for runtime in self._provision.runtimes:
                self._find(runtime)
            free_mb = int(self.run(("awk", "/^MemAvailable:/ {print int($2 / 1024)}", "/proc/meminfo")))
            if free_mb < (takes := self._provision.memory_mb):
                raise self._error(f"{free_mb} MB of memory are free, and a broker takes {takes}")

    def bring(self) -> None:
        """Put our sources and what they need there, and a distribution, unless they are there."""
        if self._distribution is None:
            ours, wanted = payload.sources(payload.ROOT), payload.pins()
        else:
            ours, wanted = payload.agent(payload.ROOT), []
            self._bring(self._distribution)
        recipe = "\n".join((payload.content_hash(ours), self._kind, *wanted))
        self._app = f"{self._host.directory}/app-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
        if self._succeeds("test", "-e", f"{self._app}/complete"):
            return
        major, minor, machine = self._kind.split()
        with _fetching:  # machines that are alike share one fetch
            site = _site(tuple(wanted), f"{major}.{minor}", "amd64" if machine == "x86_64" else machine)
        self.put(self._app, ours | {f"site/{path}": content for path, content in site.items()})
        self.put(self._app, {"complete": platform.node().encode()})

    def _bring(self, distribution: Homes) -> None:
        place = f"{self._host.directory}/home-{distribution.hash}"
        if not self._succeeds("test", "-e", f"{place}/complete"):
            self._host.put(place, distribution.files, distribution.executable)
            self.put(place, {"complete": platform.node().encode()})
        assert self._provision is not None, "what is brought was asked for"
        self.homes = {name: f"{place}/{name}" for name in self._provision.names}

    def _find(self, runtime: Runtime) -> None:
        """Choose the runtime on PATH, or else the first one elsewhere that is new enough.

        Raises InfrastructureError if there is none.
        """
        lack = runtime.lack(self._ask(runtime, runtime.program))
        if not lack:
            return
        for program in self.run(("sh", "-c", _PLACES, "sh", *runtime.elsewhere)).decode().splitlines():
            if not runtime.lack(self._ask(runtime, program)):
                self._programs.append(program.rpartition("/")[0])
                return
        raise self._error(lack)

    def _ask(self, runtime: Runtime, program: str) -> str | None:
        """Return what a runtime says of its release; None if the machine does not have it."""
        script = 'command -v "$1" >/dev/null || exit 3; [ $# = 1 ] || "$@" 2>&1 || true'
        try:
            output = self.run(("sh", "-c", script, "sh", program, *runtime.asks))
        except CommandError as error:
            if error.status == 3:  # of the script above
                return None
            raise
        return output.decode(errors="replace")

    def create(self) -> None:
        """Do nothing: the machine exists."""

    def halt(self) -> None:
        """Fail: a machine that is not ours is never ended."""
        raise AssertionError(f"{self.name} is not mortal")

    def begin(self) -> None:
        """Start the agent."""
        variables = {
            ROOT_VARIABLE: self.root,
            DEVICE_VARIABLE: self._device,
            TOKEN_VARIABLE: self._token,
            CONTROL_HOST_VARIABLE: "127.0.0.1",
            ORPHAN_VARIABLE: f"{self._orphan_s:g}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": f"{self._app}:{self._app}/site",
        }
        # The script is given as input, because the token must not be in a command line.
        script = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        script += "".join(f'export PATH={shlex.quote(place)}:"$PATH"\n' for place in self._programs)
        self.run(("sh", "-s", self.root, self._app, self._python), text=f"{script}{_BEGIN}".encode())
        self._host.reach(CONTROL_PORT)

    def runs(self) -> bool:
        """Ask the machine whether its agent runs."""
        return self._succeeds("sh", "-c", 'kill -0 "$(cat "$1/agent.pid")"', "sh", self.root)

    def words(self) -> bytes:
        """Return the end of the agent's output."""
        return self.run(("sh", "-c", 'tail -c 65536 "$1/agent.log" 2>/dev/null || true', "sh", self.root))

    def reach(self, port: int) -> Address:
        """Return the address of a port: the host's for the agent, the machine's own for others.

        The agent listens only on its own machine's loopback.
        """
        return self._host.reach(port) if port == CONTROL_PORT else Address(self.address, port)

    def remove(self, *, program: bool = False) -> list[str]:
        """End everything of the node there; return a line for each thing that was done.

        With ``program``, also remove our program if no other run uses it any more.
        """
        argv = ("sh", "-c", _END, "sh", self.root, self._host.directory, self._python)
        try:
            said = self.run(argv, timeout_s=60.0)
        except CommandError as error:
            raise self._error(f"{self.root} was not removed: {error}") from None
        if program:
            self.run(("sh", "-c", _SWEEP, "sh", self._host.directory))
        return said.decode().splitlines()

    def _succeeds(self, *argv: str) -> bool:
        try:
            self.run(argv)
        except CommandError:
            return False
        return True

    def _error(self, text: str) -> InfrastructureError:
        return InfrastructureError(f"{self.name}: {text}")
