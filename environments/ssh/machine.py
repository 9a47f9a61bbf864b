"""A machine over ssh, with an agent of ours on it for one node. Everything here blocks.

Below the host's ``directory`` are ``app-HASH`` (our sources and what they need, put there once) and
``RUN/NODE``, the node's root. The agent is a process of root's with its own session, so it goes on
when the connection is lost: leases heal, and after ``ORPHAN_S`` without a word it ends its broker
and itself.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import threading
from pathlib import PurePosixPath
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
from environments.host import CommandError
from environments.ssh.host import SshHost
from harness.interface import Address, InfrastructureError

ORPHAN_S: Final = 600.0
_PYTHON: Final = (3, 11)
_TOOLS: Final = {"nft": "nftables", "tc": "iproute2", "ip": "iproute2", "ss": "iproute2", "tar": "tar"}
_LOOK_PYTHON: Final = "import sys, platform; print(*sys.version_info[:2], platform.machine())"
_LOOK: Final = """
python=$1; address=$2; program=$3; shift 3
for tool; do command -v "$tool" >/dev/null || lacks="$lacks $tool"; done
echo $lacks
echo $("$python" -c "$program" 2>/dev/null)
echo $(ip -o addr show to "$address" 2>/dev/null | awk '{print $2; exit}')
"""
"""Says in three lines: tools that are missing, Python's version and the machine's, the device."""

_fetching = threading.Lock()
_site = functools.cache(payload.site)
_BEGIN: Final = (
    """
umask 077
mkdir -p "$1/data" "$1/logs" && cd "$3" || exit 1
IFS= read -r token || exit 1
export """
    + TOKEN_VARIABLE
    + """="$token" PYTHONUNBUFFERED=1 PYTHONPATH="$3:$3/site"
export """
    + ROOT_VARIABLE
    + """="$1" """
    + DEVICE_VARIABLE
    + """="$2"
export """
    + CONTROL_HOST_VARIABLE
    + """=127.0.0.1 """
    + ORPHAN_VARIABLE
    + """="$4"
setsid "$5" -m environments.agent.agent >>"$1/agent.log" 2>&1 </dev/null &
echo $! >"$1/agent.pid"
"""
)


class SshMachine:
    """A ``machines.node.Machine``: ``look`` at it first, then ``bring`` it our part."""

    mortal = False

    def __init__(self, host: SshHost, run: str, node: str, token: str, orphan_s: float) -> None:
        self.host = host
        self.name = f"host {host.name}"
        self.root = f"{host.config.directory}/{run}/{node}"
        self.address = ""
        self._token = token
        self._orphan_s = orphan_s
        self._device = ""
        self._app = ""
        self._kind = ("", "")
        self._control: Address | None = None
        self.put = host.put
        self.run = host.run
        self.fetch = host.fetch

    def look(self) -> None:
        """See that the machine has what is needed; nothing on it is changed.

        Raises InfrastructureError: what is missing, and what would mend it.
        """
        self.address = self.host.address
        argv = (self.host.config.python, self.address, _LOOK_PYTHON, *_TOOLS)
        lacks, version, device = self.run(("sh", "-c", _LOOK, "sh", *argv)).decode().splitlines()
        if lacks:
            packages = " ".join(dict.fromkeys(_TOOLS[tool] for tool in lacks.split()))
            raise self._error(f"{', '.join(lacks.split())} is missing there: apt-get install {packages}")
        python = self.host.config.python
        if not version:
            raise self._error(f'{python} cannot be run there: name Python 3.11 or newer as "python"')
        major, minor, machine = version.split()
        if (int(major), int(minor)) < _PYTHON:
            raise self._error(
                f'{python} is Python {major}.{minor} there: name 3.11 or newer as "python" in hosts.toml'
            )
        if not device:
            raise self._error(
                f"no network device there has the address {self.address}: say by which the other hosts "
                'reach it ("inner" in hosts.toml)'
            )
        self._device = device.partition("@")[0]
        self._kind = (f"{major}.{minor}", machine)

    def bring(self) -> None:
        """Put our sources and what they need there, unless they are."""
        python, machine = self._kind
        ours, wanted = payload.sources(payload.ROOT), payload.pins()
        recipe = "\n".join((payload.content_hash(ours), python, machine, *wanted))
        digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
        self._app = f"{PurePosixPath(self.host.config.directory)}/app-{digest}"
        if self._succeeds("test", "-e", f"{self._app}/complete"):
            return
        with _fetching:  # once for machines that are alike
            site = _site(tuple(wanted), python, "amd64" if machine == "x86_64" else machine)
        self.put(self._app, ours | {f"site/{path}": content for path, content in site.items()})
        self.put(self._app, {"complete": platform.node().encode()})

    def create(self) -> None:
        """It is there."""

    def begin(self) -> None:
        """Start the agent."""
        argv = (self.root, self._device, self._app, f"{self._orphan_s:g}", self.host.config.python)
        self.run(("sh", "-c", _BEGIN, "sh", *argv), text=f"{self._token}\n".encode())
        self._control = self.host.reach(CONTROL_PORT)

    def runs(self) -> bool:
        """Whether its agent does; the machine is asked."""
        return self._succeeds("sh", "-c", 'kill -0 "$(cat "$1/agent.pid")"', "sh", self.root)

    def halt(self) -> None:
        """Machines that are not ours are not ended."""
        raise AssertionError(f"{self.name} is not mortal")

    def words(self) -> bytes:
        """The end of what the agent said."""
        return self.run(("sh", "-c", 'tail -c 65536 "$1/agent.log" 2>/dev/null || true', "sh", self.root))

    def reach(self, port: int) -> Address:
        """The address of a port: the agent's through the connection, all else at the machine's own.

        The agent listens to this machine alone.
        """
        if port == CONTROL_PORT:
            assert self._control is not None, "the agent was begun"
            return self._control
        return Address(self.address, port)

    def remove(self) -> list[str]:
        """End everything of the node there; what was done, a line for each thing."""
        if not self._succeeds("test", "-e", self.root):
            return []
        app = self._app or self._any_app()
        python = self.host.config.python
        try:
            said = self.run(
                ("env", "-C", app, python, "-m", "environments.agent.end", self.root), timeout_s=60.0
            )
        except CommandError as error:
            raise self._error(f"{self.root} was not removed: {error}") from None
        return said.decode().splitlines()

    def _any_app(self) -> str:
        apps = self.run(("sh", "-c", 'ls -d "$1"/app-* || true', "sh", self.host.config.directory))
        found = apps.decode().split()
        if not found:
            raise self._error(
                f"{self.host.config.directory} has lost our program: remove {self.root} by hand"
            )
        return found[-1]

    def _succeeds(self, *argv: str) -> bool:
        try:
            self.run(argv)
        except CommandError:
            return False
        return True

    def _error(self, text: str) -> InfrastructureError:
        return InfrastructureError(f"{self.name}: {text}")
