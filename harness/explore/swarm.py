"""The drawing of one run of a search.

It decides which faults can occur, how the brokers are configured, and what the clients do.

Why most is left out of every run: swarm testing (Groce et al., ISSTA 2012). A run with every kind
of fault hides bugs that need one kind often, and a fixed time-out hides those that need another. So
each run keeps about half of the kinds, some of the properties, and draws the rest from small lists;
thousands of runs meet all of it.

Why bounded: brokers promise something for some faults only. A search without bounds finds again and
again what the documents admit (RP4, RP11, RP13), and never comes to a bug. Bounded runs leave out
kinds that no promise covers and do not mix faults that end brokers with faults that silence them.
They also let a pair recover before the next fault that ends a broker. (A broker without a backup is
promised only its disk, and one that shares a store only that store: they need no rest.) Kinds that
are requested by name are always taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from harness.interface import (
    FIELDS,
    Chaining,
    Fault,
    Installed,
    Mirroring,
    NodePlan,
    Paging,
    Schedule,
    TestSpec,
    UsageError,
)
from harness.run.compose import place
from harness.systems import registry as systems
from harness.systems.equipment import equip
from harness.systems.given import check_home
from nemesis import registry as kinds
from nemesis import schedule as schedules
from workloads.placement import all_linked
from workloads.registry import MIXED, parts, possible

DEFAULTS: Final[Mapping[str, Any]] = {
    "environment": "simulation",
    "time_limit_s": 8.0,
    "rate": 40.0,
    "producers": 6,
    "consumers": 6,
    "groups": 6,
}
"""The fields of a spec that were not given: small, so that thousands of runs are possible."""

DEPLOYED: Final[Mapping[str, Any]] = {
    **DEFAULTS,
    "time_limit_s": 60.0,
    "operation_timeout_s": 10.0,
    "unavailable_bound_s": 60.0,
    "recovery_bound_s": 90.0,
    "quiet_period_s": 2.0,
}
"""The fields of a spec that were not given, for brokers that are deployed."""

_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "unavailable_bound_s": (20.0, 0.5),
    "recovery_bound_s": (30.0, 1.25),
}
"""The bounds: the value in a long simulated run, and in a short one as a share of its length.

A run that is shorter than its bounds can show neither ``unavailable`` nor ``starved``: no window is
long enough, and one fault excuses all that comes after it.
"""

_SIMULATED_SETTLE_S: Final = 7.5
"""The ``Patience.settle_s`` that corresponds to the simulation (s).

A system with twice as much takes twice as long for everything.
"""

QUORUM_PAIRS: Final = 3
CHAIN_PAIRS: Final = 3
"""The fewest pairs of which some are not linked in a chain."""
SETTLE_S: Final = 1.5
"""The time from the end of a fault that ended a broker to the next such fault (s).

It is enough for a restart, a synchronisation and a failback.
"""
SETTLE_SLOWED_S: Final = 3.5
"""The time as ``SETTLE_S`` if links or disks are slow meanwhile (s).

A broker that is killed while it alone has the data takes its pair down.
"""

_DURATIONS_S: Final = (0.3, 1.0, 2.5, 5.0)
_INTERVALS_S: Final = (0.5, 1.5, 3.0)
_SWING: Final = 0.3
_TARGETS: Final = ("live", "backup", "lives", "backups", "one", "minority", "all")
_WAITING: Final = ("slave", "instance")
"""The configured roles of a broker that may be a backup."""
_SHARED_CHANCE: Final = ("prefetch", "hold_s", "groups", "payload_bytes", "operation_timeout_s")
"""The fields that are drawn from the generator of the run, in this order.

Any other field has a generator of its own, so that a new one leaves the rest of a run as it was.
"""
_DRAWN_IF_POSSIBLE: Final = (
    "large_message_share",
    "compare_backups",
    "queues",
    "churn",
    "reuse_transactions",
    "send_again",
    "close_groups",
    "change_selectors",
    "chain",
    "share_topics",
    "share_replies",
)
"""The fields that are drawn only for certain workloads, policies or brokers (``_sizes``)."""
_LINKED: Final = {"share_topics": "subscriptions", "share_replies": "request-reply"}
"""The fields that need a workload, and brokers of which any two are linked."""
_PAGED: Final = 0.15
"""The share of runs in which the brokers have little memory."""
_TRANSACTED: Final = frozenset({"bank", "transactions"})
_MIXED_MOST: Final = 3
_WEIGHTS: Final = (1, 1, 2, 5)
"""The weights of a mixture's workloads.

