"""Producers, their streams of messages, and the sends under way.

A *stream* is one producer's messages of one group (or of one queue, where there are no groups). Its
sequence counts from 0 and never repeats. Up to ``pipeline`` sends of a stream may be under way;
each has a logical process of its own, a ``Slot``. With a pipeline of 1 the order of a stream is
certain; with more it is still the order of one connection's bytes.

A send that ended in ``info`` is not repeated, because a second attempt would be a second message.
The exception are brokers that recognise a repeated message by an id (``AgainSlot``). The stream
goes on with the next sequence number.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.interface import WorkloadContext
from stomp_protocol.codec import head
from workloads import stamp
from workloads.failover import Client
from workloads.payload import PRODUCER_MAX, PRODUCER_SHIFT, Writer, digest


class Producer:
    """A producer: its number, and the source of its message ids.

    Raises ValueError for a number that message ids have no room for.
    """

    __slots__ = ("number", "sent")

    def __init__(self, number: int) -> None:
        if not 0 <= number <= PRODUCER_MAX:
            raise ValueError(f"producer {number} is not within 0..{PRODUCER_MAX}")
        self.number = number
        self.sent = 0

    def next_message(self) -> int:
        """Return a message id that was never used before."""
        self.sent += 1
        return self.number << PRODUCER_SHIFT | self.sent


class Stream:
    """A stream: one producer's messages of one group or queue, in order."""

    __slots__ = ("group", "head", "producer", "queue", "sequence", "writer")

    def __init__(self, context: WorkloadContext, producer: Producer, queue: str, group: str | None) -> None:
        self.producer = producer
        self.group = group
        self.go_to(context, queue)

    def go_to(self, context: WorkloadContext, queue: str) -> None:
        """Send the following messages to a queue to which the stream has not sent yet."""
        dialect, spec, group = context.dialect, context.spec, self.group
        self.queue = queue
        self.sequence = 0
        self.head = head(
            "SEND", {"destination": dialect.destination(queue), **dialect.send_headers(group, queue)}
        )
        self.writer = Writer(
            self.producer.number,
            queue,
            group,
            spec.payload_bytes,
            large_share=spec.large_message_share,
            large_bytes=spec.large_message_bytes,
        )

    def asked(self, sequence: int) -> tuple[bytes, str | None]:
        """Return the head of the frame of a message, and the ``value`` of its rows."""
        del sequence
        return self.head, None

    def answered(self, sequence: int, value: str | None) -> str | None:
        """Return the ``value`` of the row that answers the send of a message ``ok``.

        ``value`` is that of the invocation.
        """
        del sequence
        return value


class ProducerStream(Stream):
    """A stream whose messages are sent through a client, one by one."""

    __slots__ = ("client",)

    def __init__(
        self,
        context: WorkloadContext,
        client: Client,
        producer: Producer,
        queue: str,
        group: str | None,
    ) -> None:
        super().__init__(context, producer, queue, group)
        self.client = client


class Slot:
    """A logical process of a stream, which sends one message at a time.

    It calls ``on_idle`` when it may send the next message, and says whether the send reached a
    connection at all. So slots are not asked again and again while there is no connection.
    """

    __slots__ = (
        "_broker", "_connection", "_context", "_counters", "_digest", "_headers", "_message", "_on_idle",
        "_process", "_queue", "_record", "_sequence", "_stream", "_value", "_writer", "busy",
    )  # fmt: skip

    def __init__(
        self, context: WorkloadContext, stream: ProducerStream, on_idle: Callable[[Slot, bool], None]
    ) -> None:
        self._context = context
        self._record = context.recorder.event
        self._counters = context.counters
        self._stream = stream
        self._on_idle = on_idle
        self._process = context.recorder.next_process()
        self._message = self._sequence = self._digest = self._headers = 0
        self._connection: int | None = None
        self._broker: str | None = None
        self._value: str | None = None
        self._queue, self._writer = stream.queue, stream.writer
        self.busy = False

    @property
    def connected(self) -> bool:
        """True if a send would reach a connection."""
        connection = self._stream.client.connection
        return connection is not None and not connection.closed

    def send(self) -> None:
        """Send the stream's next message.

        Without a connection the operation fails at once: nothing was sent. A client that is away by
        its own choice sends nothing: a send that failed for that reason would say of the broker
        that it did not answer.
        """
        stream = self._stream
        if stream.client.away:
            self._on_idle(self, False)
            return
        self._next()
        body = self._writer.encode(self._message, self._sequence)
        self._digest, self._headers = digest(body), stamp.sent(self._message)
        frame, self._value = self._asked()
        connection = stream.client.connection
        if connection is not None and connection.closed:
            connection = None
        self._connection = None if connection is None else connection.number
        self._broker = None if connection is None else connection.broker
        self._row("invoke")
        self.busy = True
        if connection is None:
            self._finish("fail", "not connected", None)
            self._on_idle(self, False)
        else:
            connection.request(frame + stamp.line(self._message), self, body)

    def _next(self) -> None:
        """Choose the message that is sent next."""
        stream = self._stream
        self._queue, self._writer = stream.queue, stream.writer
        self._sequence = stream.sequence
        stream.sequence += 1
        self._message = stream.producer.next_message()

    def _asked(self) -> tuple[bytes, str | None]:
        """Return the head of the message's frame and the ``value`` of its rows."""
        return self._stream.asked(self._sequence)

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """Complete the send: the broker has answered, or never will."""
        if type == "ok":
            self._value = self._stream.answered(self._sequence, self._value)
        self._finish(type, error, self._broker)
        self._on_idle(self, True)

    def _finish(self, type: str, error: str | None, broker: str | None) -> None:  # noqa: A002 - as above
        self._row(type, broker, error)
        counters = self._counters
        counters[type] = counters.get(type, 0) + 1
        self.busy = False
        if type == "info":
            self._process = self._context.recorder.next_process()

    def _row(self, type: str, broker: str | None = None, error: str | None = None) -> None:  # noqa: A002 - as above
        stream = self._stream
        self._record(
            self._process,
            type,
            "send",
            queue=self._queue,
            group=stream.group,
            message=self._message,
            producer=stream.producer.number,
            sequence=self._sequence,
            digest=self._digest,
            headers=self._headers,
            broker=broker,
            connection=self._connection,
            error=error,
            value=self._value,
        )


class AgainSlot(Slot):
    """A slot that repeats the send of a message of unknown outcome until it is answered.

    Each message has an id by which brokers take it once, however often it comes.
    """

    __slots__ = ("_once", "_unknown", "_wished")

    def __init__(
        self, context: WorkloadContext, stream: ProducerStream, on_idle: Callable[[Slot, bool], None]
    ) -> None:
        super().__init__(context, stream, on_idle)
        assert context.dialect.once_header is not None, "a dialect without ids of sends"
        self._once = context.dialect.once_header.encode()
        self._unknown = False
        self._wished: tuple[bytes, str | None] = b"", None

    def _next(self) -> None:
        if not self._unknown:
            super()._next()

    def _asked(self) -> tuple[bytes, str | None]:
        if not self._unknown:
            self._wished = super()._asked()
        frame, value = self._wished
        return b"%b%b:%d\n" % (frame, self._once, self._message), value

    def _finish(self, type: str, error: str | None, broker: str | None) -> None:  # noqa: A002 - as above
        self._unknown = type == "info" or (type == "fail" and self._unknown)
        super()._finish(type, error, broker)
