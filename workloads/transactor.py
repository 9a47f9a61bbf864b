"""Transactors: consumers that settle messages in transactions, one transaction at a time.

A transactor takes a few messages and, in one transaction, acknowledges them and sends others. It
then commits, or rolls back, or closes its connection without DISCONNECT. It has one transaction at
a time, so that its commits are in the order of its sends. Subclasses decide which messages are
taken and sent.

Why the time between begin and end is random, and sometimes long: a fault shall find transactions at
every step, and a fail-over shall find open ones. An operation in a transaction is recorded when its
receipt comes; the end of the transaction decides whether it happened.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.interface import WorkloadContext
from stomp_protocol.client.connection import Connection
from workloads import stamp
from workloads.consumer import LEAVE_PATIENCE_S, Consumer, Style, ack_head
from workloads.failover import Nodes
from workloads.payload import Payload, digest
from workloads.producer import Stream
from workloads.sessions import Session, Sessions

COMMITS: Final = 0.8
ABORTS: Final = 0.12
"""The share of transactions that are rolled back; the rest ends with an unannounced close."""
PAUSES: Final = 0.5
"""The share of transactions that pause somewhere."""
PAUSE: Final = (0.0, 2.5)
"""The length of a pause, lowest and highest, as a multiple of a consumer's hold."""
ANSWER_S: Final = 0.5
"""The seconds to wait for answers before the end: a broker may keep some back until the commit."""
FLUSH_S: Final = 0.005
"""The seconds before a transactor closes its connection, so that its frames leave this machine."""
LONG: Final = 0.02
"""The share of transactions that are held open for long, to span a fail-over."""
LONG_S: Final = (0.5, 3.0)
Held = tuple[Session, str, Payload | None]
"""A delivery: its session, the id that its ACK names, and its payload (None: unreadable)."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to send: the next of a stream.

    ``note`` becomes part of its body, ``value`` of its rows.
    """

    stream: Stream
    note: bytes = b""
    value: str | None = None
    message: int | None = None
    """The id of the message, where it had to be known before; None: it gets the next id."""