A run has at most ``_MIXED_MOST`` of them.
"""
RATE: Final = "rate_bytes_s"
_ALWAYS_DRAWN: Final = frozenset({"seed", "nemeses", "properties", "duration_s", "interval_s", "targets"})
"""The fields that no base fixes: its properties, nemeses and targets bound what is drawn."""


def defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec of a search, those that were given included."""
    if fields.get("environment", "simulation") != "simulation":
        return {**DEPLOYED, **fields}
    values = {**DEFAULTS, **fields}
    length_s = values["time_limit_s"]
    bounds = {name: min(most_s, share * length_s) for name, (most_s, share) in _BOUNDS.items()}
    return {**bounds, **values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """Everything that a search draws from.

    ``base`` decides everything that is not drawn; ``fixed`` are the names of its fields that were
    given and must stay. ``kinds`` are the faults that may occur; the nodes are those that the
    policy plans.
    """

    base: TestSpec
    kinds: tuple[str, ...]
    bounded: bool = True
    fixed: frozenset[str] = frozenset()

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        """The brokers of each run."""
        return systems.of(self.base).plan(self.base)


def pace(spec: TestSpec) -> float:
    """Return how many times as long faults and rests last as in the simulation.

    A JVM takes seconds to start.
    """
    if spec.environment == "simulation":
        return 1.0
    return max(1.0, systems.of(spec).patience.settle_s / _SIMULATED_SETTLE_S)


def swarm(base: TestSpec, *, bounded: bool = True, fixed: frozenset[str] = frozenset()) -> Swarm:
    """Return what can be drawn for a spec.

    That is its nemeses or, without any, all that its cluster and its environment can have and its
    bounds allow. Raises UsageError for a policy or a nemesis that does not exist. Raises it, too,
    for a nemesis that the environment cannot do, or for which the cluster is too small or has
    nothing to break.
    """
    system = systems.of(base)
    environment, _ = place(system, base.environment)
    check_home(system)
    supports = environment.supports()
    if not environment.virtual and isinstance(system, Installed) and (missing := system.missing()):
        raise UsageError(f"system {system.name}: {missing}")
    nodes = system.plan(base)
    for name in base.nemeses:
        _probe(kinds.get(name).name, base, nodes)
        if reason := kinds.unsupported(name, supports):
            raise UsageError(f"{name}: --environment {base.environment} cannot do it: {reason}")
        if lack := kinds.get(name).lacks(nodes):
            raise UsageError(f"{name} with --policy {base.policy}: {lack}")
    chosen = base.nemeses or tuple(
        name
        for name in kinds.KINDS
        if _fits(name, base, nodes)
        and not kinds.unsupported(name, supports)
        and not kinds.get(name).lacks(nodes)
        and (environment.virtual or _breakable(name, base, nodes))
        and not (bounded and _unpromised(name, nodes))
    )
    return Swarm(base=base, kinds=chosen, bounded=bounded, fixed=fixed)


def draw(swarm: Swarm, seed: str) -> tuple[TestSpec, Schedule]:
    """Draw one run: the same run for the same seed.

    The run's own seed, and the seeds of all its parts, follow from it.
    """
    chance = random.Random(f"swarm:{seed}")
    nodes = swarm.nodes
    times = pace(swarm.base)
    chosen = _chosen(_family(swarm, chance), chance)
    targets = [target for target in swarm.base.targets or _TARGETS if _possible(target, nodes)]
    changes: dict[str, Any] = {
        "seed": chance.getrandbits(31),
        "nemeses": chosen,
        "duration_s": _about(times * chance.choice(_DURATIONS_S), chance),
        "interval_s": _about(times * chance.choice(_INTERVALS_S), chance),
        "targets": tuple(chance.sample(targets, min(len(targets), chance.randint(1, 3)))),
        "properties": _properties(swarm.base, nodes, chance),
    }
    for field in _SHARED_CHANCE:
        value = chance.choice(FIELDS[field].drawn)
        if chance.random() < FIELDS[field].drawn_share:
            changes[field] = value
    if swarm.base.environment != "simulation":
        changes.pop("operation_timeout_s", None)  # clients of deployed brokers keep their time-out
    changes |= _sizes(swarm.base, changes["properties"], random.Random(f"sizes:{seed}"))
    changes |= _drawn_alone(seed)
    undrawn = swarm.fixed - _ALWAYS_DRAWN
    changes = {field: value for field, value in changes.items() if field not in undrawn}
    if swarm.base.workload == MIXED:
        changes["workload"] = _mixture(swarm.base, chance)
        for field, workload in _LINKED.items():
            if workload not in parts(changes["workload"]):
                changes.pop(field, None)
    spec = msgspec.structs.replace(swarm.base, **changes)
    faults: Sequence[Fault] = schedules.generate(spec, nodes, chance).faults
    if swarm.bounded and _paired(nodes):
        faults = tuple(_with_rest(faults, times))
    if not (swarm.bounded and _paired(nodes) and any(kinds.get(name).ends for name in chosen)):
        faults = _with_conditions(faults, chance)
    faults = [_with_options(fault, nodes, chance) for fault in faults]
    if swarm.bounded:
        faults = [_limited_to_one(fault) if kinds.get(fault.kind).for_good else fault for fault in faults]
    if swarm.bounded and _paired(nodes) and any(kinds.get(name).ends for name in chosen):
        faults = [_brisk(fault) for fault in faults]
    if chance.random() < 0.5:
        pair = chance.choice(sorted(_pairs(nodes)))
        faults = [_focused(fault, pair, nodes) for fault in faults]
    return spec, Schedule(faults=tuple(faults))


def _mixture(base: TestSpec, chance: random.Random) -> str:
    """Return some of the workloads that the brokers can be loaded with, each with a weight."""
    names = possible(systems.of(base).dialect, base.policy)
    mixed = sorted(chance.sample(names, chance.randint(1, min(len(names), _MIXED_MOST))))
    if len(mixed) == 1:
        return mixed[0]
    return ",".join(f"{name}:{chance.choice(_WEIGHTS)}" for name in mixed)


def promised(spec: TestSpec, schedule: Schedule) -> bool:
    """Return whether a run keeps within the bounds.

    Its cluster must promise to survive all its kinds of faults, in this mixture and with this rest
    between them.
    """
    return not beyond(spec, schedule)


def beyond(spec: TestSpec, schedule: Schedule) -> frozenset[str]:
    """Return the bounds that a run exceeds, in words that name each.

    While a failing run is made smaller, it must exceed no bound that the first run kept. Otherwise
    a bug turns into a documented weakness of the same name.
    """
    nodes = systems.of(spec).plan(spec)
    fault_kinds = {fault.kind for fault in schedule.faults}
    mixed = len({kinds.get(fault.kind).ends for fault in schedule.faults if not _mild(fault)}) > 1
    rested = tuple(_with_rest(sorted(schedule.faults, key=lambda fault: fault.start_s), pace(spec)))
    exceeded = {
        "mixed": mixed,
        "without rest": len(rested) < len(schedule.faults) and _paired(nodes),
        "too few for a vote": _too_few_for_vote(nodes)
        and any(kinds.get(kind).wants_quorum for kind in fault_kinds),
        **{reason: True for kind in fault_kinds if (reason := kinds.get(kind).unpromised_in(nodes))},
    }
    return frozenset(bound for bound, is_left in exceeded.items() if is_left)


def _family(swarm: Swarm, chance: random.Random) -> tuple[str, ...]:
    """Return, within bounds, the kinds that end brokers, or those that silence them.

    Mild kinds go with either.
    """
    hard = [name for name in swarm.kinds if not kinds.get(name).mild]
    if not (swarm.bounded and hard):
        return swarm.kinds
    ends = kinds.get(chance.choice(hard)).ends
    return tuple(name for name in swarm.kinds if kinds.get(name).mild or kinds.get(name).ends is ends)


def _chosen(family: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    """Return about half of the kinds, but at least one that is not mild, if there is any.

    A slow disk alone is hardly worth a run.
    """
    kinds_drawn = {kind for kind in family if chance.random() < 0.5}
    if all(kinds.get(name).mild for name in kinds_drawn):
        kinds_drawn.add(chance.choice([name for name in family if not kinds.get(name).mild] or family))
    return tuple(kind for kind in family if kind in kinds_drawn)


def _about(value: float, chance: random.Random) -> float:
    return round(value * chance.uniform(1 - _SWING, 1 + _SWING), 3)


def _properties(
    base: TestSpec, nodes: Sequence[NodePlan], chance: random.Random
) -> dict[str, dict[str, Any]]:
    """Return the properties of the base, and about a quarter of the drawn ones, for all nodes."""
    drawn: dict[str, Any] = {}
    for name, choices in systems.of(base).drawn(base, nodes).items():
        value = chance.choice(choices)
        if chance.random() < 0.25:
            drawn[name] = value
    return {**base.properties, "*": {**drawn, **base.properties.get("*", {})}}


def _drawn_alone(seed: str) -> dict[str, Any]:
    """Return some of the drawn fields that no other function draws."""
    changes = {}
    for name, field in FIELDS.items():
        if field.drawn and name not in {*_SHARED_CHANCE, *_DRAWN_IF_POSSIBLE}:
            chance = random.Random(f"{name}:{seed}")
            value = chance.choice(field.drawn)
            if chance.random() < field.drawn_share:
                changes[name] = value
    return changes


def _sizes(base: TestSpec, properties: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return, for some runs, large bodies, little memory, a comparison of backups, and a chain.

    With little memory waiting messages are on pages. The numbers are drawn from a generator of
    their own, so that the rest of a run is what it was before these options existed.
    """
    changes: dict[str, Any] = {}
    share, large, paged = chance.choice(FIELDS["large_message_share"].drawn), chance.random(), chance.random()
    if large < FIELDS["large_message_share"].drawn_share:
        changes["large_message_share"] = share
    system = systems.of(base)
    if paged < _PAGED and isinstance(system, Paging):
        room = {name: chance.choice(values) for name, values in system.paging.items()}
        changes["properties"] = {**properties, "*": {**room, **properties["*"]}}
    is_compared = _is_drawn("compare_backups", chance)
    if is_compared and isinstance(system, Mirroring) and base.policy in system.mirrored:
        changes["compare_backups"] = True
    changes |= _habits(base, chance)
    is_chain, is_bounded = (_is_drawn("chain", chance) for _ in ("chain", "hops"))
    if isinstance(system, Chaining) and base.policy in system.chained and base.pairs >= CHAIN_PAIRS:
        if is_chain and not any(changes.get(name, getattr(base, name)) for name in _LINKED):
            changes["chain"] = True
        if is_bounded:
            room = {name: chance.choice(values) for name, values in system.hops.items()}
            drawn = changes.get("properties", properties)
            changes["properties"] = {**drawn, "*": {**room, **drawn["*"]}}
    return changes


def _habits(base: TestSpec, chance: random.Random) -> dict[str, Any]:
    """Return what clients do more often, or differently, in some runs of certain workloads."""
    named = {*parts(base.workload)}
    topics, churn = chance.choice(FIELDS["queues"].drawn), chance.choice(FIELDS["churn"].drawn)
    often = [_is_drawn(name, chance) for name in ("queues", "churn", "reuse_transactions")]
    changes: dict[str, Any] = {}
    if named & {"subscriptions", "destinations"}:
        changes |= {"queues": topics} if often[0] else {}
        changes |= {"churn": churn} if often[1] else {}
    if named & _TRANSACTED and often[2]:
        changes["reuse_transactions"] = True
    dialect = systems.of(base).dialect
    if _is_drawn("send_again", chance) and dialect.once_header is not None:
        changes["send_again"] = True
    closes, selects = (_is_drawn(name, chance) for name in ("close_groups", "change_selectors"))
    if closes and "groups" in named and dialect.closing:
        changes["close_groups"] = True
    if selects and "subscriptions" in named and dialect.topics is not None and dialect.topics.remakes:
        changes["change_selectors"] = True
    shares, replies = (_is_drawn(name, chance) for name in ("share_topics", "share_replies"))
    shared, temporaries = dialect.topics, dialect.temporaries
    if base.pairs > 1 and all_linked(base):
        if shares and "subscriptions" in named and shared and base.policy in shared.shared_by:
            changes["share_topics"] = True
        if replies and "request-reply" in named and temporaries and base.policy in temporaries.shared_by:
            changes["share_replies"] = True
    return changes


def _is_drawn(name: str, chance: random.Random) -> bool:
    return chance.random() < FIELDS[name].drawn_share


def _with_rest(faults: Sequence[Fault], times: float) -> Iterator[Fault]:
    """Yield the faults that leave a pair the time to recover from the one before.

    Only after a fault that ended a broker is that time needed.
    """
    free_s = 0.0
    slowed = any(kinds.get(fault.kind).slows for fault in faults)
    settle_s = times * (SETTLE_SLOWED_S if slowed else SETTLE_S)
    for fault in faults:
        if kinds.get(fault.kind).ends:
            if fault.start_s < free_s:
                continue
            duration_s = math.inf if fault.duration_s is None else fault.duration_s
            free_s = fault.start_s + duration_s + settle_s
        yield fault


def _with_conditions(faults: Sequence[Fault], chance: random.Random) -> Sequence[Fault]:
    """Make conditions last from their beginning to the end, half of the time.

    A condition is a kind of fault that is rather a state than an event: a slow disk or a fast
    clock. All other faults then meet it. Faults that take turns do not meet: if the peace between
    them is longer than they are, no two ever do.
    """
    for kind in [name for name in kinds.KINDS if kinds.get(name).lasts]:
        conditions = [fault for fault in faults if fault.kind == kind]
        if conditions and chance.random() < 0.5:
            endless = msgspec.structs.replace(conditions[0], duration_s=None)
            faults = [fault for fault in faults if fault.kind != kind or fault is conditions[0]]
            faults[faults.index(conditions[0])] = endless
    return faults


def _with_options(fault: Fault, nodes: Sequence[NodePlan], chance: random.Random) -> Fault:
    """Return the same fault, some of its options drawn."""
    options = dict(fault.options)
    for name, choices in kinds.get(fault.kind).drawn(nodes).items():
        value = chance.choice(choices)
        if chance.random() < 0.7:
            options[name] = value
    drawn = msgspec.structs.replace(fault, options=options)
    return drawn if _valid(drawn, nodes) else fault


def _mild(fault: Fault) -> bool:
    """Return whether every promise covers this fault together with any other.

    A link with too little capacity for its traffic ends lives by their votes, as a cut does.
    """
    return kinds.get(fault.kind).mild and RATE not in fault.options


def _limited_to_one(fault: Fault) -> Fault:
    """Return the same fault of one broker: if all left for good, no promise would be kept."""
    return msgspec.structs.replace(fault, target="one")


def _brisk(fault: Fault) -> Fault:
    """Return the same fault; a slow link keeps its full capacity and is slow by its delay alone."""
    if RATE not in fault.options:
        return fault
    dropped = {RATE} if fault.options.get("delay_ms") else {RATE, "delay_ms", "jitter_ms"}
    options = {name: value for name, value in fault.options.items() if name not in dropped}
    return msgspec.structs.replace(fault, options=options)


def _focused(fault: Fault, pair: str, nodes: Sequence[NodePlan]) -> Fault:
    """Return the same fault, limited to that pair if its kind can be.

    A sequence of faults hits hardest in one place.
    """
    focused = msgspec.structs.replace(fault, options={**fault.options, "pair": pair})
    return focused if _valid(focused, nodes) else fault


def _valid(fault: Fault, nodes: Sequence[NodePlan]) -> bool:
    try:
        kinds.get(fault.kind).validate(fault, nodes)
    except UsageError:
        return False
    return True


def _possible(target: str, nodes: Sequence[NodePlan]) -> bool:
    """Return whether the cluster is large enough for a target and has brokers in that role."""
    if target in ("backup", "backups") and not any(node.configured in _WAITING for node in nodes):
        return False
    return _valid(Fault(kind="kill", start_s=0.0, target=target), nodes)


def _probe(name: str, base: TestSpec, nodes: Sequence[NodePlan]) -> None:
    """Raise UsageError if no fault of that kind can be planned."""
    schedules.generate(msgspec.structs.replace(base, nemeses=(name,)), nodes, random.Random(0))


def _fits(name: str, base: TestSpec, nodes: Sequence[NodePlan]) -> bool:
    try:
        _probe(name, base, nodes)
    except UsageError:
        return False
    return True


def _breakable(name: str, base: TestSpec, nodes: Sequence[NodePlan]) -> bool:
    """Return whether deployed nodes can be given what such a fault breaks."""
    try:
        equip(base, nodes, Schedule(faults=(Fault(kind=name, start_s=0.0),)))
    except UsageError:
        return False
    return True


def _pairs(nodes: Sequence[NodePlan]) -> set[str]:
    return {node.pair for node in nodes if node.broker}


def _paired(nodes: Sequence[NodePlan]) -> bool:
    """Return whether any backup has a copy of the data of its own.

    Such a copy must be up to date before the next fault. A broker alone always has its own disk,
    and brokers that share a store have that.
    """
    return any(node.configured == "slave" and node.store is None and node.database is None for node in nodes)


def _unpromised(name: str, nodes: Sequence[NodePlan]) -> bool:
    """Return whether no promise covers this kind in this cluster.

    Brokers that share a store ask the store which of them is live, not each other.
    """
    kind = kinds.get(name)
    return bool(kind.unpromised_in(nodes) or (_too_few_for_vote(nodes) and kind.wants_quorum))


def _too_few_for_vote(nodes: Sequence[NodePlan]) -> bool:
    """Return whether brokers that ask each other which is live are too few for a vote."""
    return _paired(nodes) and len(_pairs(nodes)) < QUORUM_PAIRS
