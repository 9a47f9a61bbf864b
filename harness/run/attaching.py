"""The options of a test of an attached cluster: ``--attach FILE`` says which cluster it is.

No other option may say what the file says.
"""

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


def attached(path: Path, options: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return the options of a test, completed by what a file says of its cluster.

    Raises UsageError if another option contradicts the file, or if the file is wrong.
    """
    for field, option in _SAID_BY_THE_FILE.items():
        if options.get(field) is not None:
            raise UsageError(f"{option} and --attach: the file says which cluster it is")
    if settings:
        raise UsageError(
            "--set and --attach: the brokers of an attached cluster are configured by their owner"
        )
    cluster = load(path)
    described = msgspec.to_builtins(cluster)
    systems.of(described, registry.get)  # raises UsageError for a wrong system or dialect
    return {
        **options,
        "system": cluster.system,
        "policy": systems.POLICY,
        "environment": "attached",
        "pairs": len({node.group for node in cluster.node}),
        "attached": described,
    }
