"""The rule ``wrong-total``: the amounts that are left at the end are those that were put in.

A send may say that its message is an amount of an account: as JSON in ``value``, ``{"amount": 70,
"account": "a7"}``. A client that takes such messages and sends others in one transaction moves the
amounts. At the end, when everything was drained and every store read, there must be as much as was
put in.

Of each message with an amount three things are counted:

    made    its send outside of transactions was ``ok``, or it was delivered or stored; or its
            transaction happened: the commit was ``ok``, or was invoked and not refused, and one of
            the messages sent in it was delivered or stored
    taken   by each transaction that happened and has an ack of it
    left    it was delivered in the drain, or a store had it, and no ack of it was certain before

An amount that was made and not taken must be left. A commit of unknown outcome changes nothing if
it sends as much as it takes, which is added up, too. If it does not, or if a send outside of
transactions is of unknown outcome, nothing is claimed. Nor is it where something else may have
taken a message: an ack outside of transactions before the drain, a nack, a receive that was never
heard answered, a body that cannot be read, or its expiry. Nor is it if an ack in a transaction may
have come when the broker had taken the message back: it may have taken nothing. Nor is it if a
session that was there before the drain read the message only in the drain: the session may have
been sent it before another took it.

The instance names one message at which the amounts do not add up, so that a few rows show it. If a
commit without an ``ok`` ties a few messages together, it names one of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from checkers.asked import amount_of, asked_by
from checkers.ends import Ends
from checkers.instance import Instance
from checkers.rows import (
    ACK_FAIL,
    ACK_INVOKE,
    ACK_OK,
    BROWSE,
    DELIVER,
    FOREVER,
    NACK_INVOKE,
    NONE,
    SEND_FAIL,
    SEND_INVOKE,
    SEND_OK,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    counted,
    first,
    highest,
    joined,
    lowest,
    marked,
)
from checkers.timeouts import Lapses
from checkers.verdict import Promises, Total

NAME: Final = "wrong-total"


@dataclass(frozen=True, slots=True)
class Balances:
    """The messages with an amount, a row each; ``place`` is a number in the table of their part.

    ``sent`` is the invocation of the send, in ``transaction`` (``NONE``: none). ``shown``: the
    message was delivered or stored. ``left``: see above. ``loose``: something besides transactions
    may have taken the message, an ack in a transaction may have come too late, it was sent more
    than once, or a delivery that was read in the drain may have been sent before.
    """

    run: Numbers
    place: npt.NDArray[np.int32]
    message: Numbers
    account: npt.NDArray[np.object_]
    amount: Numbers
    sent: Numbers
    transaction: Numbers
    ok: Flags
    failed: Flags
    shown: Flags
    left: Flags
    loose: Flags


@dataclass(frozen=True, slots=True)
class Takings:
    """The acks of messages with an amount in transactions, at most one in each transaction.

    ``balance`` is the row of the message in ``Balances``.
    """

    balance: Numbers
    run: Numbers
    transaction: Numbers
    index: Numbers
    failed: Flags


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger of one slice: messages with an amount, and the acks of them in transactions.

    ``unreadable`` are the (run, queue) where the drain or a store had a body that cannot be read.
    """

    balances: Balances
    takings: Takings
    places: Sequence[Place]
    unreadable: frozenset[tuple[int, str | None]]


@dataclass(frozen=True, slots=True)
class Culprit:
    """A message at which the amounts do not add up.

    ``transaction`` is the latest that took it (``taken``), else the one that sent it, or None.
    """

    place: Place
    message: int
    sent: int
    account: str
    amount: int
    transaction: int | None
    taken: bool
    left: bool


