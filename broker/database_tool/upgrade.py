"""The import of a standalone broker's journal into a shared store.

It is what ``imqdbmgr upgrade hastore`` does (Sun 4.1).

All records are one transaction, which also says that this journal has been imported. So a tool that
is killed has imported everything or nothing, and one that is run again imports nothing twice. Only
after the transaction is the journal moved aside.

Large bodies do not fit into memory together. They go before the records, part by part, as blobs of
a kind that no broker looks at and that names the journal. The transaction then gives them their
true kind and ids. If a tool was killed, the next one replaces what it has left of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from broker.core.message import (
    CLEAN,
    DECIDED,
    DUPLICATE,
    FORWARDED,
    HEAD,
    IS_LARGE,
    LARGE,
    MESSAGE,
    PAGE,
    PREPARED,
    QUEUE,
    SENT,
    SUBSCRIPTION,
)
from broker.database_tool.store import ClusterStore, ToolRefusedError
from broker.policies.identity import read_node_id
from broker.storage.blobs import LARGE_MESSAGES, Blob, Blobs
from broker.storage.database import ConstraintError, Row, Statement, UnexpectedCountError
from broker.storage.database import schema as s
from broker.storage.directory import DirectoryVolume
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.records import Record

DIRECTORY: Final = "journal"
HOLDERS: Final = (QUEUE, SUBSCRIPTION)
"""The kinds of records whose ids messages name."""
KNOWN: Final = (*HOLDERS, MESSAGE, DUPLICATE, FORWARDED, SENT, CLEAN)

TOGETHER: Final = 16
"""The number of parts of a body in one transaction, of at most 64 KiB each."""


class Imported(NamedTuple):
    """The outcome for a journal: how many messages it had, and where it is now."""

    messages: int
    moved_to: Path
    before: bool
    """True if it had been imported by a tool that was killed before it could move the journal."""


async def upgrade(store: ClusterStore, data: Path, broker_id: str, address: str) -> Imported:
    """Import a standalone broker's journal, to be owned by ``broker_id``.

    ``data`` is that broker's data directory.

    Raises ToolRefusedError for a journal that is missing, in use or damaged, or that holds what
    cannot be imported, and while that broker runs; DatabaseError, OSError.
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
            before = not await _import(store, node_id, broker_id, address, recovered.records, journal.large)
            for moved in (LARGE_MESSAGES, DIRECTORY):
                if (data / moved).is_dir() and _aside(data, moved).exists():
                    raise ToolRefusedError(
                        f"everything is imported, but {_aside(data, moved)} is in the way: move it, and "
                        "run this again"
                    )
        finally:
            await journal.close()
        # The journal is moved last: if the tool is killed between the two, the next one sees from
        # the journal what is still to do.
        if (data / LARGE_MESSAGES).is_dir():
            await volume.rename(LARGE_MESSAGES, _aside(data, LARGE_MESSAGES).name)
        await volume.rename(DIRECTORY, _aside(data, DIRECTORY).name)
    finally:
        await volume.close()
    messages = sum(record.kind == MESSAGE for record in recovered.records)
    return Imported(messages, _aside(data, DIRECTORY), before)


def _aside(data: Path, directory: str) -> Path:
    """Return the place of a directory once it is imported."""
    return data / f"{directory}.imported"


async def _import(
    store: ClusterStore, node_id: str, broker_id: str, address: str, records: list[Record], large: Blobs
) -> bool:
    """Import the records; False if that had been done before."""
    cluster = (store.cluster_id,)
    await store.create()
    number, before = await store.transact(
        [
            Statement("SELECT sessions + 1 FROM store_cluster WHERE cluster_id = ?", cluster),
            Statement(
                "SELECT 1 FROM store_upgrade WHERE cluster_id = ? AND journal = ?", (*cluster, node_id)
            ),
        ]
    )
    if before.rows:
        return False
    session = int(str(number.rows[0][0]))
    added, updated, bodies = converted(records, store.cluster_id, session)
    begun = f"importing {node_id}"
    await _send_ahead(store, begun, large, bodies)
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
        s.add_broker(*cluster, broker_id, address, s.SHUTDOWN_COMPLETE),
        # A broker has all of its store in memory: what is added to the store meanwhile would be
        # seen only by its next life.
        Statement(
            "UPDATE store_broker SET heartbeat = clock_ms() WHERE cluster_id = ? AND broker_id = ? AND "
            "state = ?",
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
        Statement(
            "UPDATE store_blob SET kind = ?, session = ?, id = id + ? WHERE cluster_id = ? AND kind = ?",
            (LARGE_MESSAGES, session, session << s.SESSION_SHIFT, *cluster, begun),
        ),
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
            f"{broker_id} is a running broker of cluster {store.cluster_id!r}, or was not shut down: "
            "stop it without failover first"
            " (brokerctl stop --no-failover)"
        ) from None
    return True


