"""The restoration of a change record from a backup, in the store of a master that does not run.

A restored record is a new incarnation: changes were made after the backup, perhaps, that it lacks,
and members that have them must drop them. It is stored beside the record that the master has, and
takes its place when the master starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from broker.core.changes import Backup, Head
from broker.core.message import CHANGE_HEAD, RESTORED
from broker.storage.entries import EntryStore
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.records import Record


def decode_backup(record: Any) -> Backup:
    """Return the backup in an answer to the command "backup-record"."""
    return msgspec.convert(record, Backup)


async def store_backup(
    journal: EntryStore, records: Sequence[Record], backup: Backup, incarnation: str
) -> None:
    """Store a backup as the record that the master of this journal begins with.

    ``records`` are those of the journal. A backup that waits there already is replaced, and
    ``incarnation`` is the name of the new record, which no other may have.
    """
    heads = [
        msgspec.msgpack.decode(record.data, type=Head) for record in records if record.kind == CHANGE_HEAD
    ]
    former = [
        msgspec.msgpack.decode(record.data, type=Backup).head for record in records if record.kind == RESTORED
    ]
    pending = [record.id for record in records if record.kind == RESTORED]
    ancestors = dict.fromkeys(
        name
        for head in (backup.head, *heads, *former)
        for name in (*head.ancestors, head.incarnation)
        if name
    )
    head = msgspec.structs.replace(
        backup.head, incarnation=incarnation, ancestors=tuple(ancestors), keeps=True
    )
    data = msgspec.msgpack.encode(Backup(head, backup.changes))
    operations = [Operation(DELETE, RESTORED, record_id) for record_id in pending]
    journal.append([*operations, Operation(ADD, RESTORED, journal.next_id(), data)])
    await journal.flush()
