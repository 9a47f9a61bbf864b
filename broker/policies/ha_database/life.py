"""A life of a broker in a high-availability cluster.

It lasts from the broker's registration in the store to its end, its replacement, or the end of its
lease.

registered -> all it owns is loaded -> live: serves, renews its lease (`ownership.lease`), watches
the others, takes over -> stopped, or its lease is lost: everything is dropped and every client cut,
before any other broker may take over
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeVar

from broker.cluster.balancing import Balancing
from broker.core.message import MESSAGE
from broker.policies.ha_database.store_sessions import StoreSessions
from broker.policies.ha_database.watch import MemberWatch
from broker.policies.live import Live
from broker.policies.ownership.contender import LeasedReign
from broker.policies.ownership.lease import Lease, LeaseLostError
from broker.policies.policy import BrokerPolicy, NodeTakeover, Succession
from broker.policies.stop import until
from broker.storage.database import Database, DatabaseError
from broker.storage.database.journal import DatabaseJournal, JournalReplacedError
from broker.storage.database.registry import BrokerRow, Registered, Registry, ReplacedError, RowChangedError
from broker.storage.database.schema import (
    SHUTDOWN_COMPLETE,
    SHUTDOWN_FAILOVER,
    SHUTDOWN_STARTED,
    TAKEOVER_STARTED,
)
from broker.storage.errors import JournalError, JournalFailedError
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Recovered
from broker.storage.records import Record

RETRY_S: Final = 0.05
"""The pause between a transaction that failed and its next try."""

_log = logging.getLogger(__name__)

_NAMESPACE: Final = uuid.UUID("6c1f7c0e-5a0d-5b0f-9f0e-3d5a9e4b7a21")
"""The namespace of node IDs made from cluster and broker id."""

T = TypeVar("T")
LifeEnd = Literal["stopped", "replaced", "expired", "failed"]


def node_id_of(cluster_id: str, broker_id: str) -> str:
    """Return a broker's node ID, which is always the same."""
    return str(uuid.uuid5(_NAMESPACE, f"{cluster_id}/{broker_id}"))


