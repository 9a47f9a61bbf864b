"""Shapes of partitions as sets of directed links: pure functions of the cluster and a generator.

A shape is a graph of the ends that still hear each other; the missing links of the complete graph
are cut. Ends are nodes and client zones; zones have no links between them. Shapes follow the field
(Jepsen's halves, majorities-ring and bridge); isolate-live is the network isolation of AMQ 17.3.3,
and pair-link cuts only the replication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from harness.interface import Link, NodePlan
from nemesis.kind import CannotBeginError, Situation

RING_NODES_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class Cut:
    """The links that are cut; ``target`` names in words the nodes and zones concerned."""

    links: frozenset[Link]
    target: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of partition.

    ``lacks`` returns why a cluster is too small for the shape ("" if it is not), ``cut`` computes
    the links that are cut.
    """

    description: str
    lacks: Callable[[Sequence[NodePlan]], str]
    cut: Callable[[Situation, dict[str, Any]], Cut]


def both_ways(ends: Iterable[tuple[str, str]]) -> frozenset[Link]:
    """Return both directions of undirected links."""
    return frozenset(link for a, b in ends for link in (Link(a, b), Link(b, a)))


def between(side: Iterable[str], other: Iterable[str]) -> frozenset[Link]:
    """Return all links between two sides, both ways."""
    others = list(other)
    return both_ways((a, b) for a in side for b in others)


