"""A member's side of the change record: it has changes made by the master, and applies them all.

A member *joins* the record whenever it is linked with the master: it names the incarnation and the
number up to which it has the changes, and gets those that it lacks, and then each new one over the
same link. While it has not joined, no change can be made here.

A member does not join a record that has fewer changes than it, or is of another incarnation, unless
that one took the place of its own by a restoration: the two records went different ways, and only
an administrator can say which one holds.

A request whose answer is lost with the link is made again, under the same number, when the member
has joined again. If that takes longer than the ``call-timeout``, nobody knows whether the change
was made. All brokers agree later all the same, because the record has it or has it not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.master import MasterBroker
from broker.cluster.membership import Handler, Membership
from broker.core.change_record import ChangeRecord
from broker.core.changes import (
    SUBSCRIPTION,
    ChangeRefusedError,
    ChangeUnknownError,
    Head,
    Kind,
    key_of,
    loss_text,
    value_of,
)
from broker.core.engine import DemotedError, Engine
from broker.storage.errors import JournalError

_log = logging.getLogger(__name__)


class ChangeMember:
    """The ``Changes`` of a member, from its construction to ``stop``."""

    has_master = True

    def __init__(
        self, membership: Membership, engine: Engine, record: ChangeRecord, master: MasterBroker
    ) -> None:
        self.feed: ClusterLink | None = None
        """The link over which the changes come; None while this broker has not joined."""
        self.problem = ""
        """Why it does not join the record that the master gave it, or ""."""
        self.has_looked = False
        """True once the master has answered, since the start: this broker joined, or it cannot."""
        self.on_looked: Callable[[], None] = lambda: None
        """Called whenever the master has answered."""
        self._membership = membership
        self._engine = engine
        self._record = record
        self._master = master
        self._question = 0
        """The number of the last question for changes: older answers are for another state."""
        self._turn = asyncio.Lock()
        self._ordinal = 0
        self._waits: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._proposing: asyncio.Task[None] | None = None
        self._handlers: dict[type[m.LinkMessage], Handler] = {
            m.ChangesOffered: self._take_offer,
            m.ChangesGiven: self._take_given,
            m.ChangesMade: self._take_made,
        }
        record.make_missing()
        membership.handlers.update(self._handlers)
        master.on_linked.append(self._want)
        master.on_unlinked.append(self._unlinked)
        link = master.link()
        if link is not None:
            self._want(link)

    def stop(self) -> None:
        """Leave the record until the next start."""
        for kind in self._handlers:
            self._membership.handlers.pop(kind, None)
        self._master.on_linked.remove(self._want)
        self._master.on_unlinked.remove(self._unlinked)
        if self._proposing is not None:
            self._proposing.cancel()
        self.feed = None

    def reset(self) -> None:
        """Forget the record, and join the one that the master has."""
        self._record.reset()
        self.problem = ""
        link = self._master.link()
        if link is not None:
            self._want(link)

    def views(self) -> dict[str, dict[str, str]]:
        """Return what is here of the record; see ``Changes``."""
        return self._record.views()

    def details(self) -> dict[str, Any]:
        """Return how far this broker has the record, for its status."""
        return {"change-record": self._record.details(joined=self.feed is not None, problem=self.problem)}

    async def request(self, kind: Kind, key: str, value: str | None) -> bool:
        """Ask the master for a change, and return when it is applied here; see ``Changes``."""
        self._demand_master()
        async with self._turn:
            made = await self._ask_next(kind, key, value)
            if value is None and self._record.is_unrecorded(kind, key):
                self._record.drop_unrecorded(key)
                return True
            return made

    # --------------------------------------------------------------------------------------- asking

    def _demand_master(self) -> None:
        if self.feed is None:
            why = self.problem or f"the master broker {self._master.address} cannot be reached"
            raise ChangeRefusedError(
                f"{why}; destinations and durable subscriptions cannot be made or deleted without it, and "
                "nothing was changed"
            )

    async def _ask_next(self, kind: Kind, key: str, value: str | None) -> bool:
        self._demand_master()
        self._ordinal += 1
        return await self._ask(kind, key, value)

    async def _ask(self, kind: Kind, key: str, value: str | None) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._membership.neighbours.terms.call_timeout_s
        asker, life = self._engine.settings.node_id, self._membership.own.incarnation
        while loop.time() < deadline:
            link = self.feed
            if link is None or not link.is_open:
                await self._wait_until(lambda: self.feed is not None and self.feed.is_open, deadline)
                continue
            request = m.ChangeRequest(link.number(), asker, life, self._ordinal, kind, key, value)
            try:
                answer = await link.call(request, deadline - loop.time())
            except (LinkError, TimeoutError):
                continue
            assert isinstance(answer, m.ChangeAnswer), "the answer to another question"
            if answer.reason:
                raise ChangeRefusedError(answer.reason)
            await self._wait_until(partial(self._has, answer.sequence), deadline)
            if self._has(answer.sequence):
                return answer.made
        raise ChangeUnknownError(
            f"the master broker {self._master.address} did not answer in time: the change was made at all "
            "brokers, or will be, or at none"
        )

    def _has(self, sequence: int) -> bool:
        return self._record.head is not None and self._record.head.sequence >= sequence

    async def _wait_until(self, condition: Callable[[], bool], deadline: float) -> None:
        """Return when a condition holds, or at the deadline."""
        if condition():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits[future] = condition
        try:
            async with asyncio.timeout_at(deadline):
                await future
        except TimeoutError:
            pass
        finally:
            del self._waits[future]

    def _check_waits(self) -> None:
        for future, condition in self._waits.items():
            if not future.done() and condition():
                future.set_result(None)

    # -------------------------------------------------------------------------------------- joining

    def _take_offer(self, link: ClusterLink, message: m.ChangesOffered) -> None:
        del link, message
        master = self._master.link()
        if self.feed is None and master is not None:
            self._want(master)

    def _want(self, link: ClusterLink) -> None:
        self.feed = None
        self._question += 1
        head = self._record.head or Head("")
        link.send(m.ChangesWanted(head.incarnation, head.sequence, self._question))

    def _unlinked(self, link: ClusterLink) -> None:
        if link is self.feed:
            self.feed = None

    def _take_given(self, link: ClusterLink, given: m.ChangesGiven) -> None:
        if given.question != self._question or link is not self._master.link() or self._engine.abandoned:
            return
        problem = given.reason or self._refusal(given)
        if problem:
            if problem != self.problem:
                _log.error("%s", problem)
            self.problem = problem
            self._look()
            return
        former = self._record.head
        is_reset = former is not None and not former.incarnation
        head = Head(given.incarnation, given.ancestors, given.sequence)
        if head != former:
            try:
                losses = self._record.take(head, given.changes, whole=given.whole, drops_unrecorded=is_reset)
            except (DemotedError, JournalError):
                return  # the broker ends, and says why
            _log.log(
                logging.WARNING if losses else logging.INFO,
                "the change record of master broker %s is applied up to change %d%s",
                self._master.address,
                given.sequence,
                loss_text(losses),
            )
        self.feed, self.problem = link, ""
        self._report()
        self._check_waits()
        self._look()
        if self._record.unrecorded and (self._proposing is None or self._proposing.done()):
            self._proposing = asyncio.get_running_loop().create_task(
                self._propose(), name="propose own subscriptions"
            )

    def _look(self) -> None:
        self.has_looked = True
        self.on_looked()

    def _refusal(self, given: m.ChangesGiven) -> str:
        """Return why this broker does not join a record, or ""."""
        head = self._record.head
        if head is None or not head.incarnation or head.incarnation in given.ancestors:
            return ""
        if head.incarnation != given.incarnation:
            why = "of which this broker has no change, because it has joined another one"
        elif head.sequence > given.sequence:
            why = f"which ends with change {given.sequence}, and this broker has change {head.sequence}"
        else:
            return ""
        return (
            f"this broker does not join the change record of master broker {self._master.address}, {why}: "
            "restore the record there from its newest backup, or drop here what it lacks with brokerctl "
            "reset-record"
        )

    async def _propose(self) -> None:
        """Have the durable subscriptions recorded that were here before this broker joined.

        Those that are not when the master is lost are proposed when this broker joins again. Those
        that are dropped while others are proposed are not made again.
        """
        for subscription in self._record.unrecorded:
            key = key_of(subscription.key)
            try:
                async with self._turn:
                    if self._record.is_unrecorded(SUBSCRIPTION, key):
                        await self._ask_next(SUBSCRIPTION, key, value_of(subscription))
            except ChangeRefusedError as error:
                if self.feed is None:
                    return
                _log.warning("%s is not in the change record: %s", subscription, error)

    def _take_made(self, link: ClusterLink, message: m.ChangesMade) -> None:
        head, change = self._record.head, message.change
        if link is not self.feed or head is None or self._engine.abandoned:
            return
        if change.incarnation != head.incarnation or change.sequence > head.sequence + 1:
            self._want(link)
        elif change.sequence > head.sequence:
            try:
                losses = self._record.take(Head(head.incarnation, head.ancestors, change.sequence), (change,))
            except (DemotedError, JournalError):
                return  # the broker ends, and says why
            if any(loss.messages for loss in losses):
                _log.info("change %d of the cluster is applied%s", change.sequence, loss_text(losses))
            self._report()
            self._check_waits()

    def _report(self) -> None:
        """Tell the master how far we are, when that is durable."""
        head, link = self._record.head, self.feed
        assert head is not None, "a report without a record"
        assert link is not None, "a report without a master"
        applied = m.ChangesApplied(head.incarnation, head.sequence)
        self._engine.gate.when_durable(self._record.written, lambda: link.send(applied))
