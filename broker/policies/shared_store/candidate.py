"""Who waits for the live lock, and when it may be taken.

A slave behind the other backups, a master for its place.

state of the lock        a slave                                  a master
"L"  the live was lost   takes over                               is live
"P"  stopped on purpose  waits; live, if it was the stopped one   live, if started since; else waits
"F"  failing back        waits, unless no master waits any more   is live
none: a new store        waits for a master                       is live
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from broker.ha_policy import SharedStoreMaster, SharedStoreRole, SharedStoreSlave
from broker.policies.shared_store import store
from broker.policies.shared_store.owed import Owed
from broker.policies.shared_store.store import HeldLock, Mark, Places

_log = logging.getLogger(__name__)


class Granted(NamedTuple):
    """The live lock, confirmed by a question asked at ``asked_s``.

    ``waiting`` is the candidate's own lock, to be given back once it is live.
    """

    live: HeldLock
    asked_s: float
    waiting: HeldLock | None


async def confirmed(lock: HeldLock, expiration_ms: int) -> float:
    """When a question was asked that the store has answered soon.

    A reign cannot begin with a lease that is half over.
    """
    loop = asyncio.get_running_loop()
    while True:
        asked_s = loop.time()
        await lock.verify()
        if loop.time() - asked_s < expiration_ms / 4000:
            return asked_s


class Candidate:
    """One wait, from ``run`` to the live lock. ``next_in_line`` says that nobody is before us."""

    def __init__(
        self,
        places: Places,
        section: SharedStoreMaster | SharedStoreSlave,
        name: str,
        waits: Callable[[Mark], None],
    ) -> None:
        self.next_in_line = False
        self._places = places
        self._section = section
        self._name = name
        self._waits = waits
        self._waiting: HeldLock | None = None
        self._seen_live = False
        self._trouble = ""
        self._said = ""
        self._place = ""
        self._returns = False
        self._owed = Owed()

    @property
    def _master(self) -> bool:
        return isinstance(self._section, SharedStoreMaster)

    async def run(self) -> Granted:
        """Wait, however long it takes; a store that fails is asked again.

        When cancelled, what was locked is given back.
        """
        prepared = False
        while True:
            try:
                if not prepared:
                    await self._places.prepare()
                    prepared = True
                await self._owed.give_back()
                granted = await self._attempt()
            except OSError as error:
                self._complain(f"the shared store cannot be used: {error}")
            else:
                self._trouble = ""
                if granted is not None:
                    return granted
            await asyncio.sleep(self._section.lock_poll_period / 1000)

    async def give_up(self) -> None:
        """Give the place in the line back."""
        waiting, self._waiting = self._waiting, None
        self.next_in_line = False
        await self._owed.give_back(waiting)

    async def _attempt(self) -> Granted | None:
        may_try = self._master or self._waiting is not None or self._returns
        granted = await self._try_live() if may_try else None
        if granted is None:
            await self._queue()
        return granted

    async def _queue(self) -> None:
        """Take the place of the next one, if it is free; say that we wait."""
        if self._waiting is None:
            self._waiting = await (self._places.try_master() if self._master else self._places.try_backup())
        else:
            await self._check_place(self._waiting)
        self.next_in_line = self._waiting is not None
        mark = await self._places.read()
        self._seen_live |= mark.state in (store.LIVE, store.FAILING_BACK)
        place = "next in line" if self.next_in_line else "behind another backup"
        if place != self._place:
            self._place = place
            _log.info("waiting for the live lock, %s", place)
        # Whoever was stopped on purpose and is started again does not wait behind backups that stay
        # passive for its sake.
        self._returns = mark.state == store.PAUSED and mark.name == self._name and not self._seen_live
        self._waits(mark)

    async def _check_place(self, waiting: HeldLock) -> None:
        """A place in the line may be lost like any lock; then we are behind whoever took it.

        If it was only not confirmed, it is given back first.
        """
        try:
            await waiting.verify()
        except OSError:
            self._owed.add(waiting)
            self._waiting, self.next_in_line = None, False
            raise

    async def _try_live(self) -> Granted | None:
        lock = await self._places.try_live()
        if lock is None:
            return None
        kept = False
        try:
            mark = await self._places.read()
            if await self._may_take(mark):
                asked_s = await confirmed(lock, self._section.lock_expiration)
                kept = True
                return Granted(lock, asked_s, self._waiting)
        finally:
            if not kept:
                await self._owed.give_back(lock)
        return None

    async def _may_take(self, mark: Mark) -> bool:
        if mark.state == store.PAUSED:
            may = not self._seen_live and (self._master or mark.name == self._name)
            why = f"{mark.name} was stopped without failover"
        elif mark.state == store.FAILING_BACK and not self._master:
            may = not await self._places.master_waits()
            why = "the master is to have its place back"
        else:
            may = self._master or mark.state != store.NOT_STARTED
            why = "no master has ever been live here"
        if not may and why != self._said:
            self._said = why
            _log.info("staying passive: %s", why)
        return may

    def _complain(self, trouble: str) -> None:
        """One line per news, not one per attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("%s; trying again", trouble)


async def master_is_back(places: Places, section: SharedStoreRole) -> None:
    """Return when a master waits for its place and nobody else waits for ours (AMQ 17.3.2.2: no
    failback with several backups).
    """
    said = False
    while True:
        await asyncio.sleep(section.lock_poll_period / 1000)
        if not await places.master_waits():
            continue
        if not await places.backup_waits():
            return
        if not said:
            said = True
            _log.info("no failback: this broker has a backup already")
