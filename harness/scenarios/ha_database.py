"""The scenarios of policy ``ha-database``: Sun 4.1, chapter 8, rows HA1 to HA11 of the claims.

Times are those of a test: a broker may be taken over 3 s after its last proof of life, answers nobody from 1.5 s on and drops everything after 2.25 s.
"""

from __future__ import annotations

from typing import Any, Final

from harness.interface import Fault, Schedule, TestSpec
from harness.scenarios.paged import paged
from harness.scenarios.scenario import Roles, Scenario

_HA: Final = "ha-policy.ha-database."
_SOURCE: Final = "SUN, High-Availability Clusters"


def _spec(
    name: str, *, brokers: int = 3, seconds: float = 11.0, large_message_share: float = 0.0, **every: Any
) -> TestSpec:
    """Consumers are slow, so that a broker that fails has messages; ``every`` are properties of every broker, with underscores."""
    properties = {_HA + key.replace("_", "-"): value for key, value in every.items()}
    return TestSpec(
        name=name,
        policy="ha-database",
        pairs=brokers,
        time_limit_s=seconds,
        rate=50.0,
        producers=2 * brokers,
        consumers=2 * brokers,
        groups=4 * brokers,
        hold_s=0.15,
        prefetch=3,
        recovery_bound_s=30.0,
        large_message_share=large_message_share,
        properties={"*": properties} if properties else {},
    )


def _fault(kind: str, start_s: float, seconds: float, target: str | None = "a1") -> Fault:
    return Fault(kind=kind, start_s=start_s, duration_s=seconds, target=target)


SCENARIOS: Final = (
    Scenario(
        id="HA1",
        claim="heartbeat, suspicion, confirmation in the store, takeover: what the failed broker had goes on elsewhere",
        source=_SOURCE,
        spec=_spec("ha1"),
        schedule=Schedule(faults=(_fault("kill", 3.0, 6.0),)),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA1-large",
        claim="what the failed broker had goes on elsewhere, its large messages too",
        source=_SOURCE,
        spec=_spec("ha1-large", large_message_share=0.2),
        schedule=Schedule(faults=(_fault("kill", 3.0, 6.0),)),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA1-paging",
        claim="what the failed broker had goes on elsewhere, messages that wait on pages too",
        source=_SOURCE,
        spec=paged(_spec("ha1-paging")),
        schedule=Schedule(faults=(_fault("kill", 3.0, 6.0),)),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA2",
        claim="only one of several takers wins, though two of the three come late with what they saw before",
        source=_SOURCE,
        spec=_spec("ha2", brokers=4),
        schedule=Schedule(faults=(_fault("kill", 3.0, 7.0), _fault("pause", 5.7, 1.0, "b1,c1"))),
    ),
    Scenario(
        id="HA4",
        claim="false suspicion: a healthy broker that stood still is taken over, and does not serve what it had when it goes on",
        source="SUN, Failure Detection and Takeover Properties",
        spec=_spec("ha4"),
        schedule=Schedule(faults=(_fault("pause", 3.0, 6.0),)),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA5",
        claim="a takeover whose taker died half-way is completed by another broker",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        spec=_spec("ha5", brokers=4, seconds=16.0, takeover_wait=1500),
        schedule=Schedule(faults=(_fault("kill", 3.0, 11.0), _fault("kill", 7.0, 7.0, "b1,c1"))),
    ),
    Scenario(
        id="HA6-true",
        claim="a broker that is shut down leaves its messages to the others at once",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        spec=_spec("ha6-true", failover_on_shutdown=True),
        schedule=Schedule(faults=(_fault("stop", 3.0, 4.0),)),
    ),
    Scenario(
        id="HA6-false",
        claim="a broker that is shut down with -nofailover is not taken over; its messages wait for its restart",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        spec=_spec("ha6-false", failover_on_shutdown=False),
        schedule=Schedule(faults=(_fault("stop", 3.0, 6.0),)),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA6-by-hand",
        claim="a broker that was shut down with -nofailover is taken over by hand: its messages go on elsewhere",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        spec=_spec("ha6-by-hand"),
        schedule=Schedule(
            faults=(
                Fault(kind="stop", start_s=3.0, duration_s=6.0, target="a1", options={"failover": False}),
                Fault(kind="takeover", start_s=4.5, duration_s=1.0, target="a1", options={"taker": "b1"}),
            )
        ),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA6-forced",
        claim="a broker that serves is taken over by force: it drops what it had and joins again; nothing is lost, nothing served by both",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        spec=_spec("ha6-forced"),
        schedule=Schedule(
            faults=(
                Fault(kind="takeover", start_s=3.0, duration_s=2.0, target="a1", options={"taker": "b1"}),
            )
        ),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="HA7-load",
        claim="quiesced under load, a broker serves the connections that are there and takes in no others; nobody takes it over",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        spec=_spec("ha7-load"),
        schedule=Schedule(faults=(_fault("quiesce", 3.0, 5.0),)),
        roles=Roles(never_live=("a1", "b1", "c1")),
    ),
    Scenario(
        id="HA11-stall",
        claim="the database stands still: brokers answer nobody, and go on with it",
        source=_SOURCE,
        spec=_spec("ha11-stall"),
        schedule=Schedule(faults=(_fault("database-stall", 3.0, 5.0, None),)),
        roles=Roles(live=("a1", "b1", "c1")),
    ),
    Scenario(
        id="HA11-restart",
        claim="the database restarts: what was acknowledged before is there after",
        source=_SOURCE,
        spec=_spec("ha11-restart"),
        schedule=Schedule(faults=(_fault("database-restart", 3.0, 1.0, None),)),
    ),
    Scenario(
        id="HA11-disconnect",
        claim="connections to the database are lost during commits: each entry happens once, whatever was heard of it",
        source=_SOURCE,
        spec=_spec("ha11-disconnect"),
        schedule=Schedule(faults=(_fault("database-disconnect", 3.0, 5.0, "all"),)),
    ),
    Scenario(
        id="HA11-cut-off",
        claim="one broker is cut off from the database: it drops everything in time, and another takes over",
        source=_SOURCE,
        spec=_spec("ha11-cut-off"),
        schedule=Schedule(
            faults=(
                Fault(
                    kind="database-disconnect",
                    start_s=3.0,
                    duration_s=6.0,
                    target="a1",
                    options={"chance": 1.0, "committed": 0.0},
                ),
            )
        ),
        roles=Roles(live=("a1",)),
    ),
)
