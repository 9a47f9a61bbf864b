"""The rule ``torn-transaction``: all effects of a transaction happen, or none does.

An effect is a send or an ack that was invoked in a transaction and did not fail. An effect may have
certainly *happened* or certainly *not happened*. Neither is certain of most effects that were
rolled back, and of all about which the history says too little. The effects of one transaction lie
in several parts. So parts first name the transactions with an effect that contradicts their
outcome: a commit that was invoked without one of its effects, a roll-back with one. These are few;
if there are any, all parts are asked for their effects.

A send happened if its message was delivered, or is in a store; it did not if it was answered ``ok``
and its message is nowhere. An ack did not happen if its message was certainly delivered again after
the acknowledged delivery. Nor did it if a store had the message after the end of the transaction
was invoked. It happened if its message is nowhere any more, and nothing else can have settled it.
That a message is nowhere is claimed only when everything was drained and every store read. It is
not claimed of a subscription that was dropped, or made anew for another selector, nor of a queue
that may have been deleted, as its backlog went with it.

A send to a topic is one effect for each of its subscriptions. A copy is nowhere only if its
subscription was owed it to the end of the test. The brokers of the subscription must be of the node
that answered the send. Or a subscription did not get its copy although it read a message that
was sent later (``checkers.skipped``). A send to a temporary queue tells nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.asked import asked_by
from checkers.attempts import attempts_of
from checkers.clocks import Clocks
from checkers.deaths import Deaths
from checkers.ends import Ends, Keyed
from checkers.instance import Instance
from checkers.recipients import owed_to_subscriptions
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
    marked,
    ordered,
)
from checkers.running import highest_before, lowest_after, segments
from checkers.selection import Selection
from checkers.siblings import homes, without_siblings
from checkers.skipped import SkippedMessages
from checkers.subscriptions import Subscriptions, split
from checkers.timeouts import lapses
from checkers.verdict import Promises

NAME: Final = "torn-transaction"
HOW: Final = ("delivered", "stored", "consumed", "nowhere", "again", "kept", "skipped")
"""The evidence of an effect: the first three prove that it happened, the others that it did not."""
_HAPPENED: Final = 3
_ABSENT: Final = ("consumed", "nowhere", "skipped")


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects that certainly happened or certainly did not, a row each.

    ``how`` is a position in ``HOW``, ``index`` the invocation of the effect. ``sending``: the
    effect is a send, else an ack.
    """

    run: Numbers
    transaction: Numbers
    place: npt.NDArray[np.int32]
    message: Numbers
    index: Numbers
    sending: Flags
    how: Numbers


