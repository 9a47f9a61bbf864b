"""The image that broker images start from.

It is an operating system with Python and the tools that break networks.

Where a registry can be reached, it is the official slim Python image plus three Debian packages.
Where none can, which is usual in closed networks, the same things come from Debian's packages
alone: ``mmdebstrap`` makes a root file system in some 20 seconds, once, and adds packages to a copy
of it in some 10 for each further image. Either way the result is kept under a tag that names what
it was made of, and found there the next time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import shlex
import shutil
import subprocess
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from environments import scratch
from environments.docker.engine import labels
from environments.payload import archive
from harness.interface import InfrastructureError

REPOSITORY: Final = "jepsen-run"
OFFICIAL: Final = "python:3.11-slim"
DEBIAN: Final = "bookworm"
NEWER_DEBIAN: Final = "trixie"
"""The release of images for brokers of others: they may need a newer Java than ``DEBIAN`` has."""

PACKAGES: Final = ("iproute2", "nftables", "procps")
"""The packages of ``tc``, ``nft`` and, for people who look into a container, ``ps``."""

PYTHON_PACKAGES: Final = ("python3",)
PYTHON_LABEL: Final = "jepsen-run.python"

_UNUSED: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
"""The files that no image needs, as patterns of a shell."""

_MANUALS: Final = "/usr/share/man/man1"
"""A directory without which Java's packages cannot be installed; slim images lack it."""

_MAKE_TIMEOUT_S: Final = 600.0
_SHORT: Final = 120

Tell = Callable[[str], object]


def base_image(client: Any, tell: Tell) -> str:
    """Return the tag of a base image; make it if it is missing.

    ``tell`` gets one line before anything that takes long. Raises InfrastructureError if there is
    no way to make one, with both reasons.
    """
    official, debian = _tag("official", OFFICIAL), _tag("debian", DEBIAN, *PYTHON_PACKAGES)
    for tag in (official, debian):
        if exists(client, tag):
            return tag
    problem = _pull(client, tell)
    if not problem:
        tell(f"building the base image from {OFFICIAL} (about 20 s, once)")
        problem = _install(client, official, OFFICIAL, PACKAGES)
    if not problem:
        return official
    tell(f"{problem}; building the base image from Debian packages (about 20 s, once)")
    _import_debian(client, debian, (*PYTHON_PACKAGES, *PACKAGES), problem)
    return debian


def with_packages(
    client: Any,
    tell: Tell,
    kind: str,
    extra: Sequence[str],
    without: Sequence[str] = (),
    debian: str = DEBIAN,
) -> str:
    """Return the tag of a base image that also has these packages; make it if it is missing.

    The packages are installed into the base image where that is possible, else the image is made on
    this host, of this release of Debian. ``without`` are a shell's patterns of files that nothing
    needs; they are left out where that is possible. Raises InfrastructureError if there is no way
    to make one.
    """
    packages = (*PYTHON_PACKAGES, *PACKAGES, *extra)
    digest = hashlib.sha256("\0".join((OFFICIAL, debian, *packages, *without)).encode()).hexdigest()[:12]
    tag = f"{REPOSITORY}/{kind}-base:{digest}"
    if exists(client, tag):
        return tag
    problem = "" if exists(client, _tag("official", OFFICIAL)) else _pull(client, tell)
    if not problem:
        base = base_image(client, tell)
        tell(f"building the {kind} image with {', '.join(extra)} (about 30 s, once)")
        problem = "the base image was made on this host"
        if ":official-" in base:
            problem = _install(client, tag, base, extra)
    if problem:
        start = None if debian != DEBIAN else base_image(client, tell)
        what = f"the {kind} image with {', '.join(extra)}"
        tell(f"{problem}; building {what} from Debian packages (about half a minute, once)")
        if start == _tag("debian", DEBIAN, *PYTHON_PACKAGES):
            _import_debian(client, tag, extra, problem, without, start=start)
        else:
            _import_debian(client, tag, packages, problem, without, debian)
    return tag


def exists(client: Any, tag: str) -> bool:
    """Return whether the engine has an image of this tag."""
    from docker.errors import ImageNotFound  # noqa: PLC0415

    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def build(
    client: Any,
    tag: str,
    files: dict[str, bytes],
    image_labels: dict[str, str],
    executable: Container[str] = (),
) -> None:
    """Build an image from files in memory (path -> content, a Dockerfile among them) and tag it.

    Files that are ``executable`` may be run. The context is the same bytes for the same files, so
    that the engine's own cache works, too. Raises InfrastructureError.
    """
    from docker.errors import APIError, BuildError  # noqa: PLC0415

    context = io.BytesIO(archive(dict(sorted(files.items())), mode=0o644, mtime=0, executable=executable))
    try:
        client.images.build(
            fileobj=context, custom_context=True, tag=tag, labels=image_labels, rm=True, forcerm=True
        )
    except BuildError as error:
        log = " / ".join(str(line.get("stream", "")).strip() for line in error.build_log)[-300:]
        raise InfrastructureError(f"building the image {tag} failed: {error.msg} ({log})") from error
    except APIError as error:
        raise InfrastructureError(f"building the image {tag} failed: {error.explanation or error}") from error


