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
heard answered, a body that cannot be read, or its expiry. Nor is it if a session that was there
before the drain read the message only in the drain: the session may have been sent it before
another took it.

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
    may have taken the message, it was sent more than once, or a delivery that was read in the drain
    may have been sent before.
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

    ``of`` is the row of the message in ``Balances``.
    """

    of: Numbers
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

    @property
    def short(self) -> bool:
        """True if there is too little."""
        return self.left < self.expected

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
    asked = rows.of(SEND_INVOKE)
    asked = asked[~places.passing()[rows.place[asked]]]
    told = [amount_of(value) for value in rows.value.values]
    saying = np.array([one is not None for one in told] + [False], dtype=bool)
    saying = saying[rows.value.codes[asked]]
    number = np.full(size, NONE, dtype=np.int64)  # the row of each message in the balances
    paying = asked[saying]
    which = np.unique(rows.id[paying])
    number[which] = np.arange(len(which))
    from_ = np.array([drained_from.get(run, FOREVER) for run in places.runs()], dtype=np.int64)
    drain = from_[rows.place] if len(from_) else np.zeros(0, dtype=np.int64)
    unreadable = _unreadable(rows, places, drain)
    if not len(which):
        return Books(_NO_BALANCES, _NO_TAKINGS, (), unreadable)
    code = first(rows.id[paying], rows.value.codes[paying].astype(np.int64), size)[which]
    accounts, amounts = zip(*(told[one] or ("", 0) for one in code.tolist()), strict=True)
    delivers, stored = rows.of(DELIVER), rows.of(BROWSE)
    late = np.concatenate([delivers[rows.index[delivers] > drain[delivers]], stored])
    shown_late = lowest(rows.id[late], rows.index[late], size)[which]
    settled = _settled(rows, ends, lapsed)[which]
    left = (shown_late != NONE) & ((settled == NONE) | (shown_late < settled))
    acks, nacks = rows.of(ACK_INVOKE), rows.of(NACK_INVOKE)
    plain = acks[(rows.transaction[acks] == NONE) & (rows.index[acks] < drain[acks])]
    loose = marked(np.concatenate([rows.id[plain], rows.id[nacks]]), size)
    loose |= marked(rows.id[_read_late(rows, ends, drain)], size)
    loose |= (counted(rows.id[asked], size) > 1) | (asked_by(rows, None).expires != NONE)
    row = rows.first_row[which]
    balances = Balances(
        rows.run[row], rows.place[row], rows.message[row],
        np.array(accounts, dtype=object), np.array(amounts, dtype=np.int64),
        first(rows.id[paying], rows.index[paying], size)[which],
        highest(rows.id[asked], rows.transaction[asked], size)[which],
        marked(rows.id[rows.of(SEND_OK)], size)[which],
        marked(rows.id[rows.of(SEND_FAIL)], size)[which],
        marked(rows.id[np.concatenate([delivers, stored])], size)[which],
        left, loose[which],
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
    at = at[(rows.index[at] > drain[at]) & (rows.session[at] != NONE)]
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
    some = list(parts)
    whole, takings, named = _together(some)
    if not len(whole.run):
        return []
    spoilt = {key for one in some for key in one.unreadable} | set(unheard)
    queues = [named[place][:2] for place in range(len(named))]
    transactions = _Transactions.of(whole, takings, ends)
    made = np.where(
        whole.transaction == NONE,
        whole.ok | (whole.shown & ~whole.failed),
        transactions.happened[transactions.sending],
    ).astype(np.int64)
    taken = counted(takings.of[transactions.happened[transactions.taking]], len(whole.run))
    due, flow = made - taken, made - taken - whole.left
    open_ = (whole.transaction == NONE) & ~whole.ok & ~whole.failed & ~whole.shown
    bad = whole.loose | open_ | np.array([queues[place] in spoilt for place in whole.place], dtype=bool)
    throws_away = promises.delivery_attempts >= 0 and not promises.keeps_dead_letters
    found = []
    for run in np.unique(whole.run).tolist():
        at = np.flatnonzero(whole.run == run)
        expected, left = (int((whole.amount * some)[at].sum()) for some in (due, whole.left))
        unjudged = ""
        if run not in complete:
            unjudged = "not everything was drained and every store read"
        elif expected != left and throws_away:
            unjudged = "brokers throw away what was refused too often"
        elif expected != left and bad[at].any():
            unjudged = "of some messages nobody knows whether they were sent, or who took them"
        elif expected != left and transactions.unclear(run):
            unjudged = "it depends on a commit of unknown outcome"
        elif expected < left and not (promises.durable_acks and promises.single):
            unjudged = "brokers may give again what was acknowledged"
        total = Total(
            accounts=len(set(whole.account[at].tolist())), expected=expected, left=left, unjudged=unjudged
        )
        wrong = None
        if expected != left and not unjudged:
            sign = 1 if left < expected else -1
            together = transactions.tied(at, takings)
            culprits = _culprits(whole, takings, transactions, named, at, flow * sign, together)
            shown = together[culprits[0][1]].tolist()
            wrong = WrongTotal(
                run, expected, left, [one for one, _ in culprits],
                frozenset((int(whole.message[one]), named[whole.place[one]]) for one in shown),
            )  # fmt: skip
        found.append(Outcome(run, total, wrong))
    return found


def _together(parts: Sequence[Books]) -> tuple[Balances, Takings, list[Place]]:
    """Return the ledgers of all parts as one, with places and rows numbered anew."""
    named: list[Place] = []
    balances, takings = [_NO_BALANCES], [_NO_TAKINGS]
    before = 0
    for one in parts:
        balances.append(replace(one.balances, place=one.balances.place + len(named)))
        takings.append(replace(one.takings, of=one.takings.of + before))
        named += one.places
        before += len(one.balances.run)
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
    def of(cls, whole: Balances, takings: Takings, ends: Ends) -> _Transactions:
        inside = whole.transaction != NONE
        run = np.concatenate([whole.run[inside], takings.run])
        number = np.concatenate([whole.transaction[inside], takings.transaction])
        pairs, inverse = np.unique(np.stack([run, number]), axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        size = pairs.shape[1]
        sending = np.full(len(whole.run), size, dtype=np.int64)
        sending[inside] = inverse[: int(inside.sum())]
        taking = inverse[int(inside.sum()) :]
        asked, refused, commit = (
            ends.transactions.find(name, pairs[0], pairs[1]) for name in ("asked", "refused", "commit")
        )
        seen = marked(sending[whole.shown], size + 1)[:size]
        may = (asked != NONE) & (refused == NONE)
        happened = (commit != NONE) | (may & seen)
        net = np.zeros(size + 1, dtype=np.int64)
        np.add.at(net, sending, whole.amount)
        np.subtract.at(net, taking, whole.amount[takings.of])
        failed = marked(np.concatenate([sending[whole.failed], taking[takings.failed]]), size + 1)
        return cls(
            pairs[0], pairs[1], np.append(happened, False), np.append(may & ~happened, False),
            np.append(may & (commit == NONE), False), net, failed, sending, taking,
        )  # fmt: skip

    def unclear(self, run: int) -> bool:
        """Return whether the amount that must be left depends on a commit of unknown outcome."""
        mine = np.flatnonzero(self.run == run)
        unknown, may = self.unknown[mine], self.unknown[mine] | self.happened[mine]
        return bool((unknown & (self.net[mine] != 0)).any() or (may & self.failed[mine]).any())

    def tied(self, at: Numbers, takings: Takings) -> dict[int, Numbers]:
        """Return, for each balance of a run, all those that commits without an ``ok`` tie to it."""
        parent = {one: one for one in at.tolist()}

        def root(one: int) -> int:
            while parent[one] != one:
                parent[one] = one = parent[parent[one]]
            return one

        heads: dict[int, int] = {}
        mine = np.isin(takings.of, at)
        links = [
            *zip(self.sending[at].tolist(), at.tolist(), strict=True),
            *zip(self.taking[mine].tolist(), takings.of[mine].tolist(), strict=True),
        ]
        for transaction, one in links:
            if self.unconfirmed[transaction]:
                parent[root(one)] = root(heads.setdefault(transaction, one))
        members: dict[int, list[int]] = defaultdict(list)
        for one in parent:
            members[root(one)].append(one)
        return {one: np.array(some, dtype=np.int64) for some in members.values() for one in some}


def _culprits(
    whole: Balances,
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
    weight = flow * whole.amount
    latest: dict[int, tuple[int, int]] = {}
    may = transactions.happened | transactions.unknown
    for of, transaction, index in zip(
        takings.of.tolist(), transactions.taking.tolist(), takings.index.tolist(), strict=True
    ):
        if may[transaction]:
            latest[of] = max(latest.get(of, (NONE, 0)), (index, int(transactions.number[transaction])))
    found = []
    for some in {int(together[one][0]): together[one] for one in at.tolist()}.values():
        if weight[some].sum() > 0:
            one = min(some[weight[some] > 0].tolist(), key=lambda n: int(whole.sent[n]))
            own = None if whole.transaction[one] == NONE else int(whole.transaction[one])
            culprit = Culprit(
                place=named[whole.place[one]],
                message=int(whole.message[one]),
                sent=int(whole.sent[one]),
                account=str(whole.account[one]),
                amount=int(whole.amount[one]),
                transaction=latest[one][1] if one in latest else own,
                taken=one in latest,
                left=bool(whole.left[one]),
            )
            found.append((culprit, one))
    return sorted(found, key=lambda pair: pair[0].sent)


def certain(found: Iterable[Outcome], seen: Mapping[tuple[int, int], set[Place]]) -> list[Outcome]:
    """Return the outcomes without claims about messages that were seen in a place not their own.

    ``seen`` has, for each (run, message), the places where it was.
    """
    return [
        one
        if one.wrong is None
        or not any(seen.get((one.run, message), set()) - {place} for message, place in one.wrong.together)
        else Outcome(
            one.run, msgspec.structs.replace(one.total, unjudged="messages were seen in other queues"), None
        )
        for one in found
    ]
