"""From a standalone broker's journal to a shared store (Sun 4.1, ``imqdbmgr upgrade hastore``).

All of it is one transaction, which also says that this journal has been imported. So a tool that is killed has imported everything or
nothing, and one that is run again imports nothing twice; only then is the journal moved aside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from broker.core.message import CLEAN, DUPLICATE, HEAD, MESSAGE, QUEUE
from broker.database_tool.store import Store, ToolRefusedError
from broker.policies.identity import read_node_id
from broker.storage.database import schema as s
from broker.storage.database.seam import ConstraintError, Row, Statement, UnexpectedCountError
from broker.storage.directory import DirectoryVolume
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.records import Record

DIRECTORY: Final = "journal"
KNOWN: Final = (QUEUE, MESSAGE, DUPLICATE, CLEAN)
WHOLE: Final = 3
"""Flags of a message that is whole in its record: of a group, and its last one."""


class Imported(NamedTuple):
    """What became of a journal: how many messages it had, and where it lies now."""

    messages: int
    moved_to: Path
    before: bool
    """It had been imported before, by a tool that was killed before it could move the journal."""


async def upgrade(store: Store, data: Path, broker_id: str, address: str) -> Imported:
    """Import the journal of the standalone broker whose data directory this is, as what ``broker_id`` owns.

    Raises ToolRefusedError for a journal that is not there, in use, damaged or holds what cannot be taken along, and while that broker runs; DatabaseError, OSError.
    """
    if not (data / DIRECTORY).is_dir():
        raise ToolRefusedError(
            f"{data / DIRECTORY} does not exist: broker.data-directory must be that of the standalone broker"
        )
    volume = DirectoryVolume(data)
    try:
        node_id = await read_node_id(volume)
        if node_id is None:
            raise ToolRefusedError(f"{data} has no node ID (server.lock): no broker has ever run on it")
        try:
            journal, recovered = await Journal.open(volume, DIRECTORY)
        except JournalError as error:
            raise ToolRefusedError(f"{data}: {error}") from None
        try:
            before = not await _import(store, node_id, broker_id, address, recovered.records)
            moved_to = data / f"{DIRECTORY}.imported"
            if moved_to.exists():
                raise ToolRefusedError(
                    f"everything is imported, but {moved_to} is in the way: move it, and run this again"
                )
        finally:
            await journal.close()
        await volume.rename(DIRECTORY, moved_to.name)
    finally:
        await volume.close()
    messages = sum(record.kind == MESSAGE for record in recovered.records)
    return Imported(messages, moved_to, before)


async def _import(store: Store, node_id: str, broker_id: str, address: str, records: list[Record]) -> bool:
    """Whether it was imported now; False if it had been before."""
    cluster = (store.cluster_id,)
    await store.create()
    [number] = await store.transact(
        [Statement("SELECT sessions + 1 FROM store_cluster WHERE cluster_id = ?", cluster)]
    )
    session = int(str(number.rows[0][0]))
    added, updated = converted(records, store.cluster_id, session)
    statements = [
        # Lock the cluster, and make sure that the session's number is still the next.
        Statement(
            "UPDATE store_cluster SET sessions = ? WHERE cluster_id = ? AND sessions = ?",
            (session, *cluster, session - 1),
            count=1,
        ),
        Statement(
            "INSERT INTO store_upgrade (cluster_id, journal, session) VALUES (?, ?, ?)",
            (*cluster, node_id, session),
            count=1,
        ),
        Statement(
            "INSERT INTO store_broker (cluster_id, broker_id, address, state, epoch, entry, heartbeat, taker, taker_epoch)"
            " SELECT cluster_id, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), sessions, 0, clock_ms(), '', 0 FROM store_cluster WHERE cluster_id = ?"
            " ON CONFLICT DO NOTHING",
            (broker_id, address, s.SHUTDOWN_COMPLETE, *cluster),
        ),
        # The broker has all of its store in its memory: what is added beside it would be seen only by its next life.
        Statement(
            "UPDATE store_broker SET heartbeat = clock_ms() WHERE cluster_id = ? AND broker_id = ? AND state = ?",
            (*cluster, broker_id, s.SHUTDOWN_COMPLETE),
            count=1,
        ),
        Statement(
            "INSERT INTO store_session (cluster_id, session, broker_id) VALUES (?, ?, ?)",
            (*cluster, session, broker_id),
            count=1,
        ),
        s.add_records(added),
        s.put_updates(updated),
    ]
    try:
        await store.transact(statements)
    except ConstraintError:
        return False
    except UnexpectedCountError as error:
        if error.index == 0:
            raise ToolRefusedError(
                "a broker has started meanwhile: nothing was imported, run this again"
            ) from None
        raise ToolRefusedError(
            f"{broker_id} is a running broker of cluster {store.cluster_id!r}, or was not shut down: stop it without failover first"
            " (brokerctl stop --no-failover)"
        ) from None
    return True


def converted(
    records: list[Record], cluster_id: str, session: int
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows of records and of updates, with ids of the session in the journal's order. Raises ToolRefusedError for a kind that only its own policy understands."""
    ids: dict[int, int] = {}
    added: list[Row] = []
    updated: list[Row] = []
    # Queues first: messages name them by their ids.
    for record in sorted(records, key=lambda record: (record.kind != QUEUE, record.id)):
        if record.kind not in KNOWN:
            raise ToolRefusedError(
                f"record {record.id} of the journal is of kind {record.kind}, which cannot be taken along: only messages, queues and what"
                " belongs to them can"
            )
        new = ids[record.id] = (session << s.SESSION_SHIFT) + len(ids) + 1
        data = record.data
        if record.kind == MESSAGE:
            queue_id, flags, *sizes = HEAD.unpack_from(data)
            if flags & ~WHOLE:
                raise ToolRefusedError(
                    f"message {record.id} is large: its body is a file beside the journal, which cannot be taken along; have it consumed first"
                )
            data = HEAD.pack(ids[queue_id], flags, *sizes) + data[HEAD.size :]
        added.append((cluster_id, session, new, record.kind, data))
        # The store keeps the latest update of each kind, which is the one that counts.
        latest = {update.kind: update.data for update in record.updates}
        updated += [(cluster_id, session, new, kind, data) for kind, data in latest.items()]
    return tuple(added), tuple(updated)


__all__ = ["Imported", "converted", "upgrade"]
