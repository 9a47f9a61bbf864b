"""The scenarios of topics and replies across brokers, row CL19.

The subscribers of topics are at another broker than their producers, and those who reply at another
one than those who ask. A broker forwards what it accepts to the brokers with subscriptions, or with
the temporary queue, and keeps it for them while they cannot be reached. Three brokers of a cluster
have all producers at a1 and all consumers at b1. The twins have both at a1.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import fault, faults, load
from harness.claims.scenarios.expectations import Answers, AtStake, Changing, Expectation, Moved
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Schedule

_APART: Final = faults(fault("partition", 4.0, 3.0, None, shape="link", between=["a1", "b1"]))
"""a1 and b1 do not hear each other; clients reach both.

What had come before may wait at b1 for a subscriber that is away.
"""
_CUT: Final = "partition-1", "heal:partition-1"
_KILLED_APART: Final = faults(
    fault("partition", 4.0, 4.0, None, shape="link", between=["a1", "b1"]),
    fault("kill", 5.5, 1.0, "b1"),
)
"""The broker of those who reply is killed while what they have sent cannot leave it."""
_KILLED: Final = faults(fault("kill", 3.0, 4.0, "b1"), fault("kill", 4.0, 1.0))
"""The subscribers' broker is killed, and meanwhile that of the producers, which is back first."""


def _row(
    case: str,
    claim: str,
    schedule: Schedule,
    *besides: Expectation,
    at: str = "b1",
    guard: Expectation,
    workload: str = "subscriptions",
    **fields: Any,
) -> Scenario:
    """Return a case of CL19, with all subscribers, or all who reply, at one broker."""
    spec = load(
        f"cl19-{case}", "standalone", 12.0, pairs=3, workload=workload, queues=2,
        produce_at=("a1",), consume_at=(at,), **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CL19-{case}", claim=claim, source="AMQ 17.1.4, 17.4.1.1", spec=spec, schedule=schedule,
        besides=besides, guards=(guard,),
    )  # fmt: skip


SCENARIOS: Final = (
    _row(
        "topics",
        "subscriptions at one broker get what is sent to their topic at another; what is sent while the two "
        "do not hear each other waits for those that existed before",
        _APART,
        Moved(least=500, of="a1", by="b1"),
        Moved(window=_CUT, of="a1", least=0, most=100),
        Answers(window=_CUT, broker="a1", least=60),
        guard=Changing(least=1, at="partition-1"),
    ),
    _row(
        "kill",
        "as CL19-topics, but the subscribers' broker is killed, and meanwhile that of the producers, which "
        "is back first: it knows the subscriptions that outlive connections from its journal",
        _KILLED,
        Moved(least=500, of="a1", by="b1"),
        guard=Changing(least=1, at="kill-1"),
    ),
    _row(
        "one",
        "as CL19-kill, but producers and subscribers are at one broker: nothing is forwarded",
        faults(fault("kill", 4.0, 1.0)),
        Moved(least=0, most=0),
        at="a1",
        guard=Changing(least=1, at="kill-1"),
    ),
    _row(
        "replies",
        "a reply that is sent to another broker than that of its temporary queue comes to who asked, also if "
        "it has to wait for the link, and its broker is killed meanwhile",
        _KILLED_APART,
        Moved(least=60, of="a1", by="b1"),
        Moved(least=60, of="b1", by="a1"),
        guard=AtStake(least=3, at="kill-2", broker="b1"),
        workload="request-reply",
        hold_s=0.3,
        clients=8,
    ),
    _row(
        "replies-one",
        "as CL19-replies, but those who ask and those who reply are at one broker: nothing is forwarded",
        faults(fault("kill", 4.0, 1.0)),
        Moved(least=0, most=0),
        at="a1",
        guard=AtStake(least=3, at="kill-1", broker="a1"),
        workload="request-reply",
        hold_s=0.3,
        clients=8,
    ),
)