@dataclass(frozen=True, slots=True)
class WrongTotal:
    """The amount that should be left and the one that is, and the culprits, in order.

    ``together`` are the messages whose rows show the first culprit, each with the place to which it
    was sent.
    """

    run: int
    expected: int
    left: int
    culprits: Sequence[Culprit]
    together: frozenset[tuple[int, Place]]

    @property
    def messages(self) -> frozenset[int]:
        """The ids of the messages that show the first culprit."""
        return frozenset(message for message, _ in self.together)

    def instance(self) -> Instance:
        """Return the instance, which the send of the first culprit shows."""
        at = self.culprits[0]
        _, queue, group = at.place
        key = None if at.transaction is None else str(at.transaction)
        return Instance(NAME, queue, group, at.message, at.sent, key, self.run)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The total of a run's amounts, and where it is wrong, if it certainly is."""

    run: int
    total: Total
    wrong: WrongTotal | None


# ------------------------------------------------------------------------------------- of one part


def books(
    rows: Rows, places: PlaceTable, ends: Ends, drained_from: Mapping[int, int], lapsed: Lapses
) -> Books:
    """Return the ledger of one slice.

    ``drained_from`` has the row with which each run's drain began, ``lapsed`` the late acks.
    """
    size = rows.messages
    invokes = rows.of(SEND_INVOKE)
    invokes = invokes[~places.ending()[rows.place[invokes]]]
    entries = [amount_of(value) for value in rows.value.values]
    saying = np.array([entry is not None for entry in entries] + [False], dtype=bool)
    saying = saying[rows.value.codes[invokes]]
    number = np.full(size, NONE, dtype=np.int64)  # the row of each message in the balances
    paying = invokes[saying]
    ids = np.unique(rows.id[paying])
    number[ids] = np.arange(len(ids))
    from_ = np.array([drained_from.get(run, FOREVER) for run in places.runs()], dtype=np.int64)
    drain = from_[rows.place]
    unreadable = _unreadable(rows, places, drain)
    if not len(ids):
        return Books(_NO_BALANCES, _NO_TAKINGS, (), unreadable)
    code = first(rows.id[paying], rows.value.codes[paying].astype(np.int64), size)[ids]
    accounts, amounts = zip(*(entries[entry] or ("", 0) for entry in code.tolist()), strict=True)
    delivers, stored = rows.of(DELIVER), rows.of(BROWSE)
    late = np.concatenate([delivers[rows.index[delivers] > drain[delivers]], stored])
    shown_late = lowest(rows.id[late], rows.index[late], size)[ids]
    settled = _settled(rows, ends, lapsed)[ids]
    is_left = (shown_late != NONE) & ((settled == NONE) | (shown_late < settled))
    acks, nacks = rows.of(ACK_INVOKE), rows.of(NACK_INVOKE)
    plain = acks[(rows.transaction[acks] == NONE) & (rows.index[acks] < drain[acks])]
    loose = marked(np.concatenate([rows.id[plain], rows.id[nacks]]), size)
    loose |= marked(rows.id[_read_late(rows, ends, drain)], size)
    loose |= marked(rows.id[lapsed.late[rows.transaction[lapsed.late] != NONE]], size)
    loose |= (counted(rows.id[invokes], size) > 1) | (asked_by(rows, None).expires != NONE)
    row = rows.first_row[ids]
    balances = Balances(
        rows.run[row], rows.place[row], rows.message[row],
        np.array(accounts, dtype=object), np.array(amounts, dtype=np.int64),
        first(rows.id[paying], rows.index[paying], size)[ids],
        highest(rows.id[invokes], rows.transaction[invokes], size)[ids],
        marked(rows.id[rows.of(SEND_OK)], size)[ids],
        marked(rows.id[rows.of(SEND_FAIL)], size)[ids],
        marked(rows.id[np.concatenate([delivers, stored])], size)[ids],
        is_left, loose[ids],
    )  # fmt: skip
    return Books(balances, _takings(rows, number), places.named, unreadable)


def _unreadable(rows: Rows, places: PlaceTable, drain: Numbers) -> frozenset[tuple[int, str | None]]:
    at = rows.of(DELIVER, BROWSE)
    at = at[rows.message[at] == NONE]
    at = at[(rows.kind[at] == BROWSE) | (rows.index[at] > drain[at])]
    return frozenset(places.named[place][:2] for place in np.unique(rows.place[at]).tolist())