class Transactor(Consumer, abc.ABC):
    """A consumer of ``queues`` that settles what it gets in transactions.

    Args:
        context, zone, nodes, queues, sessions, prefetch, hold_s, seed: see ``Consumer``.
        numbers: the source of the numbers of transactions, shared by all transactors of a test.
    """

    __slots__ = ("_chance", "_going", "_idle", "_inbox", "_numbers", "_wake", "context")

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Nodes,
        queues: Sequence[str],
        sessions: Sessions,
        *,
        prefetch: int,
        hold_s: float,
        seed: int,
        numbers: Iterator[int],
    ) -> None:
        super().__init__(context, zone, nodes, queues, sessions, prefetch=prefetch, hold_s=hold_s, seed=seed)
        self.context = context
        self._chance = random.Random(seed)
        self._numbers = numbers
        self._inbox: deque[Held] = deque()
        self._wake = asyncio.Event()
        self._going = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @abc.abstractmethod
    def _take(self) -> Sequence[Held]:
        """Take the deliveries of the next transaction out of the inbox; none: not yet."""

    @abc.abstractmethod
    def _steps(self, taken: Sequence[Held]) -> list[Held | Letter]:
        """Return the steps of a transaction: acknowledgements of ``taken``, and letters to send."""

    async def run(self) -> None:
        """Connect, subscribe and consume, and settle the deliveries in transactions."""
        self._going.clear()
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self._work())
            await super().run()
            working.cancel()

    async def leave(self, style: Style) -> None:
        """End the open transaction, and then leave as a consumer does."""
        self._going.set()
        try:
            async with asyncio.timeout(LEAVE_PATIENCE_S):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._inbox.clear()
        await super().leave(style)

    def taken(self, session: Session, ack_id: str, payload: Payload | None) -> None:
        """Put a delivery into the inbox, where it waits for its transaction."""
        self._inbox.append((session, ack_id, payload))
        self._wake.set()

    def _down(self, reason: str) -> None:
        self._inbox.clear()
        super()._down(reason)

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._inbox and not self._going.is_set():
                connection = self._connection
                if connection is None or connection.closed or connection.leaving:
                    break
                taken = self._take()
                if not taken:
                    break
                self._idle.clear()
                try:
                    await self._transact(connection, taken)
                finally:
                    self._idle.set()

    async def _transact(self, connection: Connection, taken: Sequence[Held]) -> None:
        chance = self._chance
        transaction = Transaction(self, connection, next(self._numbers))
        steps = self._steps(taken)
        pause_s = self._hold_s * chance.uniform(*PAUSE) if chance.random() < PAUSES else 0.0
        if chance.random() < LONG:
            pause_s = chance.uniform(*LONG_S)
        before = chance.randint(0, len(steps))
        answered, end = chance.random() < 0.5, chance.random()
        acks = self.context.dialect.transactional_acks
        transaction.ask("begin")
        for number, step in enumerate([*steps, None]):
            if number == before and pause_s:
                await self._pause(pause_s)
            if connection.closed:
                break
            if isinstance(step, Letter):
                transaction.send(step)
            elif step is not None and acks:
                transaction.ack(*step)
        if answered:
            await transaction.answered(ANSWER_S)
        if connection.closed:
            await transaction.answered()
        elif end < COMMITS:
            transaction.ask("commit")
            await transaction.answered()
            if not acks:
                await self._settle_alone(connection, taken, committed=transaction.committed)
        elif end < COMMITS + ABORTS:
            transaction.ask("abort")
            await transaction.answered()
            if not self.context.dialect.redelivers_aborted:
                await connection.finish()
        else:
            await self._pause(FLUSH_S)
            connection.close("client went away")

    async def _settle_alone(self, connection: Connection, taken: Sequence[Held], *, committed: bool) -> None:
        """Acknowledge after the commit what could not be acknowledged in the transaction."""
        if committed and not connection.closed:
            for session, ack_id, payload in taken:
                self._acknowledge(session, ack_id, payload)
            await self._settle(connection)

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until this transactor has to leave."""
        try:
            async with asyncio.timeout(seconds):
                await self._going.wait()
        except TimeoutError:
            pass


class Transaction:
    """An open transaction, which counts the operations in it that have no answer yet."""

    def __init__(self, owner: Transactor, connection: Connection, number: int) -> None:
        self.owner = owner
        self.number = number
        self._connection = connection
        self._open = 0
        self._name = b"tx" if owner.context.spec.reuse_transactions else b"%d" % number
        self.committed = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    def ask(self, f: str) -> None:
        """Ask for the begin or the end of the transaction: "begin", "commit" or "abort"."""
        self._request(b"%b\n" % f.upper().encode(), f, {})

    def send(self, letter: Letter) -> None:
        """Send the next message of a stream in the transaction."""
        stream = letter.stream
        sequence, message = stream.sequence, letter.message or stream.producer.next_message()
        stream.sequence += 1
        body = stream.writer.encode(message, sequence, letter.note)
        columns: dict[str, object] = {
            "queue": stream.queue, "group": stream.group, "message": message,
            "producer": stream.producer.number, "sequence": sequence, "digest": digest(body),
            "headers": stamp.sent(message), "value": letter.value,
        }  # fmt: skip
        self._request(stream.head + stamp.line(message), "send", columns, body)

    def ack(self, session: Session, ack_id: str, payload: Payload | None) -> None:
        """Acknowledge a delivery in the transaction."""
        columns: dict[str, object] = {
            "queue": session.queue, "session": session.number, "subscription": session.subscription_name,
        }  # fmt: skip
        if payload is not None:
            columns |= {
                "group": payload.group, "message": payload.message, "producer": payload.producer,
                "sequence": payload.sequence,
            }  # fmt: skip
        self._request(ack_head(ack_id), "ack", columns)

    async def answered(self, patience_s: float | None = None) -> None:
        """Wait until no operation lacks an answer, but at most ``patience_s`` (None: no limit).

        A connection that ends completes the operations that will never be answered.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._quiet.wait()

    def _request(self, head: bytes, f: str, columns: dict[str, object], body: bytes = b"") -> None:
        step = _Step(self, f, columns, self._connection)
        self._open += 1
        self._quiet.clear()
        step.row("invoke", None)
        self._connection.request(b"%btransaction:%b\n" % (head, self._name), step, body)

    def done(self, f: str, type: str) -> None:  # noqa: A002 - the history's own name for it
        """Count the answer to an operation ``f``, "ok", "fail" or "info"."""
        self.committed = self.committed or (f, type) == ("commit", "ok")
        self._open -= 1
        if not self._open:
            self._quiet.set()


class _Step:
    """An operation of a transaction, which waits for its receipt."""

    def __init__(
        self, transaction: Transaction, f: str, columns: dict[str, object], connection: Connection
    ) -> None:
        self._transaction = transaction
        self._f = f
        self._columns = columns
        self._connection = connection
        self._process = transaction.owner.processes.take()

    def row(self, type: str, error: str | None) -> None:  # noqa: A002 - the history's own name for it
        self._transaction.owner.context.recorder.event(
            self._process,
            type,
            self._f,
            **self._columns,  # type: ignore[arg-type] # of the columns named above
            transaction=self._transaction.number,
            connection=self._connection.number,
            broker=None if type == "invoke" else self._connection.broker,
            error=error,
        )

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``stomp_protocol.client.connection.ReceiptWaiter``."""
        self.row(type, error)
        owner = self._transaction.owner
        owner.processes.give(self._process, type)
        if self._f in ("send", "ack"):
            counters = owner.context.counters
            counters[type] = counters.get(type, 0) + 1
        self._transaction.done(self._f, type)
