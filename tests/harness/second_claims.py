"""What the second system's brokers are held against."""

from harness.claims.scenarios.cases import fault, faults
from harness.claims.scenarios.scenario import Roles
from harness.claims.systems.row import Departure, SystemClaims, varied

_ALONE = {
    "policy": "alone",
    "pairs": 2,
    "time_limit_s": 6.0,
    "rate": 40.0,
    "producers": 2,
    "consumers": 3,
    "groups": 4,
    "hold_s": 0.5,
    "properties": {},
}


def row(**changes):
    """A kill, after which what waited is gone."""
    given = {"required": ("lost",), "departure": Departure(reason="their queues are in memory"), **changes}
    return varied(
        "RP11",
        "echo",
        spec=_ALONE,
        schedule=faults(fault("kill", 2.0, 1.0)),
        roles=Roles(),
        besides=(),
        guards=(),
        **given,
    )


CLAIMS = SystemClaims(rows=(row(),), left_out={"RP4": "they have no pairs"})
