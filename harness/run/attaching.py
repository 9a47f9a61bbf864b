"""What ``--attach FILE`` makes of a test: everything that the file says, and nothing else may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.attached.cluster import load
from harness.interface import UsageError
from harness.systems import attached as systems
from harness.systems import registry

_SAID_BY_THE_FILE: Final = {
    "system": "--system",
    "policy": "--policy",
    "environment": "--environment",
    "hosts": "--hosts",
    "pairs": "--pairs",
}


def attached(path: Path, given: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The options of a test with what a file says of its cluster. Raises UsageError."""
    for field, option in _SAID_BY_THE_FILE.items():
        if given.get(field) is not None:
            raise UsageError(f"{option} and --attach: the file says which cluster it is")
    if settings:
        raise UsageError(
            "--set and --attach: the brokers of an attached cluster are configured by their owner"
        )
    cluster = load(path)
    described = msgspec.to_builtins(cluster)
    systems.of(described, registry.get)  # what is wrong with its system or dialect is said here
    return {
        **given,
        "system": cluster.system,
        "policy": systems.POLICY,
        "environment": "attached",
        "pairs": len({node.group for node in cluster.node}),
        "attached": described,
    }