class Life(LeasedReign):
    """A life whose ``run`` returns why it ended.

    Args:
        policy: with [database-store]; its membership is started.
        registry: the store.
        databases: a connection for the journal, and one for what lies outside its records.
        registered: who we are in it.
        sent: loop time at which the registration was sent: the lease counts from there.
        records: all we own.
    """

    live: Live
    _balancing: Balancing
    store = "the database"

    def __init__(
        self,
        policy: BrokerPolicy,
        registry: Registry,
        databases: tuple[Database, Database],
        registered: Registered,
        sent: float,
        records: list[Record],
    ) -> None:
        store, section = policy.config.database_store, policy.config.ha_policy.ha_database
        assert section is not None
        assert store is not None, "a broker in a database without one"
        super().__init__(policy, failover_on_shutdown=section.failover_on_shutdown)
        self.registry = registry
        self.registered = registered
        self.store_sessions = StoreSessions(registered.session, registered.sessions)
        self.gate = DurabilityGate()
        self._hold_by(
            Lease(
                "the lease",
                self._prove,
                proven_s=sent,
                period_s=store.lock_renew_period / 1000,
                expiration_s=store.lock_expiration / 1000,
                ends=0.75,
                kept_while_paused=False,
            )
        )
        self.lease.guard(self.gate)
        self.rows: Sequence[BrokerRow] = ()
        """The brokers of the cluster as last read."""
        self.failure: JournalFailedError | None = None
        self.taken_over: list[str] = []
        """The brokers that were taken over in this life, in order."""
        self._takeovers: list[NodeTakeover] = []
        """The takeovers of this life, each with the epoch that it gave its victim's row."""
        self._journal = DatabaseJournal(
            *databases,
            registered,
            records,
            sync_period_s=store.journal_sync_period / 1000,
            timeout_s=store.network_timeout / 1000,
        )
        self._section = section
        node_id = self._node_id_of(registered.broker_id)
        self._balancing = Balancing(self.membership, node_id)
        recovered, router = Recovered(records), self._balancing
        self.live = Live(policy.config, policy.seams, self._journal, recovered, node_id, self.gate, router)
        self.live.server.admission = self.store_sessions

    @property
    def succession(self) -> Succession:
        """The epochs of rows: ours as registered, and those that takeovers gave their victims'."""
        if not self._serving:
            return Succession()
        return Succession(self.registered.epoch, tuple(self._takeovers))

    def _node_id_of(self, broker_id: str) -> str:
        return node_id_of(self._section.cluster_id, broker_id)

    async def run(self, stopping: asyncio.Event) -> LifeEnd:
        """Serve until ``stopping``, or until another broker owns what we had.

        The store says that, or may say it. Raises StartError.
        """
        self._journal.on_synced = self._synced
        self._journal.on_failed = self._failed
        self._journal.on_renewed = self.lease.renew
        self._balancing.attach(self.live.engine)
        try:
            await self.live.open()
        except BaseException as error:
            self._detach()
            self.live.abandon()
            await self._journal.close()
            if isinstance(error, JournalReplacedError):
                return "replaced"
            raise
        self._begin_to_serve()
        _log.info(
            "ha-database: serving as %s with epoch %d, the owner of %d store sessions",
            self.registered.broker_id,
            self.registered.epoch,
            len(self.store_sessions.sessions),
        )
        work = [
            asyncio.create_task(self._hold(), name="ha-database lease"),
            asyncio.create_task(self._watch(), name="ha-database watch"),
        ]
        for task in work:
            task.add_done_callback(self._crashed)
        try:
            await until(stopping, self._ended)
            if not self._ended.done():
                work[1].cancel()
                await self._quiesce(self._leave())
                self._end("stopped", "")
            end: LifeEnd = self._ended.result()
            return end
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            self._detach()
            self.live.abandon()
            await self._journal.close()

    # ------------------------------------------------------------------------------------ the lease

    def _synced(self, sequence: int) -> None:
        self.gate.local = sequence

    async def _hold(self) -> None:
        try:
            await self.lease.run()
        except LeaseLostError as error:
            self._end("expired" if error.expired else "replaced", str(error))

    async def _prove(self) -> float:
        """Renew the heartbeat in the store. Batches of the journal are heartbeats, too."""
        loop = asyncio.get_running_loop()
        told = False
        while True:
            sent = loop.time()
            try:
                await self.registry.renew(self.registered)
            except ReplacedError as error:
                raise LeaseLostError(str(error)) from error
            except DatabaseError as error:
                if not told:
                    told = True
                    _log.warning("ha-database: the lease was not renewed: %s; trying again", error)
                await asyncio.sleep(RETRY_S)
                if self.lease.due:
                    continue
            return sent

    def _failed(self, error: JournalFailedError) -> None:
        if isinstance(error, JournalReplacedError):
            self._end("replaced", str(error))
        else:
            self.failure = error
            self._end("failed", str(error))

    # ------------------------------------------------------------------------------------- takeover

    async def _watch(self) -> None:
        """Take over the brokers that fail, one after the other."""
        watch = MemberWatch(self._section, self.registry, self.registered, self.membership, self._told)
        try:
            while True:
                victim = await watch.next_victim()
                _log.info("ha-database: the takeover of %s has begun", victim.broker_id)
                await asyncio.sleep(self._section.takeover_wait / 1000)
                await self._take_over(victim)
        except ReplacedError as error:
            self._end("replaced", str(error))

    async def _take_over(self, victim: BrokerRow) -> None:
        """Complete a takeover that has begun.

        First the victim's store sessions become ours, then its messages are in our queues, then its
        clients are accepted.
        """
        while True:
            try:
                await self.registry.complete_takeover(self.registered, victim.broker_id, victim.epoch)
            except RowChangedError as error:
                row = error.row
                if row is not None and (row.epoch, row.state) == (victim.epoch, TAKEOVER_STARTED):
                    # A forced takeover from a broker that ran: until it steps aside or its lease
                    # has run out, it may not know of the takeover, and deliver.
                    await asyncio.sleep(RETRY_S)
                    continue
                _log.info(
                    "ha-database: this broker can no longer complete the takeover of %s: %s",
                    victim.broker_id,
                    error,
                )
                break
            except DatabaseError as error:
                _log.warning(
                    "ha-database: the takeover of %s is not complete yet: %s; trying again",
                    victim.broker_id,
                    error,
                )
                await asyncio.sleep(RETRY_S)
            else:
                break
        # Even if we did not hear of the outcome: the sessions that are ours now and were not before
        # are what we have taken over.
        gained, records = await _until_answered(
            self._gained, "the messages that were taken over cannot be read"
        )
        if not gained:
            return
        if self._ended.done() or not self._serving:
            return
        session = max(gained)
        self._journal.adopt(session, records)
        self.live.engine.adopt(Recovered(records), taken_over=True)
        self.store_sessions.adopt(session, gained)
        self.taken_over.append(victim.broker_id)
        self._takeovers.append(NodeTakeover(self._node_id_of(victim.broker_id), victim.epoch))
        _log.warning(
            "ha-database: %s is taken over with %d messages in %d store sessions, which this broker now owns",
            victim.broker_id,
            sum(record.kind == MESSAGE for record in records),
            len(gained) - 1,
        )
        try:
            await self._journal.sweep_adopted([gone for gone in gained if gone != session])
        except JournalReplacedError as error:
            raise ReplacedError(str(error)) from error
        except (JournalError, OSError) as error:
            # The victim's other messages are served nevertheless; a consumer of this one is cut off
            # and gets the reason.
            _log.error(
                "ha-database: large messages or pages of %s could not be cleaned up: %s",
                victim.broker_id,
                error,
            )

    async def _gained(self) -> tuple[list[int], list[Record]]:
        """Return the store sessions that are ours and not served yet, and their records."""
        owned = await self.registry.owned_sessions(self.registered)
        gained = [session for session in owned if session not in self.store_sessions.sessions]
        return gained, await self.registry.load(self.registered, gained) if gained else []

    def _told(self, rows: Sequence[BrokerRow], owners: Mapping[int, str]) -> None:
        """Remember what the store says.

        It is for ``brokerctl``, and for clients that come to the wrong broker.
        """
        self.rows = rows
        for row in rows:
            self.membership.neighbours.dial(row.address)
        connectors = {row.broker_id: row.address for row in rows}
        stomp = {
            member.connector: member.stomp_connector
            for member in self.membership.directory.known.values()
            if member.live
        }
        self.store_sessions.learn(
            {
                session: address
                for session, owner in owners.items()
                if (address := stomp.get(connectors.get(owner, "")))
            }
        )

    # -------------------------------------------------------------------------------------- endings

    async def _leave(self) -> None:
        """Answer what is under way; then record in the store whether others may take over."""
        try:
            await self._say(SHUTDOWN_STARTED)
            await self.live.close()
            await self._say(SHUTDOWN_FAILOVER if self.failover_on_shutdown else SHUTDOWN_COMPLETE)
        except ReplacedError as error:
            self._end("replaced", str(error))

    async def _say(self, state: str) -> None:
        become = partial(self.registry.become, self.registered, state)
        await _until_answered(become, f"the database has not confirmed the state {state} of this broker")

    def _end(self, end: LifeEnd, why: str) -> None:
        if self._ended.done():
            return
        self._ended.set_result(end)
        if end != "stopped":
            _log.error("ha-database: %s: %s; this broker answers no client any more", end, why)
            self.live.abandon()


async def _until_answered(ask: Callable[[], Awaitable[T]], trouble: str) -> T:
    """Return the database's answer, however often it must be asked; log ``trouble`` each time."""
    while True:
        try:
            return await ask()
        except DatabaseError as error:
            _log.warning("ha-database: %s: %s; trying again", trouble, error)
            await asyncio.sleep(RETRY_S)