def _read_late(rows: Rows, ends: Ends, drain: Numbers) -> Numbers:
    """Return the deliveries in the drain to sessions that began before it.

    The broker may have sent them long before the drain.
    """
    at = rows.of(DELIVER)
    at = at[rows.index[at] > drain[at]]
    begun = ends.sessions.find("begun", rows.run[at], rows.session[at])
    result: Numbers = at[(begun != NONE) & (begun < drain[at])]
    return result


def _settled(rows: Rows, ends: Ends, lapsed: Lapses) -> Numbers:
    """Return the row since which an ack of each message was certain; ``NONE`` if none ever was."""
    oks = rows.of(ACK_OK)
    oks = oks[(rows.session[oks] != NONE) & ~lapsed.are_late(oks)]
    transaction = rows.transaction[oks]
    commit = ends.transactions.find("commit", rows.run[oks], transaction)
    at = np.where(transaction == NONE, rows.index[oks], commit)
    certain = at != NONE
    return lowest(rows.id[oks][certain], at[certain], rows.messages)


def _takings(rows: Rows, number: Numbers) -> Takings:
    acks = rows.of(ACK_INVOKE)
    acks = acks[(number[rows.id[acks]] != NONE) & (rows.transaction[acks] != NONE)]
    fails = rows.of(ACK_FAIL)
    refused = set(zip(rows.id[fails].tolist(), rows.transaction[fails].tolist(), strict=True))
    pairs = zip(rows.id[acks].tolist(), rows.transaction[acks].tolist(), strict=True)
    latest = dict(zip(pairs, acks.tolist(), strict=True))
    acks = np.array(list(latest.values()), dtype=np.int64)
    failed = np.array([pair in refused for pair in latest], dtype=bool)
    return Takings(number[rows.id[acks]], rows.run[acks], rows.transaction[acks], rows.index[acks], failed)


_NO_NUMBERS: Final = np.zeros(0, dtype=np.int64)
_NO_FLAGS: Final = np.zeros(0, dtype=bool)
_NO_BALANCES: Final = Balances(
    _NO_NUMBERS, np.zeros(0, dtype=np.int32), _NO_NUMBERS, np.zeros(0, dtype=object), _NO_NUMBERS,
    _NO_NUMBERS, _NO_NUMBERS, _NO_FLAGS, _NO_FLAGS, _NO_FLAGS, _NO_FLAGS, _NO_FLAGS,
)  # fmt: skip
_NO_TAKINGS: Final = Takings(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_FLAGS)


# ------------------------------------------------------------------------------------ of all parts


