"""The live broker on a shared store: from the live lock to its loss, its release, or its hand-over.

It inherits what the last life left (`store.Store.inherit`), and serves. Everything that is answered
or delivered asks the lease first (`lease`): a broker that stood still, or whose store is silent,
answers nobody before the store has confirmed its lock again. What proves that the lock is lost, or
that the store is gone, ends the broker at once: it fences itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal

from broker.cluster.balancing import Balancing
from broker.cluster.membership import Membership
from broker.config import BrokerConfig
from broker.ha_policy import SharedStoreRole
from broker.policies.live import Live
from broker.policies.ownership.candidacy import Granted, HeldLock, bounded
from broker.policies.ownership.lease import Lease, LeaseLostError
from broker.policies.policy import Succession, Takeover
from broker.policies.shared_store.store import FAILING_BACK, LIVE, PAUSED, Data
from broker.policies.standalone import STOP_PATIENCE_S
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.entries import Entries
from broker.storage.errors import JournalFailedError
from broker.storage.gate import DurabilityGate

_log = logging.getLogger(__name__)

EXIT_FENCED: Final = 3
"""Exit status of a live that lost its lock or its store.

It stopped on purpose, and another may be live.
"""

LiveEnd = Literal["stopped", "handed-over"]


class FencedError(StartError):
    """The broker fenced itself.

    Look at the store, and at the network to it; then start the broker again.
    """

    status = EXIT_FENCED


class LiveRole:
    """One reign.

    ``become`` is told each change of role; ``reclaimed`` returns when this place is to be given to
    whom it belongs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        section: SharedStoreRole,
        seams: Seams,
        store: Data,
        membership: Membership,
        granted: Granted,
        become: Callable[[str], None],
        reclaimed: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.live: Live | None = None
        self.life = 0
        self.failover_on_shutdown = section.failover_on_shutdown
        self.lock = granted.live
        self.lease = Lease(
            "the live lock",
            self._verify,
            proven_s=granted.asked_s,
            period_s=section.lock_renew_period / 1000,
            expiration_s=section.lock_expiration / 1000,
        )
        self._config = config
        self._section = section
        self._seams = seams
        self._store = store
        self._membership = membership
        self._granted = granted
        self._become = become
        self._reclaimed = reclaimed
        self._journal: Entries | None = None
        self._balancing: Balancing | None = None
        self._serving = False
        self._fenced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.lease.on_doubt = self._doubt
        self.lease.on_certain = self._trust

    @property
    def succession(self) -> Succession:
        """The life of the store, while it is served.

        But for the first, each takes the data over from the last.
        """
        if not self._serving or self.live is None:
            return Succession()
        taken = (Takeover(self.live.engine.settings.node_id, self.life),) if self.life > 1 else ()
        return Succession(self.life, taken)

    def details(self) -> dict[str, Any]:
        """For ``status``."""
        return {"life": self.life, "lock-confirmed-ms-ago": round(self.lease.age_s * 1000)}

    async def run(self, stopping: asyncio.Event) -> LiveEnd:
        """Reign until ``stopping``, a failback, or the loss of the lock.

        Raises FencedError; StartError for a damaged journal.
        """
        serving = asyncio.create_task(self._serve(stopping), name="serve")
        watching = asyncio.create_task(self.lease.run(), name="confirm the live lock")
        watching.add_done_callback(self._watched)
        try:
            waits: set[asyncio.Future[Any]] = {serving, self._fenced}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise FencedError(f"stopped: {self._fenced.result()}")
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
        stop = asyncio.create_task(stopping.wait(), name="wait for stop")
        waited: list[asyncio.Task[Any]] = [stop]
        if self._reclaimed is not None:
            waited.append(asyncio.create_task(self._reclaimed(), name="look for a master"))
        tidying = asyncio.create_task(self._remove_older(), name="remove former lives")
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            handing_over = not stop.done()
            if handing_over:
                waited[-1].result()
                _log.info("failback: the master waits for its place")
            await self._quiesce()
            await tidying
            await journal.close()
            state = FAILING_BACK if handing_over else LIVE if self.failover_on_shutdown else PAUSED
            await self._store.leave(self.lock, state)
            return "handed-over" if handing_over else "stopped"
        finally:
            for task in (*waited, tidying):
                task.cancel()

    async def _activate(self) -> Entries:
        """Take the store's data over, and begin to serve them."""
        config, lease = self._config, self.lease
        life, node_id, journal, recovered = await self._store.inherit(self.lock, lease.require)
        self.life, self._journal = life, journal
        gate = DurabilityGate(journal.synced)
        lease.guard(gate)
        balancing = self._balancing = Balancing(self._membership, node_id)
        live = self.live = Live(config, self._seams, journal, recovered, node_id, gate, balancing)
        journal.on_failed = self._store_failed
        balancing.attach(live.engine)
        self._membership.announce(node_id=node_id, activation=life)
        await live.open()
        # At once: clients are served from here on, and a broker that serves must not call itself a
        # backup.
        self._serving = True
        self._become("live" if lease.certain() else "verifying")
        _log.info("live as node %s, life %d of the shared store", node_id, life)
        if self._granted.waiting is not None:
            await self._granted.waiting.release()
        return journal

    async def _remove_older(self) -> None:
        try:
            await self._store.tidy(self.life)
        except OSError as error:
            _log.warning("former lives could not be removed from the store: %s", error)

    async def _quiesce(self) -> None:
        """Answer what is under way."""
        live = self.live
        assert live is not None
        self._serving = False
        self._become("stopping")
        if self._balancing is not None:
            self._balancing.detach()
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await live.close()
        except TimeoutError:
            _log.warning("the store did not answer within %g s: not a clean stop", STOP_PATIENCE_S)

    # --------------------------------------------------------------------------- doubt, and the end

    async def _verify(self) -> float:
        asked_s = asyncio.get_running_loop().time()
        try:
            await self.lock.verify()
        except OSError as error:
            raise LeaseLostError(f"the live lock is lost: {error.strerror or error}") from error
        return asked_s

    def _doubt(self) -> None:
        if self._serving:
            self._become("verifying")

    def _trust(self) -> None:
        if self._serving:
            self._become("live")
        if self.live is not None:
            self.live.gate.release()

    def _store_failed(self, error: JournalFailedError) -> None:
        self._fence(str(error))

    def _watched(self, watching: asyncio.Task[None]) -> None:
        error = None if watching.cancelled() else watching.exception()
        if isinstance(error, LeaseLostError):
            self._doubt()
            self._fence(str(error))
        elif error is not None and not self._fenced.done():
            self._fenced.set_exception(error)

    def _fence(self, reason: str) -> None:
        """Cut everybody off, now."""
        if self.live is not None:
            self.live.abandon()
        if not self._fenced.done():
            _log.error("%s: this broker answers nobody any more, and ends", reason)
            self._fenced.set_result(reason)

    async def _end(self, serving: asyncio.Task[LiveEnd], watching: asyncio.Task[None]) -> None:
        self._serving = False
        for task in (serving, watching):
            task.cancel()
        if self._balancing is not None:
            self._balancing.detach()
        if self.live is not None:
            self.live.abandon()
        await bounded(self._give_back(serving, watching))
        if not self._fenced.done():
            self._fenced.cancel()

    async def _hand_back(self, stopping: asyncio.Event, *tasks: asyncio.Task[Any]) -> None:
        """Give back what the store has of ours, however long it takes.

        This process lives on, and a lock that it kept nobody could ever have.
        """
        giving = asyncio.create_task(self._give_back(*tasks), name="give the live lock back")
        stop = asyncio.create_task(stopping.wait(), name="wait for stop")
        try:
            await asyncio.wait({giving, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (giving, stop):
                task.cancel()

    async def _give_back(self, *tasks: asyncio.Task[Any]) -> None:
        """All that the store has of ours; it may be gone."""
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._journal is not None:
            await self._journal.close()
        for lock in (self._granted.waiting, self._granted.live):
            if lock is not None:
                await release(lock)


async def release(lock: HeldLock) -> None:
    """Give a lock back, or lose it."""
    with contextlib.suppress(OSError):
        await lock.release()
