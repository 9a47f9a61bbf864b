"""The management of an Artemis broker: its role, its queues' messages, and its stop.

Queues are read by management alone: a STOMP subscription with ``browser`` is a plain consumer to
Artemis and would empty the queue.
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
"""The count that fences under policy ``lock-manager``: each life of a node has a higher one."""

_ATTRIBUTES: Final = ("Name", "Active", "Backup", "SharedStore", "NodeID", _SEQUENCE)
_SYNCED: Final = "ReplicaSync"
_SYNCED_S: Final = 0.3
"""How long a live's answer about its backup is awaited (s).

While a live votes, this answer is delayed, and all others come.
"""

_VOTES_S: Final = 1.5
"""The time after which a live that does not answer about its backup has none (s).

Such a live answers everything else at once.
"""

_DELIVERING: Final = "DeliveringCount"
_CONSUMERS: Final = "ConsumerCount"
_COUNTS: Final = [_DELIVERING, _CONSUMERS]
_PAGE: Final = 500

_GROUP: Final = "_AMQ_GROUP_ID"
DEAD_LETTERS: Final = "DLQ"
_FORWARDED: Final = "$.artemis.internal.sf"
_OWN: Final = ("$", "activemq.", "notif.")
"""The prefixes of the names of queues that Artemis makes for itself."""

STARTING: Final = "starting"
SYNCHRONIZING: Final = "synchronizing"


@dataclass(slots=True)
class _Synced:
    """The question whether a broker has an up-to-date backup, or is one."""

    answer: bool = False
    request: asyncio.Task[Sequence[Any]] | None = None
    since_s: float = 0.0


class Management:
    """The part of a system that asks its brokers."""

    def __init__(self) -> None:
        self._jolokia = Jolokia("/jolokia/")
        self._synced: dict[Address, _Synced] = {}
        self._without_successor: frozenset[str] = (
            frozenset()
        )  # brokers whose backup stays passive when they are stopped

    async def status(self, admin: Address) -> Status:
        """Return a broker's status; the time at which its JVM began is its epoch."""
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
        """Return whether a broker has an up-to-date backup, or is one.

        If the answer does not come in time, the previous one is used for a while. At most one
        question waits for each broker, whoever asked it.
        """
        synced = self._synced.setdefault(admin, _Synced())
        now = asyncio.get_running_loop().time()
        if synced.request is None or synced.request.done():
            question = {"type": "read", "mbean": _BROKER, "attribute": [_SYNCED]}
            synced.request, synced.since_s = asyncio.create_task(self._jolokia.ask(admin, question)), now
            synced.request.add_done_callback(_heard)
        request_open = synced.request
        await asyncio.wait((request_open,), timeout=patience_s)
        if request_open.done():
            synced.answer = any(value[_SYNCED] for value in (request_open.result()[0] or {}).values())
        elif now - synced.since_s > _VOTES_S:
            synced.answer = False
        return synced.answer

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return the stored messages of a broker.

        Raises OSError if some messages of a queue are in delivery: the broker does not show those.
        They are with consumers that it has not missed yet, or with none
        (docs/findings/artemis-7/README.md).
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
                question = {
                    "type": "exec",
                    "mbean": bean,
                    "operation": "browse(int,int)",
                    "arguments": [page, _PAGE],
                }
                (messages,) = await self._jolokia.ask(admin, question)
                stored += [_stored(store, address, queue, message) for message in messages or ()]
                if len(messages or ()) < _PAGE:
                    break
                page += 1
        return stored

    async def stop(self, admin: Address, *, failover: bool | None = None) -> bool | None:
        """Ask for a clean stop: by SIGTERM, unless a backup must follow whatever is configured."""
        if failover is None:
            return False
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _BROKER})
        for bean in beans or ():
            if failover:
                await self._jolokia.ask(
                    admin, {"type": "exec", "mbean": bean, "operation": "forceFailover()"}
                )
            elif (name := bean.partition('broker="')[2].rstrip('"')) not in self._without_successor:
                raise OSError(
                    f"the backup of {name} follows it however it ends, but with a shared store and "
                    "--set '*:ha-policy.shared-store.failover-on-shutdown=false'"
                )
        return failover and bool(beans)


def _heard(request: asyncio.Task[Sequence[Any]]) -> None:
    if not request.cancelled():
        request.exception()  # a caller that still waits for it gets the error


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
    """Return a message as the management of a broker describes it.

    The queue of a durable subscription is named by the client and the subscription, with a dot
    between.
    """
    body = message.get("text")
    data = bytes(octet % 256 for octet in message.get("BodyPreview") or ()) if body is None else body.encode()
    group = (message.get("StringProperties") or {}).get(_GROUP)
    if store == "main" and address.startswith(TOPIC):
        name = queue.rpartition(".")[2]
        return StoredMessage(store=store, queue=address, group=group, body=data, subscription=name)
    return StoredMessage(store=store, queue=queue, group=group, body=data)
