"""``python -m filesystems.nfs.await_mount DIRECTORY PROGRAM ARGUMENTS...``.

It executes the program once a file system is mounted on the directory.

Why: a machine that boots while its file server is silent waits for its mount. A broker that did not
wait would find an empty local directory there, and begin to serve from it. No function here touches
the directory.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from typing import Final, NoReturn

from filesystems.fuse.device import MOUNTS, places

EXIT_USAGE: Final = 254
_LOOK_MS: Final = 1000
"""The interval of polling, only for a kernel that does not report changes of mounts."""


def mounted(directory: str, mounts: bytes) -> bool:
    """Return whether a ``mountinfo`` has NFS, the kernel's or through FUSE, on a directory."""
    kinds = {place: kind for place, kind, _ in places(mounts)}  # the last mount is on top
    return kinds.get(directory, "").startswith(("fuse", "nfs"))


def wait(directory: str) -> None:
    """Return once NFS is mounted on the directory."""
    with MOUNTS.open("rb", buffering=0) as file:
        changes = select.poll()
        changes.register(file, select.POLLPRI | select.POLLERR)
        while True:
            file.seek(0)
            if mounted(directory, file.read()):
                return
            changes.poll(_LOOK_MS)


def main() -> NoReturn:
    """Run the program."""
    directory, *command = sys.argv[1:] or [""]
    if not command:
        print("usage: await_mount DIRECTORY PROGRAM ARGUMENTS...", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    wait(os.path.abspath(directory))  # noqa: PTH100 - Path.resolve would ask the file system that may hang
    program = sys.executable if command[0] == "python" else shutil.which(command[0]) or command[0]
    os.execv(program, [program, *command[1:]])  # noqa: S606 - a shell would be one program more to be killed


if __name__ == "__main__":
    main()
