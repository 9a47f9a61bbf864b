"""The image that every node runs.

The project's own broker, and the agent that starts and breaks it.

Two layers, each kept under a tag that is a hash of its content: the broker's dependencies (which
need a network to fetch, and rarely change) and the sources (which change all day, and take a
second). Nothing is installed inside: a container may not trust the certificates that its host
trusts, so wheels are fetched outside, for the image's own Python version, and unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from environments import scratch
from environments.agent import AGENT_MODULES
from environments.docker.base_image import PYTHON_LABEL, REPOSITORY, Tell, base_image, build
from environments.docker.engine import IMAGE_LABEL
from harness.interface import InfrastructureError

BROKER_PACKAGES: Final = ("broker", "stomp_protocol")
"""The broker, and what of our own it imports."""

BROKER_REQUIREMENTS: Final = (
    "click",
    "google-crc32c",
    "h11",
    "msgspec",
    "psycopg",
    "psycopg-binary",
    "typing-extensions",
    "uvloop",
    "wsproto",
)
"""What these import besides the standard library, and what that imports in turn.

A test compares this with its import statements.
"""

APP: Final = "/opt/jepsen-run/app"
SITE: Final = "/opt/jepsen-run/site"

ROOT: Final = Path(__file__).resolve().parents[2]
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_FETCH_TIMEOUT_S: Final = 180.0
_NODE: Final = f"{REPOSITORY}/node"
_KEPT: Final = 5


def node_image(client: Any, tell: Tell) -> str:
    """The tag of the image for the sources as they are now, built if it is not there yet.

    ``tell`` is given one line before anything that takes long. Raises InfrastructureError if it
    cannot be built.
    """
    base = base_image(client, tell)
    requirements = {name: importlib.metadata.version(name) for name in BROKER_REQUIREMENTS}
    dependencies = _dependencies_image(client, base, requirements, tell)
    files = {f"app/{path}": content for path, content in sources(ROOT).items()}
    files["Dockerfile"] = (
        f"FROM {dependencies}\nCOPY app {APP}\n"
        f"RUN python3 -m compileall -q --invalidation-mode unchecked-hash {APP}\n"
        f"WORKDIR {APP}\n"
        f"ENV PYTHONPATH={APP}:{SITE} PYTHONUNBUFFERED=1\n"
        'CMD ["python3", "-m", "environments.agent.agent"]\n'
    ).encode()
    tag = f"{_NODE}:{content_hash(files)}"
    if not _exists(client, tag):
        tell("building the node image from these sources (a few seconds)")
        _build(client, tag, files)
        forget_old(client, _NODE)
    return tag


def sources(root: Path) -> dict[str, bytes]:
    """What is copied into the image: the broker and the agent, path -> content."""
    paths = sorted(
        path
        for package in BROKER_PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.suffix != ".pyc"}
    found.update({name: (root / name).read_bytes() for name in AGENT_MODULES})
    return found


def content_hash(files: Mapping[str, bytes]) -> str:
    """The same for the same files, whatever their order, times and owners."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{len(path.encode())} {path} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _dependencies_image(client: Any, base: str, requirements: Mapping[str, str], tell: Tell) -> str:
    details = client.images.get(base)
    python = details.labels.get(PYTHON_LABEL, "3.11")
    architecture = details.attrs["Architecture"]
    pins = [f"{name}=={version}" for name, version in sorted(requirements.items())]
    recipe = "\n".join((base, python, architecture, *pins)).encode()
    tag = f"{REPOSITORY}/dependencies:{hashlib.sha256(recipe).hexdigest()[:16]}"
    if _exists(client, tag):
        return tag
    tell(f"fetching {', '.join(pins)} for Python {python} on {architecture} (once)")
    files = {f"site/{path}": content for path, content in _site(pins, python, architecture).items()}
    files["Dockerfile"] = (
        f"FROM {base}\nCOPY site {SITE}\nRUN python3 -m compileall -q --invalidation-mode "
        f"unchecked-hash {SITE}\n"
    ).encode()
    _build(client, tag, files)
    return tag


def _site(pins: list[str], python: str, architecture: str) -> dict[str, bytes]:
    """The content of the wheels, path -> content.

    Downloaded, or where that fails and it is the same Python, as installed here.
    """
    problem = ""
    with scratch.directory("wheels") as directory:
        machine = _MACHINES.get(architecture, architecture)
        platforms = [f"manylinux{kind}_{machine}" for kind in ("2014", "_2_17", "_2_28", "_2_34")]
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += [
            "--only-binary=:all:",
            "--python-version",
            python,
            "--implementation",
            "cp",
            "--dest",
            str(directory),
        ]
        command += [word for name in platforms for word in ("--platform", name)]
        try:
            done = subprocess.run(
                [*command, *pins], capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S
            )
            problem = "" if done.returncode == 0 else " ".join(done.stderr.split())[-300:]
        except subprocess.TimeoutExpired:
            problem = f"no answer within {_FETCH_TIMEOUT_S:.0f} s"
        if not problem:
            return {
                path: content
                for wheel in sorted(directory.glob("*.whl"))
                for path, content in _unpacked(wheel.read_bytes()).items()
            }
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if (here, platform.system(), platform.machine()) == (python, "Linux", machine):
        return _installed(pins)
    raise InfrastructureError(
        f"the broker's dependencies for Python {python} on {machine} could not be fetched ({problem}); "
        f"check that this works: pip download {' '.join(pins)}"
    )


def _unpacked(wheel: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _installed(pins: list[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for pin in pins:
        for path in importlib.metadata.files(pin.partition("==")[0]) or []:
            if ".." not in path.parts and "__pycache__" not in path.parts:
                found[path.as_posix()] = Path(str(path.locate())).read_bytes()
    return found


def _exists(client: Any, tag: str) -> bool:
    from docker.errors import ImageNotFound  # noqa: PLC0415

    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def forget_old(client: Any, kind: str) -> None:
    """Remove all images of a kind but the newest few, or every edit of the sources would stay
    for ever.
    """
    from docker.errors import APIError  # noqa: PLC0415

    tags = {tag: found.attrs["Created"] for found in client.images.list(name=kind) for tag in found.tags}
    for tag in sorted(tags, key=lambda tag: tags[tag], reverse=True)[_KEPT:]:
        with contextlib.suppress(APIError):  # a container of another run uses it, or another run removed it
            client.images.remove(tag)


def _build(client: Any, tag: str, files: dict[str, bytes]) -> None:
    from docker.errors import APIError, BuildError  # noqa: PLC0415

    try:
        build(client, tag, files, {IMAGE_LABEL: tag.partition(":")[2]})
    except BuildError as error:
        log = " / ".join(str(line.get("stream", "")).strip() for line in error.build_log)[-300:]
        raise InfrastructureError(f"building the image {tag} failed: {error.msg} ({log})") from error
    except APIError as error:
        raise InfrastructureError(f"building the image {tag} failed: {error.explanation or error}") from error
