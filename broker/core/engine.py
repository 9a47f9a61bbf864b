"""The engine: all that a live broker does with messages, over one journal.

Queues, messages, acknowledgements and transactions.

Why it exists only while the broker is live: what a backup has is a journal, and the policy builds
an engine from it the moment it may serve; when the broker is demoted, ``abandon`` ends it without a
word to anybody. Who may be answered is never decided here but by the ``DurabilityGate``: a callback
that stands for a receipt is only ever given to it.

What happens when
    send          entry appended -> durable: message arrives in its queue, producer is answered ->
                  dispatch
    acknowledge   entry appended, message settled in memory -> durable: consumer is answered
    refuse        entry appended (counts, or the move to the dead letters) -> durable: consumer is
                  answered, message back in its place
    commit        all of it in one entry
    prepare       entry appended (PREPARED) -> durable: the coordinator is answered; the messages
                  are with nobody until ``commit_prepared`` or ``roll_back_prepared``
Nothing is dispatched while the gate is held: what a broker that may no longer be the live one
delivers, another may deliver too.

``redelivered`` after a restart: dispatches are not journalled, so a broker that did not end cleanly
cannot know which of the recovered messages a client has seen. All of them are delivered with
``redelivered`` true and at least one earlier delivery counted: an earlier delivery cannot be
excluded. A clean end (``stop``) records the counts, and then they are exact.

For the cluster: ``route`` decides where a message goes (``Router``), ``subscribe(internal=True)``
is how a bridge consumes a store-and-forward queue, ``accept_forwarded`` how the other side takes a
message exactly once, ``move`` how a message leaves a queue for another broker,
``consumer_observers`` and ``queue_observers`` what on-demand balancing and redistribution need,
``feeds`` what clients subscribe to under ``$SYS.``.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from broker.core import browsing, recovery
from broker.core.backlog import CHUNK
from broker.core.blobs import LargeBodies
from broker.core.browsing import Browsing, QueueStatus
from broker.core.changes import Changes
from broker.core.consumer import Delivery, QueueConsumer
from broker.core.deadletters import dead_letter, is_dead
from broker.core.dropped import Dropped
from broker.core.duplicates import Duplicates, SentId, encode_forwarded, encode_sent
from broker.core.expiry import SCANNED, ExpiryScan, expired_letter
from broker.core.feed import WatchedValue
from broker.core.identity import MessageId
from broker.core.interests import Interest, Interests, encode_known
from broker.core.limit_updates import LimitUpdates
from broker.core.limits import LimitedQueue, Limits
from broker.core.memory import Memory
from broker.core.message import (
    CLAIMED,
    CLEAN,
    DECIDED,
    DROPPED,
    FORWARDED,
    HOST,
    KNOWN,
    MESSAGE,
    PREPARED,
    QUEUE,
    SENT,
    SUBSCRIPTION,
    Message,
    encode,
    readdressed,
)
from broker.core.open_transactions import OpenTransactions
from broker.core.outcomes import arrived, arrived_together, give_back, refused
from broker.core.paging import Paging
from broker.core.prepared import PreparedTransaction, PreparedTransactions, messages_of
from broker.core.properties import bounded, changes_expiry
from broker.core.queue import Queue
from broker.core.reaper import Reaper
from broker.core.selector import Selector
from broker.core.settings import EngineSettings, Homes, InterestNews, Router
from broker.core.subscription import (
    TEMPORARY_PREFIX,
    TOPIC_PREFIX,
    Subscription,
    SubscriptionInUseError,
    SubscriptionKey,
    encode_subscription,
    node_of_temporary,
)
from broker.core.topics import Topics
from broker.core.transactions import Transaction
from broker.core.transient import TransientQueues
from broker.core.two_phase import (
    Decision,
    TransactionId,
    decode_decided,
    encode_decided,
    encode_prepared,
)
from broker.seams import Seams
from broker.storage.entries import EntryStore
from broker.storage.entry import ADD, DELETE, UPDATE, Operation
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Recovered
from broker.turn_budget import COPY, REMOVAL, TurnBudget

Callback = Callable[[], None]
_log = logging.getLogger(__name__)


class DemotedError(Exception):
    """No longer live, so nobody is answered: close the connection and look for the new live."""


class Engine:
    """All of a live broker but its connections.

    Every method is for the loop's thread and returns at once, except ``stop``.

    ``recovered`` is what ``Journal.open`` found. Methods that change something return the sequence
    of the journal entry; their ``done`` is called once that is durable, in order of sequences,
    never within the call. After ``abandon`` they raise DemotedError.
    """

    def __init__(
        self,
        journal: EntryStore,
        recovered: Recovered,
        gate: DurabilityGate,
        settings: EngineSettings,
        seams: Seams,
        router: Router | None = None,
    ) -> None:
        self.journal = journal
        self.gate = gate
        # Its own address book: an administrator may change the limits of this engine's queues.
        self.settings = settings = replace(settings, addresses=settings.addresses.copy())
        self.seams = seams
        self.router = router
        self.incarnation = f"{seams.random.getrandbits(48):012x}"
        """New for each engine: an ack id or session named with it is of no earlier life."""
        self.queues: dict[str, Queue] = {}
        self.feeds: dict[str, WatchedValue] = {}
        self.consumer_observers: list[Callable[[str, int], None]] = []
        """Called with (queue, number of clients' consumers) after each change."""
        self.queue_observers: list[Callable[[str], None]] = []
        """Called with the name of each queue that is made."""
        self.on_abandon: list[Callback] = []
        """Called by ``abandon``, to cut connections."""
        self.budget = TurnBudget(seams.turn_watch)
        """Of what is done for clients in one turn of the loop."""
        gate.budget = self.budget
        self.topics = Topics(self.budget)
        self.limits: Limits | None = None
        """Asked for each send, too; None if none are configured."""
        if settings.max_messages >= 0 or settings.addresses.has_limits or settings.counts_all:
            self.limits = Limits(
                settings.addresses, settings.max_messages, self.queues, self.topics, self._was_sent
            )
        self.limit_updates = LimitUpdates(settings.addresses)
        self.memory = Memory(settings.global_max_size, self.queues, self.topics, settings.keeper, self.limits)
        """Who sends must ask it first: ``is_full``, ``wait``; open transactions ``reserve``."""
        self.transactions = OpenTransactions(self.memory, settings.transactions)
        self.large = LargeBodies(journal.large, journal, gate)
        self.paging = Paging(journal, gate, self.memory, self.large)
        self.prepared = PreparedTransactions()
        self.paging.on_prepared = self.prepared.found_on
        self.decided: dict[TransactionId, Decision] = {}
        """Transactions of our clients that span brokers, and that these have to commit, too."""
        self.abandoned = False
        self.interests = Interests(self.topics.forward)
        """What subscriptions of other nodes want."""
        self.news: InterestNews | None = None
        """Where brokers tell each other of their subscriptions; see ``told`` and ``heard``."""
        self.hosts: dict[str, int] = {}
        """The brokers whose clients may hold messages of this one: address -> record."""
        self.homes: Homes | None = None
        """The other brokers of a conventional cluster, whose messages clients get here, too."""
        self.changes: Changes | None = None
        """Where durable subscriptions are made and dropped in a conventional cluster."""
        self._reaper = Reaper(self.queues, self.remove)
        self._expiry_scan = ExpiryScan(settings.expiry_scan_period_s, self._scan, self.budget)
        self._dropped = Dropped(self._read_prepared, self._purge, self._forget, self.budget)
        self.transient = TransientQueues(settings.transient_wait_s, self.drop)
        self._forwarded: Duplicates[MessageId] = Duplicates()
        self._sent: Duplicates[SentId] = Duplicates(max_bytes=settings.max_duplicate_ids_size)
        self._suspended = False
        self._waits_for_gate = False
        self._marked_clean = False
        self.adopt(recovered)

    # --------------------------------------------------------------------------------------- queues

    def queue(self, name: str) -> Queue:
        """The queue of that name; it is created, durably, when it is not there."""
        queue = self.queues.get(name)
        if queue is None:
            self._check()
            queue_id = self.journal.next_id()
            self.journal.append((Operation(ADD, QUEUE, queue_id, name.encode()),))
            queue = self._add_queue(name, queue_id)
            self.observe_queue(name)
        return queue

    def observe_queue(self, name: str) -> None:
        """Tell observers that a queue was made, here or by a change of the whole cluster."""
        for observer in self.queue_observers:
            observer(name)

    def bind(self, subscription: Subscription, user: str = "") -> Queue:
        """Return the queue of a subscription, which is made, durably, if it is not there.

        A durable one that wants something else than it did is dropped and made anew (JMS). Raises
        SubscriptionInUseError where it has consumers, too. Whether the ``user``, whom the log
        names, may do that is the caller's to decide.
        """
        self._check()
        known = self.topics.named(subscription.key) if subscription.durable else None
        operations: list[Operation] = []
        if known is not None:
            if known.subscription is not None and known.subscription.is_as(subscription):
                return known
            self.end_leaving(known)
            if known.consumers:
                raise SubscriptionInUseError(
                    f"{known.subscription} has a consumer: it cannot be changed meanwhile"
                )
            _log.warning(
                "%s and its %d waiting messages are deleted, because user %r subscribes again with topic %r "
                "and selector %r",
                known.subscription,
                len(known),
                user[:64],
                subscription.topic,
                subscription.selector[:64],
            )
            operations = self._ending(known)
        queue_id = self.journal.next_id()
        operations.append(self._adding(queue_id, subscription))
        self.journal.append(operations)
        return self._add_queue(subscription.queue, queue_id, subscription)

    def claim(self, queue: Queue, login: str) -> int:
        """Give an unclaimed subscription, which has no consumer, to a login, durably.

        Whether the login may have it is the caller's to decide.
        """
        self._check()
        unclaimed = _subscription_of(queue)
        assert unclaimed.is_unclaimed, f"{unclaimed} belongs to somebody"
        assert not queue.consumers, f"{unclaimed} has a consumer"
        claimed = unclaimed.claimed(login)
        _log.warning(
            "%s, stored without a login, now belongs to user %r, with its %d messages",
            unclaimed,
            login[:64],
            len(queue),
        )
        del self.queues[queue.name]
        self.topics.claim(queue, claimed)
        queue.name = claimed.queue
        self.queues[queue.name] = queue
        return self.journal.append([self._claiming(id_, login) for id_ in (queue.id, *queue.also)])

    def drop(self, queue: Queue) -> int:
        """A subscription or a temporary queue, without consumers, is no more, nor what waits."""
        self._check()
        operations = self._ending(queue)
        return self.journal.append(operations) if operations else self.journal.last_sequence

    def remove(self, queue: Queue) -> int:
        """Delete a queue that is ``idle``."""
        self._check()
        assert queue.idle, f"queue {queue.name} is deleted with {queue.size} bytes in it"
        operations = self._leave_out(queue)
        for redistributor in queue.consumers:
            assert redistributor.gone is not None, (
                "a redistributor that hears nothing of the end of its queue"
            )
            redistributor.gone()
        return self.journal.append([*operations, *self._deletion(queue)])

    def change(
        self,
        dropped: Sequence[Queue],
        names: Iterable[str],
        subscriptions: Iterable[Subscription],
        operations: Iterable[Operation],
    ) -> int:
        """Drop queues with all that is in them, and make others, as the change record says.

        Consumers of the dropped ones are told, and end. ``operations`` belong to the record itself;
        all is one entry.
        """
        self._check()
        for queue in dropped:
            for consumer in list(queue.consumers):
                self.unsubscribe(consumer)
                if consumer.gone is not None:
                    consumer.gone()
        entry = [*operations]
        for queue in dropped:
            entry += self._ending(queue)
        for name in names:
            queue_id = self.journal.next_id()
            entry.append(Operation(ADD, QUEUE, queue_id, name.encode()))
            self._add_queue(name, queue_id)
        for subscription in subscriptions:
            queue_id = self.journal.next_id()
            entry.append(self._adding(queue_id, subscription))
            self._add_queue(subscription.queue, queue_id, subscription)
        return self.journal.append(entry)

    def holders_of(self, target: str) -> Collection[Queue]:
        """Return the queue of that name, or those of all subscriptions of ``/topic/NAME``."""
        if target.startswith(TOPIC_PREFIX) and target not in self.queues:
            return self.topics.bound(target)
        queue = self.queues.get(target)
        return () if queue is None else (queue,)

    def pause_destination(self, target: str, sides: Iterable[str]) -> None:
        """Pause a destination for producers, consumers or both: see ``core.pauses``."""
        self.memory.pauses.pause(target, sides)
        for queue in self.holders_of(target):
            self.memory.pauses.apply(queue)

    def resume_destination(self, target: str) -> None:
        """End the pause of a destination."""
        self.memory.pauses.resume(target)
        for queue in self.holders_of(target):
            self.memory.pauses.apply(queue)
            if queue.settings.auto_delete_queues and not queue.client_consumers():
                self._reaper.consider(queue)
        self.memory.look_again()

    def browse(self, queue: str | None = None) -> Browsing:
        """Every message stored now, whoever holds it, oldest first within each queue.

        Of one queue if named.
        """
        return Browsing(self.queues, self.settings, self.paging, queue)

    def status(self, names: Iterable[str] | None = None) -> list[QueueStatus]:
        """Counts of these queues, or of all, by name."""
        return browsing.status(self.queues, self.settings, names)

    def consumers(self, queue: str) -> int:
        """How many clients' consumers a queue has."""
        known = self.queues.get(queue)
        return known.client_consumers() if known else 0

    def selectors(self, queue: str) -> Sequence[Selector]:
        """Return the distinct selectors of clients' consumers of a queue, if each has one."""
        known = self.queues.get(queue)
        return known.client_selectors() if known else ()

    async def purge(self, queue: str) -> int:
        """Delete what waits in the queue now and no consumer holds.

        How many that were, once it is durable.

        In slices, with others served in between; each is one entry, so a crash half-way leaves the
        rest of it.
        """
        count = 0
        if queue in self.queues:
            await self._read_prepared(self.queues[queue])
        for purged in self.purging(queue):
            count += purged
            self.budget.spend(REMOVAL * purged)
            await asyncio.sleep(0)
            await self.budget.room()
        await self.flushed()
        return count

    async def flushed(self) -> None:
        """Return when everything appended before the call is durable, and may be answered."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gate.when_durable(
            self.journal.last_sequence, lambda: None if durable.done() else durable.set_result(None)
        )
        await durable

    def purging(self, queue: str) -> Iterator[int]:
        """The slices of ``purge``: each step deletes some, and says how many."""
        self._check()
        known = self.queues.get(queue)
        if known is not None:
            yield from self._purge(known)

    # ------------------------------------------------------------------------------------ producers

    def shares(self, target: str, body_size: int) -> bool:
        """Return whether a body of that size has to be in a file before it is sent there."""
        return self.large.store is not None and self.topics.shares(target, body_size)

    def send(self, queue: str, message: Message, done: Callback | None = None) -> int:
        """Take a message; it is in its queue, and ``done`` is called, once it is durable.

        For a topic it is then in the queue of each subscription that wants it.
        """
        self._check()
        if message.properties is not None and message.properties.once:
            return self._send_once(queue, message, done)
        if queue[0] == "/":
            return self._send_to_all(self._holders(queue, message), message, done)
        holder = self._holder(queue, message)
        if isinstance(holder, LimitedQueue):
            return self._send_to_all((holder,), message, done)
        message.id = record_id = self.journal.next_id()
        sequence = self.journal.append((Operation(ADD, MESSAGE, record_id, encode(message, holder.id)),))
        self.memory.take(holder, message.size)
        self.gate.when_durable(sequence, partial(arrived, holder, message, done))
        return sequence

    def accept_forwarded(
        self, sender: str, messages: Sequence[Message], done: Callback | None = None, passing: str = ""
    ) -> int:
        """Take messages that the broker with the node ID ``sender`` has forwarded, each once.

        If they are only passed on, ``passing`` is the store-and-forward queue of their destination.

        A message that was taken before is not stored again. Messages are taken in order, until the
        queue of one has no room: return how many were. ``done`` is called once these are durable.
        A large one needs no room: its body is stored already. All that is new is one entry.
        """
        self._check()
        last_known = 0
        operations: list[Operation] = []
        arrivals: list[tuple[Queue, Message]] = []
        taken: list[MessageId] = []
        count = 0
        for message in messages:
            identity = message.identity
            assert identity is not None, "a forwarded message without an identity"
            known = self._forwarded.sequence(identity)
            if known is not None:
                last_known = max(last_known, known)
                self.large.settled((message,))
                count += 1
                continue
            target = passing or message.target
            if message.large is None and self.memory.is_full(target, forwarded=True):
                break
            holders: Sequence[Queue]
            if target.startswith("/"):
                holders = self._wanting(target, message, forwarded=True)
            else:
                holders = (self.queue(target),)
                if not (passing or identity.moves):  # else it enters no main queue, or not its first one
                    self._bound_expiry(message, holders[0])
            added, places = self._stored(holders, message)
            operations += added
            arrivals += places
            if places and message.deliveries:
                operations += self.paging.counts((message,))
            mark = self.journal.next_id()
            operations.append(Operation(ADD, FORWARDED, mark, encode_forwarded(sender, identity)))
            for record_id in self._forwarded.remember(sender, identity, mark, 0):
                operations.append(Operation(DELETE, FORWARDED, record_id))
            taken.append(identity)
            count += 1
        sequence = self.journal.append(operations) if operations else last_known
        for identity in taken:
            self._forwarded.accepted(identity, sequence)
        self.gate.when_durable(sequence, partial(arrived_together, self.budget, arrivals, done))
        return count

    def was_forwarded(self, identity: MessageId) -> bool:
        """Return whether the message with that identity was taken from another broker."""
        return self._forwarded.sequence(identity) is not None

    def take_interest(
        self, node_id: str, news: Mapping[str, Interest], done: Callback | None = None, *, whole: bool
    ) -> int:
        """Take what subscriptions of another node want of some topics; ``whole``: of all.

        From now on messages to these topics are kept for that node, too, if they are wanted.
        ``done`` is called once a restart remembers it.
        """
        self._check()
        queue = self.queue(self.settings.forwarding_queue(node_id))
        operations = self.interests.replace(node_id, queue, news, self.journal.next_id, whole=whole)
        sequence = self.journal.append(operations) if operations else self.journal.last_sequence
        if done is not None:
            self.gate.when_durable(sequence, done)
        return sequence

    def note_known(self, node_id: str, upto: int, record: int) -> None:
        """Note that another node knows our subscriptions up to a number (``Topics.count``).

        They get what that node stores from that record of its own on.
        """
        self._check()
        data = encode_known(node_id, record)
        operations = [
            Operation(UPDATE, KNOWN, id_, data)
            for queue in self.topics.known_by(node_id, upto, record)
            if queue.subscription is not None and queue.subscription.durable
            for id_ in (queue.id, *queue.also)
        ]
        if operations:
            self.journal.append(operations)

    def end_passing_interest(self, node_id: str) -> None:
        """Keep no more messages for subscriptions of a node that end with their connections."""
        queue = self.queues.get(self.settings.forwarding_queue(node_id))
        if queue is not None:
            self.interests.end_passing(node_id, queue)

    def add_host(self, address: str, done: Callback) -> None:
        """Remember that clients of the broker at an address may hold messages from now on.

        ``done`` is called once a restart remembers it.
        """
        self._check()
        if address not in self.hosts:
            record_id = self.hosts[address] = self.journal.next_id()
            self.journal.append((Operation(ADD, HOST, record_id, address.encode()),))
        self.gate.when_durable(self.journal.last_sequence, done)

    def remove_host(self, address: str) -> None:
        """Forget a broker whose clients certainly hold no message any more."""
        self._check()
        if (record_id := self.hosts.pop(address, None)) is not None:
            self.journal.append((Operation(DELETE, HOST, record_id),))

    def forget_interest(self, queue: Queue) -> None:
        """Keep no more messages to topics in a store-and-forward queue, which is to be deleted."""
        node_id = queue.name.removeprefix(self.settings.forwarding_queue(""))
        if operations := self.interests.forget(node_id, queue):
            self.journal.append(operations)

    def move(self, deliveries: Sequence[Delivery], node_id: str) -> int:
        """Move messages from a main queue to the store-and-forward queue of another broker.

        Each delivery must still be held by its consumer, an internal one. All is one entry: after a
        crash each message is in one of the two queues.
        """
        self._check()
        holder = self.queue(self.settings.forwarding_queue(node_id))
        operations: list[Operation] = []
        arrivals = []
        for delivery in deliveries:
            message = delivery.message
            moved = message.copy()
            moved.identity = message.identity_at(self.settings.node_id).moved()
            moved.deliveries, moved.refusals = message.deliveries, message.refusals
            self.large.copied(moved)
            added, places = self._stored((holder,), moved)
            operations += added
            arrivals += places
        operations += self.paging.counts(moved for _, moved in arrivals if moved.deliveries)
        operations += self.paging.removals([one.message for one in deliveries])
        sequence = self.journal.append(operations)
        self._take_from_consumers(deliveries)
        self.gate.when_durable(sequence, partial(arrived_together, self.budget, arrivals, None))
        return sequence

    # ------------------------------------------------------------------------------------ consumers

    def subscribe(
        self,
        queue: str,
        deliver: Callable[[Delivery], None],
        *,
        window: int | None = None,
        window_bytes: int = sys.maxsize,
        auto: bool = False,
        internal: bool = False,
        redistributor: bool = False,
        gone: Callback | None = None,
        selector: Selector | None = None,
    ) -> QueueConsumer:
        """Consume a queue, or what of it a ``selector`` matches.

        ``window`` is the prefetch, by default that of the address settings; see ``QueueConsumer``
        for ``window_bytes``. End it with ``unsubscribe``.
        """
        self._check()
        known = self.queue(queue)
        consumer = QueueConsumer(
            known,
            deliver,
            known.settings.default_consumer_window if window is None else window,
            window_bytes=window_bytes,
            auto=auto,
            internal=internal,
            redistributor=redistributor,
            gone=gone,
            selector=selector,
        )
        known.join(consumer)
        self._observe(known, consumer)
        return consumer

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """End a consumer; what it holds goes back to its place, for others."""
        if consumer.closed:
            return
        if consumer.remote is not None:
            consumer.remote.end()
        queue = consumer.queue
        queue.leave(consumer)
        self._observe(queue, consumer)
        if queue.settings.auto_delete_queues and not (self._suspended or self.abandoned):
            self._reaper.consider(queue)

    def end_leaving(self, queue: Queue) -> None:
        """Unsubscribe at once the consumers of a queue whose clients are gone."""
        for consumer in [consumer for consumer in queue.consumers if consumer.leaving]:
            self.unsubscribe(consumer)

    def acknowledge(self, deliveries: Sequence[Delivery], done: Callback | None = None) -> int:
        """The messages are consumed. Each delivery must still be held by its consumer."""
        self._check()
        sequence = self._append(self.paging.removals([one.message for one in deliveries]), done)
        self._take_from_consumers(deliveries)
        return sequence

    def refuse(
        self, deliveries: Sequence[Delivery], done: Callback | None = None, *, for_good: bool = False
    ) -> int:
        """The client refuses them (NACK): back in place, or to the dead letters after too many.

        ``for_good``: it wants none of them again, so they are dead letters at once.
        """
        self._check()
        for delivery in deliveries:
            del delivery.consumer.unacknowledged[delivery.tag]
        return self._refuse(deliveries, [], [], done, frozenset(deliveries) if for_good else frozenset())

    # --------------------------------------------------------------------------------- transactions

    def commit(
        self, transaction: Transaction, done: Callback | None = None, decision: Decision | None = None
    ) -> int:
        """Do all that the transaction holds, in one entry.

        If any of its sends repeats one that was taken before, by its id, none of them is stored.
        With the ``decision`` that other brokers commit their parts, that is in the entry, too.
        """
        self._check()
        for delivery in transaction.acknowledged:
            self._settle(delivery)  # first: a queue with a limit has room for as many sends
        operations = []
        arrivals = []
        if decision is not None:
            operations.append(Operation(ADD, DECIDED, decision.record_id, encode_decided(decision)))
        taken = []
        repeated = any(self._was_sent(queue, message) for queue, message in transaction.sends)
        for queue, message in transaction.sends:
            if repeated or self._was_sent(queue, message):
                self.large.settled((message,))
                continue
            if (sent := self._sent_id(queue, message)) is not None:
                taken.append(sent)
                operations += self._remembered(sent)
            added, places = self._stored(self._holders(queue, message), message)
            operations += added
            arrivals += places
        operations += self.paging.removals([one.message for one in transaction.acknowledged])
        sequence = self._refuse(transaction.refused, operations, arrivals, done, transaction.given_up)
        for sent in taken:
            self._sent.accepted(sent, sequence)
        if decision is not None:
            self.decided[decision.id] = decision
        return sequence

    def roll_back(
        self, transaction: Transaction, *, refused: bool = True, done: Callback | None = None
    ) -> int | None:
        """Undo it; the messages it acknowledged go back.

        ``refused``: the client said so (ABORT), which counts as a delivery attempt; the loss of its
        connection does not. Returns None, and calls ``done`` soon, where nothing had to be written.
        """
        self.large.undone(transaction)
        deliveries = transaction.acknowledged + transaction.refused
        if refused and deliveries:
            self._check()
            return self._refuse(deliveries, [], [], done)
        give_back(deliveries, refused=False)
        if done is not None:
            self.gate.when_durable(self.journal.last_sequence, done)
        return None

    def new_transaction_id(self) -> TransactionId:
        """Return an id for a transaction that spans brokers, which this broker coordinates."""
        return TransactionId(self.settings.node_id, self.journal.next_id())

    def new_decision(self, id_: TransactionId, homes: Iterable[str]) -> Decision:
        """Return the decision that ``commit`` takes: the nodes ``homes`` have prepared."""
        return Decision(self.journal.next_id(), id_, self.now(), tuple(homes))

    def forget_decision(self, id_: TransactionId) -> None:
        """Forget that a transaction commits: all its participants have committed, durably."""
        self._check()
        if (decision := self.decided.pop(id_, None)) is not None:
            self.journal.append((Operation(DELETE, DECIDED, decision.record_id),))

    def prepare(self, id_: TransactionId, transaction: Transaction, done: Callback | None = None) -> int:
        """Promise another broker to do what the transaction holds, or to undo it, as that decides.

        It has no sends. From now on its messages are with nobody, until one of the next two.
        """
        self._check()
        assert not transaction.sends, "messages are sent at the coordinator"
        assert id_ not in self.prepared.by_id, f"transaction {id_} is prepared twice"
        messages = list(messages_of(transaction))
        record_id, since = self.journal.next_id(), self.now()
        sequence = self._append(
            (Operation(ADD, PREPARED, record_id, encode_prepared(id_, since, messages)),), done
        )
        self.prepared.add(PreparedTransaction(id_, record_id, since, transaction, len(messages)))
        return sequence

    async def commit_prepared(self, id_: TransactionId) -> bool:
        """Do what a prepared transaction holds, and return when it is durable, also done before.

        False if it is not prepared here (any more). Raises OSError, JournalDamagedError for a page
        that cannot be read.
        """
        prepared = await self._take_prepared(id_)
        if prepared is not None:
            transaction = prepared.transaction
            operations = self.paging.removals([delivery.message for delivery in transaction.acknowledged])
            operations.append(Operation(DELETE, PREPARED, prepared.record_id))
            for delivery in transaction.acknowledged:
                self._settle(delivery)
            self._refuse(transaction.refused, operations, [], None, transaction.given_up)
        await self.flushed()
        return prepared is not None

    async def roll_back_prepared(self, id_: TransactionId) -> bool:
        """Undo a prepared transaction: its messages go back to their places.

        No client has refused them, so this counts as no delivery attempt. Returns and raises as
        ``commit_prepared`` does.
        """
        prepared = await self._take_prepared(id_)
        if prepared is not None:
            self.journal.append((Operation(DELETE, PREPARED, prepared.record_id),))
            give_back(prepared.transaction.acknowledged + prepared.transaction.refused, refused=False)
        await self.flushed()
        return prepared is not None

    # ----------------------------------------------------------------------------------------- life

    def suspend(self) -> None:
        """Dispatch nothing for now.

        A held gate suspends too, by itself: then nobody knows whether this broker is still the live
        one.
        """
        self._suspended = True

    def resume(self) -> None:
        """Go on after ``suspend``."""
        self._suspended = False
        self._wake()

    async def stop(self) -> None:
        """Ends cleanly.

        Everything held goes back, delivery counts are recorded, and all of it is durable on return.

        Stop the server first. Waits as long as the gate is held: bound it.
        """
        if self.abandoned:
            return
        self.suspend()
        for queue in self.queues.values():
            for consumer in list(queue.consumers):
                self.unsubscribe(consumer)
        self.paging.stop()
        self.transactions.stop()
        self._reaper.stop()
        self._expiry_scan.stop()
        self._dropped.stop()
        self.transient.stop()
        operations = self.paging.final_counts(self.queues.values())
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append(
            [*operations, Operation(ADD, CLEAN, self.journal.next_id())],
            lambda: None if durable.done() else durable.set_result(None),
        )
        await durable

    def adopt(self, recovered: Recovered, *, taken_over: bool = False) -> None:
        """Take what a journal held: at the start our own, later that of a broker taken over."""
        collecting = gc.isenabled()
        gc.disable()  # nothing of it is garbage: with 100,000 queues looking for some took half of the time
        try:
            self._adopt(recovered, taken_over=taken_over)
        finally:
            if collecting:
                gc.enable()

    def _adopt(self, recovered: Recovered, *, taken_over: bool) -> None:
        image = recovery.read(recovered.records, self._keeps)
        operations = self._claim_twins(image)
        superseded = self._superseded(image)
        for record in image.limits:
            self.limit_updates.adopt(record.id, record.data)
        for queue_id, name in image.queues.items():
            if name in self.queues:
                self.queues[name].also.append(queue_id)
            else:
                self._add_queue(name, queue_id, image.subscriptions.get(queue_id))
        dropped = {name: self._new_queue(name, queue_id) for queue_id, name in image.dropped.items()}
        found = [(self.queues[name], *line) for name, line in image.lines(image.queues).items()]
        found += [(dropped[name], *line) for name, line in image.lines(image.dropped).items()]
        self.prepared.adopt(image.prepared)
        prepared_pages = image.prepared_pages
        for queue, line, size in found:
            self.memory.take(queue, size)
            least = image.least_deliveries_in(queue.name)
            queue.adopt(
                self.prepared.find(queue, line, prepared_pages, least), size=size, least_deliveries=least
            )
        for record in image.decided:
            decision = decode_decided(record.id, record.data, self.settings.node_id)
            self.decided[decision.id] = decision
        if self.memory.over:
            self.paging.relieve()
        for name in image.queues.values():
            if self.queues[name].settings.auto_delete_queues:
                self._reaper.consider(self.queues[name])
        self.large.adopt(image.large)
        self.paging.blobs.adopt(page.blob for page in image.all_pages)
        for queue in dropped.values():
            if taken_over and self.transient.keep(queue):
                self.queues[queue.name] = queue
                continue
            queue.drop()
            self._dropped.add(queue)
        operations += [Operation(UPDATE, DROPPED, queue_id) for queue_id in superseded]
        operations += [Operation(DELETE, CLEAN, mark) for mark in image.clean_marks]
        for record_id, sender, identity in image.forwarded:
            forgotten = self._forwarded.remember(sender, identity, record_id, 0)
            operations += [Operation(DELETE, FORWARDED, forgotten_id) for forgotten_id in forgotten]
        for queue_id, nodes in image.known.items():
            if queue_id in image.subscriptions:
                self.topics.adopt_known(self.queues[image.queues[queue_id]], nodes)
        for record_id, interest in image.interests:
            forwarding = self.queue(self.settings.forwarding_queue(interest.node_id))
            operations += self.interests.adopt(record_id, interest, forwarding)
        for record_id, address in image.hosts:
            self.hosts[address] = record_id
        for record_id, sent in image.sent:
            size = self._ids_kept(sent.target)
            forgotten = self._sent.remember(sent.target, sent, record_id, 0, size)
            operations += [Operation(DELETE, SENT, forgotten_id) for forgotten_id in forgotten]
        if operations:
            sequence = self.journal.append(operations)
            if image.clean_marks:
                # A crash must not find the mark once anybody has got a message: its counts would be
                # believed.
                self._marked_clean = True
                self.gate.when_durable(sequence, self._mark_gone)
        for prepared in image.prepared:
            _log.warning(
                "transaction %s is prepared here: its %d messages wait for the decision of its coordinator, "
                "the broker with node ID %s (brokerctl transactions)",
                prepared.id,
                len(prepared.messages),
                prepared.id.coordinator,
            )
        _log.info(
            "recovered %d messages in %d queues after %s shutdown",
            image.count,
            len(image.queues),
            "a clean" if image.clean else "an unclean",
        )

    def _keeps(self, temporary: str) -> bool:
        """Return whether a temporary queue is kept: its client may still be at another broker."""
        return self.settings.stays_home and node_of_temporary(temporary) != self.settings.node_id

    def _claim_twins(self, image: recovery.Image) -> list[Operation]:
        """Claim subscriptions without a login for the one that has the same in the other store.

        Of two brokers one has seen the client since it stores logins, the other has not. Where two
        logins have the same, nothing is claimed, nor within one store: a broker that has both there
        has served clients without logins, too. Returns the operations that claim those of the
        image; ours are claimed at once.
        """
        our_logins, their_logins = _logins(self.topics.durable), _logins(image.subscriptions.values())
        operations = []
        for queue_id, theirs in list(image.subscriptions.items()):
            logins = our_logins.get((theirs.client, theirs.name), {})
            if theirs.is_unclaimed and len(logins) == 1:
                (login,) = logins
                ours = self.topics.named(theirs.key._replace(login=login))
                if ours is not None and theirs.claimed(login).is_as(_subscription_of(ours)):
                    image.claim(queue_id, login)
                    operations.append(self._claiming(queue_id, login))
        for theirs in image.subscriptions.values():
            logins = their_logins.get((theirs.client, theirs.name), {})
            if list(logins) == [theirs.login]:
                ours = self.topics.named(theirs.key._replace(login=""))
                if (
                    ours is not None
                    and not ours.consumers
                    and _subscription_of(ours).claimed(theirs.login).is_as(theirs)
                ):
                    self.claim(ours, theirs.login)
        return operations

    def _superseded(self, image: recovery.Image) -> list[int]:
        """Adopted subscriptions whose client has one here that wants something else: dropped.

        The ids of their records.
        """
        wanted: dict[SubscriptionKey, Subscription] = {}
        superseded = []
        for queue_id, subscription in image.subscriptions.items():
            known = self.topics.named(subscription.key)
            here = wanted.setdefault(
                subscription.key,
                subscription if known is None or known.subscription is None else known.subscription,
            )
            if not here.is_as(subscription):
                superseded.append(queue_id)
                _log.warning(
                    "%s with selector %r, which this broker took over, is deleted with its %d messages: its "
                    "client uses it at this broker with another topic or selector",
                    subscription,
                    subscription.selector,
                    len(image.messages.get(queue_id, ())),
                )
        for queue_id in superseded:
            image.drop(queue_id)
        return superseded

    def abandon(self) -> None:
        """The broker is demoted.

        Connections are cut, nobody is answered, nothing is acknowledged from now on.
        """
        if self.abandoned:
            return
        self.abandoned = True
        self.gate.abandon()
        self.suspend()
        self.paging.stop()
        self.transactions.stop()
        self._reaper.stop()
        self._expiry_scan.stop()
        self.memory.clear()
        self._dropped.stop()
        self.transient.stop()
        for callback in self.on_abandon:
            callback()

    # --------------------------------------------------------------------------------------- expiry

    def now(self) -> int:
        """The wall clock in milliseconds, by which messages expire."""
        return int(self.seams.wall_clock() * 1000)

    def awaits(self, queue: Queue) -> None:
        """Something in that queue will expire."""
        self._expiry_scan.watch(queue)

    def expired(self, queue: Queue, messages: list[Message]) -> None:
        """These have: in one entry out of the queue and to its expiry address."""
        operations = self.paging.removals(messages)
        arrivals: list[tuple[Queue, Message]] = []
        address = queue.settings.expiry_address
        for message in messages if address else ():
            letter = expired_letter(message, address, queue.name, self.now())
            self.large.copied(letter)
            added, places = self._stored((self.queue(address),), letter)
            operations += added
            operations += self.paging.counts(one for _, one in places if one.deliveries)
            arrivals += places
        queue.gone(messages)
        self.large.settled(messages)
        self.memory.give(queue, sum(message.size for message in messages))
        sequence = self.journal.append(operations)
        self.gate.when_durable(sequence, partial(refused, self.budget, arrivals, (), None))
        if queue.settings.auto_delete_queues and not queue.client_consumers():
            self._reaper.consider(queue)

    def _scan(self, queue: Queue) -> bool:
        """Move what has expired in a queue; True where there may be more."""
        if not self._may_dispatch():
            return False
        messages = queue.take_expired(SCANNED)
        if messages:
            self.budget.spend(COPY * len(messages))
            self.expired(queue, messages)
        return queue.overdue

    # --------------------------------------------------------------------------------------- inside

    async def _take_prepared(self, id_: TransactionId) -> PreparedTransaction | None:
        """Return a prepared transaction with all its messages in memory, and prepared no more."""
        while True:
            self._check()
            prepared = self.prepared.by_id.get(id_)
            if prepared is None or not prepared.pages:
                self.prepared.by_id.pop(id_, None)
                return prepared
            page, queue = next(iter(prepared.pages.items()))
            await self.paging.bring(queue, page)

    async def _read_prepared(self, queue: Queue) -> None:
        """Read the pages of a queue that have messages of prepared transactions."""
        while pages := self.prepared.pages_of(queue):
            await self.paging.bring(queue, pages[0])

    def _check(self) -> None:
        if self.abandoned:
            raise DemotedError("this broker is no longer live")

    def _append(self, operations: Sequence[Operation], done: Callback | None) -> int:
        sequence = self.journal.append(operations)
        if done is not None:
            self.gate.when_durable(sequence, done)
        return sequence

    def _holder(self, queue: str, message: Message) -> Queue:
        """Where it is kept: its queue, or a store-and-forward one of another broker with room."""
        if self.router is not None and message.group is None:
            node_id = self.router.route(queue, message)
            if node_id is not None:
                forwarding = self.queue(self.settings.forwarding_queue(node_id))
                if not forwarding.full:
                    return forwarding
        holder = self.queues.get(queue) or self.queue(queue)
        self._bound_expiry(message, holder)
        return holder

    def _holders(self, target: str, message: Message) -> Sequence[Queue]:
        """Where a message for that destination is kept: nowhere, where nobody wants it."""
        holders: Sequence[Queue]
        if target[0] == "/":
            holders = self._wanting(target, message)
            if holders:
                self._bound_expiry(message, holders[0])
        else:
            holders = (self._holder(target, message),)
        self.budget.spend(COPY * len(holders))
        return holders

    def _wanting(self, target: str, message: Message, *, forwarded: bool = False) -> Sequence[Queue]:
        """Return the queues that want a message for a topic, or for a temporary queue.

        A message that was ``forwarded`` here goes to no other broker. A temporary queue that has
        ended wants nothing; where messages stay at home, another broker says that of its own.
        """
        if target.startswith(TOPIC_PREFIX):
            return (
                self.topics.arriving(target, message) if forwarded else self.topics.wanting(target, message)
            )
        temporary = self.queues.get(target)  # it may have been another broker's, which has failed
        if temporary is None and not forwarded and (keeper := self.settings.keeper(target)) != target:
            return (self.queue(keeper),)
        if temporary is None and self._keeps(target):
            temporary = self.queue(target)  # its broker may not have told us yet
        return () if temporary is None else (temporary,)

    def _bound_expiry(self, message: Message, holder: Queue) -> None:
        """Bound the expiry of a message that enters a queue, and others with the same settings.

        The expiry of a message to a topic is bounded where it is sent, also for other brokers.
        """
        settings, changes = holder.settings, holder.changes_expiry
        if holder.forwards:
            settings = self.settings.addresses.settings(message.target.removeprefix(TOPIC_PREFIX))
            changes = changes_expiry(settings)
        if changes:
            message.properties = bounded(message.properties, settings, self.now())

    def _stored(
        self, holders: Sequence[Queue], message: Message
    ) -> tuple[list[Operation], list[tuple[Queue, Message]]]:
        """The operations that store the message in each of these, and what then arrives where.

        Each of several copies has an identity of its own: by a common one, another broker to which
        they move would take all but the first for repeats.
        """
        operations: list[Operation] = []
        places: list[tuple[Queue, Message]] = []
        data = b""
        if len(holders) > 1:
            message.identity = None
        for holder in holders:
            if isinstance(holder, LimitedQueue):
                removed = holder.make_room(message)
                if removed is None:
                    continue
                operations += self._removal(holder, removed)
                holder.stored()
            one = message
            if data:
                one = message.copy()
                self.large.copied(one)
            data = readdressed(data, holder.id) if data else encode(message, holder.id)
            one.id = self.journal.next_id()
            operations.append(Operation(ADD, MESSAGE, one.id, data))
            places.append((holder, one))
            self.memory.take(holder, one.size)
        if not places:
            self.large.settled((message,))
        return operations, places

    def _removal(self, queue: Queue, messages: Sequence[Message]) -> list[Operation]:
        """Return the operations that remove messages, which are out of their queue."""
        if not messages:
            return []
        self.large.settled(messages)
        self.memory.give(queue, sum(message.size for message in messages))
        return self.paging.removals(messages)

    def _send_once(self, target: str, message: Message, done: Callback | None) -> int:
        """A repeated one only calls ``done``, when the first is durable."""
        sent = self._sent_id(target, message)
        known = None if sent is None else self._sent.sequence(sent)
        if known is not None:
            self.large.settled((message,))
            if done is not None:
                self.gate.when_durable(known, done)
            return known
        operations = [] if sent is None else self._remembered(sent)
        added, places = self._stored(self._holders(target, message), message)
        operations += added
        sequence = self.journal.append(operations) if operations else self.journal.last_sequence
        if sent is not None:
            self._sent.accepted(sent, sequence)
        self.gate.when_durable(sequence, partial(arrived_together, self.budget, places, done))
        return sequence

    def _sent_id(self, target: str, message: Message) -> SentId | None:
        """Its id, if it has one and they are looked at."""
        properties = message.properties
        if properties is None or not properties.once or not self._ids_kept(target):
            return None
        return SentId(target, properties.once)

    def _was_sent(self, target: str, message: Message) -> bool:
        sent = self._sent_id(target, message)
        return sent is not None and self._sent.sequence(sent) is not None

    def _remembered(self, sent: SentId) -> list[Operation]:
        """The operations that remember an id, in the entry that stores its message."""
        mark = self.journal.next_id()
        forgotten = self._sent.remember(sent.target, sent, mark, 0, self._ids_kept(sent.target))
        return [
            Operation(ADD, SENT, mark, encode_sent(sent)),
            *(Operation(DELETE, SENT, record_id) for record_id in forgotten),
        ]

    def _ids_kept(self, target: str) -> int:
        return self.settings.addresses.settings(target).id_cache_size

    def _send_to_all(self, holders: Sequence[Queue], message: Message, done: Callback | None) -> int:
        """One entry for all of them: either each has the message or none."""
        operations, places = self._stored(holders, message)
        sequence = self.journal.append(operations) if operations else self.journal.last_sequence
        if places or done is not None:
            self.gate.when_durable(sequence, partial(arrived_together, self.budget, places, done))
        return sequence

    def _ending(self, queue: Queue) -> list[Operation]:
        """A subscription or a temporary queue leaves, by these operations."""
        assert not queue.consumers, f"{queue.name} is dropped under its consumers"
        operations = self._leave_out(queue)
        if queue.idle:
            return [*operations, *self._deletion(queue)]
        self._dropped.add(queue)
        self.memory.give(queue, 0)  # who waited for room in it waits no more
        durable = (
            not queue.name.startswith(TEMPORARY_PREFIX)
            if queue.subscription is None
            else queue.subscription.durable
        )
        if not durable:
            return operations  # a start knows that it is no more
        return [*operations, *(Operation(UPDATE, DROPPED, id_) for id_ in (queue.id, *queue.also))]

    def _leave_out(self, queue: Queue) -> list[Operation]:
        """Take a queue out of all tables; return the operations by which its limits end, too."""
        del self.queues[queue.name]
        if queue.subscription is not None:
            self.topics.remove(queue)
        else:
            self.memory.pauses.resume(queue.name)
        queue.drop()
        return self.limit_updates.end(queue.name) if queue.subscription is None else []

    def _forget(self, queue: Queue) -> int:
        return self.journal.append(self._deletion(queue))

    def _deletion(self, queue: Queue) -> list[Operation]:
        """With a queue go the ids of what was sent to it."""
        kind = QUEUE if queue.subscription is None else SUBSCRIPTION
        operations = [Operation(DELETE, kind, id_) for id_ in (queue.id, *queue.also)]
        return operations + [Operation(DELETE, SENT, id_) for id_ in self._sent.forget(queue.name)]

    @staticmethod
    def _adding(record_id: int, subscription: Subscription) -> Operation:
        return Operation(ADD, SUBSCRIPTION, record_id, encode_subscription(subscription))

    @staticmethod
    def _claiming(record_id: int, login: str) -> Operation:
        return Operation(UPDATE, CLAIMED, record_id, login.encode())

    def _purge(self, queue: Queue) -> Iterator[int]:
        for messages, pages in queue.removing(CHUNK):
            self._check()
            self._append([*self.paging.removals(messages), *self.paging.drop(pages)], None)
            self.memory.give(queue, sum(message.size for message in messages))
            self.large.settled(messages)
            yield len(messages) + sum(page.left for page in pages)

    def _refuse(
        self,
        deliveries: Sequence[Delivery],
        operations: list[Operation],
        arrivals: list[tuple[Queue, Message]],
        done: Callback | None,
        given_up: Collection[Delivery] = frozenset(),
    ) -> int:
        """Append ``operations``, which bring ``arrivals``, and the refusals as one entry.

        The deliveries have been taken from their holders; ``given_up`` are those for good.
        """
        again: list[Delivery] = []
        for delivery in deliveries:
            message, queue = delivery.message, delivery.consumer.queue
            message.refusals += 1
            if is_dead(message, queue.name, queue.settings, given_up=delivery in given_up):
                address = queue.settings.dead_letter_address
                operations += self.paging.removals((message,))
                if address:
                    dead = dead_letter(message, queue, address)
                    self.large.copied(dead)
                    added, places = self._stored((self.queue(address),), dead)
                    operations += added
                    operations += self.paging.counts(letter for _, letter in places)
                    arrivals += places
                self._settle(delivery)
                queue.offer(delivery.consumer)
            else:
                operations += self.paging.counts((message,))
                again.append(delivery)
                queue.refusing(delivery)
        sequence = self.journal.append(operations) if operations else self.journal.last_sequence
        if arrivals or again or done is not None:
            self.gate.when_durable(sequence, partial(refused, self.budget, arrivals, again, done))
        return sequence

    def _take_from_consumers(self, deliveries: Iterable[Delivery]) -> None:
        """Settle deliveries that consumers hold, and give these credit for more."""
        for delivery in deliveries:
            consumer = delivery.consumer
            del consumer.unacknowledged[delivery.tag]
            self._settle(delivery)
            consumer.queue.offer(consumer)

    def _settle(self, delivery: Delivery) -> None:
        queue = delivery.consumer.queue
        queue.settled(delivery)
        if delivery.message.large is not None:
            self.large.settled((delivery.message,))
        self.memory.give(queue, delivery.message.size)
        if queue.settings.auto_delete_queues and not queue.client_consumers():
            self._reaper.consider(queue)
        if queue.dropped:
            self._dropped.look(queue)

    def _handed_over(self, delivery: Delivery) -> None:
        if not self.abandoned:
            self.journal.append(self.paging.removals((delivery.message,)))
            self._settle(delivery)

    def _observe(self, queue: Queue, consumer: QueueConsumer) -> None:
        if not consumer.internal and queue.name[0] != "/":  # what other brokers may send to
            count = self.consumers(queue.name)
            for observer in self.consumer_observers:
                observer(queue.name, count)

    def _add_queue(self, name: str, queue_id: int, subscription: Subscription | None = None) -> Queue:
        queue = self.queues[name] = self._new_queue(name, queue_id, subscription)
        if subscription is not None:
            self.topics.add(queue)
            self.memory.pauses.apply(queue)
        return queue

    def _new_queue(self, name: str, queue_id: int, subscription: Subscription | None = None) -> Queue:
        settings = self.settings.addresses.settings(name if subscription is None else subscription.topic)
        rest = self._handed_over, self, self._may_dispatch, self.paging, self.budget, subscription
        limits = self.limits
        is_limited = max(settings.max_messages, self.settings.max_messages) >= 0
        may_be_limited = self.settings.counts_all and subscription is None and name[0] not in "/$"
        if limits is None or not (is_limited or may_be_limited):
            return Queue(name, queue_id, settings, *rest)
        return LimitedQueue(
            name, queue_id, settings, *rest, total=limits.total, room_changed=self.memory.look_again
        )

    def _may_dispatch(self) -> bool:
        if self._suspended or self._marked_clean:
            return False
        if not self.gate.held:
            return True
        if not self._waits_for_gate:
            self._waits_for_gate = True
            self.gate.when_durable(0, self._gate_open)
        return False

    def _gate_open(self) -> None:
        self._waits_for_gate = False
        self._wake()

    def _mark_gone(self) -> None:
        self._marked_clean = False
        self._wake()

    def _wake(self) -> None:
        for queue in chain(self.queues.values(), self._dropped.queues):
            queue.wake()


def _subscription_of(queue: Queue) -> Subscription:
    assert queue.subscription is not None, "a queue without a subscription"
    return queue.subscription


def _logins(subscriptions: Iterable[Subscription]) -> dict[tuple[str, str], dict[str, None]]:
    """Return the logins that have a durable subscription, by client and name."""
    logins: dict[tuple[str, str], dict[str, None]] = {}
    for subscription in subscriptions:
        if subscription.login:
            logins.setdefault((subscription.client, subscription.name), {})[subscription.login] = None
    return logins
