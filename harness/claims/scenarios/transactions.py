"""The scenarios of transactions across a fail-over, rows TX1 to TX4 of the claims.

AMQ 17.3.4, Sun and WMQ say the same of each policy. A transaction that is open when its broker
fails is rolled back, and a committed one is complete. A commit that was under way is unknown to its
client, and has then happened as a whole or not at all. The load is the workload ``transactions``;
guards demand that transactions were under way when the fault came.

Row TX5 is our own, and no document's: what follows for a bank, whose money moves in transactions.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import BY_A2, fault, faults, load, properties
from harness.claims.scenarios.expectations import Expectation, ExpectedTakeover, Takeovers, UnderWay
from harness.claims.scenarios.scenario import Scenario
from harness.claims.scenarios.shared_store import NO_FAILBACK
from harness.interface import Fault

_VOTES: Final = {
    **properties("ha-policy.replication.master.", vote_on_replication_failure=True),
    **properties("ha-policy.replication.slave.", vote_on_replication_failure=True),
}


def _row(
    number: int, policy: str, case: str, fault: Fault, besides: Expectation, *,
    allowed: tuple[str, ...] = (), pairs: int = 1, **fields: Any,
) -> Scenario:  # fmt: skip
    """Return a case of a row: what fails, and which broker takes over.

    Movers hold their transactions for long, and always have something to move. So most of them are
    in a transaction whenever something fails.
    """
    name = f"tx{number}-{case}".removesuffix("-")
    return Scenario(
        id=f"TX{number}-{case}".removesuffix("-"),
        claim=f"as TX{number}, but {_FAILURE[case]}"
        if case
        else f"policy {policy}, the broker is killed: an open transaction is rolled back, a committed one "
        "is complete, and a commit of unknown outcome happened completely or not at all",
        source="AMQ 17.3.4, SUN, WMQ",
        spec=load(
            name, policy, 12.0, pairs=pairs, clients=8 * pairs, rate=60.0 * pairs, workload="transactions",
            hold_s=0.3, **fields,
        ),
        schedule=faults(fault),
        allowed=allowed,
        besides=(besides,),
        guards=(UnderWay(least=2, at=f"{fault.kind}-1"),),
    )  # fmt: skip


def _bank(case: str, policy: str) -> Scenario:
    """Return a case in which the accounts of ``bank`` keep their total across a fail-over.

    Accounts are few and tellers many and slow, so that mostly some transfers are under way.
    """
    name = f"tx5-{case}".removesuffix("-")
    return Scenario(
        id=f"TX5-{case}".removesuffix("-"),
        claim=f"as TX5, with policy {policy}"
        if case
        else f"policy {policy}, the broker is killed: accounts that exchange money in transactions keep "
        "their total",
        source="own",
        spec=load(name, policy, 12.0, pairs=1, clients=24, rate=120.0, workload="bank", hold_s=1.0),
        schedule=faults(fault("kill", 4.0)),
        besides=(BY_A2,),
        guards=(UnderWay(least=2, at="kill-1"),),
    )


_FAILURE: Final = {
    "partition": "the broker is cut off from its backup or its store",
    "stall": "the broker or its store stands still until another broker has taken over",
}
_ELSEWHERE: Final = Takeovers((ExpectedTakeover("a1"),))
_VOTING: Final[dict[str, Any]] = {"pairs": 3, "every": _VOTES, "allowed": ("split-brain",)}
_ISOLATED: Final = fault("partition", 3.0, None, None, shape="isolate-live", pair="a")
_NO_STORE: Final = fault("database-disconnect", 3.0, None, chance=1.0, committed=0.0)

SCENARIOS: Final = (
    _row(1, "replication", "", fault("kill", 4.0), BY_A2),
    _row(1, "replication", "partition", _ISOLATED, BY_A2, **_VOTING),
    _row(1, "replication", "stall", fault("pause", 3.0), BY_A2, **_VOTING),
    _row(2, "shared-store", "", fault("kill", 4.0), BY_A2),
    _row(2, "shared-store", "partition", fault("nfs-disconnect", 3.0), BY_A2),
    _row(2, "shared-store", "stall", fault("nfs-stall", 3.0, 6.0), BY_A2, every=NO_FAILBACK),
    _row(3, "ha-database", "", fault("kill", 3.0), _ELSEWHERE, pairs=3),
    _row(3, "ha-database", "partition", _NO_STORE, _ELSEWHERE, pairs=3),
    _row(3, "ha-database", "stall", fault("pause", 3.0), _ELSEWHERE, pairs=3, server=True),
    _row(4, "multi-instance", "", fault("kill", 3.0), BY_A2),
    _row(4, "multi-instance", "partition", fault("nfs-disconnect", 3.0), BY_A2),
    _row(4, "multi-instance", "stall", fault("nfs-stall", 3.0, 7.0), BY_A2),
    _bank("", "replication"),
    _bank("shared-store", "shared-store"),
)
