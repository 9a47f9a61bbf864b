"""A host: a machine on which a node runs, as the harness uses it.

Put files there, run something, fetch files, reach a port.

As small as this because every kind of machine has these four and nothing else in common: a
container has them through the engine's SDK, a machine over ssh through its channels (compare
Jepsen's ``control/Remote``). What has to go on when the harness is gone is not here but in the
agent, which is put and run like anything else.

Everything here blocks; who has a loop calls it in a thread.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from harness.interface import Address


class CommandError(Exception):
    """What was run on a host ended with another status than 0.

    ``status`` is it, the text what the program said last, in one line.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def archive(files: Mapping[str, bytes], *, mode: int = 0o600, mtime: int | None = None) -> bytes:
    """Files (path -> content) as a tar archive in their order, made just now or at ``mtime``."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            entry.mtime = int(time.time()) if mtime is None else mtime
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


class Host(Protocol):
    """One machine.

    Each method raises InfrastructureError, naming the host, where the machine cannot be reached or
    will not do it.
    """

    name: str
    """How it is called in what people read."""

    @property
    def address(self) -> str:
        """Where the other hosts of the deployment reach it."""
        ...

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files (relative path -> content), readable by their owner alone.

        The directories above them are made.
        """
        ...

    def run(self, argv: Sequence[str], *, text: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """Run a program to its end, with ``text`` as its input; what it wrote.

        Raises CommandError.
        """
        ...

    def fetch(self, path: str) -> bytes:
        """A file, or all that is in a directory, as a tar archive; empty where there is none."""
        ...

    def reach(self, port: int) -> Address:
        """Where this process reaches a TCP port of the machine, outside every partition."""
        ...
