"""A container as a machine, through the engine's SDK. Everything here blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from environments.agent.control import DATA, ROOT, TOKEN_VARIABLE
from environments.docker.engine import labels
from environments.machines.node import START_TIMEOUT_S
from environments.payload import archive
from harness.interface import Address, InfrastructureError

_LOG_BYTES_MAX: Final = "20m"


@dataclass(kw_only=True)
class Container:
    """A ``machines.node.Machine``.

    ``published`` maps its ports to ports of 127.0.0.1 where containers' own addresses cannot be
    reached. ``options`` are what it needs in addition to others', as the engine's SDK names it.
    """

    client: Any
    run: str
    node: str
    image: str
    network: str
    address: str
    token: str
    published: Mapping[int, int]
    options: Mapping[str, Any]
    homes: Mapping[str, str]
    root: str = field(default=ROOT, init=False)
    mortal: bool = field(default=True, init=False)
    _container: Any = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The container's name in messages."""
        return f"the container of {self.node}"

    def reach(self, port: int) -> Address:
        """Return the container's own address, or the port of this host that stands for it."""
        if port in self.published:
            return Address("127.0.0.1", self.published[port])
        return Address(self.address, port)

    def create(self) -> None:
        """Make the container, with its volume."""
        self._engine("make", self._create)

    def _create(self) -> None:
        from docker.types import LogConfig  # noqa: PLC0415

        name, its = f"{self.run}-{self.node}", labels(self.run)
        self.client.volumes.create(name, labels=its)
        endpoint = self.client.api.create_endpoint_config(ipv4_address=self.address, aliases=[self.node])
        self._container = self.client.containers.create(
            self.image,
            name=name,
            hostname=self.node,
            network=self.network,
            networking_config={self.network: endpoint},
            volumes={name: {"bind": DATA, "mode": "rw"}},
            labels=its,
            ports={f"{inside}/tcp": ("127.0.0.1", outside) for inside, outside in self.published.items()},
            log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": _LOG_BYTES_MAX}),
            **{
                **self.options,
                "environment": {TOKEN_VARIABLE: self.token},
                # NET_ADMIN: packet filters and queueing disciplines of its own network namespace
                "cap_add": ["NET_ADMIN", *self.options.get("cap_add", ())],
            },
        )

    def begin(self) -> None:
        """Start the container; its program is the agent."""
        self._engine("start", self._container.start)

    def runs(self) -> bool:
        """Return whether the container runs, as the engine sees it."""
        self._engine("look at", self._container.reload)
        return bool(self._container.status == "running")

    def halt(self) -> None:
        """Kill all processes of the container, and wait for its end."""
        from docker.errors import APIError  # noqa: PLC0415

        try:
            self._container.kill(signal="SIGKILL")
        except APIError as error:
            if error.status_code != 409:  # the container does not run: it ended by itself a moment ago
                raise InfrastructureError(f"cannot kill {self.name}: {error.explanation or error}") from error
        self._engine("await the end of", self._container.wait, timeout=START_TIMEOUT_S)

    def words(self) -> bytes:
        """Return what ``docker logs`` shows."""
        said: bytes = self._engine("read the output of", self._container.logs)
        return said

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files; see `Machine.put`. The container need not run."""
        content = archive({f"{directory.lstrip('/')}/{path}": files[path] for path in sorted(files)})
        self._engine("write the configuration of", self._container.put_archive, "/", content)

    def fetch(self, path: str) -> bytes:
        """Return files; see `Machine.fetch`. The container need not run."""
        from docker.errors import APIError, NotFound  # noqa: PLC0415

        def read() -> bytes:
            try:
                chunks, _ = self._container.get_archive(f"{path}/.")
            except NotFound:
                return b""
            except APIError:  # no directory
                chunks, _ = self._container.get_archive(path)
            # Read to the end: until then the engine lets no other request have this container.
            return b"".join(chunks)

        return self._engine("read the files of", read)  # type: ignore[no-any-return]

    def _engine(self, what: str, do: Any, *arguments: Any, **options: Any) -> Any:
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            return do(*arguments, **options)
        except (DockerException, OSError) as error:
            reason = getattr(error, "explanation", None) or error
            raise InfrastructureError(f"the engine could not {what} {self.name}: {reason}") from error
