"""Two-phase commits over several brokers, as the client's broker, their *coordinator*, sees them.

Presumed abort: nothing is stored before the decision, so what is neither decided nor under way has
been rolled back.

    begin       each participant is asked to prepare its part (``prepared``)
    commit      all have: the decision is stored in the entry of our own part. Once it is durable
                the client is answered, and the participants are told until each has committed,
                durably; then the decision is forgotten
    roll_back   one has not, or the client is gone: the participants are told, once. Who misses it
                asks

What is certain: a transaction commits if and only if its decision is durable, and only ``commit``
takes one. So a participant that refuses, is lost or does not answer while it prepares means that
the transaction is rolled back, for certain, whether or not it has prepared. Only the loss of this
broker leaves its client without knowledge, as it does with any frame.

Transactions are told apart by numbers that are never given out twice, so a new life of this broker
can say of each that the old one began, from its journal alone, what became of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from broker.core.engine import DemotedError, Engine
from broker.core.transactions import Transaction
from broker.core.two_phase import Decision, Outcome, TransactionId
from broker.storage.errors import JournalError

_log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""The time after which a participant that has not answered is told again."""


class Participant(Protocol):
    """A broker that has a part of a transaction."""

    name: str
    """Its name, for people."""
    node_id: str

    async def prepare(self, id_: TransactionId) -> None:
        """Return when the part is prepared, durably. Raises OSError if it cannot be."""
        ...

    def give_back(self) -> None:
        """Give back to the participant what it has not prepared: the transaction is rolled back."""
        ...


Tell = Callable[[str, TransactionId, bool], Awaitable[None]]
"""Tells the broker with a node ID to commit or (False) to roll back a transaction.

Returns when the broker has done so, durably. Raises OSError if it is not linked or is lost.
"""


class TwoPhaseCommit:
    """A commit that is under way; see ``core.settings.HomesCommit``."""

    def __init__(
        self, coordinator: Coordinator, id_: TransactionId, participants: Sequence[Participant]
    ) -> None:
        self._coordinator = coordinator
        self.id = id_
        self.participants = participants
        self.prepared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure = "not all brokers have prepared their parts"
        """Why the transaction is rolled back; "" if all participants have prepared their parts."""
        self.is_decided = False

    def commit(self, transaction: Transaction, done: Callable[[], None] | None) -> int:
        """See ``HomesCommit``."""
        return self._coordinator.commit(self, transaction, done)

    def roll_back(self) -> None:
        """See ``HomesCommit``."""
        self._coordinator.roll_back(self)


class Coordinator:
    """All two-phase commits of a broker's clients; those that were decided before are finished.

    ``timeout_s`` is how long a participant may take for an answer.
    """

    def __init__(self, engine: Engine, tell: Tell, timeout_s: float) -> None:
        self._engine = engine
        self._tell = tell
        self._timeout_s = timeout_s
        self._under_way: dict[TransactionId, TwoPhaseCommit] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._preparing: dict[TransactionId, asyncio.Task[None]] = {}
        self._is_stopped = False
        for decision in engine.decided.values():
            self._start(partial(self._finish, decision), decision.id)

    def outcome(self, id_: TransactionId) -> Outcome:
        """Return what became of a transaction that we coordinate, for a participant."""
        if id_ in self._under_way or id_.coordinator != self._engine.settings.node_id:
            return "open"
        return "committed" if id_ in self._engine.decided else "rolled back"

    def begin(self, participants: Sequence[Participant]) -> TwoPhaseCommit:
        """Ask each participant to prepare its part."""
        commit = TwoPhaseCommit(self, self._engine.new_transaction_id(), participants)
        self._under_way[commit.id] = commit
        self._preparing[commit.id] = self._start(partial(self._prepare, commit), commit.id)
        return commit

    def commit(
        self, commit: TwoPhaseCommit, transaction: Transaction, done: Callable[[], None] | None = None
    ) -> int:
        """Decide that a transaction commits: all have prepared, our part is ``transaction``.

        ``done`` is called once that is durable; see ``Engine.commit``.
        """
        assert commit.prepared.done(), "decided before all have answered"
        assert not commit.failure, "a transaction commits that is rolled back"
        engine = self._engine
        decision = engine.new_decision(
            commit.id, [participant.node_id for participant in commit.participants]
        )

        def decided() -> None:
            del self._under_way[commit.id]
            if done is not None:
                done()
            if not self._is_stopped:
                self._start(partial(self._finish, decision), commit.id)

        sequence = engine.commit(transaction, decided, decision)
        commit.is_decided = True
        return sequence

    def roll_back(self, commit: TwoPhaseCommit) -> None:
        """Decide that a transaction is rolled back, unless it was decided before."""
        if commit.is_decided or self._under_way.pop(commit.id, None) is None:
            return
        preparing = self._preparing.pop(commit.id, None)
        if preparing is not None and preparing is not asyncio.current_task():
            preparing.cancel()
        if not commit.prepared.done():
            commit.prepared.set_result(None)  # the task does it, unless it has not begun
        for participant in () if self._is_stopped else commit.participants:
            participant.give_back()
            self._start(partial(self._tell_once, participant.node_id, commit.id), commit.id)

    def stop(self) -> None:
        """Ask and tell nobody any more."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()

    # --------------------------------------------------------------------------------------- inside

    def _start(self, work: Callable[[], Awaitable[None]], id_: TransactionId) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work()
            except (DemotedError, JournalError):
                return  # the broker ends, and says why

        task = asyncio.create_task(run(), name=f"transaction {id_}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _prepare(self, commit: TwoPhaseCommit) -> None:
        """Ask all participants at one time; the first that fails decides."""
        calls = [
            asyncio.create_task(self._ask(participant, commit.id)) for participant in commit.participants
        ]
        try:
            for answer in asyncio.as_completed(calls):
                await answer
            commit.failure = ""
        except OSError as error:
            commit.failure = str(error)
            self.roll_back(commit)
        finally:
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            self._preparing.pop(commit.id, None)
            if not commit.prepared.done():
                commit.prepared.set_result(None)

    async def _ask(self, participant: Participant, id_: TransactionId) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await participant.prepare(id_)
        except OSError as error:
            reason = str(error) or f"it has not answered within {self._timeout_s:g} s"
            raise OSError(f"broker {participant.name} has not prepared its part: {reason}") from None

    async def _finish(self, decision: Decision) -> None:
        """Tell all participants until each has committed, then forget the decision."""
        await asyncio.gather(*(self._tell_until_done(home, decision.id) for home in decision.homes))
        self._engine.forget_decision(decision.id)

    async def _tell_until_done(self, node_id: str, id_: TransactionId) -> None:
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._tell(node_id, id_, True)
            except OSError as error:
                _log.debug("transaction %s: node %s has not committed yet: %s", id_, node_id, error)
            else:
                return
            await asyncio.sleep(RETRY_S)

    async def _tell_once(self, node_id: str, id_: TransactionId) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._tell(node_id, id_, False)
        except OSError:
            return  # it asks
