"""Runs a PostgreSQL server in the foreground, and first makes its files if there are none.

``python -m environments.postgresql.run DIRECTORY PORT SECRET``.

``SECRET`` is a file with the password of the server's user; it is removed once the server is made.
The process becomes the postmaster itself.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from environments.postgresql import program


def main() -> None:
    """Make the server if need be, and run it."""
    directory, port, secret = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    if not program.made(directory):
        if directory.exists():
            shutil.rmtree(directory)  # its machine was killed when it was half made
        try:
            program.make(directory, secret.read_text().strip())
        except program.ProgramError as error:
            raise SystemExit(str(error)) from None
        secret.unlink()
    command = program.command(directory, port)
    os.execvp(command[0], command)  # noqa: S606 - the words are ours


if __name__ == "__main__":
    main()
