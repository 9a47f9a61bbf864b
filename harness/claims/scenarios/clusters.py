"""The scenarios of clusters of brokers without backups, rows of CL and CV."""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import SLOW, at_stake, fault, faults, load, properties
from harness.claims.scenarios.expectations import (
    Answers,
    Exactly,
    Expectation,
    KeepsKnowing,
    Moved,
    Notices,
    Says,
    Shares,
)
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Fault, Schedule

_OTHER: Final = properties("cluster.", name="other-cluster")
_RESTART: Final = faults(fault("kill", 3.0, 1.0, "b1"))
"""b1 dials anew, and is dialled."""
_REFUSED: Final = "cluster: a broker refused the connection: cluster.name is "

_SAME_ID: Final = "duplicate node ID: "

_BALANCING: Final = "cluster.message-load-balancing"
_LATE: Final = faults(
    fault("slow", 3.0, 2.0, None, shape="one-way", pair="b", direction="from", delay_ms=50.0)
)
"""All that b1 sends arrives 50 ms later, which changes nothing about the choice of brokers."""
_ALL: Final = 360, 480
_HALF: Final = 180, 240
_QUARTER: Final = 90, 120
_TWO: Final = "a1", "b1"

_APART: Final = faults(fault("partition", 3.0, 3.0, None, shape="link", between=["a1", "b1"]))
"""a1 and b1 do not hear each other; c1 hears both."""
_CUT: Final = "partition-1", "heal:partition-1"


def _balanced(
    case: str,
    claim: str,
    mode: str,
    clients: int,
    *besides: Expectation,
    required: tuple[str, ...] = (),
    **fields: Any,
) -> Scenario:
    """Return a scenario of CL5: four brokers, and about 400 sends at a1.

    A broker has one consumer or none, so that none leaves during the load.
    """
    spec = load(
        f"cl5-{case}", "standalone", 8.0, pairs=4, clients=clients, rate=50.0,
        workload="queue", every={_BALANCING: mode}, produce_at=("a1",), **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CL5-{case}", claim=claim, source="AMQ 17.1.1", spec=spec, schedule=_LATE, required=required,
        besides=besides,
    )  # fmt: skip


def _linked(case: str, claim: str, mode: str, *besides: Expectation) -> Scenario:
    """Return a scenario of CL1: sends at a1 of three brokers, and consumers at b1."""
    spec = load(
        f"cl1-{case}", "standalone", 10.0, pairs=3, workload="queue", every={_BALANCING: mode},
        produce_at=("a1",), consume_at=("b1",),
    )  # fmt: skip
    return Scenario(
        id=f"CL1-{case}", claim=claim, source="AMQ 17.1.1", spec=spec, schedule=_APART,
        besides=(Answers(window=_CUT, broker="a1", least=60), *besides),
    )  # fmt: skip


def _watched(case: str, claim: str, ttl_ms: int, *besides: Expectation) -> Scenario:
    """Return a scenario of CL1 that asks what brokers know while a1 and b1 are cut off for 5 s."""
    spec = load(
        f"cl1-{case}", "standalone", 12.0, pairs=3, workload="queue", watch_views=True,
        every={"cluster.connection-ttl": ttl_ms},
    )  # fmt: skip
    return Scenario(
        id=f"CL1-{case}", claim=claim, source="AMQ 17.1.1", spec=spec, besides=besides,
        schedule=faults(fault("partition", 3.0, 5.0, None, shape="link", between=["a1", "b1"])),
    )  # fmt: skip


def _notice_each_other(after: str, *, present: bool, within_s: float) -> tuple[Notices, ...]:
    """Return the expectations that a1 and b1 learn of each other, or forget each other."""
    return tuple(
        Notices(broker=broker, other=other, present=present, after=after, most_s=within_s)
        for broker, other in (("a1", "b1"), ("b1", "a1"))
    )


_JOINS: Final = fault("late-start", 0.0, 17.0, "b1"), fault("kill", 13.0, 3.0)
"""b1 is set up while a1 is down for a moment, and joins it later."""


def _set_up(case: str, claim: str, mode: str, pairs: int, *copied: Fault, **fields: Any) -> Scenario:
    """Return a scenario of CL17: b1 joins a1, which has messages."""
    spec = load(
        f"cl17-{case}", "standalone", 22.0, pairs=pairs, workload="queue", every={_BALANCING: mode}, **SLOW
    )
    return Scenario(
        id=f"CL17-{case}", claim=claim, source="AMQ 17.2.1", spec=spec, schedule=faults(*_JOINS, *copied),
        guards=at_stake("kill-2"), **fields,
    )  # fmt: skip


def _copied(case: str, claim: str, mode: str, pairs: int) -> Scenario:
    """Return a scenario of CL17 in which b1 begins with a copy of the data of a1."""
    return _set_up(
        case,
        claim,
        mode,
        pairs,
        fault("copy-data", 14.0, 0.5, "b1", of="a1"),
        required=("split-brain",),
        allowed=("zombie", "duplicate", "double-delivery", "resurrected", "diverged"),
        besides=(Says("a1", _SAME_ID, times=1), Says("b1", _SAME_ID, times=1)),
    )


