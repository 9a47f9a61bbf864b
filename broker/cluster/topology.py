"""The topology of the cluster that clients get (AMQ 17.3.6, 17.6).

With it, clients know where to go when their broker fails.

It is a feed of JSON under ``$SYS.cluster.topology``, with a new value after each change::

    {"nodes": [{"node-id": "...", "live": {"name": "a1", "connector": "a1:61613"}, "backup":
    {"name": "a2", "connector": "a2:61613"}}]}

``live`` or ``backup`` is null where there is none that we know of. Nodes are sorted by the name of
their live broker.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.cluster import messages as m
from broker.cluster.membership import Membership

DESTINATION: Final = "$SYS.cluster.topology"


def topology(membership: Membership) -> dict[str, list[dict[str, object]]]:
    """Return the present value of the feed, as JSON types."""
    nodes: dict[str, dict[str, m.Member]] = {}
    members = {member.name: member for member in membership.directory.known.values()}
    members[membership.own.name] = membership.own
    for member in members.values():
        if member.node_id is None:
            continue
        node = nodes.setdefault(member.node_id, {})
        place = "live" if member.live else "backup" if member.role in ("backup", "synchronizing") else ""
        if place and (place not in node or node[place].activation < member.activation):
            node[place] = member
    rows: list[dict[str, object]] = [
        {"node-id": node_id, "live": _shown(node.get("live")), "backup": _shown(node.get("backup"))}
        for node_id, node in nodes.items()
        if node
    ]
    return {"nodes": sorted(rows, key=_name)}


def encoded(membership: Membership) -> bytes:
    """Return the present value as clients get it."""
    return msgspec.json.encode(topology(membership))


def _shown(member: m.Member | None) -> dict[str, str] | None:
    return None if member is None else {"name": member.name, "connector": member.stomp_connector}


def _name(row: dict[str, object]) -> str:
    for place in ("live", "backup"):
        shown = row[place]
        if isinstance(shown, dict):
            return str(shown["name"])
    return ""
