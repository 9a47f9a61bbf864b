"""The plan of a test's shared directories from its spec: ``--set store:PROPERTY=VALUE``.

Why under the name of a node: a store is a machine of the test like a broker, and its properties are
given, stored and replayed with theirs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from filesystems.nfs.options import MountOptionError, parse
from harness.interface import StorePlan, TestSpec, UsageError
from harness.interface.errors import near

NAME: Final = "store"

BACKUPS: Final = "backups"
"""The property that says how many backups each live has."""

BACKUPS_MAX: Final = 8

TYPE: Final = "type"
TYPES: Final = ("directory", "nfs", "database")
"""The types of the store of policy ``shared-store``.

Without a type it is a directory, wherever the environment has one. The others are a directory on
NFS, and a database.
"""

OWN: Final = ("uid", "gid")
"""The properties that may differ between machines: ``uid.a2``."""


def backups(spec: TestSpec, machine: str = NAME) -> int:
    """Return the number of backups of each live, a property of ``machine``. Raises UsageError."""
    value = spec.properties.get(machine, {}).get(BACKUPS, 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= BACKUPS_MAX:
        raise UsageError(f"--set {machine}:{BACKUPS}={value}: it must be a number from 1 to {BACKUPS_MAX}")
    return value


def in_database(spec: TestSpec) -> bool:
    """Return whether brokers share a database and no directory. Raises UsageError."""
    assigned = spec.properties.get(NAME, {})
    chosen = assigned.get(TYPE, TYPES[0])
    if chosen not in TYPES:
        raise UsageError(f"--set {NAME}:{TYPE}={chosen}: it must be {' or '.join(TYPES)}")
    if chosen != "database":
        return False
    for name in assigned:
        if name not in (TYPE, BACKUPS):
            raise UsageError(
                f"--set {NAME}:{name} is for a directory, and the store of this test is a database"
            )
    return True


def named(spec: TestSpec) -> tuple[str, ...]:
    """Return the nodes that have a property of their own."""
    parted = (name.partition(".") for name in spec.properties.get(NAME, {}))
    return tuple(whose for key, dot, whose in parted if dot and key in OWN)


def plan(spec: TestSpec, name: str, node: str = "") -> StorePlan:
    """Return the store of one pair, as ``node`` has it: "uid.a2" is the uid of a2 alone.

    Raises UsageError that names the property.
    """
    fields = {
        field.encode_name: field.name
        for field in msgspec.structs.fields(StorePlan)
        if field.name not in ("name", "nfs")
    }
    assigned: dict[str, Any] = {}
    for name_given, value in spec.properties.get(NAME, {}).items():
        key, dot, whose = name_given.partition(".")
        if key == BACKUPS and not dot and spec.policy == "shared-store":
            continue
        if key == TYPE and not dot:
            if value not in (directories := TYPES[:2]):
                raise UsageError(f"--set {NAME}:{TYPE}={value}: it must be {' or '.join(directories)}")
            continue
        if key not in fields or (dot and key not in OWN):
            keys = (*([BACKUPS] if spec.policy == "shared-store" else []), TYPE, *fields)
            raise UsageError(f"--set {NAME}:{name_given}: unknown property: {near(name_given, keys)}")
        if dot and whose != node:
            continue
        assigned[key] = value
    try:
        store = msgspec.convert({"name": name, **assigned}, StorePlan)
        parse(store.mount_options)
    except (msgspec.ValidationError, MountOptionError) as error:
        raise UsageError(f"--set {NAME}: {str(error).replace('`', '')}") from None
    return store
