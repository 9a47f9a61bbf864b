"""A database as the store of policy ``shared-store``.

Its locks are rows that expire. Its journal is rows that only the live's statements change (AMQ
17.3.2.2).

Why a life needs no data of its own here, as it does in a directory: every statement that writes
names the live lock's epoch. Once another broker has been given the lock, no statement of an earlier
life concerns any row, however late it arrives. So all lives go on in the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from broker.config import BrokerConfig
from broker.policies.identity import new_node_id
from broker.policies.ownership.candidacy import HeldLock
from broker.policies.shared_store.store import LIVE, Inherited, Place, StoreMark
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.database import (
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Row,
    Statement,
)
from broker.storage.database.journal import DatabaseJournal
from broker.storage.database.locks import RETRY_S, Holding, LiveOwner, Locks
from broker.storage.database.schema import SESSION_MAX, SESSION_SHIFT
from broker.storage.journal import Recovered
from broker.storage.records import Record, Update

_log = logging.getLogger(__name__)

ALIKE: Final = ("network_timeout", "lock_renew_period", "lock_expiration", "journal_sync_period")
"""The settings that a live and its backups must have alike (AMQ 17.3.2.2).

The live writes its own when it begins. A broker compares its own when it starts and while it waits,
since it may have started before the live. To change them, stop the backups, then restart the live.
"""

PAGE: Final = 2000
"""The number of records read in one transaction."""


class DatabaseLock:
    """A lock of a place, see ``HeldLock``; each confirmation is a renewal."""

    def __init__(self, locks: Locks, holding: Holding) -> None:
        self.holding = holding
        self._locks = locks

    async def verify(self) -> None:
        """Renew the lock.

        A database that cannot be reached is asked again: only its answer says "lost".
        """
        await self._locks.hold(self.holding)

    async def release(self) -> None:
        """Free the lock's row, if it is still ours."""
        await self._locks.release(self.holding)


class LockRows:
    """The places of a store in a database; see ``store.Places``.

    ``settings`` are those of this broker, ``name``, that all brokers of the store must have alike.
    """

    def __init__(self, locks: Locks, name: str, settings: Mapping[str, int]) -> None:
        self._locks = locks
        self._name = name
        self._settings = settings

    async def prepare(self) -> None:
        """Make the tables, and this store's rows; see ``store.Places``."""
        self._compare(await self._locks.create())

    async def take(self, place: Place) -> DatabaseLock | None:
        """Take the lock of a place, None if another broker has it."""
        holding = await self._locks.acquire(place)
        return None if holding is None else DatabaseLock(self._locks, holding)

    async def held(self, place: Place) -> bool:
        """Return whether any broker has a place."""
        return await self._locks.held(place)

    async def read(self) -> StoreMark:
        """Return the mark of the last live; see ``store.Places``."""
        (state, node_id, name, _), settings = await self._locks.mark()
        self._compare(settings)
        return StoreMark(str(state), str(node_id) or None, str(name))

    def _compare(self, settings: Sequence[Row]) -> None:
        """Raise StartError if the live has other settings than this broker.

        A live of our own name is our former life, whose lock has not expired yet.
        """
        for row in settings:
            name, value, live = cast("tuple[str, int, str]", row)
            own_value = self._settings.get(name, value)
            if own_value != value and live != self._name:
                raise StartError(
                    f"database-store.{name} is {own_value} here and {value} at {live}, the live of this "
                    "store: all its brokers must have the same"
                )


