"""The scenarios of policy ``multi-instance``.

These are WebSphere MQ 7.0.1, rows MI1, MI2 and MI5 of the claims; the other rows are probes
(``multi_instance_probes``).

Times are those of a test: the file server's lease and ``lock-expiration`` are 4 s, so an active
instance stops answering after 2 s of silence.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import SLOW, TAKEN, at_stake, ends_in_time, fault, faults, load
from harness.claims.scenarios.expectations import Becomes, GoesOn, Reported, Says, Takeovers
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.interface import TestSpec


def _spec(name: str, seconds: float = 11.0, **fields: Any) -> TestSpec:
    """Return the spec of one queue manager: a1 is started first, a2 is the other instance."""
    return load(name, "multi-instance", seconds, **SLOW, **fields)


SCENARIOS: Final = (
    Scenario(
        id="MI1",
        claim="the standby instance takes over as soon as the lock of the active instance is "
        "released, and replays its logs",
        source="WMQ",
        spec=_spec("mi1", 8.0),
        schedule=faults(fault("kill", 3.0)),
        besides=(
            *TAKEN,
            Becomes(broker="a2", role="live", after="kill-1", most_s=3.0),
            Says("a2", "log replay for queue manager 'QMA' complete: [1-9]"),
        ),
        guards=at_stake("kill-1"),
    ),
    Scenario(
        id="MI2",
        claim="an active instance that is cut off from the file system loses its locks and ends itself; "
        "the standby instance takes over",
        source="WMQ",
        spec=_spec("mi2"),
        schedule=faults(fault("nfs-disconnect", 3.0, 7.0)),
        besides=(*TAKEN, ends_in_time("nfs-disconnect-1")),
        guards=at_stake("nfs-disconnect-1"),
    ),
    Scenario(
        id="MI5-i",
        claim="endmqm -i on the active instance ends both instances",
        source="WMQ",
        # This is time enough for both to be started again on a busy machine.
        spec=_spec("mi5-i", 15.0, unavailable_bound_s=2.0),
        schedule=faults(fault("stop", 3.0, 3.0, failover=False)),
        roles=Roles(ended=("a2",)),
        besides=(
            Becomes(broker="a2", role="stopped", after="stop-1", most_s=2.5),
            Reported("unavailable"),
            Says("a2", "standby queue manager instance 'QMA' ended"),
        ),
        guards=at_stake("stop-1"),
    ),
    Scenario(
        id="MI5-x",
        claim="endmqm -x ends only the standby instance",
        source="WMQ",
        spec=_spec("mi5-x"),
        schedule=faults(fault("stop", 3.0, 3.0, "a2")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), GoesOn("a1"), Says("a2", "standby queue manager instance 'QMA' ended")),
    ),
    Scenario(
        id="MI5-is",
        claim="endmqm -is switches over: the active instance ends, and the standby instance becomes active",
        source="WMQ",
        spec=_spec("mi5-is"),
        schedule=faults(fault("switch-over", 3.0, 4.0)),
        roles=Roles(never_live=("a1",)),
        besides=(*TAKEN, Says("a1", "queue manager 'QMA' ended, permitting switchover")),
        guards=at_stake("switch-over-1"),
    ),
)