def _tag(kind: str, *made_of: str) -> str:
    digest = hashlib.sha256("\0".join((*made_of, *PACKAGES)).encode()).hexdigest()[:12]
    return f"{REPOSITORY}/base:{kind}-{digest}"


def _pull(client: Any, tell: Tell) -> str:
    """Let the engine get the official Python image; "" if that worked, else why it did not.

    The SDK's time-out bounds each silence of the engine, so a slow registry may still finish.
    """
    from docker.errors import DockerException  # noqa: PLC0415

    if exists(client, OFFICIAL):
        return ""
    tell(f"pulling {OFFICIAL} (once)")
    name, _, tag = OFFICIAL.partition(":")
    try:
        for line in client.api.pull(name, tag=tag, stream=True, decode=True):
            if "error" in line:
                return f"no image registry can be reached ({_short(line['error'])})"
    except (DockerException, OSError) as error:
        return f"no image registry can be reached ({_short(getattr(error, 'explanation', None) or error)})"
    return ""


def _install(client: Any, tag: str, base: str, packages: Sequence[str]) -> str:
    """Make an image from another and Debian packages; "" if that worked, else why it did not."""
    dockerfile = (
        f"FROM {base}\nRUN mkdir -p {_MANUALS} && apt-get update && "
        f"apt-get install -y --no-install-recommends {' '.join(packages)} && rm -rf /var/lib/apt/lists/*\n"
    )
    try:
        build(client, tag, {"Dockerfile": dockerfile.encode()}, {PYTHON_LABEL: "3.11"})
    except (InfrastructureError, OSError) as error:
        return f"{', '.join(packages)} could not be installed into {base} ({_short(error)})"
    return ""


def _import_debian(
    client: Any,
    tag: str,
    packages: Sequence[str],
    problem: str,
    without: Sequence[str] = (),
    debian: str = DEBIAN,
    start: str | None = None,
) -> None:
    """Make an image of a minimal Debian with these packages on this host.

    It leaves the files ``without`` out. If there is an image of that Debian to ``start`` from, the
    packages are added to a copy of it, which takes a quarter of the time. ``problem`` is why it is
    made in this way. Raises InfrastructureError.
    """
    if shutil.which("mmdebstrap") is None:
        raise InfrastructureError(
            f"no base image: {problem}, and mmdebstrap, which makes one from Debian's packages, is not "
            "installed; install it: sudo apt-get install mmdebstrap"
        )
    repository, _, name = tag.partition(":")
    unused = " ".join(f".{pattern}" for pattern in (*_UNUSED, *without))
    with _one_at_a_time(), scratch.directory("base") as directory:
        if exists(client, tag):  # another process has made it meanwhile
            return
        made, copy = directory / "base.tar", directory / "start.tar"
        variant = ["--variant=minbase"]
        if start is not None:
            _export(client, start, copy, directory.name)
            # Devices are left to mmdebstrap: only root can unpack them.
            unpack = f'tar -C "$1" -xf {shlex.quote(str(copy))} --exclude="dev/*"'
            variant = ["--variant=custom", f"--setup-hook={unpack}"]
        command = [
            "mmdebstrap",
            *variant,
            f"--include={','.join(packages)}",
            f'--customize-hook=cd "$1" && rm -rf {unused}',
            debian,
            str(made),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_MAKE_TIMEOUT_S, cwd=directory
            )
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(f"mmdebstrap did not end within {_MAKE_TIMEOUT_S:.0f} s") from error
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
            raise InfrastructureError(f"no base image: {problem}, and mmdebstrap failed: {' / '.join(last)}")
        client.api.import_image_from_file(
            str(made), repository=repository, tag=name, changes=[f"LABEL {PYTHON_LABEL}=3.11"]
        )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one process at a time make an image: two that begin together need the same base image.

    The lock is that of this file, so that no file of its own stays behind.
    """
    with Path(__file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _export(client: Any, tag: str, path: Path, run: str) -> None:
    """Write the files of an image into a tar archive.

    That takes a container, which is never started. It has the labels of a run of this name, so that
    ``jepsen-run clean`` removes it if this process is killed meanwhile.
    """
    container = client.containers.create(tag, ["true"], labels=labels(run))
    try:
        with path.open("wb") as archive:
            archive.writelines(container.export())
    finally:
        container.remove()


def _short(error: object) -> str:
    # The engine's messages end with the cause: "Get ...: dial tcp: lookup ...: no such host".
    text = " ".join(str(error).split())
    return text if len(text) <= _SHORT else "... " + text[-_SHORT:]
