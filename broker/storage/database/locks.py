"""The locks of a shared store in a database.

They decide who is live, who is next, and who waits for its place (AMQ 17.3.2.2, the node manager's
table).

A lock is a row with an ``epoch``, which grows whenever the lock is given to a broker, and a time
until which it is kept, by the database's clock. A holder that is silent for ``lock-expiration``
loses the lock to the next broker that asks. Giving, renewing, and giving back are one UPDATE each,
which names the epoch. Of several candidates only the first finds a row, and a statement that was
sent long ago and arrives late finds none.

Whatever the live writes begins with the renewal of its lock in the same transaction. The row stays
locked until the commit, so no other broker can be given the lock between that proof and what it
protects. There is no check followed by an act.

    store_lock   one row a place of a store: holder, epoch, the last journal entry of the holder,
                 until when it is kept
    store_mark   one row a store: the state in which the last live left it, its node ID, the last
                 live's name, the number of the last life
    store_settings  one row a setting of the last live that all brokers of its store must have alike
                 (17.3.2.2), with the epoch of its lock
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.storage.database import (
    ConstraintError,
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Row,
    Statement,
    UnexpectedCountError,
)
from broker.storage.database import schema as s

LIVE: Final = "live"
BACKUP: Final = "backup"
MASTER: Final = "master"

RETRY_S: Final = 0.05
"""The pause between a transaction that failed and its next try."""

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS store_lock (
        cluster_id TEXT NOT NULL, place TEXT NOT NULL, holder TEXT NOT NULL,
        epoch BIGINT NOT NULL, entry BIGINT NOT NULL, expires BIGINT NOT NULL,
        PRIMARY KEY (cluster_id, place))""",
    """CREATE TABLE IF NOT EXISTS store_mark (
        cluster_id TEXT NOT NULL, state TEXT NOT NULL, node_id TEXT NOT NULL,
        broker TEXT NOT NULL, life BIGINT NOT NULL, PRIMARY KEY (cluster_id))""",
    """CREATE TABLE IF NOT EXISTS store_settings (
        cluster_id TEXT NOT NULL, name TEXT NOT NULL, value BIGINT NOT NULL, broker TEXT NOT NULL,
        epoch BIGINT NOT NULL, PRIMARY KEY (cluster_id, name))""",
)

_log = logging.getLogger(__name__)


class LockGoneError(OSError):
    """Another broker has been given the lock."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A place of a store that is ours for as long as ``epoch`` is its row's."""

    cluster_id: str
    place: str
    epoch: int
    expiration_ms: int

    def prove(self) -> Statement:
        """Return the proof that precedes every write, which also renews the lock."""
        return Statement(
            "UPDATE store_lock SET expires = clock_ms() + ? WHERE cluster_id = ? AND place = ? AND epoch = ?",
            (self.expiration_ms, self.cluster_id, self.place, self.epoch),
            count=1,
        )

    def give_back(self) -> Statement:
        """Free the place for the next broker that asks; no effect if it is not ours any more.

        A renewal of ours that is still on its way then finds no row.
        """
        return Statement(
            "UPDATE store_lock SET holder = '', epoch = epoch + 1, expires = 0 WHERE cluster_id = ? AND "
            "place = ? AND epoch = ?",
            (self.cluster_id, self.place, self.epoch),
        )


@dataclass(frozen=True, slots=True)
class LiveOwner:
    """The live as the owner of a journal (``StoreOwner``); its life's number is the session."""

    holding: Holding
    name: str
    session: int

    @property
    def cluster_id(self) -> str:
        """The name of the store."""
        return self.holding.cluster_id

    @property
    def epoch(self) -> int:
        """The epoch of the live lock."""
        return self.holding.epoch

    def prove(self) -> Statement:
        """Return the renewal of the live lock."""
        return self.holding.prove()

    def ours(self) -> tuple[str, Row]:
        """Return a condition for all lives up to this one: the live owns the store of them all."""
        return "session <= ?", (self.session,)

    def prove_batch(self, before: int, after: int) -> Statement:
        """Return the renewal of the live lock, which also counts the entries."""
        held = self.holding
        return Statement(
            "UPDATE store_lock SET expires = clock_ms() + ?, entry = ?"
            " WHERE cluster_id = ? AND place = ? AND epoch = ? AND entry = ?",
            (held.expiration_ms, after, held.cluster_id, held.place, held.epoch, before),
            count=1,
        )

    def position(self) -> Statement:
        """Return a query for the live lock's row."""
        return Statement(
            "SELECT epoch, entry FROM store_lock WHERE cluster_id = ? AND place = ?",
            (self.cluster_id, self.holding.place),
        )


