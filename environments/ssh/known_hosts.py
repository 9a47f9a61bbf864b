"""The keys by which ssh knows machines: the file ``known_hosts`` of OpenSSH (its format: sshd(8)).

Why not paramiko's own reader: it knows neither patterns nor ``@revoked``, nor the line of a key.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

_UNREADABLE: Final = (InvalidHostKey, paramiko.SSHException, ValueError, OverflowError, AssertionError)


class KnownKey(NamedTuple):
    """A machine's key as paramiko represents it, its line in the file, and if it is revoked."""

    key: Any
    line: int
    revoked: bool


def find(path: Path, address: str, port: int) -> list[KnownKey]:
    """Return the known keys of a machine, none if the file does not exist. Raises OSError."""
    name = address.lower() if port == 22 else f"[{address.lower()}]:{port}"
    found = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines() if path.exists() else (), 1):
        fields = line.split()
        revoked = fields[:1] == ["@revoked"]
        with contextlib.suppress(*_UNREADABLE):  # OpenSSH skips such a line, too
            entry = HostKeyEntry.from_line(" ".join(fields[revoked:]))
            if entry and _names(entry.hostnames, name):
                found.append(KnownKey(entry.key, number, revoked))
    return found


def objection(path: Path, address: str, port: int, known: Sequence[KnownKey], key: Any) -> str:
    """Return why a key that a machine showed does not prove who it is; "" if it does.

    It does if it is one of the ``known`` keys and not revoked.
    """
    shown = f"its {key.get_name()} key {key.fingerprint}"
    same = [one for one in known if one.key == key]
    if revoked := [one for one in same if one.revoked]:
        return f"{shown} is revoked in {path}:{revoked[0].line}"
    if same:
        return ""
    if valid := [one for one in known if not one.revoked]:
        other = next((one for one in valid if one.key.get_name() == key.get_name()), valid[0])
        return (
            f"{shown} is not the known one, {other.key.fingerprint} in {path}:{other.line}: somebody "
            "may be in between; if the machine was installed anew, remove that line and accept the new key"
        )
    kind = key.get_name().removeprefix("ssh-").split("-")[0]
    return (
        f"{shown} is not known: compare the fingerprint (there: ssh-keygen -lf "
        f"/etc/ssh/ssh_host_{kind}_key.pub) and accept it: "
        f"ssh-keyscan -p {port} {shlex.quote(address)} >> {shlex.quote(str(path))}"
    )


def _names(patterns: Sequence[str], name: str) -> bool:
    """Return whether a line's first field names a machine: patterns with * ? and !, hashes."""
    hits = [
        pattern.startswith("!")
        for pattern in patterns
        if (pattern.startswith("|1|") and paramiko.HostKeys.hash_host(name, pattern) == pattern)
        or fnmatch.fnmatchcase(name, pattern.removeprefix("!").lower().replace("[", "[[]"))
    ]
    return bool(hits) and not any(hits)
