"""The placement: which servers each client uses, which servers are drained, and where groups live.

Clients belong to pairs. The clients of a pair use the nodes that may serve it, and its groups are
sent there only. Every broker is drained.

These are pure functions of the spec and the plan, so a seed makes the same test again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from harness.interface import NodePlan, WorkloadContext


class Seat(NamedTuple):
    """The place of one client.

    Clients are numbered from 0 and dealt to pairs in turn. ``turn`` is the client's number among
    the clients of its pair, ``place`` the number of the pair. ``nodes`` are those that the client
    tries, the likeliest first.
    """

    number: int
    turn: int
    place: int
    pair: str
    nodes: tuple[str, ...]
    zone: str


class Station(NamedTuple):
    """The place of one consumer of the drain: a node, its pair, and the zone of the consumer."""

    pair: str
    node: str
    zone: str


def pairs_of(nodes: Sequence[NodePlan]) -> dict[str, tuple[str, ...]]:
    """Return by pair the names of the nodes that may serve its clients, the likeliest first.

    Backups come last. In a cluster in which every broker takes over from any other, all other
    members follow the pair's own nodes.
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
        )
        for pair, own in pairs.items()
    }


def pair_names(context: WorkloadContext) -> dict[str, str]:
    """Return the pair of each node, by the node's name."""
    return {node.name: node.pair for node in context.nodes}


def producing(context: WorkloadContext) -> dict[str, tuple[str, ...]]:
    """Return the pairs that have producers, each with the nodes that these use."""
    return pairs_of(context.nodes)


def consuming(context: WorkloadContext) -> dict[str, tuple[str, ...]]:
    """Return the pairs that have consumers, each with the nodes that these use."""
    return pairs_of(context.nodes)


def producers(context: WorkloadContext) -> list[Seat]:
    """Return the places of the producers: as many as the test asks for, one for each pair."""
    return list(seats(context.spec.producers, producing(context), context.zones))


def consumers(context: WorkloadContext, least: int = 1) -> list[Seat]:
    """Return the places of the consumers, at least ``least`` for each pair."""
    pairs = consuming(context)
    return list(seats(max(context.spec.consumers, least * len(pairs)), pairs, context.zones))


def seats(wanted: int, pairs: Mapping[str, tuple[str, ...]], zones: Sequence[str]) -> Iterator[Seat]:
    """Yield the places of ``wanted`` clients, at least one for each pair.

    The clients of a pair are dealt to zones in turn.
    """
    dealt = list(pairs.items())
    for number in range(max(wanted, len(dealt))):
        turn, place = divmod(number, len(dealt))
        yield Seat(number, turn, place, *dealt[place], zones[turn % len(zones)])


def stations(context: WorkloadContext, pair: str | None = None) -> list[Station]:
    """Return the places of the consumers of the drain, for one pair or for all."""
    nodes = [
        (name, node)
        for name, members in pairs_of(context.nodes).items()
        for node in members
        if pair in (None, name)
    ]
    zones = context.zones
    return [Station(name, node, zones[place % len(zones)]) for place, (name, node) in enumerate(nodes)]


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
