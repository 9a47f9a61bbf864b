"""The image of our NFSv4 server as a container by itself, without an agent."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from environments.docker.engine import labels
from environments.docker.file_store import CAPABILITIES, PORT, SECURITY
from environments.ganesha import ServerOptions, command, configuration
from harness.interface import InfrastructureError

VOLUME = "/srv"
EXPORTED = f"{VOLUME}/store"
STATE = f"{VOLUME}/state"


class ServerContainer:
    """A server in a container; its methods block.

    ``start`` after ``kill`` is the restart of its machine: export and state stay.
    """

    def __init__(
        self, client: Any, run: str, image: str, network: str, address: str, *, lease_s: int, grace_s: int
    ) -> None:
        self.address = address
        self._client = client
        self._name = f"{run}-nfs"
        options = ServerOptions(
            directory=Path(EXPORTED),
            state=Path(STATE),
            port=PORT,
            host="0.0.0.0",
            lease_s=lease_s,
            grace_s=grace_s,
        )
        self.options = replace(options, host=address)
        client.volumes.create(self._name, labels=labels(run))
        self._container = client.containers.create(
            image,
            command(Path(STATE)),
            name=self._name,
            hostname="nfs",
            network=network,
            networking_config={
                network: client.api.create_endpoint_config(ipv4_address=address, aliases=["nfs"])
            },
            volumes={self._name: {"bind": VOLUME, "mode": "rw"}},
            labels=labels(run),
            cap_add=list(CAPABILITIES),
            security_opt=list(SECURITY),
        )
        self._container.put_archive("/srv", _archive(configuration(options)))

    def start(self) -> None:
        """Start it; who mounts waits until it answers."""
        self._container.start()

    def kill(self) -> None:
        """Its machine loses its power."""
        self._container.kill()
        self._container.wait()

    def run(self, *words: str) -> str:
        """What a command says in the container. Raises InfrastructureError if it fails."""
        status, said = self._container.exec_run(list(words))
        if status:
            raise InfrastructureError(
                f"{self._name}: {' '.join(words)} failed: {said.decode(errors='replace').strip()}"
            )
        text: str = said.decode(errors="replace")
        return text

    def log(self) -> str:
        """Ganesha's own log."""
        return self.run("cat", f"{STATE}/ganesha.log")

    def remove(self) -> None:
        """The container and its volume, whatever state they are in."""
        self._container.remove(force=True)
        self._client.volumes.get(self._name).remove(force=True)


def _archive(text: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("store", "state"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
        entry = tarfile.TarInfo("state/ganesha.conf")
        entry.size, entry.mode = len(text.encode()), 0o644
        archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()
