"""Our brokers as a multi-instance queue manager: how a test of the policy ``multi-instance`` is configured.

Each pair is a queue manager, "a1" the instance that is started first and so becomes active, "a2" the one that is started beside it and stands by.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from harness.interface import NodePlan

CONFIGURED: Final = "instance"
"""What every broker of a queue manager is."""

INSTANCES: Final = 2

DESCRIPTION: Final = (
    "queue managers with an active and a standby instance on a network file system (WebSphere MQ 7.0.1)"
)

_TEST_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"permit-standby": True, "lock-renew-period": 250, "lock-expiration": 4000, "lock-poll-period": 100}
)
"""Short times (milliseconds); the file server's lease in a test is as long as ``lock-expiration`` (``harness.systems.store``)."""

DRAWN: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "ha-policy.multi-instance.failover-on-shutdown": (True,),
        "ha-policy.multi-instance.lock-poll-period": (20, 500),
        "ha-policy.multi-instance.lock-expiration": (2800,),
    }
)
"""What a search draws, by dotted name."""


def defaults(node: NodePlan) -> dict[str, Any]:
    """By dotted name."""
    section = {"queue-manager": f"QM{node.pair.upper()}", **_TEST_DEFAULTS}
    return {f"ha-policy.multi-instance.{name}": value for name, value in section.items()}
