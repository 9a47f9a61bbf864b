"""The scenarios of policy ``replication``: AMQ 17.3.1.3 and 17.3.3, rows RP1 to RP16 of the claims.

Every schedule is bounded to a dozen seconds, so that a nightly run on containers can afford them all; in the simulation each takes about a second.
"""

from __future__ import annotations

from typing import Final

from harness.interface import Fault, Schedule, TestSpec
from harness.scenarios.paged import paged
from harness.scenarios.scenario import FOLLOWS_TWO_LIVES, Roles, Scenario

_MASTER: Final = "ha-policy.replication.master."
_SLAVE: Final = "ha-policy.replication.slave."


def _spec(
    name: str,
    *,
    pairs: int,
    seconds: float = 12.0,
    hold_s: float | None = None,
    prefetch: int | None = None,
    payload_bytes: int = 32,
    large_message_share: float = 0.0,
    properties: dict[str, dict[str, object]] | None = None,
) -> TestSpec:
    return TestSpec(
        name=name,
        policy="replication",
        pairs=pairs,
        time_limit_s=seconds,
        rate=150.0,
        producers=2 * pairs + 2,
        consumers=2 * pairs + 2,
        groups=4 * pairs,
        recovery_bound_s=30.0,
        hold_s=hold_s,
        prefetch=prefetch,
        payload_bytes=payload_bytes,
        large_message_share=large_message_share,
        properties=properties or {},
    )


def _votes(*, live: bool) -> dict[str, dict[str, object]]:
    return {
        "*": {f"{_MASTER}vote-on-replication-failure": live, f"{_SLAVE}vote-on-replication-failure": live}
    }


def _retries(retries: int, wait_ms: int, round_ms: int) -> dict[str, dict[str, object]]:
    return {
        "*": {
            f"{_SLAVE}vote-retries": retries,
            f"{_SLAVE}vote-retry-wait": wait_ms,
            f"{_SLAVE}quorum-vote-wait": round_ms,
        }
    }


def _faults(*faults: Fault) -> Schedule:
    return Schedule(faults=faults)


def _pair_link(start_s: float, duration_s: float, pair: str | None = None) -> Fault:
    options = {} if pair is None else {"pair": pair}
    return Fault(kind="partition", start_s=start_s, duration_s=duration_s, shape="pair-link", options=options)


