"""The scenarios of policy ``shared-store``.

These are AMQ 17.3.1.2 and 17.3.2, rows SS1 to SS9 of the claims that a directory can show.

Times are those of a test: the store's lease and ``lock-expiration`` are 4 s, so a live stops
answering after 2 s of silence. If the mount decides and not the lease, the lease is made longer
than all that the mount waits for.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.claims.scenarios.cases import (
    AND_AGAIN,
    AND_BACK,
    BY_A2,
    SLOW,
    TAKEN,
    at_stake,
    ends_in_time,
    fault,
    faults,
    load,
    paged,
    properties,
)
from harness.claims.scenarios.expectations import (
    Becomes,
    ExpectedTakeover,
    Moved,
    Reported,
    Says,
    SlowestSend,
    Takeovers,
)
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.interface import TestSpec

_HA: Final = "ha-policy.shared-store."

NO_FAILBACK: Final = properties(_HA, slave__allow_failback=False)
"""Properties with which a live that has ended itself gets nothing back when started again."""


def _spec(name: str, seconds: float = 11.0, **fields: Any) -> TestSpec:
    return load(name, "shared-store", seconds, **fields)


def _lease(seconds: float) -> dict[str, object]:
    """Return properties of brokers whose lock lasts so long; ``_store`` has the store's."""
    milliseconds = round(seconds * 1000)
    return properties(_HA, master__lock_expiration=milliseconds, slave__lock_expiration=milliseconds)


def _store(mount_options: str, lease_s: float) -> dict[str, Any]:
    return {"mount-options": mount_options, "lease-ms": round(lease_s * 1000)}


_SS1: Final = Scenario(
    id="SS1",
    claim="the backup loads the shared journal and takes over",
    source="AMQ 17.3.1.2",
    spec=_spec("ss1", **SLOW),
    schedule=faults(fault("kill", 3.0)),
    besides=TAKEN,
    guards=at_stake("kill-1"),
)

