"""The scenarios of policy ``shared-store`` on a database: AMQ 17.3.2.2, row SS3 of the claims.

Times are those of a test. A lock lasts 4 s after its last renewal, which is every 250 ms. So a live
stops answering after 2 s of silence, and a backup gets the lock of a live that was killed after 4
s. (In a directory on one machine the lock of a process that ends is free at once.)
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.claims.scenarios.cases import SLOW, TAKEN, at_stake, ends_in_time, fault, faults, load, paged
from harness.claims.scenarios.expectations import Becomes, Says, Takeovers
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.claims.scenarios.shared_store import NO_FAILBACK
from harness.interface import TestSpec

_SOURCE: Final = "AMQ 17.3.2.2"


def _spec(name: str, seconds: float = 12.0, **fields: Any) -> TestSpec:
    """Return a spec with slow consumers: messages wait in the store."""
    return load(name, "shared-store", seconds, store={"type": "database"}, **SLOW, **fields)


_SS3: Final = Scenario(
    id="SS3-kill",
    claim="as SS1, on a database: the backup takes over when the lock of the live has expired",
    source=f"{_SOURCE}; AMQ 17.3.1.2",
    spec=_spec("ss3-kill"),
    schedule=faults(fault("kill", 3.0)),
    besides=(*TAKEN, Becomes(broker="a2", role="live", after="kill-1", least_s=3.0, most_s=7.0)),
    guards=at_stake("kill-1"),
)

SCENARIOS: Final = (
    _SS3,
    msgspec.structs.replace(
        _SS3,
        id="SS3-large",
        claim="the backup also has the large messages of the database",
        source=f"{_SOURCE} (large-message-table-name)",
        spec=_spec("ss3-large", large_message_share=0.2),
        besides=TAKEN,
    ),
    msgspec.structs.replace(
        _SS3,
        id="SS3-paging",
        claim="the backup also has the messages on pages of the database",
        source=f"{_SOURCE} (page-store-table-name)",
        spec=paged(_spec("ss3-paging")),
        besides=TAKEN,
    ),
    Scenario(
        id="SS3-partition",
        claim="as SS2, on a database: live and backup cannot reach each other, clients are on both "
        "sides, and only one broker is live",
        source=f"{_SOURCE}; AMQ 17.3.1.3",
        spec=_spec("ss3-partition", seconds=9.0),
        schedule=faults(fault("partition", 3.0, 4.5, None, shape="halves")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a2", "cluster: link with a1 lost")),
    ),
    Scenario(
        id="SS3-stall",
        claim="the database stands still for longer than lock-expiration: the live steps down, and "
        "the backup takes over when the database continues",
        source=_SOURCE,
        spec=_spec("ss3-stall", seconds=13.0, every=NO_FAILBACK),
        schedule=faults(fault("database-stall", 3.0, 6.0, None)),
        besides=(*TAKEN, ends_in_time("database-stall-1")),
        guards=at_stake("database-stall-1"),
    ),
    Scenario(
        id="SS3-pause",
        claim="a live that stood still for longer than lock-expiration is fenced when it continues",
        source=f"{_SOURCE}; ARTEMIS-2421",
        # Clients are patient: those that wait for the paused live are there when it continues.
        spec=_spec("ss3-pause", operation_timeout_s=20.0, every=NO_FAILBACK, server=True),
        schedule=faults(fault("pause", 3.0, 6.0)),
        roles=Roles(ended=("a1",)),
        besides=TAKEN,
        guards=at_stake("pause-1"),
    ),
    Scenario(
        id="SS3-cut-off",
        claim="only the live is cut off from the database: it stops answering before the backup takes over",
        source=_SOURCE,
        spec=_spec("ss3-cut-off", every=NO_FAILBACK),
        schedule=faults(fault("database-disconnect", 3.0, 6.0, chance=1.0, committed=0.0)),
        besides=(*TAKEN, ends_in_time("database-disconnect-1")),
        guards=at_stake("database-disconnect-1"),
    ),
)
