"""Another process on this host, for tests of locks that one process cannot make alone.

A process is never hindered by its own locks.

``python neighbour.py PATH try`` ends with 0 if it got the lock and 1 if another process has it.
With ``hold`` in place of ``try`` it prints ``held`` and keeps the lock until it is killed or its
standard input ends. 2: the file system has no locks.
"""

from __future__ import annotations

import fcntl
import os
import sys


def main(arguments: list[str]) -> int:
    """Run the program, and return its exit status."""
    path, order = arguments
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return 1
    except OSError as error:
        print(error.strerror, flush=True)
        return 2
    if order == "hold":
        print("held", flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
