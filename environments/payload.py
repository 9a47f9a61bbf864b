"""The files of ours that a machine gets to run our broker, and the packages that these need.

Nothing is installed there: a machine may not trust the certificates that this host trusts, and its
own Python is not ours to change. So wheels are fetched here, for the machine's Python version, and
unpacked.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import platform
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final

from environments import scratch
from environments.agent import AGENT_MODULES
from harness.interface import InfrastructureError

BROKER_PACKAGES: Final = ("broker", "stomp_protocol")
"""The broker, and the package of ours that it imports."""

BROKER_REQUIREMENTS: Final = (
    "click",
    "google-crc32c",
    "h11",
    "lark",
    "msgspec",
    "psycopg",
    "psycopg-binary",
    "typing-extensions",
    "uvloop",
    "wsproto",
)
"""The packages that these import besides the standard library, and the packages that those import.

A test compares this with the import statements.
"""

ROOT: Final = Path(__file__).resolve().parents[1]
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_FETCH_TIMEOUT_S: Final = 180.0


def archive(
    files: Mapping[str, bytes],
    *,
    mode: int = 0o600,
    mtime: int | None = None,
    executable: Container[str] = (),
) -> bytes:
    """Return files (path -> content) as a tar archive, in their order, dated now or at ``mtime``.

    An ``executable`` file may be run by everybody who may read it.
    """
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            if path in executable:
                entry.mode |= mode >> 2 & 0o111
            entry.mtime = int(time.time()) if mtime is None else mtime
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def pins() -> list[str]:
    """Return the packages that our sources need, in the versions that are installed here."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in sorted(BROKER_REQUIREMENTS)]


def sources(root: Path) -> dict[str, bytes]:
    """Return the files of the broker and the agent, path -> content."""
    paths = sorted(
        path
        for package in BROKER_PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.suffix != ".pyc"}
    return found | agent(root)


def agent(root: Path) -> dict[str, bytes]:
    """Return the files of the agent alone, path -> content."""
    return {name: (root / name).read_bytes() for name in AGENT_MODULES}


def content_hash(files: Mapping[str, bytes]) -> str:
    """Return a hash of files that does not depend on their order, times and owners."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{len(path.encode())} {path} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def site(pins: Sequence[str], python: str, architecture: str) -> dict[str, bytes]:
    """Return the files of the wheels that ``pins`` name, path -> content.

    The wheels are downloaded. Where that fails and the machine has the same Python as this one, the
    files of the packages installed here are taken.
    """
    problem = ""
    with scratch.directory("wheels") as directory:
        machine = _MACHINES.get(architecture, architecture)
        platforms = [f"manylinux{kind}_{machine}" for kind in ("2014", "_2_17", "_2_28", "_2_34")]
        options = "--quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp"
        command = [sys.executable, "-m", "pip", "download", *options.split()]
        command += ["--python-version", python, "--dest", str(directory)]
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


def _installed(pins: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for pin in pins:
        for path in importlib.metadata.files(pin.partition("==")[0]) or []:
            if ".." not in path.parts and "__pycache__" not in path.parts:
                found[path.as_posix()] = Path(str(path.locate())).read_bytes()
    return found
