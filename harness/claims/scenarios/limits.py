"""The scenarios of limits on messages, row CV13."""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import fault, faults, load, properties
from harness.claims.scenarios.expectations import (
    AtStake,
    Bounded,
    Expectation,
    SendsFail,
    Shares,
    SlowestSend,
)
from harness.claims.scenarios.scenario import Scenario

LIMIT: Final = 50
_PAUSE: Final = faults(fault("pause", 6.0, 1.0))
_BALANCING: Final = "cluster.message-load-balancing"


def _flooded(
    case: str, claim: str, every: dict[str, object], *besides: Expectation, **fields: Any
) -> Scenario:
    """Return a scenario in which clients send more than consumers take."""
    load_fields = {"clients": 2, "workload": "queue", "rate": 60.0, "hold_s": 4.0, **fields}
    spec = load(f"cv13-{case}", "standalone", 20.0, every=every, **load_fields)
    return Scenario(
        id=f"CV13-{case}", claim=claim, source="SUN", spec=spec, schedule=_PAUSE, besides=besides
    )  # fmt: skip


def _limit(behavior: str, limit: int = LIMIT, match: str = "#") -> dict[str, object]:
    return properties(f"address-settings.{match}.", max_messages=limit, limit_behavior=behavior)


def _moved(case: str, claim: str, limit: int, *besides: Expectation) -> Scenario:
    """Return a scenario in which transactions send more to the last queue than is consumed."""
    every = _limit("REJECT_NEWEST", limit, "q2")
    return _flooded(
        case, claim, every, *besides, workload="transactions", clients=6, rate=60.0, hold_s=1.0, prefetch=2
    )


def _unattended(case: str, claim: str, limit: int, most: int, **fields: Any) -> Scenario:
    """Return a scenario in which no consumer is where messages are sent, until the drain."""
    spec = load(
        f"cv13-{case}",
        "standalone",
        20.0,
        pairs=2,
        clients=2,
        workload="queue",
        rate=20.0,
        produce_at=("a1",),
        consume_at=("b1",),
        every={**_limit("REMOVE_OLDEST", limit), _BALANCING: "OFF"},
    )
    besides = (Shares(sent_at="a1", brokers={"a1": (1 if limit > 0 else LIMIT + 1, most)}),)
    return Scenario(
        id=f"CV13-{case}", claim=claim, source="SUN", spec=spec, schedule=_PAUSE, besides=besides, **fields
    )


REFUSED: Final = SendsFail(least=20, pattern="full")
BOUNDED: Final = Bounded(broker="a1", most=LIMIT)

SCENARIOS: Final = (
    _flooded(
        "flow",
        "FLOW_CONTROL: a broker takes no more messages of a queue than its limit, and sends wait; none is "
        "lost",
        _limit("FLOW_CONTROL"),
        Bounded(broker="a1", most=LIMIT + 2),  # each producer may have one more under way
        SlowestSend(least_s=0.3, most_s=15.0),
    ),
    _flooded(
        "reject",
        "REJECT_NEWEST: a broker refuses sends to a queue that has as many messages as its limit; no message "
        "that it took is lost",
        _limit("REJECT_NEWEST"),
        BOUNDED,
        SendsFail(least=20, pattern="full", certainly=True),
    ),
    _moved(
        "commit",
        "REJECT_NEWEST: a broker refuses commits of transactions whose sends have no room, and does nothing "
        "of them",
        4,
        SendsFail(least=5, pattern="full", certainly=True, op="commit"),
    ),
    _moved(
        "commit-none",
        "as CV13-commit, but without a limit: no commit fails",
        -1,
        SendsFail(least=0, most=0, pattern="full", op="commit"),
    ),
    _flooded(
        "broker",
        "broker.max-messages: a broker takes no more messages than its limit in all queues together, and "
        "sends wait; none is lost",
        properties("broker.", max_messages=LIMIT),
        BOUNDED,
        SlowestSend(least_s=0.3, most_s=15.0),
        queues=2,
    ),
    _flooded(
        "none",
        "as CV13-flow, but without a limit: messages pile up",
        _limit("FLOW_CONTROL", -1),
        AtStake(least=2 * LIMIT, broker="a1", at="heal"),
    ),
    _unattended(
        "oldest",
        "REMOVE_OLDEST: a broker removes the oldest messages of a queue that has more than its limit; "
        "they are lost, and only the newest are delivered",
        LIMIT,
        LIMIT,
        required=("lost",),
    ),
    _unattended("oldest-none", "as CV13-oldest, but without a limit: all are delivered", -1, 1000),
)
