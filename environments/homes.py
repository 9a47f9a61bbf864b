"""The directories of a system's distribution, as they are put on other machines.

Why by content: the same files are put once, whoever unpacked them where, and another version beside
them.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from environments.payload import content_hash
from harness.interface import Portable, Provision, System, TestSpec, UsageError


def provision_of(system: System, spec: TestSpec) -> Provision | None:
    """What machines must be given for its brokers; None for our own, which we bring anyway."""
    return system.provision(spec) if isinstance(system, Portable) else None


def homes_here(system: System, spec: TestSpec) -> Mapping[str, str]:
    """``Layout.homes`` on this machine: they are where the person has them."""
    provision = provision_of(system, spec)
    return {} if provision is None else provision.directories


class Homes:
    """All files of a provision's directories, read when it is made.

    ``files`` is "NAME/path" -> content, ``executable`` which of them may be run, ``hash`` the same
    for the same files. A link is what it points to. Raises UsageError for a directory that cannot
    be read.
    """

    def __init__(self, provision: Provision) -> None:
        self.files: dict[str, bytes] = {}
        self.executable: set[str] = set()
        for name, directory in provision.directories.items():
            top = Path(directory)
            try:
                for path in sorted(_files(top)):
                    below = path.relative_to(top).as_posix()
                    if any(fnmatch.fnmatchcase(below, pattern) for pattern in provision.leave_out):
                        continue
                    self.files[f"{name}/{below}"] = path.read_bytes()
                    if os.access(path, os.X_OK):
                        self.executable.add(f"{name}/{below}")
            except OSError as error:
                raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
        modes = {f"mode {path}": b"x" for path in self.executable}
        self.hash = content_hash({**self.files, **modes})


def _files(top: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for place, directories, names in os.walk(top, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(place)) in seen:  # a link that leads back
            directories.clear()
            continue
        seen.add(real)
        yield from (path for name in names if (path := Path(place, name)).is_file())


def _raise(error: OSError) -> None:
    raise error
