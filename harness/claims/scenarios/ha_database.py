"""The scenarios of policy ``ha-database``: Sun 4.1, chapter 8, rows HA1 to HA11 of the claims.

Times are those of a test. A broker may be taken over 3 s after its last proof of life; it stops
answering after 1.5 s and drops everything after 2.25 s.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.claims.scenarios.cases import at_stake, fault, faults, load, paged, properties
from harness.claims.scenarios.expectations import (
    Answers,
    Backlog,
    Before,
    Expectation,
    ExpectedTakeover,
    GoesOn,
    Happens,
    Moved,
    Refuses,
    Resumed,
    SaidBy,
    Says,
    Takeovers,
    UnderWay,
)
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.interface import TestSpec

_HA: Final = "ha-policy.ha-database."
_SOURCE: Final = "SUN, High-Availability Clusters"
_PREVENTING: Final = "SUN, Preventing or Forcing Takeover of a Broker"
_PROPERTIES: Final = "SUN, Failure Detection and Takeover Properties"


def _spec(name: str, brokers: int = 3, seconds: float = 11.0, rate: float = 25.0, **fields: Any) -> TestSpec:
    """Return a spec with consumers slower than producers, so that a failing broker has messages.

    ``rate`` is that of each broker's producers.
    """
    return load(
        name,
        "ha-database",
        seconds,
        pairs=brokers,
        clients=2 * brokers,
        rate=rate * brokers,
        hold_s=0.5,
        prefetch=3,
        **fields,
    )


_GONE_ON: Final[tuple[Expectation, ...]] = (Moved(least=10, of="a1"), Resumed(of="a1", least=20))
"""The expectations that a1's messages and clients continue at other brokers."""
_TAKEN: Final[tuple[Expectation, ...]] = (Takeovers((ExpectedTakeover("a1"),)), *_GONE_ON)
"""One other broker takes over; a1 stays away, or comes back without messages."""
_BY_B1: Final = (Takeovers((ExpectedTakeover("a1", "b1"),)), Moved(least=10, of="a1", by="b1"))
_STAYS: Final = (Takeovers(), Moved(least=0, most=0, of="a1"))


_HA1: Final = Scenario(
    id="HA1",
    claim="after missed heartbeats, suspicion and confirmation in the store, one other broker takes "
    "over the data of the failed broker",
    source=_SOURCE,
    spec=_spec("ha1"),
    schedule=faults(fault("kill", 3.0)),
    besides=_TAKEN,
    guards=at_stake("kill-1", least=10),
)

