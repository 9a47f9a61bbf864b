"""One node: a container, and the conversation with the agent in it.

The container outlives its broker, and a killed container keeps its name, address and volume, so
that starting it again is what turning a machine on again is.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from environments.agent.control import CONTROL_PORT, ENDED, LOGS, REFUSED, AgentError, call
from harness.interface import Address, InfrastructureError, NodePlan, UsageError

START_TIMEOUT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 0.02


class NodeDownError(Exception):
    """The node's container does not run: a fact of the test, not a failure of the machine."""


class LeaseEndedError(Exception):
    """The agent has healed this fault already."""


class Node:
    """A deployed node.

    ``make`` makes its container; ``published`` maps container ports to ports of 127.0.0.1 where
    containers' own addresses cannot be reached.
    """

    def __init__(
        self,
        plan: NodePlan,
        make: Callable[[], Any],
        address: str,
        token: str,
        published: Mapping[int, int],
    ) -> None:
        self.plan = plan
        self.address = address
        self.lock = asyncio.Lock()  # starting and breaking a node must not overtake each other
        self.up = False
        self.status: int | None = None  # of the last broker that went with its container
        self._make = make
        self._container: Any = None
        self._down = asyncio.Event()  # set when this run of the container ends at our hands
        self._token = token
        self._published = published

    def reach(self, port: int) -> Address:
        """Where this host reaches a port of the container, outside every partition."""
        if port in self._published:
            return Address("127.0.0.1", self._published[port])
        return Address(self.address, port)

    def create(self) -> None:
        """Make the container, which does not run yet. Blocks."""
        self._container = self._engine("make", self._make)

    async def ask(self, operation: str, *, timeout_s: float | None = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """One request to the agent.

        Raises NodeDownError if the container does not run, LeaseEndedError, UsageError for what
        cannot be asked in this state, InfrastructureError for everything else that goes wrong.
        """
        if not self.up:
            raise NodeDownError(self.plan.name)
        host = self.reach(CONTROL_PORT)
        try:
            return await call(host.host, host.port, self._token, operation, timeout_s=timeout_s, **arguments)
        except AgentError as error:
            if error.kind == ENDED:
                raise LeaseEndedError(f"{self.plan.name}: {error}") from error
            if error.kind == REFUSED:
                raise UsageError(f"{self.plan.name}: {error}") from error
            raise InfrastructureError(
                f"{self.plan.name}: {operation} failed in its container: {error}"
            ) from error
        except OSError as error:  # TimeoutError included
            if not self.up or not await asyncio.to_thread(self._container_runs):
                self.up = False
                raise NodeDownError(self.plan.name) from error
            raise InfrastructureError(
                f"{self.plan.name}: its container runs, but the agent in it does not answer "
                f"{operation!r} at {host} "
                f"({type(error).__name__}: {error})"
            ) from error

    async def boot(self) -> bool:
        """Start the container if it does not run, and wait for its agent.

        Whether it had to be started.

        Raises InfrastructureError with the container's last words if it ends at once, or if this
        host cannot reach it.
        """
        if self.up:
            return False
        await asyncio.to_thread(self._engine, "start", self._container.start)
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
                        f"{self.plan.name}: its container runs, but this host cannot reach it at {host} "
                        f"({error}); is a firewall "
                        "between them, or is the engine on another machine?"
                    ) from error
            if time.monotonic() > looked + 0.5:
                looked = time.monotonic()
                if not await asyncio.to_thread(self._container_runs):
                    words = await asyncio.to_thread(self._container.logs, tail=5)
                    text = " / ".join(words.decode(errors="replace").split("\n")).strip(" /")
                    raise InfrastructureError(
                        f"{self.plan.name}: its container ended at once: {text or 'without a word'}"
                    )
            await asyncio.sleep(_RETRY_S)
        self.up = True
        self._down = asyncio.Event()
        return True

    async def wait_exit(self) -> int | None:
        """The exit status of the broker once it has ended, or once its container was killed.

        None if it never ran.
        """
        asking = asyncio.ensure_future(self.ask("wait", timeout_s=None))
        # A killed container's network may vanish before it has said goodbye, so its silence is not
        # waited for.
        falling = asyncio.ensure_future(self._down.wait())
        try:
            await asyncio.wait((asking, falling), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return self.status
            status: int | None = asking.result()["status"]
        except NodeDownError:
            return self.status
        else:
            return status
        finally:
            asking.cancel()
            falling.cancel()

    def abandon(self) -> None:
        """Take the container for gone: it is about to be removed."""
        self.up = False
        self._down.set()

    async def kill(self) -> None:
        """SIGKILL every process of the container; returns when it does not run any more."""
        if not self.up:
            return
        self.status = -9
        self.abandon()
        await asyncio.to_thread(self._kill)

    async def collect(self, destination: Path) -> None:
        """Copy the logs, and what the agent said as ``agent.log``.

        Works for a container that does not run, too. Nothing where none was made.
        """
        if self._container is None:
            return
        await asyncio.to_thread(self._collect, destination)

    async def log(self, position: int) -> bytes:
        """What the broker has logged behind ``position`` (bytes); nothing while there is no log."""
        return (await asyncio.to_thread(self._log))[position:]

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files (relative path -> content) into a directory of the container, which need
        not run. Blocks.
        """
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, content in sorted(files.items()):
                entry = tarfile.TarInfo(f"{directory.lstrip('/')}/{path}")
                entry.size = len(content)
                entry.mode = 0o600  # passwords may be in it
                entry.mtime = int(time.time())
                tar.addfile(entry, io.BytesIO(content))
        self._engine("write the configuration of", self._container.put_archive, "/", archive.getvalue())

    def _kill(self) -> None:
        from docker.errors import APIError  # noqa: PLC0415

        try:
            self._container.kill(signal="SIGKILL")
        except APIError as error:
            if error.status_code != 409:  # it does not run: it ended by itself a moment ago
                raise InfrastructureError(
                    f"cannot kill {self.plan.name}: {error.explanation or error}"
                ) from error
        self._engine("await the end of", self._container.wait, timeout=START_TIMEOUT_S)

    def _collect(self, destination: Path) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        chunks, _ = self._engine("read the logs of", self._container.get_archive, f"{LOGS}/.")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            tar.extractall(destination, filter="data")
        words = self._engine("read the output of", self._container.logs)
        (destination / "agent.log").write_bytes(words)

    def _log(self) -> bytes:
        from docker.errors import NotFound  # noqa: PLC0415

        try:
            chunks, _ = self._container.get_archive(f"{LOGS}/broker.log")
        except NotFound:
            return b""
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            (entry,) = tar.getmembers()
            file = tar.extractfile(entry)
            assert file is not None, f"{LOGS}/broker.log is no file"
            return file.read()

    def _container_runs(self) -> bool:
        self._engine("look at", self._container.reload)
        return bool(self._container.status == "running")

    def _engine(self, what: str, do: Any, *arguments: Any, **options: Any) -> Any:
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            return do(*arguments, **options)
        except (DockerException, OSError) as error:
            reason = getattr(error, "explanation", None) or error
            raise InfrastructureError(f"the engine could not {what} {self.plan.name}: {reason}") from error
