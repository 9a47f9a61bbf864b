"""The claims with brokers of Open MQ, the broker of the documents themselves: rows HA.

Brokers of a cluster deliver to the consumers of all, so who delivers a message does not tell whose
it is: what moves is what the taker says that it takes over, and a valid run shows that it is whole.
Times are those of JVMs on two busy cores: a broker is suspected three seconds after its last sign
of life, and taken over when its row in the database has stood still for eight more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.claims.scenarios.cases import fault, faults
from harness.claims.scenarios.expectations import ExpectedTakeover, GoesOn, Resumed, Says, Takeovers
from harness.claims.systems.row import PATIENT, Departure, SystemClaims, SystemRow, varied
from harness.interface import Fault

_SYSTEM: Final = "openmq"

_FIELDS: Final[Mapping[str, Any]] = {
    **PATIENT,
    "rate": 24.0,
    "quiet_period_s": 6.0,
    # Consumers are given all that there is: what is at stake is what they hold.
    "hold_s": 3.0,
    "properties": {},
}

_LENT: Final = Departure(
    reason="brokers whose link closes give what a consumer of the other one holds to others at once",
    page="findings/openmq-3.md",
)
_ANYWAY: Final = {
    "double-delivery": _LENT,
    "duplicate": _LENT,
    "stuck": Departure(
        reason="a client that goes away while messages come leaves a consumer behind, which keeps its share",
        page="findings/openmq-2.md",
    ),
}


def _row(identifier: str, seconds: float, *some: Fault, **changes: Any) -> SystemRow:
    """That row for ``seconds`` of load, with these faults."""
    fields = {"time_limit_s": seconds, **_FIELDS}
    return varied(identifier, _SYSTEM, spec=fields, schedule=faults(*some), anyway=_ANYWAY, **changes)


_BY_ANOTHER: Final = Takeovers((ExpectedTakeover("a1"),))
_BY_B1: Final = Takeovers((ExpectedTakeover("a1", "b1"),))
_WITH_MESSAGES: Final = Says(None, r"Taking over [1-9]\d* messages from broker a1")
_BEGAN_ANEW: Final = Says("a1", r"\[B3(?:186|187|203)\]|being taken over")

CLAIMS: Final = SystemClaims(
    rows=(
        _row(
            "HA1", 45.0, fault("kill", 6.0), besides=(_BY_ANOTHER, _WITH_MESSAGES, Resumed(of="a1", least=10))
        ),
        _row(
            "HA4",
            60.0,
            fault("pause", 6.0, 30.0),
            besides=(_BY_ANOTHER, _WITH_MESSAGES, GoesOn("a1")),
        ),
        _row("HA4-patient", 45.0, fault("pause", 6.0, 4.0), besides=(Takeovers(),)),
        _row(
            "HA6-true",
            45.0,
            fault("stop", 6.0, 15.0, failover=True),
            besides=(_BY_ANOTHER, _WITH_MESSAGES),
        ),
        _row("HA6-false", 60.0, fault("stop", 6.0, 25.0, failover=False), besides=(Takeovers(),)),
        _row(
            "HA6-by-hand",
            60.0,
            fault("stop", 6.0, 25.0, failover=False),
            fault("takeover", 12.0, 5.0, taker="b1"),
            besides=(_BY_B1, _WITH_MESSAGES),
        ),
        _row(
            "HA6-forced",
            60.0,
            fault("takeover", 6.0, 15.0, taker="b1"),
            besides=(_BY_B1, _WITH_MESSAGES, _BEGAN_ANEW, GoesOn("a1")),
        ),
        _row(
            "HA11-stall",
            45.0,
            fault("database-stall", 6.0, 5.0, None),
            besides=(Takeovers(),),
        ),
        _row(
            "HA11-restart",
            45.0,
            fault("database-restart", 6.0, 2.0, None),
            besides=(Takeovers(),),
        ),
    ),
    anyway=_ANYWAY,
    left_out={
        "HA1-large": "how messages are stored is our own broker's affair",
        "HA1-paging": "how messages are stored is our own broker's affair",
        "HA2": "a taker sees that another has begun, so that two hardly ever try at once",
        "HA5": "a takeover takes a tenth of a second: no kill comes half-way",
    },
)
