"""Workload ``bank``: money moves between accounts, and its total must hold.

The balance of an account is one message: its body and its row name the account and the amount. In
the beginning producers put money into the accounts of their pair. A teller takes the messages of
two accounts. In one transaction it acknowledges both and sends two new ones, with some of the money
moved from one account to the other. So whatever becomes of a transaction, the amounts of all
messages add up to what was put in. The drain reads the messages.

Why no groups: any teller shall get any two accounts, and a broker may forward them to others. There
are as many accounts as the test has groups, but enough that tellers find two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from harness.interface import Dialect, WorkloadContext
from workloads import placement
from workloads.failover import Client, Nodes
from workloads.load import Load, Pair
from workloads.producer import Producer, ProducerStream, Stream
from workloads.sending import Sending
from workloads.sessions import Sessions
from workloads.transactor import Held, Letter, Transactor

PUT_IN: Final = 100
"""The amount that is put into each account."""
PREFETCH: Final = 4
LEAST_PREFETCH: Final = 2
"""The lowest prefetch of a teller, which must get two accounts."""
ACCOUNTS_LEAST: Final = 4
"""The lowest number of accounts of each pair."""
ALONE_S: Final = 0.25
"""The seconds for which a teller waits for a second account before it goes on with one."""
RETRY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of an account, as a message says it."""

    account: str
    amount: int

    @property
    def note(self) -> bytes:
        """The balance as text in the message's body."""
        return f"{self.account}={self.amount} ".encode()

    @property
    def value(self) -> str:
        """The balance as ``value`` in the message's row."""
        return msgspec.json.encode({"account": self.account, "amount": self.amount}).decode()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The balance that each message says; tellers look here, since a body may arrive damaged."""

    balances: dict[int, Balance] = field(default_factory=dict)

    def write(self, stream: Stream, balance: Balance) -> Letter:
        """Return the next message of a stream, which says a balance."""
        message = stream.producer.next_message()
        self.balances[message] = balance
        return Letter(stream, balance.note, balance.value, message)


class BankLoad(Load):
    """A load in which each pair has accounts, dealt to its queues in turn, and tellers."""

    name = "bank"
    description = "money moves between accounts in transactions, and its total must hold"

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._ledger = Ledger()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: tellers acknowledge in transactions."""
        return "" if dialect.transactional_acks else "acknowledgements in transactions"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return no streams: tellers send the messages of the accounts again and again."""
        del context, pairs
        return []

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        spec = context.spec
        pairs = self._with_producers(context)
        hold_s, _ = self._consuming(spec, full_speed=full_speed)
        prefetch = max(LEAST_PREFETCH, spec.prefetch or PREFETCH)
        clients = placement.consumers(context)
        first = self._numbers.producers(len(clients))
        for seat in clients:
            teller = Teller(
                context,
                seat.zone,
                seat.nodes,
                self.queues(context),
                self._sessions,
                prefetch=prefetch,
                hold_s=hold_s,
                seed=context.random.getrandbits(64),
                numbers=self._numbers.transactions,
                producer=Producer(first + seat.number),
                ledger=self._ledger,
                interval_s=2 * len(clients) / spec.rate if spec.rate else 0.0,
            )
            pairs[seat.pair].consumers.append(teller)
        return [*pairs.values()]

    def _besides(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Coroutine[Any, Any, None]]:
        """Return the work that opens the accounts, each by a producer of its pair."""
        queues = self.queues(context)
        work = []
        for pair, accounts in zip(pairs, _accounts(context, len(pairs)), strict=True):
            for place, (producer, client) in enumerate(pair.producers):
                mine = accounts[place :: len(pair.producers)]
                streams = [ProducerStream(context, client, producer, queue, None) for queue in queues]
                work.append(_open(context, client, streams, mine, self._ledger))
        return work


def _accounts(context: WorkloadContext, pairs: int) -> list[list[str]]:
    """Return the accounts of each pair."""
    count = max(context.spec.groups, ACCOUNTS_LEAST * pairs)
    return [[f"a{number}" for number in range(home, count, pairs)] for home in range(pairs)]


async def _open(
    context: WorkloadContext,
    client: Client,
    streams: Sequence[ProducerStream],
    accounts: Sequence[str],
    ledger: Ledger,
) -> None:
    """Put money into accounts, one after the other; repeat a send that certainly failed."""
    for place, account in enumerate(accounts):
        stream = streams[place % len(streams)]
        while True:
            if await _put_in(context, client, stream, ledger, account) != "fail":
                break
            await asyncio.sleep(RETRY_S)


async def _put_in(
    context: WorkloadContext, client: Client, stream: Stream, ledger: Ledger, account: str
) -> str:
    """Put money into an account, and return how the send ended: "ok", "fail" or "info"."""
    connection = client.connection
    if connection is None or connection.closed:
        return "fail"
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ended(type_: str, error: str | None) -> None:
        del error
        if not outcome.done():
            outcome.set_result(type_)

    process = context.recorder.next_process()
    letter = ledger.write(stream, Balance(account, PUT_IN))
    assert letter.message is not None, "a ledger numbers what it writes"
    Sending(context, connection, stream, process, ended).send(
        stream.head, letter.message, note=letter.note, value=letter.value
    )
    return await outcome


class Teller(Transactor):
    """A transactor that moves money between two accounts in each transaction.

    Args:
        context, zone, nodes, queues, sessions, prefetch, hold_s, seed, numbers: see ``Transactor``.
        producer: the producer of the messages that it sends.
        ledger: the balance that each message says.
        interval_s: the shortest time from the begin of a transaction to the next.
    """

    __slots__ = ("_due", "_interval_s", "_later", "_ledger", "_producer", "_streams")

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
        producer: Producer,
        ledger: Ledger,
        interval_s: float,
    ) -> None:
        super().__init__(
            context, zone, nodes, queues, sessions,
            prefetch=prefetch, hold_s=hold_s, seed=seed, numbers=numbers,
        )  # fmt: skip
        self._ledger = ledger
        self._interval_s = interval_s
        self._due = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._streams = {queue: Stream(context, producer, queue, None) for queue in queues}

    def _take(self) -> Sequence[Held]:
        """Return two accounts, or one after ``ALONE_S``; none while they must wait."""
        now = self._loop.time()
        wait_s = self._due - now
        if len(self._inbox) < 2:
            wait_s = max(wait_s, self.delivered_at + ALONE_S - now)
        if wait_s > 0:
            if self._later is not None:
                self._later.cancel()
            self._later = self._loop.call_later(max(wait_s, 0.002), self._wake.set)
            return []
        self._due = max(now, self._due + self._interval_s)
        return [self._inbox.popleft() for _ in range(min(2, len(self._inbox)))]

    def _steps(self, taken: Sequence[Held]) -> list[Held | Letter]:
        """Return an acknowledgement of each account taken, and the new messages at random places.

        A message that no ledger knows, or that cannot be read, is left out: it stays with this
        session.
        """
        balances = self._ledger.balances
        steps: list[Held | Letter] = []
        known: list[tuple[str, Balance]] = []
        for one in taken:
            session, _, payload = one
            if payload is not None and payload.message in balances:
                steps.append(one)
                known.append((session.queue, balances[payload.message]))
        moved = self._chance.randint(0, known[0][1].amount) if len(known) == 2 else 0
        for (queue, balance), change in zip(known, (-moved, moved), strict=False):
            letter = self._ledger.write(
                self._streams[queue], Balance(balance.account, balance.amount + change)
            )
            steps.insert(self._chance.randint(0, len(steps)), letter)
        return steps