def _isolate(role: str) -> Callable[[Situation, dict[str, Any]], Cut]:
    """Return a function that cuts a node with a role off from all brokers and half of the zones.

    The first half of the client zones is cut off; the other half still reaches the node.
    """

    def cut(situation: Situation, options: dict[str, Any]) -> Cut:
        node = _with_role(situation, role, options.get("pair"))
        zones = situation.zones[: (len(situation.zones) + 1) // 2] if len(situation.zones) > 1 else ()
        others = [name for name in situation.names if name != node]
        return Cut(between([node], [*others, *zones]), node)

    return cut


def _pair_link(situation: Situation, options: dict[str, Any]) -> Cut:
    pair = options.get("pair")
    paired = _pairs(situation.nodes)
    lives = [name for name in situation.having("live", pair) if _pair_of(situation, name) in paired]
    if not lives:
        raise CannotBeginError(f"no broker{f' of pair {pair}' if pair else ''} is live now")
    live = situation.random.choice(lives)
    mates = [name for name in paired[_pair_of(situation, live)] if name != live]
    return Cut(between([live], mates), f"{live} and {', '.join(mates)}")


def _link(situation: Situation, options: dict[str, Any]) -> Cut:
    """Cut the link between two brokers, those of the option or any, and no other."""
    ends = options.get("between") or situation.random.sample(situation.names, 2)
    return Cut(between(ends[:1], ends[1:]), f"{ends[0]} and {ends[1]}")


def _halves(situation: Situation, _: dict[str, Any]) -> Cut:
    left, right = _split(situation, list(situation.names))
    return Cut(_apart(situation, left, right), f"{' '.join(left)} | {' '.join(right)}")


def _bridge(situation: Situation, _: dict[str, Any]) -> Cut:
    bridge = situation.random.choice(situation.names)
    left, right = _split(situation, [name for name in situation.names if name != bridge])
    return Cut(_apart(situation, left, right), f"{' '.join(left)} | {bridge} | {' '.join(right)}")


def _majorities_ring(situation: Situation, _: dict[str, Any]) -> Cut:
    """Cut links so that each node hears its neighbours on a shuffled ring; clients hear all nodes.

    A node has so many neighbours that they and the node itself are a bare majority.
    """
    import networkx as nx  # noqa: PLC0415 - as long to import as all else of a simulated run

    ring = situation.random.sample(situation.names, len(situation.names))
    count = len(ring)
    neighbours = count // 2
    offsets = list(range(1, neighbours // 2 + 1))
    if neighbours % 2:
        # Add one neighbour: the opposite one, or where there is none, one more on either side.
        offsets.append(count // 2 if count % 2 == 0 else neighbours // 2 + 1)
    heard = nx.relabel_nodes(nx.circulant_graph(count, offsets), dict(enumerate(ring)))
    return Cut(both_ways(nx.complement(heard).edges), " ".join(ring))


def _one_way(situation: Situation, options: dict[str, Any]) -> Cut:
    node = _with_role(situation, "live", options.get("pair"))
    direction = options.get("direction") or situation.random.choice(("from", "to"))
    others = [name for name in situation.names if name != node]
    if direction == "from":
        return Cut(frozenset(Link(node, other) for other in others), f"from {node}")
    return Cut(frozenset(Link(other, node) for other in others), f"to {node}")


def _random(situation: Situation, _: dict[str, Any]) -> Cut:
    """Cut random links between brokers, at least one, most of them both ways.

    Sometimes a client zone is cut off from a broker, too.
    """
    chance = situation.random
    every = list(combinations(situation.names, 2))
    links = set(both_ways([chance.choice(every)]))
    for a, b in every:
        if chance.random() < 0.4:
            links |= both_ways([(a, b)]) if chance.random() < 0.75 else {Link(*chance.sample((a, b), 2))}
    for zone in situation.zones:
        # A zone loses at most half of the brokers: a zone without any would only stop its clients.
        for name in chance.sample(situation.names, len(situation.names) // 2):
            if chance.random() < 0.25:
                links |= both_ways([(zone, name)])
    return Cut(frozenset(links), f"{len(links)} links")


def _with_role(situation: Situation, role: str, pair: str | None) -> str:
    found = situation.having(role, pair)
    if not found:
        raise CannotBeginError(f"no broker{f' of pair {pair}' if pair else ''} is {role} now")
    return situation.random.choice(found)


def _split(situation: Situation, names: list[str]) -> tuple[list[str], list[str]]:
    """Return two random halves of the names, each with half of the client zones."""
    situation.random.shuffle(names)
    half, zones = (len(names) + 1) // 2, situation.zones
    middle = (len(zones) + 1) // 2
    return sorted(names[:half]) + list(zones[:middle]), sorted(names[half:]) + list(zones[middle:])


def _apart(situation: Situation, left: list[str], right: list[str]) -> frozenset[Link]:
    """Return all links between two sides; there are none between zones."""
    zones = set(situation.zones)
    return frozenset(
        link for link in between(left, right) if not (link.source in zones and link.target in zones)
    )


def _pair_of(situation: Situation, name: str) -> str:
    return next(node.pair for node in situation.nodes if node.name == name)


def _pairs(nodes: Sequence[NodePlan]) -> dict[str, list[str]]:
    """Return the pairs that have more than one node, with their nodes."""
    pairs: dict[str, list[str]] = {}
    for node in nodes:
        pairs.setdefault(node.pair, []).append(node.name)
    return {pair: names for pair, names in pairs.items() if len(names) > 1}


def _at_least(count: int) -> Callable[[Sequence[NodePlan]], str]:
    return lambda nodes: (
        "" if len(nodes) >= count else f"needs at least {count} nodes, there are {len(nodes)}"
    )


def _a_pair(nodes: Sequence[NodePlan]) -> str:
    return "" if _pairs(nodes) else "needs a live-backup pair, no node has a backup"


SHAPES: Final[dict[str, Shape]] = {
    "isolate-live": Shape(
        "a live broker cut off from every broker and from half of the clients", _at_least(2), _isolate("live")
    ),
    "isolate-backup": Shape(
        "a backup broker cut off from every broker and from half of the clients", _a_pair, _isolate("backup")
    ),
    "pair-link": Shape("a live broker cut off from its backup only", _a_pair, _pair_link),
    "halves": Shape("brokers and clients split into two halves", _at_least(2), _halves),
    "majorities-ring": Shape(
        "every broker hears a majority, no two the same", _at_least(RING_NODES_MIN), _majorities_ring
    ),
    "bridge": Shape("two halves that only one broker hears both of", _at_least(3), _bridge),
    "one-way": Shape("a live broker unheard by the others, or deaf to them", _at_least(2), _one_way),
    "random": Shape("any links", _at_least(2), _random),
    "link": Shape("two brokers that do not hear each other", _at_least(2), _link),
}
