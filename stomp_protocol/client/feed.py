"""The feed on which brokers tell their clients which brokers there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec


class FedNode(NamedTuple):
    """The live broker of a node, and the backup that continues when it fails; None: unknown."""

    live: str | None
    backup: str | None


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """The destination on which brokers tell their clients which brokers are live.

    ``nodes`` reads a message from there, and returns nothing for a message that it cannot read. It
    names brokers as the client does. ``announced`` says whether a broker that has the feed names it
    in the header ``feeds`` of CONNECTED. Then no other broker is asked for it: many end the
    connection of a client that asks for what they do not have.
    """

    destination: str
    nodes: Callable[[bytes], Sequence[FedNode]]
    announced: bool = False


class _Member(msgspec.Struct):
    name: str
    connector: str = ""


class _Node(msgspec.Struct):
    live: _Member | None = None
    backup: _Member | None = None


class _Topology(msgspec.Struct):
    nodes: list[_Node]


def _read(body: bytes, name_of: Callable[[_Member], str]) -> list[FedNode]:
    """Return the nodes of a topology; nothing for a body that is not one.

    Expected: ``{"nodes": [{"live": {"name": "a1", "connector": "a1:1"}, "backup": null}, ...]}``.
    """
    try:
        nodes = msgspec.json.decode(body, type=_Topology).nodes
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [
        FedNode(*(None if member is None else name_of(member) for member in (node.live, node.backup)))
        for node in nodes
    ]


def nodes_by_name(body: bytes) -> list[FedNode]:
    """Return the nodes of a topology, with the brokers' names."""
    return _read(body, lambda member: member.name)


def nodes_by_address(body: bytes) -> list[FedNode]:
    """Return the nodes of a topology, with the brokers' addresses."""
    return _read(body, lambda member: member.connector)


TOPOLOGY: Final = Feed(destination="$SYS.cluster.topology", nodes=nodes_by_address, announced=True)
"""The feed of this project's broker (``broker.cluster.topology``)."""