SCENARIOS: Final = (
    _HA1,
    msgspec.structs.replace(
        _HA1,
        id="HA1-large",
        claim="the taker also serves the large messages of the failed broker",
        spec=_spec("ha1-large", large_message_share=0.2),
    ),
    msgspec.structs.replace(
        _HA1,
        id="HA1-paging",
        claim="the taker also serves the messages that the failed broker had on pages",
        spec=paged(_spec("ha1-paging", rate=60.0)),
        # These are more messages than fit into the broker's memory.
        guards=at_stake("kill-1", least=60),
    ),
    Scenario(
        id="HA2",
        claim="only one of several takers wins: the others are delayed, try with outdated knowledge "
        "when the takeover is complete, and are refused",
        source=_SOURCE,
        spec=_spec("ha2", brokers=4, every={"database-store.network-timeout": 2500}),
        # The database stands still when a1's lease runs out, so that all look at its row in one
        # moment, before any has taken it; then all but the first are held.
        schedule=faults(
            fault("kill", 3.0),
            fault("database-stall", 5.6, 0.6, None),
            fault("pause", 0.0, 0.7, "rivals", after="member/suspected"),
        ),
        besides=(Happens("member/suspected"), *_TAKEN),
        guards=(
            *at_stake("kill-1", least=10),
            SaidBy(least=2, pattern="a1 .* has been silent for .*: taking over"),
        ),
    ),
    # HA3's steps show this for one of each; here it is under load, with everything that clients
    # can leave open.
    Scenario(
        id="HA3-load",
        claim="a broker is killed under load: its pending messages, acknowledgements and durable "
        "subscriptions move to the taker; its open transactions and temporary queues are gone",
        source=_SOURCE,
        spec=load(
            "ha3-load",
            "ha-database",
            14.0,
            pairs=3,
            clients=18,
            rate=180.0,
            workload="groups,transactions,subscriptions,request-reply",
            hold_s=0.3,
            prefetch=3,
        ),
        schedule=faults(fault("kill", 5.0)),
        besides=_TAKEN,
        guards=(
            *at_stake("kill-1", least=10),
            UnderWay(least=2, at="kill-1"),
            Backlog(least=10, at="kill-1", broker="a1"),
        ),
    ),
    Scenario(
        id="HA4",
        claim="false suspicion: another broker takes over a healthy broker that stood still; that "
        "broker does not serve its old messages when it continues",
        source=_PROPERTIES,
        spec=_spec("ha4", server=True),
        schedule=faults(fault("pause", 3.0, 6.0)),
        roles=Roles(live=("a1",)),
        besides=(*_TAKEN, GoesOn("a1")),
        guards=at_stake("pause-1", least=10),
    ),
    Scenario(
        id="HA4-patient",
        claim="with a longer lock-expiration, brokers do not suspect a broker that stood still; it "
        "continues with its messages",
        source=_PROPERTIES,
        spec=_spec("ha4-patient", server=True, every={"database-store.lock-expiration": 20_000}),
        schedule=faults(fault("pause", 3.0, 5.0)),
        besides=_STAYS,
        guards=at_stake("pause-1", least=10),
    ),
    Scenario(
        id="HA5",
        claim="another broker completes a takeover whose taker died half-way",
        source=_PREVENTING,
        spec=_spec("ha5", brokers=4, seconds=16.0, every=properties(_HA, takeover_wait=1500)),
        schedule=faults(fault("kill", 3.0), fault("kill", 0.5, None, "taker", after="member/takeover-begun")),
        besides=(
            Takeovers((ExpectedTakeover("a1"),), of="a1"),
            Happens("member/takeover-begun"),
            Says(None, "the takeover of a1 has begun", 2),
            *_GONE_ON,
        ),
        guards=at_stake("kill-1", least=10),
    ),
    Scenario(
        id="HA6-true",
        claim="a broker that is shut down leaves its messages to the other brokers at once, before "
        "its lease would have ended",
        source=_PREVENTING,
        spec=_spec("ha6-true", every=properties(_HA, failover_on_shutdown=True)),
        schedule=faults(fault("stop", 3.0, 2.0)),
        besides=_TAKEN,
        guards=at_stake("stop-1", least=10),
    ),
    Scenario(
        id="HA6-false",
        claim="no broker takes over a broker that was shut down with -nofailover; its messages wait "
        "until it starts again",
        source=_PREVENTING,
        spec=_spec("ha6-false", every=properties(_HA, failover_on_shutdown=False)),
        schedule=faults(fault("stop", 3.0, 6.0)),
        roles=Roles(live=("a1",)),
        besides=_STAYS,
        guards=at_stake("stop-1", least=10),
    ),
    Scenario(
        id="HA6-by-hand",
        claim="after a shutdown with -nofailover, a takeover by command moves the broker's messages "
        "to the taker",
        source=_PREVENTING,
        spec=_spec("ha6-by-hand"),
        schedule=faults(fault("stop", 3.0, 6.0, failover=False), fault("takeover", 4.5, 1.0, taker="b1")),
        roles=Roles(live=("a1",)),
        besides=_BY_B1,
        guards=at_stake("stop-1", least=10),
    ),
    Scenario(
        id="HA6-forced",
        claim="a serving broker is taken over by force: it drops its messages and joins again; no "
        "message is lost or served by both brokers",
        source=_PREVENTING,
        spec=_spec("ha6-forced"),
        schedule=faults(fault("takeover", 3.0, 2.0, taker="b1")),
        roles=Roles(live=("a1",)),
        besides=(*_BY_B1, GoesOn("a1")),
        guards=at_stake("takeover-1", least=10),
    ),
    Scenario(
        id="HA6-forced-paused",
        claim="a paused broker is taken over by force: its messages continue at the taker only after "
        "it has dropped them",
        source=_PREVENTING,
        spec=_spec("ha6-forced-paused", server=True),
        schedule=faults(fault("pause", 3.0, 0.9), fault("takeover", 3.1, 2.0, taker="b1")),
        roles=Roles(live=("a1",)),
        besides=(
            *_BY_B1,
            Before("a1", "this broker answers no client any more", "b1", "a1 is taken over with"),
            GoesOn("a1"),
        ),
        guards=at_stake("takeover-2", least=10),
    ),
    Scenario(
        id="HA7-load",
        claim="a broker that quiesces under load serves existing connections and refuses new ones; no "
        "broker takes it over",
        source=_PREVENTING,
        spec=_spec("ha7-load"),
        schedule=faults(fault("quiesce", 3.0, 5.0)),
        roles=Roles(never_live=("a1", "b1", "c1")),
        besides=(
            Takeovers(),
            Answers(broker="a1", window=("quiesce-1", "heal:quiesce-1"), least=50),
            Refuses(broker="a1", pattern="quiescing", window=("quiesce-1", "heal:quiesce-1")),
        ),
    ),
    Scenario(
        id="HA11-stall",
        claim="the database stands still: brokers answer no client and drop their messages before "
        "another broker could take over; they serve again when the database continues",
        source=_SOURCE,
        spec=_spec("ha11-stall"),
        schedule=faults(fault("database-stall", 3.0, 5.0, None)),
        roles=Roles(live=("a1", "b1", "c1")),
        besides=(
            Takeovers(),
            *map(GoesOn, ("a1", "b1", "c1")),
            *(Says(name, "expired: the store has not confirmed the lease") for name in ("a1", "b1", "c1")),
            Answers(window=("database-stall-1", "heal:database-stall-1"), after_s=1.5, most=0),
        ),
        guards=at_stake("database-stall-1", least=10),
    ),
    Scenario(
        id="HA11-restart",
        claim="the database restarts: everything acknowledged before is there afterwards",
        source=_SOURCE,
        spec=_spec("ha11-restart"),
        schedule=faults(fault("database-restart", 3.0, 1.0, None)),
        besides=(Takeovers(),),
        guards=at_stake("database-restart-1", least=10),
    ),
    Scenario(
        id="HA11-disconnect",
        claim="connections to the database break during commits: each entry is written exactly once, "
        "whether its answer arrived or not",
        source=_SOURCE,
        spec=_spec("ha11-disconnect"),
        schedule=faults(fault("database-disconnect", 3.0, 5.0, "all")),
        besides=(Takeovers(),),
        guards=at_stake("database-disconnect-1", least=10),
    ),
    Scenario(
        id="HA11-cut-off",
        claim="one broker is cut off from the database: it drops its messages in time, and one other "
        "broker takes over",
        source=_SOURCE,
        spec=_spec("ha11-cut-off"),
        schedule=faults(fault("database-disconnect", 3.0, None, chance=1.0, committed=0.0)),
        besides=(
            *_TAKEN,
            Before("a1", "this broker answers no client any more", None, "a1 is taken over with"),
            Answers(broker="a1", window=("database-disconnect-1", "heal"), after_s=1.5, most=0),
        ),
        guards=at_stake("database-disconnect-1", least=10),
    ),
)
