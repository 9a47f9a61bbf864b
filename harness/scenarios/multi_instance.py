"""The scenarios of policy ``multi-instance``: WebSphere MQ 7.0.1, rows MI1, MI2 and MI5 of the claims; the other rows are probes (``multi_instance_probes``).

Times are those of a test: the file server's lease and ``lock-expiration`` are 4 s, so an active instance answers nobody from 2 s of silence on.
"""

from __future__ import annotations

from typing import Any, Final

from harness.interface import Fault, Schedule, TestSpec
from harness.scenarios.scenario import Roles, Scenario


def _spec(name: str, seconds: float = 11.0) -> TestSpec:
    """One queue manager, a1 started first and a2 beside it."""
    return TestSpec(
        name=name,
        policy="multi-instance",
        pairs=1,
        time_limit_s=seconds,
        rate=60.0,
        producers=3,
        consumers=3,
        groups=4,
        recovery_bound_s=30.0,
    )


def _fault(kind: str, seconds: float, target: str, **options: Any) -> Schedule:
    return Schedule(
        faults=(Fault(kind=kind, start_s=3.0, duration_s=seconds, target=target, options=options),)
    )


SCENARIOS: Final = (
    Scenario(
        id="MI1",
        claim="the standby instance takes over as soon as the lock of the active one is released, and replays its logs",
        source="WMQ",
        spec=_spec("mi1", 8.0),
        schedule=_fault("kill", 3.0, "a1"),
        roles=Roles(live=("a2",), never_live=("a1",)),
    ),
    Scenario(
        id="MI2",
        claim="an active instance that is cut off from the file system loses its locks and ends itself; the standby instance takes over",
        source="WMQ",
        spec=_spec("mi2"),
        schedule=_fault("nfs-disconnect", 7.0, "a1"),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="MI5-i",
        claim="endmqm -i on the active instance ends both instances",
        source="WMQ",
        # Time enough for both to be started again on a busy machine.
        spec=_spec("mi5-i", 15.0),
        schedule=_fault("stop", 3.0, "a1", failover=False),
        roles=Roles(ended=("a2",)),
    ),
    Scenario(
        id="MI5-x",
        claim="endmqm -x ends the standby instance alone",
        source="WMQ",
        spec=_spec("mi5-x"),
        schedule=_fault("stop", 3.0, "a2"),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="MI5-is",
        claim="endmqm -is switches over: the active instance ends, the standby instance becomes active",
        source="WMQ",
        spec=_spec("mi5-is"),
        schedule=_fault("switch-over", 4.0, "a1"),
        roles=Roles(live=("a2",), never_live=("a1",)),
    ),
)