class DatabaseStore:
    """A ``BrokerStore``; each call of ``database`` gives a connection, all are closed here."""

    def __init__(self, config: BrokerConfig, seams: Seams, database: Callable[[], Database]) -> None:
        assert config.database_store is not None, "a store in a database without one"
        self._section = config.database_store
        self._name = config.broker.name
        self._seams = seams
        # Three connections: a renewal must not wait behind a long batch, nor either of them behind
        # a large body.
        self._for_locks, self._for_journal, self._for_blobs = database(), database(), database()
        self._cluster_id = f"shared-store/{self._section.store_name}"
        self._locks = Locks(
            self._for_locks,
            self._cluster_id,
            f"{self._name}/{seams.random.getrandbits(64):016x}",
            expiration_ms=self._section.lock_expiration,
            timeout_s=self._section.network_timeout / 1000,
        )
        self._settings = {name.replace("_", "-"): int(getattr(self._section, name)) for name in ALIKE}
        self.places = LockRows(self._locks, self._name, self._settings)

    async def inherit(self, live: HeldLock, require: Callable[[], None]) -> Inherited:
        """Begin a life with all rows of the store, under a new number.

        Batches of the journal renew the lock, too.
        """
        holding = _holding(live)
        life, node_id = await self._begin(holding)
        require()
        records = await self._load(require)
        journal = DatabaseJournal(
            self._for_journal,
            self._for_blobs,
            LiveOwner(holding, self._name, life),
            records,
            sync_period_s=self._section.journal_sync_period / 1000,
            timeout_s=self._section.network_timeout / 1000,
        )
        return Inherited(life, node_id, journal, Recovered(records))

    async def leave(self, live: HeldLock, state: str) -> None:
        """Write the state to the store's row, behind the proof."""
        await self._locks.hold(
            _holding(live),
            [
                Statement(
                    "UPDATE store_mark SET state = ? WHERE cluster_id = ?",
                    (state, self._cluster_id),
                    count=1,
                )
            ],
        )

    async def tidy(self, life: int) -> None:
        """Do nothing: former lives leave nothing in the rows."""

    async def close(self) -> None:
        """Close the connections."""
        await self._for_locks.close()
        await self._for_journal.close()
        await self._for_blobs.close()

    async def _begin(self, holding: Holding) -> tuple[int, str]:
        """Return the number of the new life, and the node ID of the data.

        The statement names the number, so that an attempt whose outcome is unknown is simply
        repeated.
        """
        [found] = await self._locks.hold(
            holding,
            [Statement("SELECT life FROM store_mark WHERE cluster_id = ?", (self._cluster_id,), count=1)],
        )
        life = cast("int", found.rows[0][0]) + 1
        assert life <= SESSION_MAX, "the numbers of lives are used up"
        begin = Statement(
            "UPDATE store_mark SET life = ?, state = ?, broker = ?, node_id = CASE WHEN node_id = '' "
            "THEN ? ELSE node_id END"
            " WHERE cluster_id = ? RETURNING node_id",
            (life, LIVE, self._name, new_node_id(self._seams, self._name), self._cluster_id),
            count=1,
        )
        remember = Statement(
            "INSERT INTO store_settings (cluster_id, name, value, broker, epoch) VALUES (?, ?, ?, ?, ?) ON "
            "CONFLICT (cluster_id, name) DO UPDATE SET value = excluded.value, broker = excluded.broker, "
            "epoch = excluded.epoch",
            many=tuple(
                (self._cluster_id, name, value, self._name, holding.epoch)
                for name, value in self._settings.items()
            ),
        )
        begun, _ = await self._locks.hold(holding, [begin, remember])
        node_id = cast("str", begun.rows[0][0])
        return life, node_id

    async def _load(self, require: Callable[[], None]) -> list[Record]:
        """Return every record, in order of its id.

        They are read in pages, so that a large store takes no longer than a transaction may.

        None of them can change: the epoch fences all earlier lives, and what they had begun was
        committed before we were given the lock. If we lose the lock meanwhile, ``require`` stops
        us, and so does our first write.
        """
        records: list[Record] = []
        after = -1
        while True:
            session = after >> SESSION_SHIFT
            page = await self._rows(
                Statement(
                    "SELECT id, kind, data FROM store_record WHERE cluster_id = ? AND (session, id) > (?, ?)"
                    " ORDER BY session, id LIMIT ?",
                    (self._cluster_id, session, after, PAGE),
                ),
                require,
            )
            if not page:
                return records
            last = page[-1][0]
            changed = await self._rows(
                Statement(
                    "SELECT id, kind, data FROM store_update WHERE cluster_id = ? AND (session, id) > "
                    "(?, ?) AND (session, id) <= (?, ?)"
                    " ORDER BY session, id, kind",
                    (self._cluster_id, session, after, last >> SESSION_SHIFT, last),
                ),
                require,
            )
            updates: dict[int, list[Update]] = {}
            for id_, kind, data in changed:
                updates.setdefault(id_, []).append(Update(kind, bytes(data)))
            records += [Record(id_, kind, bytes(data), updates.get(id_, [])) for id_, kind, data in page]
            after = last

    async def _rows(self, question: Statement, require: Callable[[], None]) -> list[tuple[int, int, bytes]]:
        """Query the journal's tables, on the journal's own connection.

        So renewals go on meanwhile. The query is repeated while the lock is certainly ours. Raises
        OSError.
        """
        while True:
            require()
            try:
                [found] = await self._for_journal.transact([question], self._section.network_timeout / 1000)
            except (DatabaseUnavailableError, OutcomeUnknownError) as error:
                _log.warning("database: the stored messages cannot be read: %s; trying again", error)
                await asyncio.sleep(RETRY_S)
            except DatabaseError as error:
                raise OSError(str(error)) from error
            else:
                require()
                return cast("list[tuple[int, int, bytes]]", found.rows)


def _holding(lock: HeldLock) -> Holding:
    """Return the holding of a lock which our own rows have granted."""
    assert isinstance(lock, DatabaseLock), "a lock of another store"
    return lock.holding
