"""The scenarios of policy ``shared-store``.

AMQ 17.3.1.2 and 17.3.2, rows SS1 to SS9 of the claims that a directory can show.

Times are those of a test: the store's lease and ``lock-expiration`` are 4 s, so a live answers
nobody from 2 s of silence on. Where it is the mount that decides and not the lease, the lease is
made longer than all that the mount waits for.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.expectations import (
    AtStake,
    Becomes,
    Expectation,
    ExpectedTakeover,
    Moved,
    Reported,
    Says,
    SlowestSend,
    Takeovers,
)
from harness.claims.scenarios.paged import paged
from harness.claims.scenarios.refuter import Refuter, Replacement
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.interface import Fault, Schedule, TestSpec

_HA: Final = "ha-policy.shared-store."
_CANDIDATE: Final = "broker/policies/shared_store/candidate.py"
_DIRECTORY: Final = "broker/policies/shared_store/directory.py"
_LEASE: Final = "broker/policies/ownership/lease.py"
_LIVE_ROLE: Final = "broker/policies/shared_store/live.py"
_POLICY: Final = "broker/policies/shared_store/policy.py"

TAKEN: Final[tuple[Expectation, ...]] = (
    Takeovers((ExpectedTakeover("a1", "a2"),)),
    Moved(least=20, of="a1", by="a2"),
)
"""a2 goes on with what a1 had; a1 stays away."""
AT_STAKE: Final = (AtStake(least=20, at="kill-1", broker="a1"),)

WAITS_FOR_EVER: Final = Replacement(
    _LEASE, "self._proven_s + self._ends * self._expiration_s", "self._proven_s + 3600.0"
)
"""An owner whose store is silent waits for it, however long its lease is."""
NEVER_IN_DOUBT: Final = Replacement(
    _LEASE, "return self.age_s > DOUBT * self._expiration_s - ROUNDING_S", "return False"
)
"""An owner believes in its lease until it is told otherwise, however long ago it was confirmed."""
_WRITES_AGAIN: Final = Replacement(
    "broker/storage/log.py",
    "        await file.sync()\n        segment = batch.segment\n",
    "        while True:\n            try:\n                await file.sync()\n                break\n  "
    "          except OSError:\n                await asyncio.sleep(0.1)\n        segment = batch.segment\n",
)
_TRIES_AGAIN: Final = Refuter(
    without="a live whose store reports an error goes on, and tries again",
    fails="a1 stopped after",
    changes=(
        _WRITES_AGAIN,
        Replacement(
            _LIVE_ROLE,
            "        except OSError as error:\n            raise LeaseLostError",
            "        except OSError as error:\n            await asyncio.sleep(0.1)\n"
            "            return await self._verify()\n            raise LeaseLostError",
        ),
    ),
)


def takes_over_without(what: str, code: str, *, database: bool = False) -> Refuter:
    """A broker that begins a life which is not the store's first lacks something.

    ``code`` takes it out of ``recovered.records``.
    """
    path, made, indent = (
        ("broker/policies/shared_store/database.py", "Recovered(records)", " " * 8)
        if database
        else (_DIRECTORY, "recovered", " " * 4)
    )
    begun = f"{indent}return Inherited(life, node_id, journal, "
    changed = f"{indent}recovered = {made}\n{indent}if life > 1:\n{indent}    {code}\n{begun}recovered)\n"
    return Refuter(
        without=f"a broker that takes over {what}",
        fails="found lost",
        changes=(Replacement(path, f"{begun}{made})\n", changed),),
    )


FORGETS: Final = ("begins with an empty store", "recovered.records.clear()")
FORGETS_LARGE: Final = (
    "lacks the large messages",
    (
        "from broker.core.message import HEAD, IS_LARGE, MESSAGE; recovered.records[:] = [r for r in "
        "recovered.records if r.kind != MESSAGE or not HEAD.unpack_from(r.data)[1] & IS_LARGE]"
    ),
)
FORGETS_PAGES: Final = (
    "has nothing of what is on pages",
    (
        "from broker.core.message import CONSUMED, COUNTED, PAGE; recovered.records[:] = [r for r in "
        "recovered.records if r.kind not in (CONSUMED, COUNTED, PAGE)]"
    ),
)


def alone(*changes: Replacement) -> tuple[Replacement, ...]:
    """Changes in which a candidate knows whether it has lost a broker.

    In ``changes`` its ``self.alone()`` says whether it has lost the link to a broker that it was
    linked with.
    """
    return (
        Replacement(
            _POLICY,
            "        return await self._compete(candidate, stopping)\n",
            "        met = []\n\n"
            "        def alone():\n"
            "            linked = list(self.membership.linked())\n"
            "            met.extend(linked)\n"
            "            return bool(met) and not linked\n\n"
            "        candidate.alone = alone\n"
            "        return await self._compete(candidate, stopping)\n",
        ),
        *changes,
    )


def _spec(
    name: str,
    *,
    seconds: float = 11.0,
    store: dict[str, Any] | None = None,
    large_message_share: float = 0.0,
    hold_s: float | None = None,
    rate: float = 60.0,
    operation_timeout_s: float = 5.0,
    unavailable_bound_s: float = 20.0,
    **every: Any,
) -> TestSpec:
    """One live and its backups on one store.

    ``every`` are properties of every broker, with underscores. With ``hold_s`` consumers are slow:
    messages wait in the store.
    """
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
        rate=rate,
        producers=3,
        consumers=3,
        groups=4,
        recovery_bound_s=30.0,
        operation_timeout_s=operation_timeout_s,
        unavailable_bound_s=unavailable_bound_s,
        large_message_share=large_message_share,
        hold_s=hold_s,
        prefetch=None if hold_s is None else 2,
        properties=properties,
    )


def _lease(seconds: float) -> dict[str, Any]:
    """Properties of brokers whose lock is kept for so long; ``_store`` has the store's."""
    return {f"{role}__lock_expiration": round(seconds * 1000) for role in ("master", "slave")}


