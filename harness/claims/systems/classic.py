"""The claims with brokers of Apache ActiveMQ Classic: a pair on a shared directory or a database.

These are the rows SS, as far as Classic has what they are about. Its brokers are not masters and
slaves: the broker that comes first has the lock, and none gives it back.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import BY_A2, TAKEN, at_stake, fault, faults
from harness.claims.scenarios.expectations import Moved, Says, SlowestSend, Takeovers
from harness.claims.scenarios.scenario import Roles
from harness.claims.systems.row import PATIENT, Departure, SystemClaims, SystemRow, varied
from harness.interface import Fault

_WAITS: Final = "slave mode waiting a lock"
_BEGINS_ANEW: Final = Departure(
    reason="a broker that stood still considers itself the master until it checks its lock again "
    "(lockKeepAlivePeriod); then it restarts within its process and waits as a slave (restartAllowed)"
)
_DAMAGED: Final = ("lost", "duplicate", "zombie", "not-linearizable", "reordered-realtime")
"""The findings in a store that two brokers have written."""
_LOST: Final = Says("a1", "no longer able to keep the exclusive lock")


def _row(
    identifier: str, seconds: float, *some: Fault, spec: dict[str, Any] | None = None, **changes: Any
) -> SystemRow:
    fields = {"time_limit_s": seconds, "properties": {}, **PATIENT, **(spec or {})}
    return varied(identifier, "classic", spec=fields, schedule=faults(*some), **changes)


def _on_nfs(lease_s: float) -> dict[str, Any]:
    return {"store": {"type": "nfs", "mount-options": "hard", "lease-ms": round(lease_s * 1000)}}


_JDBC: Final[dict[str, Any]] = {"policy": "jdbc"}

CLAIMS: Final = SystemClaims(
    rows=(
        _row("SS1", 30.0, fault("kill", 6.0)),
        _row("SS1-large", 30.0, fault("kill", 6.0)),
        # The two have no link: the fault cuts each one's way to clients of the other side.
        _row("SS2", 40.0, fault("partition", 6.0, 15.0, None, shape="halves"), besides=(Takeovers(),)),
        _row("SS4-true", 30.0, fault("stop", 6.0)),
        _row(
            "SS5-false",
            45.0,
            fault("kill", 6.0, 8.0),
            besides=(BY_A2, Says("a1", _WAITS)),
        ),
        _row(
            "SS7-hard",
            45.0,
            fault("nfs-stall", 6.0, 6.0),
            spec={"properties": _on_nfs(30.0), "operation_timeout_s": 30.0},
            besides=(Takeovers(), SlowestSend(least_s=4.0, most_s=20.0)),
        ),
        _row(
            "SS9",
            80.0,
            fault("nfs-disconnect", 6.0, 20.0),
            fault("pause", 6.0, 20.0),
            spec={"properties": _on_nfs(8.0), "operation_timeout_s": 40.0},
            roles=Roles(live=("a2",)),
            besides=(Moved(least=1, of="a1", by="a2"), _LOST),
            allowed=("split-brain", *_DAMAGED),
            departure=Departure(
                reason="a broker that stood still considers itself the master until it checks its "
                "lock again (lockKeepAlivePeriod), and writes into the store of the new master; "
                "messages of both are lost",
                page="findings/classic-3/README.md",
            ),
        ),
        _row("SS3-kill", 40.0, fault("kill", 6.0), spec=_JDBC, besides=TAKEN),
        _row("SS3-large", 40.0, fault("kill", 6.0), spec=_JDBC, besides=TAKEN),
        _row(
            "SS3-partition",
            40.0,
            fault("partition", 6.0, 15.0, None, shape="halves"),
            spec=_JDBC,
            besides=(Takeovers(),),
        ),
        _row(
            "SS3-pause",
            60.0,
            fault("pause", 6.0, 20.0),
            spec=_JDBC,
            roles=Roles(live=("a2",)),
            besides=(Moved(least=20, of="a1", by="a2"), _LOST),
            allowed=("split-brain", "duplicate"),
            departure=_BEGINS_ANEW,
        ),
        _row(
            "SS3-cut-off",
            60.0,
            fault("database-disconnect", 6.0, 20.0, chance=1.0, committed=0.0),
            spec=_JDBC,
            besides=(Moved(least=20, of="a1", by="a2"),),
            guards=at_stake("database-disconnect-1"),
        ),
    ),
    left_out={
        "SS1-paging": "brokers of classic decide by themselves which messages stay in memory",
        "SS3-paging": "brokers of classic decide by themselves which messages stay in memory",
        "SS3-stall": "chance decides which of the two brokers reaches the database again first",
        "SS4-false": "a broker of classic always releases the lock when it stops",
        "SS5": "a running broker of classic keeps its lock (see SS5-false)",
        "SS6": "a pair of classic has only two brokers in these tests",
        "SS7": "only SS7-hard has a run that is prepared for classic",
        "SS9-server": "a broker of classic waits as long as its mount waits",
    },
)