SCENARIOS: Final = (
    _copied(
        "data",
        "a broker's data files are copied along with its configuration: both brokers have one node ID, and "
        "each warns of it once; no message is lost",
        "OFF",
        2,
    ),
    _copied(
        "forwarded",
        "as CL17-data, but both forward messages to a third broker: it takes none of one for a repeat of the "
        "other's, and no message is lost",
        "ON_DEMAND",
        3,
    ),
    _set_up(
        "configuration", "as CL17-data, but only the configuration is copied: the cluster forms", "OFF", 2
    ),
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
    _balanced(
        "all",
        "ON_DEMAND: brokers that have consumers get the messages in turn, all four of them a quarter",
        "ON_DEMAND",
        4,
        Shares(sent_at="a1", brokers=dict.fromkeys(("a1", "b1", "c1", "d1"), _QUARTER)),
    ),
    _balanced(
        "two",
        "ON_DEMAND: a broker without consumers gets no messages, those of two brokers a half each",
        "ON_DEMAND",
        2,
        Shares(sent_at="a1", brokers=dict.fromkeys(_TWO, _HALF)),
        consume_at=_TWO,
    ),
    _balanced(
        "off",
        "as CL5-all, but OFF: all messages stay where they were sent, whoever has consumers",
        "OFF",
        4,
        Shares(sent_at="a1", brokers={"a1": _ALL}),
    ),
    _balanced(
        "strict",
        "STRICT: each broker gets a quarter, also where no consumer ever comes; there messages are stuck",
        "STRICT",
        2,
        Shares(sent_at="a1", brokers=dict.fromkeys(_TWO, _QUARTER)),
        Shares(sent_at="a1", brokers=dict.fromkeys(("c1", "d1"), _QUARTER), of="stored"),
        required=("stuck",),
        consume_at=_TWO,
        drain_at=_TWO,
    ),
    _linked(
        "symmetric",
        "symmetric cluster: a message reaches the broker that has the consumers; none passes a cut link, and "
        "all arrive in the end",
        "ON_DEMAND",
        Moved(least=0, most=0, window=_CUT),
        Moved(least=100, of="a1", by="b1", window=(_CUT[1], "heal")),
    ),
    _linked(
        "off",
        "as CL1-symmetric, but OFF: no message leaves the broker that took it",
        "OFF",
        Moved(least=0, most=0),
    ),
    _watched(
        "views",
        "two brokers that are cut off from each other forget each other after connection-ttl, and know each "
        "other again after the healing; a broker that hears both knows both all the time",
        2000,
        *_notice_each_other(_CUT[0], present=False, within_s=4.0),
        *_notice_each_other(_CUT[1], present=True, within_s=3.0),
        KeepsKnowing(broker="c1", others=_TWO, window=(_CUT[0], "heal")),
    ),
    _watched(
        "views-short",
        "as CL1-views, but connection-ttl is longer than the cut: they know each other all the time",
        8000,
        KeepsKnowing(broker="a1", others=("b1",), window=(_CUT[0], "heal")),
        KeepsKnowing(broker="b1", others=("a1",), window=(_CUT[0], "heal")),
    ),
)  # fmt: skip


def _redistributed(case: str, claim: str, delay: int, *besides: Expectation, **fields: Any) -> Scenario:
    """Return a scenario of CL6: messages wait at a1 until b1 starts, which has all consumers."""
    spec = load(
        f"cl6-{case}", "standalone", 20.0, pairs=2, clients=2, workload="queue", rate=20.0,
        every={_BALANCING: "ON_DEMAND", "address-settings.#.redistribution-delay": delay},
        produce_at=("a1",), consume_at=("b1",), drain_at=("b1",),
    )  # fmt: skip
    return Scenario(
        id=f"CL6-{case}", claim=claim, source="AMQ 17.4", spec=spec,
        schedule=faults(fault("late-start", 0.0, 13.0, "b1")), besides=besides,
        guards=at_stake("heal:late-start-1"), **fields,
    )  # fmt: skip


def _filtered(case: str, claim: str, *besides: Expectation, **fields: Any) -> Scenario:
    """Return a scenario of CL7: a1's consumers want some messages, and b1's the others.

    Messages for b1 wait at a1 until it starts. The delay is not 0 as in the document: between load
    and drain no consumer is there for a moment, and nothing must move meanwhile.
    """
    spec = load(
        f"cl7-{case}", "standalone", 20.0, pairs=2, clients=2, workload="selectors", rate=20.0,
        every={_BALANCING: "ON_DEMAND", "address-settings.#.redistribution-delay": 5000},
        select_by_pair=True, produce_at=("a1",), consume_at=_TWO, drain_at=_TWO,
    )  # fmt: skip
    return Scenario(
        id=f"CL7-{case}", claim=claim, source="AMQ 17.4.1.1", spec=spec,
        schedule=faults(fault("late-start", 0.0, 13.0, "b1")), besides=besides,
        guards=at_stake("heal:late-start-1"), **fields,
    )  # fmt: skip


