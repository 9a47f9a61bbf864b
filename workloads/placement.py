"""The placement: which servers each client uses, which servers are drained, and where groups live.

Clients belong to pairs. The clients of a pair use the nodes that may serve it, and its groups are
sent there only. Every broker is drained.

A test may name the nodes at which producers send (``produce_at``), consumers attach
(``consume_at``) and the drain consumes (``drain_at``). Then only pairs with such a node have such
clients, and these use no other nodes. A consumer that also sends (a mover, a teller, a responder)
sends where it consumes.

A test may also give all clients one list of brokers (``client_brokers``), whatever their pairs.

These are pure functions of the spec and the plan, so a seed makes the same test again.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from harness.interface import FIELDS, NodePlan, TestSpec, UsageError, WorkloadContext
from stomp_protocol.client.addresses import AddressList, Behavior

PLACING: Final = ("produce_at", "consume_at", "drain_at", "client_brokers")
"""The fields of a spec that name nodes."""
OF_LISTS: Final = (
    "client_order",
    "client_attempts",
    "client_iterations",
    "client_interval_s",
    "client_handler",
)
"""The fields of a spec about clients that have a list of brokers."""
_PLAIN_SPEC: Final = TestSpec(name="")


class Seat(NamedTuple):
    """The place of one client.

    Clients are numbered from 0 and dealt to pairs in turn. ``turn`` is the client's number among
    the clients of its pair, ``place`` the number of the pair. ``nodes`` are those that the client
    tries, the likeliest first, or a list that it shares with others.
    """

    number: int
    turn: int
    place: int
    pair: str
    nodes: tuple[str, ...] | AddressList
    zone: str


class Station(NamedTuple):
    """The place of one consumer of the drain: a node, its pair, and the zone of the consumer."""

    pair: str
    node: str
    zone: str


def check(spec: TestSpec, nodes: Sequence[NodePlan], at_home: Sequence[str]) -> None:
    """Raise UsageError if clients cannot be where the spec places them.

    The plan must have each named node, and it must be a broker. ``at_home`` are those workloads of
    the test whose producers and consumers must be at the same pairs.
    """
    is_broker = {node.name: node.broker for node in nodes}
    brokers = ", ".join(name for name in is_broker if is_broker[name])
    handler = (spec.client_handler,) if spec.client_handler else ()
    for field, named in [*((field, getattr(spec, field)) for field in PLACING), ("client_handler", handler)]:
        for name in named:
            if not is_broker.get(name):
                problem = f"{name} is no broker" if name in is_broker else f"there is no node {name}"
                raise UsageError(f"{FIELDS[field].flag} {name}: {problem}; the brokers are {brokers}")
    flags = [FIELDS[field].flag for field in OF_LISTS if getattr(spec, field) != getattr(_PLAIN_SPEC, field)]
    if flags and not spec.client_brokers:
        raise UsageError(f"{flags[0]} is about clients with a list of brokers: give --client-brokers, too")
    if spec.client_brokers and (spec.produce_at or spec.consume_at):
        raise UsageError("--client-brokers: clients use any broker; leave --produce-at and --consume-at out")
    if spec.client_brokers and at_home and len(pairs_of(nodes)) > 1:
        raise UsageError(
            f"--workload {at_home[0]}: each broker has topics and temporary queues of its own; without "
            "--client-brokers the clients of a pair stay there"
        )
    if at_home and [*pairs_of(nodes, spec.produce_at)] != [*pairs_of(nodes, spec.consume_at)]:
        raise UsageError(
            f"--workload {at_home[0]}: brokers of pairs do not share its topics or temporary queues; name "
            "nodes of the same pairs by --produce-at and --consume-at"
        )
    if spec.select_by_pair and len(pairs_of(nodes, spec.consume_at)) < 2:
        raise UsageError(
            "--select-by-pair: nobody wants all that the consumers of one pair leave; let those of two pairs "
            "consume (--pairs, --consume-at)"
        )


def all_linked(spec: TestSpec) -> bool:
    """Return whether the brokers of any two pairs are linked, as not all in a chain are."""
    return not spec.chain or spec.pairs <= 2


def pairs_of(nodes: Sequence[NodePlan], at: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return by pair the names of the nodes that may serve its clients, the likeliest first.

    Backups come last. In a cluster in which every broker takes over from any other, all other
    members follow the pair's own nodes. If ``at`` names nodes, only these count, and only pairs of
    which it names a node.
    """
    pairs: dict[str, list[NodePlan]] = {}
    for node in nodes:
        if node.broker:
            pairs.setdefault(node.pair, []).append(node)
    members = [node for node in nodes if node.configured == "member"]
    return {
        pair: tuple(
            node.name
            for node in (
                *sorted(own, key=lambda node: node.configured == "slave"),
                *(member for member in members if member.pair != pair),
            )
            if not at or node.name in at
        )
        for pair, own in pairs.items()
        if not at or any(node.name in at for node in own)
    }


