"""The policy ``multi-instance`` in a test: our brokers as a multi-instance queue manager.

Each pair is a queue manager. "a1" is the instance that is started first and so becomes active, "a2"
the other one, which stands by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Address, Event, NodePlan
from harness.systems import store
from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy

_TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    "permit-standby": True,
    "lock-renew-period": 250,
    "lock-expiration": 4000,
    "lock-poll-period": 100,
}
"""Short times for tests (milliseconds).

The file server's lease in a test is as long as ``lock-expiration`` (``harness.systems.store``).
"""


_EVENTS: Final[Mapping[str, Event]] = needing(
    "instances",
    {
        "instance/stood-by": event(
            "an instance of a queue manager stood by",
            r"a standby instance of queue manager \S+ has been started",
        ),
        "instance/switched-over": event(
            "a queue manager was switched over",
            r"queue manager \S+ ended, permitting switchover",
            ("stop", "switch-over"),
        ),
        "instance/ended-together": event(
            "a standby instance ended with its queue manager, or alone",
            r" INFO \S+ standby queue manager instance \S+ ended$",
            ("stop", "switch-over"),
        ),
        "instance/refused": event(
            "an instance was refused, since others run",
            r" ERROR \S+ queue manager \S+ already has ",
        ),
    },
)


class MultiInstance(Policy):
    """A policy with two instances of each queue manager."""

    name = "multi-instance"
    events = _EVENTS
    traits = ("locks", "instances")
    description = (
        "queue managers with an active and a standby instance on a network file system (WebSphere MQ 7.0.1)"
    )
    on_store = True
    machines = (store.NAME,)
    configured = ("instance", "instance")
    commands = ("end",)
    draws: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "ha-policy.multi-instance.failover-on-shutdown": (True,),
        "ha-policy.multi-instance.lock-poll-period": (20, 500),
        "ha-policy.multi-instance.lock-expiration": (2800,),
    }

    def after(self, pair: str, number: int) -> str | None:
        """Return the instance that is to be active, for the other one."""
        return f"{pair}1" if number > 1 else None

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return the name of the queue manager, and its times."""
        del nodes, hosts
        section = {"queue-manager": f"QM{node.pair.upper()}", **_TEST_DEFAULTS}
        return {f"ha-policy.multi-instance.{name}": value for name, value in section.items()}
