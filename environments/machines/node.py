"""A node: a machine, and the conversation with the agent on it.

The machine outlives its broker. A killed container keeps its name, address and volume, so that
starting it again is the same as switching a machine on again.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import posixpath
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from environments.agent.control import CONTROL_PORT, ENDED, REFUSED, AgentError, call
from harness.interface import Address, InfrastructureError, Layout, NodePlan, UsageError

START_TIMEOUT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 0.02


class NodeDownError(Exception):
    """The node's machine does not run: a fact of the test, not a failure of the environment."""


class LeaseEndedError(Exception):
    """The agent has healed this fault already."""


class Machine(Protocol):
    """A machine with an agent of ours on it. Everything of the node there lies below ``root``.

    Each method blocks. It raises InfrastructureError, which names the machine, if the machine
    cannot be reached or refuses.
    """

    root: str
    homes: Mapping[str, str]
    """The ``Layout.homes`` of the machine, known once the machine is."""
    mortal: bool
    """True if the machine itself is killed: its broker, agent and network at once.

    This is so for a container. On a machine that is not ours to end, the agent ends the broker
    alone.
    """

    @property
    def name(self) -> str:
        """The machine's name in messages."""
        ...

    @property
    def address(self) -> str:
        """The address by which the other machines of the deployment reach it."""
        ...

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files (relative path -> content), readable by their owner alone.

        The directories above them are made.
        """
        ...

    def fetch(self, path: str) -> bytes:
        """Return a file, or all files in a directory, as a tar archive; empty if there is none."""
        ...

    def reach(self, port: int) -> Address:
        """Return where this process reaches a TCP port of it, outside every partition."""
        ...

    def create(self) -> None:
        """Make the machine if it is ours to make; it does not run yet."""
        ...

    def begin(self) -> None:
        """Start the machine's agent, and the machine before that, if it is ours to start."""
        ...

    def runs(self) -> bool:
        """Return whether agent and machine run."""
        ...

    def halt(self) -> None:
        """End a mortal machine; returns when nothing of it runs any more."""
        ...

    def words(self) -> bytes:
        """Return the output of the agent."""
        ...


