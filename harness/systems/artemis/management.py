"""What a broker of Artemis says of itself: its role, its queues' messages; and how it is stopped.

Looking into a queue is done by management alone: a STOMP subscription with ``browser`` is a plain
consumer to Artemis and would empty the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.interface import BACKUP, LIVE, Address, Status, StoredMessage
from harness.systems.jolokia import Jolokia

_DOMAIN: Final = "org.apache.activemq.artemis"
_BROKER: Final = f"{_DOMAIN}:broker=*"
_QUEUES: Final = (
    f"{_DOMAIN}:broker=*,component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*"
)
_ATTRIBUTES: Final = ("Name", "Active", "Backup", "ReplicaSync", "SharedStore", "NodeID")
_PAGE: Final = 500

_GROUP: Final = "_AMQ_GROUP_ID"
DEAD_LETTERS: Final = "DLQ"
_FORWARDED: Final = "$.artemis.internal.sf"
_OWN: Final = ("$", "activemq.", "notif.")
"""How names of queues begin that Artemis makes for itself."""

STARTING: Final = "starting"
SYNCHRONIZING: Final = "synchronizing"


class Management:
    """The part of a system that asks brokers."""

    def __init__(self) -> None:
        self._jolokia = Jolokia("/jolokia/")

    async def status(self, admin: Address) -> Status:
        """As ``System.status``. The time at which its JVM began is its epoch."""
        beans, began = await self._jolokia.ask(
            admin,
            {"type": "read", "mbean": _BROKER, "attribute": _ATTRIBUTES},
            {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "StartTime"},
        )
        for value in (beans or {}).values():
            return _status(value, began)
        return Status(name="", node_id=None, role=STARTING, epoch=began)

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """As ``System.browse``."""
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _QUEUES})
        stored = []
        for bean in sorted(beans or ()):
            queue = bean.partition('queue="')[2].partition('"')[0]
            forwarded = queue.startswith(_FORWARDED)
            if queue.startswith(_OWN) and not forwarded:
                continue
            store = "dead-letter" if queue == DEAD_LETTERS else "store-and-forward" if forwarded else "main"
            page = 1
            while True:
                asked = {
                    "type": "exec",
                    "mbean": bean,
                    "operation": "browse(int,int)",
                    "arguments": [page, _PAGE],
                }
                (messages,) = await self._jolokia.ask(admin, asked)
                stored += [_stored(store, queue, message) for message in messages or ()]
                if len(messages or ()) < _PAGE:
                    break
                page += 1
        return stored

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """As ``System.stop``: there is one stop from outside, and its backup takes over."""
        if failover is False:
            raise OSError("a broker of Artemis that is asked to stop lets its backup take over")
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _BROKER})
        for bean in beans or ():
            await self._jolokia.ask(admin, {"type": "exec", "mbean": bean, "operation": "forceFailover()"})


def _status(value: Mapping[str, Any], began: int) -> Status:
    synced = bool(value["ReplicaSync"] or value["SharedStore"])
    passive = BACKUP if synced else SYNCHRONIZING
    active = LIVE if value["Active"] else STARTING
    role = passive if value["Backup"] else active
    return Status(
        name=value["Name"],
        node_id=value["NodeID"] if role in (LIVE, BACKUP) else None,
        role=role,
        epoch=began,
        replicating=synced,
        details=dict(value),
    )


def _stored(store: str, queue: str, message: Mapping[str, Any]) -> StoredMessage:
    body = message.get("text")
    data = bytes(octet % 256 for octet in message.get("BodyPreview") or ()) if body is None else body.encode()
    group = (message.get("StringProperties") or {}).get(_GROUP)
    return StoredMessage(store=store, queue=queue, group=group, body=data)
