"""A home: gives its messages to consumers at other brokers, their hosts (conventional clusters).

A message stays at the broker that took it, its home. A consumer of a client at another broker is a
``QueueConsumer`` here, with the window and the selector of the client, so that order, groups,
selectors, delivery counts, dead letters and expiry are what they are for a client of this broker.
What ``deliver`` gets goes over the link (``cluster.messages``, "home brokers").

Lease. A message that a host holds must go to nobody else before the host has certainly dropped it,
or two clients would hold one message. A host may hold messages until ``lease_s`` after it sent the
last ping that we answered, by its own clock, and ends the connections of clients that hold more.
We wait LEASE_MARGIN times as long, by ours, since our end of the link closed: the margin is that of
a live and its backup, for clocks of different speed and for what is on its way. We do not wait if
the host proves that it has dropped everything:
    it greets us over another link      it ends its clients before it dials again; a new life of it
                                        has none of the old one's clients
    it has said that it leaves          it ends its clients before

A start finds the messages of an earlier life, and nobody knows which of them hosts still hold. So
before a host gets anything, a record of the journal (HOST) names it, until it has certainly dropped
everything. A start gives nothing out until each host with a record has greeted us, or the longest
lease is over.

A queue that is not here yet is consumed as soon as it is made: a host's wish makes none. A durable
subscription is made by the change record alone. If one of the two brokers is behind the other in
that record, they may mean different entities of one name: then the consumer waits, too, because
what the former one has left is for nobody.

What ends with its client (a temporary queue, or a subscription that is not durable) is made at
once, and ends with the consumer. A temporary queue also outlives the link, and this broker's
restart, until the host has told us of all its consumers: replies in it were acknowledged. A reply
to one that is not here makes it: the host may have made it a moment ago, and says if it has ended.
A subscription that is not durable ends when the lease does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.cluster import messages as m
from broker.cluster.blobs import BlobSender
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership
from broker.core.consumer import Delivery, QueueConsumer
from broker.core.engine import DemotedError, Engine
from broker.core.outcomes import give_back
from broker.core.queue import Queue
from broker.core.selector import SelectorError, compile_selector
from broker.core.subscription import TEMPORARY_PREFIX, SubscriptionInUseError, node_of_temporary
from broker.core.transactions import Transaction
from broker.storage.errors import JournalDamagedError, JournalError

_log = logging.getLogger(__name__)

LEASE_MARGIN: Final = 2.0
"""How many leases of a host pass, after its link has ended, before its messages go to others."""

WINDOW_BYTES: Final = 1024 * 1024
"""The most bytes, and one message, that are on their way to a consumer of a host or wait there.

What its client has got does not count: that is bounded by the client's window of messages alone,
as for a client of this broker. A client may acknowledge nothing before it has a whole window.
"""

LINK_BYTES: Final = 512 * 1024
"""If a link has more to send than that, further messages wait in the home."""


class RemoteConsumer:
    """A consumer of a host, and what it holds; ``consumer`` is None before its queue is made."""

    def __init__(self, host: Host, request: m.RemoteConsume) -> None:
        self.host = host
        self.request = request
        self.consumer: QueueConsumer | None = None
        self.taken: dict[int, Delivery] = {}
        """The deliveries that transactions of the host's clients hold."""
        self.superseded: dict[int, Delivery] = {}
        """Those that it held when another consumer took its place; the host gives them back."""
        self._under_way: deque[tuple[int, int]] = deque()
        """Tag and size of what is on its way to the host, or waits there for the client."""

    def deliver(self, delivery: Delivery) -> None:
        """Send a message to the host."""
        size = delivery.message.size
        self._under_way.append((delivery.tag, size))
        delivery.consumer.spend(size)
        self.host.sender.send(self, delivery)

    def note_passed(self, tag: int) -> None:
        """Note that nothing up to that delivery waits at the host: it gives out what came first."""
        count = 0
        while self._under_way and self._under_way[0][0] <= tag:
            count += self._under_way.popleft()[1]
        if self.consumer is not None:
            self.consumer.refund(count)

    def note_unsent(self, delivery: Delivery) -> None:
        """Note that a delivery stays here, because its body cannot be read."""
        size = delivery.message.size
        self._under_way.remove((delivery.tag, size))
        delivery.consumer.refund(size)

    def gone(self) -> None:
        """Tell the host that the queue was deleted."""
        self.host.link.send(m.RemoteGone(self.request.consumer, f"queue {self.request.queue!r} was deleted"))

    def take(self, tag: int) -> Delivery | None:
        """Take out a delivery that the host holds; None for one that it does not hold."""
        for held in (None if self.consumer is None else self.consumer.unacknowledged, self.taken):
            if held is not None and tag in held:
                return held.pop(tag)
        return self.superseded.pop(tag, None)

    def holds(self, tag: int) -> bool:
        """Return whether the host holds that delivery."""
        held = self.consumer is not None and tag in self.consumer.unacknowledged
        return held or tag in self.taken or tag in self.superseded