_NOTHING: Final = np.zeros(0, dtype=np.int64)
NO_EFFECTS: Final = Effects(
    _NOTHING, _NOTHING, _NOTHING.astype(np.int32), _NOTHING, _NOTHING, _NOTHING.astype(bool), _NOTHING
)


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect with its place and words, for reports."""

    f: str
    place: Place
    message: int
    index: int
    how: str


@dataclass(frozen=True, slots=True)
class Torn:
    """A transaction, its effects that happened, and those that did not, each in order."""

    run: int
    transaction: int
    happened: Sequence[Effect]
    missing: Sequence[Effect]

    def instance(self) -> Instance:
        """Return the instance, which the first missing effect shows."""
        at = self.missing[0]
        _, queue, group = at.place
        return Instance(NAME, queue, group, at.message, at.index, str(self.transaction), self.run)


def effects(
    rows: Rows,
    places: PlaceTable,
    ends: Ends,
    promises: Promises,
    complete: Iterable[int],
    subscriptions: Subscriptions,
    deaths: Deaths,
    clocks: Clocks,
    last_ns: Mapping[int, int],
    unheard: Container[tuple[int, str | None]] = frozenset(),
) -> Effects:
    """Return all effects of whole messages that certainly happened or certainly did not.

    ``complete`` are the runs in which everything was drained and every store read, ``last_ns`` has
    the time of each run's last row. ``unheard`` are the (run, queue) with a receive whose client
    never heard its answer.
    """
    if rows.transaction.absent:
        return NO_EFFECTS
    is_whole = np.isin(rows.run[rows.first_row], np.array(sorted(complete), dtype=np.int64))
    is_whole &= ~_may_have_expired(rows, places, ends, promises, clocks, last_ns)
    place = rows.place[rows.first_row]
    heard = np.array([(run, queue) not in unheard for run, queue, _ in places.named], dtype=bool)
    is_whole &= heard[place]
    is_kept = subscriptions.kept(places.named)[place] & ~places.deleted()[place]
    owed = _owed(rows, places, subscriptions, deaths)
    return joined([_sends(rows, places, is_whole & owed), _acks(rows, ends, promises, is_whole & is_kept)])


def _may_have_expired(
    rows: Rows,
    places: PlaceTable,
    ends: Ends,
    promises: Promises,
    clocks: Clocks,
    last_ns: Mapping[int, int],
) -> Flags:
    """Return which messages may have expired by the end."""
    result = np.zeros(rows.messages, dtype=bool)
    expires = asked_by(rows, attempts_of(rows, ends, atomic=promises.atomic)).expires
    expiring = np.flatnonzero(expires != NONE)
    if len(expiring):
        sends = rows.of(SEND_INVOKE)
        sent = first(rows.id[sends], rows.index[sends], rows.messages)[expiring]
        run = rows.run[rows.first_row[expiring]].tolist()
        last = np.array([last_ns.get(number, NONE) for number in run], dtype=np.int64)
        result[expiring] = (expires[expiring] <= last) | clocks.wrong_at_end(rows, expiring, sent, places)
    return result


def skipped_effects(messages: SkippedMessages, named: Sequence[Place]) -> Effects:
    """Return the sends in transactions with a copy that was skipped."""
    of_topic = np.array([split(queue) is not None for _, queue, _ in named], dtype=bool)
    at = np.flatnonzero((messages.effect_of != NONE) & of_topic[messages.place])
    run = np.array([named[place][0] for place in messages.place[at].tolist()], dtype=np.int64)
    return Effects(
        run, messages.effect_of[at], messages.place[at].astype(np.int32), messages.message[at],
        messages.sent[at], np.ones(len(at), dtype=bool),
        np.full(len(at), HOW.index("skipped"), dtype=np.int64),
    )  # fmt: skip


def _owed(rows: Rows, places: PlaceTable, subscriptions: Subscriptions, deaths: Deaths) -> Flags:
    """Return which messages are owed to their place by the node that took them."""
    owed = ~places.deleted()[rows.place[rows.first_row]]
    at = np.flatnonzero(places.topics()[rows.place[rows.first_row]])
    if len(at):
        sends, oks = rows.of(SEND_INVOKE), rows.of(SEND_OK)
        number = subscriptions.number(places.named)[rows.place[rows.first_row]]
        sent = first(rows.id[sends], rows.index[sends], rows.messages)
        node = first(rows.id[oks], deaths.nodes(rows, oks), rows.messages)
        owed[at] = owed_to_subscriptions(number, sent, subscriptions, Selection(rows))[at]
        numbered = at[number[at] != NONE]
        owed[numbered] &= homes(subscriptions, deaths)[number[numbered]] == node[numbered]
    return owed


def suspects(effects: Effects, ends: Ends) -> Effects:
    """Return the effects that contradict the outcome of their transaction."""
    commit_asked, refused, abort = (
        ends.transactions.find(name, effects.run, effects.transaction)
        for name in ("asked", "refused", "abort")
    )
    committed = (commit_asked != NONE) & (refused == NONE) & (abort == NONE)
    return _chosen(effects, (effects.how < _HAPPENED) != committed)


def by_transaction(effects: Effects) -> Keyed:
    """Return the transactions of some effects as a table to look them up."""
    every = np.ones(len(effects.run), dtype=bool)
    return Keyed.of(effects.run, effects.transaction, {"index": (every, effects.index)})


def effects_of(effects: Effects, transactions: Keyed) -> Effects:
    """Return the effects of some transactions."""
    return _chosen(effects, transactions.find("index", effects.run, effects.transaction) != NONE)


def _chosen(effects: Effects, flags: Flags) -> Effects:
    at = np.flatnonzero(flags)
    return Effects(
        effects.run[at], effects.transaction[at], effects.place[at], effects.message[at], effects.index[at],
        effects.sending[at], effects.how[at],
    )  # fmt: skip


def _sends(rows: Rows, places: PlaceTable, is_whole: Flags) -> Effects:
    size = rows.messages
    invokes, oks, fails = rows.of(SEND_INVOKE), rows.of(SEND_OK), rows.of(SEND_FAIL)
    delivers, stored = rows.of(DELIVER), rows.of(BROWSE)
    ids, transaction = rows.id[invokes], rows.transaction[invokes]
    number = highest(ids, transaction, size)
    is_mixed = marked(ids[transaction != number[ids]], size)  # another send was in none or another
    sent = first(ids, rows.index[invokes], size)
    is_candidate = (number != NONE) & ~is_mixed & ~marked(rows.id[fails], size)
    judged = ~places.passing() | np.array(
        [split(queue) is not None for _, queue, _ in places.named], dtype=bool
    )
    is_candidate &= judged[rows.place[rows.first_row]]
    delivered = highest(rows.id[delivers], rows.index[delivers], size)
    last_stored = highest(rows.id[stored], rows.index[stored], size)
    nowhere = is_whole & marked(rows.id[oks], size) & (delivered == NONE) & (last_stored == NONE)
    how = np.full(size, NONE, dtype=np.int64)
    how[nowhere] = HOW.index("nowhere")
    how[last_stored > sent] = HOW.index("stored")
    how[delivered > sent] = HOW.index("delivered")
    at = np.flatnonzero(is_candidate & (how != NONE))
    row = rows.first_row[at]
    return Effects(
        rows.run[row], number[at], rows.place[row], rows.message[row], sent[at],
        np.ones(len(at), dtype=bool), how[at],
    )  # fmt: skip


def _acks(rows: Rows, ends: Ends, promises: Promises, is_whole: Flags) -> Effects:
    """Return the acks in transactions that certainly happened or certainly did not.

    Each is judged by the rows around it in its session, and by all later rows of its message.
    ``got`` is the delivery that it is of, ``upto`` the next ack or nack in its session.
    """
    involved = rows.of(ACK_INVOKE)
    involved = involved[rows.transaction[involved] != NONE]
    at = rows.of(DELIVER, ACK_INVOKE, ACK_OK, ACK_FAIL, NACK_INVOKE)
    at = at[marked(rows.id[involved], rows.messages)[rows.id[at]]]
    at = at[(rows.session[at] != NONE) & (rows.message[at] != NONE)]
    order = at[ordered(rows.id[at], rows.session[at], rows.index[at])]
    kind, index = rows.kind[order], rows.index[order]
    session_part = segments(rows.id[order], rows.session[order])
    answering = (kind == ACK_INVOKE) | (kind == NACK_INVOKE)

    def of_kind(selected: Flags) -> Numbers:
        return np.where(selected, index, NONE)

    got = highest_before(session_part, of_kind(kind == DELIVER))
    before = highest_before(session_part, of_kind(answering))
    upto = lowest_after(session_part, of_kind(answering))
    upto = np.where(upto == NONE, FOREVER, upto)
    ok, failed, delivered_after = (
        lowest_after(session_part, of_kind(kind == selected)) for selected in (ACK_OK, ACK_FAIL, DELIVER)
    )
    transaction = rows.transaction[order]
    ack_rows = np.flatnonzero(
        (kind == ACK_INVOKE) & (transaction != NONE) & (got != NONE) & ~((failed != NONE) & (failed < upto))
    )
    ask = _TransactedAcks(
        rows.id[order[ack_rows]].astype(np.int64), rows.run[order[ack_rows]], rows.session[order[ack_rows]],
        transaction[ack_rows], index[ack_rows], got[ack_rows], upto[ack_rows],
    )  # fmt: skip
    sure = (ok[ack_rows] != NONE) & (ok[ack_rows] < ask.upto)
    sure &= promises.durable_acks and promises.single
    clean = (before[ack_rows] == NONE) | (before[ack_rows] < ask.got)
    same = (delivered_after[ack_rows] != NONE) & (delivered_after[ack_rows] < ask.upto)
    timed = lapses(rows, ends, promises, of=marked(ask.id, rows.messages))
    ok_at = lowest_after(session_part, np.where(kind == ACK_OK, np.arange(len(order)), NONE))[ack_rows]
    sure &= ~timed.are_late(order[np.maximum(ok_at, 0)])  # a late ack settles nothing
    lapse = timed.lapse_of(_positions(order, session_part, kind)[ack_rows])
    given_ns = lowest_after(session_part, np.where(kind == DELIVER, np.arange(len(order)), NONE))[ack_rows]
    same &= rows.time[order[np.maximum(given_ns, 0)]] < lapse
    how = np.full(len(ack_rows), NONE, dtype=np.int64)
    how[_consumed(rows, ends, promises, ask) & is_whole[ask.id]] = HOW.index("consumed")
    how[sure & _still_stored(rows, ends, ask)] = HOW.index("kept")
    is_again = same | _given_elsewhere(rows, ends, ask, lapse)
    how[sure & clean & is_again & _stayed(ends, ask)] = HOW.index("again")
    is_decided = how != NONE
    row = order[ack_rows[is_decided]]
    return Effects(
        rows.run[row], ask.transaction[is_decided], rows.place[row], rows.message[row], ask.index[is_decided],
        np.zeros(len(row), dtype=bool), how[is_decided],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _TransactedAcks:
    """The acks in transactions, a row each; ``index`` is the invocation.

    ``got`` is the delivery that an ack is of, ``upto`` the next ack or nack in its session.
    """

    id: Numbers
    run: Numbers
    session: Numbers
    transaction: Numbers
    index: Numbers
    got: Numbers
    upto: Numbers


def _positions(order: Numbers, segment: Numbers, kind: Numbers) -> Numbers:
    """Return the position of the latest delivery before each row in its segment; -1 if none."""
    last = highest_before(segment, np.where(kind == DELIVER, np.arange(len(order)), NONE))
    return np.where(last == NONE, -1, order[np.maximum(last, 0)])


def _given_elsewhere(rows: Rows, ends: Ends, ask: _TransactedAcks, lapse: Numbers) -> Flags:
    """Return whether a session got the message that was asked for after ``got`` had been read.

    It does not count if the acknowledged delivery may have lapsed by then (``lapse``, ns).
    """
    delivers = rows.of(DELIVER)
    delivers = delivers[marked(ask.id, rows.messages)[rows.id[delivers]]]
    ids = np.concatenate([ask.id, rows.id[delivers].astype(np.int64)])
    begun = ends.sessions.find("begun", rows.run[delivers], rows.session[delivers])
    values = np.concatenate([np.full(len(ask.id), NONE), np.minimum(begun, rows.index[delivers])])

    def latest_before(bounds: Numbers, moments: Numbers) -> Numbers:
        order = ordered(ids, np.concatenate([bounds, moments]))  # of equal moments the bound is first
        latest = np.empty(len(ids), dtype=np.int64)
        latest[order] = highest_before(segments(ids[order]), values[order])
        return latest[: len(ask.id)]

    latest = latest_before(ask.upto, rows.index[delivers])
    result: Flags = np.minimum(latest, latest_before(lapse, rows.time[delivers])) > ask.got
    return result


def _stayed(ends: Ends, ask: _TransactedAcks) -> Flags:
    """Return whether the session had not ended when the commit was invoked."""
    ended = ends.sessions.find("ended", ask.run, ask.session)
    commit_asked = ends.transactions.find("asked", ask.run, ask.transaction)
    result: Flags = (ended == NONE) | (commit_asked == NONE) | (ended > commit_asked)
    return result


def _still_stored(rows: Rows, ends: Ends, ask: _TransactedAcks) -> Flags:
    """Return whether a store had the message after the commit and the ack were invoked."""
    stored = rows.of(BROWSE)
    stored = stored[
        np.isin(rows.value.codes[stored], [rows.value.code(v) for v in ("main", "dead-letter", "expired")])
    ]
    latest = highest(rows.id[stored], rows.index[stored], rows.messages)[ask.id]
    commit_asked = ends.transactions.find("asked", ask.run, ask.transaction)
    result: Flags = latest > np.maximum(ask.index, commit_asked)
    return result


def _consumed(rows: Rows, ends: Ends, promises: Promises, ask: _TransactedAcks) -> Flags:
    """Return whether the message is gone since ``got``, and only this ack can have settled it."""
    size = rows.messages
    delivers, stored = rows.of(DELIVER), rows.of(BROWSE)
    is_gone = ~marked(rows.id[stored], size)[ask.id]
    is_gone &= highest(rows.id[delivers], rows.index[delivers], size)[ask.id] == ask.got
    settling = rows.of(ACK_INVOKE, NACK_INVOKE) if promises.nack == "consume" else rows.of(ACK_INVOKE)
    transaction = rows.transaction[settling]
    may_settle = (transaction == NONE) | _may_be_committed(ends, rows.run[settling], transaction)
    other_settlers = counted(rows.id[settling[may_settle]], size)[ask.id]
    other_settlers = other_settlers - _may_be_committed(ends, ask.run, ask.transaction)
    ended = ends.sessions.find("over", ask.run, ask.session) != NONE
    for name in ("commit", "abort", "refused"):
        ended |= ends.transactions.find(name, ask.run, ask.transaction) != NONE
    result: Flags = is_gone & (other_settlers == 0) & ended & promises.keeps_dead_letters
    return result


def _may_be_committed(ends: Ends, run: Numbers, transaction: Numbers) -> Flags:
    commit_asked, refused = (ends.transactions.find(name, run, transaction) for name in ("asked", "refused"))
    result: Flags = (commit_asked != NONE) & (refused == NONE)
    return result


def together(
    parts: Iterable[tuple[Effects, Sequence[Place]]],
) -> tuple[Effects, Sequence[Place]]:
    """Return the effects of all parts, with their places numbered anew."""
    named: list[Place] = []
    renumbered = []
    for part_effects, places in parts:
        renumbered.append(replace(part_effects, place=part_effects.place + len(named)))
        named += places
    return joined(renumbered), named


def torn(
    all_effects: Effects, named: Sequence[Place], elsewhere: Mapping[tuple[int, int], set[Place]]
) -> list[Torn]:
    """Return the transactions with effects of both kinds, sorted by their first missing effect.

    ``elsewhere`` has, for each (run, message), the places where it was seen. A message is not
    nowhere if it was seen in a place that is neither its own nor another subscription of its topic.
    """
    by_transaction: dict[tuple[int, int], list[Effect]] = {}
    for n in np.argsort(all_effects.index, kind="stable").tolist():
        run, message, place = (
            int(all_effects.run[n]),
            int(all_effects.message[n]),
            named[all_effects.place[n]],
        )
        how = HOW[all_effects.how[n]]
        if how in _ABSENT and without_siblings(place, elsewhere.get((run, message), ())):
            continue
        effect = Effect(
            "send" if all_effects.sending[n] else "ack", place, message, int(all_effects.index[n]), how
        )
        by_transaction.setdefault((run, int(all_effects.transaction[n])), []).append(effect)
    result = []
    for (run, transaction), transaction_effects in by_transaction.items():
        happened = [item for item in transaction_effects if HOW.index(item.how) < _HAPPENED]
        missing = [item for item in transaction_effects if HOW.index(item.how) >= _HAPPENED]
        missing.sort(key=lambda item: (item.index, str(item.place[1])))
        if happened and missing:
            result.append(Torn(run, transaction, happened, missing))
    return sorted(result, key=lambda item: item.missing[0].index)


def absent(torn_transactions: Iterable[Torn]) -> frozenset[tuple[int, int]]:
    """Return the (run, message) of effects that are claimed because the message is nowhere."""
    return frozenset(
        (torn_transaction.run, effect.message)
        for torn_transaction in torn_transactions
        for effect in (*torn_transaction.happened, *torn_transaction.missing)
        if effect.how in _ABSENT
    )


def sightings(
    rows: Rows, named: Sequence[Place], messages: frozenset[tuple[int, int]]
) -> set[tuple[int, int, Place]]:
    """Return the places where some messages, given by run and id, were delivered or stored."""
    at = rows.of(DELIVER, BROWSE)
    at = at[np.isin(rows.message[at], np.array([message for _, message in sorted(messages)], dtype=np.int64))]
    sightings = zip(rows.run[at].tolist(), rows.message[at].tolist(), rows.place[at].tolist(), strict=True)
    return {(run, message, named[place]) for run, message, place in sightings if (run, message) in messages}
