"""The agent of a node, which is PID 1 of a container.

It starts its program (a broker, or a server that brokers need), breaks what it is told to break,
and heals each fault whose lease is not renewed.

Why an agent inside: a fault must end by itself when the harness is killed, and only a process that
lives on the node can see to that. The broker is a child, so the container outlives its broker: its
logs, its address and the faults in force stay. ``python -m environments.agent.agent`` runs it;
``--missing`` prints what this kernel cannot do and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from environments.agent.child import Child, reap
from environments.agent.clock import Clock
from environments.agent.control import (
    CLOCK,
    CONTROL_HOST_VARIABLE,
    CONTROL_PORT,
    DATA,
    DEVICE_VARIABLE,
    DISK,
    LINE_BYTES_MAX,
    LOGS,
    ORPHAN_VARIABLE,
    RULES,
    TOKEN_VARIABLE,
)
from environments.agent.disk import NodeDisk
from environments.agent.firewall import Firewall, missing
from environments.agent.prober import Prober, clock
from environments.agent.program import Program
from environments.agent.server import Agent
from environments.agent.store_client import StoreClient
from environments.board import FaultBoard
from environments.part import Part
from filesystems.nfs import asking

_LOG_BYTES: Final = LINE_BYTES_MAX // 8  # JSON takes up to six bytes for one


class NodeAgent(Agent):
    """The agent of a machine that runs one program."""

    def __init__(self, token: str, program: Program | None = None, *parts: Part) -> None:
        self._firewall = Firewall(os.environ.get(DEVICE_VARIABLE, "eth0"))
        self._program = program or Program(Child(Path(LOGS) / "broker.log"))
        self._child = self._program.child
        self._store = StoreClient(Path(LOGS) / "nfs-client.log", say)
        self._disk = NodeDisk(Path(LOGS) / "disk.log")
        self._clock = Clock(Path(CLOCK))
        self._prober = Prober()
        # A restarted container must not take an old lease's name for one of its own.
        prefix = os.urandom(4).hex()
        of_all = (self._firewall, self._program, self._disk, self._clock, *parts)
        super().__init__(token, FaultBoard(of_all, prefix=prefix, say=say))
        self._missing: dict[str, str] = {}
        self._orphaned: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Answer until a SIGTERM, or until requests stay away; then leave nothing in force."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, reap, (self._child, self._store.child))
        loop.add_signal_handler(signal.SIGTERM, self.ended.set)
        await self._prober.listen()  # first: a second agent on this machine must fail before it touches rules
        Path(RULES).write_text(self._firewall.device)  # noqa: ASYNC240 - a few bytes, once
        self._missing = missing()
        host = os.environ.get(CONTROL_HOST_VARIABLE, "0.0.0.0")
        server = await self.listen(host, CONTROL_PORT)
        self.heard()
        say(f"agent ready on port {CONTROL_PORT}")
        async with server:
            await self.ended.wait()
            self._program.end()
        await self.board.heal_all()

    def heard(self) -> None:
        """Take note of a request; the agent ends after ORPHAN_VARIABLE's seconds without one."""
        if self._orphaned is not None:
            self._orphaned.cancel()
        patience_s = float(os.environ.get(ORPHAN_VARIABLE, "0"))
        if patience_s:
            self._orphaned = asyncio.get_running_loop().call_later(patience_s, self.ended.set)

    # ---- the broker

    async def do_hello(self) -> dict[str, Any]:
        """Return what this kernel cannot do; any answer shows that the agent is up."""
        return {"missing": self._missing}

    async def do_start(self, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
        """Start the broker; it never starts paused, whatever happened to the one before it."""
        pid = self._child.start(command, environment)
        say(f"broker started as pid {pid}")
        return {"pid": pid}

    async def do_state(self) -> dict[str, Any]:
        """Return the broker's state as the kernel sees it, and its last exit status."""
        reap((self._child, self._store.child))
        return {"state": self._child.state(), "status": self._child.status}

    async def do_wait(self) -> dict[str, Any]:
        """Answer as soon as no broker runs, with its last exit status."""
        await self._child.exited.wait()
        return {"status": self._child.status}

    async def do_log(self, position: int | None) -> dict[str, Any]:
        """Return what the broker has logged behind a position (bytes), at most `_LOG_BYTES` of it.

        The answer also says where the log ends now. For the position None it has no text.
        """
        try:
            with Path(LOGS, "broker.log").open("rb") as log:  # noqa: ASYNC230 - a local file
                end = log.seek(0, os.SEEK_END)
                log.seek(end if position is None else position)
                return {"end": end, "text": log.read(_LOG_BYTES).decode("latin-1")}
        except FileNotFoundError:  # it has not been started yet
            return {"end": 0, "text": ""}

    async def do_kill(self) -> dict[str, Any]:
        """Send SIGKILL to the broker's process group; answers when the broker is gone."""
        self._child.signal(signal.SIGKILL)
        return await self.do_wait()

    async def do_terminate(self) -> None:
        """Send SIGTERM to the broker's process group."""
        self._child.signal(signal.SIGTERM)

    async def do_destroy_data(self) -> dict[str, Any]:
        """Remove what the stopped broker has on disk."""
        if self._child.pid is not None:
            raise RuntimeError(
                f"the broker runs, as pid {self._child.pid}: stop or kill it before its data is destroyed"
            )
        removed = await asyncio.to_thread(clear, Path(DISK if self._disk.mounted else DATA))
        say(f"the data of the broker are destroyed: {removed} entries removed")
        return {"removed": removed}

    # ---- a disk that can break

    async def do_disk(self) -> None:
        """Mount the disk that can break in front of the node's data, unless it is mounted."""
        await self._disk.begin()

    async def do_look_at_disk(self) -> dict[str, Any]:
        """Return the condition of the disk, in a phrase."""
        return {"seen": await self._disk.ask("probe")}

    async def do_lose_power(self) -> dict[str, Any]:
        """Kill the broker, and let the disk lose everything that was not synced."""
        self._child.signal(signal.SIGKILL)
        await self._child.exited.wait()
        return {"lost": await self._disk.ask("power-loss")}

    async def do_corrupt(self, damage: dict[str, Any]) -> dict[str, Any]:
        """Damage what the stopped broker has on disk, and say where; null if there is nothing."""
        if self._child.pid is not None:
            raise RuntimeError(
                f"the broker runs, as pid {self._child.pid}: kill it before its disk is damaged"
            )
        return {"where": await self._disk.ask("corrupt", damage)}

    async def do_look_at_clock(self) -> dict[str, Any]:
        """Return the state of the machine's clock, in a phrase."""
        return {"seen": await self._clock.look("")}

    # ---- a shared directory

    async def do_mount(self, source: str, directory: str, options: str) -> None:
        """Mount a shared directory from now on; a program that needs it waits for the mount.

        See ``filesystems.nfs.await_mount``.
        """
        self._store.begin(source, directory, options)

    async def do_ask_store(self, server: str, server_port: int, patience_s: float) -> dict[str, Any]:
        """Return whether a file server answers this machine, in a phrase."""
        return {"seen": await asking.ask(server, server_port, patience_s)}

    # ---- faults

    async def do_inject(self, fault: dict[str, Any], lease_s: float) -> dict[str, Any]:
        """Begin a fault of one part or of several, and return the name of its lease."""
        faults = [self.board.fault(name, (), (), wanted) for name, wanted in fault.items() if wanted]
        return {"lease": await self.board.begin(faults, lease_s)}

    async def do_probe(self, targets: dict[str, str], patience_s: float) -> dict[str, Any]:
        """Try the links to other nodes; see `Prober.probe`."""
        return await self._prober.probe(targets, patience_s)

    async def do_arrived(self, nonces: list[str]) -> dict[str, Any]:
        """Return which datagrams of other nodes arrived here, and how long they took."""
        return self._prober.arrived(nonces)

    async def do_now(self) -> dict[str, Any]:
        """Return the reading and the name of the monotonic clock that measures datagrams."""
        return {"clock": clock(), "ms": time.monotonic_ns() / 1e6}


def clear(directory: Path) -> int:
    """Remove everything in a directory, but not the directory itself (a volume is mounted there).

    Returns how many entries the directory had.
    """
    removed = 0
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
        removed += 1
    return removed


def say(text: str) -> None:
    """Print a line for ``docker logs``, and so for the logs that are collected."""
    with contextlib.suppress(OSError):  # a full disk must not keep faults from being healed
        print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


def main(kind: type[NodeAgent] = NodeAgent) -> None:
    """Run an agent, or print what this kernel cannot do."""
    if sys.argv[1:] == ["--missing"]:
        print(json.dumps(missing()))
        return
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        raise SystemExit(f"{TOKEN_VARIABLE} is not set: this agent is started by the harness only")
    for directory in (DATA, LOGS):
        Path(directory).mkdir(parents=True, exist_ok=True)
    try:
        asyncio.run(kind(token).serve())
    except OSError as error:
        raise SystemExit(f"{error}: does another run use this machine?") from None


if __name__ == "__main__":
    main()
