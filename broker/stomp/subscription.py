"""Subscriptions: a consumer, a browser, or a watcher of a feed, as a client sees them.

Ack ids are ``<incarnation>-<connection>-<subscription>.<tag>``. The incarnation is new with every
start of a broker, so an acknowledgement that arrives after a restart or a failover names nothing
(rabbitmq-server 4004: a stale tag acknowledged another message). STOMP 1.0 and 1.1 acknowledge by
message-id, which is the message's own and stays the same when it is delivered again, anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from broker.core.consumer import Delivery, QueueConsumer
from broker.core.engine import Engine
from broker.core.feed import WatchedValue
from broker.core.filtering import headers_of
from broker.core.message import Message
from broker.core.selector import Selector
from broker.stomp.connection import StompConnection
from broker.stomp.headers import UNNAMED
from broker.storage.errors import JournalError
from broker.turn_budget import DELIVERY, TEST
from stomp_protocol.versions import Version


class Subscriber(Protocol):
    """Whose a subscription is: a session."""

    name: str
    node_id: str
    ack_prefix: str
    connection: StompConnection
    engine: Engine
    version: Version
    browse_lock: asyncio.Lock
    """Held by the browser that shows."""


class Subscription:
    """A queue's messages for a client; ``cumulative``: an ACK names all up to its own."""

    __slots__ = (
        "_ack_prefix", "_head", "_prefix", "_rewritten", "_session", "consumer", "cumulative", "number",
        "transient",
    )  # fmt: skip

    def __init__(self, session: Subscriber, subscription_id: str, number: int, mode: str) -> None:
        self._session = session
        self.transient = False
        """Its queue ends with it: a temporary one, or one of a topic that is not durable."""
        self.number = number
        self.cumulative = mode == "client"
        self.consumer: QueueConsumer | None = None
        self._head = f"MESSAGE\n{_named(session, subscription_id).decode()}message-id:"
        self._prefix = f"{session.node_id}-"
        self._rewritten: Callable[[bytes], bytes] | None = None
        self._ack_prefix = "" if mode == "auto" else f"\nack:{session.ack_prefix}{number}."

    def deliver(self, delivery: Delivery) -> None:
        """Write the MESSAGE frame."""
        message = delivery.message
        ack = f"{self._ack_prefix}{delivery.tag}" if self._ack_prefix else ""
        settler = delivery.settler
        prefix = self._prefix if settler is None else settler.message_prefix
        redelivered = "true" if message.deliveries > 1 else "false"
        head = (
            f"{self._head}{prefix}{message.id}{ack}\nredelivered:{redelivered}\n"
            f"JMSXDeliveryCount:{message.deliveries}\n"
        )
        headers = message.headers if self._rewritten is None else self._rewritten(message.headers)
        large = message.large
        body = message.body if large is None else self._session.engine.large.recent(large)
        if large is None or body is not None:
            self._session.connection.write(head.encode(), headers, b"\n", body or b"", b"\0")
        else:
            self._session.connection.stream(b"%b%b\n" % (head.encode(), headers), large)

    def pause(self) -> None:
        """The connection takes no more for now."""
        if self.consumer is not None:
            self.consumer.pause()

    def resume(self) -> None:
        """It does again."""
        if self.consumer is not None:
            self.consumer.resume()

    def leave(self) -> None:
        """Get nothing more: its connection ends, and ``end`` follows in its turn."""
        if self.consumer is not None:
            self.consumer.leave()

    def gone(self) -> None:
        """The queue was deleted under its consumer."""
        queue = None if self.consumer is None else self.consumer.queue
        if queue is not None and queue.subscription is not None:
            self._session.connection.error(f"{queue.subscription} was dropped")
        else:
            name = "?" if queue is None else queue.name
            self._session.connection.error(f"queue {name!r} was deleted (brokerctl delete)")

    def lost(self, reason: str) -> None:
        """Another broker may give messages that the client holds to others from now on."""
        self._session.connection.error(reason)

    def end(self) -> None:
        """Give back what is unacknowledged."""
        if self.consumer is None:
            return
        engine, queue = self._session.engine, self.consumer.queue
        engine.unsubscribe(self.consumer)
        if self.transient and not engine.abandoned and engine.queues.get(queue.name) is queue:
            with suppress(JournalError):  # it has failed, and the next start drops the queue
                engine.drop(queue)
        self.consumer = None


