"""The scenarios of the change record of a conventional cluster, rows CV3, CV4 and CV14.

The load is the workload ``subscriptions``: durable subscriptions are dropped and made again all the
time, each at a broker of its topic's pair, and all brokers must have them. Brokers are asked for
them after the recovery, and those that differ are accused (``diverged``). The load of CV3-load is
the workload ``destinations``, in which an administrator does the same with queues.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import fault, faults, load
from harness.claims.scenarios.expectations import (
    Answers,
    CatchesUp,
    Changing,
    Converges,
    Expectation,
    QueuesChange,
    RefusesChange,
)
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Fault

_ALL: Final = Converges(kind="subscriptions", brokers=("a1", "b1", "c1"), least=12)
_KILLED: Final = ("kill-1", "heal:kill-1")
_UNREACHABLE: Final = "master broker .* cannot be reached"


def _refuses(broker: str, **fields: Any) -> RefusesChange:
    """Return the expectation that a broker that does not reach the master refuses changes."""
    return RefusesChange(broker=broker, pattern=_UNREACHABLE, window=_KILLED, **fields)


def _row(
    case: str, claim: str, *some: Fault, besides: tuple[Expectation, ...], allowed: tuple[str, ...] = (),
    **fields: Any,
) -> Scenario:  # fmt: skip
    """Return a scenario with a master broker, a1, and two members."""
    spec = load(
        case.lower(), "conventional", 16.0, pairs=3, clients=6, rate=60.0, workload="subscriptions",
        queues=2, churn=2.0, master="a1", **fields,
    )  # fmt: skip
    return Scenario(
        id=case, claim=claim, source="SUN", spec=spec, schedule=faults(*some),
        besides=besides, allowed=allowed,
        guards=(Changing(least=4, at=f"{some[0].kind}-1", before_s=0.0, after_s=6.0),),
    )  # fmt: skip


SCENARIOS: Final = (
    _row(
        "CV3",
        "durable subscriptions are dropped and made again while a broker is down: it gets the changes "
        "from the master broker when it is back",
        fault("kill", 4.0, 6.0, "c1"),
        besides=(_ALL,),
    ),
    _row(
        "CV3-in-time",
        "as CV3, and while subscriptions are still made: the broker has what it missed a few seconds after "
        "its restart",
        fault("kill", 4.0, 6.0, "c1"),
        besides=(
            _ALL,
            CatchesUp(
                broker="c1", other="a1", kind="subscriptions", after="heal:kill-1", least=4, most_s=4.0
            ),
        ),
        watch_views=True,
    ),
    _row(
        "CV3-away",
        "as CV3, but the broker stays away: the other brokers agree without it",
        fault("leave", 4.0, None, "c1"),
        allowed=("stuck",),
        besides=(Converges(kind="subscriptions", brokers=("a1", "b1"), least=12),),
    ),
    Scenario(
        id="CV3-load",
        claim="queues are deleted and created again at all brokers under load while a broker is down: when "
        "it is back, it has the same queues as the others, and no message of a deleted one",
        source="SUN",
        spec=load(
            "cv3-load",
            "conventional",
            16.0,
            pairs=3,
            clients=6,
            rate=60.0,
            workload="destinations",
            queues=2,
            churn=2.0,
            master="a1",
        ),
        schedule=faults(fault("kill", 4.0, 6.0, "c1")),
        besides=(Converges(kind="queue", brokers=("a1", "b1", "c1"), least=3),),
        guards=(QueuesChange(window=_KILLED, least=4),),
    ),
    _row(
        "CV4",
        "the master broker is killed: durable subscriptions can be neither made nor dropped, deliveries go "
        "on; a request that was under way is made at all brokers or at none",
        fault("kill", 4.0, 6.0, "a1"),
        besides=(
            _ALL,
            _refuses("b1", f="subscribe", least=40),
            _refuses("b1", f="drop", least=1),
            _refuses("c1", f="subscribe", least=40),
            _refuses("c1", f="drop", least=1),
            Answers(broker="b1", window=_KILLED, least=50),
            Answers(broker="c1", window=_KILLED, least=50),
        ),
    ),
    _row(
        "CV4-member",
        "as CV4, but a member is killed: the others refuse nothing",
        fault("kill", 4.0, 6.0, "b1"),
        besides=(
            _ALL,
            RefusesChange(broker="c1", pattern=_UNREACHABLE, window=_KILLED, most=0),
        ),
    ),
    _row(
        "CV14",
        "the master's clock is set back while a broker is down: it gets the changes by their numbers",
        fault("kill", 4.0, 6.0, "c1"),
        fault("clock-step", 5.0, None, "a1"),
        besides=(_ALL,),
    ),
)
