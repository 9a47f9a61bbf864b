"""The homes of a conventional cluster, as the broker of a consumer, their *host*, sees them.

A message stays at the broker that took it, its home. So a client's consumer here consumes the queue
of this broker, as anywhere, and also the queue of that name at each linked live broker, over the
link that we have dialled (``cluster.messages``, "home brokers"). A subscription to a topic is a
queue that is at every broker, with the part of its messages that this broker took.

Window. The client never holds more than its window, wherever the messages come from: what it holds
of a home is in ``QueueConsumer.unacknowledged``, beside our own. Each home sends a window at the
most, and of bytes no more than ``WINDOW_BYTES`` ahead of what we tell it that the client has got.
What the client has no room for waits here. If it has none for GIVE_BACK_S, what waits goes
back, so that another consumer can have it, and we ask again when there is room. Messages of this
broker and of homes are given to the client in turn.

Lease. We may hold messages of a home until ``lease_s`` after we sent the last ping that it has
answered (``ClusterLink.confirmed``), and no longer than the link lasts; see ``home_service`` for
the other side. When that ends, each client that holds one of its messages, or waits for its answer
to an acknowledgement, is told so with one ERROR, and its connection ends. What only waited here is
forgotten. The clock is looked at before each delivery: no timer is trusted after a pause.

An acknowledgement or a refusal goes to the home at once, and what follows on its connection waits
for the answer (``stomp.intake``). If the link ends first, nobody knows whether it happened.

Expiry. A home expires its messages. What comes to its end on the way, or while it waits here, is
given back. Clocks of different brokers may show different times, so only one is looked at: each
answer of a home tells what its clock shows after we have asked. A message never seems to live for
longer than it does, and seems to live less long by a round trip at the most.

A SUBSCRIBE to a topic or a temporary queue is answered when all linked live brokers have the
subscription (``told``). The first message to a topic waits until each of them has told us of its
clients' subscriptions (``heard``). Both end after the ``call-timeout``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from broker.cluster import messages as m
from broker.cluster.coordinator import Coordinator, TwoPhaseCommit
from broker.cluster.home_service import WINDOW_BYTES, HomeService
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.membership import Membership
from broker.core.consumer import Delivery, Part, QueueConsumer, Settler
from broker.core.engine import Engine
from broker.core.groups import Lane
from broker.core.message import Message
from broker.core.queue import Queue
from broker.core.two_phase import TransactionId
from broker.storage.blobs import Blob, BlobWriter
from broker.storage.errors import JournalError
from broker.turn_budget import DELIVERY, Line

_log = logging.getLogger(__name__)

GIVE_BACK_S: Final = 1.0
"""How long messages wait here for a client that has no room."""

PASSED_BYTES: Final = WINDOW_BYTES // 2
"""After so many bytes that wait no more the home is told, before its window is used up."""


class _Waiting:
    """A message that waits for room at its client; ``expires`` is on the loop's clock."""

    __slots__ = ("expires", "message", "tag")

    def __init__(self, tag: int, message: Message, expires: float) -> None:
        self.tag = tag
        self.message = message
        self.expires = expires


class RemoteDelivery(Delivery):
    """A message of a home that a client holds; ``home_tag`` is its tag there."""

    __slots__ = ("home_tag", "part")

    def __init__(self, part: HomePart, waiting: _Waiting) -> None:
        consumer = part.parts.consumer
        consumer.tags += 1
        super().__init__(waiting.message, consumer, _NO_LANE, consumer.tags, part.home)
        self.home_tag = waiting.tag
        self.part = part


_NO_LANE: Final = Lane(None)
"""The lane of deliveries whose order and groups are their home's."""