class EarlierSubscription(Subscription):
    """The same in STOMP 1.0 and 1.1.

    An ACK names a message by its id, and no MESSAGE has an escape that the version does not know.
    """

    __slots__ = ("_tags",)

    def __init__(self, session: Subscriber, subscription_id: str, number: int, mode: str) -> None:
        super().__init__(session, subscription_id, number, mode)
        self._tags: dict[str, int] | None = None if mode == "auto" else {}
        self._ack_prefix = ""
        self._rewritten = session.version.rewritten

    def deliver(self, delivery: Delivery) -> None:
        """Write the MESSAGE frame."""
        if self._tags is not None:
            self._tags[self._message_id(delivery)] = delivery.tag
        super().deliver(delivery)

    def _message_id(self, delivery: Delivery) -> str:
        prefix = self._prefix if delivery.settler is None else delivery.settler.message_prefix
        return f"{prefix}{delivery.message.id}"

    def named(self, message_id: str) -> list[Delivery]:
        """The deliveries that an ACK or NACK of this message means; none where it is not held."""
        tag = None if self._tags is None else self._tags.get(message_id)
        if self._tags is None or tag is None or self.consumer is None:
            return []
        delivery = self.consumer.unacknowledged.get(tag)
        held = [] if delivery is None else self.consumer.through(delivery) if self.cumulative else [delivery]
        for one in held:
            self._tags.pop(self._message_id(one), None)
        return held


def _named(session: Subscriber, subscription_id: str) -> bytes:
    """The header line that says whose MESSAGE it is; none for a subscription without an id."""
    version = session.version
    if version.subscribes_by_destination and subscription_id.startswith(UNNAMED):
        return b""
    return version.header_line("subscription", subscription_id)


class Browser:
    """A subscription that shows the messages of a queue, and takes none.

    The last MESSAGE is empty and has ``browser:end`` (as in ActiveMQ).

    The browsers of a connection show their queues one after the other, each what is in it then:
    what is to be shown is remembered meanwhile, and a client may open a thousand browsers.
    """

    __slots__ = ("_ended", "_queue", "_room", "_selector", "_session", "_subscription", "_task")

    def __init__(
        self, session: Subscriber, subscription_id: str, queue: str, selector: Selector | None
    ) -> None:
        self._session = session
        self._subscription = _named(session, subscription_id)
        self._queue = queue
        self._selector = selector
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    def begin(self) -> None:
        """Show, as far as the connection takes it."""
        if not self._ended:
            self._task = asyncio.get_running_loop().create_task(self._show(), name="browse")

    def pause(self) -> None:
        """The connection takes no more for now."""
        self._room.clear()

    def resume(self) -> None:
        """It does again."""
        self._room.set()

    def leave(self) -> None:
        """Show nothing more."""
        self._room.clear()

    def end(self) -> None:
        """Nothing was taken, so nothing goes back."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    async def _show(self) -> None:
        engine, budget = self._session.engine, self._session.engine.budget
        async with self._session.browse_lock:
            await budget.room()
            browsing = engine.browse(self._queue)
            try:
                async for stored in browsing:
                    await budget.room()
                    budget.spend(DELIVERY)
                    if self._selector is not None:
                        budget.spend(TEST + self._selector.terms)
                        if not self._selector.matches(headers_of(stored.message)):
                            continue
                    await self._room.wait()
                    self._write(stored.message)
                await self._room.wait()
                self._session.connection.write(
                    b"MESSAGE\n",
                    self._subscription,
                    b"message-id:end\ndestination:\nbrowser:end\ncontent-length:0\n\n\0",
                )
            except (OSError, JournalError) as error:
                self._session.connection.error(f"the queue cannot be browsed: {error}", None)
            finally:
                browsing.close()

    def _write(self, message: Message) -> None:
        connection = self._session.connection
        redelivered = b"true" if message.deliveries else b"false"
        headers = self._session.version.rewritten(message.headers)
        told = f"message-id:{self._session.node_id}-{message.id}\nJMSXDeliveryCount:{message.deliveries}\n"
        head = b"MESSAGE\n%b%bredelivered:%b\n%b\n" % (
            self._subscription,
            told.encode(),
            redelivered,
            headers,
        )
        if message.large is None:
            connection.write(head, message.body, b"\0")
        elif message.large in self._session.engine.large:
            connection.stream(head, message.large)


class FeedSubscription:
    """Shows every new value of a feed; a slow client gets only the latest."""

    __slots__ = ("_count", "_feed", "_head", "_latest", "_number", "_paused", "_session")

    def __init__(
        self,
        session: Subscriber,
        subscription_id: str,
        destination: str,
        feed: WatchedValue,
        *,
        paused: bool,
    ) -> None:
        self._session = session
        self._feed = feed
        self._head = b"".join(
            (
                b"MESSAGE\n",
                _named(session, subscription_id),
                session.version.header_line("destination", destination),
                session.version.header_line("content-type", feed.content_type),
            )
        )
        self._paused = paused
        self._latest: bytes | None = None
        self._count = 0
        self._number = feed.watch(self._show)

    def pause(self) -> None:
        """The connection takes no more for now."""
        self._paused = True

    def resume(self) -> None:
        """Show the latest that was missed."""
        self._paused = False
        if self._latest is not None:
            self._show(self._latest)

    def leave(self) -> None:
        """Show nothing more."""
        self._paused = True

    def end(self) -> None:
        """No more."""
        self._feed.unwatch(self._number)

    def _show(self, value: bytes) -> None:
        if self._paused:
            self._latest = value
            return
        self._latest = None
        self._count += 1
        rest = f"message-id:{self._session.name}-{self._count}\ncontent-length:{len(value)}\n\n"
        self._session.connection.write(self._head, rest.encode(), value, b"\0")