async def _send_ahead(store: ClusterStore, kind: str, large: Blobs, bodies: dict[Blob, int]) -> None:
    """Store the bodies as blobs of that kind, by their numbers within the session to come.

    Raises ToolRefusedError for a body that is damaged.
    """
    await store.transact(
        [Statement("DELETE FROM store_blob WHERE cluster_id = ? AND kind = ?", (store.cluster_id, kind))]
    )
    for body, number in bodies.items():
        start = 0
        rows: list[Row] = []
        try:
            async for chunk in large.chunks(body):
                rows.append(s.blob_row(store.cluster_id, kind, number, start, chunk))
                start += len(chunk)
                if len(rows) == TOGETHER or start == body.size:
                    await store.transact([s.put_blob_parts(tuple(rows))])
                    rows.clear()
        except FileNotFoundError:
            raise ToolRefusedError(
                f"{large.medium.path(body.id)}: the file that a record names is missing; nothing was imported"
            ) from None
        except JournalError as error:
            raise ToolRefusedError(f"{error}; nothing was imported") from None


def converted(
    records: list[Record], cluster_id: str, session: int
) -> tuple[tuple[Row, ...], tuple[Row, ...], dict[Blob, int]]:
    """Return rows of records and of updates, and the numbers of the bodies that they name.

    Ids are of the session in the journal's order; bodies are numbered within the session.

    Raises ToolRefusedError for a kind that only its own policy understands, for pages, and for
    transactions over several brokers.
    """
    ids: dict[int, int] = {}
    bodies: dict[Blob, int] = {}
    added: list[Row] = []
    updated: list[Row] = []
    for record in sorted(records, key=lambda record: (record.kind not in HOLDERS, record.id)):
        if record.kind == PAGE:
            raise ToolRefusedError(
                f"record {record.id} of the journal is a page: messages that wait on the disk cannot be "
                "taken along; have them consumed first"
            )
        if record.kind in (PREPARED, DECIDED):
            raise ToolRefusedError(
                f"record {record.id} of the journal is of a transaction over several brokers that has not "
                "ended: start the broker until its cluster has ended it (brokerctl transactions)"
            )
        if record.kind not in KNOWN:
            raise ToolRefusedError(
                f"record {record.id} of the journal is of kind {record.kind}, which cannot be taken "
                "along: only messages, queues, subscriptions and what belongs to them can"
            )
        new = ids[record.id] = (session << s.SESSION_SHIFT) + len(ids) + 1
        data = record.data
        if record.kind == MESSAGE:
            queue_id, flags, *sizes = HEAD.unpack_from(data)
            data = HEAD.pack(ids[queue_id], flags, *sizes) + data[HEAD.size :]
            if flags & IS_LARGE:
                at = HEAD.size + sum(sizes)
                body = Blob(*LARGE.unpack_from(data, at))
                # Records and bodies count separately, as the kinds of rows do.
                number = bodies.setdefault(body, len(bodies) + 1)
                stored = body._replace(id=(session << s.SESSION_SHIFT) + number)
                data = data[:at] + LARGE.pack(*stored) + data[at + LARGE.size :]
        added.append((cluster_id, session, new, record.kind, data))
        # The store keeps the latest update of each kind, which is the one that counts.
        latest = {update.kind: update.data for update in record.updates}
        updated += [(cluster_id, session, new, kind, data) for kind, data in latest.items()]
    return tuple(added), tuple(updated), bodies