class Host:
    """A broker whose clients consume here, over one link."""

    def __init__(self, engine: Engine, link: ClusterLink, lease_s: float) -> None:
        assert link.member is not None
        self.name = link.member.name
        self.node_id = link.member.node_id or ""
        self.link = link
        self.lease_s = lease_s
        self.consumers: dict[int, RemoteConsumer] = {}
        self.address = link.member.connector
        self.is_ready = False
        """True once a restart would remember that clients of this host may hold messages."""
        self.has_told_all = False
        """True once it has told us of all consumers that it had when it was linked."""
        self.has_left = False
        """True once it has said that it leaves: its clients hold nothing any more."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends the lease, once the link has ended."""
        self.sender = _Sender(engine, link)


class HomeService:
    """Serves the hosts of a cluster, from its construction to ``stop``.

    ``lease_s`` is the longest that hosts may hold messages.
    """

    def __init__(self, membership: Membership, engine: Engine, lease_s: float) -> None:
        self._membership = membership
        self._engine = engine
        self._lease_s = lease_s
        self._hosts: dict[ClusterLink, Host] = {}
        self._lost: dict[Host, None] = {}
        """Those whose link has ended, and who may still hold messages."""
        self._wanted: dict[str, dict[RemoteConsumer, None]] = {}
        """Queue that is not here, or is another one of that name -> the consumers that wait."""
        self._passing: dict[str, str] = {}
        """The queue of each subscription that ends with its client -> the host of the client."""
        self._expected = set(engine.hosts)
        """The addresses of the brokers that may hold messages of our last life."""
        self._start: asyncio.TimerHandle | None = None
        self.on_told: Callable[[], None] = lambda: None
        """Called when a broker has told us of all its consumers."""
        handlers = membership.handlers
        handlers[m.HomeGreeting] = self._greeted
        handlers[m.RemoteConsume] = self._consume
        handlers[m.ConsumersTold] = self._told
        handlers[m.RemotePassed] = self._passed
        handlers[m.RemoteTaken] = self._taken
        handlers[m.SettleRequest] = self._settle
        handlers[m.PrepareRequest] = self._prepare
        handlers[m.RemoteGiveBack] = self._given_back
        handlers[m.RemoteResume] = self._resumed
        handlers[m.RemoteEnd] = self._ended
        handlers[m.ReplyUnwanted] = self._unwanted
        handlers[m.BlobTaken] = self._blob_taken
        membership.on_unlinked.append(self._unlinked)
        membership.on_leaving.append(self._hear_leaving)
        engine.queue_observers.append(self._queue_made)
        if self._expected:
            engine.suspend()
            over = f"the leases of {', '.join(sorted(self._expected))} are over"
            loop = asyncio.get_running_loop()
            self._start = loop.call_later(LEASE_MARGIN * lease_s, self._begin, over)

    def stop(self) -> None:
        """Serve nobody any more; the engine ends the consumers."""
        self._membership.on_unlinked.remove(self._unlinked)
        self._membership.on_leaving.remove(self._hear_leaving)
        self._engine.queue_observers.remove(self._queue_made)
        for host in (*self._hosts.values(), *self._lost):
            host.sender.stop()
            if host.timer is not None:
                host.timer.cancel()
        self._hosts.clear()
        self._lost.clear()
        if self._start is not None:
            self._start.cancel()

    def claim(self, queue: Queue) -> None:
        """Let a client of this broker have a subscription that consumers of hosts have."""
        for remote in self._remotes_of(queue):
            self._supersede(remote, "a client of that broker")

    def has_told_all(self, name: str) -> bool:
        """Return whether a broker has told us of all its consumers over the present link."""
        return any(host.name == name and host.has_told_all and host.is_ready for host in self._hosts.values())

    # ------------------------------------------------------------------------------------- the link

    def _greeted(self, link: ClusterLink, message: m.HomeGreeting) -> None:
        assert link.member is not None
        if self._membership.directory.is_over(link.member) or link in self._hosts:
            return
        for former in [
            host for host in (*self._hosts.values(), *self._lost) if host.name == link.member.name
        ]:
            self._release(former)
        lease_s = min(message.lease_s, self._lease_s)
        host = self._hosts[link] = Host(self._engine, link, lease_s)
        try:
            self._engine.add_host(host.address, partial(self._ready, host))
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        link.send(m.HomeGreeted(lease_s, asyncio.get_running_loop().time()))
        self._expected.discard(link.member.connector)
        if not self._expected:
            self._begin("each other broker has shown that it holds none")

    def _ready(self, host: Host) -> None:
        """Let the consumers of a host consume."""
        host.is_ready = True
        if self._hosts.get(host.link) is not host:
            return  # its link has ended
        for remote in list(host.consumers.values()):
            self._consume_for(remote)
        if host.has_told_all:
            self._know_all(host)

    def _begin(self, reason: str) -> None:
        """Give messages out: no host holds any of our last life."""
        if self._start is not None:
            self._start.cancel()
            self._start = None
            _log.info("the messages of this broker's last life are given out: %s", reason)
            for address in self._expected:
                self._forget(address)
            self._expected.clear()
            self._engine.resume()

    def _forget(self, address: str) -> None:
        """Forget that a broker may hold messages, unless it is linked."""
        if any(host.address == address for host in (*self._hosts.values(), *self._lost)):
            return
        try:
            self._engine.remove_host(address)
        except (DemotedError, JournalError):
            return  # the broker ends, and says why

    def _unlinked(self, link: ClusterLink) -> None:
        host = self._hosts.pop(link, None)
        if host is None or self._engine.abandoned:
            return
        host.sender.stop()
        self._lost[host] = None
        for remote in host.consumers.values():
            if remote.consumer is not None:
                remote.consumer.pause()
        if host.has_left:
            self._end_host(host)
        else:
            loop = asyncio.get_running_loop()
            host.timer = loop.call_later(LEASE_MARGIN * host.lease_s, self._lease_over, host)

    def _hear_leaving(self, leaving: m.Leaving) -> None:
        """Take back what a broker held that says that it leaves, once its link has ended.

        A broker that an administrator takes out of the list has said nothing: it may still hold
        messages.
        """
        for host in [*self._hosts.values(), *self._lost]:
            assert host.link.member is not None
            if (host.name, host.link.member.incarnation) == (leaving.name, leaving.incarnation):
                host.has_left = True
                if host in self._lost:
                    self._end_host(host)

    def _end_host(self, host: Host) -> None:
        self._release(host)
        self._drop_passing(host, keeps_replies=False)
        self._forget(host.address)

    def _lease_over(self, host: Host) -> None:
        if self._engine.abandoned:
            return
        _log.info(
            "messages that %s held are given to others: its lease ended %.1f s after its link",
            host.name,
            LEASE_MARGIN * host.lease_s,
        )
        self._release(host)
        self._drop_passing(host, keeps_replies=True)
        self._forget(host.address)

    def _release(self, host: Host) -> None:
        """Take back all that a host has certainly dropped."""
        self._hosts.pop(host.link, None)
        self._lost.pop(host, None)
        host.sender.stop()
        if host.timer is not None:
            host.timer.cancel()
        for remote in host.consumers.values():
            self._end(remote)
            _return(remote.taken)

    def _told(self, link: ClusterLink, message: m.ConsumersTold) -> None:
        del message
        host = self._hosts.get(link)
        if host is not None:
            host.has_told_all = True
            if host.is_ready:
                self._know_all(host)

    def _know_all(self, host: Host) -> None:
        """End the queues of clients of a host that are gone: it has told us of all others."""
        self._drop_passing(host, keeps_replies=False)
        self.on_told()

    def _drop_passing(self, host: Host, *, keeps_replies: bool) -> None:
        """End the queues of clients of a host that are gone, with what is in them."""
        queues, temporary = self._engine.queues, f"{TEMPORARY_PREFIX}{host.node_id}."
        names = [name for name, owner in self._passing.items() if owner == host.name]
        if not keeps_replies:
            names += [name for name in queues if name.startswith(temporary)]
        for name in names:
            queue = queues.get(name)
            if queue is None:
                del self._passing[name]
            elif not queue.consumers:
                self._drop(queue)

    def _drop(self, queue: Queue) -> None:
        if not queue.consumers and self._engine.queues.get(queue.name) is queue:
            self._passing.pop(queue.name, None)
            try:
                self._engine.drop(queue)
            except (DemotedError, JournalError):
                return  # the broker ends, and says why

    # ------------------------------------------------------------------------------------ consumers

    def _consume(self, link: ClusterLink, message: m.RemoteConsume) -> None:
        host = self._hosts.get(link)
        if host is None or message.consumer in host.consumers:
            return
        remote = host.consumers[message.consumer] = RemoteConsumer(host, message)
        if host.is_ready:
            self._consume_for(remote)

    def _consume_for(self, remote: RemoteConsumer) -> None:
        """Let a consumer of a host consume, and say so, or why it may not."""
        link, number = remote.host.link, remote.request.consumer
        try:
            reason = self._attach(remote)
        except SelectorError as error:
            reason = f"its selector is not understood: {error}"
        except SubscriptionInUseError as error:
            reason = str(error)
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        if reason:
            link.send(m.RemoteGone(number, reason))
        elif remote.consumer is not None or not _is_recorded(remote.request):
            engine = self._engine
            engine.gate.when_durable(
                engine.journal.last_sequence, lambda: link.send(m.RemoteConsumed(number))
            )

    def _attach(self, remote: RemoteConsumer) -> str:
        """Let a remote consumer consume, now or later; return why it may not, or ""."""
        engine, request = self._engine, remote.request
        selector = compile_selector(request.selector) if request.selector else None
        queue = self._queue_for(request)
        if queue is None:
            self._wanted.setdefault(_wanted_name(request), {})[remote] = None
            return ""
        if request.subscription is not None and not request.subscription.shared:
            engine.end_leaving(queue)
            if queue.consumers and not request.claims:
                return f"{request.subscription} has a consumer already"
            self._displace(queue, remote.host.name)
        if request.subscription is not None and not request.subscription.durable:
            self._passing[queue.name] = remote.host.name
        remote.consumer = engine.subscribe(
            queue.name,
            remote.deliver,
            window=request.window,
            window_bytes=WINDOW_BYTES,
            gone=remote.gone,
            selector=selector,
        )
        return ""

    def _queue_for(self, request: m.RemoteConsume) -> Queue | None:
        """Return the queue that a host means; None while it is not here."""
        engine, subscription = self._engine, request.subscription
        if subscription is None and request.queue.startswith(TEMPORARY_PREFIX):
            return engine.queue(request.queue)
        queue = engine.queues.get(_wanted_name(request))
        if subscription is not None and subscription.durable:
            queue = engine.topics.named(subscription.key)
            if queue is not None and not (queue.subscription and queue.subscription.is_as(subscription)):
                return None
        elif subscription is not None and queue is None:
            return engine.bind(subscription)
        if queue is not None and queue.made is not None and request.made not in (None, queue.made):
            return None
        return queue

    def _queue_made(self, name: str) -> None:
        node_id = node_of_temporary(name) if name.startswith(TEMPORARY_PREFIX) else ""
        for host in self._hosts.values() if node_id else ():
            if host.node_id == node_id:
                host.link.send(m.ReplyWaits(name))
        for remote in self._wanted.pop(name, ()):
            if self._hosts.get(remote.host.link) is remote.host:  # else its link has ended
                self._consume_for(remote)

    def _displace(self, queue: Queue, by: str) -> None:
        """End the consumers of a subscription: a client at another broker claims it."""
        if queue.consumers:
            _log.info(
                "%s: its consumer here is ended, because a client of broker %s takes it over",
                queue.subscription,
                by,
            )
        for remote in self._remotes_of(queue):
            self._supersede(remote, f"a client of broker {by}")
        for consumer in list(queue.consumers):
            if consumer.remote is not None:
                consumer.remote.lost(f"{queue.subscription} is consumed by a client of broker {by} now")
            self._engine.unsubscribe(consumer)

    def _remotes_of(self, queue: Queue) -> list[RemoteConsumer]:
        return [
            remote
            for host in (*self._hosts.values(), *self._lost)
            for remote in host.consumers.values()
            if remote.consumer in queue.consumers
        ]

    def _supersede(self, remote: RemoteConsumer, by: str) -> None:
        """Take a consumer's place; what it holds stays with its host until that gives it back."""
        consumer = remote.consumer
        assert consumer is not None, "a consumer without a queue is superseded"
        remote.superseded.update(consumer.unacknowledged)
        consumer.unacknowledged.clear()
        remote.consumer = None
        self._engine.unsubscribe(consumer)
        number = remote.request.consumer
        remote.host.link.send(m.RemoteGone(number, f"{consumer.queue.subscription} is consumed by {by} now"))

    def _ended(self, link: ClusterLink, message: m.RemoteEnd) -> None:
        host, remote = self._find(link, message.consumer)
        if host is None or remote is None:
            return
        self._end(remote)
        passing = remote.request.subscription is not None and not remote.request.subscription.durable
        known = self._engine.queues.get(remote.request.queue)
        if known is not None and (passing or known.name.startswith(TEMPORARY_PREFIX)):
            self._drop(known)
        if not remote.taken:
            del host.consumers[message.consumer]

    def _end(self, remote: RemoteConsumer) -> None:
        """End a consumer; what transactions do not hold goes back."""
        name = _wanted_name(remote.request)
        if waiting := self._wanted.get(name):
            waiting.pop(remote, None)
            if not waiting:
                del self._wanted[name]
        if remote.consumer is not None:
            self._engine.unsubscribe(remote.consumer)
            remote.consumer = None
        _return(remote.superseded)

    def _unwanted(self, link: ClusterLink, message: m.ReplyUnwanted) -> None:
        queue = self._engine.queues.get(message.queue)
        if link in self._hosts and queue is not None and queue.name.startswith(TEMPORARY_PREFIX):
            self._drop(queue)

    def _find(self, link: ClusterLink, number: int) -> tuple[Host | None, RemoteConsumer | None]:
        host = self._hosts.get(link)
        return host, None if host is None else host.consumers.get(number)

    # ----------------------------------------------------------------------------------- deliveries

    def _passed(self, link: ClusterLink, message: m.RemotePassed) -> None:
        _, remote = self._find(link, message.consumer)
        if remote is not None:
            remote.note_passed(message.tag)

    def _taken(self, link: ClusterLink, message: m.RemoteTaken) -> None:
        _, remote = self._find(link, message.consumer)
        if remote is None:
            return
        for tag in message.tags:
            delivery = remote.take(tag)
            if delivery is not None:
                remote.taken[tag] = delivery
                delivery.consumer.queue.offer(delivery.consumer)

    def _settle(self, link: ClusterLink, message: m.SettleRequest) -> None:
        self._end_deliveries(link, message, self._engine.commit)

    def _prepare(self, link: ClusterLink, message: m.PrepareRequest) -> None:
        if message.transaction in self._engine.prepared.by_id:
            _answer(link, message, f"transaction {message.transaction} is prepared here already")
            return
        self._end_deliveries(link, message, partial(self._engine.prepare, message.transaction))

    def _end_deliveries(
        self,
        link: ClusterLink,
        message: m.SettleRequest,
        act: Callable[[Transaction, Callable[[], None]], object],
    ) -> None:
        """Do that with what a host holds and names; answer once it is durable."""
        host = self._hosts.get(link)
        named = [
            (number, tag)
            for part in (message.acknowledged, message.refused, message.given_up)
            for number, tags in part.items()
            for tag in tags
        ]
        if host is None or any(
            (remote := host.consumers.get(number)) is None or not remote.holds(tag) for number, tag in named
        ):
            _answer(link, message, "it may have given the message to another consumer")
            return
        transaction = Transaction()
        transaction.acknowledged = _take(host, message.acknowledged)
        transaction.refused = _take(host, message.refused)
        given_up = _take(host, message.given_up)
        transaction.refused += given_up
        transaction.given_up.update(given_up)
        try:
            act(transaction, partial(_answer, link, message))
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        for delivery in transaction.acknowledged:
            delivery.consumer.queue.offer(delivery.consumer)
        self._forget_ended(host, named)

    def _forget_ended(self, host: Host, named: Iterable[tuple[int, int]]) -> None:
        """Forget consumers that have ended, and held these last."""
        for number in dict.fromkeys(number for number, _ in named):
            remote = host.consumers[number]
            is_waiting = remote in self._wanted.get(_wanted_name(remote.request), ())
            if not (remote.consumer or remote.taken or remote.superseded or is_waiting):
                del host.consumers[number]

    def _given_back(self, link: ClusterLink, message: m.RemoteGiveBack) -> None:
        host, remote = self._find(link, message.consumer)
        if host is None or remote is None:
            return
        if message.pauses:
            if remote.consumer is not None:
                remote.consumer.pause()
            host.sender.pause(remote)
        returned = {tag: delivery for tag in message.tags if (delivery := remote.take(tag)) is not None}
        if not message.seen:
            for delivery in returned.values():
                delivery.message.deliveries -= 1
        remote.note_passed(max(message.tags, default=0))
        _return(returned)
        self._forget_ended(host, ((message.consumer, tag) for tag in message.tags))

    def _resumed(self, link: ClusterLink, message: m.RemoteResume) -> None:
        _, remote = self._find(link, message.consumer)
        if remote is not None and remote.consumer is not None:
            remote.consumer.resume()

    def _blob_taken(self, link: ClusterLink, message: m.BlobTaken) -> None:
        host = self._hosts.get(link)
        if host is not None:
            host.sender.taken(message.count)


