"""The master broker's side of the change record: it numbers changes, stores them and tells members.

A change is told to members only when it is durable here, in the order of the record. Otherwise a
member could have a change that the master loses in a crash, and another change would get its
number.

The asker is answered when all members that are linked have applied the change: its client may tell
another one, at any broker, to use what was made. A member that does not say so is waited for no
longer than half of the ``call-timeout``; it applies the change if its link lasts.

A request that comes again is answered as before: the record knows the last request of each broker,
which makes one request after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Handler, Membership
from broker.core.change_record import ChangeRecord
from broker.core.changes import (
    DESTINATION,
    SUBSCRIPTION,
    Backup,
    Change,
    ChangeRefusedError,
    Kind,
    RequestId,
    key_of,
)
from broker.core.engine import DemotedError, Engine
from broker.core.selector import SelectorError
from broker.core.subscription import Subscription, decode_subscription
from broker.storage.errors import JournalError

DROPS_MAX: Final = 1000
"""The most drops that are kept for members that are away; these get the whole record then."""

_log = logging.getLogger(__name__)

Answer = Callable[[int, bool, str], None]
"""Takes what a ``ChangeAnswer`` says."""


class ChangeMaster:
    """The ``Changes`` of the master broker, from its construction to ``stop``.

    ``incarnation`` names a record that begins. ``problem`` is why this broker has no record to
    keep, or "".
    """

    has_master = True

    def __init__(
        self, membership: Membership, engine: Engine, record: ChangeRecord, incarnation: str
    ) -> None:
        self.problem = ""
        self._membership = membership
        self._engine = engine
        self._record = record
        self._feeds: dict[ClusterLink, int] = {}
        """The links to members that get changes, and the number up to which they applied them."""
        self._unanswered: dict[Callable[[], None], tuple[int, asyncio.TimerHandle]] = {}
        """Answers, the number of the change that all members must have, and the end of the wait."""
        self._patience_s = membership.neighbours.terms.call_timeout_s / 2
        self._applied: dict[str, int] = {}
        """The number up to which each member has the changes, by its connector."""
        self._ordinal = 0
        self._asker = engine.settings.node_id
        self._life = membership.own.incarnation
        self._handlers: dict[type[m.LinkMessage], Handler] = {
            m.ChangesWanted: self._take_wanted,
            m.ChangesApplied: self._note_applied,
            m.ChangeRequest: self._take_request,
        }
        record.make_missing()
        if record.head is None:
            record.begin(incarnation)
        elif not record.head.keeps:
            self.problem = (
                "the master broker has only a member's copy of the change record: give it a backup of the "
                "record with brokerctl restore-record"
            )
            _log.error("%s", self.problem)
        membership.handlers.update(self._handlers)
        membership.on_linked.append(self._offer)
        membership.on_unlinked.append(self._unlinked)
        for link in membership.neighbours.links:
            self._offer(link)

    def stop(self) -> None:
        """Take no more requests."""
        for kind in self._handlers:
            self._membership.handlers.pop(kind, None)
        self._membership.on_linked.remove(self._offer)
        self._membership.on_unlinked.remove(self._unlinked)
        self._feeds.clear()
        for _, timer in self._unanswered.values():
            timer.cancel()

    def views(self) -> dict[str, dict[str, str]]:
        """Return what is here of the record; see ``Changes``."""
        return self._record.views()

    def details(self) -> dict[str, Any]:
        """Return how far this broker has the record, for its status."""
        return {"change-record": self._record.details(joined=not self.problem, problem=self.problem)}

    async def request(self, kind: Kind, key: str, value: str | None) -> bool:
        """Make a change of our own; see ``Changes``."""
        if self.problem:
            raise ChangeRefusedError(self.problem)
        self._ordinal += 1
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answer(sequence: int, made: bool, reason: str) -> None:
            del sequence
            if answered.done():
                return
            if reason:
                answered.set_exception(ChangeRefusedError(reason))
            else:
                answered.set_result(made)

        self._decide(RequestId(self._asker, self._life, self._ordinal), kind, key, value, answer)
        return await answered

    def backup(self) -> Backup:
        """Return the whole record, for a backup. Raises ChangeRefusedError."""
        if self.problem:
            raise ChangeRefusedError(self.problem)
        return self._record.backup()

    @property
    def drops(self) -> int:
        """The number of drops that are kept for members that are away."""
        return len(self._record.drops)

    def compact(self) -> tuple[int, list[str]]:
        """Forget the drops that all members have.

        Returns how many these were, and the members that lack some or were not heard. Raises
        ChangeRefusedError.
        """
        if self.problem:
            raise ChangeRefusedError(self.problem)
        head = self._record.head
        assert head is not None, "compaction of no record"
        members = self._membership.neighbours.static
        behind = sorted(member for member in members if self._applied.get(member, -1) < head.sequence)
        upto = min((self._applied.get(member, 0) for member in members), default=head.sequence)
        return self._record.compact(upto), behind

    # --------------------------------------------------------------------------------------- inside

    def _offer(self, link: ClusterLink) -> None:
        link.send(m.ChangesOffered())

    def _unlinked(self, link: ClusterLink) -> None:
        self._feeds.pop(link, None)
        self._answer_known()

    def _take_wanted(self, link: ClusterLink, message: m.ChangesWanted) -> None:
        record, head = self._record, self._record.head
        if head is None or self.problem:
            link.send(m.ChangesGiven("", (), 0, False, (), self.problem, message.question))
            return
        is_whole = message.incarnation != head.incarnation or message.sequence < head.floor
        changes = record.changes_since(0 if is_whole else message.sequence)
        if is_whole:
            changes = tuple(change for change in changes if change.value is not None)
        answer = m.ChangesGiven(
            head.incarnation, head.ancestors, head.sequence, is_whole, changes, "", message.question
        )
        self._engine.gate.when_durable(record.written, partial(self._give, link, answer))

    def _give(self, link: ClusterLink, answer: m.ChangesGiven) -> None:
        if link.is_open:
            self._feeds[link] = -1
            link.send(answer)

    def _note_applied(self, link: ClusterLink, message: m.ChangesApplied) -> None:
        head = self._record.head
        if link.member is not None and head is not None and message.incarnation == head.incarnation:
            self._applied[link.member.connector] = message.sequence
            if link in self._feeds:
                self._feeds[link] = message.sequence
                self._answer_known()

    def _take_request(self, link: ClusterLink, message: m.ChangeRequest) -> None:
        def answer(sequence: int, made: bool, reason: str) -> None:
            link.send(m.ChangeAnswer(message.number, sequence, made, reason))

        request = RequestId(message.asker, message.life, message.ordinal)
        try:
            self._decide(request, message.kind, message.key, message.value, answer)
        except (DemotedError, JournalError):
            return  # the broker ends, and says why

    def _decide(self, request: RequestId, kind: Kind, key: str, value: str | None, answer: Answer) -> None:
        """Store a change unless it is refused, was made before, or changes nothing; then answer."""
        record, head = self._record, self._record.head
        if reason := self.problem or _problem(kind, key, value):
            answer(0, False, reason)
            return
        assert head is not None, "a master without a record"
        life, ordinal, sequence = head.requests.get(request.asker, (0, 0, 0))
        if (request.life, request.number) == (life, ordinal):
            made = True
        elif (request.life, request.number) < (life, ordinal):
            answer(0, False, "a later request of the same broker was answered before")
            return
        elif not self._changes_something(kind, key, value):
            made, sequence = False, head.sequence
        else:
            change = record.append(request, kind, key, value)
            made, sequence = True, change.sequence
            self._engine.gate.when_durable(record.written, partial(self._tell, change))
            if value is None and len(drops := record.drops) > DROPS_MAX:
                record.compact(drops[DROPS_MAX // 2])
        answer_known = partial(self._answer_when_known, sequence, partial(answer, sequence, made, ""))
        self._engine.gate.when_durable(record.written, answer_known)

    def _answer_when_known(self, sequence: int, answer: Callable[[], None]) -> None:
        """Answer when all linked members have applied the changes up to a number."""
        if self._is_known(sequence):
            answer()
        else:
            timer = asyncio.get_running_loop().call_later(self._patience_s, self._end_wait, answer)
            self._unanswered[answer] = sequence, timer

    def _is_known(self, sequence: int) -> bool:
        return all(applied >= sequence for applied in self._feeds.values())

    def _answer_known(self) -> None:
        for answer, (sequence, _) in list(self._unanswered.items()):
            if self._is_known(sequence):
                self._end_wait(answer)

    def _end_wait(self, answer: Callable[[], None]) -> None:
        _, timer = self._unanswered.pop(answer)
        timer.cancel()
        answer()

    def _changes_something(self, kind: Kind, key: str, value: str | None) -> bool:
        if kind == DESTINATION and value is None:
            return True  # clients may have made that queue at any broker
        former = self._record.changes.get((kind, key))
        recorded = None if former is None else former.value
        if value is None or recorded is None:
            return value is not recorded
        return kind == SUBSCRIPTION and not _decoded(value).is_as(_decoded(recorded))

    def _tell(self, change: Change) -> None:
        for link in self._feeds:
            link.send(m.ChangesMade(change))


def _problem(kind: Kind, key: str, value: str | None) -> str:
    """Return why no broker could apply a change, or ""."""
    if kind == DESTINATION:
        return "" if value in ("", None) and key and not key.startswith("/") else "not a destination"
    try:
        if value is None:
            msgspec.json.decode(key, type=tuple[str, str, str])
            return ""
        subscription = _decoded(value)
        if not subscription.durable or key_of(subscription.key) != key:
            return "not the durable subscription of that key"
        subscription.compiled()
    except (msgspec.MsgspecError, SelectorError) as error:
        return f"not a subscription: {error}"
    return ""


def _decoded(value: str) -> Subscription:
    return decode_subscription(value.encode())
