"""The NFSv4 server as a container.

Nfs-ganesha in an image of its own, with an address that containers and this host reach.

Why a container of its own: a partition must be able to cut a broker from its store alone, and to
kill the server's machine is to kill its container. The image also holds Python, the agent (under
which a run's file server is started and broken, see ``environments.docker.file_store``) and the
mount program, so that the same image shows that both ends work in containers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from environments import ganesha
from environments.agent import AGENT_MODULES
from environments.docker.base_image import REPOSITORY, build, exists, with_packages
from environments.docker.image import forget_old
from environments.payload import ROOT, content_hash

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
