"""Workload ``bank``: money moves between accounts, and its total must hold.

What is in an account is one message: its body and its row say which account, and how much. In the
beginning producers put money into the accounts of their pair. A teller takes the messages of two
accounts and, in one transaction, acknowledges both and sends both anew, some of the money moved
from one to the other. So whatever becomes of a transaction, all the messages together say what was
put in; the drain reads them.

Why no groups: any teller shall get any two accounts, and a broker may pass them on to others. As
many accounts as the test has groups, but enough that tellers find two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from harness.interface import Dialect, WorkloadContext
from workloads.failover import Client
from workloads.layout import staffed
from workloads.load import Load, Pair
from workloads.producer import Producer, ProducerStream, Stream
from workloads.sending import Sending
from workloads.sessions import Sessions
from workloads.transactor import Held, Letter, Transactor

PUT_IN: Final = 100
"""Into each account."""
PREFETCH: Final = 4
LEAST_PREFETCH: Final = 2
"""Of a teller: it must get two accounts."""
ACCOUNTS_LEAST: Final = 4
"""Of each pair."""
ALONE_S: Final = 0.25
"""For a second account; then a teller sends anew the one that it has."""
RETRY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Balance:
    """What a message says is in an account."""

    account: str
    amount: int

    @property
    def note(self) -> bytes:
        """As its body says it."""
        return f"{self.account}={self.amount} ".encode()

    @property
    def value(self) -> str:
        """As its row says it."""
        return msgspec.json.encode({"account": self.account, "amount": self.amount}).decode()


@dataclass(frozen=True, slots=True)
class Ledger:
    """What each message says: tellers look here, since a body may arrive damaged."""

    balances: dict[int, Balance] = field(default_factory=dict)

    def write(self, stream: Stream, balance: Balance) -> Letter:
        """The next message of a stream, which says that."""
        message = stream.producer.next_message()
        self.balances[message] = balance
        return Letter(stream, balance.note, balance.value, message)


class BankLoad(Load):
    """Each pair has accounts, which are put into its queues in turn, and tellers for them."""

    name = "bank"
    description = "money moves between accounts in transactions, and its total must hold"

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._ledger = Ledger()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """As ``Load``'s."""
        return "" if dialect.transactional_acks else "acknowledgements in transactions"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """None: what is in the accounts goes round."""
        del context, pairs
        return []

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        spec = context.spec
        pairs = self._with_producers(context)
        hold_s, _ = self._consuming(spec, full_speed=full_speed)
        prefetch = max(LEAST_PREFETCH, spec.prefetch or PREFETCH)
        clients = list(staffed(spec.consumers, pairs, context.zones))
        first = self._numbers.producers(len(clients))
        for number, pair, zone in clients:
            teller = Teller(
                context,
                zone,
                pair.nodes,
                self.queues(context),
                self._sessions,
                prefetch=prefetch,
                hold_s=hold_s,
                seed=context.random.getrandbits(64),
                numbers=self._numbers.transactions,
                producer=Producer(first + number),
                ledger=self._ledger,
                interval_s=2 * len(clients) / spec.rate if spec.rate else 0.0,
            )
            pair.consumers.append(teller)
        return pairs

    def _besides(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Coroutine[Any, Any, None]]:
        """The accounts are opened, each by a producer of its pair."""
        queues = self.queues(context)
        work = []
        for pair, accounts in zip(pairs, _accounts(context, len(pairs)), strict=True):
            for place, (producer, client) in enumerate(pair.producers):
                mine = accounts[place :: len(pair.producers)]
                streams = [ProducerStream(context, client, producer, queue, None) for queue in queues]
                work.append(_open(context, client, streams, mine, self._ledger))
        return work


def _accounts(context: WorkloadContext, pairs: int) -> list[list[str]]:
    """The accounts of each pair."""
    count = max(context.spec.groups, ACCOUNTS_LEAST * pairs)
    return [[f"a{number}" for number in range(home, count, pairs)] for home in range(pairs)]


async def _open(
    context: WorkloadContext,
    client: Client,
    streams: Sequence[ProducerStream],
    accounts: Sequence[str],
    ledger: Ledger,
) -> None:
    """Puts money into accounts, one after the other; what certainly failed is tried again."""
    for place, account in enumerate(accounts):
        stream = streams[place % len(streams)]
        while True:
            if await _put_in(context, client, stream, ledger, account) != "fail":
                break
            await asyncio.sleep(RETRY_S)


async def _put_in(
    context: WorkloadContext, client: Client, stream: Stream, ledger: Ledger, account: str
) -> str:
    """How the send ended."""
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
    """Moves money between two accounts at a time.

    Args:
        context, zone, nodes, queues, sessions, prefetch, hold_s, seed, numbers: see ``Transactor``.
        producer: whose messages it sends.
        ledger: what messages say.
        interval_s: from the beginning of a transaction to the next, at least.
    """

    __slots__ = ("_due", "_interval_s", "_later", "_ledger", "_producer", "_streams")

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Sequence[str],
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
        """Two accounts, or after a while one."""
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
        """What was taken is acknowledged, and sent anew at any place among that.

        But not what is nobody's, or cannot be read: that stays with this session.
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
