"""The keys by which ssh knows machines: the file ``known_hosts`` of OpenSSH (its format: sshd(8)).

paramiko's own reader knows neither patterns nor ``@revoked``, nor the line in which a key stands.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import paramiko

_LINE: Final = re.compile(r"(@revoked\s+)?([^@#\s]\S*)\s+(\S+)\s+(\S+)")


class Known(NamedTuple):
    """A key of a machine: its type, itself, its line, and whether it was taken back."""

    kind: str
    key: bytes
    line: int
    revoked: bool


def find(path: Path, address: str, port: int) -> list[Known]:
    """The keys of a machine. A file that is not there knows none. Raises OSError."""
    name = address.lower() if port == 22 else f"[{address.lower()}]:{port}"
    found = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines() if path.exists() else (), 1):
        entry = _LINE.match(line.strip())
        with contextlib.suppress(ValueError, AssertionError):  # a line that OpenSSH passes over, too
            if entry and _names(entry[2].split(","), name):
                key = base64.b64decode(entry[4], validate=True)
                found.append(Known(entry[3], key, number, revoked=bool(entry[1])))
    return found


def objection(path: Path, address: str, port: int, known: Sequence[Known], key: Any) -> str:
    """Why a key that a machine showed does not prove that it is the one we know; "" if it does."""
    shown = f"its {key.get_name()} key {fingerprint(key.asbytes())}"
    same = sorted((one for one in known if one.key == key.asbytes()), key=lambda one: not one.revoked)
    if same:
        return f"{shown} is revoked in {path}:{same[0].line}" if same[0].revoked else ""
    valid = sorted((one for one in known if not one.revoked), key=lambda one: one.kind != key.get_name())
    if valid:
        return (
            f"{shown} is not the known one, {fingerprint(valid[0].key)} in {path}:{valid[0].line}: somebody "
            "may be in between; if the machine was installed anew, remove that line and accept the new key"
        )
    kind = key.get_name().removeprefix("ssh-").split("-")[0]
    return (
        f"{shown} is not known: compare the fingerprint (there: ssh-keygen -lf "
        f"/etc/ssh/ssh_host_{kind}_key.pub) and accept it: "
        f"ssh-keyscan -p {port} {shlex.quote(address)} >> {shlex.quote(str(path))}"
    )


def fingerprint(key: bytes) -> str:
    """A key in short, as ``ssh-keygen -l`` writes it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _names(patterns: Sequence[str], name: str) -> bool:
    """Whether a line's first field names a machine: patterns with * ? and !, and hashes."""
    hits = [
        pattern.startswith("!")
        for pattern in patterns
        if (pattern.startswith("|1|") and paramiko.HostKeys.hash_host(name, pattern) == pattern)
        or fnmatch.fnmatchcase(name, pattern.removeprefix("!").lower().replace("[", "[[]"))
    ]
    return bool(hits) and not any(hits)