def _store(mount_options: str, lease_s: float) -> dict[str, Any]:
    return {"mount-options": mount_options, "lease-ms": round(lease_s * 1000)}


def _faults(*faults: Fault) -> Schedule:
    return Schedule(faults=faults)


def _fault(
    kind: str,
    duration_s: float | None = None,
    target: str | None = "a1",
    shape: str | None = None,
    start_s: float = 3.0,
) -> Fault:
    return Fault(kind=kind, start_s=start_s, duration_s=duration_s, target=target, shape=shape)


SCENARIOS: Final = (
    Scenario(
        id="SS1",
        claim="the backup loads the shared journal and takes over",
        source="AMQ 17.3.1.2",
        spec=_spec("ss1", hold_s=0.2),
        schedule=_faults(_fault("kill")),
        besides=TAKEN,
        guards=AT_STAKE,
        refuter=takes_over_without(*FORGETS),
    ),
    Scenario(
        id="SS1-large",
        claim="the backup has the large messages of the shared store, too",
        source="AMQ 17.3.2 (large-messages)",
        spec=_spec("ss1-large", large_message_share=0.2, hold_s=0.2),
        schedule=_faults(_fault("kill")),
        besides=TAKEN,
        guards=AT_STAKE,
        refuter=takes_over_without(*FORGETS_LARGE),
    ),
    Scenario(
        id="SS1-paging",
        claim="the backup has the messages that wait on pages of the shared store, too",
        source="AMQ 17.3.2 (paging)",
        spec=paged(_spec("ss1-paging")),
        schedule=_faults(_fault("kill")),
        besides=TAKEN,
        guards=AT_STAKE,
        refuter=takes_over_without(*FORGETS_PAGES),
    ),
    Scenario(
        id="SS2",
        claim="no split brain with a shared store: live and backup do not hear each other, clients are "
        "on both sides",
        source="AMQ 17.3.1.2, 17.3.1.3",
        spec=_spec("ss2"),
        schedule=_faults(_fault("partition", 5.0, target=None, shape="halves")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a2", "cluster: link with a1 lost")),
        refuter=Refuter(
            without="a backup that hears nothing of its live takes over without the live lock",
            fails="a2 became live",
            changes=alone(
                Replacement(
                    _CANDIDATE,
                    'lock = await self._places.take("live")\n',
                    'lock = await self._places.take("live")\n'
                    "        if lock is None and self.alone():\n            lock = await "
                    'self._places._store.try_lock("journal/server.lock", 90)\n',
                )
            ),
        ),
    ),
    Scenario(
        id="SS4-true",
        claim="failover-on-shutdown=true: the backup takes over from a live that is stopped normally",
        source="AMQ 17.3.2.2",
        spec=_spec("ss4-true", hold_s=0.2, failover_on_shutdown=True),
        schedule=_faults(_fault("stop")),
        besides=TAKEN,
        guards=(AtStake(least=20, at="stop-1", broker="a1"),),
        refuter=Refuter(
            without="a live that is stopped says that nobody shall go on, whatever failover-on-shutdown is",
            fails="taken over: nothing",
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
        claim="failover-on-shutdown=false: the backup stays passive, the live comes back when it is "
        "started again",
        source="AMQ 17.3.2.2",
        spec=_spec("ss4-false", hold_s=0.2, unavailable_bound_s=2.0, failover_on_shutdown=False),
        schedule=_faults(_fault("stop", 4.0)),
        roles=Roles(live=("a1",), never_live=("a2",)),
        besides=(
            Takeovers(),
            Reported("unavailable"),
            Says("a2", "staying passive: a1 was stopped without failover"),
        ),
        guards=(AtStake(least=20, at="stop-1", broker="a1"),),
        refuter=Refuter(
            without="a live that is stopped leaves its place to whoever waits, whatever "
            "failover-on-shutdown is",
            fails="a2 became live",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "else LIVE if self.failover_on_shutdown else PAUSED",
                    "else LIVE",
                ),
            ),
        ),
    ),
    Scenario(
        id="SS5-true",
        claim="allow-failback=true: the old live gets its place back, the backup is a backup again",
        source="AMQ 17.3.2.2",
        # Time enough for a broker that starts on a busy machine. The second kill shows that the
        # backup became one again.
        spec=_spec("ss5-true", seconds=15.0, hold_s=0.2),
        schedule=_faults(_fault("kill", 2.0), _fault("kill", start_s=9.0)),
        besides=(
            Takeovers(
                (ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"), ExpectedTakeover("a1", "a2"))
            ),
        ),
        guards=AT_STAKE,
        refuter=Refuter(
            without="a slave never gives the place back",
            fails="taken over: a1's data by a2",
            changes=(
                Replacement(
                    _POLICY,
                    "isinstance(self.section, SharedStoreSlave) and self.section.allow_failback\n",
                    "False\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="SS5-false",
        claim="allow-failback=false: the backup stays live when the old live comes back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss5-false", hold_s=0.2, slave__allow_failback=False),
        schedule=_faults(_fault("kill", 2.0)),
        roles=Roles(live=("a2",), never_live=("a1",)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"),)),
            Says("a1", "waiting for the live lock, next in line"),
        ),
        guards=AT_STAKE,
        refuter=Refuter(
            without="a slave gives the place back, whatever allow-failback is",
            fails="a1 became live",
            changes=(
                Replacement(
                    _POLICY,
                    "isinstance(self.section, SharedStoreSlave) and self.section.allow_failback\n",
                    "isinstance(self.section, SharedStoreSlave)\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="SS5-stop",
        claim="restart-backup=false: the backup stops once it has given the place back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss5-stop", seconds=15.0, hold_s=0.2, slave__restart_backup=False),
        schedule=_faults(_fault("kill", 2.0)),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"))),
            Says("a2", "failback is done and restart-backup is off"),
        ),
        guards=AT_STAKE,
        refuter=Refuter(
            without="a slave that gave the place back is a backup again, whatever restart-backup is",
            fails="a2 did not end itself",
            changes=(
                Replacement(
                    _POLICY,
                    "isinstance(self.section, SharedStoreSlave) and not self.section.restart_backup:",
                    "False:",
                ),
            ),
        ),
    ),
    Scenario(
        id="SS6",
        claim="several backups: one takes over, the next becomes its backup, and the old live gets "
        "nothing back",
        source="AMQ 17.3.2.2",
        spec=_spec("ss6", seconds=13.0, store={"backups": 2}, hold_s=0.2),
        # a3 comes when a2 waits already, and so behind it.
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=1.0, target="a3"), _fault("kill", 3.0)
        ),
        roles=Roles(never_live=("a1",)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"),)),
            Says("a3", "waiting for the live lock, behind another backup"),
            Says("a3", "waiting for the live lock, next in line"),
            Says("a2", "no failback: this broker has a backup already"),
        ),
        guards=(AtStake(least=20, at="kill-2", broker="a1"),),
        refuter=Refuter(
            without="a slave gives the place back, whoever else waits",
            fails="a1 became live",
            changes=(Replacement(_CANDIDATE, 'if not await places.held("backup"):', "if True:"),),
        ),
    ),
    Scenario(
        id="SS6-next",
        claim="several backups: when the one that took over is lost too, the next takes over",
        source="AMQ 17.3.2.2",
        spec=_spec("ss6-next", seconds=13.0, store={"backups": 2}, hold_s=0.2),
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=1.0, target="a3"),
            _fault("kill"),
            _fault("kill", target="a2", start_s=7.0),
        ),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a3"))),
            Moved(least=20, of="a2", by="a3"),
        ),
        guards=(AtStake(least=20, at="kill-3", broker="a2"),),
        refuter=Refuter(
            without="a backup that waited behind another never becomes the next",
            fails="taken over: a1's data by a2",
            changes=(
                Replacement(
                    _CANDIDATE,
                    "self._waiting = await self._places.take(",
                    'self._waiting = None if self._place.startswith("behind") else await self._places.take(',
                ),
            ),
        ),
    ),
    Scenario(
        id="SS7-soft",
        claim="a soft mount reports an error after timeo times retrans: the live stops itself long "
        "before its lease ends, the backup takes over",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-soft",
            store=_store("soft,timeo=5,retrans=2", 12.0),
            hold_s=0.2,
            slave__allow_failback=False,
            **_lease(12.0),
        ),
        schedule=_faults(_fault("nfs-stall", 3.0)),
        besides=(*TAKEN, Becomes(broker="a1", role="stopped", after="nfs-stall-1", most_s=2.9)),
        guards=(AtStake(least=20, at="nfs-stall-1", broker="a1"),),
        refuter=_TRIES_AGAIN,
    ),
    Scenario(
        id="SS7-hard",
        claim="a hard mount waits: a stall shorter than the live's own patience is only a pause",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-hard", store=_store("hard", 12.0), hold_s=0.2, operation_timeout_s=20.0, **_lease(12.0)
        ),
        # As long as in SS7-soft.
        schedule=_faults(_fault("nfs-stall", 3.0)),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), SlowestSend(least_s=2.0, most_s=6.0)),
        refuter=Refuter(
            without="a live whose store is silent for a second gives up, whatever lock-expiration is",
            fails="a2 became live",
            changes=(
                Replacement(
                    _LEASE,
                    "max(end_s, self._asked_s + self._expiration_s / 2)",
                    "self._asked_s + 0.5",
                ),
            ),
        ),
    ),
    Scenario(
        id="SS7-minutes",
        claim="600 ds times 5 would be five minutes until the mount says so: the live stops itself at "
        "the end of its lock's lease",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-minutes",
            store={"mount-options": "soft,timeo=600,retrans=5"},
            hold_s=0.2,
            slave__allow_failback=False,
        ),
        schedule=_faults(_fault("nfs-disconnect", 7.0)),
        besides=(
            *TAKEN,
            Becomes(broker="a1", role="stopped", after="nfs-disconnect-1", least_s=3.0, most_s=5.5),
        ),
        guards=(AtStake(least=20, at="nfs-disconnect-1", broker="a1"),),
        refuter=Refuter(
            without="a live whose store is silent waits for its mount, whatever lock-expiration is",
            fails="a1 stopped after",
            changes=(WAITS_FOR_EVER,),
        ),
    ),
    Scenario(
        id="SS7-minutes-lease",
        claim="600 ds times 5: where the lock's lease is longer, it is five minutes until the mount "
        "says so and the live stops itself",
        source="AMQ 17.3.2.1",
        spec=_spec(
            "ss7-minutes-lease",
            seconds=325.0,
            store=_store("soft,timeo=600,retrans=5", 900.0),
            rate=5.0,
            **_lease(900.0),
        ),
        schedule=_faults(_fault("nfs-disconnect")),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Becomes(broker="a1", role="stopped", after="nfs-disconnect-1", least_s=299.0, most_s=310.0),
        ),
        refuter=_TRIES_AGAIN,
    ),
    Scenario(
        id="SS9",
        claim="a live that stood still beyond its NFS lease, and comes back, is fenced",
        source="AMQ 17.3.2.1; ARTEMIS-2421",
        # Also cut off: the kernel of a machine renews the lease of a process that stands still.
        spec=_spec("ss9", hold_s=0.2, operation_timeout_s=20.0, slave__allow_failback=False),
        schedule=_faults(_fault("nfs-disconnect", 6.0), _fault("pause", 6.0)),
        roles=Roles(ended=("a1",)),
        besides=TAKEN,
        guards=(AtStake(least=20, at="pause-2", broker="a1"),),
        refuter=Refuter(
            without="a live that is told that its lock is lost goes on, and tries again to write",
            fails="split-brain",
            changes=(
                _WRITES_AGAIN,
                Replacement(
                    _LIVE_ROLE,
                    '            raise LeaseLostError(f"the live lock is lost',
                    '            return asked_s\n            raise LeaseLostError(f"the live lock is lost',
                ),
            ),
        ),
    ),
    Scenario(
        id="SS9-server",
        claim="the file server stands still for longer than its lease: the live has ended itself before "
        "anybody can have its lock",
        source="AMQ 17.3.2.1; ARTEMIS-2421",
        spec=_spec("ss9-server", hold_s=0.2, slave__allow_failback=False),
        schedule=_faults(_fault("nfs-stall", 6.0)),
        besides=(*TAKEN, Becomes(broker="a1", role="stopped", after="nfs-stall-1", least_s=3.0, most_s=5.5)),
        guards=(AtStake(least=20, at="nfs-stall-1", broker="a1"),),
        refuter=Refuter(
            without="a live whose store is silent waits for it, whatever lock-expiration is",
            fails="a1 stopped after",
            changes=(WAITS_FOR_EVER,),
        ),
    ),
)
