"""The claims with brokers of Open MQ, the broker of the documents themselves: rows HA and CV.

Brokers of a cluster deliver to the consumers of all brokers, so the broker that delivers a message
need not be its owner. A takeover is shown by what the taker reports, and a valid run shows that
nothing was lost in it. Times are those of JVMs on two busy cores: a broker is suspected three
seconds after its last sign of life. It is taken over when its row in the database has stood still
for eight more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.claims.scenarios.cases import at_stake, fault, faults
from harness.claims.scenarios.client_expectations import Connects, PromptlyConnects, Recovers
from harness.claims.scenarios.expectations import (
    Answers,
    Backlog,
    Changing,
    Converges,
    ExpectedTakeover,
    GoesOn,
    Happens,
    Moved,
    Reported,
    Resumed,
    SaidBy,
    Says,
    Takeovers,
    UnderWay,
)
from harness.claims.scenarios.joining import serving_at_once, suspended_until_master
from harness.claims.scenarios.limits import BOUNDED, REFUSED
from harness.claims.systems.row import PATIENT, Departure, SystemClaims, SystemRow, varied
from harness.interface import Fault

_SYSTEM: Final = "openmq"

_FIELDS: Final[Mapping[str, Any]] = {
    **PATIENT,
    "rate": 24.0,
    "quiet_period_s": 6.0,
    # Consumers are given all messages at once: only what they hold is at stake.
    "hold_s": 3.0,
    "properties": {},
}

_LENT: Final = Departure(
    reason="when a link between two brokers closes, each gives the messages that consumers of the "
    "other one hold to other consumers at once",
    page="findings/openmq-3/README.md",
)
_ANYWAY: Final = {
    "double-delivery": _LENT,
    "duplicate": _LENT,
    "stuck": Departure(
        reason="a client that disconnects while messages arrive leaves a consumer behind, which keeps "
        "its share of the messages",
        page="findings/openmq-2/README.md",
    ),
}


def _row(
    identifier: str,
    seconds: float,
    *some: Fault,
    nodes: Mapping[str, Any] | None = None,
    load: Mapping[str, Any] | None = None,
    **changes: Any,
) -> SystemRow:
    """Return that row for ``seconds`` of ``load``, with these faults.

    ``nodes`` are properties by node.
    """
    fields = {"time_limit_s": seconds, **_FIELDS, **(load or {}), "properties": nodes or {}}
    return varied(identifier, _SYSTEM, spec=fields, schedule=faults(*some), anyway=_ANYWAY, **changes)


_BY_ANOTHER: Final = Takeovers((ExpectedTakeover("a1"),))
_BY_B1: Final = Takeovers((ExpectedTakeover("a1", "b1"),))
_WITH_MESSAGES: Final = Says(None, r"Taking over [1-9]\d* messages from broker a1")
_BEGAN_ANEW: Final = Says("a1", r"\[B3(?:186|187|203)\]|being taken over")

_OF_TOPICS: Final = ("duplicate", "not-subscribed")
_DROPPED: Final = Departure(
    reason="messages that a dropped subscription had not acknowledged stay in the database; after a "
    "takeover the taker delivers them to all subscriptions of the topic",
    page="findings/openmq-8/README.md",
)
"""The departure of rows in which subscriptions are dropped; it causes ``_OF_TOPICS``."""

_HELD: Final = {"imq.cluster.takeover.delay.interval": 4}
"""The seconds between two looks at a suspect: all brokers try before any has the lock."""
_LOOKS: Final = "imq.cluster.monitor.threshold"
_BEGUN: Final = "member/takeover-begun"
_LATE: Final = r"\[B(?:1191|1481|3170|3231)\]"
"""Log lines of a broker that came too late: another broker took the lock."""

_FEW_AT_ONCE: Final = {"imq.bridge.stomp.consumerFlowLimit": 2}
_APART: Final[Mapping[str, Any]] = {"policy": "conventional", "unavailable_bound_s": 5.0}
"""The cluster of rows CV: brokers with a store each."""

_FIRST_DOWN: Final = fault("kill", 12.0, 20.0, "b1")

_MASTER: Final = {"*": {"imq.cluster.masterbroker": "a1"}}

_FLOOD: Final[Mapping[str, Any]] = {"rate": 60.0, "hold_s": 4.0}
"""More sends than consumers acknowledge, if a queue has at most fifty messages."""


def _limit(messages: int, behavior: str) -> dict[str, Any]:
    """Return a limit of each queue; what is removed from it is not kept as a dead letter."""
    return {
        "imq.autocreate.destination.maxNumMsgs": messages,
        "imq.autocreate.destination.limitBehavior": behavior,
        "imq.autocreate.destination.useDMQ": False,
    }


_ONE_LIMIT: Final = (
    "a limit is one for all queues of a broker: sends outside of transactions find their queue full first"
)

CLAIMS: Final = SystemClaims(
    rows=(
        _row(
            "HA1", 45.0, fault("kill", 6.0), besides=(_BY_ANOTHER, _WITH_MESSAGES, Resumed(of="a1", least=10))
        ),
        _row(
            "HA2",
            60.0,
            fault("kill", 6.0),
            # The stall begins when the first broker is about to ask for the lock, so that all ask
            # at one moment.
            fault("database-stall", 3.5, 1.5, None, after=_BEGUN),
            nodes={"*": _HELD},
            besides=(_BY_ANOTHER, _WITH_MESSAGES, Says(None, _LATE), Resumed(of="a1", least=10)),
            guards=(*at_stake("kill-1", least=10), SaidBy(least=2, pattern=r"\[B1216\].* a1$")),
        ),
        _row(
            "HA3-load",
            45.0,
            fault("kill", 12.0),
            load={
                "workload": "groups,transactions,subscriptions:2",
                "producers": 18,
                "consumers": 18,
                "rate": 60.0,
                "hold_s": 1.0,
                "churn": 0.1,
            },
            allowed=_OF_TOPICS,
            besides=(_BY_ANOTHER, _WITH_MESSAGES, Resumed(of="a1", least=10)),
            guards=(
                *at_stake("kill-1", least=10),
                UnderWay(least=2, at="kill-1"),
                Backlog(least=10, at="kill-1", broker="a1"),
            ),
            departure=_DROPPED,
        ),
        _row(
            "HA4",
            75.0,  # a1 starts again in 3 to 17 s, the slower the busier the machine is
            fault("pause", 6.0, 30.0),
            besides=(_BY_ANOTHER, _WITH_MESSAGES, GoesOn("a1")),
        ),
        _row(
            "HA4-patient",
            45.0,
            fault("pause", 6.0, 4.0),
            besides=(Takeovers(of="a1"),),
            departure=Departure(
                reason="a broker that stood still mistakes its own silence for that of the other "
                "brokers, and may take over a healthy one",
                page="findings/openmq-6/README.md",
            ),
        ),
        # b1 looks first, gets the lock, does not learn that, and dies; then the others ask for it.
        _row(
            "HA5",
            80.0,
            fault("kill", 6.0),
            fault("database-disconnect", 0.5, 8.0, "b1", after=_BEGUN, chance=1.0, committed=1.0),
            fault("kill", 5.5, None, "b1", after=_BEGUN),
            fault("takeover", 60.0, 10.0, taker="c1"),
            nodes={"*": {**_HELD, _LOOKS: 8}, "b1": {_LOOKS: 2}},
            besides=(
                Takeovers(of="a1"),
                Happens(_BEGUN),
                Says(None, r"\[B1191\].* a1 because another"),
                Says("c1", r"\[B3231\].* a1: Broker is being taken over by b1"),
            ),
            guards=(*at_stake("kill-1", least=10), Says("b1", r"\[B1209\]: Resetting Broker a1,")),
            departure=Departure(
                reason="a taker keeps its lock on the failed broker, even after its own death, until the "
                "taker starts again: no other broker takes over, even by force",
                page="findings/openmq-7/README.md",
            ),
        ),
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
            "TX3",
            45.0,
            fault("kill", 6.0),
            load={"producers": 9, "consumers": 9, "hold_s": 1.5},
            besides=(_BY_ANOTHER, _WITH_MESSAGES),
        ),
        _row(
            "DS3",
            45.0,
            fault("kill", 12.0),
            load={"hold_s": 1.0},
            allowed=_OF_TOPICS,
            besides=(_BY_ANOTHER, _WITH_MESSAGES),
            guards=(Backlog(least=10, at="kill-1", broker="a1"), Changing(least=2, at="kill-1")),
            departure=_DROPPED,
        ),
        _row(
            "CV1",
            60.0,
            fault("kill", 8.0, 20.0, "b1"),
            load=_APART,
            besides=(
                Reported("unavailable"),
                Moved(of="b1", least=0, most=0, window=("kill-1", "heal:kill-1")),
                Answers(window=("kill-1", "heal:kill-1"), broker="c1", least=20),
            ),
        ),
        # Consumers get few messages at once, so that some wait in b1's store and nowhere else.
        _row(
            "CV2",
            60.0,
            fault("destroy", 8.0, 20.0, "b1"),
            nodes={"*": _FEW_AT_ONCE},
            load={**_APART, "rate": 48.0},
        ),
        _row(
            "CV11-apart",
            45.0,
            fault("kill", 8.0, 6.0, "b1"),
            required=(),
            besides=(Moved(least=0, most=0),),
            departure=Departure(
                reason="a cluster has a list of its brokers and no name: two brokers without a common list "
                "say nothing of each other that could differ"
            ),
        ),
        *(
            _row(
                f"CV13-{case}",
                30.0,
                fault("pause", 8.0, 1.0),
                nodes={"*": _limit(limit, behavior)},
                load=load,
                **besides,
            )
            for case, limit, behavior, load, besides in (
                ("flow", 50, "FLOW_CONTROL", _FLOOD, {}),
                # No header of its ERROR frames says that a send certainly was not done.
                ("reject", 50, "REJECT_NEWEST", _FLOOD, {"besides": (BOUNDED, REFUSED)}),
                ("none", -1, "FLOW_CONTROL", _FLOOD, {}),
                ("oldest", 50, "REMOVE_OLDEST", {}, {}),
                ("oldest-none", -1, "REMOVE_OLDEST", {}, {}),
            )
        ),
        # JVMs of two busy cores start within 20 s, and then find each other within five.
        *(
            _row(
                f"CV6-{case}",
                60.0,
                fault("late-start", 0.0, 8.0, suspends=("b1", "c1")),
                nodes=nodes,
                load={"policy": "conventional", "master": ""},
                besides=besides,
            )
            for case, nodes, besides in (
                ("suspended", _MASTER, suspended_until_master(r"\[C4003\]")),
                ("none", None, serving_at_once()),
            )
        ),
        _row(
            "CV12-priority",
            75.0,
            _FIRST_DOWN,
            load={"policy": "conventional"},
            besides=(
                Connects(brokers={"b1": (12, 60), "c1": (8, 120)}),
                Recovers(of="b1", tried=("b1",), to=("c1",), after="kill-1", least=8),
            ),
            guards=(PromptlyConnects(),),
        ),
        _row(
            "CV3",
            75.0,
            fault("kill", 8.0, 20.0, "c1"),
            nodes=_MASTER,
            load={"policy": "conventional", "master": "", "rate": 36.0, "hold_s": 1.0},
            besides=(Converges(kind="subscriptions", brokers=("a1", "b1", "c1"), least=2),),
        ),
        _row("CV11-together", 45.0, fault("kill", 8.0, 6.0, "b1"), load={"policy": "conventional"}),
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
    compared=("CV", "HA12"),
    left_out={
        "HA3": "the steps are for brokers of own only; HA3-load tests the same under load",
        "CV13-broker": "imq.system.max_count has no limit behavior: what is too much is rejected",
        "CV13-commit": _ONE_LIMIT,
        "CV13-commit-none": _ONE_LIMIT,
        "CV14": "containers share their machine's clock: the master's cannot be set back",
        "HA1-large": "these rows are about the way in which brokers of own store messages",
        "HA1-paging": "these rows are about the way in which brokers of own store messages",
    },
)
