"""The NFSv4 server as a container.

Nfs-ganesha in an image of its own, with an address that containers and this host reach.

Why a container of its own: a partition must be able to cut a broker from its store alone, and to
kill the server's machine is to kill its container. The image also holds Python, the agent (under
which a run's file server is started and broken, see ``environments.docker.file_store``) and the
mount program, so that the same image shows that both ends work in containers.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from environments import ganesha
from environments.agent import AGENT_MODULES
from environments.docker.base_image import REPOSITORY, build, exists, with_packages
from environments.docker.engine import labels
from environments.docker.image import forget_old
from environments.ganesha import ServerOptions, configuration
from environments.payload import ROOT, content_hash
from harness.interface import InfrastructureError

APP: Final = "/opt/nfs"
_SERVER: Final = f"{REPOSITORY}/nfs-server"
VOLUME: Final = "/srv"
EXPORTED: Final = PurePosixPath("/srv/store")
STATE: Final = PurePosixPath("/srv/state")
PORT: Final = 2049
CAPABILITIES: Final = ("DAC_READ_SEARCH",)
"""What the server needs beyond a container's usual rights.

To open files by the handles that clients name.
"""

SECURITY: Final = ("seccomp=unconfined",)
"""Docker's usual filter of system calls has no name_to_handle_at without SYS_ADMIN, which would
be far more than the server needs.
"""

CLIENT_CAPABILITIES: Final = ("SYS_ADMIN",)
CLIENT_DEVICES: Final = ("/dev/fuse:/dev/fuse:rwm",)
"""What a container needs to mount through FUSE.

Where AppArmor is in force also ``apparmor:unconfined``.
"""


def server_image(client: Any, tell: Callable[[str], object]) -> str:
    """The tag of the server's image, made if it is not there yet.

    Raises InfrastructureError if it cannot be made.
    """
    base = with_packages(client, tell, "nfs", ganesha.PACKAGES)
    files = {f"app/{path}": (ROOT / path).read_bytes() for path in AGENT_MODULES}
    files["Dockerfile"] = (
        f"FROM {base}\nCOPY app {APP}\nWORKDIR {APP}\nENV PYTHONPATH={APP} PYTHONUNBUFFERED=1\n"
        f"VOLUME {VOLUME}\nCMD {_json(ganesha.command(Path(STATE)))}\n"
    ).encode()
    tag = f"{_SERVER}:{content_hash(files)}"
    if not exists(client, tag):
        build(client, tag, files, {})
        forget_old(client, _SERVER)
    return tag


def _json(words: list[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


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

    def pause(self) -> None:
        """The process stops; its machine still acknowledges what comes."""
        self._container.kill(signal="SIGSTOP")

    def resume(self) -> None:
        """The process goes on."""
        self._container.kill(signal="SIGCONT")

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
