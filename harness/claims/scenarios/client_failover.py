"""The scenarios of clients that have a list of brokers, rows CL13 and CL20."""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import BY_A2, SLOW, TAKEN, at_stake, fault, faults, load
from harness.claims.scenarios.client_expectations import Connects, Redirected
from harness.claims.scenarios.expectations import Expectation, Reported
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Fault

_THREE: Final = ("a1", "b1", "c1")
_LATE: Final = fault("late-start", 0.0, 8.0, "d1")
_JOINED: Final = ("heal:late-start-1", "heal")


def _taken_over(case: str, claim: str, *besides: Expectation, **fields: Any) -> Scenario:
    """Return a scenario of a pair whose live is killed, and whose clients know the live alone."""
    spec = load(
        f"cl13-{case}", "replication", 12.0, clients=4, workload="queue", client_brokers=("a1",),
        unavailable_bound_s=2.0, **SLOW, **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CL13-{case}", claim=claim, source="AMQ 17.3.6", spec=spec,
        schedule=faults(fault("kill", 4.0)), besides=besides, guards=at_stake("kill-1"),
    )  # fmt: skip


def _lost(case: str, claim: str, to: str, *injected: Fault, **fields: Any) -> Scenario:
    """Return a scenario of three brokers, the first of which all clients use and lose."""
    spec = load(
        f"cl13-{case}", "standalone", 14.0, pairs=3, clients=6, rate=20.0, workload="queue",
        client_brokers=_THREE, client_feed=False, **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CL13-{case}", claim=claim, source="AMQ 17.3.6", spec=spec, schedule=faults(*injected),
        besides=(Redirected(of="a1", to=to, after=f"{injected[0].kind}-1", least=2),),
    )  # fmt: skip


def _cut(seconds: float) -> Fault:
    """Return a fault that cuts a1 off from half of the clients, and from the other brokers."""
    return fault("partition", 4.0, seconds, None, shape="isolate-live", pair="a")


def _balanced(
    case: str, claim: str, order: str, injected: Fault, *besides: Expectation, **fields: Any
) -> Scenario:
    """Return a scenario of clients that share a list; consumers leave and return all the time."""
    spec = load(
        f"cl20-{case}", "standalone", 20.0, clients=8, rate=15.0, workload="queue", client_order=order,
        **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CL20-{case}", claim=claim, source="AMQ 17.6", spec=spec, schedule=faults(injected),
        besides=besides,
    )  # fmt: skip


_KILL: Final = fault("kill", 4.0, 4.0)
_OTHER_KILL: Final = fault("kill", 4.0, 4.0, "c1")

SCENARIOS: Final = (
    _taken_over(
        "kill",
        "a client that knows the live alone learns of its backup when it connects; when the live is killed "
        "it goes on there, and makes its subscriptions again",
        *TAKEN,
        Redirected(of="a1", to="a2", after="kill-1", least=4),
    ),
    _taken_over(
        "unfed",
        "as CL13-kill, but clients do not listen to the feed: the backup takes over, and no client finds it",
        BY_A2,
        Connects(brokers={}, window=("kill-1", "heal")),
        Reported("unavailable"),
        client_feed=False,
    ),
    _lost(
        "cut",
        "after a short cut a client connects to the same broker again, although the others are live",
        "a1",
        _cut(2.5),
        client_attempts=2,
    ),
    _lost(
        "cut-long",
        "as CL13-cut, but the cut lasts longer than the client tries: it goes on at the next broker",
        "b1",
        _cut(8.0),
        client_attempts=2,
    ),
    _lost(
        "handler",
        "a failure handler of the application chooses the broker to go on at",
        "c1",
        _KILL,
        client_handler="c1",
    ),
    _lost(
        "no-handler",
        "as CL13-handler, but without a handler: clients go on at the next broker of their list",
        "b1",
        _KILL,
    ),
    _balanced(
        "static",
        "RANDOM: connections spread over all brokers of a static list",
        "RANDOM",
        _OTHER_KILL,
        Connects(brokers=dict.fromkeys(_THREE, (5, 40))),
        pairs=3,
        client_brokers=_THREE,
        client_feed=False,
    ),
    _balanced(
        "priority",
        "as CL20-static, but PRIORITY: all connections go to the first broker of the list that is live",
        "PRIORITY",
        _OTHER_KILL,
        Connects(brokers={"a1": (16, 80)}),
        pairs=3,
        client_brokers=_THREE,
        client_feed=False,
    ),
    _balanced(
        "fed",
        "ROUND_ROBIN: clients that know one broker learn of the others by the feed; a fourth broker that "
        "joins gets its share of the connections from then on",
        "ROUND_ROBIN",
        _LATE,
        Connects(brokers=dict.fromkeys((*_THREE, "d1"), (1, 20)), window=_JOINED),
        pairs=4,
        client_brokers=("a1",),
    ),
    _balanced(
        "unfed",
        "as CL20-fed, but clients do not listen to the feed: all connections go to the broker that they know",
        "ROUND_ROBIN",
        _LATE,
        Connects(brokers={"a1": (4, 80)}, window=_JOINED),
        pairs=4,
        client_brokers=("a1",),
        client_feed=False,
    ),
)
