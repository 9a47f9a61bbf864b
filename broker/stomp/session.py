"""What a client's frames mean: the server's half of STOMP.

What differs between its versions stands in ``versions``.

Why one table of commands: a connection is first unknown, then logged in, then leaving, and what is
allowed when is seen at a glance. Nothing here knows sockets; ``connection`` brings frames and takes
bytes.

Receipts: one for a SEND, ACK, NACK, COMMIT or ABORT leaves only from the durability gate; one for
any other frame when it is done, but never before an earlier frame's. DISCONNECT's is therefore the
last word on everything the client sent.

A client that names itself (``client-id`` of CONNECT, as ActiveMQ has it) has one connection: before
CONNECTED its last one is ended, and nothing that came on that is taken any more. Else what a dead
connection had sent could be stored behind what the next one sends.

Prefetch: ``prefetch-count`` of a SUBSCRIBE (or ``consumer-window`` or ``activemq.prefetchSize``,
the same) is how many messages it may hold unacknowledged; without it the queue's
``default-consumer-window`` counts. In ack mode ``auto`` messages are acknowledged as they are
written, and only the connection's own pace limits them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from broker.core.changes import SUBSCRIPTION, ChangeRefusedError, key_of, value_of
from broker.core.consumer import Delivery, Part, Settler
from broker.core.limits import TransactionRoom
from broker.core.message import Message
from broker.core.queue import Queue
from broker.core.selector import Selector, SelectorBounds
from broker.core.settings import SYSTEM_PREFIX
from broker.core.subscription import (
    TEMPORARY_PREFIX,
    TOPIC_PREFIX,
    SubscriptionInUseError,
    SubscriptionKey,
)
from broker.core.subscription import Subscription as TopicSubscription
from broker.core.topics import SHARED_FROM
from broker.core.transactions import Transaction
from broker.stomp.connection import ConnectionServer, StompConnection, Work
from broker.stomp.destinations import Destinations
from broker.stomp.durable import durable_key, is_durable, named_by, subscription_of
from broker.stomp.headers import (
    NOT_DONE,
    OWN_TEMPORARY_PREFIX,
    QUEUE_PREFIX,
    UNNAMED,
    FrameRefusedError,
    is_for_good,
    kept_headers,
    number,
    properties,
    queue_name,
    selector,
    temporary_name,
    topic_name,
)
from broker.stomp.intake import PARKED_BYTES_MAX, Intake, Wait
from broker.stomp.large import LargeSend
from broker.stomp.login import log_in
from broker.stomp.subscription import Browser, EarlierSubscription, FeedSubscription, Subscription
from broker.stomp.transactions import ClientTransactions
from broker.stomp.unsupported import refuse_in_send, refuse_in_subscribe
from broker.turn_budget import CONSUMER_END, SELECTOR_CHARACTER
from stomp_protocol.frames import Frame, LargeHead, LargePart
from stomp_protocol.versions import SPOKEN, V1_2, VERSIONS, VersionRefusedError, negotiate

PRODUCT: Final = "brokerd"
GROUP_MAX: Final = 255
"""Characters of a group's name: names are remembered with their owners."""
PREFETCH: Final = ("prefetch-count", "consumer-window", "activemq.prefetchSize")

Handler = Callable[["StompSession", Frame], Work | None]
AnySubscription = Subscription | Browser | FeedSubscription