SCENARIOS: Final = (
    Scenario(
        id="RP1",
        claim="the backup has all data that the live acknowledged",
        source="AMQ 17.3.1.2",
        spec=_spec("rp1", pairs=1),
        schedule=_faults(Fault(kind="kill", start_s=4.0, duration_s=4.0, target="a1")),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP1-large",
        claim="the backup has the large messages, too, that the live acknowledged",
        source="AMQ 17.3.1.2",
        spec=_spec("rp1-large", pairs=1, large_message_share=0.2),
        schedule=_faults(Fault(kind="kill", start_s=4.0, duration_s=4.0, target="a1")),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP1-paging",
        claim="the backup has the messages, too, that the live has on pages",
        source="AMQ 17.3.1.2",
        spec=paged(_spec("rp1-paging", pairs=1)),
        schedule=_faults(Fault(kind="kill", start_s=4.0, duration_s=4.0, target="a1")),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP2",
        claim="existing data is synchronised when a backup joins under load",
        source="AMQ 17.3.3",
        # Slow consumers: there must be messages to synchronise.
        spec=_spec("rp2", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=3.0, target="a2"),
            Fault(kind="kill", start_s=6.0, duration_s=4.0, target="a1"),
        ),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP3",
        claim="killed before the synchronisation ends: the backup does not take over with partial data",
        source="AMQ 17.3.3",
        # So much data over so slow a link that the copy cannot be whole when the live dies.
        spec=_spec("rp3", pairs=1, payload_bytes=4096),
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=3.0, target="a2"),
            Fault(
                kind="slow",
                start_s=1.0,
                duration_s=6.0,
                shape="pair-link",
                options={"rate_bytes_s": 200_000.0},
            ),
            Fault(kind="kill", start_s=3.6, duration_s=4.0, target="a1"),
        ),
        allowed=("unavailable",),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="RP4",
        claim="one pair cannot avoid network isolation",
        source="AMQ 17.3.1.3",
        spec=_spec("rp4", pairs=1),
        schedule=_faults(_pair_link(3.0, 6.0)),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP5",
        claim="three pairs with both votes on: the isolated live shuts down, the backup starts with a majority",
        source="AMQ 17.3.3.1",
        spec=_spec("rp5", pairs=3, properties=_votes(live=True)),
        schedule=_faults(
            Fault(kind="partition", start_s=3.0, duration_s=7.0, shape="isolate-live", options={"pair": "a"})
        ),
        allowed=("split-brain",),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="RP6",
        claim="three pairs with vote-on-replication-failure=false: both become active",
        source="AMQ 17.3.1.3, 17.3.3.1",
        spec=_spec("rp6", pairs=3, properties=_votes(live=False)),
        schedule=_faults(_pair_link(3.0, 7.0, "a")),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP7",
        claim="a lost pair of three leaves no majority: the backup does not start, the live that votes shuts down",
        source="AMQ 17.3.3.1",
        spec=_spec("rp7", pairs=3, properties=_votes(live=True)),
        schedule=_faults(Fault(kind="kill", start_s=2.0, target="c1,c2"), _pair_link(4.0, 6.0, "a")),
        allowed=("unavailable",),
        roles=Roles(never_live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="RP8",
        claim="five pairs survive a lost pair and one more failure",
        source="AMQ 17.3.3.1",
        spec=_spec("rp8", pairs=5, properties=_votes(live=True)),
        schedule=_faults(
            Fault(kind="kill", start_s=2.0, target="e1,e2"), Fault(kind="kill", start_s=4.0, target="a1")
        ),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP9-before",
        claim="the threshold does not shrink when a pair is removed",
        source="AMQ 17.3.3.1",
        spec=_spec("rp9-before", pairs=3, properties=_votes(live=True)),
        schedule=_faults(
            Fault(kind="stop", start_s=2.0, target="c1,c2"),
            Fault(kind="kill", start_s=4.0, duration_s=5.0, target="a1"),
        ),
        allowed=("unavailable",),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="RP9-after",
        claim="it shrinks when the remaining brokers restart",
        source="AMQ 17.3.3.1",
        spec=_spec("rp9-after", pairs=3, seconds=16.0, properties=_votes(live=True)),
        schedule=_faults(
            Fault(kind="stop", start_s=1.0, target="c1,c2"),
            Fault(kind="stop", start_s=3.0, duration_s=1.0, target="a1,a2,b1,b2"),
            Fault(kind="kill", start_s=9.0, target="a1"),
        ),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP10-inside",
        claim="a backup that reaches the others within its vote retries starts",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-inside", pairs=3, properties=_retries(20, 200, 1000)),
        schedule=_faults(
            Fault(
                kind="partition", start_s=2.0, duration_s=3.0, shape="isolate-backup", options={"pair": "a"}
            ),
            Fault(kind="kill", start_s=2.5, target="a1"),
        ),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP10-outside",
        claim="a backup that reaches the others after its vote retries stays passive",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-outside", pairs=3, properties=_retries(1, 100, 200)),
        schedule=_faults(
            Fault(
                kind="partition", start_s=2.0, duration_s=4.5, shape="isolate-backup", options={"pair": "a"}
            ),
            Fault(kind="kill", start_s=2.2, duration_s=7.0, target="a1"),
        ),
        allowed=("unavailable",),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="RP11",
        claim="without a backup the live serves on unreplicated; with its disk go the messages",
        source="AMQ 17.3.1.3",
        # Slow consumers: what is lost with the disk is what nobody had consumed yet.
        spec=_spec("rp11", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="kill", start_s=2.0, target="a2"),
            Fault(kind="destroy", start_s=6.0, duration_s=2.0, target="a1"),
        ),
        required=("lost",),
        allowed=("duplicate", "reordered", "reordered-realtime", "unavailable"),
    ),
    Scenario(
        id="RP12",
        claim="after a failover nothing is replicated until a backup attaches",
        source="AMQ 17.3.1.3",
        spec=_spec("rp12", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="kill", start_s=2.0, duration_s=8.0, target="a1"),
            Fault(kind="destroy", start_s=7.0, duration_s=1.0, target="a2"),
        ),
        required=("lost",),
        allowed=("duplicate", "reordered", "reordered-realtime", "unavailable"),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP13-right",
        claim="both stopped: started in the right order, the one that was live last first, nothing is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp13-right", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="stop", start_s=3.0, duration_s=5.0, target="a2"),
            Fault(kind="kill", start_s=5.0, duration_s=2.0, target="a1"),
        ),
        roles=Roles(live=("a1",)),
    ),
    Scenario(
        id="RP13-wrong",
        claim="both stopped: started in the wrong order, what only the other had is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp13-wrong", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="kill", start_s=2.0, duration_s=4.0, target="a1"),
            Fault(kind="kill", start_s=5.0, duration_s=3.0, target="a2"),
        ),
        required=("lost",),
        allowed=("duplicate", "reordered", "reordered-realtime", "unavailable"),
        roles=Roles(live=("a2", "a1")),
    ),
    Scenario(
        id="RP14-false",
        claim="check-for-live-server=false: duplicates after the old live restarts",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-false", pairs=1, properties={"*": {f"{_MASTER}check-for-live-server": False}}),
        schedule=_faults(Fault(kind="kill", start_s=3.0, duration_s=3.0, target="a1")),
        required=("duplicate", "split-brain"),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2", "a1")),
    ),
    Scenario(
        id="RP14-true",
        claim="check-for-live-server=true: the old live synchronises and takes over again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-true", pairs=1, properties={"*": {f"{_MASTER}check-for-live-server": True}}),
        schedule=_faults(Fault(kind="kill", start_s=3.0, duration_s=3.0, target="a1")),
        roles=Roles(live=("a2", "a1")),
    ),
    Scenario(
        id="RP15",
        claim="group-name pairs live and backup, whatever order they start in",
        source="AMQ 17.3.3.2",
        spec=_spec("rp15", pairs=2, properties=_votes(live=False)),
        # b2 first, so that either live could have it; then each live is killed, and only its own backup can take its place.
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=1.0, target="b2"),
            Fault(kind="late-start", start_s=0.0, duration_s=2.0, target="a2"),
            Fault(kind="kill", start_s=4.0, duration_s=2.0, target="a1"),
            Fault(kind="kill", start_s=8.0, duration_s=2.0, target="b1"),
        ),
        roles=Roles(live=("a2", "b2")),
    ),
    Scenario(
        id="RP16",
        claim="a slow replication link slows sends and never hangs them",
        source="AMQ 17.3.3",
        spec=_spec("rp16", pairs=1),
        schedule=_faults(
            Fault(kind="slow", start_s=2.0, duration_s=6.0, shape="pair-link", options={"delay_ms": 150.0})
        ),
        roles=Roles(never_live=("a2",)),
    ),
)
