"""Prepared transactions of other brokers: their coordinators are asked until the outcome is known.

Why ask, though coordinators tell: of a transaction that was rolled back they remember nothing, so
who missed that would hold its messages for ever (openmq 205).

A participant may not decide by itself, however long its coordinator is away. Where that is gone for
good, an administrator does (``brokerctl commit-transaction`` or ``roll-back-transaction``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.core.engine import DemotedError, Engine
from broker.core.two_phase import Outcome, TransactionId
from broker.storage.errors import JournalDamagedError, JournalError

_log = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
"""How often coordinators are asked; most transactions end long before."""

Ask = Callable[[TransactionId], Awaitable[Outcome]]
"""Asks the coordinator of a transaction. Raises OSError if that is not linked or is lost."""


class InDoubt:
    """Ends the prepared transactions of an engine, from its construction to ``stop``."""

    def __init__(self, engine: Engine, ask: Ask, timeout_s: float) -> None:
        self._engine = engine
        self._ask = ask
        self._timeout_s = timeout_s
        self._wake = asyncio.Event()
        self._told: dict[TransactionId, None] = {}
        engine.prepared.changed = self._wake.set
        self._task = asyncio.create_task(self._run(), name="transactions in doubt")

    def stop(self) -> None:
        """Ask nobody any more."""
        self._engine.prepared.changed = lambda: None
        self._task.cancel()

    async def end(self, id_: TransactionId, *, commits: bool) -> None:
        """Do what the coordinator has decided, and return when that is durable.

        Raises OSError, JournalError.
        """
        if commits:
            await self._engine.commit_prepared(id_)
        else:
            await self._engine.roll_back_prepared(id_)

    async def _run(self) -> None:
        try:
            while True:
                await self._look()
                self._wake.clear()
                try:
                    async with asyncio.timeout(PERIOD_S if self._engine.prepared.by_id else None):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        except (DemotedError, JournalError):
            return  # the broker ends, and says why

    async def _look(self) -> None:
        """Ask for each transaction; the ones of a coordinator that fails wait for the next look."""
        by_id = self._engine.prepared.by_id
        self._told = {id_: None for id_ in self._told if id_ in by_id}
        silent: dict[str, None] = {}
        for id_ in list(by_id):
            if id_ not in by_id or id_.coordinator in silent:
                continue
            try:
                async with asyncio.timeout(self._timeout_s):
                    outcome = await self._ask(id_)
            except OSError as error:
                silent[id_.coordinator] = None
                self._warn(id_, error)
                continue
            if outcome == "open":
                continue
            try:
                await self.end(id_, commits=outcome == "committed")
            except (OSError, JournalDamagedError) as error:
                _log.error("transaction %s is %s, but a page cannot be read: %s", id_, outcome, error)

    def _warn(self, id_: TransactionId, error: OSError) -> None:
        """Say of a transaction, once, that its coordinator does not answer."""
        prepared = self._engine.prepared.by_id.get(id_)
        if prepared is None or id_ in self._told:
            return
        age_s = (self._engine.now() - prepared.since) / 1000
        if age_s > 2 * self._timeout_s:
            self._told[id_] = None
            _log.warning(
                "transaction %s is prepared here for %.0f s, and its coordinator does not answer: %s "
                "(brokerctl transactions)",
                id_,
                age_s,
                error,
            )
