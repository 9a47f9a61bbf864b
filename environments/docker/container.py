"""A container as a machine: what the engine's SDK does of it. Everything here blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from environments.agent.control import ROOT
from environments.host import CommandError, archive
from environments.machines.node import START_TIMEOUT_S
from harness.interface import Address, InfrastructureError

_IS_DIRECTORY: Final = 1 << 31
"""Of a mode as Go has them."""


class Container:
    """A ``machines.node.Machine``.

    ``make`` makes it; ``published`` maps its ports to ports of 127.0.0.1 where containers' own
    addresses cannot be reached.
    """

    root = ROOT
    mortal = True

    def __init__(
        self, node: str, make: Callable[[], Any], address: str, published: Mapping[int, int]
    ) -> None:
        self.name = f"the container of {node}"
        self.address = address
        self._make = make
        self._published = published
        self._container: Any = None

    def reach(self, port: int) -> Address:
        """Its own address, or the port of this host that stands for it."""
        if port in self._published:
            return Address("127.0.0.1", self._published[port])
        return Address(self.address, port)

    def create(self) -> None:
        """Make it."""
        self._container = self._engine("make", self._make)

    def begin(self) -> None:
        """Start it; its agent is its program."""
        self._engine("start", self._container.start)

    def runs(self) -> bool:
        """As the engine sees it."""
        self._engine("look at", self._container.reload)
        return bool(self._container.status == "running")

    def halt(self) -> None:
        """SIGKILL to all of it."""
        from docker.errors import APIError  # noqa: PLC0415

        try:
            self._container.kill(signal="SIGKILL")
        except APIError as error:
            if error.status_code != 409:  # it does not run: it ended by itself a moment ago
                raise InfrastructureError(f"cannot kill {self.name}: {error.explanation or error}") from error
        self._engine("await the end of", self._container.wait, timeout=START_TIMEOUT_S)

    def words(self) -> bytes:
        """What ``docker logs`` shows."""
        said: bytes = self._engine("read the output of", self._container.logs)
        return said

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """As `Host`'s; the container need not run."""
        content = archive({f"{directory.lstrip('/')}/{path}": files[path] for path in sorted(files)})
        self._engine("write the configuration of", self._container.put_archive, "/", content)

    def run(self, argv: Sequence[str], *, text: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """As `Host`'s, in a container that runs; the engine takes no input and no time limit."""
        del timeout_s
        assert not text, "the engine's SDK has no input for a program"
        status, said = self._engine("run a program in", self._container.exec_run, list(argv))
        if status:
            raise CommandError(" ".join(said.decode(errors="replace").split()), status)
        output: bytes = said
        return output

    def fetch(self, path: str) -> bytes:
        """As `Host`'s; the container need not run."""
        from docker.errors import NotFound  # noqa: PLC0415

        try:
            chunks, found = self._container.get_archive(path)
            if found["mode"] & _IS_DIRECTORY:
                chunks, _ = self._container.get_archive(f"{path}/.")
        except NotFound:
            return b""
        return self._engine("read the files of", b"".join, chunks)  # type: ignore[no-any-return]

    def _engine(self, what: str, do: Any, *arguments: Any, **options: Any) -> Any:
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            return do(*arguments, **options)
        except (DockerException, OSError) as error:
            reason = getattr(error, "explanation", None) or error
            raise InfrastructureError(f"the engine could not {what} {self.name}: {reason}") from error
