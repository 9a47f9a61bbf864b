"""The scenarios of policy ``ha-database``: Sun 4.1, chapter 8, rows HA1 to HA11 of the claims.

Times are those of a test: a broker may be taken over 3 s after its last proof of life, answers
nobody from 1.5 s on and drops everything after 2.25 s.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.expectations import (
    Answers,
    AtStake,
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
)
from harness.claims.scenarios.paged import paged
from harness.claims.scenarios.refuter import Refuter, Replacement
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.claims.scenarios.shared_store import NEVER_IN_DOUBT, WAITS_FOR_EVER
from harness.interface import Fault, Schedule, TestSpec

_HA: Final = "ha-policy.ha-database."
_SOURCE: Final = "SUN, High-Availability Clusters"
_PREVENTING: Final = "SUN, Preventing or Forcing Takeover of a Broker"
_PROPERTIES: Final = "SUN, Failure Detection and Takeover Properties"
_LIFE: Final = "broker/policies/ha_database/life.py"
_STEERING: Final = "broker/policies/ha_database/steering.py"
_WATCH: Final = "broker/policies/ha_database/watch.py"
_JOURNAL: Final = "broker/storage/database/journal.py"
_REGISTRY: Final = "broker/storage/database/registry.py"


def _spec(
    name: str,
    *,
    brokers: int = 3,
    seconds: float = 11.0,
    large_message_share: float = 0.0,
    rate: float = 25.0,
    properties: dict[str, Any] | None = None,
    server: bool = False,
    **every: Any,
) -> TestSpec:
    """Consumers are slower than producers, so that a broker that fails has messages.

    ``rate`` is of each broker's producers, ``every`` are properties of every broker's policy, with
    underscores.

    ``server``: on no file of SQLite. A process that is stopped within a commit keeps it locked, and
    all brokers wait for it.
    """
    mine = {_HA + key.replace("_", "-"): value for key, value in every.items()} | (properties or {})
    return TestSpec(
        name=name,
        policy="ha-database",
        pairs=brokers,
        time_limit_s=seconds,
        rate=rate * brokers,
        producers=2 * brokers,
        consumers=2 * brokers,
        groups=4 * brokers,
        hold_s=0.5,
        prefetch=3,
        recovery_bound_s=30.0,
        large_message_share=large_message_share,
        properties={
            **({"*": mine} if mine else {}),
            **({"database": {"type": "server"}} if server else {}),
        },
    )


def _fault(
    kind: str, start_s: float, seconds: float | None, target: str | None = "a1", **options: Any
) -> Fault:
    return Fault(kind=kind, start_s=start_s, duration_s=seconds, target=target, options=options)


def _after(event: str, kind: str, start_s: float, seconds: float | None, target: str) -> Fault:
    return Fault(kind=kind, start_s=start_s, after=event, duration_s=seconds, target=target)


def _faults(*faults: Fault) -> Schedule:
    return Schedule(faults=faults)


_GONE_ON: Final[tuple[Expectation, ...]] = (Moved(least=10, of="a1"), Resumed(of="a1", least=20))
"""What a1 had goes on elsewhere, and its clients."""
_TAKEN: Final[tuple[Expectation, ...]] = (Takeovers((ExpectedTakeover("a1"),)), *_GONE_ON)
"""One other broker goes on with it; a1 stays away, or comes back with nothing."""


def _at_stake(fault: str) -> tuple[AtStake, ...]:
    return (AtStake(least=10, at=fault, broker="a1"),)


_NOBODY_TAKES_OVER: Final = Refuter(
    without="no broker is ever found to have failed",
    fails="taken over: nothing",
    changes=(
        Replacement(
            _WATCH,
            "if not self._confirmed(row):\n            return None",
            "if True:\n            return None",
        ),
    ),
)


def _taker_lacks(which: str) -> Replacement:
    return Replacement(
        _LIFE,
        "        session = max(gained)\n",
        "        from broker.core.message import CONSUMED, COUNTED, HEAD, IS_LARGE, MESSAGE, PAGE\n\n  "
        f"      records = [r for r in records if not ({which})]\n        session = max(gained)\n",
    )


SCENARIOS: Final = (
    Scenario(
        id="HA1",
        claim="heartbeat, suspicion, confirmation in the store, takeover: what the failed broker had "
        "goes on at one other",
        source=_SOURCE,
        spec=_spec("ha1"),
        schedule=_faults(_fault("kill", 3.0, None)),
        besides=_TAKEN,
        guards=_at_stake("kill-1"),
        refuter=_NOBODY_TAKES_OVER,
    ),
    Scenario(
        id="HA1-large",
        claim="what the failed broker had goes on elsewhere, its large messages too",
        source=_SOURCE,
        spec=_spec("ha1-large", large_message_share=0.2),
        schedule=_faults(_fault("kill", 3.0, None)),
        besides=_TAKEN,
        guards=_at_stake("kill-1"),
        refuter=Refuter(
            without="a taker lacks the large messages",
            fails="found lost",
            changes=(_taker_lacks("r.kind == MESSAGE and HEAD.unpack_from(r.data)[1] & IS_LARGE"),),
        ),
    ),
    Scenario(
        id="HA1-paging",
        claim="what the failed broker had goes on elsewhere, messages that wait on pages too",
        source=_SOURCE,
        spec=paged(_spec("ha1-paging", rate=60.0)),
        schedule=_faults(_fault("kill", 3.0, None)),
        besides=_TAKEN,
        # More than the broker has room for.
        guards=(AtStake(least=60, at="kill-1", broker="a1"),),
        refuter=Refuter(
            without="a taker has nothing of what is on pages",
            fails="found lost",
            changes=(_taker_lacks("r.kind in (CONSUMED, COUNTED, PAGE)"),),
        ),
    ),
    Scenario(
        id="HA2",
        claim="only one of several takers wins: the others, held with what they saw before, try when it "
        "is complete, and are refused",
        source=_SOURCE,
        spec=_spec("ha2", brokers=4, properties={"database-store.network-timeout": 2500}),
        # The database stands still when a1's lease runs out, so that all look at its row in one
        # moment, before any has taken it; then all but the first are held.
        schedule=_faults(
            _fault("kill", 3.0, None),
            _fault("database-stall", 5.6, 0.6, None),
            _after("member/suspected", "pause", 0.0, 0.7, "rivals"),
        ),
        besides=(Happens("member/suspected"), *_TAKEN),
        guards=(
            *_at_stake("kill-1"),
            SaidBy(least=2, pattern="a1 .* has been silent for .*: taking over"),
        ),
        refuter=Refuter(
            without="a takeover is no compare-and-set: whoever has seen a broker fail takes it over",
            fails="taken over: a1's data by",
            changes=(
                Replacement(_REGISTRY, 'conditions = "epoch = ?"', 'conditions = "epoch >= ?"'),
                Replacement(
                    _REGISTRY,
                    "        if not forced:\n            conditions +=",
                    "        if False:\n            conditions +=",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA4",
        claim="false suspicion: a healthy broker that stood still is taken over, and does not serve "
        "what it had when it goes on",
        source=_PROPERTIES,
        spec=_spec("ha4", server=True),
        schedule=_faults(_fault("pause", 3.0, 6.0)),
        roles=Roles(live=("a1",)),
        besides=(*_TAKEN, GoesOn("a1")),
        guards=_at_stake("pause-1"),
        refuter=Refuter(
            without="a broker serves on, however old its lease is, and writes on, whoever has taken over",
            fails="found double-delivery",
            changes=(
                NEVER_IN_DOUBT,
                WAITS_FOR_EVER,
                Replacement(
                    _REGISTRY,
                    '_OWN: Final = "WHERE cluster_id = ? AND broker_id = ? AND epoch = ?"',
                    '_OWN: Final = "WHERE cluster_id = ? AND broker_id = ? AND epoch >= ?"',
                ),
                Replacement(
                    _REGISTRY,
                    "THEN 0 WHEN state = ? THEN entry ELSE ? END",
                    "THEN entry WHEN state = ? THEN entry ELSE ? END",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA4-patient",
        claim="the same with a longer lock-expiration: the broker that stood still is not suspected, "
        "and goes on with what it has",
        source=_PROPERTIES,
        spec=_spec("ha4-patient", server=True, properties={"database-store.lock-expiration": 20_000}),
        schedule=_faults(_fault("pause", 3.0, 5.0)),
        besides=(Takeovers(), Moved(least=0, most=0, of="a1")),
        guards=_at_stake("pause-1"),
        refuter=Refuter(
            without="a broker is silent for too long after 3 s, whatever lock-expiration is",
            fails="taken over: a1's data by",
            changes=(
                Replacement(
                    "broker/policies/ha_database/policy.py",
                    "expiration_ms=self.store.lock_expiration,",
                    "expiration_ms=3000,",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA5",
        claim="a takeover whose taker died half-way is completed by another broker",
        source=_PREVENTING,
        spec=_spec("ha5", brokers=4, seconds=16.0, takeover_wait=1500),
        schedule=_faults(
            _fault("kill", 3.0, None), _after("member/takeover-begun", "kill", 0.5, None, "taker")
        ),
        besides=(
            Takeovers((ExpectedTakeover("a1"),), of="a1"),
            Happens("member/takeover-begun"),
            Says(None, "the takeover of a1 has begun", 2),
            *_GONE_ON,
        ),
        guards=_at_stake("kill-1"),
        refuter=Refuter(
            without="a takeover that has begun is its taker's for ever",
            fails="taken over: nothing",
            changes=(
                Replacement(
                    _WATCH,
                    "if row.state != TAKEOVER_STARTED and row.state not in RUNNING:",
                    "if row.state not in RUNNING:",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA6-true",
        claim="a broker that is shut down leaves its messages to the others at once: before its lease "
        "would have run out",
        source=_PREVENTING,
        spec=_spec("ha6-true", failover_on_shutdown=True),
        schedule=_faults(_fault("stop", 3.0, 2.0)),
        besides=_TAKEN,
        guards=_at_stake("stop-1"),
        refuter=Refuter(
            without="no shutdown leaves its messages to others",
            fails="taken over: nothing",
            changes=(
                Replacement(
                    _LIFE,
                    "SHUTDOWN_FAILOVER if self.failover_on_shutdown else SHUTDOWN_COMPLETE",
                    "SHUTDOWN_COMPLETE",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA6-false",
        claim="a broker that is shut down with -nofailover is not taken over; its messages wait for its "
        "restart",
        source=_PREVENTING,
        spec=_spec("ha6-false", failover_on_shutdown=False),
        schedule=_faults(_fault("stop", 3.0, 6.0)),
        roles=Roles(live=("a1",)),
        besides=(Takeovers(), Moved(least=0, most=0, of="a1")),
        guards=_at_stake("stop-1"),
        refuter=Refuter(
            without="every shutdown leaves its messages to others",
            fails="taken over: a1's data by",
            changes=(
                Replacement(
                    _LIFE,
                    "SHUTDOWN_FAILOVER if self.failover_on_shutdown else SHUTDOWN_COMPLETE",
                    "SHUTDOWN_FAILOVER",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA6-by-hand",
        claim="a broker that was shut down with -nofailover is taken over by hand: its messages go on "
        "elsewhere",
        source=_PREVENTING,
        spec=_spec("ha6-by-hand"),
        schedule=_faults(_fault("stop", 3.0, 6.0, failover=False), _fault("takeover", 4.5, 1.0, taker="b1")),
        roles=Roles(live=("a1",)),
        besides=(Takeovers((ExpectedTakeover("a1", "b1"),)), Moved(least=10, of="a1", by="b1")),
        guards=_at_stake("stop-1"),
        refuter=Refuter(
            without="only a broker that has failed is taken over, by hand too",
            fails="taken over: nothing",
            changes=(Replacement(_STEERING, "row, forced=True)", "row, forced=False)"),),
        ),
    ),
    Scenario(
        id="HA6-forced",
        claim="a broker that serves is taken over by force: it drops what it had and joins again; "
        "nothing is lost, nothing served by both",
        source=_PREVENTING,
        spec=_spec("ha6-forced"),
        schedule=_faults(_fault("takeover", 3.0, 2.0, taker="b1")),
        roles=Roles(live=("a1",)),
        besides=(Takeovers((ExpectedTakeover("a1", "b1"),)), Moved(least=10, of="a1", by="b1"), GoesOn("a1")),
        guards=_at_stake("takeover-1"),
        refuter=Refuter(
            without="a broker that was taken over ends",
            fails="a1 had ended by itself",
            changes=(
                Replacement(
                    "broker/policies/ha_database/policy.py",
                    'if await self._live_once(stopping) == "stopped":',
                    'if await self._live_once(stopping) != "failed":',
                ),
            ),
        ),
    ),
    Scenario(
        id="HA6-forced-paused",
        claim="the same with a broker that stands still: what it had goes on elsewhere only once it has "
        "dropped it",
        source=_PREVENTING,
        spec=_spec("ha6-forced-paused", server=True),
        schedule=_faults(_fault("pause", 3.0, 0.9), _fault("takeover", 3.1, 2.0, taker="b1")),
        roles=Roles(live=("a1",)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "b1"),)),
            Moved(least=10, of="a1", by="b1"),
            Before("a1", "nobody is answered any more", "b1", "a1 is taken over with"),
            GoesOn("a1"),
        ),
        guards=_at_stake("takeover-2"),
        refuter=Refuter(
            without="a takeover by force does not wait until the broker serves nobody any more",
            fails='is taken over with" first',
            changes=(
                Replacement(
                    _REGISTRY,
                    "(entry = ? OR heartbeat < clock_ms() - ?)",
                    "(entry >= ? OR heartbeat < clock_ms() - ?)",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA7-load",
        claim="quiesced under load, a broker serves the connections that are there and refuses all "
        "others; nobody takes it over",
        source=_PREVENTING,
        spec=_spec("ha7-load"),
        schedule=_faults(_fault("quiesce", 3.0, 5.0)),
        roles=Roles(never_live=("a1", "b1", "c1")),
        besides=(
            Takeovers(),
            Answers(broker="a1", window=("quiesce-1", "heal:quiesce-1"), least=50),
            Refuses(broker="a1", pattern="quiescing", window=("quiesce-1", "heal:quiesce-1")),
        ),
        refuter=Refuter(
            without="a broker that quiesces refuses nobody",
            fails="took in",
            changes=(
                Replacement(
                    _STEERING,
                    "life.store_sessions.closed = "
                    'f"{self._broker_id} is quiescing: it takes no new connections"',
                    'life.store_sessions.closed = ""',
                ),
            ),
        ),
    ),
    Scenario(
        id="HA11-stall",
        claim="the database stands still: brokers answer nobody, drop what they have before it is "
        "certain that others could take it, and go on with the database",
        source=_SOURCE,
        spec=_spec("ha11-stall"),
        schedule=_faults(_fault("database-stall", 3.0, 5.0, None)),
        roles=Roles(live=("a1", "b1", "c1")),
        besides=(
            Takeovers(),
            *map(GoesOn, ("a1", "b1", "c1")),
            *(Says(name, "expired: the store has not confirmed the lease") for name in ("a1", "b1", "c1")),
            Answers(window=("database-stall-1", "heal:database-stall-1"), after_s=1.5, most=0),
        ),
        guards=_at_stake("database-stall-1"),
        refuter=Refuter(
            without="a broker answers until it drops everything, however old its lease is",
            fails="answers and deliveries meanwhile",
            changes=(NEVER_IN_DOUBT,),
        ),
    ),
    Scenario(
        id="HA11-restart",
        claim="the database restarts: what was acknowledged before is there after",
        source=_SOURCE,
        spec=_spec("ha11-restart"),
        schedule=_faults(_fault("database-restart", 3.0, 1.0, None)),
        besides=(Takeovers(),),
        guards=_at_stake("database-restart-1"),
        refuter=Refuter(
            without="a batch that the database did not take is not tried again",
            fails="lost besides",
            changes=(
                Replacement(
                    _JOURNAL,
                    "                await asyncio.sleep(RETRY_S)\n                continue\n",
                    "                return\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA11-disconnect",
        claim="connections to the database are lost during commits: each entry happens once, whatever "
        "was heard of it",
        source=_SOURCE,
        spec=_spec("ha11-disconnect"),
        schedule=_faults(_fault("database-disconnect", 3.0, 5.0, "all")),
        besides=(Takeovers(),),
        guards=_at_stake("database-disconnect-1"),
        refuter=Refuter(
            without="a batch whose connection broke is taken for written",
            fails="lost besides",
            changes=(
                Replacement(
                    _JOURNAL,
                    "in_doubt = in_doubt or isinstance(error, OutcomeUnknownError)",
                    "in_doubt = True\n                if isinstance(error, OutcomeUnknownError):\n      "
                    "              return",
                ),
            ),
        ),
    ),
    Scenario(
        id="HA11-cut-off",
        claim="one broker is cut off from the database: it drops everything in time, and one other "
        "takes over",
        source=_SOURCE,
        spec=_spec("ha11-cut-off"),
        schedule=_faults(_fault("database-disconnect", 3.0, None, chance=1.0, committed=0.0)),
        besides=(
            *_TAKEN,
            Before("a1", "nobody is answered any more", None, "a1 is taken over with"),
            Answers(broker="a1", window=("database-disconnect-1", "heal"), after_s=1.5, most=0),
        ),
        guards=_at_stake("database-disconnect-1"),
        refuter=Refuter(
            without="a broker answers nobody without a lease, and drops nothing however old it is",
            fails='another said "a1 is taken over with" first',
            changes=(WAITS_FOR_EVER,),
        ),
    ),
)