SCENARIOS: Final = (
    _SS1,
    msgspec.structs.replace(
        _SS1,
        id="SS1-large",
        claim="the backup also has the large messages of the shared store",
        source="AMQ 17.3.2 (large-messages)",
        spec=_spec("ss1-large", large_message_share=0.2, **SLOW),
    ),
    msgspec.structs.replace(
        _SS1,
        id="SS1-paging",
        claim="the backup also has the messages on pages of the shared store",
        source="AMQ 17.3.2 (paging)",
        spec=paged(_spec("ss1-paging")),
    ),
    Scenario(
        id="SS2",
        claim="no split brain with a shared store: live and backup cannot reach each other, and "
        "clients are on both sides",
        source="AMQ 17.3.1.2, 17.3.1.3",
        spec=_spec("ss2"),
        schedule=faults(fault("partition", 3.0, 5.0, None, shape="halves")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a2", "cluster: link with a1 lost")),
    ),
    Scenario(
        id="SS4-true",
        claim="failover-on-shutdown=true: the backup takes over from a live that is stopped normally",
        source="AMQ 17.3.2.2",
        spec=_spec("ss4-true", **SLOW, every=properties(_HA, failover_on_shutdown=True)),
        schedule=faults(fault("stop", 3.0)),
        besides=TAKEN,
        guards=at_stake("stop-1"),
    ),
    Scenario(
        id="SS4-false",
        claim="failover-on-shutdown=false: the backup stays passive, and the live serves again when "
        "it is started again",
        source="AMQ 17.3.2.2",
        spec=_spec(
            "ss4-false", **SLOW, unavailable_bound_s=2.0, every=properties(_HA, failover_on_shutdown=False)
        ),
        schedule=faults(fault("stop", 3.0, 4.0)),
        roles=Roles(live=("a1",), never_live=("a2",)),
        besides=(
            Takeovers(),
            Reported("unavailable"),
            Says("a2", "staying passive: a1 was stopped without failover"),
        ),
        guards=at_stake("stop-1"),
    ),
    Scenario(
        id="SS5-true",
        claim="allow-failback=true: the old live becomes live again, and the backup becomes a backup again",
        source="AMQ 17.3.2.2",
        # This is time enough for a broker that starts on a busy machine. The second kill shows that
        # the backup became a backup again.
        spec=_spec("ss5-true", seconds=15.0, **SLOW),
        schedule=faults(fault("kill", 3.0, 2.0), fault("kill", 9.0)),
        besides=(AND_AGAIN,),
        guards=at_stake("kill-1"),
    ),
    Scenario(
        id="SS5-false",
        claim="allow-failback=false: the backup stays live when the old live comes back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss5-false", **SLOW, every=NO_FAILBACK),
        schedule=faults(fault("kill", 3.0, 2.0)),
        roles=Roles(live=("a2",), never_live=("a1",)),
        besides=(BY_A2, Says("a1", "waiting for the live lock, next in line")),
        guards=at_stake("kill-1"),
    ),
    Scenario(
        id="SS5-stop",
        claim="restart-backup=false: the backup stops after it has given the place back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss5-stop", seconds=15.0, **SLOW, every=properties(_HA, slave__restart_backup=False)),
        schedule=faults(fault("kill", 3.0, 2.0)),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
        besides=(AND_BACK, Says("a2", "failback is done and restart-backup is off")),
        guards=at_stake("kill-1"),
    ),
    Scenario(
        id="SS6",
        claim="several backups: one takes over, the next becomes its backup, and the old live does "
        "not become live again",
        source="AMQ 17.3.2.2",
        spec=_spec("ss6", seconds=13.0, store={"backups": 2}, **SLOW),
        # a3 starts when a2 waits already, and so waits behind it.
        schedule=faults(fault("late-start", 0.0, 1.0, "a3"), fault("kill", 3.0, 3.0)),
        roles=Roles(never_live=("a1",)),
        besides=(
            BY_A2,
            Says("a3", "waiting for the live lock, behind another backup"),
            Says("a3", "waiting for the live lock, next in line"),
            Says("a2", "no failback: this broker has a backup already"),
        ),
        guards=at_stake("kill-2"),
    ),
    Scenario(
        id="SS6-next",
        claim="several backups: when the broker that took over is lost, too, the next backup takes over",
        source="AMQ 17.3.2.2",
        spec=_spec("ss6-next", seconds=13.0, store={"backups": 2}, **SLOW),
        schedule=faults(
            fault("late-start", 0.0, 1.0, "a3"), fault("kill", 3.0), fault("kill", 7.0, target="a2")
        ),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a3"))),
            Moved(least=20, of="a2", by="a3"),
        ),
        guards=at_stake("kill-3", "a2"),
    ),
    Scenario(
        id="SS7-soft",
        claim="a soft mount reports an error after timeo times retrans: the live stops itself long "
        "before its lease ends, and the backup takes over",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-soft",
            store=_store("soft,timeo=5,retrans=2", 12.0),
            **SLOW,
            every={**NO_FAILBACK, **_lease(12.0)},
        ),
        schedule=faults(fault("nfs-stall", 3.0, 3.0)),
        besides=(*TAKEN, Becomes(broker="a1", role="stopped", after="nfs-stall-1", most_s=2.9)),
        guards=at_stake("nfs-stall-1"),
    ),
    Scenario(
        id="SS7-hard",
        claim="a hard mount waits: a stall that is shorter than the live's patience is only a pause",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-hard", store=_store("hard", 12.0), **SLOW, operation_timeout_s=20.0, every=_lease(12.0)
        ),
        # The times are those of SS7-soft.
        schedule=faults(fault("nfs-stall", 3.0, 3.0)),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), SlowestSend(least_s=2.0, most_s=6.0)),
    ),
    Scenario(
        id="SS7-minutes",
        claim="with 600 ds times 5, the mount would report an error after five minutes: the live "
        "stops itself earlier, when the lease of its lock ends",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-minutes", store={"mount-options": "soft,timeo=600,retrans=5"}, **SLOW, every=NO_FAILBACK
        ),
        schedule=faults(fault("nfs-disconnect", 3.0, 7.0)),
        besides=(*TAKEN, ends_in_time("nfs-disconnect-1")),
        guards=at_stake("nfs-disconnect-1"),
    ),
    Scenario(
        id="SS7-minutes-lease",
        claim="with 600 ds times 5 and a longer lease of the lock, the mount reports an error after "
        "five minutes, and then the live stops itself",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-minutes-lease",
            seconds=325.0,
            store=_store("soft,timeo=600,retrans=5", 900.0),
            rate=5.0,
            every=_lease(900.0),
        ),
        schedule=faults(fault("nfs-disconnect", 3.0)),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Becomes(broker="a1", role="stopped", after="nfs-disconnect-1", least_s=299.0, most_s=310.0),
        ),
    ),
    Scenario(
        id="SS9",
        claim="a live that stood still beyond its NFS lease is fenced when it continues",
        source="AMQ 17.3.2.1; ARTEMIS-2421",
        # The broker is also cut off: the kernel renews the lease of a paused process.
        spec=_spec("ss9", **SLOW, operation_timeout_s=20.0, every=NO_FAILBACK),
        schedule=faults(fault("nfs-disconnect", 3.0, 6.0), fault("pause", 3.0, 6.0)),
        roles=Roles(ended=("a1",)),
        besides=TAKEN,
        guards=at_stake("pause-2"),
    ),
    Scenario(
        id="SS9-server",
        claim="the file server stands still for longer than its lease: the live ends itself before "
        "another broker can get its lock",
        source="AMQ 17.3.2.1; ARTEMIS-2421",
        spec=_spec("ss9-server", **SLOW, every=NO_FAILBACK),
        schedule=faults(fault("nfs-stall", 3.0, 6.0)),
        besides=(*TAKEN, ends_in_time("nfs-stall-1")),
        guards=at_stake("nfs-stall-1"),
    ),
)