class Locks:
    """The locks of one store, as one broker asks for them.

    Args:
        database: a connection for this alone, so that a renewal waits for no batch of the journal.
        cluster_id: the name of the store within the database.
        holder: this very process; no other process may ever have the same.
        expiration_ms: how long a lock is kept for a holder that is silent (``lock-expiration``).
        timeout_s: for each transaction (``network-timeout``).
    """

    def __init__(
        self, database: Database, cluster_id: str, holder: str, *, expiration_ms: int, timeout_s: float
    ) -> None:
        self.cluster_id = cluster_id
        self._database = database
        self._holder = holder
        self._expiration_ms = expiration_ms
        self._timeout_s = timeout_s

    async def create(self) -> list[Row]:
        """Make missing tables, and the rows of this store. Raises OSError.

        Returns the settings of the present live, as ``mark`` does.
        """
        statements = [
            *(Statement(table) for table in (*s.TABLES, *TABLES)),
            Statement(
                "INSERT INTO store_lock (cluster_id, place, holder, epoch, entry, expires) VALUES (?, "
                "?, '', 0, 0, 0) ON CONFLICT DO NOTHING",
                many=tuple((self.cluster_id, place) for place in (LIVE, BACKUP, MASTER)),
            ),
            Statement(
                "INSERT INTO store_mark (cluster_id, state, node_id, broker, life) VALUES (?, '', '', "
                "'', 0) ON CONFLICT DO NOTHING",
                (self.cluster_id,),
            ),
            self._live_settings(),
        ]
        try:
            results = await self._database.transact(statements, self._timeout_s)
        except ConstraintError:
            # PostgreSQL: two brokers created one table at the same moment; the other has done it
            # now.
            results = await self.ask(statements)
        except DatabaseError as error:
            raise _failed(error) from error
        return results[-1].rows

    async def acquire(self, place: str) -> Holding | None:
        """Take a place; None while another broker has it. Raises OSError.

        The attempt names the epoch that was read. So an attempt that was given up and takes effect
        later takes nothing from another broker. If an earlier attempt of this process succeeded
        unheard, the place is given to it again.
        """
        look = Statement(
            "SELECT holder, epoch, CASE WHEN expires >= clock_ms() THEN 1 ELSE 0 END FROM "
            "store_lock WHERE cluster_id = ? AND place = ?",
            (self.cluster_id, place),
            count=1,
        )
        [found] = await self.ask([look])
        holder, epoch, kept = found.rows[0]
        assert isinstance(epoch, int), "an epoch is a number"
        if kept and holder != self._holder:
            return None
        take = Statement(
            "UPDATE store_lock SET holder = ?, epoch = epoch + 1, entry = 0, expires = clock_ms() + ?"
            " WHERE cluster_id = ? AND place = ? AND epoch = ? AND (expires < clock_ms() OR holder = ?)",
            (self._holder, self._expiration_ms, self.cluster_id, place, epoch, self._holder),
            count=1,
        )
        try:
            await self._database.transact([take], self._timeout_s)
        except UnexpectedCountError:
            return None
        except DatabaseError as error:
            raise _failed(error) from error
        return Holding(self.cluster_id, place, epoch + 1, self._expiration_ms)

    async def held(self, place: str) -> bool:
        """Return whether any broker has a place. Raises OSError."""
        look = Statement(
            "SELECT 1 FROM store_lock WHERE cluster_id = ? AND place = ? AND expires >= clock_ms()",
            (self.cluster_id, place),
        )
        [found] = await self.ask([look])
        return bool(found.rows)

    async def release(self, holding: Holding) -> None:
        """Give a place back. Raises OSError; the place is then free after ``lock-expiration``."""
        await self.ask([holding.give_back()])

    async def mark(self) -> tuple[Row, list[Row]]:
        """Return the store's mark and the settings of the present live. Raises OSError.

        The mark is (state, node ID, name of the last live, number of the last life). A setting is
        (name, value, name of the live); there is none without a live, or before it has begun.
        """
        look = Statement(
            "SELECT state, node_id, broker, life FROM store_mark WHERE cluster_id = ?",
            (self.cluster_id,),
            count=1,
        )
        marks, settings = await self.ask([look, self._live_settings()])
        return marks.rows[0], settings.rows

    def _live_settings(self) -> Statement:
        return Statement(
            "SELECT s.name, s.value, s.broker FROM store_settings s, store_lock l WHERE s.cluster_id = ?"
            " AND l.cluster_id = s.cluster_id AND l.place = ? AND l.epoch = s.epoch AND l.expires >= "
            "clock_ms() ORDER BY s.name",
            (self.cluster_id, LIVE),
        )

    async def hold(self, holding: Holding, statements: Sequence[Statement] = ()) -> list[Result]:
        """Run a transaction behind the proof that the place is ours, or only the proof.

        It is tried again for as long as the database cannot be reached.

        The caller sets the deadline. Raises LockGoneError when the place is not ours any more,
        OSError for an error that trying again cannot mend.
        """
        told = ""
        while True:
            try:
                results = await self._database.transact([holding.prove(), *statements], self._timeout_s)
            except UnexpectedCountError as error:
                if error.index != 0:
                    raise
                raise LockGoneError(f"somebody else has been given the {holding.place} lock") from None
            except (DatabaseUnavailableError, OutcomeUnknownError) as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning(
                        "database: the %s lock is not confirmed: %s; trying again", holding.place, error
                    )
                await asyncio.sleep(RETRY_S)
            except DatabaseError as error:
                raise _failed(error) from error
            else:
                return results[1:]

    async def ask(self, statements: Sequence[Statement]) -> list[Result]:
        """Run one transaction without a proof, for statements that need none. Raises OSError."""
        try:
            return await self._database.transact(statements, self._timeout_s)
        except DatabaseError as error:
            raise _failed(error) from error


def _failed(error: DatabaseError) -> OSError:
    """Return an error of the database as that of any store, in the database's words."""
    return OSError(str(error))
