"""The scenarios of conventional clusters: a message stays at its home, rows CV1, CV2 and CV15."""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import SLOW, at_stake, fault, faults, load
from harness.claims.scenarios.expectations import (
    Answers,
    Exactly,
    Expectation,
    Moved,
    Reported,
    Says,
    UnderWay,
    UnknownCommits,
)
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Fault, TestSpec


def _at_home(name: str, **fields: Any) -> TestSpec:
    """Return a load of three brokers whose slow consumers leave messages at each home."""
    return load(
        name, "conventional", 14.0, pairs=3, workload="queue", unavailable_bound_s=2.0, **SLOW, **fields
    )


_DOWN: Final = "kill-1", "heal:kill-1"

_BOTH: Final = "a1", "b1"
_GIVEN_OUT: Final = "the messages of this broker's last life are given out: "
_RESTARTS: Final = fault("kill", 3.5, 0.5)


def _half_open(case: str, claim: str, reason: str, *more: Fault) -> Scenario:
    """Return a scenario of CV15: a1 restarts while clients of b1 hold its messages."""
    spec = load(
        f"cv15-{case}", "conventional", 18.0, pairs=3, clients=4, rate=20.0, workload="queue",
        produce_at=_BOTH, consume_at=_BOTH, hold_s=2.0, prefetch=100,
    )  # fmt: skip
    return Scenario(
        id=f"CV15-{case}", claim=claim, source="SUN, CAPS", spec=spec, schedule=faults(*more, _RESTARTS),
        besides=(Moved(of="a1", by="b1", least=10), Says("a1", _GIVEN_OUT + reason, times=1)),
        guards=at_stake(f"kill-{1 + len(more)}"),
    )  # fmt: skip


def _committing(case: str, claim: str, *besides: Expectation, down: tuple[str, ...]) -> Scenario:
    """Return a scenario of CV16: brokers end while transactions over all three are committed.

    Their disks are slow, so commits wait for them for some time.
    """
    name = f"cv16-{case}".removesuffix("-")
    spec = load(
        name, "conventional", 12.0, pairs=3, clients=12, rate=90.0, workload="transactions",
        unavailable_bound_s=2.0,
    )  # fmt: skip
    slow = fault("disk-slow", 1.0, 4.0, "all", delay_ms=300.0)
    return Scenario(
        id=f"CV16-{case}".removesuffix("-"), claim=claim, source="SUN, CAPS", spec=spec,
        schedule=faults(slow, *(fault("kill", 4.0, 3.0, broker) for broker in down)),
        besides=besides, guards=(UnderWay(least=2, at="kill-2"),),
    )  # fmt: skip


_AWAY: Final = "kill-3", "heal:kill-2"

SCENARIOS: Final = (
    Scenario(
        id="CV1",
        claim="no other broker takes over the messages of a broker that is killed: they wait for its "
        "restart, and none is lost; then consumers at other brokers get them, too. The other brokers go on",
        source="SUN, CAPS",
        spec=_at_home("cv1"),
        schedule=faults(fault("kill", 3.0, 4.0, "b1")),
        besides=(
            Reported("unavailable"),
            Moved(of="b1", least=0, most=0, window=_DOWN),
            Moved(of="b1", least=10, window=("heal:kill-1", "heal")),
            Answers(window=_DOWN, broker="c1", least=20),
        ),
        guards=at_stake("kill-1", "b1"),
    ),
    Scenario(
        id="CV2",
        claim="a broker that is lost with its store loses the messages in it, and no others",
        source="SUN, CAPS",
        spec=_at_home("cv2"),
        schedule=faults(fault("destroy", 3.0, 4.0, "b1")),
        required=("lost",),
        besides=(Exactly(finding="lost", broker="b1"),),
        guards=at_stake("destroy-1", "b1"),
    ),
    _half_open(
        "cut",
        "the home of messages restarts while the broker whose clients hold some hears nothing from it: the "
        "home gives none of them to others before the other broker has certainly dropped them",
        "the leases of .* are over",
        fault("partition", 3.0, 11.0, None, shape="one-way", pair="a", direction="from"),
    ),
    _half_open(
        "heard",
        "as CV15-cut, but the other broker hears of the restart: the home gives its messages out at once",
        "each other broker has shown that it holds none",
    ),
    _committing(
        "",
        "the whole cluster is away while transactions over its brokers are committed: such a commit is "
        "unknown to its client, and has then happened at all brokers or at none",
        Reported("unavailable"),
        UnknownCommits(least=2, at="kill-2"),
        Answers(window=("kill-4", "heal:kill-2"), most=0),
        down=("a1", "b1", "c1"),
    ),
    _committing(
        "stays",
        "as CV16, but one broker stays: its clients go on",
        Answers(window=_AWAY, broker="c1", least=20),
        down=("a1", "b1"),
    ),
)
