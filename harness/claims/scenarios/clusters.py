"""The scenarios of clusters of brokers without backups, rows of CL and CV."""

from __future__ import annotations

from typing import Final

from harness.claims.scenarios.cases import fault, faults, load, properties
from harness.claims.scenarios.expectations import Moved, Says
from harness.claims.scenarios.scenario import Scenario

_OTHER: Final = properties("cluster.", name="other-cluster")
_RESTART: Final = faults(fault("kill", 3.0, 1.0, "b1"))
"""b1 dials anew, and is dialled."""
_REFUSED: Final = "cluster: a broker refused the connection: cluster.name is "

SCENARIOS: Final = (
    Scenario(
        id="CV11-apart",
        claim="two brokers that have one password, and different cluster names, share nothing, before and "
        "after one restarts: each keeps its messages and has no view of the other",
        source="SUN, CAPS",
        spec=load(
            "cv11-apart", "standalone", 8.0, pairs=2, workload="queue", properties={"b1": _OTHER}
        ),
        schedule=_RESTART,
        required=("diverged",),
        besides=(Moved(least=0, most=0), Says("a1", _REFUSED, times=1), Says("b1", _REFUSED, times=2)),
    ),
    Scenario(
        id="CV11-together",
        claim="as CV11-apart, but both brokers have one cluster name: each delivers messages of the other",
        source="SUN, CAPS",
        spec=load("cv11-together", "standalone", 8.0, pairs=2, workload="queue"),
        schedule=_RESTART,
        besides=(Moved(least=20),),
    ),
)  # fmt: skip