def outcomes(
    parts: Iterable[Books],
    ends: Ends,
    promises: Promises,
    complete: Collection[int],
    unheard: Collection[tuple[int, str | None]],
) -> list[Outcome]:
    """Return the outcome of each run in which messages have amounts, in order.

    ``complete`` are the runs in which everything was drained and every store read, ``unheard`` the
    (run, queue) with a receive whose client never heard its answer.
    """
    ledgers = list(parts)
    balances, takings, named = _together(ledgers)
    spoilt = {key for item in ledgers for key in item.unreadable} | set(unheard)
    queues = [named[place][:2] for place in range(len(named))]
    transactions = _Transactions.of(balances, takings, ends)
    made = np.where(
        balances.transaction == NONE,
        balances.ok | (balances.shown & ~balances.failed),
        transactions.happened[transactions.sending],
    ).astype(np.int64)
    taken = counted(takings.balance[transactions.happened[transactions.taking]], len(balances.run))
    due, flow = made - taken, made - taken - balances.left
    open_ = (balances.transaction == NONE) & ~balances.ok & ~balances.failed & ~balances.shown
    bad = balances.loose | open_ | np.array([queues[place] in spoilt for place in balances.place], dtype=bool)
    throws_away = promises.delivery_attempts >= 0 and not promises.keeps_dead_letters
    outcomes_found = []
    for run in np.unique(balances.run).tolist():
        at = np.flatnonzero(balances.run == run)
        expected, left_amount = (
            int((balances.amount * ledgers)[at].sum()) for ledgers in (due, balances.left)
        )
        unjudged = ""
        if run not in complete:
            unjudged = "not everything was drained and every store read"
        elif expected != left_amount and throws_away:
            unjudged = "brokers throw away what was refused too often"
        elif expected != left_amount and bad[at].any():
            unjudged = "of some messages nobody knows whether they were sent, or who took them"
        elif expected != left_amount and transactions.unclear(run):
            unjudged = "it depends on a commit of unknown outcome"
        elif expected < left_amount and not (promises.durable_acks and promises.single):
            unjudged = "brokers may give again what was acknowledged"
        total = Total(
            accounts=len(set(balances.account[at].tolist())),
            expected=expected,
            left=left_amount,
            unjudged=unjudged,
        )
        wrong = None
        if expected != left_amount and not unjudged:
            sign = 1 if left_amount < expected else -1
            together = transactions.tied(at, takings)
            culprits = _culprits(balances, takings, transactions, named, at, flow * sign, together)
            shown_rows = together[culprits[0][1]].tolist()
            wrong = WrongTotal(
                run, expected, left_amount, [item for item, _ in culprits],
                frozenset((int(balances.message[item]), named[balances.place[item]]) for item in shown_rows),
            )  # fmt: skip
        outcomes_found.append(Outcome(run, total, wrong))
    return outcomes_found


def _together(parts: Sequence[Books]) -> tuple[Balances, Takings, list[Place]]:
    """Return the ledgers of all parts as one, with places and rows numbered anew."""
    named: list[Place] = []
    balances, takings = [_NO_BALANCES], [_NO_TAKINGS]
    before = 0
    for ledger in parts:
        balances.append(replace(ledger.balances, place=ledger.balances.place + len(named)))
        takings.append(replace(ledger.takings, balance=ledger.takings.balance + before))
        named += ledger.places
        before += len(ledger.balances.run)
    return joined(balances), joined(takings), named


