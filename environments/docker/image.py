"""The image that every node runs: a broker, and the agent that starts and breaks it.

The broker is the project's own, or one of a distribution that the user has.

Two layers, each kept under a tag that is a hash of its content: the broker's dependencies (which
need a network to fetch, and rarely change) and the sources (which change all day, and take a
second). Nothing is installed inside (see ``environments.payload``).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from environments.agent import AGENT_MODULES
from environments.docker.base_image import (
    NEWER_DEBIAN,
    PYTHON_LABEL,
    REPOSITORY,
    Tell,
    base_image,
    build,
    exists,
    with_packages,
)
from environments.docker.engine import IMAGE_LABEL
from environments.homes import Homes
from environments.payload import ROOT, content_hash, pins, site, sources
from harness.interface import Provision

APP: Final = "/opt/jepsen-run/app"
SITE: Final = "/opt/jepsen-run/site"
HOMES: Final = "/opt/jepsen-run/homes"
"""The place of the directories of a system's distribution, each under its name."""

_NODE: Final = f"{REPOSITORY}/node"
_KEPT: Final = 5


def node_image(client: Any, tell: Tell) -> str:
    """Return the tag of the image for the sources as they are now; build it if it is missing.

    ``tell`` gets one line before anything that takes long. Raises InfrastructureError if the image
    cannot be built.
    """
    base = base_image(client, tell)
    dependencies = _dependencies_image(client, base, pins(), tell)
    files = {f"app/{path}": content for path, content in sources(ROOT).items()}
    files["Dockerfile"] = (
        f"FROM {dependencies}\nCOPY app {APP}\n"
        f"RUN python3 -m compileall -q --invalidation-mode unchecked-hash {APP}\n"
        f"WORKDIR {APP}\n"
        f"ENV PYTHONPATH={APP}:{SITE} PYTHONUNBUFFERED=1\n"
        'CMD ["python3", "-m", "environments.agent.agent"]\n'
    ).encode()
    tag = f"{_NODE}:{content_hash(files)}"
    if not exists(client, tag):
        tell("building the node image from these sources (a few seconds)")
        build(client, tag, files, {IMAGE_LABEL: tag.partition(":")[2]})
        _forget_old(client, _NODE)
    return tag


def system_image(client: Any, tell: Tell, name: str, provision: Provision) -> str:
    """Return the tag of the image for a system's brokers, as the user has them, with our agent.

    Three layers: the runtime from Debian's packages, the distribution, the agent. A layer that
    exists needs no network. Raises InfrastructureError if the image cannot be made.
    """
    packages = [runtime.package for runtime in provision.runtimes] + list(provision.packages)
    base = (
        with_packages(client, tell, "runtime", packages, debian=NEWER_DEBIAN)
        if packages
        else base_image(client, tell)
    )
    homes = Homes(provision)
    kind = f"{REPOSITORY}/{name}-home"
    tag = f"{kind}:{hashlib.sha256(f'{base} {homes.hash}'.encode()).hexdigest()[:16]}"
    if not exists(client, tag):
        tell(f"building the image with the distribution of {name} (a few seconds, once)")
        files = {f"homes/{path}": content for path, content in homes.files.items()}
        files["Dockerfile"] = f"FROM {base}\nCOPY homes {HOMES}\n".encode()
        build(client, tag, files, {}, {f"homes/{path}" for path in homes.executable})
        _forget_old(client, kind)
    return _with_agent(client, f"{name}-node", tag, AGENT_MODULES, "environments.agent.agent")


def server_image(
    client: Any,
    tell: Tell,
    kind: str,
    packages: Sequence[str],
    modules: Iterable[str],
    agent: str,
    without: Sequence[str] = (),
) -> str:
    """Return the tag of the image of a server that brokers need, with our agent.

    The image is made if it is missing. It holds the server's ``packages`` but for the files
    ``without``, and our ``modules``, of which it runs ``agent``. Raises InfrastructureError if it
    cannot be made.
    """
    base = with_packages(client, tell, kind, packages, without)
    return _with_agent(client, f"{kind}-server", base, modules, agent)


def _with_agent(client: Any, kind: str, base: str, modules: Iterable[str], agent: str) -> str:
    files = {f"app/{path}": (ROOT / path).read_bytes() for path in modules}
    files["Dockerfile"] = (
        f"FROM {base}\nCOPY app {APP}\nWORKDIR {APP}\nENV PYTHONPATH={APP} PYTHONUNBUFFERED=1\n"
        f'CMD ["python3", "-m", "{agent}"]\n'
    ).encode()
    name = f"{REPOSITORY}/{kind}"
    tag = f"{name}:{content_hash(files)}"
    if not exists(client, tag):
        build(client, tag, files, {})
        _forget_old(client, name)
    return tag


def _dependencies_image(client: Any, base: str, wanted: Sequence[str], tell: Tell) -> str:
    details = client.images.get(base)
    python = details.labels.get(PYTHON_LABEL, "3.11")
    architecture = details.attrs["Architecture"]
    recipe = "\n".join((base, python, architecture, *wanted)).encode()
    tag = f"{REPOSITORY}/dependencies:{hashlib.sha256(recipe).hexdigest()[:16]}"
    if exists(client, tag):
        return tag
    tell(f"fetching {', '.join(wanted)} for Python {python} on {architecture} (once)")
    files = {f"site/{path}": content for path, content in site(wanted, python, architecture).items()}
    files["Dockerfile"] = (
        f"FROM {base}\nCOPY site {SITE}\nRUN python3 -m compileall -q --invalidation-mode "
        f"unchecked-hash {SITE}\n"
    ).encode()
    build(client, tag, files, {IMAGE_LABEL: tag.partition(":")[2]})
    return tag


def _forget_old(client: Any, kind: str) -> None:
    """Remove all images of a kind but the newest few.

    Otherwise the image of every edit of the sources would stay for ever.
    """
    from docker.errors import APIError  # noqa: PLC0415

    tags = {tag: found.attrs["Created"] for found in client.images.list(name=kind) for tag in found.tags}
    ours = [tag for tag in tags if tag.startswith(f"{kind}:")]
    for tag in sorted(ours, key=lambda tag: tags[tag], reverse=True)[_KEPT:]:
        with contextlib.suppress(APIError):  # a container of another run uses it, or another run removed it
            client.images.remove(tag)
