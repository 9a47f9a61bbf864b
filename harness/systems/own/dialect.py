"""The dialect of STOMP that our broker speaks."""

from __future__ import annotations

from typing import Final

from harness.interface import Dialect, Feed, QueueCommands, Temporaries, Topics, Wishes
from harness.systems.own.configuration import LOGIN, PASSCODE
from stomp_protocol.client.feed import TOPOLOGY, nodes_by_name

_FORWARDING: Final = frozenset({"conventional", "replication", "shared-store", "standalone"})
"""The policies under which clients get messages that other brokers took."""
DIALECT: Final = Dialect(
    login=LOGIN,
    passcode=PASSCODE,
    closing={"JMSXGroupSeq": "-1"},
    count_header="JMSXDeliveryCount",
    once_header="_AMQ_DUPL_ID",
    name_header="broker",
    store_header="store-session",
    redirect_header="redirect",
    refused=lambda headers: headers.get("not-done") == "true",
    redelivers_aborted=True,
    topics=Topics(
        durable={"durable-subscription-name": "{}"},
        shared={"durable-subscription-name": "{}", "shared": "true"},
        drops="either",
        remakes=True,
        shared_by=_FORWARDING,
    ),
    temporaries=Temporaries(shared_by=_FORWARDING),
    queue_commands=QueueCommands(
        deleting={"remove-messages": True, "remove-consumers": True},
        policies=_FORWARDING | {"multi-instance"},
        shared_by=frozenset({"conventional"}),
    ),
    wishes=Wishes(expires="expiration", lasts=True, delay="AMQ_SCHEDULED_DELAY", priority="priority"),
    feed=Feed(destination=TOPOLOGY.destination, nodes=nodes_by_name),
)
"""The dialect: every message is durable without a header; a window is a number of messages."""