class _Sender:
    """Sends deliveries over a link, in order; large ones behind their bodies."""

    def __init__(self, engine: Engine, link: ClusterLink) -> None:
        self._engine = engine
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[RemoteConsumer, Delivery | None]] = deque()
        """Deliveries; None says that the consumer is paused."""
        self._task: asyncio.Task[None] | None = None
        self._bodies = BlobSender(link, link.terms.call_timeout_s)

    def send(self, remote: RemoteConsumer, delivery: Delivery) -> None:
        """Send a delivery behind all others."""
        if self._task is None and delivery.message.large is None and self._link.buffered < LINK_BYTES:
            self._say(remote, delivery)
            return
        self._waiting.append((remote, delivery))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"messages for {self._link.peer}")

    def pause(self, remote: RemoteConsumer) -> None:
        """Say that a consumer gets no more, behind what waits to be sent to it."""
        if self._task is None:
            self._link.send(m.RemotePaused(remote.request.consumer))
        else:
            self._waiting.append((remote, None))

    def taken(self, count: int) -> None:
        """Note that the host has written so many bytes of a body."""
        self._bodies.taken(count)

    def stop(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        self._bodies.stop()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting and not self._link.closed:
                await self._link.drain()
                if not self._waiting:
                    break
                remote, delivery = self._waiting.popleft()
                if delivery is None:
                    self._link.send(m.RemotePaused(remote.request.consumer))
                    continue
                if not remote.holds(delivery.tag):
                    continue  # the consumer has ended
                if delivery.message.large is None or await self._send_body(delivery):
                    self._say(remote, delivery)
                else:
                    remote.note_unsent(delivery)
        except TimeoutError:
            self._link.abort("a host has not written a large message within call-timeout")
        finally:
            self._task = None

    async def _send_body(self, delivery: Delivery) -> bool:
        """Send the body of a large message; False if it cannot be read."""
        store, large = self._engine.large.store, delivery.message.large
        assert store is not None, "a blob where none can be kept"
        assert large is not None, "a message without a blob"
        try:
            await self._bodies.send(store, large)
        except (OSError, JournalDamagedError) as error:
            if isinstance(error, TimeoutError):
                raise
            _log.error(
                "a large message of %r stays here, because its body cannot be read: %s",
                delivery.message.target[:128],
                error,
            )
            return False
        return True

    def _say(self, remote: RemoteConsumer, delivery: Delivery) -> None:
        message, engine = delivery.message, self._engine
        expires = 0 if message.properties is None else message.properties.expires
        self._link.send(
            m.RemoteDelivery(
                remote.request.consumer,
                delivery.tag,
                message.id,
                self._loop.time() + (expires - engine.now()) / 1000 if expires else None,
                m.Envelope.of(message, engine.settings.node_id),
            )
        )


def _wanted_name(request: m.RemoteConsume) -> str:
    """Return the name that the queue has when the cluster makes it now."""
    return request.queue if request.subscription is None else request.subscription.queue


def _is_recorded(request: m.RemoteConsume) -> bool:
    """Return whether a host consumes a durable subscription of the change record."""
    return request.made is not None and request.subscription is not None


def _answer(link: ClusterLink, request: m.Request, reason: str = "") -> None:
    """Answer a request of a host."""
    link.send(m.Settled(request.number, reason, asyncio.get_running_loop().time()))


def _take(host: Host, named: dict[int, tuple[int, ...]]) -> list[Delivery]:
    """Take out the deliveries that a host names, and holds."""
    taken = (host.consumers[number].take(tag) for number, tags in named.items() for tag in tags)
    return [delivery for delivery in taken if delivery is not None]


def _return(held: dict[int, Delivery]) -> None:
    """Give deliveries back to their queues."""
    deliveries = list(held.values())
    held.clear()
    give_back(deliveries, refused=False)