class Node:
    """A deployed node."""

    def __init__(
        self, plan: NodePlan, machine: Machine, token: str, in_thread: Callable[..., Any] = asyncio.to_thread
    ) -> None:
        self.plan = plan
        self.machine = machine
        self.reach = machine.reach
        self.lock = asyncio.Lock()  # starting and breaking a node must not overtake each other
        self.up = False
        self.made = False
        self.status: int | None = None  # the exit status of a broker that was killed with its machine
        self._down = asyncio.Event()  # set when we end the machine or give it up; a new one for each boot
        self._left: bytes | None = None  # the log of a machine that does not run
        self._token = token
        self._in_thread = in_thread

    @property
    def address(self) -> str:
        """The address by which the other machines reach it."""
        return self.machine.address

    @property
    def layout(self) -> Layout:
        """The directories of the node's broker."""
        root = self.machine.root
        return Layout(etc=f"{root}/etc", data=f"{root}/data", logs=f"{root}/logs", homes=self.machine.homes)

    def create(self, files: Mapping[str, bytes]) -> None:
        """Make the machine with these configuration files; it does not run yet. Blocks."""
        self.machine.create()
        self.made = True
        self.configure(files)

    def configure(self, files: Mapping[str, bytes]) -> None:
        """Replace configuration files; the machine need not run. Blocks."""
        self.machine.put(self.layout.etc, files)

    def copy_data(self, source: Node) -> None:
        """Write the files that a node's stopped broker has on disk to this node's disk. Blocks."""
        self.write_data(source.read_data())

    def read_data(self) -> dict[str, bytes]:
        """Return the files that the node's stopped broker has on disk, by path. Blocks."""
        archive = self.machine.fetch(self.layout.data)
        if not archive:  # no broker has ever run there
            return {}
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            return {
                posixpath.normpath(member.name): file.read()
                for member in tar
                if (file := tar.extractfile(member)) is not None
            }

    def write_data(self, files: Mapping[str, bytes]) -> None:
        """Write files to the disk of the node's stopped broker. Blocks."""
        if files:
            self.machine.put(self.layout.data, files)

    async def ask(self, operation: str, *, timeout_s: float | None = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Send a request to the agent, and return its answer.

        Raises NodeDownError if the machine does not run or is killed meanwhile, whose network may
        vanish before it has said goodbye. Raises LeaseEndedError, UsageError for what cannot be
        asked in this state, and InfrastructureError for everything else that goes wrong.
        """
        if not self.up:
            raise NodeDownError(self.plan.name)
        host, down = self.reach(CONTROL_PORT), self._down
        asking = asyncio.ensure_future(
            call(host.host, host.port, self._token, operation, timeout_s=timeout_s, **arguments)
        )
        falling = asyncio.ensure_future(down.wait())
        try:
            await asyncio.wait((asking, falling), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise NodeDownError(self.plan.name)
            return asking.result()
        except AgentError as error:
            if error.kind == ENDED:
                raise LeaseEndedError(f"{self.plan.name}: {error}") from error
            if error.kind == REFUSED:
                raise UsageError(f"{self.plan.name}: {error}") from error
            raise InfrastructureError(
                f"{self.plan.name}: {operation} failed on {self.machine.name}: {error}"
            ) from error
        except OSError as error:  # TimeoutError included
            if not down.is_set():
                if await asyncio.to_thread(self.machine.runs) or not self.machine.mortal:
                    raise InfrastructureError(
                        f"{self.plan.name}: the agent on {self.machine.name} does not answer {operation!r} "
                        f"at {host} ({type(error).__name__}: {error})"
                    ) from error
                self.up = False
            raise NodeDownError(self.plan.name) from error
        finally:
            asking.cancel()
            falling.cancel()

    async def look(self, operation: str, answer: str = "seen") -> str:
        """Return what the agent sees of a part, in a phrase; "gone" if the machine does not run."""
        try:
            return str((await self.ask(operation))[answer])
        except NodeDownError:
            return "gone"

    async def boot(self) -> bool:
        """Start the machine's agent if it does not run, and wait for it.

        Returns whether it had to be started. Raises InfrastructureError with its last words if it
        ends at once, or if this host cannot reach it.
        """
        if self.up:
            return False
        await self._in_thread(self.machine.begin)
        host = self.reach(CONTROL_PORT)
        deadline = time.monotonic() + START_TIMEOUT_S
        looked = time.monotonic()
        while True:
            try:
                await call(host.host, host.port, self._token, "hello", timeout_s=2.0)
                break
            except AgentError as error:
                raise InfrastructureError(f"{self.plan.name}: {error}") from error
            except OSError as error:
                if time.monotonic() > deadline:
                    raise InfrastructureError(
                        f"{self.plan.name}: {self.machine.name} runs, but this host cannot reach its agent "
                        f"at {host} ({error}); is a firewall between them, or is it on another machine?"
                    ) from error
            if time.monotonic() > looked + 0.5:
                looked = time.monotonic()
                if not await asyncio.to_thread(self.machine.runs):
                    words = await asyncio.to_thread(self.machine.words)
                    lines = words.decode(errors="replace").strip().split("\n")[-5:]
                    text = " / ".join(filter(None, lines))
                    raise InfrastructureError(
                        f"{self.plan.name}: {self.machine.name} ended at once: {text or 'without a word'}"
                    )
            await asyncio.sleep(_RETRY_S)
        self.up = True
        self._down = asyncio.Event()
        self._left = None
        return True

    async def wait_exit(self) -> int | None:
        """Return the broker's exit status once it has ended, or once its machine was killed.

        Returns None if it never ran.
        """
        try:
            return (await self.ask("wait", timeout_s=None))["status"]  # type: ignore[no-any-return]
        except NodeDownError:
            return self.status

    def abandon(self) -> None:
        """Consider the machine gone, because it is being killed or removed."""
        self.up = False
        self._down.set()

    async def kill(self) -> None:
        """Kill every process of the machine, or only its broker if the machine is not ours to end.

        Returns when what was killed does not run any more.
        """
        if not self.up:
            return
        if self.machine.mortal:
            self.status = -9
            self.abandon()
            await self._in_thread(self.machine.halt)
        else:
            await self.ask("kill")

    async def collect(self, destination: Path) -> None:
        """Copy the logs, and the agent's output as ``agent.log``.

        This works for a machine that does not run, too. It does nothing if the machine was never
        made.
        """
        if self.made:
            await asyncio.to_thread(self._collect, destination)

    async def log(self, position: int | None) -> tuple[bytes, int]:
        """Return a piece of the broker's log behind ``position`` (bytes), and where the log ends.

        The log of a machine that does not run is fetched once, since nothing is added to it.
        """
        with contextlib.suppress(NodeDownError):
            answer = await self.ask("log", position=position)
            return answer["text"].encode("latin-1"), answer["end"]
        async with self.lock:  # a kill under way holds the lock until the machine has ended
            if not self.up and self._left is None:
                self._left = await asyncio.to_thread(self._log_left)
            left = self._left or b""
        return left[position:], len(left)

    def _collect(self, destination: Path) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        archive = self.machine.fetch(self.layout.logs)
        if archive:  # otherwise its agent was never started
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(destination, filter="data")
        (destination / "agent.log").write_bytes(self.machine.words())

    def _log_left(self) -> bytes:
        archive = self.machine.fetch(f"{self.layout.logs}/broker.log")
        if not archive:
            return b""
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            file = tar.extractfile(tar.getmembers()[0])
            assert file is not None, "a log is a file"
            return file.read()
