"""The change record in a broker's journal, and the queues that it says there are.

A broker stores the last change of each entity, and its place in the record (``Head``). Both are
written in the journal entry that makes or drops the queue itself, so that a crash finds neither
without the other. An entity that was dropped and made again has another number, by which a member
that was away at that time knows that what waits in its own queue belongs to the former entity.

The master stores drops, too, for the members that are away. A member needs them no more once they
are applied.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from broker.core.changes import (
    DESTINATION,
    SUBSCRIPTION,
    Backup,
    Change,
    Entity,
    Head,
    Kind,
    Loss,
    RequestId,
    key_of,
    loss_text,
    value_of,
)
from broker.core.engine import Engine
from broker.core.message import CHANGE, CHANGE_HEAD, RESTORED
from broker.core.queue import Queue
from broker.core.subscription import Subscription, SubscriptionKey, decode_subscription
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.records import Record

_log = logging.getLogger(__name__)


class ChangeRecord:
    """The change record in a broker's journal, and the queues that it says there are.

    ``head`` is None until the broker has joined a record. ``changes`` has the last change of each
    entity.
    """

    def __init__(self, engine: Engine, records: Iterable[Record]) -> None:
        self.head: Head | None = None
        self.changes: dict[Entity, Change] = {}
        self.written = 0
        """The sequence of the journal entry that was written last."""
        self._engine = engine
        self._ids: dict[Entity, int] = {}
        self._head_id = 0
        restored: list[tuple[int, Backup]] = []
        for record in sorted(records, key=lambda record: record.id):
            if record.kind == CHANGE:
                change = msgspec.msgpack.decode(record.data, type=Change)
                self.changes[change.entity], self._ids[change.entity] = change, record.id
            elif record.kind == CHANGE_HEAD:
                self.head, self._head_id = msgspec.msgpack.decode(record.data, type=Head), record.id
            elif record.kind == RESTORED:
                restored.append((record.id, msgspec.msgpack.decode(record.data, type=Backup)))
        self._mark(self.changes.values())
        if restored:
            self._adopt(restored)

    # ------------------------------------------------------------------------------------- contents

    def is_there(self, kind: Kind, key: str) -> bool:
        """Return whether the record has an entity."""
        change = self.changes.get((kind, key))
        return change is not None and change.value is not None

    def changes_since(self, sequence: int) -> tuple[Change, ...]:
        """Return the changes after a number that were not overtaken by others, in their order."""
        later = (change for change in self.changes.values() if change.sequence > sequence)
        return tuple(sorted(later, key=lambda change: change.sequence))

    @property
    def entities(self) -> list[Change]:
        """The changes that made what there is."""
        return [change for change in self.changes.values() if change.value is not None]

    @property
    def unrecorded(self) -> list[Subscription]:
        """The durable subscriptions of this broker that the record lacks."""
        return [
            subscription
            for subscription in self._engine.topics.durable
            if not self.is_there(SUBSCRIPTION, key_of(subscription.key))
        ]

    def is_unrecorded(self, kind: Kind, key: str) -> bool:
        """Return whether it is a durable subscription that is here, and that the record lacks."""
        return kind == SUBSCRIPTION and not self.is_there(kind, key) and self._queue((kind, key)) is not None

    def views(self) -> dict[str, dict[str, str]]:
        """Return what is here of the record, with the numbers of the changes that made it."""
        destinations: dict[str, str] = {}
        subscriptions: dict[str, str] = {}
        for change in self.entities:
            queue = self._queue(change.entity)
            if queue is not None and queue.subscription is not None:
                of = f"{queue.subscription.topic} {queue.subscription.selector}".rstrip()
                subscriptions[change.key] = f"{change.sequence} {of}"
            elif queue is not None:
                destinations[change.key] = str(change.sequence)
        for subscription in self.unrecorded:
            subscriptions[key_of(subscription.key)] = f"not recorded {subscription.topic}"
        return {"destinations": destinations, "subscriptions": subscriptions}

    def details(self, *, joined: bool, problem: str) -> dict[str, Any]:
        """Return how far the record is here, for the broker's status."""
        head = self.head or Head("")
        return {
            "incarnation": head.incarnation,
            "sequence": head.sequence,
            "entities": len(self.entities),
            "joined": joined,
            "problem": problem,
        }

    def make_missing(self) -> None:
        """Make the destinations of the record that are not here, durably.

        They were deleted while the cluster had no master broker.
        """
        entities = (change.key for change in self.entities if change.kind == DESTINATION)
        missing = [name for name in entities if name not in self._engine.queues]
        if missing:
            self.written = self._engine.change((), missing, (), ())
            self._mark(self.changes.values())

    def backup(self) -> Backup:
        """Return the whole record."""
        assert self.head is not None, "a backup of no record"
        return Backup(self.head, self.changes_since(0))

    # ----------------------------------------------------------------------------------- the master

    def begin(self, incarnation: str) -> None:
        """Begin a record, as the master; it has the durable subscriptions that are here."""
        changes = [
            Change(
                incarnation,
                number,
                RequestId("", 0, number),
                SUBSCRIPTION,
                key_of(subscription.key),
                value_of(subscription),
            )
            for number, subscription in enumerate(self._engine.topics.durable, 1)
        ]
        self._write(Head(incarnation, sequence=len(changes), keeps=True), changes)

    def append(self, request: RequestId, kind: Kind, key: str, value: str | None) -> Change:
        """Store the next change, as the master, and apply it here; both are one journal entry."""
        head = self.head
        assert head is not None, "a change without a record"
        assert head.keeps, "a change of a record that another broker keeps"
        former = self.changes.get((kind, key))
        dropped = 0 if former is None else former.sequence if former.value is None else former.dropped
        change = Change(head.incarnation, head.sequence + 1, request, kind, key, value, dropped)
        requests = {**head.requests, request.asker: (request.life, request.number, change.sequence)}
        self._write(msgspec.structs.replace(head, sequence=change.sequence, requests=requests), (change,))
        return change

    def compact(self, upto: int) -> int:
        """Forget drops up to a number, which all other brokers have; return how many."""
        head = self.head
        assert head is not None, "compaction of no record"
        old = [one for one in self.changes.values() if one.value is None and one.sequence <= upto]
        if old:
            floor = max(head.floor, *(change.sequence for change in old))
            forgotten = [change.entity for change in old]
            self._write(msgspec.structs.replace(head, floor=floor), (), forgotten=forgotten)
        return len(old)

    @property
    def drops(self) -> list[int]:
        """The numbers of the drops that are stored, in their order."""
        return sorted(change.sequence for change in self.changes.values() if change.value is None)

    # ------------------------------------------------------------------------------------- a member

    def take(
        self, head: Head, changes: Sequence[Change], *, whole: bool = False, drops_unrecorded: bool = False
    ) -> list[Loss]:
        """Apply changes in their order, as a member, up to ``head``; all in one journal entry.

        ``whole``: the record has no other entities, so that others are dropped: those that were
        recorded before, and with ``drops_unrecorded`` all durable subscriptions. Returns what was
        dropped.
        """
        return self._write(head, changes, whole=whole, drops_unrecorded=drops_unrecorded)

    def drop_unrecorded(self, key: str) -> None:
        """Drop a durable subscription that the record lacks, durably."""
        queue = self._queue((SUBSCRIPTION, key))
        assert queue is not None, "a subscription is dropped that is not here"
        self.written = self._engine.change((queue,), (), (), ())

    def reset(self) -> None:
        """Leave the record, to join any other and to drop what that lacks."""
        self._write(Head(""), ())

    # --------------------------------------------------------------------------------------- inside

    def _adopt(self, restored: Sequence[tuple[int, Backup]]) -> None:
        """Begin with the record that was restored last while the broker did not run."""
        _, backup = restored[-1]
        operations = [Operation(DELETE, RESTORED, record_id) for record_id, _ in restored]
        losses = self._write(
            backup.head, backup.changes, whole=True, drops_unrecorded=True, operations=operations
        )
        _log.warning(
            "the change record was restored from a backup: it has %d entities after change %d%s",
            len(self.entities),
            backup.head.sequence,
            loss_text(losses),
        )

    def _write(
        self,
        head: Head,
        changes: Sequence[Change],
        *,
        whole: bool = False,
        drops_unrecorded: bool = False,
        forgotten: Iterable[Entity] = (),
        operations: Iterable[Operation] = (),
    ) -> list[Loss]:
        last = {change.entity: change for change in changes}
        dropped: dict[Queue, None] = {}
        names: list[str] = []
        subscriptions: list[Subscription] = []
        forgotten = [*forgotten]
        if whole:
            forgotten += [entity for entity in self.changes if entity not in last]
            former = [entity for entity in forgotten if self.is_there(*entity)]
            if drops_unrecorded:
                unrecorded = ((SUBSCRIPTION, key_of(one.key)) for one in self.unrecorded)
                former += [entity for entity in unrecorded if entity not in last]
            dropped.update((queue, None) for entity in former if (queue := self._queue(entity)) is not None)
        for change in last.values():
            queue = self._queue(change.entity)
            if queue is not None and self._ends(queue, change):
                dropped[queue] = None
                queue = None
            if change.value is not None and queue is None:
                if change.kind == DESTINATION:
                    names.append(change.key)
                else:
                    subscriptions.append(decode_subscription(change.value.encode()))
        losses = [Loss(str(queue.subscription or f"queue {queue.name!r}"), len(queue)) for queue in dropped]
        written = [*operations]
        journal = self._engine.journal
        for entity in (*forgotten, *last):
            if entity in self._ids:
                written.append(Operation(DELETE, CHANGE, self._ids.pop(entity)))
                del self.changes[entity]
        for entity, change in last.items():
            if change.value is not None or head.keeps:
                self.changes[entity], self._ids[entity] = change, journal.next_id()
                written.append(Operation(ADD, CHANGE, self._ids[entity], msgspec.msgpack.encode(change)))
        if self._head_id:
            written.append(Operation(DELETE, CHANGE_HEAD, self._head_id))
        self.head, self._head_id = head, journal.next_id()
        written.append(Operation(ADD, CHANGE_HEAD, self._head_id, msgspec.msgpack.encode(head)))
        self.written = self._engine.change([*dropped], names, subscriptions, written)
        self._mark(last.values())
        return losses

    def _queue(self, entity: Entity) -> Queue | None:
        kind, key = entity
        if kind == DESTINATION:
            return self._engine.queues.get(key)
        parts = msgspec.json.decode(key, type=tuple[str, str, str])
        return self._engine.topics.named(SubscriptionKey(*parts))

    def _ends(self, queue: Queue, change: Change) -> bool:
        """Return whether a change ends the queue that is here under its key.

        A queue that clients made before becomes the destination, unless it was dropped since this
        broker had the last changes. The same of a subscription, if it is what the change makes.
        """
        former = self.changes.get(change.entity)
        if former is not None and former.value is not None:
            return former.place != change.place
        if change.kind == DESTINATION:
            return self._missed_drop(change)
        if change.value is None:
            return True
        subscription = queue.subscription
        return subscription is None or not subscription.is_as(decode_subscription(change.value.encode()))

    def _missed_drop(self, change: Change) -> bool:
        """Return whether a destination was dropped since this broker had the last changes."""
        head = self.head
        if change.value is None:
            return True
        return head is not None and head.incarnation == change.incarnation and change.dropped > head.sequence

    def _mark(self, changes: Iterable[Change]) -> None:
        """Let queues know by which changes they were made."""
        for change in changes:
            queue = None if change.value is None else self._queue(change.entity)
            if queue is not None and queue.made != change.place:
                queue.made = change.place
                self._engine.observe_queue(queue.name)