@dataclass(frozen=True, slots=True)
class _Transactions:
    """All transactions in which an amount was sent or taken, a row each, and one row for none.

    ``unknown``: the transaction may have happened. ``unconfirmed``: its commit was not answered
    ``ok``, and it may have happened or must have, as one of its messages was seen. ``net`` is what
    it sent less what it took. ``sending`` and ``taking`` have the row of the transaction of each
    balance and each taking; the last row stands for no transaction.
    """

    run: Numbers
    number: Numbers
    happened: Flags
    unknown: Flags
    unconfirmed: Flags
    net: Numbers
    failed: Flags
    sending: Numbers
    taking: Numbers

    @classmethod
    def of(cls, balances: Balances, takings: Takings, ends: Ends) -> _Transactions:
        inside = balances.transaction != NONE
        run = np.concatenate([balances.run[inside], takings.run])
        number = np.concatenate([balances.transaction[inside], takings.transaction])
        pairs, inverse = np.unique(np.stack([run, number]), axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        size = pairs.shape[1]
        sending = np.full(len(balances.run), size, dtype=np.int64)
        sending[inside] = inverse[: int(inside.sum())]
        taking = inverse[int(inside.sum()) :]
        commit_asked, refused, commit = (
            ends.transactions.find(name, pairs[0], pairs[1]) for name in ("asked", "refused", "commit")
        )
        is_seen = marked(sending[balances.shown], size + 1)[:size]
        may_happen = (commit_asked != NONE) & (refused == NONE)
        happened = (commit != NONE) | (may_happen & is_seen)
        net = np.zeros(size + 1, dtype=np.int64)
        np.add.at(net, sending, balances.amount)
        np.subtract.at(net, taking, balances.amount[takings.balance])
        failed = marked(np.concatenate([sending[balances.failed], taking[takings.failed]]), size + 1)
        return cls(
            pairs[0], pairs[1], np.append(happened, False), np.append(may_happen & ~happened, False),
            np.append(may_happen & (commit == NONE), False), net, failed, sending, taking,
        )  # fmt: skip

    def unclear(self, run: int) -> bool:
        """Return whether the amount that must be left depends on a commit of unknown outcome."""
        run_rows = np.flatnonzero(self.run == run)
        unknown, may_happen = self.unknown[run_rows], self.unknown[run_rows] | self.happened[run_rows]
        return bool((unknown & (self.net[run_rows] != 0)).any() or (may_happen & self.failed[run_rows]).any())

    def tied(self, at: Numbers, takings: Takings) -> dict[int, Numbers]:
        """Return, for each balance of a run, all those that commits without an ``ok`` tie to it."""
        parent = {balance: balance for balance in at.tolist()}

        def root(balance: int) -> int:
            while parent[balance] != balance:
                parent[balance] = balance = parent[parent[balance]]
            return balance

        heads: dict[int, int] = {}
        is_of_balance = np.isin(takings.balance, at)
        links = [
            *zip(self.sending[at].tolist(), at.tolist(), strict=True),
            *zip(self.taking[is_of_balance].tolist(), takings.balance[is_of_balance].tolist(), strict=True),
        ]
        for transaction, balance in links:
            if self.unconfirmed[transaction]:
                parent[root(balance)] = root(heads.setdefault(transaction, balance))
        members: dict[int, list[int]] = defaultdict(list)
        for balance in parent:
            members[root(balance)].append(balance)
        return {
            balance: np.array(tied_balances, dtype=np.int64)
            for tied_balances in members.values()
            for balance in tied_balances
        }


def _culprits(
    balances: Balances,
    takings: Takings,
    transactions: _Transactions,
    named: Sequence[Place],
    at: Numbers,
    flow: Numbers,
    together: Mapping[int, Numbers],
) -> list[tuple[Culprit, int]]:
    """Return one culprit of each set of balances that is wrong in the direction of the total.

    It is the message of the set that was sent first; with it comes its row in the balances.
    """
    weight = flow * balances.amount
    latest: dict[int, tuple[int, int]] = {}
    may_happen = transactions.happened | transactions.unknown
    for balance_row, transaction, index in zip(
        takings.balance.tolist(), transactions.taking.tolist(), takings.index.tolist(), strict=True
    ):
        if may_happen[transaction]:
            latest[balance_row] = max(
                latest.get(balance_row, (NONE, 0)), (index, int(transactions.number[transaction]))
            )
    pairs = []
    for tied_balances in {int(together[row][0]): together[row] for row in at.tolist()}.values():
        if weight[tied_balances].sum() > 0:
            row = min(tied_balances[weight[tied_balances] > 0].tolist(), key=lambda n: int(balances.sent[n]))
            own_transaction = None if balances.transaction[row] == NONE else int(balances.transaction[row])
            culprit = Culprit(
                place=named[balances.place[row]],
                message=int(balances.message[row]),
                sent=int(balances.sent[row]),
                account=str(balances.account[row]),
                amount=int(balances.amount[row]),
                transaction=latest[row][1] if row in latest else own_transaction,
                taken=row in latest,
                left=bool(balances.left[row]),
            )
            pairs.append((culprit, row))
    return sorted(pairs, key=lambda pair: pair[0].sent)


def certain(
    outcomes_before: Iterable[Outcome], places_seen: Mapping[tuple[int, int], set[Place]]
) -> list[Outcome]:
    """Return the outcomes without claims about messages that were seen in a place not their own.

    ``places_seen`` has, for each (run, message), the places where it was.
    """
    return [
        outcome
        if outcome.wrong is None
        or not any(
            places_seen.get((outcome.run, message), set()) - {place}
            for message, place in outcome.wrong.together
        )
        else Outcome(
            outcome.run,
            msgspec.structs.replace(outcome.total, unjudged="messages were seen in other queues"),
            None,
        )
        for outcome in outcomes_before
    ]
