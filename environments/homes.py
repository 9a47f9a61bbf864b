"""The directories of a system's distribution, as they are put on other machines.

Why their place there depends on their content: the same files are put there once, whoever unpacked
them and wherever. Another version gets a place of its own.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from environments.payload import content_hash
from harness.interface import Portable, Provision, System, TestSpec, UsageError


def provision_of(system: System, spec: TestSpec) -> Provision | None:
    """Return what a system's brokers need on their machines.

    Returns None for our own brokers: what they need is brought anyway.
    """
    return system.provision(spec) if isinstance(system, Portable) else None


def homes_here(system: System, spec: TestSpec) -> Mapping[str, str]:
    """Return ``Layout.homes`` for this machine: the directories where the user has them."""
    provision = provision_of(system, spec)
    return {} if provision is None else provision.directories


def path_here(system: System, spec: TestSpec) -> str:
    """Return the PATH of brokers on this machine: the runtimes that were found for them first."""
    provision = provision_of(system, spec)
    programs = (
        [Path(runtime.local_path) for runtime in provision.runtimes if runtime.local_path]
        if provision
        else []
    )
    return os.pathsep.join([*(str(program.parent) for program in programs), os.environ.get("PATH", "")])


class Homes:
    """All files of a provision, read when this object is made.

    ``files`` is "NAME/path" -> content, and ``executable`` has those of them that may be run. The
    same files have the same ``hash``. A symbolic link counts as the file that it points to. Raises
    UsageError for a file or directory that cannot be read.
    """

    def __init__(self, provision: Provision) -> None:
        self.files: dict[str, bytes] = {}
        self.executable: set[str] = set()
        try:
            for name, place in _places(provision):
                self.files[name] = place.read_bytes()
                if os.access(place, os.X_OK):
                    self.executable.add(name)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
        modes = {f"mode {path}": b"x" for path in self.executable}
        self.hash = content_hash({**self.files, **modes})


def _places(provision: Provision) -> Iterator[tuple[str, Path]]:
    """Yield "NAME/path" and the place here of each file that is not left out."""
    for name, directory in provision.directories.items():
        top = Path(directory)
        for path in sorted(_files(top)):
            below = path.relative_to(top).as_posix()
            if not any(fnmatch.fnmatchcase(below, pattern) for pattern in provision.leave_out):
                yield f"{name}/{below}", path
    yield from ((name, Path(place)) for name, place in provision.files.items())


def _files(top: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for place, directories, names in os.walk(top, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(place)) in seen:  # visited already, by a link back
            directories.clear()
            continue
        seen.add(real)
        yield from (path for name in names if (path := Path(place, name)).is_file())


def _raise(error: OSError) -> None:
    raise error
