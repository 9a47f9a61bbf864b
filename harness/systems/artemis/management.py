"""What a broker of Artemis says of itself: its role, its queues' messages; and how it is stopped.

Looking into a queue is done by management alone: a STOMP subscription with ``browser`` is a plain
consumer to Artemis and would empty the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.interface import BACKUP, LIVE, TOPIC, Address, Status, StoredMessage, Takeover
from harness.systems.jolokia import Jolokia

_DOMAIN: Final = "org.apache.activemq.artemis"
_BROKER: Final = f"{_DOMAIN}:broker=*"
_QUEUES: Final = (
    f"{_DOMAIN}:broker=*,component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*"
)
_SEQUENCE: Final = "ActivationSequence"
"""Of policy ``lock-manager``: the count that fences; each life of a node has a higher one."""

_ATTRIBUTES: Final = ("Name", "Active", "Backup", "SharedStore", "NodeID", _SEQUENCE)
_SYNCED: Final = "ReplicaSync"
_SYNCED_S: Final = 0.3
"""For ``_SYNCED`` of a live: while it votes that stands still, and all else is answered."""

_VOTES_S: Final = 1.5
"""A live that has not said for so long whether it has a backup, and all else at once, has none."""

_DELIVERING: Final = "DeliveringCount"
_CONSUMERS: Final = "ConsumerCount"
_COUNTS: Final = [_DELIVERING, _CONSUMERS]
_PAGE: Final = 500

_GROUP: Final = "_AMQ_GROUP_ID"
DEAD_LETTERS: Final = "DLQ"
_FORWARDED: Final = "$.artemis.internal.sf"
_OWN: Final = ("$", "activemq.", "notif.")
"""How names of queues begin that Artemis makes for itself."""

STARTING: Final = "starting"
SYNCHRONIZING: Final = "synchronizing"


@dataclass(slots=True)
class _Synced:
    """The question whether a broker has an up-to-date backup, or is one."""

    answer: bool = False
    asked: asyncio.Task[Sequence[Any]] | None = None
    since_s: float = 0.0


class Management:
    """The part of a system that asks brokers."""

    def __init__(self) -> None:
        self._jolokia = Jolokia("/jolokia/")
        self._synced: dict[Address, _Synced] = {}
        self._alone: frozenset[str] = frozenset()  # whose backup stays passive when they are stopped

    async def status(self, admin: Address) -> Status:
        """As ``System.status``. The time at which its JVM began is its epoch."""
        beans, began = await self._jolokia.ask(
            admin,
            {"type": "read", "mbean": _BROKER, "attribute": _ATTRIBUTES},
            {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "StartTime"},
        )
        for value in (beans or {}).values():
            shared = bool(value["SharedStore"])
            synced = shared or await self._is_synced(admin, None if value["Backup"] else _SYNCED_S)
            return _status(value, synced, began)
        return Status(name="", node_id=None, role=STARTING, epoch=began)

    async def _is_synced(self, admin: Address, patience_s: float | None) -> bool:
        """Whether it has an up-to-date backup, or is one; for a while what it said last.

        At most one question waits for each broker, whoever has asked it.
        """
        known = self._synced.setdefault(admin, _Synced())
        now = asyncio.get_running_loop().time()
        if known.asked is None or known.asked.done():
            question = {"type": "read", "mbean": _BROKER, "attribute": [_SYNCED]}
            known.asked, known.since_s = asyncio.create_task(self._jolokia.ask(admin, question)), now
            known.asked.add_done_callback(_heard)
        asked = known.asked
        await asyncio.wait((asked,), timeout=patience_s)
        if asked.done():
            known.answer = any(value[_SYNCED] for value in (asked.result()[0] or {}).values())
        elif now - known.since_s > _VOTES_S:
            known.answer = False
        return known.answer

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """As ``System.browse``. Raises OSError where some of a queue's messages are in delivery.

        Those it does not show: they are with consumers that it has not missed yet, or with nobody
        (docs/findings/artemis-7.md).
        """
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _QUEUES})
        stored = []
        for bean in sorted(beans or ()):
            queue = bean.partition('queue="')[2].partition('"')[0]
            forwarded = queue.startswith(_FORWARDED)
            if queue.startswith(_OWN) and not forwarded:
                continue
            (counted,) = await self._jolokia.ask(admin, {"type": "read", "mbean": bean, "attribute": _COUNTS})
            if counted and (delivering := counted[_DELIVERING]):
                where = "with consumers" if counted[_CONSUMERS] else "in delivery, to no consumer"
                raise OSError(f"{queue}: {delivering} messages are {where}")
            address = bean.partition('address="')[2].partition('"')[0]
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
                stored += [_stored(store, address, queue, message) for message in messages or ()]
                if len(messages or ()) < _PAGE:
                    break
                page += 1
        return stored

    async def stop(self, admin: Address, *, failover: bool | None = None) -> bool | None:
        """As ``System.stop``: by SIGTERM, unless a backup is to follow whatever is configured."""
        if failover is None:
            return False
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _BROKER})
        for bean in beans or ():
            if failover:
                await self._jolokia.ask(
                    admin, {"type": "exec", "mbean": bean, "operation": "forceFailover()"}
                )
            elif (name := bean.partition('broker="')[2].rstrip('"')) not in self._alone:
                raise OSError(
                    f"the backup of {name} follows it however it ends, but with a shared store and "
                    "--set '*:ha-policy.shared-store.failover-on-shutdown=false'"
                )
        return failover and bool(beans)


def _heard(asked: asyncio.Task[Sequence[Any]]) -> None:
    if not asked.cancelled():
        asked.exception()  # who still waits for it is told


def _status(value: Mapping[str, Any], synced: bool, began: int) -> Status:
    passive = BACKUP if synced else SYNCHRONIZING
    active = LIVE if value["Active"] else STARTING
    role = passive if value["Backup"] else active
    node_id = value["NodeID"] if role in (LIVE, BACKUP) else None
    sequence = value.get(_SEQUENCE) or 0
    life = sequence if role == LIVE and sequence > 0 else None
    return Status(
        name=value["Name"],
        node_id=node_id,
        role=role,
        epoch=began,
        replicating=synced,
        life=life,
        takeovers=(Takeover(node_id=node_id, life=life),) if life and node_id else (),
        details={**value, _SYNCED: synced},
    )


def _stored(store: str, address: str, queue: str, message: Mapping[str, Any]) -> StoredMessage:
    """What its management tells of a message.

    The queue of a durable subscription has the name of the client and its own, with a dot between.
    """
    body = message.get("text")
    data = bytes(octet % 256 for octet in message.get("BodyPreview") or ()) if body is None else body.encode()
    group = (message.get("StringProperties") or {}).get(_GROUP)
    if store == "main" and address.startswith(TOPIC):
        name = queue.rpartition(".")[2]
        return StoredMessage(store=store, queue=address, group=group, body=data, subscription=name)
    return StoredMessage(store=store, queue=queue, group=group, body=data)
