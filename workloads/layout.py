"""The layout of a test: pairs, zones, groups, and the pair of each client.

These are pure functions of the spec, so a seed makes the same test again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from harness.interface import NodePlan

T = TypeVar("T")


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


def group_homes(groups: int, pairs: int) -> Iterator[tuple[str, int, int]]:
    """Yield each group, the number of its home pair, and its turn among the groups there."""
    for number in range(max(groups, 1)):
        turn, home = divmod(number, pairs)
        yield f"g{number}", home, turn


def staffed(wanted: int, pairs: Sequence[T], zones: Sequence[str]) -> Iterator[tuple[int, T, str]]:
    """Yield the number, the pair and the zone of ``wanted`` clients, at least one for each pair.

    Clients are numbered from 0 and dealt to pairs in turn; the clients of a pair are dealt to
    zones.
    """
    for client in range(max(wanted, len(pairs))):
        turn, place = divmod(client, len(pairs))
        yield client, pairs[place], zones[turn % len(zones)]
