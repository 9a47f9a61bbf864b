"""A client for programs: it sends, subscribes, and does both on whichever broker serves it.

Why outcomes and no exceptions: after a broken connection nobody can know whether the broker has
taken a message. The program must decide, so it is told "ok" (taken), "fail" (certainly not taken)
or "info" (unknown). The client repeats nothing unless it is asked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeGuard

from stomp_protocol.client.addresses import AddressList
from stomp_protocol.client.connection import ConnectError, Connection, ignore
from stomp_protocol.client.failover import REFUSED, FailoverConnection, State
from stomp_protocol.client.feed import TOPOLOGY, Feed
from stomp_protocol.client.settings import Rules, Settings
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame


class Outcome(NamedTuple):
    """The outcome: "ok", "fail" (the operation did not happen) or "info" (unknown), and why."""

    type: str
    reason: str = ""


class Operation:
    """An operation whose outcome is awaited."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``stomp_protocol.client.connection.ReceiptWaiter``."""
        if not self.outcome.done():
            self.outcome.set_result(Outcome(type, error or ""))


def _is_usable(connection: Connection | None) -> TypeGuard[Connection]:
    return connection is not None and not (connection.closed or connection.leaving)


async def request(connection: Connection | None, frame: bytes, body: bytes = b"") -> Outcome:
    """Send a frame on a connection and return the outcome; None is a connection that has ended."""
    if not _is_usable(connection):
        return Outcome("fail", "not connected")
    operation = Operation()
    connection.request(frame, operation, body)
    return await operation.outcome


class Message:
    """A message as it was delivered; it can be answered on that connection only."""

    __slots__ = ("_connection", "body", "headers")

    def __init__(self, frame: Frame, connection: Connection) -> None:
        self.headers: Mapping[str, str] = frame.headers
        self.body = frame.body
        self._connection = connection

    async def ack(self, headers: Mapping[str, str] | None = None) -> Outcome:
        """Acknowledge the message.

        If the outcome is not "ok", the message may be delivered again.
        """
        return await self._answer("ACK", headers)

    async def nack(self, headers: Mapping[str, str] | None = None) -> Outcome:
        """Refuse the message."""
        return await self._answer("NACK", headers)

    async def _answer(self, command: str, headers: Mapping[str, str] | None) -> Outcome:
        answered = {"id": self.headers.get("ack", ""), **(headers or {})}
        return await request(self._connection, head(command, answered))


class Subscription:
    """A subscription, which the client makes on each new connection.

    ``confirmed`` is set while the broker of the present connection has confirmed it.
    """

    def __init__(self, number: str, frame: bytes, on_message: Callable[[Message], Any]) -> None:
        self.id = number
        self.confirmed = asyncio.Event()
        self._frame = frame
        self._on_message = on_message

    def begin(self, connection: Connection) -> None:
        """Subscribe on a new connection, which is of no use without the subscription."""
        connection.request(self._frame, _Subscribe(self, connection))

    def deliver(self, message: Message) -> None:
        """Give a message to the program."""
        self._on_message(message)