class HomePart:
    """The part of a consumer at one home: the messages that wait, and those that are held."""

    def __init__(self, home: Home, parts: ConsumerParts) -> None:
        self.home = home
        self.parts = parts
        self.waiting: deque[_Waiting] = deque()
        self.held: dict[int, RemoteDelivery] = {}
        """What the client holds, also in transactions, by tag at the home."""
        self.unanswered = 0
        """Requests to settle that the home has not answered."""
        self.is_paused = False
        """True if the home gives nothing until we ask for it."""
        self.is_pausing = False
        """True until the home has said so: what still comes was on its way, and goes back."""
        self._passed_bytes = 0
        """The bytes that the client got since the home was told of some."""
        self.is_over = False

    @property
    def number(self) -> int:
        """The number of the consumer."""
        return self.parts.number

    def passed(self, waiting: _Waiting) -> None:
        """Tell the home from time to time what waits no more, because the client has got it."""
        self._passed_bytes += waiting.message.size
        if self._passed_bytes >= PASSED_BYTES:
            self._passed_bytes = 0
            self.home.link.send(m.RemotePassed(self.number, waiting.tag))

    def give_back(self, *, seen: bool, pauses: bool = False) -> None:
        """Give back what waits."""
        tags = tuple(waiting.tag for waiting in self.waiting)
        for waiting in self.waiting:
            self.home.let_go(waiting.message)
        self.waiting.clear()
        if tags or pauses:
            self.is_paused = self.is_paused or pauses
            self.is_pausing = self.is_pausing or pauses
            self.home.link.send(m.RemoteGiveBack(self.number, tags, seen, pauses))

    def forget(self) -> None:
        """Forget all of it, because the home is lost."""
        self.is_over = True
        for waiting in self.waiting:
            self.home.let_go(waiting.message)
        self.waiting.clear()
        for delivery in self.held.values():
            self.parts.consumer.unacknowledged.pop(delivery.tag, None)
            self.home.let_go(delivery.message)
        self.held.clear()

    def look(self) -> None:
        """Forget a part that has ended, once nothing of it is held or asked."""
        if self.is_over and not (self.held or self.unanswered):
            self.home.parts.pop(self.number, None)


class ConsumerParts:
    """The parts of a client's consumer at all homes; see ``core.consumer.RemoteParts``."""

    def __init__(
        self, homes: LinkedHomes, consumer: QueueConsumer, number: int, lost: Callable[[str], None]
    ) -> None:
        self.consumer = consumer
        self.number = number
        self.lost = lost
        self.by_home: dict[Home, HomePart] = {}
        self._homes = homes
        self._loop = asyncio.get_running_loop()
        self._order: deque[HomePart] = deque()
        """Those that have something waiting, the next one first."""
        self._is_remote_turn = True
        self._is_scheduled = False
        self._delivered = 0
        self._timer: asyncio.TimerHandle | None = None

    def request(self, *, claims: bool) -> m.RemoteConsume:
        """Return what the homes are asked for."""
        consumer = self.consumer
        queue = consumer.queue
        selector = "" if consumer.selector is None else consumer.selector.text
        return m.RemoteConsume(
            self.number, queue.name, queue.subscription, queue.made, selector, consumer.window, claims
        )

    def arrived(self, part: HomePart) -> None:
        """Give the client what has come, if it has room; behind the dispatch of our own queue."""
        if part not in self._order:
            self._order.append(part)
        self._schedule()

    def offer(self) -> None:
        """See ``RemoteParts``; a message of a home and one of our own are given in turn."""
        if self._order:
            if self._is_remote_turn:
                self._is_remote_turn = False
                self._deliver_next()
            else:
                self._is_remote_turn = True
                self._schedule()
            return
        for part in self.by_home.values():
            self.resume(part)

    def resume(self, part: HomePart) -> None:
        """Ask a home that has paused for more, if the client has room."""
        if part.is_paused and not part.is_pausing and self.consumer.is_available():
            part.is_paused = False
            part.home.link.send(m.RemoteResume(self.number))

    def end(self) -> None:
        """See ``RemoteParts``."""
        self._stop_timer()
        self._order.clear()
        self._homes.forget(self)
        unacknowledged = self.consumer.unacknowledged
        for part in list(self.by_home.values()):
            part.is_over = True
            part.give_back(seen=False)
            for delivery in list(part.held.values()):
                if unacknowledged.pop(delivery.tag, None) is not None:  # else a transaction holds it
                    del part.held[delivery.home_tag]
                    part.home.let_go(delivery.message)
            part.home.link.send(m.RemoteEnd(self.number))
            part.look()
        self.by_home.clear()

    def leave(self, part: HomePart) -> None:
        """Get nothing more of a home that is lost."""
        self.by_home.pop(part.home, None)
        if part in self._order:
            self._order.remove(part)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        self._is_scheduled = False
        budget = self._homes.engine.budget
        floor = budget.floor()
        while self._order and self.consumer.is_available():
            if budget.left <= floor:
                self._is_scheduled = True
                budget.wait(self._fill, Line.DELIVERIES)
                return
            self._deliver_next()
        if self._order and self._timer is None:
            self._timer = self._loop.call_later(GIVE_BACK_S, self._look_for_room, self._delivered)

    def _deliver_next(self) -> None:
        """Give the client the next message of the homes that have some, in turn."""
        part = self._order.popleft()
        home, now = part.home, self._loop.time()
        if not home.is_certain():
            home.give_up()
            return
        while part.waiting and part.waiting[0].expires <= now:
            expired = part.waiting.popleft()
            home.let_go(expired.message)
            home.link.send(m.RemoteGiveBack(self.number, (expired.tag,), seen=False, pauses=False))
        if part.waiting:
            self._give(part, part.waiting.popleft())
        if part.waiting and not part.is_over:
            self._order.append(part)

    def _give(self, part: HomePart, waiting: _Waiting) -> None:
        self._delivered += 1
        self._homes.engine.budget.spend(DELIVERY)
        delivery = RemoteDelivery(part, waiting)
        part.held[waiting.tag] = delivery
        part.passed(waiting)
        if self.consumer.auto:
            self.consumer.deliver(delivery)
            part.home.settle_quietly(delivery)
        else:
            self.consumer.unacknowledged[delivery.tag] = delivery
            self.consumer.deliver(delivery)

    def _look_for_room(self, delivered: int) -> None:
        """Give back what waits, if the client had no room since the last look."""
        self._timer = None
        if not self._order:
            return
        if self._delivered != delivered or self.consumer.is_available():
            self._timer = self._loop.call_later(GIVE_BACK_S, self._look_for_room, self._delivered)
            return
        for part in self._order:
            part.give_back(seen=False, pauses=True)
        self._order.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._homes.engine.budget.forget(self._fill, Line.DELIVERIES)


