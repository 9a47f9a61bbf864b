"""The brokers of a cluster, as the shared store knows them.

A broker registers here, proves that it is alive, and takes over others.

Why everything is a compare-and-set: each broker acts on what it last read. Two brokers may both
believe a third to be dead, a victim may start again meanwhile, a taker may die half-way, the
network may lose the answer. So each act names what its broker read (state, epoch), and the database
decides whether that still holds. Of several acts only the first finds a row (Sun 4.1,
"High-Availability Clusters").

Silence is measured by the database's clock alone. Brokers' clocks differ, and a broker whose clock
runs ahead would declare others dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from broker.storage.database import (
    ConstraintError,
    Database,
    Result,
    Row,
    Statement,
    UnexpectedCountError,
)
from broker.storage.database import schema as s
from broker.storage.records import Record, Update

_OWN: Final = "WHERE cluster_id = ? AND broker_id = ? AND epoch = ?"


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker as registered: its writes do not count once its row has another ``epoch``."""

    cluster_id: str
    broker_id: str
    epoch: int
    session: int
    """The broker's new store session, which everything that it stores from now on belongs to."""
    sessions: tuple[int, ...]
    """All sessions that it owns, oldest first, the new one last."""

    @property
    def name(self) -> str:
        """The broker's id; see ``owner.StoreOwner``."""
        return self.broker_id

    def prove(self) -> Statement:
        """Return the heartbeat of the broker's row as the proof; see ``owner.StoreOwner``."""
        return Statement(
            f"UPDATE store_broker SET heartbeat = clock_ms() {_OWN}",
            (self.cluster_id, self.broker_id, self.epoch),
            count=1,
        )

    def ours(self) -> tuple[str, Row]:
        """Return the condition for the broker's sessions; see ``owner.StoreOwner``."""
        return s.OWNED, (self.cluster_id, self.broker_id)

    def prove_batch(self, before: int, after: int) -> Statement:
        """Return the heartbeat that also counts entries; see ``owner.StoreOwner``."""
        return Statement(
            f"UPDATE store_broker SET heartbeat = clock_ms(), entry = ? {_OWN} AND entry = ?",
            (after, self.cluster_id, self.broker_id, self.epoch, before),
            count=1,
        )

    def position(self) -> Statement:
        """Return a query for the broker's row; see ``owner.StoreOwner``."""
        return Statement(
            "SELECT epoch, entry FROM store_broker WHERE cluster_id = ? AND broker_id = ?",
            (self.cluster_id, self.broker_id),
        )


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker's row.

    ``silence_ms`` is how long ago its last heartbeat was, by the database's clock. ``messages`` is
    -1 if the messages were not counted.
    """

    broker_id: str
    address: str
    state: str
    epoch: int
    heartbeat: int
    silence_ms: int
    taker: str
    taker_epoch: int
    messages: int = -1


PAGE: Final = 2000
"""The number of records read in one transaction."""


class ReplacedError(Exception):
    """Another broker or process owns what this broker owned.

    This broker has been taken over, or another process has registered under its id. Stop serving at
    once.
    """


class RowChangedError(Exception):
    """The compare-and-set found another state than the one that was read.

    ``row`` is the present row, None if there is none.
    """

    def __init__(self, row: BrokerRow | None) -> None:
        super().__init__("no such broker" if row is None else f"{row.broker_id} is {row.state}")
        self.row = row


_COLUMNS: Final = "broker_id, address, state, epoch, heartbeat, clock_ms() - heartbeat, taker, taker_epoch"

_TAKER_LIVES: Final = """EXISTS (SELECT 1 FROM store_broker AS t WHERE t.cluster_id = store_broker.cluster_id
    AND t.broker_id = store_broker.taker AND t.epoch = store_broker.taker_epoch
    AND t.heartbeat >= clock_ms() - ?)"""


class Registry:
    """The view that one broker has of the cluster's rows, and its changes of them.

    Args:
        database: where the rows are.
        cluster_id: the same for all brokers that share the store.
        broker_id: ours; unique within the cluster.
        expiration_ms: silence after which a broker may be taken over (``lock-expiration``).
        timeout_s: for each transaction (``network-timeout``).
    """

    def __init__(
        self, database: Database, cluster_id: str, broker_id: str, *, expiration_ms: int, timeout_s: float
    ) -> None:
        self.database = database
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self.expiration_ms = expiration_ms
        self.timeout_s = timeout_s

    async def create(self) -> None:
        """Make the tables that are missing. Raises DatabaseError."""
        for last in (False, True):
            try:
                await self._transact(s.create(self.cluster_id))
            except ConstraintError:
                # PostgreSQL: two brokers created one table at the same moment; the other has done
                # it now.
                if last:
                    raise
            else:
                return

    async def register(self, address: str) -> Registered:
        """Begin to own what belongs to our id, in a new epoch and with a new session.

        A process that ran under this id before is fenced from now on.

        Raises RowChangedError while another broker takes us over, and for an id that a broker at
        another address uses; DatabaseError.
        """
        mine = (self.cluster_id, self.broker_id)
        statements = [
            s.add_broker(*mine, address, s.SHUTDOWN_COMPLETE, heartbeat="0"),
            Statement(
                "UPDATE store_broker SET epoch = epoch + 1, state = ?, address = ?, entry = 0, "
                "heartbeat = clock_ms(), taker = '', taker_epoch = 0"
                f" WHERE cluster_id = ? AND broker_id = ? AND (state <> ? OR NOT {_TAKER_LIVES})"
                f" AND (address = ? OR state NOT IN ({s.marks(s.RUNNING)}) OR heartbeat < clock_ms() - "
                "?) RETURNING epoch",
                (
                    s.OPERATING,
                    address,
                    *mine,
                    s.TAKEOVER_STARTED,
                    self.expiration_ms,
                    address,
                    *s.RUNNING,
                    self.expiration_ms,
                ),
                count=1,
            ),
            *s.new_session(*mine),
            s.sessions_of(*mine),
        ]
        while True:
            try:
                results = await self._transact(statements)
                break
            except UnexpectedCountError:
                row = await self.row(self.broker_id)
                # A restore of the store meanwhile removes our row and adds it again: the statement
                # waited for a row that was removed.
                if row is not None and row.state not in (*s.RUNNING, s.TAKEOVER_STARTED):
                    continue
                raise RowChangedError(row) from None
        sessions = tuple(_integer(row[0]) for row in results[4].rows)
        session = _integer(results[2].rows[0][0])
        assert sessions[-1] == session, "the new session is not the last one"
        assert session <= s.SESSION_MAX, "session numbers are used up"
        return Registered(self.cluster_id, self.broker_id, _integer(results[1].rows[0][0]), session, sessions)

    async def renew(self, registered: Registered) -> None:
        """Renew the heartbeat. Raises ReplacedError, DatabaseError."""
        await self._owned(registered, [])

    async def become(self, registered: Registered, state: str, *, since: Sequence[str] = s.STATES) -> None:
        """Change our own state, if it is one of ``since``.

        Raises RowChangedError if it is another state, ReplacedError, DatabaseError.
        """
        change = Statement(
            "UPDATE store_broker SET state = ? WHERE cluster_id = ? AND broker_id = ? AND state IN "
            f"({s.marks(since)})",
            (state, self.cluster_id, self.broker_id, *since),
            count=1,
        )
        try:
            await self._owned(registered, [change])
        except UnexpectedCountError:
            raise RowChangedError(await self.row(self.broker_id)) from None

    async def rows(self, *, count_messages: int | None = None) -> list[BrokerRow]:
        """Return all brokers by id; with ``count_messages``, also their numbers of such records.

        ``count_messages`` is the kind of records that are messages.
        """
        statements = [self._all_rows()]
        if count_messages is not None:
            statements.append(
                Statement(
                    "SELECT o.broker_id, COUNT(*) FROM store_record AS r JOIN store_session AS o"
                    " ON o.cluster_id = r.cluster_id AND o.session = r.session"
                    " WHERE r.cluster_id = ? AND r.kind = ? GROUP BY o.broker_id ORDER BY o.broker_id",
                    (self.cluster_id, count_messages),
                )
            )
        results = await self._transact(statements)
        counts = dict(cast("list[tuple[str, int]]", results[1].rows)) if len(results) > 1 else None
        return [
            _broker_row(row, -1 if counts is None else counts.get(cast("str", row[0]), 0))
            for row in results[0].rows
        ]

    async def cluster(self) -> tuple[list[BrokerRow], dict[int, str]]:
        """Return all brokers by id, and the owner of each store session, as of one moment."""
        brokers, sessions = await self._transact(
            [
                self._all_rows(),
                Statement(
                    "SELECT session, broker_id FROM store_session WHERE cluster_id = ? ORDER BY session",
                    (self.cluster_id,),
                ),
            ]
        )
        owners = dict(cast("list[tuple[int, str]]", sessions.rows))
        return [_broker_row(row) for row in brokers.rows], owners

    async def row(self, broker_id: str) -> BrokerRow | None:
        """Return one broker's row; None if there is none."""
        look = Statement(
            f"SELECT {_COLUMNS} FROM store_broker WHERE cluster_id = ? AND broker_id = ?",
            (self.cluster_id, broker_id),
        )
        [result] = await self._transact([look])
        return _broker_row(result.rows[0]) if result.rows else None

    # ---- takeover

    async def begin_takeover(self, registered: Registered, victim: BrokerRow, *, forced: bool = False) -> int:
        """Make ``victim``, as it was read, ours to take over, and return its new epoch.

        This is one compare-and-set, after which the victim is fenced.

        With ``forced``, it does not matter how alive the victim is; a victim that was running keeps
        the rest of its lease (``complete_takeover``). Raises RowChangedError when it is not as it
        was read, or has shown life; ReplacedError, DatabaseError.
        """
        conditions = "epoch = ?"
        parameters: list[Any] = [victim.epoch]
        if not forced:
            conditions += (
                f" AND ((state IN ({s.marks(s.RUNNING)}) AND heartbeat < clock_ms() - ?) OR state = ?"
                f" OR (state = ? AND NOT {_TAKER_LIVES}))"
            )
            parameters += [
                *s.RUNNING,
                self.expiration_ms,
                s.SHUTDOWN_FAILOVER,
                s.TAKEOVER_STARTED,
                self.expiration_ms,
            ]
        take = Statement(
            "UPDATE store_broker SET state = ?, epoch = epoch + 1, taker = ?, taker_epoch = ?,"
            f" entry = CASE WHEN state IN ({s.marks(s.RUNNING)}) THEN 0 WHEN state = ? THEN entry ELSE ? END"
            f" WHERE cluster_id = ? AND broker_id = ? AND {conditions}",
            (
                s.TAKEOVER_STARTED,
                self.broker_id,
                registered.epoch,
                *s.RUNNING,
                s.TAKEOVER_STARTED,
                s.YIELDED,
                self.cluster_id,
                victim.broker_id,
                *parameters,
            ),
            count=1,
        )
        # Our own proof comes last: while this waits for the victim's row, our row must be free for
        # our journal.
        try:
            await self._transact([take, registered.prove()])
        except UnexpectedCountError as error:
            if error.index == 1:
                raise ReplacedError(f"{self.broker_id} is not the owner of its store any more") from None
            raise RowChangedError(await self.row(victim.broker_id)) from None
        return victim.epoch + 1

    async def complete_takeover(
        self, registered: Registered, victim_id: str, victim_epoch: int
    ) -> tuple[int, tuple[int, ...]]:
        """Make all the victim's sessions ours.

        Returns a new session of ours, younger than all of them, and the victim's sessions.

        This must wait until the victim has said that it serves no client (``step_aside``), or its
        lease has run out. A fenced victim writes nothing, but it may not know yet that it is
        fenced, and deliver. Raises RowChangedError if it is too early, and when the takeover is not
        ours any more; ReplacedError, DatabaseError.
        """
        finish = Statement(
            "UPDATE store_broker SET state = ? WHERE cluster_id = ? AND broker_id = ?"
            " AND epoch = ? AND state = ? AND taker = ? AND taker_epoch = ?"
            " AND (entry = ? OR heartbeat < clock_ms() - ?)",
            (
                s.TAKEOVER_COMPLETE,
                self.cluster_id,
                victim_id,
                victim_epoch,
                s.TAKEOVER_STARTED,
                self.broker_id,
                registered.epoch,
                s.YIELDED,
                self.expiration_ms,
            ),
            count=1,
        )
        move = Statement(
            "UPDATE store_session SET broker_id = ? WHERE cluster_id = ? AND broker_id = ?",
            (self.broker_id, self.cluster_id, victim_id),
        )
        sessions = s.sessions_of(self.cluster_id, victim_id)
        try:
            results = await self._owned(
                registered, [finish, sessions, move, *s.new_session(self.cluster_id, self.broker_id)]
            )
        except UnexpectedCountError:
            raise RowChangedError(await self.row(victim_id)) from None
        return _integer(results[3].rows[0][0]), tuple(_integer(row[0]) for row in results[1].rows)

    async def step_aside(self, epoch: int) -> None:
        """Declare that the process that ran under our id in that epoch serves no client any more.

        This has an effect only while that broker is being taken over. Raises DatabaseError.
        """
        aside = Statement(
            "UPDATE store_broker SET entry = ?"
            " WHERE cluster_id = ? AND broker_id = ? AND state = ? AND epoch = ?",
            (s.YIELDED, self.cluster_id, self.broker_id, s.TAKEOVER_STARTED, epoch + 1),
        )
        await self._transact([aside])

    async def owned_sessions(self, registered: Registered) -> tuple[int, ...]:
        """Return the sessions that are ours, oldest first. Raises ReplacedError, DatabaseError."""
        [result] = await self._owned(registered, [s.sessions_of(self.cluster_id, self.broker_id)])
        return tuple(_integer(row[0]) for row in result.rows)

    async def load(self, registered: Registered, sessions: Sequence[int]) -> list[Record]:
        """Return the records of sessions that are ours, in order of their ids.

        No other broker can change them now.

        They are read in pages, and each read is a proof and a heartbeat, too. So a large store
        takes no longer than a transaction may. Raises ReplacedError, DatabaseError.
        """
        records: list[Record] = []
        for session in sorted(sessions):
            after = -1
            while True:
                [found] = await self._owned(registered, [s.records_of(self.cluster_id, session, after, PAGE)])
                page = cast("list[tuple[int, int, bytes]]", found.rows)
                if not page:
                    break
                last = page[-1][0]
                [changed] = await self._owned(
                    registered, [s.updates_of(self.cluster_id, session, after, last)]
                )
                updates: dict[int, list[Update]] = {}
                for id_, kind, data in cast("list[tuple[int, int, bytes]]", changed.rows):
                    updates.setdefault(id_, []).append(Update(kind, bytes(data)))
                records += [Record(id_, kind, bytes(data), updates.get(id_, [])) for id_, kind, data in page]
                after = last
        return records

    # ---- inside

    def _all_rows(self) -> Statement:
        return Statement(
            f"SELECT {_COLUMNS} FROM store_broker WHERE cluster_id = ? ORDER BY broker_id",
            (self.cluster_id,),
        )

    async def _owned(self, registered: Registered, statements: list[Statement]) -> list[Result]:
        """Run a transaction behind the proof that we still own our row.

        Raises ReplacedError; indexes of UnexpectedCountError count the proof.
        """
        try:
            results = await self._transact([registered.prove(), *statements])
        except UnexpectedCountError as error:
            if error.index == 0:
                raise ReplacedError(f"{self.broker_id} is not the owner of its store any more") from None
            raise
        return results[1:]

    async def _transact(self, statements: Sequence[Statement]) -> list[Result]:
        return await self.database.transact(statements, self.timeout_s)


def _integer(value: object) -> int:
    assert isinstance(value, int), "a number was expected from the database"
    return value


def _broker_row(row: Sequence[Any], messages: int = -1) -> BrokerRow:
    return replace(BrokerRow(*row), messages=messages)