class _Subscribe:
    """The SUBSCRIBE of a subscription on one connection, which closes if it is not confirmed."""

    __slots__ = ("_connection", "_subscription")

    def __init__(self, subscription: Subscription, connection: Connection) -> None:
        self._subscription = subscription
        self._connection = connection

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``stomp_protocol.client.connection.ReceiptWaiter``."""
        connection = self._connection
        if type == "ok":
            self._subscription.confirmed.set()
        elif not connection.closed:
            connection.close(f"{REFUSED}: {error}" if connection.refused else "subscribe not confirmed")


class Client(FailoverConnection):
    """A client of one of several brokers; it connects in ``async with``.

    Entering raises ConnectError if no broker of the list accepts the client. When it has given up
    or left, operations end with the outcome "fail".

    Args:
        brokers: addresses, "host:port", or a list that several clients share.
        settings, rules, headers, on_state, on_failure, feed: see ``FailoverConnection``.
        once_header: the header of SEND with an id by which brokers take a message once, however
            often it comes; "": brokers have none.
        chance: the generator of random orders and jitter.
    """

    def __init__(
        self,
        brokers: Sequence[str] | AddressList,
        settings: Settings | None = None,
        rules: Rules | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        on_state: Callable[[State], None] = ignore,
        on_failure: Callable[[State], str | None] = ignore,
        feed: Feed | None = TOPOLOGY,
        once_header: str = "_AMQ_DUPL_ID",
        chance: random.Random | None = None,
    ) -> None:
        if not isinstance(brokers, AddressList):
            brokers = AddressList(brokers)
            for broker in brokers.named:
                _place(broker)  # a wrong address is told at once
        super().__init__(
            brokers,
            settings or Settings(),
            rules or Rules(),
            resolve=_place,
            chance=chance or random.Random(),
            feed=feed,
            headers=headers,
            on_up=self._begin,
            on_down=self._end,
            on_state=on_state,
            on_failure=on_failure,
        )
        self._once_header = once_header
        self._subscriptions: dict[str, Subscription] = {}
        self._numbers = itertools.count(1)
        self._available = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect to the first broker that accepts the client. Raises ConnectError."""
        self._task = asyncio.create_task(self._keep())
        try:
            await self._available.wait()
        except BaseException:
            await self._stop()
            raise
        if self.connection is None and self._task.done():
            await self._task
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave; raise what a callback has raised."""
        try:
            await self.finish()
            await asyncio.sleep(0)  # a task whose connection has ended takes note of it, and ends
        finally:
            await self._stop()

    async def _stop(self) -> None:
        assert self._task is not None, "left without being entered"
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectError):
            await self._task

    async def send(
        self,
        destination: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        repeat: bool = False,
    ) -> Outcome:
        """Send a message, and return whether the broker has taken it.

        While the client is connecting, this waits. With ``repeat``, a message that got no answer is
        sent again on the next connection, with an id by which brokers take it once. If that one
        fails, the outcome is "info": the broker before it may have taken the message.
        """
        named = {"destination": destination, **(headers or {})}
        if repeat and self._once_header:
            named.setdefault(self._once_header, secrets.token_hex(16))
        frame = head("SEND", named)
        is_unknown = False
        while True:
            await self._available.wait()
            connection = self.connection
            is_last = not repeat or not _is_usable(connection)
            outcome = await request(connection, frame, body)
            is_unknown = is_unknown or outcome.type == "info"
            if outcome.type == "ok" or is_last or (connection is not None and connection.refused):
                return Outcome("info", outcome.reason) if is_unknown and outcome.type == "fail" else outcome

    def subscribe(
        self,
        destination: str,
        on_message: Callable[[Message], Any],
        headers: Mapping[str, str] | None = None,
        *,
        ack: str = "client-individual",
    ) -> Subscription:
        """Subscribe now and on each further connection; ``on_message`` gets the messages."""
        number = str(next(self._numbers))
        frame = head("SUBSCRIBE", {"id": number, "destination": destination, "ack": ack, **(headers or {})})
        subscription = self._subscriptions[number] = Subscription(number, frame, on_message)
        if _is_usable(self.connection):
            subscription.begin(self.connection)
        return subscription

    async def unsubscribe(
        self, subscription: Subscription, headers: Mapping[str, str] | None = None
    ) -> Outcome:
        """End a subscription; ``headers`` may name a durable one that is to be deleted."""
        del self._subscriptions[subscription.id]
        return await request(self.connection, head("UNSUBSCRIBE", {"id": subscription.id, **(headers or {})}))

    async def _keep(self) -> None:
        try:
            await self.run()
        finally:
            self._available.set()  # whoever waits for a connection learns that there is none

    def _begin(self, connection: Connection) -> None:
        def sort_out(frame: Frame) -> None:
            subscription = self._subscriptions.get(frame.headers.get("subscription", ""))
            if subscription is not None:
                subscription.deliver(Message(frame, connection))

        connection.on_message = sort_out
        self._available.set()
        for subscription in self._subscriptions.values():
            subscription.begin(connection)

    def _end(self, reason: str) -> None:
        del reason
        self._available.clear()
        for subscription in self._subscriptions.values():
            subscription.confirmed.clear()


def _place(broker: str) -> tuple[str, int]:
    host, _, port = broker.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{broker!r} is no address of a broker: expected host:port")
    return host.strip("[]"), int(port)