class StompSession:
    """One client from CONNECT to its end."""

    __slots__ = (
        "__weakref__", "_busy_until", "_change", "_count", "_destinations", "_ended", "_handlers", "_intake",
        "_numbers", "_open_receipts", "_paused", "_server", "_subscriptions", "_transactions",
        "ack_prefix", "browse_lock", "client_id", "connection", "engine", "name", "node_id", "user",
        "version",
    )  # fmt: skip

    def __init__(self, server: ConnectionServer, connection: StompConnection) -> None:
        self.connection = connection
        self.engine = server.engine
        self.name = f"{self.engine.incarnation}-{connection.number}"
        self.user = ""
        self.client_id = ""
        self.ack_prefix = f"{self.name}-"
        self.node_id = self.engine.settings.node_id
        self.version = V1_2
        self.browse_lock = asyncio.Lock()
        """Held by the browser that shows."""
        self._server = server
        self._handlers: dict[str, Handler] = UNKNOWN
        self._subscriptions: dict[str, AnySubscription] = {}
        self._numbers: dict[int, Subscription] = {}
        self._transactions = ClientTransactions(self, self.engine, server.acceptor)
        self._destinations = Destinations(self.engine, server.rights, self.name)
        self._intake = Intake(
            self.engine.memory, self.engine.budget, self._balance_reading, connection.was_reset, self._warn
        )
        self._count = 0
        self._change: asyncio.Task[bool] | None = None
        """The change of a durable subscription that is asked for."""
        self._busy_until = 0
        self._open_receipts = 0
        self._paused = False
        self._ended = False

    def __str__(self) -> str:
        return f"session {self.name} (user {self.user[:64]!r}, {self.connection.address})"

    def _warn(self, text: str) -> None:
        self._server.warnings.tell(self.connection.host, f"{self}: {text}")

    @property
    def logged_in(self) -> bool:
        """Has its CONNECT been accepted?"""
        return self._handlers is not UNKNOWN

    # -------------------------------------------------------------------------- from the connection

    def handle(self, frame: Frame) -> Work | None:
        """Do what a frame says, or return how to do it in slices. Raises RefusedError."""
        if type(frame) is LargePart:
            return None  # of a body that nobody wanted
        handler = self._handlers.get(frame.command)
        if handler is None:
            if self._handlers is LEAVING:
                return None
            if frame.command in UNKNOWN:
                raise FrameRefusedError(f"{frame.command} after CONNECT: a connection logs in once")
            if frame.command in LOGGED_IN:
                if self._handlers is UNKNOWN:
                    raise FrameRefusedError(f"{frame.command} before CONNECT: log in first")
                raise FrameRefusedError(f"{frame.command} is not part of STOMP {self.version.name}")
            raise FrameRefusedError(f"{frame.command} is a frame that servers send")
        return handler(self, frame)

    def pause(self) -> None:
        """The connection takes no more for now: dispatch nothing."""
        if not self._paused:
            self._paused = True
            for subscription in self._subscriptions.values():
                subscription.pause()

    def resume(self) -> None:
        """It does again."""
        if self._paused:
            self._paused = False
            for subscription in list(self._subscriptions.values()):
                subscription.resume()

    def end(self) -> None:
        """The connection is gone: transactions are undone, unacknowledged messages go back."""
        if self._ended:
            return
        self._ended = True
        self._intake.clear()
        if self.engine.abandoned:
            self._release()
        else:
            self._leave_in_turns(self._leave())
        self._transactions.undo()

    def quiesce(self) -> None:
        """A clean stop: take no more frames, give back what is held; due receipts still leave."""
        self._handlers = LEAVING
        self._intake.clear()
        self._transactions.undo()
        self._release()

    # ----------------------------------------------------------------------------------- logging in

    def _connect(self, frame: Frame) -> None:
        acceptor = self._server.acceptor
        try:
            version = self.version = negotiate(frame.headers)
        except VersionRefusedError as error:
            self.connection.error(str(error), None, ("version", SPOKEN))
            return
        agreement = log_in(frame.headers, acceptor, version)
        if objection := self._server.objection(frame.headers):
            self.connection.error(objection)
            return
        admission = self._server.admission
        told = ""
        if admission is not None:
            reason, address = admission.redirect_for(frame.headers)
            if reason:
                self.connection.error(reason, None, *((("redirect", address),) if address else ()))
                return
            told = admission.told
        self.user = self._destinations.user = frame.headers.get("login", "")
        self.client_id = frame.headers.get("client-id", "")
        if self.client_id:
            self._server.recognise(self.connection, self.user, self.client_id)
        self.connection.begin_heart_beats(agreement.beat, agreement.ttl)
        beats = (
            f"heart-beat:{acceptor.heart_beat_send},{acceptor.heart_beat_receive}\n"
            if version.heart_beats
            else ""
        )
        feeds = f"feeds:{','.join(sorted(self.engine.feeds))}\n" if self.engine.feeds else ""
        # The headers of CONNECTED are literal (STOMP 1.2, "Value Encoding"): none of these needs an
        # escape.
        self.connection.write(
            f"CONNECTED\nversion:{version.name}\n{beats}server:{PRODUCT}\nsession:{self.name}\n"
            f"broker:{self._server.name}\nnode-id:{self.node_id}\n{feeds}{told}\n\0".encode()
        )
        self._handlers = HANDLERS[version.name]

    def _disconnect(self, frame: Frame) -> Work:
        self._handlers = LEAVING
        self._transactions.undo(parked=False)
        yield from self._leave()
        receipt = frame.headers.get("receipt")
        if self._intake:
            self._intake.park(None, 0, partial(self._last_word, receipt))
        else:
            self._last_word(receipt)

    def _last_word(self, receipt: str | None) -> None:
        self._open_receipts += 1
        self.engine.gate.when_durable(self._busy_until, partial(self._say_farewell, receipt))

    def _say_farewell(self, receipt: str | None) -> None:
        if receipt is None:
            self._open_receipts -= 1
        else:
            self._receipt(receipt)
        self.connection.close()

    # ------------------------------------------------------------------------------------ producing

    def _send(self, frame: Frame) -> Work | None:
        headers = frame.headers
        refuse_in_send(headers)
        large = None
        if type(frame) is not Frame:  # asked once, since nearly every body is small
            if isinstance(frame, LargeHead):
                self._destinations.target(headers.get("destination"))  # refused before its body is stored
                self.connection.uploads.begin(frame)
                return None
            if isinstance(frame, LargeSend) and frame.large is not None:
                large = frame.large
                if frame.kept_body:
                    self.engine.large.remember(large, frame.kept_body)
        destination = headers.get("destination")
        queue = self._destinations.known.get(destination)
        if queue is None:
            queue = self._destinations.target(destination)
        body = frame.body
        if len(body) >= SHARED_FROM and large is None and self.engine.shares(queue, len(body)):
            self.connection.uploads.share(frame)
            return None
        reply_to = headers.get("reply-to")
        if reply_to is not None and reply_to.startswith(OWN_TEMPORARY_PREFIX):
            headers = {**headers, "reply-to": self._reply_queue(reply_to)}
        group = headers.get("JMSXGroupID")
        if group is not None and len(group) > GROUP_MAX:
            raise FrameRefusedError(
                f"header 'JMSXGroupID' has {len(group)} characters: at most {GROUP_MAX} are allowed"
            )
        message = Message(
            queue,
            kept_headers(headers, len(body) if large is None else large.size),
            body,
            group,
            closes=group is not None and headers.get("JMSXGroupSeq") == "-1",
            large=large,
            properties=properties(headers, self.engine.now),
        )
        name = headers.get("transaction")
        receipt = headers.get("receipt")
        if name is not None:
            self._transactions.send(self._transactions.open(name), queue, message)
            if large is not None:
                self.connection.uploads.taken(large)
            self._done(receipt)
        elif queue[0] == "/" and self.engine.topics.selects(queue):
            return self._test_and_store(queue, message, receipt)
        else:
            self._store(queue, message, receipt)
        return None

    def _test_and_store(self, queue: str, message: Message, receipt: str | None) -> Work:
        """Store what is sent to a topic with selectors; they are asked in slices before."""
        yield from self.engine.topics.testing(queue, message)
        if self._handlers is not LEAVING:  # the broker is stopping
            self._store(queue, message, receipt)

    def _store(self, queue: str, message: Message, receipt: str | None) -> None:
        if queue[0] == "/":
            self._await_others((queue,))
        if self._intake or self.engine.memory.is_full(queue):
            self._park(queue, message.size, partial(self._take, queue, message, receipt))
        else:
            self._take(queue, message, receipt)

    def _await_others(self, targets: Iterable[str]) -> None:
        """Let messages to topics wait until we know of the subscriptions at other brokers."""
        news = self.engine.news
        if (
            news is not None
            and any(target.startswith(TOPIC_PREFIX) for target in targets)
            and (heard := news.heard()) is not None
        ):
            self._intake.park(heard, 0, _nothing)

    def _reply_queue(self, reply_to: str) -> str:
        """What others shall reply to, for ``/temp-queue/NAME``.

        Who has not subscribed to it is subscribed now, under that id, as in RabbitMQ.
        """
        name, temporaries = temporary_name(reply_to), self._destinations.temporaries
        if name not in temporaries:
            self._may_subscribe(reply_to)
            queue = self._destinations.new_temporary(name, self._client)
            self._add(reply_to, self._consume(reply_to, queue, "auto", None, transient=True))
            self._await_news()
            self._balance_reading()
        return temporaries[name]

    def _take(self, queue: str, message: Message, receipt: str | None) -> None:
        limits = self.engine.limits
        if queue[0] == "/" and (objection := self._objection(((queue, message),))):
            self.connection.error(objection, receipt, NOT_DONE)
            return
        if limits is not None and (objection := limits.refusal(((queue, message),))):
            self.connection.error(objection, receipt, NOT_DONE)
            return
        self._busy_until = self.engine.send(queue, message, self._later(receipt))
        if message.large is not None:
            self.connection.uploads.taken(message.large)

    def _objection(self, sends: Iterable[tuple[str, Message]]) -> str:
        """Return why these messages would be too many copies, "" if they are not."""
        bound = self._server.acceptor.max_copies_size
        size = self.engine.topics.copies_size(sends)
        if size <= bound:
            return ""
        return (
            f"the copies for all subscriptions together would have {size} bytes, and may have {bound} "
            "(acceptor.max-copies-size): send less in one message or transaction"
        )

    def _begin(self, frame: Frame) -> None:
        self._transactions.begin(_required(frame, "transaction"))
        self._done(frame.headers.get("receipt"))

    def _commit(self, frame: Frame) -> Work | None:
        transaction = self._transactions.close(_required(frame, "transaction"))
        receipt = frame.headers.get("receipt")
        selects = self.engine.topics.selects
        if any(selects(queue) for queue, _ in transaction.sends):
            return self._test_and_commit(transaction, receipt)
        self._commit_in_turn(transaction, receipt)
        return None

    def _test_and_commit(self, transaction: Transaction, receipt: str | None) -> Work:
        """Commit what sends to topics with selectors; they are asked in slices before."""
        self._transactions.committing.append(transaction)
        for queue, message in transaction.sends:
            if self.engine.topics.selects(queue):
                yield from self.engine.topics.testing(queue, message)
        if self._handlers is not LEAVING:  # else it was undone
            self._transactions.committing.remove(transaction)
            self._commit_in_turn(transaction, receipt)

    def _commit_in_turn(self, transaction: Transaction, receipt: str | None) -> None:
        room = self._room_for(transaction)
        self._await_others(target for target, _ in transaction.sends)
        if self._intake or (room is not None and self.engine.memory.must_wait(room)):
            self._transactions.committing.append(transaction)
            self._park(room, transaction.size, partial(self._commit_parked, transaction, receipt))
        else:
            self._commit_now(transaction, receipt)

    def _room_for(self, transaction: Transaction) -> TransactionRoom | None:
        """Return the room that a commit needs, None if it sends nothing."""
        if not transaction.sends:
            return None
        return TransactionRoom(self.engine.limits, self.engine.memory.pauses, transaction)

    def _commit_parked(self, transaction: Transaction, receipt: str | None) -> None:
        self._transactions.committing.remove(transaction)
        self._commit_now(transaction, receipt)

    def _commit_now(self, transaction: Transaction, receipt: str | None) -> None:
        if objection := self._objection_to_commit(transaction):
            self._transactions.committing.append(transaction)  # the end of the connection undoes it
            self.connection.error(objection, receipt, NOT_DONE)
            return
        if remote := transaction.take_remote():
            self._commit_remote(transaction, remote, receipt)
            return
        self._transactions.end(transaction)
        self._busy_until = self.engine.commit(transaction, self._later(receipt)) or self._busy_until

    def _objection_to_commit(self, transaction: Transaction) -> str:
        """Return why the transaction would send too much, "" if it does not."""
        new_queues = {queue for queue, _ in transaction.sends if queue[0] != "/"} - self.engine.queues.keys()
        objection = self._destinations.objection(len(new_queues)) if new_queues else ""
        objection = objection or self._objection(transaction.sends)
        limits = self.engine.limits
        return objection if objection or limits is None else limits.refusal(transaction.sends, transaction)

    def _commit_remote(
        self, transaction: Transaction, remote: Mapping[Settler, Part], receipt: str | None
    ) -> None:
        """Commit a transaction that acknowledges or refuses messages of other brokers."""
        if len(remote) == 1 and not (transaction.sends or transaction.acknowledged or transaction.refused):
            self._transactions.end(transaction)
            self._settle(remote)
            self._done(receipt)
            return
        assert self.engine.homes is not None, "a message of another broker where there are none"
        commit = self.engine.homes.begin_commit(remote)
        self._transactions.preparing[transaction] = commit
        self._transactions.committing.append(transaction)
        self._intake.park(commit.prepared, transaction.size, partial(self._decide, transaction, receipt))

    def _decide(self, transaction: Transaction, receipt: str | None) -> None:
        """Commit a transaction over several brokers, if all others have prepared their parts.

        It waits for room once more, which others may have taken meanwhile.
        """
        commit = self._transactions.preparing[transaction]
        room = self._room_for(transaction)
        if not commit.failure and room is not None and self.engine.memory.must_wait(room):
            self._intake.park(room, transaction.size, partial(self._decide, transaction, receipt))
            return
        failure = commit.failure or self._objection_to_commit(transaction)
        if failure:
            # The end of the connection undoes it.
            self.connection.error(
                f"the transaction was rolled back, and nothing of it has happened: {failure}",
                receipt,
                NOT_DONE,
            )
            return
        del self._transactions.preparing[transaction]
        self._transactions.committing.remove(transaction)
        self._transactions.end(transaction)
        self._busy_until = commit.commit(transaction, self._later(receipt))

    def _settle(self, remote: Mapping[Settler, Part]) -> None:
        """Have other brokers settle deliveries; the receipts of later frames wait for them."""
        for settler, part in remote.items():
            self._intake.park(settler.settle(part), 0, _nothing)

    def _abort(self, frame: Frame) -> None:
        transaction = self._transactions.close(_required(frame, "transaction"))
        self._transactions.end(transaction)
        receipt = frame.headers.get("receipt")
        parts = transaction.take_remote().items()
        self._settle({settler: Part((), (*part.acknowledged, *part.refused)) for settler, part in parts})
        if self._intake or not (transaction.acknowledged or transaction.refused):
            # Nothing to wait for but its turn: behind other clients' entries a later frame's
            # receipt would overtake its own.
            self._busy_until = self.engine.roll_back(transaction) or self._busy_until
            self._done(receipt)
        else:
            sequence = self.engine.roll_back(transaction, done=self._later(receipt))
            self._busy_until = sequence or self._busy_until

    def _park(self, wait: Wait, size: int, action: Callable[[], None]) -> None:
        self._intake.park(wait, size, action)
        if self._intake.size > PARKED_BYTES_MAX and self._subscriptions and not self._intake.holds_much:
            queue = wait if isinstance(wait, str) and wait else "a queue"
            raise FrameRefusedError(
                f"more than {PARKED_BYTES_MAX} bytes of sends wait for room in {queue} on "
                "a connection that also consumes:"
                " wait for receipts, or produce on another connection"
            )

    def _balance_reading(self) -> None:
        """Stop reading a connection whose sends wait, unless acknowledgements may come on it."""
        acknowledges = self._subscriptions or self._transactions.acknowledge
        self.connection.set_reading(not self._intake or (bool(acknowledges) and not self._intake.holds_much))

    # ------------------------------------------------------------------------------------ consuming

    def _subscribe(self, frame: Frame) -> None:
        headers = frame.headers
        destination = _required(frame, "destination")
        subscription_id = self._subscription_id(frame)
        refuse_in_subscribe(headers)
        self._may_subscribe(subscription_id)
        mode = headers.get("ack", "auto")
        if mode not in self.version.ack_modes:
            raise FrameRefusedError(
                f"header 'ack' is {mode[:64]!r}: expected one of {', '.join(self.version.ack_modes)}"
            )
        windows = [number(headers, name, 1) for name in PREFETCH if name in headers]
        window = windows[0] if windows else None
        acceptor = self._server.acceptor
        wanted = selector(
            headers, SelectorBounds(acceptor.max_selector_characters, acceptor.max_selector_terms)
        )
        if wanted is not None:
            self.engine.budget.spend(SELECTOR_CHARACTER * len(headers["selector"]))
        if destination.startswith(TOPIC_PREFIX):
            subscription = self._topic_subscription(subscription_id, destination, headers, wanted)
            if self._must_be_made(subscription):
                self._ask_for_change(frame, subscription.key, subscription, self._subscribe)
                return
            self._add(subscription_id, self._open_topic(subscription_id, subscription, mode, window))
        else:
            self._add(
                subscription_id, self._open(subscription_id, destination, mode, window, headers, wanted)
            )
        if destination.startswith((TOPIC_PREFIX, OWN_TEMPORARY_PREFIX)):
            self._await_news()
        self._balance_reading()
        self._done(headers.get("receipt"))

    def _await_news(self) -> None:
        """Let what follows wait until other brokers know of the new subscription."""
        news = self.engine.news
        if news is not None and (told := news.told()) is not None:
            self._intake.park(told, 0, self._news_told)

    def _news_told(self) -> None:
        self._busy_until = self.engine.journal.last_sequence  # what the others said of it is durable then

    def _add(self, subscription_id: str, subscription: AnySubscription) -> None:
        self._subscriptions[subscription_id] = subscription
        if self._paused:
            subscription.pause()

    def _may_subscribe(self, subscription_id: str) -> None:
        if subscription_id in self._subscriptions:
            raise FrameRefusedError(f"subscription {subscription_id!r} exists already on this connection")
        if len(self._subscriptions) >= self._server.acceptor.max_subscriptions:
            raise FrameRefusedError(
                f"more than {self._server.acceptor.max_subscriptions} subscriptions on one connection "
                "(acceptor.max-subscriptions)"
            )

    def _open(
        self,
        subscription_id: str,
        destination: str,
        mode: str,
        window: int | None,
        headers: Mapping[str, str],
        wanted: Selector | None,
    ) -> AnySubscription:
        browser = headers.get("browser") == "true"
        if (named := named_by(headers)) is not None:
            raise FrameRefusedError(
                f"header {named!r}: only a topic has durable subscriptions: use destination:/topic/NAME"
            )
        if destination.startswith(SYSTEM_PREFIX):
            if wanted is not None:
                raise FrameRefusedError(
                    f"feed {destination!r} has no messages to select: leave 'selector' out"
                )
            feed = self.engine.feeds.get(destination)
            if feed is None:
                raise FrameRefusedError(
                    f"there is no feed {destination!r}; known: "
                    f"{', '.join(sorted(self.engine.feeds)) or 'none'}"
                )
            return FeedSubscription(self, subscription_id, destination, feed, paused=self._paused)
        if destination.startswith(OWN_TEMPORARY_PREFIX):
            temporary = temporary_name(destination)
            if temporary in self._destinations.temporaries or browser:
                raise FrameRefusedError(
                    f"destination {destination[:64]!r}: a temporary queue has one subscription and no browser"
                )
            resumes = headers.get("resume") == "true"
            opened = self._destinations.resumed if resumes else self._destinations.new_temporary
            queue = opened(temporary, self._client)
            return self._consume(subscription_id, queue, mode, window, wanted, transient=True)
        if destination.startswith(TEMPORARY_PREFIX):
            raise FrameRefusedError(
                f"destination {destination[:128]!r}: only the connection that created it may consume from it"
            )
        name = queue_name(destination)
        self._server.rights.demand(self.user, "browse" if browser else "consume", name)
        self._destinations.may_be_created(name)
        if browser:
            subscription = Browser(self, subscription_id, name, wanted)
            self.connection.soon(subscription.begin)
            return subscription
        return self._consume(subscription_id, name, mode, window, wanted)

    def _topic_subscription(
        self, subscription_id: str, destination: str, headers: Mapping[str, str], wanted: Selector | None
    ) -> TopicSubscription:
        """Return the subscription to a topic that a client wants, and may have.

        A durable one that exists is claimed: its consumers at other brokers end.
        """
        topic = topic_name(destination)
        self._server.rights.demand(self.user, "consume", topic, "topic")
        if headers.get("browser") == "true":
            raise FrameRefusedError(f"destination {destination[:64]!r}: a topic keeps nothing to browse")
        subscription = subscription_of(
            headers,
            topic,
            client=self._client,
            subscription_id=subscription_id,
            unique=f"{self.name}-{self._count + 1}",
            selector="" if wanted is None else headers["selector"],
        )
        existing = self._existing(subscription.key) if subscription.durable else None
        if existing is not None and existing.subscription is not None:
            self._server.rights.demand_existing(self.user, existing.subscription, topic)
        self._demand_room(subscription)
        if existing is not None and self.engine.homes is not None and not subscription.shared:
            self.engine.homes.claim(existing)
        return subscription

    def _must_be_made(self, subscription: TopicSubscription) -> bool:
        """Return whether the cluster must make a subscription first; it makes durable ones."""
        if self.engine.changes is None or not subscription.durable:
            return False
        known = self.engine.topics.named(subscription.key)
        if known is None or known.subscription is None:
            return True
        if known.subscription.is_as(subscription):
            return False
        self.engine.end_leaving(known)
        if known.consumers:
            raise FrameRefusedError(f"{known.subscription} has a consumer: it cannot be changed meanwhile")
        return True

    def _ask_for_change(
        self,
        frame: Frame,
        key: SubscriptionKey,
        subscription: TopicSubscription | None,
        then: Callable[[Frame], None],
    ) -> None:
        """Have a subscription made, or dropped if it is None, by the whole cluster.

        Frames behind this one wait until ``then`` has gone on with it.
        """
        changes = self.engine.changes
        assert changes is not None, "a change without a cluster"
        value = None if subscription is None else value_of(subscription)
        self.connection.hold()
        self._change = asyncio.get_running_loop().create_task(
            changes.request(SUBSCRIPTION, key_of(key), value), name="change a subscription"
        )
        self._change.add_done_callback(lambda change: self._changed(change, frame, then))

    def _changed(self, change: asyncio.Task[bool], frame: Frame, then: Callable[[Frame], None]) -> None:
        self._change = None
        if not change.cancelled():
            change.exception()  # which the connection may have no use for any more
            self.connection.release(frame, self._after_change(change, frame, then))

    def _after_change(self, change: asyncio.Task[bool], frame: Frame, then: Callable[[Frame], None]) -> Work:
        """Go on with a frame whose change was made. Raises FrameRefusedError if it was not."""
        try:
            change.result()
        except ChangeRefusedError as error:
            raise FrameRefusedError(str(error)) from None
        self._busy_until = self.engine.journal.last_sequence
        if self._handlers is not LEAVING:  # the broker is stopping
            then(frame)
        yield from ()

    def _open_topic(
        self, subscription_id: str, subscription: TopicSubscription, mode: str, window: int | None
    ) -> AnySubscription:
        """Consume what a subscription to a topic has."""
        try:
            queue = self.engine.bind(subscription, self.user)
        except SubscriptionInUseError as error:
            raise FrameRefusedError(str(error)) from None
        if not subscription.shared:
            self.engine.end_leaving(queue)
        if queue.consumers and not subscription.shared:
            raise FrameRefusedError(f"{subscription} has a consumer already")
        opened = self._consume(subscription_id, queue.name, mode, window, transient=not subscription.durable)
        self._busy_until = self.engine.journal.last_sequence  # perhaps another connection has just made it
        return opened

    def _demand_room(self, subscription: TopicSubscription) -> None:
        """Raise FrameRefusedError where the topic or the client has all it may have."""
        topics, topic = self.engine.topics, subscription.topic
        known = topics.named(subscription.key) if subscription.durable else None
        if known is None:
            self._destinations.demand_room()
        if known is None or known.topic != topic:
            count = len(topics.bound(TOPIC_PREFIX + topic))
            bound = self.engine.settings.addresses.settings(topic).max_subscriptions
            if count >= bound:
                raise FrameRefusedError(
                    f"topic {topic[:64]!r} has {count} subscriptions, and may have {bound} "
                    "(address-settings: max-subscriptions): end one first"
                )
        if known is None and subscription.durable and not subscription.shared:
            count = topics.owned(subscription)
            bound = self._server.acceptor.max_durable_subscriptions
            if count >= bound:
                raise FrameRefusedError(
                    f"client {subscription.client[:64]!r} has {count} durable subscriptions, and may have "
                    f"{bound} (acceptor.max-durable-subscriptions): end one first, with UNSUBSCRIBE"
                )

    def _consume(
        self,
        subscription_id: str,
        name: str,
        mode: str,
        window: int | None,
        wanted: Selector | None = None,
        *,
        transient: bool = False,
    ) -> Subscription:
        self._count += 1
        kind = EarlierSubscription if self.version.acks_by_message else Subscription
        subscription = kind(self, subscription_id, self._count, mode)
        subscription.transient = transient
        before = self.engine.journal.last_sequence
        subscription.consumer = self.engine.subscribe(
            name,
            subscription.deliver,
            window=window,
            auto=mode == "auto",
            gone=subscription.gone,
            selector=wanted,
        )
        if self.engine.journal.last_sequence > before:
            self._busy_until = self.engine.journal.last_sequence  # the queue is new: the receipt waits for it
        self._numbers[self._count] = subscription
        if self.engine.homes is not None:
            self.engine.homes.consume(subscription.consumer, subscription.lost)
        return subscription

    def _unsubscribe(self, frame: Frame) -> None:
        headers = frame.headers
        named = named_by(headers) is not None
        by_name_alone = named and "id" not in headers and not self.version.subscribes_by_destination
        subscription_id = None if by_name_alone else self._subscription_id(frame)
        subscription = None if subscription_id is None else self._subscriptions.get(subscription_id)
        topic = _topic_of(subscription, headers)
        drops = named or (topic is not None and is_durable(headers))
        if subscription is None and not drops:
            raise FrameRefusedError(f"subscription {subscription_id!r} does not exist on this connection")
        dropped = self._named_durable(headers, subscription_id, subscription, topic) if drops else None
        if subscription is not None and subscription_id is not None:
            del self._subscriptions[subscription_id]
            self._end(subscription)
        if dropped is not None and dropped.subscription is not None and self.engine.changes is not None:
            self._ask_for_change(frame, dropped.subscription.key, None, self._unsubscribed)
            return
        if dropped is not None:
            self._busy_until = self.engine.drop(dropped)
        self._unsubscribed(frame)

    def _unsubscribed(self, frame: Frame) -> None:
        self._balance_reading()
        self._done(frame.headers.get("receipt"))

    def _named_durable(
        self,
        headers: Mapping[str, str],
        subscription_id: str | None,
        subscription: AnySubscription | None,
        topic: str | None,
    ) -> Queue:
        """The queue of the durable subscription that an UNSUBSCRIBE drops."""
        key = durable_key(headers, self._client, subscription_id, topic)
        queue = self._existing(key)
        if queue is None or queue.subscription is None:
            client = f" of client {key.client!r}" if key.client else ""
            raise FrameRefusedError(f"there is no durable subscription {key.name!r}{client}")
        self._server.rights.demand_existing(self.user, queue.subscription, None)
        mine = subscription.consumer if isinstance(subscription, Subscription) else None
        self.engine.end_leaving(queue)
        if any(consumer is not mine for consumer in queue.consumers):
            raise FrameRefusedError(f"{queue.subscription} has a consumer: end that first")
        return queue

    @property
    def _client(self) -> tuple[str, str]:
        """Login and client-id; a login that nobody had to prove is none."""
        return self.user if self._server.acceptor.users else "", self.client_id

    def _existing(self, key: SubscriptionKey) -> Queue | None:
        """Return the queue of a durable subscription that is there.

        An unclaimed one becomes the user's, who must have the right to consume from its topic; but
        not in a conventional cluster, whose other brokers would have it under its old name.
        """
        queue = self.engine.topics.named(key)
        if queue is not None or not key.login or self.engine.changes is not None:
            return queue
        unclaimed = self.engine.topics.named(key._replace(login=""))
        if unclaimed is None or unclaimed.subscription is None:
            return None
        if not self._server.rights.has(self.user, "consume", unclaimed.subscription.topic):
            return None
        self._busy_until = self.engine.claim(unclaimed, key.login)
        return unclaimed

    def _end(self, subscription: AnySubscription) -> None:
        if isinstance(subscription, Subscription):
            del self._numbers[subscription.number]
            if subscription.transient and subscription.consumer is not None:
                self._destinations.forget(subscription.consumer.queue.name)
        subscription.end()

    def _subscription_id(self, frame: Frame) -> str:
        """A subscription's id; its destination, where the version allows to leave out the id."""
        if "id" in frame.headers or not self.version.subscribes_by_destination:
            return _required(frame, "id")
        return UNNAMED + _required(frame, "destination").removeprefix(QUEUE_PREFIX)

    def _ack(self, frame: Frame) -> None:
        self._answer(frame, self.engine.acknowledge, Transaction.acknowledge, Part)

    def _nack(self, frame: Frame) -> None:
        if is_for_good(frame.headers):
            for_good = partial(self.engine.refuse, for_good=True)
            self._answer(frame, for_good, partial(Transaction.refuse, for_good=True), _given_up)
        else:
            self._answer(frame, self.engine.refuse, Transaction.refuse, partial(Part, ()))

    def _answer(
        self,
        frame: Frame,
        change: Callable[..., int],
        on_commit: Callable[[Transaction, list[Delivery]], None],
        elsewhere: Callable[[list[Delivery]], Part],
    ) -> None:
        """Settle what an ACK or NACK names: on commit, by the engine, or ``elsewhere``."""
        headers = frame.headers
        deliveries = self._named_by_message(frame) if self.version.acks_by_message else self._named(frame)
        name = headers.get("transaction")
        receipt = headers.get("receipt")
        if name is not None:
            on_commit(self._transactions.open(name), deliveries)
            self._done(receipt)
            return
        if self.engine.homes is not None:
            deliveries = self._settle_elsewhere(deliveries, elsewhere)
            if not deliveries:
                self._done(receipt)
                return
        if self._intake:
            self._busy_until = change(deliveries)
            self._done(receipt)
        else:
            self._busy_until = change(deliveries, self._later(receipt))

    def _settle_elsewhere(
        self, deliveries: list[Delivery], elsewhere: Callable[[list[Delivery]], Part]
    ) -> list[Delivery]:
        """Have other brokers settle theirs of these deliveries, and return ours."""
        ours: list[Delivery] = []
        theirs: dict[Settler, list[Delivery]] = {}
        for delivery in deliveries:
            (ours if delivery.settler is None else theirs.setdefault(delivery.settler, [])).append(delivery)
        self._settle({settler: elsewhere(some) for settler, some in theirs.items()})
        return ours

    def _named_by_message(self, frame: Frame) -> list[Delivery]:
        """The same by message-id, in STOMP 1.0 and 1.1."""
        message_id = _required(frame, "message-id")
        name = _required(frame, "subscription") if self.version.ack_needs_subscription else None
        asked = self._numbers.values() if name is None else (self._subscriptions.get(name),)
        for subscription in asked:
            if isinstance(subscription, EarlierSubscription) and (held := subscription.named(message_id)):
                return held
        raise FrameRefusedError(
            f"message-id {message_id[:100]!r} is no message that this connection holds unacknowledged"
        )

    def _named(self, frame: Frame) -> list[Delivery]:
        """What an id of ACK or NACK means. Raises RefusedError for one that is not held here."""
        ack_id = _required(frame, "id")
        if ack_id.startswith(self.ack_prefix):
            first, _, second = ack_id[len(self.ack_prefix) :].partition(".")
            if first.isdecimal() and second.isdecimal() and len(ack_id) < 100:
                subscription = self._numbers.get(int(first))
                consumer = None if subscription is None else subscription.consumer
                delivery = None if consumer is None else consumer.unacknowledged.get(int(second))
                if subscription is not None and consumer is not None and delivery is not None:
                    return consumer.through(delivery) if subscription.cumulative else [delivery]
        raise FrameRefusedError(
            f"id {ack_id[:100]!r} is no message that this connection holds unacknowledged"
        )

    def _release(self) -> None:
        for _ in self._leave():
            pass

    def _leave(self) -> Work:
        """End all subscriptions, one with each step; none gets anything more from the first on."""
        for subscription in self._subscriptions.values():
            subscription.leave()
        while self._subscriptions:
            subscription = self._subscriptions.pop(next(iter(self._subscriptions)))
            subscription.end()
            self.engine.budget.spend(CONSUMER_END)
            if self._subscriptions:
                yield
        self._numbers.clear()
        self._destinations.forget_all()

    def _leave_in_turns(self, work: Work) -> None:
        """Do that as far as the share of this turn goes, and the rest in later ones."""
        budget, watch = self.engine.budget, self.engine.budget.watch
        floor = budget.floor()
        began = 0.0 if watch is None else watch.now()
        for _ in work:
            if budget.left <= floor:
                budget.wait(partial(self._leave_in_turns, work))
                break
        if watch is not None:
            watch.note(began, lambda: f"the end of subscriptions of {self}")

    # ------------------------------------------------------------------------------------- receipts

    def _later(self, receipt: str | None) -> Callable[[], None] | None:
        """What to call when the frame's entry is durable."""
        if receipt is None:
            return None
        self._open_receipts += 1
        return partial(self._receipt, receipt)

    def _done(self, receipt: str | None) -> None:
        """The frame is done: its receipt leaves after those of earlier frames."""
        if receipt is None:
            return
        if self._intake:
            self._intake.park(None, 0, partial(self._done_in_turn, receipt))
        else:
            self._done_in_turn(receipt)

    def _done_in_turn(self, receipt: str) -> None:
        self._open_receipts += 1
        if (
            self._open_receipts == 1
            and self._busy_until <= self.engine.gate.durable
            and not self.engine.gate.held
        ):
            self._receipt(receipt)
        else:
            self.engine.gate.when_durable(self._busy_until, partial(self._receipt, receipt))

    def _receipt(self, receipt: str) -> None:
        self._open_receipts -= 1
        if receipt.isalnum():
            self.connection.write(f"RECEIPT\nreceipt-id:{receipt}\n\n\0".encode())
        else:
            self.connection.write(b"RECEIPT\n", self.version.header_line("receipt-id", receipt), b"\n\0")


