"""The operations of consumers, which wait for a receipt and report it to their consumer.

Each takes a process from its consumer when it is made, and is recorded by its consumer.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from stomp_protocol.client.connection import Connection
from stomp_protocol.client.failover import REFUSED
from stomp_protocol.codec import head
from workloads.payload import Payload
from workloads.sessions import Session

if TYPE_CHECKING:
    from workloads.consumer import Consumer
    from workloads.subscriber import Subscriber


class ConsumerOperation(abc.ABC):
    """An operation of a session.

    ``payload`` is that of the message that it concerns; None if there is none or it is unreadable.
    """

    __slots__ = ("_consumer", "payload", "process", "session")
    f = ""

    @property
    def value(self) -> str | None:
        """The ``value`` of its rows; None: they have none."""
        return None

    def __init__(self, consumer: Consumer, session: Session, payload: Payload | None = None) -> None:
        self._consumer = consumer
        self.session = session
        self.payload = payload
        self.process = consumer.processes.take()

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``stomp_protocol.client.connection.ReceiptWaiter``."""
        self._consumer.row(self, type, error)
        self._consumer.processes.give(self.process, type)
        self._completed(type)

    @abc.abstractmethod
    def _completed(self, type: str) -> None: ...  # noqa: A002 - as above


class Ack(ConsumerOperation):
    """The acknowledgement of a message."""

    __slots__ = ()
    f = "ack"

    def _completed(self, type: str) -> None:  # noqa: A002 - as above
        self._consumer.acknowledged(type)


class Nack(ConsumerOperation):
    """The refusal of a message."""

    __slots__ = ()
    f = "nack"

    def _completed(self, type: str) -> None:  # noqa: A002 - as above
        self._consumer.acknowledged(type)


class SessionOperation(ConsumerOperation):
    """An operation on a whole session; ``begin`` records the invocation and sends the frame."""

    __slots__ = ("_connection",)

    def __init__(self, consumer: Consumer, session: Session, connection: Connection) -> None:
        super().__init__(consumer, session)
        self._connection = connection

    def begin(self) -> None:
        """Record the invocation and send the frame."""
        self._consumer.row(self, "invoke", None)
        self._connection.request(self._head(), self)

    @abc.abstractmethod
    def _head(self) -> bytes: ...


class Subscribe(SessionOperation):
    """The begin of a session.

    Without a receipt the connection is of no use: it is closed, and the next one tries again. If
    the subscribe was refused, the next connection waits a moment (``FailoverClient``).
    """

    __slots__ = ()
    f = "subscribe"

    @property
    def value(self) -> str | None:
        """The options of the subscribe; None: it has none."""
        return self.session.asked

    def _head(self) -> bytes:
        return self._consumer.subscribe_head(self.session)

    def _completed(self, type: str) -> None:  # noqa: A002 - as above
        if type == "ok":
            self._consumer.subscribed(self.session)
        elif type == "fail":
            self._consumer.ended(self.session)
        if type != "ok" and not self._connection.closed:
            self._connection.close(REFUSED if self._connection.refused else "subscribe not confirmed")


class Unsubscribe(SessionOperation):
    """The orderly end of a session."""

    __slots__ = ()
    f = "unsubscribe"

    def _head(self) -> bytes:
        return head("UNSUBSCRIBE", {"id": self.session.subscription})

    def _completed(self, type: str) -> None:  # noqa: A002 - as above
        if type == "ok":
            self._consumer.ended(self.session)


class Drop:
    """The end of a subscription.

    ``ending`` is the unsubscribe of the session that ends with the same frame; None: only the
    subscription ends.
    """

    __slots__ = ("_connection", "_consumer", "_ending", "_process", "_session", "outcome")

    def __init__(
        self,
        consumer: Subscriber,
        session: Session,
        connection: Connection,
        ending: Unsubscribe | None = None,
    ) -> None:
        self.outcome: str | None = None
        self._consumer = consumer
        self._session = session
        self._connection = connection
        self._ending = ending
        self._process = consumer.processes.take()

    def begin(self) -> None:
        """Record the invocation and send the frame."""
        if self._ending is not None:
            self._consumer.row(self._ending, "invoke", None)
        self._consumer.dropping(self._session)
        self._consumer.drop_row(self._process, self._session, "invoke", None)
        self._connection.request(self._consumer.drop_head(self._session), self)

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``stomp_protocol.client.connection.ReceiptWaiter``."""
        consumer = self._consumer
        if self._ending is not None:
            self._ending.complete(type, error)
        consumer.drop_row(self._process, self._session, type, error)
        consumer.processes.give(self._process, type)
        self.outcome = type
        consumer.dropped(self._session, type)
