"""The views of the cluster that this broker holds to be true.

Brokers that can talk to each other must agree about the kinds in ``COMPARED``.

Why separate from the topology that clients get: views are to be compared. So every kind is plain
key and value, and what may differ without harm (the backups, and what is known by hearsay only) is
left out of those that are::

    members    node ID -> the broker that we are linked with and that says itself that it is live
               with it; ourselves
    topology   node ID -> the live broker that clients of ours are sent to
    neighbours node ID -> as members, in a cluster that is not symmetric, in place of both kinds
    discovery  connector -> the node ID that is broadcast there; only with a discovery group, and
               never compared, since datagrams may reach one broker and not another
    destinations  name -> the number of the change that made it; only with a change record, as the
               next kind
    subscriptions key of a durable subscription -> the number of the change that made it, topic,
               selector
"""

from __future__ import annotations

from typing import Final

from broker.cluster.membership import Membership
from broker.cluster.topology import topology
from broker.core.changes import Changes

COMPARED: Final = ("members", "topology", "destinations", "subscriptions")


def views(membership: Membership, changes: Changes | None) -> dict[str, dict[str, str]]:
    """Return this broker's views by kind; a live broker is "name address"."""
    own = membership.own
    members = {
        node_id: f"{member.name} {member.connector}"
        for node_id, (member, _) in membership.directory.lives().items()
    }
    if own.live and own.node_id is not None:
        members[own.node_id] = f"{own.name} {own.connector}"
    if membership.section.allow_direct_connections_only:
        return {"neighbours": members, **({} if changes is None else changes.views())}
    told: dict[str, str] = {}
    for node in topology(membership)["nodes"]:
        live = node["live"]
        if isinstance(live, dict):
            told[str(node["node-id"])] = f"{live['name']} {live['connector']}"
    views = {"members": members, "topology": told}
    if membership.discovery is not None:
        views["discovery"] = membership.discovery.node_ids
    return views
