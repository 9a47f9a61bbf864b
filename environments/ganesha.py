"""The NFSv4 server: nfs-ganesha, in user space, on a port and a directory of the test's own.

Why ganesha: the kernel's server would be the whole machine's, one for all tests, and is missing
where the kernel's client is. Ganesha's lease and grace are a line in its configuration. It is
stopped, killed and restarted as any process is.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from environments.agent.child import Child
from harness.interface import InfrastructureError, StorePlan, UsageError

PROGRAM: Final = "ganesha.nfsd"
PACKAGES: Final = ("nfs-ganesha", "nfs-ganesha-vfs")
LEASE_S_MAX: Final = 120
GRACE_S_MAX: Final = 180
_START_S: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of a server with one export.

    ``directory`` is what is exported, under the name ``export``. A client that is silent for
    ``lease_s`` loses the locks and files that it holds. After a restart the server grants nothing
    new for ``grace_s``, so that clients can reclaim. In ``state`` the server remembers who its
    clients were.
    """

    directory: Path
    state: Path
    port: int
    export: str = "/store"
    host: str = "127.0.0.1"
    lease_s: int = 10
    grace_s: int = 10

    def __post_init__(self) -> None:
        for name, value, most in (("lease", self.lease_s, LEASE_S_MAX), ("grace", self.grace_s, GRACE_S_MAX)):
            if not 1 <= value <= most:
                raise UsageError(f"NFS server: {name} must be from 1 to {most} seconds, not {value}")
        if self.grace_s < self.lease_s:
            raise UsageError(
                f"NFS server: grace ({self.grace_s} s) must not be shorter than the lease "
                f"({self.lease_s} s): "
                "clients that renew in time could come too late to reclaim"
            )
        for path in (str(self.directory), str(self.state), self.export):
            if any(character in path for character in '"\n\\'):
                raise UsageError(
                    f"NFS server: a path must not contain quotes, backslashes or line ends: {path!r}"
                )
        if not self.export.startswith("/") or len(self.export) == 1:
            raise UsageError(f"NFS server: the export's name must be /NAME, not {self.export!r}")


def times_s(plan: StorePlan) -> tuple[int, int]:
    """Return the lease and the grace of a store's server, in whole seconds as the server has them.

    Raises UsageError for a lease or grace that the server cannot have.

    The grace is at least as long as the lease: a client that renews in time may come as late as
    that to reclaim.
    """
    lease_s, rest = divmod(plan.lease_ms, 1000)
    if rest:
        raise UsageError(
            f"--set store:lease-ms={plan.lease_ms:g}: a real server's lease is whole seconds, for example "
            f"{math.ceil(plan.lease_ms / 1000) * 1000}; use --environment simulation for others"
        )
    lease, grace = int(lease_s), max(math.ceil(plan.grace_ms / 1000), int(lease_s))
    if lease > LEASE_S_MAX or grace > GRACE_S_MAX:
        raise UsageError(
            f"--set store: a real server's lease is {LEASE_S_MAX} s at most and its grace {GRACE_S_MAX} "
            f"s, not {lease} s and {grace} s"
        )
    return lease, grace


def configuration(options: ServerOptions) -> str:
    """Return the text of ``ganesha.conf``.

    It offers only NFSv4.0: this version has the leases and locks that the shared store is about,
    and nothing registers with a port mapper.
    """
    return f"""\
NFS_CORE_PARAM {{
  NFS_Port = {options.port};
  Bind_addr = {options.host};
  Protocols = 4;
  Enable_NLM = false;
  Enable_RQUOTA = false;
  Enable_UDP = false;
}}
NFS_KRB5 {{ Active_krb5 = false; }}
NFSv4 {{
  Lease_Lifetime = {options.lease_s};
  Grace_Period = {options.grace_s};
  RecoveryBackend = fs;
  RecoveryRoot = "{options.state}";
  Minor_Versions = 0;
  Only_Numeric_Owners = true;
  Delegations = false;
}}
EXPORT {{
  Export_Id = 1;
  Path = "{options.directory}";
  Pseudo = "{options.export}";
  Protocols = 4;
  Transports = TCP;
  Access_Type = RW;
  Squash = No_Root_Squash;
  SecType = sys;
  FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""


def command(state: Path) -> list[str]:
    """Return the command line that starts the server in the foreground.

    The server's configuration, log and process number are in ``state``.
    """
    return [
        PROGRAM,
        "-F",
        "-f",
        f"{state}/ganesha.conf",
        "-L",
        f"{state}/ganesha.log",
        "-p",
        f"{state}/ganesha.pid",
    ]


def missing() -> str:
    """Return what this machine lacks to run the server as a process; "" if nothing."""
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} is not installed (sudo apt-get install {' '.join(PACKAGES)})"
    if os.geteuid() != 0:
        return (
            f"{PROGRAM} opens files by handle, which only root may (run as root, or use the docker "
            "environment)"
        )
    return ""


class GaneshaServer:
    """The process of a server.

    ``start`` may be called again after ``kill``: that is the restart that clients must survive.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.child = Child(Path(os.devnull))  # the server writes a log of its own
        self._up_since_s = 0

    async def start(self) -> None:
        """Start the server, and return when it accepts connections.

        Raises InfrastructureError with its last words if it never does.
        """
        if lack := missing():
            raise InfrastructureError(lack)
        options = self.options
        options.directory.mkdir(parents=True, exist_ok=True)
        options.state.mkdir(parents=True, exist_ok=True)
        (options.state / "ganesha.conf").write_text(configuration(options))
        # The numbers that the server gives its clients begin with the second of its start. If it
        # started twice within a second, it would take clients of its former life for expired ones.
        await asyncio.sleep(max(0.0, self._up_since_s + 1.01 - time.time()))
        self.child.start(command(options.state), {})
        try:
            async with asyncio.timeout(_START_S):
                while not await self._accepts():
                    if self.child.exited.is_set():
                        raise InfrastructureError(
                            f"{PROGRAM} ended with status {self.child.status}: {self._last_words()}"
                        )
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            await self.kill()
            raise InfrastructureError(
                f"{PROGRAM} did not accept connections within {_START_S:.0f} s: {self._last_words()}"
            ) from error
        self._up_since_s = int(time.time())

    async def kill(self) -> None:
        """End the server without any clean-up."""
        await self.child.kill()

    async def pause(self) -> None:
        """Stop the server: its connections stand, but nothing answers.

        Returns when the last of its threads has stopped.
        """
        self.child.signal(signal.SIGSTOP)
        while self.child.pid is not None and not _stopped(self.child.pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def resume(self) -> None:
        """Let a paused server go on."""
        self.child.signal(signal.SIGCONT)

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.options.host, self.options.port)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    def _last_words(self) -> str:
        try:
            lines = (self.options.state / "ganesha.log").read_text(errors="replace").splitlines()
        except OSError:
            return "it wrote no log"
        serious = [line for line in lines if any(word in line for word in (":CRIT :", ":MAJ :", ":FATAL :"))]
        return " / ".join(line.rpartition("] ")[2] for line in (serious or lines)[-3:])


def _stopped(pid: int) -> bool:
    """Return whether every thread of a process is stopped; True if the process is gone."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:  # a thread ended during this look: look again, unless all have
        return not Path(f"/proc/{pid}").exists()
    return all(state in "TtZX" for state in states)
