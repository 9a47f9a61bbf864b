"""The scenarios of policy ``shared-store`` on a database: AMQ 17.3.2.2, row SS3 of the claims.

Times are those of a test: a lock is kept for 4 s after its last renewal, which is every 250 ms, so a live answers nobody from 2 s of silence on, and a backup gets the
lock of a live that was killed after 4 s. (In a directory on one machine the lock of a process that ends is free at once.)
"""

from __future__ import annotations

from typing import Final

from harness.interface import Fault, Schedule, TestSpec
from harness.scenarios.paged import paged
from harness.scenarios.scenario import Roles, Scenario

_SOURCE: Final = "AMQ 17.3.2.2"


def _spec(name: str, seconds: float = 12.0, large_message_share: float = 0.0) -> TestSpec:
    """One live and its backup on one store."""
    return TestSpec(
        name=name,
        policy="shared-store",
        pairs=1,
        time_limit_s=seconds,
        rate=60.0,
        producers=3,
        consumers=3,
        groups=4,
        recovery_bound_s=30.0,
        large_message_share=large_message_share,
        properties={"store": {"type": "database"}},
    )


def _fault(kind: str, seconds: float, target: str | None = "a1", shape: str | None = None) -> Schedule:
    return Schedule(faults=(Fault(kind=kind, start_s=3.0, duration_s=seconds, target=target, shape=shape),))


SCENARIOS: Final = (
    Scenario(
        id="SS3-kill",
        claim="as SS1 on a database: the backup takes over once the lock of the live has expired",
        source=f"{_SOURCE}; AMQ 17.3.1.2",
        spec=_spec("ss3-kill"),
        schedule=_fault("kill", 6.0),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="SS3-large",
        claim="the backup has the large messages of the database, too",
        source=f"{_SOURCE} (large-message-table-name)",
        spec=_spec("ss3-large", large_message_share=0.2),
        schedule=_fault("kill", 6.0),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="SS3-paging",
        claim="the backup has the messages that wait on pages of the database, too",
        source=f"{_SOURCE} (page-store-table-name)",
        spec=paged(_spec("ss3-paging")),
        schedule=_fault("kill", 6.0),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="SS3-partition",
        claim="as SS2 on a database: live and backup do not hear each other, clients are on both sides, and one is live",
        source=f"{_SOURCE}; AMQ 17.3.1.3",
        spec=_spec("ss3-partition", seconds=9.0),
        schedule=_fault("partition", 4.5, target=None, shape="halves"),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="SS3-stall",
        claim="the database stands still for longer than lock-expiration: the live steps down, the backup goes on with the database",
        source=_SOURCE,
        spec=_spec("ss3-stall", seconds=13.0),
        schedule=_fault("database-stall", 6.0, target=None),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="SS3-pause",
        claim="a live that stood still for longer than lock-expiration, and goes on, is fenced",
        source=f"{_SOURCE}; ARTEMIS-2421",
        spec=_spec("ss3-pause"),
        schedule=_fault("pause", 6.0),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="SS3-cut-off",
        claim="the live alone is cut off from the database: it answers nobody before the backup takes over",
        source=_SOURCE,
        spec=_spec("ss3-cut-off"),
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
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
)
