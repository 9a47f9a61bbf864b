"""The dialect of STOMP that our broker speaks."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.interface import Dialect, Feed, Temporaries, Topics, Wishes
from harness.systems.own.configuration import LOGIN, PASSCODE


def live_first(body: bytes) -> list[str]:
    """Return the names of the nodes that a topology announces, lives before backups.

    Nothing for a body that is not a topology.

    Expected: ``{"nodes": [{"live": {"name": "a1"}, "backup": {"name": "a2"}}, ...]}``, null where
    there is none.
    """
    try:
        nodes = msgspec.json.decode(body, type=_Topology).nodes
    except msgspec.DecodeError:
        return []
    lives = [node.live.name for node in nodes if node.live is not None]
    return lives + [node.backup.name for node in nodes if node.backup is not None]


class _Member(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    live: _Member | None = None
    backup: _Member | None = None


class _Topology(msgspec.Struct):
    nodes: list[_Node]


DIALECT: Final = Dialect(
    login=LOGIN,
    passcode=PASSCODE,
    closing={"JMSXGroupSeq": "-1"},
    count_header="JMSXDeliveryCount",
    once_header="_AMQ_DUPL_ID",
    name_header="broker",
    store_header="store-session",
    redirect_header="redirect",
    redelivers_aborted=True,
    topics=Topics(
        durable={"durable-subscription-name": "{}"},
        shared={"durable-subscription-name": "{}", "shared": "true"},
        drops="either",
        remakes=True,
    ),
    temporaries=Temporaries(),
    wishes=Wishes(expires="expiration", lasts=True, delay="AMQ_SCHEDULED_DELAY", priority="priority"),
    feed=Feed(destination="$SYS.cluster.topology", nodes=live_first),  # ``broker.cluster.topology``
)
"""The dialect: every message is durable without a header; a window is a number of messages."""
