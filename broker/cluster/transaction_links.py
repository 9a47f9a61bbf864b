"""Transactions over several brokers on links: who is told, and who is asked.

A coordinator tells the participants what it has decided, and they ask it, over whatever link there
is between the two: unlike deliveries, a transaction outlives links and the lives of brokers.
"""

from __future__ import annotations

import asyncio
import logging

from broker.cluster import messages as m
from broker.cluster.coordinator import Coordinator
from broker.cluster.in_doubt import InDoubt
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.membership import Membership
from broker.core.engine import DemotedError, Engine
from broker.core.two_phase import Outcome, TransactionId
from broker.storage.errors import JournalDamagedError, JournalError

_log = logging.getLogger(__name__)


class TransactionLinks:
    """Both sides of a broker's transactions over brokers, from its construction to ``stop``."""

    def __init__(self, membership: Membership, engine: Engine, timeout_s: float) -> None:
        self._membership = membership
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.coordinator = Coordinator(engine, self._tell, timeout_s)
        self._in_doubt = InDoubt(engine, self._ask, timeout_s)
        membership.handlers[m.DecisionRequest] = self._decided
        membership.handlers[m.OutcomeRequest] = self._answer_outcome

    def stop(self) -> None:
        """Ask, tell and answer nobody any more."""
        self._membership.handlers.pop(m.DecisionRequest, None)
        self._membership.handlers.pop(m.OutcomeRequest, None)
        self.coordinator.stop()
        self._in_doubt.stop()
        for task in self._tasks:
            task.cancel()

    def _link(self, node_id: str) -> ClusterLink:
        """Return the link with the live broker that has a node ID. Raises LinkError."""
        live = self._membership.directory.lives().get(node_id)
        if live is None:
            raise LinkError(f"the broker with node ID {node_id} is not linked")
        return live[1]

    async def _tell(self, node_id: str, id_: TransactionId, commits: bool) -> None:
        link = self._link(node_id)
        reply = await link.call(m.DecisionRequest(link.number(), id_, commits))
        if not isinstance(reply, m.Settled) or reply.reason:
            raise LinkError("it could not do what was decided")

    async def _ask(self, id_: TransactionId) -> Outcome:
        link = self._link(id_.coordinator)
        reply = await link.call(m.OutcomeRequest(link.number(), id_))
        if not isinstance(reply, m.OutcomeAnswer):
            raise LinkError("its answer is not understood")
        return reply.outcome

    # ------------------------------------------------------------------------ what others ask

    def _answer_outcome(self, link: ClusterLink, message: m.OutcomeRequest) -> None:
        link.send(m.OutcomeAnswer(message.number, self.coordinator.outcome(message.transaction)))

    def _decided(self, link: ClusterLink, message: m.DecisionRequest) -> None:
        task = asyncio.create_task(self._do(link, message), name=f"transaction {message.transaction}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _do(self, link: ClusterLink, message: m.DecisionRequest) -> None:
        reason = ""
        try:
            await self._in_doubt.end(message.transaction, commits=message.commits)
        except (OSError, JournalDamagedError) as error:
            reason = str(error) or "a page cannot be read"
            _log.error("transaction %s: a page cannot be read: %s", message.transaction, error)
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        link.send(m.Settled(message.number, reason, asyncio.get_running_loop().time()))
