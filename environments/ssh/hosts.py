"""The machines that a test may use: ``hosts.toml``, or ``user@address:port`` with ``--host``.

docs/how-to/ssh.md has the keys of the file, their defaults and their meanings. Neither place takes
a password or the pass phrase of a key: that is what ssh-agent is for.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import paramiko
from cryptography.exceptions import UnsupportedAlgorithm

from harness.interface import UsageError
from harness.interface.errors import converted
from harness.interface.texts import toml_table

KNOWN_HOSTS: Final = "~/.ssh/known_hosts"
_TEXT: Final = re.compile(r"(?:([^@\s:]+)@)?(?:\[([^\]]+)\]|([^:@\s]+))(?::(\d+))?")
_FORMS: Final = (
    ("address", r"[\w:][\w.:%-]*", "a name or an IP address"),
    ("inner", r"([\w:][\w.:%-]*)?", "a name or an IP address"),
    ("user", r"[^\s:@-][^\s:@]*", "the name of a user"),
    ("directory", r"(/(?!\.\.?(/|$))[^/]+){2,}", "one like /var/tmp/jepsen-run"),
)


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A machine: how it is reached, and what it allows."""

    address: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 22
    user: str = msgspec.field(default_factory=getpass.getuser)
    key: str = ""
    inner: str = ""
    python: str = "python3"
    directory: str = "/var/tmp/jepsen-run"  # noqa: S108 - its owner is checked before it is used
    clock: bool = False

    @property
    def name(self) -> str:
        """The machine's name in messages: its address, and its port where that is not 22."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return address if self.port == 22 else f"{address}:{self.port}"


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    known_hosts: str = KNOWN_HOSTS
    host: tuple[dict[str, Any], ...]


class Inventory(NamedTuple):
    """The machines, and the file that has the keys by which they are known."""

    known_hosts: Path
    hosts: tuple[HostConfig, ...]


def inventory(given: Sequence[str]) -> Inventory:
    """Return the machines of ``--hosts FILE`` or ``--host user@address``. Raises UsageError."""
    file = next((one for one in given if "@" not in one), "")
    if file and len(given) > 1:
        raise UsageError(f"--hosts {file}: one file, or --host user@address for each machine")
    return load(Path(file)) if file else listed(given)


def load(path: Path) -> Inventory:
    """Read the machines of a ``hosts.toml``. Raises UsageError, one line."""
    try:
        table = toml_table(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    if not table.get("host") or isinstance(table["host"], dict):
        raise UsageError(f"{path}: no [[host]]: give one for each machine, with its address")
    file = converted(str(path), table, _File)
    hosts = [_host(f"{path}: [[host]] {number}", row, path.parent) for number, row in enumerate(file.host, 1)]
    return _inventory(str(path), path.parent / Path(file.known_hosts).expanduser(), hosts)


def listed(texts: Sequence[str]) -> Inventory:
    """Read the machines of ``--host user@address:port`` (IPv6 in brackets). Raises UsageError."""
    hosts = []
    for text in texts:
        if not (found := _TEXT.fullmatch(text)):  # not repeated in the error: it may hold a password
            raise UsageError(
                "--host is user@address or user@address:port (an IPv6 address in brackets) and never "
                "holds a password; for example --host root@192.0.2.11 or --host root@[2001:db8::11]:2222"
            )
        row = {"address": found[2] or found[3], "port": int(found[4] or 22)}
        hosts.append(_host(f"--host {text}", row | ({"user": found[1]} if found[1] else {}), Path()))
    return _inventory("--host", Path(KNOWN_HOSTS).expanduser(), hosts)


def load_key(path: Path, where: str = "") -> Any:
    """Load a private key with paramiko. Raises UsageError if the key cannot be used."""
    try:
        return paramiko.PKey.from_path(path)
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
    except (TypeError, paramiko.PasswordRequiredException):
        why = f"has a pass phrase: give it to ssh-agent (ssh-add {path}) and leave the key out"
    except (ValueError, paramiko.SSHException, paramiko.UnknownKeyType, UnsupportedAlgorithm):
        why = "is no private key of ssh (RSA, ECDSA or Ed25519)"
    raise UsageError(f"{where}the key {path} {why}")


def _host(where: str, row: Mapping[str, Any], directory: Path) -> HostConfig:
    """Check one machine; the path of its key is relative to ``directory``."""
    host = converted(where, row, HostConfig)
    for field, pattern, wanted in _FORMS:
        if not re.fullmatch(pattern, value := getattr(host, field)):
            raise UsageError(f'{where}: "{field}" is "{value}": expected {wanted}')
    if host.key:
        host = msgspec.structs.replace(host, key=str(directory / Path(host.key).expanduser()))
        load_key(Path(host.key), f"{where}: ")
    return host


def _inventory(where: str, known_hosts: Path, hosts: Sequence[HostConfig]) -> Inventory:
    names = [name for host in hosts for name in {host.name, host.inner or host.name}]
    if twice := min((name for name in names if names.count(name) > 1), default=""):
        raise UsageError(f"{where}: {twice} is listed twice: each machine runs one node")
    return Inventory(known_hosts, tuple(hosts))
