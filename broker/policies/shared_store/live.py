"""The live broker on a shared store: from the live lock to its loss, its release, or its hand-over.

It inherits what the last life left (`SharedData.inherit`), and serves. Whatever answers or delivers
asks the lease first (`lease`). So a broker that stood still, or whose store is silent, answers
nobody before the store has confirmed its lock again. If it is proven that the lock is lost, or that
the store is gone, the broker fences itself: it ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal

from broker.cluster.balancing import Balancing
from broker.ha_policy import SharedStoreRole
from broker.policies.live import Live
from broker.policies.ownership.candidacy import Granted, bounded
from broker.policies.ownership.contender import LeasedReign
from broker.policies.ownership.lease import Lease, LeaseLostError
from broker.policies.policy import BrokerPolicy, NodeTakeover, Succession
from broker.policies.shared_store.store import FAILING_BACK, LIVE, PAUSED, SharedData
from broker.policies.stop import until
from broker.start_error import StartError
from broker.storage.entries import EntryStore
from broker.storage.errors import JournalFailedError
from broker.storage.gate import DurabilityGate

_log = logging.getLogger(__name__)

EXIT_FENCED: Final = 3
"""The exit status of a live that lost its lock or its store.

It stopped on purpose, and another broker may be live.
"""

LiveEnd = Literal["stopped", "handed-over"]


class FencedError(StartError):
    """The broker fenced itself: look at the store, and at the network to it; then restart it."""

    status = EXIT_FENCED


class StoreReign(LeasedReign):
    """A reign on a shared store; it is handed over when ``reclaimed`` returns.

    ``reclaimed`` returns when this place is to be given to its master; without it, that never
    happens.
    """

    store = "the store"

    def __init__(
        self,
        policy: BrokerPolicy,
        section: SharedStoreRole,
        store: SharedData,
        granted: Granted,
        reclaimed: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        super().__init__(policy, failover_on_shutdown=section.failover_on_shutdown)
        self.life = 0
        self.lock = granted.live
        self._hold_by(
            Lease(
                "the live lock",
                self._verify,
                proven_s=granted.asked_s,
                period_s=section.lock_renew_period / 1000,
                expiration_s=section.lock_expiration / 1000,
            )
        )
        self._store = store
        self._granted = granted
        self._reclaimed = reclaimed or asyncio.Event().wait
        self._journal: EntryStore | None = None

    @property
    def succession(self) -> Succession:
        """The store's life, while it is served; each but the first took the data over."""
        if not self._serving or self.live is None:
            return Succession()
        taken = (NodeTakeover(self.live.engine.settings.node_id, self.life),) if self.life > 1 else ()
        return Succession(self.life, taken)

    def details(self) -> dict[str, Any]:
        """Return what ``status`` shows of the reign."""
        return {"life": self.life, "lock-confirmed-ms-ago": round(self.lease.age_s * 1000)}

    async def run(self, stopping: asyncio.Event) -> LiveEnd:
        """Reign until ``stopping``, a failback, or the loss of the lock.

        Raises FencedError; StartError for a damaged journal.
        """
        serving = asyncio.create_task(self._serve(stopping), name="serve")
        watching = asyncio.create_task(self.lease.run(), name="confirm the live lock")
        watching.add_done_callback(self._watched)
        try:
            waits: set[asyncio.Future[Any]] = {serving, self._ended}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise FencedError(f"stopped: {self._ended.result()}")
            end = serving.result()
            if end == "handed-over":
                watching.cancel()
                await self._hand_back(stopping, serving, watching)
        except (LeaseLostError, OSError, JournalFailedError) as error:
            raise FencedError(f"stopped: {error}") from error
        else:
            return end
        finally:
            await self._end(serving, watching)

    # -------------------------------------------------------------------------------------- serving

    async def _serve(self, stopping: asyncio.Event) -> LiveEnd:
        journal = await self._activate()
        reclaimed = asyncio.create_task(self._reclaimed(), name="look for a master")
        tidying = asyncio.create_task(self._remove_older(), name="remove former lives")
        try:
            await until(stopping, reclaimed)
            handing_over = not stopping.is_set()
            if handing_over:
                reclaimed.result()
                _log.info("failback: the master waits for its place, and this broker hands over")
            assert self.live is not None, "what serves has been made"
            await self._quiesce(self.live.close())
            await tidying
            await journal.close()
            state = FAILING_BACK if handing_over else LIVE if self.failover_on_shutdown else PAUSED
            await self._store.leave(self.lock, state)
            return "handed-over" if handing_over else "stopped"
        finally:
            reclaimed.cancel()
            tidying.cancel()

    async def _activate(self) -> EntryStore:
        """Take the store's data over, and begin to serve them."""
        config, lease = self._config, self.lease
        life, node_id, journal, recovered = await self._store.inherit(self.lock, lease.require)
        self.life, self._journal = life, journal
        gate = DurabilityGate(journal.synced)
        lease.guard(gate)
        balancing = self._balancing = Balancing(self.membership, node_id)
        live = self.live = Live(config, self._seams, journal, recovered, node_id, gate, balancing)
        journal.on_failed = self._store_failed
        balancing.attach(live.engine)
        self.membership.announce(node_id=node_id, activation=life)
        await live.open()
        self._begin_to_serve()
        _log.info("live as node %s, life %d of the shared store", node_id, life)
        if self._granted.waiting is not None:
            await self._granted.waiting.release()
        return journal

    async def _remove_older(self) -> None:
        try:
            await self._store.tidy(self.life)
        except OSError as error:
            _log.warning("the data of former lives could not be removed from the store: %s", error)

    # --------------------------------------------------------------------------- doubt, and the end

    async def _verify(self) -> float:
        asked_s = asyncio.get_running_loop().time()
        try:
            await self.lock.verify()
        except OSError as error:
            raise LeaseLostError(f"the live lock is lost: {error.strerror or error}") from error
        return asked_s

    def _store_failed(self, error: JournalFailedError) -> None:
        self._fence(str(error))

    def _watched(self, watching: asyncio.Task[None]) -> None:
        error = None if watching.cancelled() else watching.exception()
        if isinstance(error, LeaseLostError):
            self._doubt()
            self._fence(str(error))
        else:
            self._crashed(watching)

    def _fence(self, reason: str) -> None:
        """Cut every client off, now."""
        if self.live is not None:
            self.live.abandon()
        if not self._ended.done():
            _log.error("%s: this broker answers no client any more, and ends", reason)
            self._ended.set_result(reason)

    async def _end(self, serving: asyncio.Task[LiveEnd], watching: asyncio.Task[None]) -> None:
        self._serving = False
        for task in (serving, watching):
            task.cancel()
        self._detach()
        if self.live is not None:
            self.live.abandon()
        await bounded(self._give_back(serving, watching))
        self._ended.cancel()

    async def _hand_back(self, stopping: asyncio.Event, *tasks: asyncio.Task[Any]) -> None:
        """Release all locks that we hold in the store, however long it takes.

        This process lives on, and no other broker could ever have a lock that it kept.
        """
        giving = asyncio.create_task(self._give_back(*tasks), name="give the live lock back")
        try:
            await until(stopping, giving)
        finally:
            giving.cancel()

    async def _give_back(self, *tasks: asyncio.Task[Any]) -> None:
        """Release all locks that we hold in the store, which may be gone."""
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._journal is not None:
            await self._journal.close()
        for lock in (self._granted.waiting, self._granted.live):
            if lock is not None:
                with contextlib.suppress(OSError):
                    await lock.release()