def _topic_of(subscription: AnySubscription | None, headers: Mapping[str, str]) -> str | None:
    """The topic of which an UNSUBSCRIBE speaks, if of any."""
    if isinstance(subscription, Subscription) and subscription.consumer is not None:
        known = subscription.consumer.queue.subscription
        return None if known is None else known.topic
    destination = headers.get("destination", "")
    return topic_name(destination) if destination.startswith(TOPIC_PREFIX) else None


def _given_up(deliveries: list[Delivery]) -> Part:
    """Return what becomes of deliveries that are refused for good."""
    return Part((), deliveries, frozenset(deliveries))


def _nothing() -> None:
    """Do nothing: what waited goes on."""


def _required(frame: Frame, name: str) -> str:
    value = frame.headers.get(name)
    if value is None:
        raise FrameRefusedError(f"header {name!r} is missing from {frame.command}")
    return value


UNKNOWN: Final[dict[str, Handler]] = {
    "CONNECT": StompSession._connect,  # noqa: SLF001 - the table is part of the class
    "STOMP": StompSession._connect,  # noqa: SLF001
}
LOGGED_IN: Final[dict[str, Handler]] = {
    "SEND": StompSession._send,  # noqa: SLF001
    "ACK": StompSession._ack,  # noqa: SLF001
    "NACK": StompSession._nack,  # noqa: SLF001
    "SUBSCRIBE": StompSession._subscribe,  # noqa: SLF001
    "UNSUBSCRIBE": StompSession._unsubscribe,  # noqa: SLF001
    "BEGIN": StompSession._begin,  # noqa: SLF001
    "COMMIT": StompSession._commit,  # noqa: SLF001
    "ABORT": StompSession._abort,  # noqa: SLF001
    "DISCONNECT": StompSession._disconnect,  # noqa: SLF001
}
HANDLERS: Final = {
    version.name: {command: handler for command, handler in LOGGED_IN.items() if command in version.commands}
    for version in VERSIONS
}
LEAVING: Final[dict[str, Handler]] = {}
