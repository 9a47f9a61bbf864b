"""The scenarios of brokers that join a cluster while it is used, rows CL12 and CV6."""

from __future__ import annotations

from typing import Final

from harness.claims.scenarios.cases import fault, faults, load
from harness.claims.scenarios.expectations import (
    Answers,
    Becomes,
    Expectation,
    Follows,
    Moved,
    Refuses,
)
from harness.claims.scenarios.scenario import Scenario
from harness.interface import NO_MASTER

_JOIN: Final = fault("late-start", 0.0, 5.0, "c1"), fault("late-start", 0.0, 7.0, "d1")
_GROWN: Final = "heal:late-start-2", "heal"


def _growing(case: str, claim: str, mode: str, *besides: Expectation) -> Scenario:
    """Return a scenario of CL12: a1 and b1 are joined by c1, and by d1, which has no consumers."""
    spec = load(
        f"cl12-{case}", "standalone", 18.0, pairs=4, workload="queue",
        every={"cluster.message-load-balancing": mode},
        produce_at=("a1", "b1", "d1"), consume_at=("a1", "b1", "c1"),
    )  # fmt: skip
    return Scenario(
        id=f"CL12-{case}", claim=claim, source="AMQ 17.2", spec=spec, schedule=faults(*_JOIN),
        besides=(Answers(window=("load", "heal:late-start-1"), broker="a1", least=20), *besides),
    )  # fmt: skip


_MASTER_STARTS: Final = "heal:late-start-1"
_WITHOUT_MASTER: Final = "load", _MASTER_STARTS
_MEMBERS: Final = "b1", "c1"


def _awaiting(case: str, claim: str, master: str, *besides: Expectation) -> Scenario:
    """Return a scenario of CV6: b1 and c1, which have all clients, start before a1.

    Brokers try to reach each other every five seconds, as in the document.
    """
    spec = load(
        f"cv6-{case}", "conventional", 20.0, pairs=3, clients=4, workload="queue",
        produce_at=_MEMBERS, consume_at=_MEMBERS, master=master,
        every={"cluster.retry-interval": 5000, "cluster.max-retry-interval": 5000},
    )  # fmt: skip
    return Scenario(
        id=f"CV6-{case}", claim=claim, source="SUN, CAPS", spec=spec, besides=besides,
        schedule=faults(fault("late-start", 0.0, 8.0, suspends=_MEMBERS)),
    )  # fmt: skip


def suspended_until_master(refusal: str) -> tuple[Expectation, ...]:
    """Return the expectations of CV6-suspended; ``refusal`` matches why clients are refused."""
    return tuple(
        expectation
        for broker in _MEMBERS
        for expectation in (
            Becomes(broker=broker, role="suspended", after="start", most_s=60.0),
            Refuses(broker=broker, pattern=refusal, window=_WITHOUT_MASTER),
            Follows(broker=broker, other="a1", most_s=6.0),
            Answers(broker=broker, window=(_MASTER_STARTS, "heal"), least=40),
        )
    )


def serving_at_once() -> tuple[Expectation, ...]:
    """Return the expectations of CV6-none: both brokers serve before the broker that starts last.

    How long a broker takes to start is the machine's affair.
    """
    return tuple(
        expectation
        for broker in _MEMBERS
        for expectation in (
            Becomes(broker=broker, role="live", after="start", most_s=60.0),
            Answers(broker=broker, window=_WITHOUT_MASTER, least=40),
        )
    )


SCENARIOS: Final = (
    _growing(
        "grow",
        "a cluster grows from two brokers to four under load: the new ones deliver what the old ones have, "
        "and the other way round",
        "ON_DEMAND",
        Moved(least=20, of="a1", by="c1", window=_GROWN),
        Moved(least=50, of="d1", window=_GROWN),
    ),
    _growing(
        "off",
        "as CL12-grow, but OFF: no message leaves the broker that took it",
        "OFF",
        Moved(least=0, most=0),
    ),
    _awaiting(
        "none",
        "as CV6-suspended, but no master is configured: brokers serve at once",
        NO_MASTER,
        *serving_at_once(),
    ),
    _awaiting(
        "suspended",
        "brokers that start before their master broker are suspended, and refuse clients; when it has "
        "started, they serve within six seconds, because they try every five",
        "a1",
        *suspended_until_master("suspended"),
    ),
)