def _chained(
    case: str, claim: str, schedule: Schedule, hops: int, *besides: Expectation, **fields: Any
) -> Scenario:
    """Return a scenario of CL1: sends at one end of a chain, and consumers at the other.

    What a1 keeps while there is no way to d1 moves there later.
    """
    every = {_BALANCING: "ON_DEMAND", "cluster.max-hops": hops, "address-settings.#.redistribution-delay": 0}
    required = fields.pop("required", ())
    guards = fields.pop("guards", ())
    spec = load(
        f"cl1-{case}", "standalone", 12.0, pairs=4, workload="queue", chain=True, every=every,
        produce_at=("a1",), consume_at=("d1",), **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CL1-{case}", claim=claim, source="AMQ 17.1.4", spec=spec, schedule=schedule, besides=besides,
        required=required, guards=guards,
    )  # fmt: skip


_MIDDLE_CUT: Final = faults(fault("partition", 3.0, 3.0, None, shape="link", between=["b1", "c1"]))
"""The chain is cut in its middle."""
_MIDDLE_KILLED: Final = faults(
    fault("disk-slow", 2.0, 4.0, "b1", delay_ms=500.0),
    fault("kill", 4.0, 1.0, "b1"),
    fault("kill", 7.0, 1.0, "c1"),
)
"""A broker in the middle is killed while messages wait for its disk, and later the other one."""

BETWEEN_BROKERS: Final = (
    _chained(
        "chain",
        "chain of four brokers: a message reaches the broker at the other end; none passes a cut in the "
        "middle, the first broker goes on answering, and all messages arrive in the end",
        _MIDDLE_CUT,
        3,
        Moved(least=0, most=0, window=_CUT),
        Moved(least=100, of="a1", by="d1", window=(_CUT[1], "heal")),
        Answers(window=_CUT, broker="a1", least=60),
    ),
    _chained(
        "chain-killed",
        "as CL1-chain, but the brokers in the middle are killed while they have messages to pass on: each "
        "of these arrives once",
        _MIDDLE_KILLED,
        3,
        Moved(least=400, of="a1", by="d1"),
        guards=at_stake("kill-2"),
    ),
    _chained(
        "chain-hops",
        "as CL1-chain, but max-hops is 1: the messages stay at the first broker",
        _MIDDLE_CUT,
        1,
        Moved(least=0, most=0),
        Exactly(finding="stuck", broker="a1"),
        required=("stuck",),
        drain_at=("d1",),
    ),
    _redistributed(
        "moved",
        "redistribution-delay 0: messages that wait at a broker without consumers move to one that has some",
        0,
        Moved(least=20, of="a1", by="b1"),
    ),
    _redistributed(
        "off",
        "as CL6-moved, but without redistribution: the messages stay where no consumer is",
        -1,
        Exactly(finding="stuck", broker="a1"),
        required=("stuck",),
    ),
    _filtered(
        "filters",
        "a consumer prevents redistribution, whatever its filter: a message that only consumers at b1 want "
        "stays at a1, and is stuck",
        Exactly(finding="stuck", broker="a1"),
        required=("stuck",),
    ),
    Scenario(
        id="CL16-groups",
        claim="messages of groups are not redistributed, so their order is kept",
        source="AMQ 17.4",
        spec=load(
            "cl16-groups",
            "standalone",
            20.0,
            pairs=2,
            clients=2,
            rate=20.0,
            produce_at=("a1",),
            consume_at=("b1",),
            every={_BALANCING: "ON_DEMAND", "address-settings.#.redistribution-delay": 0},
        ),
        schedule=faults(fault("late-start", 0.0, 13.0, "b1")),
        besides=(Moved(of="a1", least=0, most=0),),
        guards=at_stake("heal:late-start-1"),
    ),
    Scenario(
        id="CL21",
        claim="ON_DEMAND: a message goes to a broker whose consumers want it, by their filters",
        source="AMQ 17.1.1, 17.4.1.1",
        spec=load(
            "cl21",
            "standalone",
            20.0,
            pairs=2,
            clients=2,
            workload="selectors",
            rate=20.0,
            select_by_pair=True,
            produce_at=("a1",),
            consume_at=_TWO,
            every={_BALANCING: "ON_DEMAND"},
        ),
        schedule=faults(
            fault("slow", 6.0, 4.0, None, shape="one-way", pair="b", direction="from", delay_ms=50.0)
        ),
        besides=(Shares(sent_at="a1", brokers={"a1": (90, 170), "b1": (230, 310)}),),
    ),
)
