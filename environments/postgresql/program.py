"""PostgreSQL's programs on this machine.

This module finds them, says what is missing, makes a server's directory, and says how the server is
run.

Why an account of its own: PostgreSQL refuses to run as root. Where we are root, Debian's account
``postgres`` runs it.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Final

PACKAGES: Final = ("postgresql",)
ACCOUNT: Final = "postgres"
USER: Final = "broker"
"""The database's own user, who may do everything in it: the database belongs to one run."""

DATABASE: Final = "postgres"
"""The database that every server begins with."""

_MAKE_S: Final = 120.0


class ProgramError(Exception):
    """A program of PostgreSQL failed; the text has its last words."""


def binaries() -> Path | None:
    """Return the directory of ``initdb`` and ``postgres``: Debian's newest, or that on the path."""
    found = shutil.which("initdb")
    candidates = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0,
        reverse=True,
    )
    for directory in [*candidates, *([Path(found).resolve().parent] if found else [])]:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


def missing() -> str:
    """Return what this machine lacks to run a server; "" if nothing."""
    if binaries() is None:
        return f"PostgreSQL is not installed (sudo apt-get install {' '.join(PACKAGES)})"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(ACCOUNT)
        except KeyError:
            return (
                f"PostgreSQL does not run as root, and there is no account {ACCOUNT} (sudo useradd "
                f"--system {ACCOUNT})"
            )
        if shutil.which("setpriv") is None:
            return "setpriv is not installed (sudo apt-get install util-linux)"
    return ""


def new_password() -> str:
    """Return a new password that only the run knows."""
    return secrets.token_hex(16)


def make(directory: Path, password: str) -> None:
    """Make a server's files below ``directory``, which other accounts may pass through.

    Blocks. Raises ProgramError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if closed := _closed(directory):
        raise ProgramError(
            f"PostgreSQL runs as {ACCOUNT}, who may not pass through {closed}: set TMPDIR to a "
            "directory that everybody may pass through, such as /tmp"
        )
    secret = directory / "secret"
    secret.touch(mode=0o600)
    if os.geteuid() == 0:
        owner = pwd.getpwnam(ACCOUNT)
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        os.chown(secret, owner.pw_uid, owner.pw_gid)
    try:
        secret.write_text(password + "\n")
        _run(
            "initdb",
            f"--pgdata={directory / 'data'}",
            f"--username={USER}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
    finally:
        secret.unlink()


def _closed(directory: Path) -> Path | None:
    """Return the first directory on the way that PostgreSQL's account may not pass through."""
    if os.geteuid() != 0:
        return None
    ways = reversed(directory.parents)
    return next((path for path in ways if not path.stat().st_mode & 0o001), None)


def made(directory: Path) -> bool:
    """Return whether that directory has a server already."""
    return (directory / "data" / "PG_VERSION").exists()


def command(directory: Path, port: int) -> list[str]:
    """Return the argument vector that runs the server in the foreground, on loopback alone.

    Brokers reach it through the relay. It syncs (fsync, full_page_writes and synchronous_commit are
    as PostgreSQL's own defaults), so that a receipt means what it says.
    """
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "ssl": "off",
        "jit": "off",
        "shared_buffers": "32MB",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %a ",
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
    }
    return [
        *_as_account(),
        str(_program("postgres")),
        "-D",
        str(directory / "data"),
        *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
    ]


def _program(name: str) -> Path:
    directory = binaries()
    if directory is None:
        raise ProgramError(missing())
    return directory / name


def _as_account() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"]


def _run(name: str, *arguments: str) -> None:
    try:
        done = subprocess.run(
            [*_as_account(), str(_program(name)), *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAKE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{name} did not end within {_MAKE_S:.0f} s") from error
    if done.returncode:
        words = " / ".join(line for line in done.stderr.splitlines() if line.strip())
        raise ProgramError(f"{name} failed: {words[-300:]}")