def pair_names(context: WorkloadContext) -> dict[str, str]:
    """Return the pair of each node, by the node's name."""
    return {node.name: node.pair for node in context.nodes}


def producing(context: WorkloadContext) -> dict[str, tuple[str, ...]]:
    """Return the pairs that have producers, each with the nodes that these use."""
    return pairs_of(context.nodes, context.spec.produce_at)


def consuming(context: WorkloadContext) -> dict[str, tuple[str, ...]]:
    """Return the pairs that have consumers, each with the nodes that these use."""
    return pairs_of(context.nodes, context.spec.consume_at)


def producers(context: WorkloadContext) -> list[Seat]:
    """Return the places of the producers: as many as the test asks for, one for each pair."""
    return list(seats(context.spec.producers, producing(context), context.zones, _shared_list(context)))


def consumers(context: WorkloadContext, least: int = 1) -> list[Seat]:
    """Return the places of the consumers, at least ``least`` for each pair."""
    pairs = consuming(context)
    return list(
        seats(max(context.spec.consumers, least * len(pairs)), pairs, context.zones, _shared_list(context))
    )


def _shared_list(context: WorkloadContext) -> AddressList | None:
    """Return the list of brokers that clients share; None: each has its own."""
    spec = context.spec
    if not spec.client_brokers:
        return None
    chance = random.Random(context.random.getrandbits(64))
    return AddressList(spec.client_brokers, cast("Behavior", spec.client_order), chance=chance)


def seats(
    wanted: int,
    pairs: Mapping[str, tuple[str, ...]],
    zones: Sequence[str],
    shared: AddressList | None = None,
) -> Iterator[Seat]:
    """Yield the places of ``wanted`` clients, at least one for each pair.

    The clients of each pair are spread over the zones. They may all have one list of brokers.
    """
    dealt = list(pairs.items())
    for number in range(max(wanted, len(dealt))):
        turn, place = divmod(number, len(dealt))
        pair, nodes = dealt[place]
        yield Seat(number, turn, place, pair, shared or nodes, zone(zones, turn))


def stations(context: WorkloadContext, pair: str | None = None) -> list[Station]:
    """Return the places of the consumers of the drain, for one pair or for all.

    Nodes that have left have none.
    """
    nodes = [
        (name, node)
        for name, members in pairs_of(context.nodes, context.spec.drain_at).items()
        for node in members
        if pair in (None, name) and node not in context.departed
    ]
    return [Station(name, node, zone(context.zones, turn)) for turn, (name, node) in enumerate(nodes)]


def zone(zones: Sequence[str], turn: int) -> str:
    """Return the zone of a client: clients are dealt to the zones in turn."""
    return zones[turn % len(zones)]


def group_homes(groups: int, pairs: int) -> Iterator[tuple[str, int, int]]:
    """Yield each group, the number of its home pair, and its turn among the groups there."""
    for number in range(max(groups, 1)):
        turn, home = divmod(number, pairs)
        yield f"g{number}", home, turn


def groups_by_pair(context: WorkloadContext, pairs: int) -> list[list[str | None]]:
    """Return the groups at home with each pair, at least one; only None where there are none."""
    if context.dialect.group_header is None:
        return [[None] for _ in range(pairs)]
    homes: list[list[str | None]] = [[] for _ in range(pairs)]
    for group, home, _ in group_homes(max(context.spec.groups, pairs), pairs):
        homes[home].append(group)
    return homes
