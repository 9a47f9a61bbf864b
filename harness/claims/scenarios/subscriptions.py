"""The scenarios of durable subscriptions across a fail-over, rows DS1 to DS4 of the claims.

AMQ 17.3.4, Sun and WMQ promise the same of each policy. The broker that takes over has the durable
subscriptions of the failed one, with all that waits for each. The load is the workload
``subscriptions``, whose consumers are slow, come and go, and drop their subscriptions and make them
again under the same names. Guards demand that messages waited, and that subscriptions were made and
dropped, when the fault came.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import BY_A2, fault, faults, load, properties
from harness.claims.scenarios.expectations import (
    Backlog,
    Changing,
    Expectation,
    ExpectedTakeover,
    Moved,
    Takeovers,
)
from harness.claims.scenarios.scenario import Scenario
from harness.claims.scenarios.shared_store import NO_FAILBACK
from harness.interface import Fault

_VOTES: Final = {
    **properties("ha-policy.replication.master.", vote_on_replication_failure=True),
    **properties("ha-policy.replication.slave.", vote_on_replication_failure=True),
}


def _row(
    number: int, policy: str, case: str, fault: Fault, *besides: Expectation,
    allowed: tuple[str, ...] = (), pairs: int = 1, **fields: Any,
) -> Scenario:  # fmt: skip
    """Return a case of a row: what fails, and which broker takes over.

    Each pair has eight topics. Each topic has a durable subscription, one that has a selector and
    is dropped often, and a shared one. So some subscription is always being dropped or made.
    """
    label = f"{fault.kind}-1"
    name = f"ds{number}-{case}".removesuffix("-")
    return Scenario(
        id=f"DS{number}-{case}".removesuffix("-"),
        claim=f"as DS{number}, but {_FAILURE[case]}"
        if case
        else f"policy {policy}, the broker is killed: durable subscriptions keep their waiting messages, "
        "and dropped subscriptions stay dropped",
        source="AMQ 17.3.4, SUN, WMQ",
        spec=load(
            name, policy, 13.0, pairs=pairs, clients=2 * pairs, rate=60.0 * pairs, workload="subscriptions",
            hold_s=0.3, prefetch=2, queues=8, **fields,
        ),
        schedule=faults(fault),
        allowed=allowed,
        besides=besides,
        guards=(Backlog(least=20, at=label, broker="a1"), Changing(least=2, at=label)),
    )  # fmt: skip


_FAILURE: Final = {
    "partition": "the broker is cut off from its backup or its store",
    "stall": "the broker or its store stands still until another broker has taken over",
}
_ELSEWHERE: Final = Takeovers((ExpectedTakeover("a1"),))
_INHERITED: Final = Moved(least=20, of="a1")
_VOTING: Final[dict[str, Any]] = {"pairs": 3, "every": _VOTES, "allowed": ("split-brain",)}
_ISOLATED: Final = fault("partition", 5.0, None, None, shape="isolate-live", pair="a")
_NO_STORE: Final = fault("database-disconnect", 5.0, None, chance=1.0, committed=0.0)
_A2: Final = (BY_A2, _INHERITED)
_OTHER: Final = (_ELSEWHERE, _INHERITED)

SCENARIOS: Final = (
    _row(1, "replication", "", fault("kill", 5.0), *_A2),
    _row(1, "replication", "partition", _ISOLATED, *_A2, **_VOTING),
    _row(1, "replication", "stall", fault("pause", 5.0), *_A2, **_VOTING),
    _row(2, "shared-store", "", fault("kill", 5.0), *_A2),
    _row(2, "shared-store", "partition", fault("nfs-disconnect", 5.0), *_A2),
    _row(2, "shared-store", "stall", fault("nfs-stall", 5.0, 6.0), *_A2, every=NO_FAILBACK),
    _row(3, "ha-database", "", fault("kill", 5.0), *_OTHER, pairs=3),
    _row(3, "ha-database", "partition", _NO_STORE, *_OTHER, pairs=3),
    _row(3, "ha-database", "stall", fault("pause", 5.0), *_OTHER, pairs=3, server=True),
    _row(4, "multi-instance", "", fault("kill", 5.0), *_A2),
    _row(4, "multi-instance", "partition", fault("nfs-disconnect", 5.0), *_A2),
    _row(4, "multi-instance", "stall", fault("nfs-stall", 5.0, 7.0), *_A2),
)
