"""The scenarios of policy ``shared-store``: AMQ 17.3.1.2 and 17.3.2, rows SS1 to SS9 of the claims that a directory can show.

Times are those of a test: the store's lease and ``lock-expiration`` are 4 s, so a live answers nobody from 2 s of silence on.
"""

from __future__ import annotations

from typing import Any, Final

from harness.interface import Fault, Schedule, TestSpec
from harness.scenarios.paged import paged
from harness.scenarios.refuter import Refuter, Replacement
from harness.scenarios.scenario import Roles, Scenario

_HA: Final = "ha-policy.shared-store."
_LIVE_ROLE: Final = "broker/policies/shared_store/live.py"


def _spec(
    name: str,
    *,
    seconds: float = 11.0,
    store: dict[str, Any] | None = None,
    large_message_share: float = 0.0,
    **every: Any,
) -> TestSpec:
    """One live and its backups on one store; ``every`` are properties of every broker, with underscores."""
    properties: dict[str, dict[str, Any]] = {}
    if every:
        properties["*"] = {
            _HA + key.replace("__", ".").replace("_", "-"): value for key, value in every.items()
        }
    if store:
        properties["store"] = store
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
        properties=properties,
    )


def _fault(kind: str, seconds: float, target: str | None = "a1", shape: str | None = None) -> Schedule:
    return Schedule(faults=(Fault(kind=kind, start_s=3.0, duration_s=seconds, target=target, shape=shape),))


SCENARIOS: Final = (
    Scenario(
        id="SS1",
        claim="the backup loads the shared journal and takes over",
        source="AMQ 17.3.1.2",
        spec=_spec("ss1"),
        schedule=_fault("kill", 4.0),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="SS1-large",
        claim="the backup has the large messages of the shared store, too",
        source="AMQ 17.3.2 (large-messages)",
        spec=_spec("ss1-large", large_message_share=0.2),
        schedule=_fault("kill", 4.0),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="SS1-paging",
        claim="the backup has the messages that wait on pages of the shared store, too",
        source="AMQ 17.3.2 (paging)",
        spec=paged(_spec("ss1-paging")),
        schedule=_fault("kill", 4.0),
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="SS2",
        claim="no split brain with a shared store: live and backup do not hear each other, clients are on both sides",
        source="AMQ 17.3.1.2, 17.3.1.3",
        spec=_spec("ss2"),
        schedule=_fault("partition", 5.0, target=None, shape="halves"),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="SS4-true",
        claim="failover-on-shutdown=true: the backup takes over from a live that is stopped normally",
        source="AMQ 17.3.2.2",
        spec=_spec("ss4-true", failover_on_shutdown=True),
        schedule=_fault("stop", 4.0),
        roles=Roles(live=("a2",)),
        refuter=Refuter(
            without="a live that is stopped says that nobody shall go on, whatever failover-on-shutdown is",
            fails="a2 did not become live",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "else LIVE if self.failover_on_shutdown else PAUSED",
                    "else PAUSED",
                ),
            ),
        ),
    ),
    Scenario(
        id="SS4-false",
        claim="failover-on-shutdown=false: the backup stays passive, the live comes back when it is started again",
        source="AMQ 17.3.2.2",
        spec=_spec("ss4-false", failover_on_shutdown=False),
        schedule=_fault("stop", 4.0),
        roles=Roles(live=("a1",), never_live=("a2",)),
    ),
    Scenario(
        id="SS5-true",
        claim="allow-failback=true: the old live gets its place back, the backup is a backup again",
        source="AMQ 17.3.2.2",
        # Time enough for a broker that starts on a busy machine.
        spec=_spec("ss5-true", seconds=15.0),
        schedule=_fault("kill", 2.0),
        roles=Roles(live=("a1", "a2")),
    ),
    Scenario(
        id="SS5-false",
        claim="allow-failback=false: the backup stays live when the old live comes back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss5-false", slave__allow_failback=False),
        schedule=_fault("kill", 2.0),
        roles=Roles(live=("a2",), never_live=("a1",)),
    ),
    Scenario(
        id="SS5-stop",
        claim="restart-backup=false: the backup stops once it has given the place back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss5-stop", slave__restart_backup=False),
        schedule=_fault("kill", 2.0),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
    ),
    Scenario(
        id="SS6",
        claim="several backups: one takes over, the next becomes its backup, and the old live gets nothing back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss6", store={"backups": 2}),
        schedule=_fault("kill", 3.0),
        roles=Roles(never_live=("a1",)),
    ),
    Scenario(
        id="SS7-soft",
        claim="a soft mount reports an error after timeo times retrans: the live stops itself, the backup takes over",
        source="AMQ 17.3.2.1",
        spec=_spec("ss7-soft", store={"mount-options": "soft,timeo=5,retrans=2"}),
        schedule=_fault("nfs-stall", 3.0),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="SS7-hard",
        claim="a hard mount waits: a stall shorter than the live's own patience is only a pause",
        source="AMQ 17.3.2.1",
        spec=_spec("ss7-hard", store={"mount-options": "hard"}),
        schedule=_fault("nfs-stall", 1.5),
        roles=Roles(never_live=("a2",)),
    ),
    Scenario(
        id="SS7-minutes",
        claim="600 ds times 5 would be five minutes until the mount says so: the live stops itself at the end of its lock's lease",
        source="AMQ 17.3.2.1",
        spec=_spec("ss7-minutes", store={"mount-options": "soft,timeo=600,retrans=5"}),
        schedule=_fault("nfs-disconnect", 7.0),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
    Scenario(
        id="SS9",
        claim="a live that is stalled beyond its NFS lease, and comes back, is fenced",
        source="AMQ 17.3.2.1; ARTEMIS-2421",
        spec=_spec("ss9"),
        schedule=_fault("nfs-stall", 6.0),
        roles=Roles(live=("a2",), ended=("a1",)),
    ),
)