class Home:
    """A live broker that we are linked with, and what clients have of it; see ``Settler``."""

    def __init__(self, homes: LinkedHomes, link: ClusterLink, lease_s: float) -> None:
        assert link.member is not None
        self.link = link
        self.name = link.member.name
        self.node_id = link.member.node_id or ""
        self.message_prefix = f"{self.node_id}-"
        self.parts: dict[int, HomePart] = {}
        self.unanswered: dict[int, None] = {}
        """The consumers of which the home has not said that it has them."""
        self._homes = homes
        self._engine = homes.engine
        self._loop = asyncio.get_running_loop()
        self._lease_s = lease_s
        self._greeted_at = self._loop.time()
        self._clock_offset = -math.inf
        """What must be added to the home's clock to have ours, or a little less."""
        self._bodies = _Bodies(self, self._engine)
        self._timer = self._loop.call_later(lease_s, self._look)
        link.proves = True

    # ---------------------------------------------------------------------------------------- lease

    def is_certain(self) -> bool:
        """Return whether we may still hold messages of this home."""
        return self.link.is_open and self._loop.time() < self.link.confirmed + self._lease_s

    def greeted(self, message: m.HomeGreeted) -> None:
        """Take the home's word on how long we may hold its messages."""
        self._lease_s = min(message.lease_s, self._lease_s)
        self._compare_clocks(self._greeted_at, message.at)
        self._arm()

    def _compare_clocks(self, request_time: float, at: float) -> None:
        """Take in that the home's clock showed ``at`` after ``request_time`` of ours."""
        self._clock_offset = max(self._clock_offset, request_time - at)

    def give_up(self) -> None:
        """End the link, because the lease has ended."""
        if not self.link.closed:
            self.link.abort(
                f"it has answered no ping for {self._loop.time() - self.link.confirmed:.1f} s: the lease of "
                "its messages has ended"
            )

    def _arm(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(self.link.confirmed + self._lease_s, self._look)

    def _look(self) -> None:
        if self.is_certain():
            self._arm()
        else:
            self.give_up()

    def stop(self) -> None:
        """Look at nothing more, and take no more messages."""
        self._timer.cancel()
        self._bodies.stop()

    def lose(self) -> None:
        """End the clients that hold messages of this home, or wait for its answer."""
        self.stop()
        for part in list(self.parts.values()):
            part.parts.leave(part)
            is_held = bool(part.held or part.unanswered)
            part.forget()
            if is_held:
                part.parts.lost(
                    f"the link with broker {self.name} is lost: it gives what this connection holds of it to "
                    "others, and whether an acknowledgement under way has arrived is unknown; connect again"
                )
        self.parts.clear()
        self.unanswered.clear()

    # ----------------------------------------------------------------------------------- deliveries

    def consume(self, parts: ConsumerParts, *, claims: bool) -> None:
        """Let a consumer get messages of this home."""
        part = self.parts[parts.number] = parts.by_home[self] = HomePart(self, parts)
        self.unanswered[part.number] = None
        self.link.send(parts.request(claims=claims))

    def take_in(self, message: m.RemoteDelivery | m.BlobChunk) -> None:
        """Take a message for a client, or a chunk of its body."""
        self._bodies.take(message)

    def arrived(self, message: m.RemoteDelivery, large: Blob | None) -> None:
        """Let a message wait for its client; ``large`` is its body, here, if it is a large one."""
        opened = message.envelope.opened(large)
        opened.id = message.record
        part = self.parts.get(message.consumer)
        if part is None or part.is_over:  # the consumer has ended, and given it back by that
            self.let_go(opened)
            return
        if part.is_pausing:
            self.let_go(opened)
            tags = (message.tag,)
            self.link.send(m.RemoteGiveBack(message.consumer, tags, seen=False, pauses=False))
            return
        expires = math.inf if message.expires is None else message.expires + self._clock_offset
        part.waiting.append(_Waiting(message.tag, opened, expires))
        part.parts.arrived(part)

    def paused(self, number: int) -> None:
        """Note that the home gives a consumer no more until we ask for it."""
        part = self.parts.get(number)
        if part is not None and not part.is_over:
            part.is_pausing = False
            part.parts.resume(part)

    def gone(self, number: int, reason: str) -> None:
        """End the connection of a client whose consumer the home has ended."""
        part = self.parts.get(number)
        self.unanswered.pop(number, None)
        if part is not None and not part.is_over:
            part.parts.lost(f"broker {self.name}: {reason}")

    def let_go(self, message: Message) -> None:
        """Remove the body of a message that is here no more."""
        if message.large is not None and not self._engine.abandoned:
            self._engine.large.let_go((message.large,))

    # --------------------------------------------------------------------------------------- settle

    def settle(self, part: Part) -> asyncio.Future[None]:
        """See ``Settler``."""
        done: asyncio.Future[None] = self._loop.create_future()
        named = [*part.acknowledged, *part.refused]
        concerned = list(dict.fromkeys(_remote(delivery).part for delivery in named))
        try:
            answer = self.link.ask(m.SettleRequest(self.link.number(), *_tags_of(part)))
        except LinkError:
            return done  # and the end of the link ends the connection
        for one in concerned:
            one.unanswered += 1
        answer.add_done_callback(partial(self._settled, done, concerned, self._loop.time()))
        self._drop(named)
        return done

    async def prepare(self, id_: TransactionId, part: Part) -> None:
        """Have the home prepare its part of a transaction.

        What it names is nobody's here from now on: if the link ends, no client holds it. Raises
        OSError.
        """
        self._drop([*part.acknowledged, *part.refused])
        reply = await self.link.call(m.PrepareRequest(self.link.number(), *_tags_of(part), id_))
        if not isinstance(reply, m.Settled) or reply.reason:
            reason = reply.reason if isinstance(reply, m.Settled) else "its answer is not understood"
            raise LinkError(reason)

    def settle_quietly(self, delivery: Delivery) -> None:
        """Acknowledge a message whose client does not say so (ack mode auto)."""
        number, tags = _remote(delivery).part.number, (_remote(delivery).home_tag,)
        if self.link.is_open:
            request = m.SettleRequest(self.link.number(), {number: tags}, {}, {})
            self.link.ask(request).add_done_callback(_heard)
        self._drop((delivery,))

    def take(self, delivery: Delivery) -> None:
        """See ``Settler``."""
        remote = _remote(delivery)
        self.link.send(m.RemoteTaken(remote.part.number, (remote.home_tag,)))

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """See ``Settler``."""
        for number, tags in _tags_by_consumer(deliveries).items():
            self.link.send(m.RemoteGiveBack(number, tags, seen=True, pauses=False))
        self._drop(deliveries)

    def _drop(self, deliveries: Sequence[Delivery]) -> None:
        """Forget deliveries that no client holds any more."""
        for delivery in deliveries:
            remote = _remote(delivery)
            if remote.part.held.pop(remote.home_tag, None) is None:
                continue  # the home was lost
            self.let_go(remote.message)
            consumer = remote.consumer
            if consumer.unacknowledged.pop(remote.tag, None) is not None:
                consumer.queue.offer(consumer)
            remote.part.look()

    def _settled(
        self,
        done: asyncio.Future[None],
        concerned: Sequence[HomePart],
        request_time: float,
        answer: asyncio.Future[m.Reply],
    ) -> None:
        for part in concerned:
            part.unanswered -= 1
        if answer.cancelled() or answer.exception() is not None:
            return  # the end of the link has ended the connection
        reply = answer.result()
        if isinstance(reply, m.Settled):
            self._compare_clocks(request_time, reply.at)
        if isinstance(reply, m.Settled) and not reply.reason:
            if not done.done():
                done.set_result(None)
        else:
            reason = reply.reason if isinstance(reply, m.Settled) else "its answer is not understood"
            for part in concerned:
                part.parts.lost(f"broker {self.name} has not settled a message: {reason}")
        for part in concerned:
            part.look()


class _Participant:
    """A home that has a part of a transaction; see ``cluster.coordinator``."""

    def __init__(self, home: Home, part: Part) -> None:
        self.name = home.name
        self.node_id = home.node_id
        self._home = home
        self._part = part

    async def prepare(self, id_: TransactionId) -> None:
        """See ``Participant``."""
        await self._home.prepare(id_, self._part)

    def give_back(self) -> None:
        """See ``Participant``."""
        self._home.give_back((*self._part.acknowledged, *self._part.refused))


class _Bodies:
    """Takes what a home sends, in its order; messages wait while the body of a large one comes."""

    def __init__(self, home: Home, engine: Engine) -> None:
        self._home = home
        self._engine = engine
        self._inbox: deque[m.RemoteDelivery | m.BlobChunk] = deque()
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writer: BlobWriter | None = None
        self._body: Blob | None = None

    def take(self, message: m.RemoteDelivery | m.BlobChunk) -> None:
        """Take a message behind those that wait for a body."""
        if self._task is None and isinstance(message, m.RemoteDelivery):
            self._home.arrived(message, None)
            return
        self._inbox.append(message)
        self._more.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"large messages of {self._home.name}")

    def stop(self) -> None:
        """Take nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        link = self._home.link
        try:
            while self._inbox or self._writer is not None or self._body is not None:
                if not self._inbox:
                    self._more.clear()
                    await self._more.wait()
                message = self._inbox.popleft()
                if isinstance(message, m.BlobChunk):
                    await self._write(message)
                    link.send(m.BlobTaken(len(message.data)))
                else:
                    self._arrived(message)
        except (OSError, JournalError) as error:
            _log.error("a large message of broker %s could not be stored: %s", self._home.name, error)
            link.close("a large message could not be stored")
        finally:
            self._discard()
            self._task = None

    async def _write(self, chunk: m.BlobChunk) -> None:
        if chunk.offset == 0:
            self._discard()
            store = self._engine.large.store
            assert store is not None, "a blob where none can be kept"
            self._writer = await store.begin()
        if self._writer is None:
            return
        self._writer.write(chunk.data)
        if self._writer.due:
            await self._writer.flush()
        if chunk.last:
            self._body = await self._writer.finish()
            self._writer = None

    def _arrived(self, message: m.RemoteDelivery) -> None:
        sent = message.envelope.blob
        if sent is None:
            self._home.arrived(message, None)
            return
        body = self._body
        if body is None or (body.size, body.checksum) != (sent.size, sent.checksum):
            self._home.link.abort("the body of a large message did not come")
            return
        self._body = None
        self._home.arrived(message, body)

    def _discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()
        if self._body is not None and not self._engine.abandoned:
            self._engine.large.let_go((self._body,))
        self._writer = self._body = None


class LinkedHomes:
    """The ``Homes`` and the ``InterestNews`` of a broker, from its construction to ``stop``.

    ``service`` is the other half: what this broker, as a home, does for its hosts. ``coordinator``
    commits what several homes have parts of.
    """

    def __init__(
        self,
        membership: Membership,
        engine: Engine,
        service: HomeService,
        coordinator: Coordinator,
        lease_s: float,
    ) -> None:
        self.engine = engine
        self._coordinator = coordinator
        self._membership = membership
        self._service = service
        self._lease_s = lease_s
        self._timeout_s = membership.section.call_timeout / 1000
        self._homes: dict[ClusterLink, Home] = {}
        self._consumers: dict[int, ConsumerParts] = {}
        self._number = 0
        self._waits: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._settling: asyncio.Task[None] | None = None
        self._stopped = False
        handlers = membership.handlers
        handlers[m.HomeGreeted] = self._greeted
        handlers[m.RemoteConsumed] = self._consumed
        handlers[m.RemoteDelivery] = self._take_in
        handlers[m.BlobChunk] = self._take_in
        handlers[m.RemoteGone] = self._gone
        handlers[m.RemotePaused] = self._paused
        handlers[m.ReplyWaits] = self._reply_waits
        membership.on_change.append(self._review)
        membership.on_unlinked.append(self._unlinked)
        service.on_told = self._look_at_waits
        engine.homes = self
        engine.news = self
        self._review()

    def stop(self) -> None:
        """Consume nowhere any more; what clients hold stays theirs until they end."""
        self._stopped = True
        self._membership.on_change.remove(self._review)
        self._membership.on_unlinked.remove(self._unlinked)
        if self._settling is not None:
            self._settling.cancel()
        for home in self._homes.values():
            home.stop()

    # ------------------------------------------------------------------------------- for the engine

    def consume(self, consumer: QueueConsumer, lost: Callable[[str], None]) -> None:
        """See ``Homes``."""
        self._number += 1
        parts = ConsumerParts(self, consumer, self._number, lost)
        consumer.remote = parts
        self._consumers[parts.number] = parts
        for home in self._homes.values():
            home.consume(parts, claims=True)

    def forget(self, parts: ConsumerParts) -> None:
        """Forget a consumer that has ended."""
        self._consumers.pop(parts.number, None)
        for home in self._homes.values():
            home.unanswered.pop(parts.number, None)
        self._look_at_waits()

    def begin_commit(self, parts: Mapping[Settler, Part]) -> TwoPhaseCommit:
        """See ``Homes``."""
        participants = []
        for home, part in parts.items():
            assert isinstance(home, Home), "a part of a transaction that no home has"
            participants.append(_Participant(home, part))
        return self._coordinator.begin(participants)

    def claim(self, queue: Queue) -> None:
        """See ``Homes``."""
        self._service.claim(queue)

    def knows(self, node_id: str) -> bool:
        """Return whether the node belongs to the cluster: a reply for it can be kept."""
        return any(member.node_id == node_id for member in self._membership.directory.known.values())

    def told(self) -> asyncio.Future[None] | None:
        """See ``InterestNews``; the consumer that was made last is meant.

        Others may wait for a home that is behind in the change record.
        """
        number = self._number
        due = [home for home in self._homes.values() if number in home.unanswered]
        return self._wait(lambda: not any(number in home.unanswered for home in due))

    def heard(self) -> asyncio.Future[None] | None:
        """See ``InterestNews``."""
        return self._wait(self._have_told)

    def ask_again(self, node_id: str) -> None:
        """Do nothing: no queue here is for another node."""
        del node_id

    def _have_told(self) -> bool:
        return all(self._service.has_told_all(member.name) for member, _ in self._linked_lives())

    def _wait(self, condition: Callable[[], bool]) -> asyncio.Future[None] | None:
        loop = asyncio.get_running_loop()
        if self._stopped:
            return loop.create_future()  # the broker stops, and answers no more
        is_settled = self._membership.is_settled
        if is_settled and condition():
            return None
        if not is_settled and (self._settling is None or self._settling.done()):
            self._settling = asyncio.create_task(self._membership.settled(), name="settle")
            self._settling.add_done_callback(lambda _: self._look_at_waits())
        future: asyncio.Future[None] = loop.create_future()
        self._waits[future] = condition
        timer = loop.call_later(self._timeout_s, self._end_wait, future)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def _end_wait(self, future: asyncio.Future[None]) -> None:
        self._waits.pop(future, None)
        if not future.done():
            future.set_result(None)

    def _look_at_waits(self) -> None:
        if self._waits and (self._settling is None or self._settling.done()):
            for future, condition in list(self._waits.items()):
                if condition():
                    self._end_wait(future)

    # ------------------------------------------------------------------------------------ the links

    def _linked_lives(self) -> Iterator[tuple[m.Member, ClusterLink]]:
        own_node_id = self._membership.own.node_id
        for node_id, live in self._membership.directory.lives().items():
            if node_id != own_node_id:
                yield live

    def _review(self) -> None:
        """Greet the homes that we have just been linked with, or that are live now."""
        if self.engine.abandoned or not self._membership.own.live:
            return
        for member, link in self._linked_lives():
            if link in self._homes:
                continue
            for former in [home for home in self._homes.values() if home.name == member.name]:
                self._lose(former)
            home = self._homes[link] = Home(self, link, self._lease_s)
            link.send(m.HomeGreeting(self._lease_s))
            for parts in list(self._consumers.values()):
                home.consume(parts, claims=False)
            link.send(m.ConsumersTold())
        self._look_at_waits()

    def _unlinked(self, link: ClusterLink) -> None:
        home = self._homes.get(link)
        if home is not None:
            self._lose(home)
        self._look_at_waits()

    def _lose(self, home: Home) -> None:
        del self._homes[home.link]
        home.lose()

    def _greeted(self, link: ClusterLink, message: m.HomeGreeted) -> None:
        home = self._homes.get(link)
        if home is not None:
            home.greeted(message)

    def _consumed(self, link: ClusterLink, message: m.RemoteConsumed) -> None:
        home = self._homes.get(link)
        if home is not None:
            home.unanswered.pop(message.consumer, None)
            self._look_at_waits()

    def _take_in(self, link: ClusterLink, message: m.RemoteDelivery | m.BlobChunk) -> None:
        home = self._homes.get(link)
        if home is not None:
            home.take_in(message)

    def _paused(self, link: ClusterLink, message: m.RemotePaused) -> None:
        home = self._homes.get(link)
        if home is not None:
            home.paused(message.consumer)

    def _reply_waits(self, link: ClusterLink, message: m.ReplyWaits) -> None:
        if message.queue not in self.engine.queues:
            link.send(m.ReplyUnwanted(message.queue))

    def _gone(self, link: ClusterLink, message: m.RemoteGone) -> None:
        home = self._homes.get(link)
        if home is not None:
            home.gone(message.consumer, message.reason)
            self._look_at_waits()


def _remote(delivery: Delivery) -> RemoteDelivery:
    assert isinstance(delivery, RemoteDelivery), "a message of this broker is settled by a home"
    return delivery


def _tags_of(part: Part) -> tuple[_Tags, _Tags, _Tags]:
    """Return what a part acknowledges, refuses and gives up, as requests to the home name it."""
    refused = [delivery for delivery in part.refused if delivery not in part.given_up]
    return (
        _tags_by_consumer(part.acknowledged),
        _tags_by_consumer(refused),
        _tags_by_consumer(list(part.given_up)),
    )


_Tags = dict[int, tuple[int, ...]]
"""The tags of deliveries at their home, by consumer."""


def _tags_by_consumer(deliveries: Sequence[Delivery]) -> _Tags:
    """Return the tags of deliveries at their home, by consumer."""
    tags: dict[int, list[int]] = {}
    for delivery in deliveries:
        remote = _remote(delivery)
        tags.setdefault(remote.part.number, []).append(remote.home_tag)
    return {number: tuple(numbers) for number, numbers in tags.items()}


def _heard(answer: asyncio.Future[m.Reply]) -> None:
    """Take an answer that nobody waits for."""
    if not answer.cancelled():
        answer.exception()
