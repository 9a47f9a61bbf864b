"""The claims with nodes of RabbitMQ: rows RP, because quorum queues are replication by majority.

There are no pairs. If a row speaks of a live and its backup, a node and the others of its cluster
stand for them: each has a member of every queue.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import at_stake, fault, faults
from harness.claims.scenarios.expectations import Moved, Reported, Says, SlowestSend
from harness.claims.scenarios.scenario import Roles
from harness.claims.systems.row import PATIENT, Departure, SystemClaims, SystemRow, varied
from harness.interface import Fault

_ANYWAY: Final = dict.fromkeys(
    ("reordered-session", "reordered", "reordered-realtime"),
    Departure(
        reason="when a consumer unsubscribes, the messages that it gives back come after messages "
        "that were sent later",
        page="findings/rabbitmq-1/README.md",
    ),
)
_PAUSES: Final = Says("a1", "Cluster minority/secondary status detected")
_NO_PAIRS: Final = Departure(
    reason="there is no backup: the majority of a queue's members goes on; a node in the minority "
    "closes its ports (pause_minority), but its process remains"
)
_ELSEWHERE: Final = Moved(least=20, of="a1")


def _row(
    identifier: str, seconds: float, *some: Fault, spec: dict[str, Any] | None = None, **changes: Any
) -> SystemRow:
    fields = {
        "policy": "quorum-queues",
        "pairs": 3,
        "time_limit_s": seconds,
        "properties": {},
        **PATIENT,
        **(spec or {}),
    }
    bare: dict[str, Any] = {"allowed": (), "roles": Roles(), "guards": ()}
    return varied(
        identifier,
        "rabbitmq",
        spec=fields,
        schedule=faults(*some),
        anyway=_ANYWAY,
        **{**bare, **changes},
    )


CLAIMS: Final = SystemClaims(
    rows=(
        _row("RP1", 40.0, fault("kill", 8.0), besides=(_ELSEWHERE,), guards=at_stake("kill-1")),
        _row("RP1-large", 40.0, fault("kill", 8.0), besides=(_ELSEWHERE,), guards=at_stake("kill-1")),
        _row(
            "RP5",
            50.0,
            fault("partition", 8.0, 20.0, None, shape="isolate-live", pair="a"),
            besides=(_PAUSES,),
            departure=_NO_PAIRS,
        ),
        _row(
            "RP7",
            80.0,
            fault("kill", 8.0, 20.0, "b1,c1"),
            spec={"unavailable_bound_s": 5.0},
            besides=(_PAUSES, Reported("unavailable")),
            departure=_NO_PAIRS,
        ),
        _row(
            "RP16",
            40.0,
            fault("slow", 8.0, 20.0, None, shape="isolate-live", pair="a", delay_ms=150.0),
            besides=(SlowestSend(least_s=0.3, most_s=10.0),),
            departure=_NO_PAIRS,
        ),
    ),
    anyway=_ANYWAY,
    left_out={
        "RP1-paging": "quorum queues decide by themselves which messages stay in memory",
        **dict.fromkeys(
            ("RP4", "RP6", "RP8", "RP9", "RP10", "RP18", "RP20"),
            "nodes of rabbitmq form no pairs: the majority of a queue's members decides for the queue",
        ),
        **dict.fromkeys(
            ("RP11", "RP12", "RP13", "RP17"),
            "a queue of rabbitmq without a majority of its members serves no client",
        ),
        **dict.fromkeys(
            ("RP14", "RP15", "RP19"), "nodes of rabbitmq have no failback and no groups of brokers"
        ),
        "RP2": "no run is prepared for rabbitmq",
        "RP3": "no run is prepared for rabbitmq",
        **dict.fromkeys(("RP16-disk", "RP16-link", "RP16-sync"), "no run is prepared for rabbitmq"),
    },
)
