"""The keys by which ssh knows machines: the file ``known_hosts`` of OpenSSH (its format: sshd(8)).

Read here because paramiko's own reader knows neither patterns nor ``@revoked``, and cannot say in
which line a key stands.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from harness.interface import InfrastructureError


class Known(NamedTuple):
    """A key of a machine: its line in the file, its type, itself, and whether it was taken back."""

    line: int
    kind: str
    key: bytes
    revoked: bool


def find(path: Path, address: str, port: int) -> list[Known]:
    """The keys of a machine. A file that is not there knows none.

    Raises InfrastructureError if it cannot be read.
    """
    name = address.lower() if port == 22 else f"[{address.lower()}]:{port}"
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be read: {error.strerror or error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if marker not in ("", "@revoked") or len(fields) < 3:
            continue
        try:
            if _matches(fields[0], name):
                found.append(
                    Known(number, fields[1], base64.b64decode(fields[2], validate=True), bool(marker))
                )
        except ValueError:
            continue  # OpenSSH, too, passes over a line that it cannot read
    return found


def objection(path: Path, address: str, port: int, known: list[Known], key: Any) -> str:
    """Why a key that a machine showed does not prove that it is the one we know; "" if it does."""
    shown = f"its {key.get_name()} key {fingerprint(key.asbytes())}"
    same = [one for one in known if one.key == key.asbytes()]
    if revoked := next((one for one in same if one.revoked), None):
        return f"{shown} is revoked in {path}:{revoked.line}"
    if same:
        return ""
    valid = [one for one in known if not one.revoked]
    other = next((one for one in valid if one.kind == key.get_name()), valid[0] if valid else None)
    if other is not None:
        return (
            f"{shown} is not the known one, {fingerprint(other.key)} in {path}:{other.line}: somebody may be "
            "in between; if the machine was installed anew, remove that line and accept the new key"
        )
    kind = key.get_name().removeprefix("ssh-").split("-")[0]
    return (
        f"{shown} is not known: compare the fingerprint (there: "
        f"ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub) and accept it: "
        f"ssh-keyscan -p {port} {shlex.quote(address)} >> {shlex.quote(str(path))}"
    )


def fingerprint(key: bytes) -> str:
    """A key in short, as ``ssh-keygen -l`` writes it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _matches(patterns: str, name: str) -> bool:
    """Whether a line's first field means a machine: names, patterns with * and ?, ``!``, hashes."""
    matched = False
    for pattern in patterns.split(","):
        if pattern.startswith("|1|") and pattern.count("|") == 3:
            salt, digest = pattern.split("|")[2:]
            made = hmac.new(base64.b64decode(salt + "=="), name.encode(), hashlib.sha1).digest()
            matched = matched or hmac.compare_digest(base64.b64encode(made).decode(), digest)
            continue
        simple = re.escape(pattern.lstrip("!").lower()).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(simple, name):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched
