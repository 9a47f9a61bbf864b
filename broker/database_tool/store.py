"""A cluster's shared store as its administrator uses it: create, remove a broker, reset locks.

Why each is one transaction: the tool may be killed, and brokers may start at any moment. So the
database itself decides, within the transaction, whether any broker runs; if one does, everything is
undone. Nothing is looked up first and done afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.core.message import MESSAGE
from broker.storage.database import (
    Database,
    DatabaseError,
    Result,
    Statement,
    UnexpectedCountError,
)
from broker.storage.database import schema as s
from broker.storage.database.registry import BrokerRow, Registry

PATIENCE_S: Final = 600.0
"""The time-out of each transaction: a store may be large, and only a person waits for it."""

TABLES: Final = ("store_blob", "store_update", "store_record", "store_session", "store_broker")
"""The tables with rows of one cluster, in the order in which they are emptied."""


OF_SESSIONS: Final = ("store_blob", "store_update", "store_record")
"""The tables whose rows belong to the owner of their session."""


class ToolRefusedError(Exception):
    """The command would do damage now; one line says why, and what would be right."""


class ClusterStore:
    """The rows of one cluster.

    Args:
        database: where the rows are.
        kind: "sqlite" or "postgresql".
        cluster_id: the cluster.
        expiration_ms: how long after its last sign of life a broker counts as running
            (``lock-expiration``).
    """

    def __init__(self, database: Database, kind: str, cluster_id: str, expiration_ms: int) -> None:
        self.kind = kind
        self.cluster_id = cluster_id
        self.expiration_ms = expiration_ms
        self._database = database
        self._registry = Registry(database, cluster_id, "", expiration_ms=expiration_ms, timeout_s=PATIENCE_S)

    async def transact(self, statements: Sequence[Statement]) -> list[Result]:
        """Run all the statements, or none. Raises DatabaseError."""
        return await self._database.transact(statements, PATIENCE_S)

    async def exists(self, table: str = "store_blob") -> bool:
        """Return whether a table has been made.

        Without a name it is the youngest table, which a store of a former version lacks. Raises
        DatabaseError.
        """
        question = (
            "SELECT 1 FROM sqlite_master WHERE name = ?"
            if self.kind == "sqlite"
            else "SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass(?)"
        )
        [found] = await self.transact([Statement(question, (table,))])
        return bool(found.rows)

    async def create(self) -> bool:
        """Make the tables and the cluster's row; False if all existed. Raises DatabaseError."""
        there = await self.exists()
        if there:
            [known] = await self.transact(
                [Statement("SELECT 1 FROM store_cluster WHERE cluster_id = ?", (self.cluster_id,))]
            )
            there = bool(known.rows)
        await self._registry.create()
        return not there

    async def brokers(self) -> list[BrokerRow]:
        """Return all brokers of the cluster, with their numbers of messages.

        Raises DatabaseError.
        """
        return await self._registry.rows(count_messages=MESSAGE)

    async def remove(self, broker_id: str, *, with_messages: bool) -> int:
        """Remove a broker that is not running; return how many messages were deleted with it.

        Raises ToolRefusedError, DatabaseError.
        """
        row = next((row for row in await self.brokers() if row.broker_id == broker_id), None)
        if row is None:
            raise ToolRefusedError(f"there is no broker {broker_id!r} in cluster {self.cluster_id!r}")
        if row.state == s.TAKEOVER_STARTED:
            raise ToolRefusedError(
                f"{broker_id} is just being taken over by {row.taker}: wait, or let another broker "
                "complete it"
                f" (brokerctl takeover -n {broker_id})"
            )
        if row.messages and not with_messages:
            raise ToolRefusedError(
                f"{broker_id} still has {row.messages} messages: let another broker take over first"
                f" (brokerctl takeover -n {broker_id}), or give -f to delete them"
            )
        mine = (self.cluster_id, broker_id)
        held = Statement(
            f"SELECT 1 FROM store_record WHERE cluster_id = ? AND kind = ? AND {s.OWNED}",
            (self.cluster_id, MESSAGE, *mine),
            count=row.messages,
        )
        statements = [
            *self._locked(),
            self._nobody_runs(broker_id),
            held,
            Statement(
                "DELETE FROM store_broker WHERE cluster_id = ? AND broker_id = ? AND epoch = ? AND "
                "state <> ?",
                (*mine, row.epoch, s.TAKEOVER_STARTED),
                count=1,
            ),
            *(
                Statement(f"DELETE FROM {table} WHERE cluster_id = ? AND {s.OWNED}", (self.cluster_id, *mine))
                for table in OF_SESSIONS
            ),
            Statement("DELETE FROM store_session WHERE cluster_id = ? AND broker_id = ?", mine),
        ]
        try:
            await self.transact(statements)
        except UnexpectedCountError as error:
            if error.index == len(self._locked()):
                raise await self._running(broker_id) from None
            raise ToolRefusedError(
                f"{broker_id} has changed meanwhile: nothing was removed; look at it again (brokerctl "
                "members)"
            ) from None
        return row.messages

    async def reset_locks(self) -> list[str]:
        """Reset what brokers that died have left locked, so that they may start at once.

        Returns the ids of these brokers.

        Every epoch grows: a broker that runs nevertheless, unseen, is fenced. What such a broker
        owned waits for its own restart. Raises ToolRefusedError, DatabaseError.
        """
        left = (*s.RUNNING, s.TAKEOVER_STARTED)
        marks = s.marks(left)
        found = Statement(
            f"SELECT broker_id FROM store_broker WHERE cluster_id = ? AND state IN ({marks}) ORDER BY "
            "broker_id",
            (self.cluster_id, *left),
        )
        reset = Statement(
            "UPDATE store_broker SET state = ?, epoch = epoch + 1, taker = '', taker_epoch = 0, "
            "heartbeat = clock_ms()"
            f" WHERE cluster_id = ? AND state IN ({marks})",
            (s.SHUTDOWN_COMPLETE, self.cluster_id, *left),
        )
        try:
            results = await self.transact([*self._locked(), self._nobody_runs(), found, reset])
        except UnexpectedCountError:
            raise await self._running() from None
        return [str(row[0]) for row in results[-2].rows]

    async def replace(self, statements: Sequence[Statement]) -> None:
        """Empty the cluster and run these statements, in one transaction, if no broker runs.

        Raises ToolRefusedError, DatabaseError.
        """
        empty = [
            Statement(f"DELETE FROM {table} WHERE cluster_id = ?", (self.cluster_id,)) for table in TABLES
        ]
        before = [*s.create(self.cluster_id), *self._locked()]
        try:
            await self.transact([*before, self._nobody_runs(), *empty, *statements])
        except UnexpectedCountError as error:
            if error.index == len(before):
                raise await self._running() from None
            raise

    def _locked(self) -> list[Statement]:
        """Return statements that lock the brokers' rows and the cluster's.

        The order is that of a broker that registers: the second waits for the first, and there is
        no deadlock.
        """
        brokers = Statement(
            "UPDATE store_broker SET heartbeat = heartbeat WHERE cluster_id = ?", (self.cluster_id,)
        )
        return [brokers, s.retire_epochs(self.cluster_id)]

    def _nobody_runs(self, broker_id: str | None = None) -> Statement:
        """Return a statement that undoes the transaction if a broker runs; else it concerns no row.

        It comes after a statement that has locked the cluster's row, so that no broker registers
        meanwhile.
        """
        one = "" if broker_id is None else " AND broker_id = ?"
        return Statement(
            "UPDATE store_broker SET heartbeat = heartbeat"
            f" WHERE cluster_id = ? AND state IN ({s.marks(s.RUNNING)}) AND heartbeat >= clock_ms() - ?{one}",
            (self.cluster_id, *s.RUNNING, self.expiration_ms, *(() if broker_id is None else (broker_id,))),
            count=0,
        )

    async def _running(self, broker_id: str | None = None) -> ToolRefusedError:
        """Return the error that names the brokers that run."""
        try:
            rows = await self.brokers()
        except DatabaseError:
            rows = []
        running = [
            f"{row.broker_id} ({row.address}, last seen {row.silence_ms / 1000:.0f} s ago)"
            for row in rows
            if row.state in s.RUNNING
            and row.silence_ms <= self.expiration_ms
            and broker_id in (None, row.broker_id)
        ]
        who = ", ".join(running) or "a broker that has just ended"
        return ToolRefusedError(
            f"running: {who}: stop it first (brokerctl stop); one that was killed counts as running for "
            f"{self.expiration_ms / 1000:g} s"
        )
