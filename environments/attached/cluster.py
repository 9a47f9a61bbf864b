"""The cluster that a test is attached to: the file of ``--attach``, and its content in a spec.

docs/how-to/attach.md has the keys of the file and their meanings. Secrets are never in it, because
a spec is stored with every run. The file names variables and files that hold them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from harness.interface import Address, UsageError
from harness.interface.errors import converted
from harness.interface.texts import toml_table

PLAIN: Final = "stomp"
"""The system of brokers that no module knows: a dialect of fields alone."""

PROCESS_HOOKS: Final = ("kill", "pause")
"""The hooks that are nemeses of the same name; every other hook belongs to the nemesis ``hook``."""

_NODE: Final = re.compile(r"[a-z][a-z0-9-]*")
_PREFIX: Final = re.compile(r"[\w.-]+")
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([\w.-]+)):(\d{1,5})")

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class AttachedNode(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A broker; brokers with the same ``pair`` share their data, a broker without one does not."""

    name: str
    stomp: str
    pair: str = ""
    admin: str = ""

    @property
    def address(self) -> Address:
        """The address by which clients reach it."""
        return address_of(self.stomp)

    @property
    def group(self) -> str:
        """The node's pair, or its own name if it has none."""
        return self.pair or self.name


class Hook(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A fault that the user defines by shell commands.

    ``begin`` begins the fault, ``end`` undoes it, and ``probe`` succeeds while it is in force. Each
    takes at most ``patience_s``. ``end`` is run ``limit_s`` after ``begin`` at the latest.
    """

    name: str
    begin: str
    end: str
    probe: str
    limit_s: Seconds = 120.0
    patience_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 20.0


class Roles(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The way to ask for a broker's role: a command or a URL; without one, its system (``admin``).

    ``words`` maps patterns of the answer to the roles that they mean; they are tried in order.
    """

    command: str = ""
    url: str = ""
    words: Mapping[str, str] = {}
    patience_s: Seconds = 3.0


class AttachedCluster(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """All that a test knows of the cluster it is attached to."""

    system: str = PLAIN
    policy: str = ""
    login: str | None = None
    passcode_env: str = ""
    passcode_file: str = ""
    dialect: Mapping[str, Any] = {}
    promises: Mapping[str, Any] = {}
    queue_prefix: str = "jepsen-run."
    leftovers: Literal["refuse", "remove"] = "refuse"
    node: tuple[AttachedNode, ...]
    roles: Roles | None = None
    hook: tuple[Hook, ...] = ()

    def named(self, name: str) -> AttachedNode:
        """Return the node of that name. Raises UsageError."""
        for node in self.node:
            if node.name == name:
                return node
        raise UsageError(f"no node {name!r}; there are {', '.join(node.name for node in self.node)}")

    def filled(self, command: str, name: str) -> str:
        """Return a command with the node's own values for {node}, {host} and {port}."""
        node = self.named(name)
        for word, value in (
            ("{node}", node.name),
            ("{host}", node.address.host),
            ("{port}", str(node.address.port)),
        ):
            command = command.replace(word, value)
        return command


def load(path: Path) -> AttachedCluster:
    """Read a cluster from a file. Raises UsageError, one line."""
    where = f"--attach {path}"
    try:
        table = toml_table(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"{where} is not TOML: {error}") from None
    if not isinstance(table.get("node"), list) or not table["node"]:
        raise UsageError(f"{where}: no [[node]]: give one for each broker, with its name and STOMP address")
    if secret := table.get("passcode-file"):
        table["passcode-file"] = str((path.parent / Path(str(secret)).expanduser()).resolve())
    return checked(where, table)


def checked(where: str, table: Mapping[str, Any]) -> AttachedCluster:
    """Return a table as a cluster. Raises UsageError, which names what is wrong."""
    for kind, rows, struct in (
        ("node", table.get("node"), AttachedNode),
        ("hook", table.get("hook", ()), Hook),
    ):
        for number, row in enumerate(rows if isinstance(rows, list | tuple) else (), 1):
            if isinstance(row, Mapping):
                converted(f"{where}: [[{kind}]] {number}", row, struct)
    if isinstance(roles := table.get("roles"), Mapping):
        converted(f"{where}: [roles]", roles, Roles)
    cluster = converted(where, table, AttachedCluster)
    names = [node.name for node in cluster.node]
    hooks = [hook.name for hook in cluster.hook]
    for kind, found in (("node", names), ("hook", hooks)):
        for name in found:
            if not _NODE.fullmatch(name):
                raise UsageError(
                    f'{where}: {kind} "{name}": a name consists of small letters, digits and hyphens'
                )
            if found.count(name) > 1:
                raise UsageError(f'{where}: {kind} "{name}" is listed twice')
    for node in cluster.node:
        for address in filter(None, (node.stomp, node.admin)):
            address_of(address, f'{where}: node "{node.name}": ')
    if cluster.roles is not None and bool(cluster.roles.command) == bool(cluster.roles.url):
        raise UsageError(f'{where}: [roles] has either "command" or "url"')
    for pattern in cluster.roles.words if cluster.roles is not None else ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f'{where}: [roles] words: "{pattern}" is no pattern: {error}') from None
    if not _PREFIX.fullmatch(cluster.queue_prefix):
        raise UsageError(
            f'{where}: "queue-prefix" is "{cluster.queue_prefix}": a test takes only queues of a name of its '
            "own: letters, digits, dots, hyphens, underscores"
        )
    return cluster


def address_of(text: str, where: str = "") -> Address:
    """Parse ``host:port`` (IPv6 in brackets). Raises UsageError."""
    found = _ADDRESS.fullmatch(text)
    if not found or not 0 < int(found[3]) < 65536:
        raise UsageError(f'{where}"{text}" is no address: expected host:port')
    return Address(found[1] or found[2], int(found[3]))


def passcode(cluster: AttachedCluster) -> str | None:
    """Return the secret from the variable or file that the cluster names; None without one.

    Raises UsageError if it cannot be read.
    """
    if cluster.passcode_env:
        try:
            return os.environ[cluster.passcode_env]
        except KeyError:
            raise UsageError(
                f"passcode-env: the environment variable {cluster.passcode_env} is not set"
            ) from None
    if cluster.passcode_file:
        try:
            return Path(cluster.passcode_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise UsageError(f"passcode-file: {cluster.passcode_file} cannot be read: {error}") from None
    return None
