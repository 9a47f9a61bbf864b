"""The life of each message as one row, and each of its deliveries as another.

All families of rules share these two tables, which are computed once.

Why two tables: almost every message is delivered once. The life of such a message is all that the
rules about order and about held messages need. Only messages that were delivered again, or
acknowledged in a way that their life cannot show, are looked at row by row (``involved``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checkers import counts, refusals
from checkers.acknowledgements import acks, nacks
from checkers.asked import Asked, asked_by, closes
from checkers.attempts import attempts_of, rolled_back
from checkers.clocks import Clocks
from checkers.deaths import Deaths, sealed
from checkers.ends import Ends
from checkers.links import SessionFacts, UnderWay
from checkers.rows import (
    ACK_INVOKE,
    ACK_OK,
    BROWSE,
    DELIVER,
    FOREVER,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    SEND_FAIL,
    SEND_INFO,
    SEND_INVOKE,
    SEND_OK,
    TIMEOUT,
    Column,
    Flags,
    Numbers,
    Rows,
    counted,
    earliest,
    first,
    highest,
    joined,
    lowest,
    marked,
    ordered,
)
from checkers.running import (
    count_before,
    highest_before,
    lowest_after,
    lowest_before,
    segments,
    starts,
)
from checkers.timeouts import Lapses, lapses, taken_back_unread, waiting_ns
from checkers.verdict import Promises


@dataclass(frozen=True, slots=True)
class Lives:
    """The lives of messages, one row for each; indexes of rows, ``NONE`` for what never happened.

    ``message``      its id; ``NONE``: deliveries of one place whose body could not be read
    ``sent``         the first ``send`` invocation
    ``several``      it was sent more than once (``checkers.attempts``)
    ``since``        the first ``send`` invocation that did not certainly fail; of a message that
                     was sent once, ``sent``
    ``ok``           the row at which a send was first certain: its ``ok``, or its transaction's
                     commit ``ok``; where transactions are batches, the later of both
    ``over``         the row after which no send of it can store it any more: ``ok``, if sent once
    ``begun``        the row after which it can be in its queue: ``since``, or the invocation of the
                     commit, if it was sent once, in a transaction
    ``aborted``      each send failed, or its transaction was rolled back
    ``delivered``    the first delivery; ``deliveries``: how many there were
    ``producer``, ``sequence``   as sent
    ``stored``       some store still held it at the end
    ``recovered``    it was delivered though no send was certain, and not all certainly failed
    ``sealed``       the row by which a message that is ``recovered`` must have been stored: the
                     process that took it was seen to be gone
    ``untaken``      its send was certain, it was not delivered, acknowledged or refused, it cannot
                     have expired, and it is not among the dead letters
    ``in_turn``      it asked neither for a delay nor for a priority: it comes when it was sent
    ``timely``       its first delivery was read before it may have expired. An expired message may
                     have been left out, and be read late where it was given out before
    ``unread``       how often time-outs may have taken it back before its first delivery was read;
                     ``NONE``: it cannot have died by then
    ``expires``      the moment (ns) from which on it may have expired
    ``due``          the moment (ns) until which it may be delayed
    ``expired``      the moment (ns) from which on it certainly has expired
    ``delayed``      it asked for a delay
    ``matched``      the selectors of its queue that match it, as bits (``checkers.selective``)
    ``closing``      the row until which it may be given out and close its group; ``NONE``: it
                     closes none
    """

    place: npt.NDArray[np.int32]
    message: Numbers
    sent: Numbers
    several: Flags
    since: Numbers
    ok: Numbers
    over: Numbers
    begun: Numbers
    aborted: Flags
    delivered: Numbers
    deliveries: Numbers
    producer: Numbers
    sequence: Numbers
    stored: Flags
    recovered: Flags
    sealed: Numbers
    untaken: Flags
    in_turn: Flags
    timely: Flags
    unread: Numbers
    expires: Numbers
    expired: Numbers
    due: Numbers
    delayed: Flags
    matched: Numbers
    closing: Numbers

    @property
    def there(self) -> Numbers:
        """The row since which each message is certainly in its queue; ``NONE``: nothing says so."""
        return np.where(self.ok == NONE, self.sealed, self.ok)

    @property
    def waits(self) -> Numbers:
        """The row since which each message may have waited for consumers; ``NONE``: never sent."""
        return np.where(self.begun == NONE, self.since, self.begun)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The deliveries whose message and session are known, one row for each.

    ``life``         the number of the message among all lives
    ``index``, ``time``   of the row
    ``release``      the row that first ends the client's hold: an ack or nack, the end of its
                     transaction, or of the session; ``FOREVER``: none
    ``let_go``       the row since which its session certainly did not hold it any more: it was
                     acknowledged or refused, and that was answered ``ok``, or its message was
                     delivered again. Where groups stay with their session it is always ``FOREVER``
    ``lapse``        the moment (ns) at which the broker may have taken it back
                     (``checkers.timeouts``); known only once the facts of all parts are
    ``fresh``        it is the first of its message in its session
    ``again``        it is not the first of its message
    ``producer``, ``sequence``   as delivered
    ``certain``      its message's send was certain
    ``duplicate``, ``unflagged``   it is one, by the rules of duplicate and unflagged-redelivery
    ``late``         its session was over before
    ``expired``      its message had certainly expired before the delivery was sent
    ``early``        it was read before its message was to be delivered
    ``marked``       it is marked as not the first of its message
    ``fell``         its delivery count is lower than that of one that was certainly sent before
    ``stuck``        its delivery count is not higher than that of one that had been given back
    ``settled``      two sessions settled its message, and the second of them had it before the
                     first settled it
    ``in_turn``      its message was to come when it was sent
    ``sent``         the first send of its message
    ``open``         it was excused (it may have been under way), and the facts of other parts may
                     refute the excuse; ``connection`` and ``since`` (the first row of its message)
                     say where to look
    """

    place: npt.NDArray[np.int32]
    life: Numbers
    message: Numbers
    index: Numbers
    time: Numbers
    session: Numbers
    release: Numbers
    let_go: Numbers
    lapse: Numbers
    fresh: Flags
    again: Flags
    producer: Numbers
    sequence: Numbers
    certain: Flags
    duplicate: Flags
    unflagged: Flags
    late: Flags
    expired: Flags
    early: Flags
    marked: Flags
    fell: Flags
    stuck: Flags
    settled: Flags
    in_turn: Flags
    sent: Numbers
    open: Flags
    connection: Numbers
    since: Numbers

    def wanted(self, runs: Numbers) -> UnderWay:
        """Return the spans in which answers may refute the excuses of the open deliveries."""
        at = np.flatnonzero(self.open)
        no_transaction = np.full(len(at), NONE, dtype=np.int64)
        return UnderWay(
            runs[self.place[at]],
            self.session[at],
            self.connection[at],
            no_transaction,
            self.since[at],
            self.index[at],
        )


def lives_and_deliveries(
    rows: Rows,
    ends: Ends,
    offset: int,
    promises: Promises,
    known: SessionFacts | None = None,
    *,
    deaths: Deaths,
    clocks: Clocks,
    matched: Numbers,
) -> tuple[Lives, Deliveries]:
    """Return the lives and the deliveries of whole messages.

    ``offset`` is the number of lives in earlier slices, where a part is read in slices. ``known``
    are the facts that all parts know together. ``matched`` has the selectors that match each
    message.
    """
    size = rows.messages
    sends, delivers = rows.of(SEND_INVOKE), rows.of(DELIVER)
    sent_ids, delivered_ids = rows.id[sends], rows.id[delivers]
    run = rows.run[rows.first_row]
    sent = first(sent_ids, rows.index[sends], size)
    oks, fails, stores = rows.of(SEND_OK), rows.of(SEND_FAIL), rows.of(BROWSE)
    send_ok = first(rows.id[oks], rows.index[oks], size)
    failed = marked(rows.id[fails], size)
    atomic = promises.atomic
    attempts = attempts_of(rows, ends, atomic=atomic)
    since = begun = sent
    if rows.transaction.absent:
        ok, aborted = send_ok, failed & (send_ok == NONE)
    else:
        transaction = as_sent(rows, rows.transaction, sends)
        alone = transaction == NONE
        commit = ends.transactions.find("commit", run, transaction)
        certain = commit
        if not atomic:  # each send of a batch has its own answer
            both = (commit != NONE) & (send_ok != NONE)
            certain = np.where(both, np.maximum(commit, send_ok), NONE)
        ok = np.where(alone, send_ok, np.where(failed, NONE, certain))
        back = (ok == NONE) & rolled_back(ends, run, transaction, atomic=atomic)
        aborted = np.where(alone, failed & (send_ok == NONE), failed | back)
        begun = np.where(alone, sent, ends.transactions.find("asked", run, transaction))
    over = ok
    if attempts is not None:
        ok = attempts.instead(ok, attempts.certain, attempts.certain != NONE)
        over = np.where(attempts.several, attempts.over, over)
        since = attempts.instead(sent, attempts.asked, ~attempts.failed)
        begun = np.where(attempts.several, since, begun)
        aborted = np.where(attempts.several, attempts.aborted, aborted)
    delivered = first(delivered_ids, rows.index[delivers], size)
    deliveries = counted(delivered_ids, size)
    message = rows.message[rows.first_row]
    recovered = (sent != NONE) & (delivered != NONE) & (ok == NONE) & ~aborted
    untaken = (sent != NONE) & (ok != NONE) & (delivered == NONE)
    untaken[rows.id[rows.of(ACK_INVOKE, NACK_INVOKE)]] = False
    untaken[rows.id[stores[rows.value.are("dead-letter", "expired")[stores]]]] = False
    wish = asked_by(rows, attempts)
    untaken &= wish.expires == NONE
    nothing = np.broadcast_to(np.False_, size)
    lives = Lives(
        place=rows.place[rows.first_row], message=message, sent=sent,
        several=nothing if attempts is None else attempts.several, since=since, ok=ok, over=over,
        begun=begun, aborted=aborted, delivered=delivered, deliveries=deliveries,
        producer=as_sent(rows, rows.producer, sends), sequence=as_sent(rows, rows.sequence, sends),
        stored=marked(rows.id[stores], size), recovered=recovered,
        sealed=sealed(rows, recovered, deaths, attempts), untaken=untaken,
        in_turn=wish.in_turn, timely=_timely(rows, wish, sent, delivered, clocks),
        unread=_taken_back_unread(rows, ends, promises),
        expires=wish.expires, expired=wish.expired, due=wish.due, delayed=wish.delayed,
        matched=matched,
        closing=_closing(rows),
    )  # fmt: skip
    lapsed = lapses(rows, ends, promises, known)
    asking = _Context(ends, promises, known, offset, wish, clocks, deaths, lapsed)
    return lives, _deliveries(rows, lives, asking, delivers)


def _timely(rows: Rows, wish: Asked, sent: Numbers, delivered: Numbers, clocks: Clocks) -> Flags:
    """Flag the messages that cannot have expired by their first delivery, or had none."""
    result = np.ones(rows.messages, dtype=bool)
    at = np.flatnonzero((wish.expires != NONE) & (delivered != NONE))
    if len(at):
        delivers = rows.of(DELIVER)
        read_ns = first(rows.id[delivers], rows.time[delivers], rows.messages)[at]
        result[at] = (read_ns < wish.expires[at]) & ~clocks.wrong(rows, at, sent[at], delivered[at])
    return result


def _taken_back_unread(rows: Rows, ends: Ends, promises: Promises) -> Numbers:
    """Return how often time-outs may have taken back each message before its first reading.

    ``NONE`` where the message cannot have died by then: the session that read it still held it, as
    the session has not ended, or its ack or nack was answered ``ok``.
    """
    result = np.full(rows.messages, NONE, dtype=np.int64)
    if promises.attempts != "given back" or promises.delivery_attempts < 0:
        return result
    sends, delivers, timeouts = (rows.of(kind) for kind in (SEND_INVOKE, DELIVER, TIMEOUT))
    sent = first(rows.id[sends], sends, rows.messages)
    read = first(rows.id[delivers], delivers, rows.messages)
    at = np.flatnonzero((sent != NONE) & (read != NONE))
    lapsed = counted(rows.id[timeouts], rows.messages)[at]
    wait = waiting_ns(promises)
    if wait is not None:
        lapsed = lapsed + np.maximum(rows.time[read[at]] - rows.time[sent[at]], 0) // max(wait, 1)
    ended = ends.sessions.find("ended", rows.run[read[at]], rows.session[read[at]]) != NONE
    answered = marked(rows.id[rows.of(ACK_OK, NACK_OK)], rows.messages)[at]
    answered &= (lapsed == 0) | promises.refuses_stale_acks
    result[at] = np.where((ended | (lapsed > 0)) & ~answered, lapsed, NONE)
    return result


def says_again(rows: Rows, at: Numbers) -> Flags:
    """Flag the deliveries that are marked or counted as not the first of their message."""
    result: Flags = (rows.redelivered[at] == 1) | (rows.delivery_count[at] > 1)
    return result


def _closing(rows: Rows) -> Numbers:
    """Return the row until which each message may close its group; ``NONE``: it closes none.

    It is the last delivery of a message that was certainly acknowledged, and ``FOREVER`` for one
    that may be given out again.
    """
    closing = np.array([closes(value) for value in rows.value.values] + [False])
    if not closing.any():
        return np.broadcast_to(np.int64(NONE), rows.messages)
    sends = rows.of(SEND_INVOKE, SEND_OK, SEND_FAIL, SEND_INFO)
    sends = sends[closing[rows.value.codes[sends]]]
    result = np.full(rows.messages, NONE, dtype=np.int64)
    some = marked(rows.id[sends], rows.messages)
    delivers, acks = rows.of(DELIVER), rows.of(ACK_OK)
    latest = highest(rows.id[delivers], rows.index[delivers], rows.messages)
    acked = marked(rows.id[acks[rows.transaction[acks] == NONE]], rows.messages)
    result[some] = np.where(acked & (latest != NONE), latest, FOREVER)[some]
    return result


def as_sent(rows: Rows, column: Column, sends: Numbers) -> Numbers:
    """Return the highest value of a column among the sends of each message."""
    ids = rows.id[sends]
    once = len(sends) == np.count_nonzero(np.bincount(ids, minlength=rows.messages))
    return (first if once else highest)(ids, column[sends], rows.messages)


@dataclass(frozen=True, slots=True)
class _Context:
    """The facts, besides the rows, that the rules about deliveries need."""

    ends: Ends
    promises: Promises
    known: SessionFacts | None
    offset: int
    wish: Asked
    clocks: Clocks
    deaths: Deaths
    lapsed: Lapses


def _deliveries(rows: Rows, lives: Lives, asking: _Context, delivers: Numbers) -> Deliveries:
    """Return all deliveries.

    Those of involved messages follow from all rows of the message, others from the delivery and its
    ack or nack alone.
    """
    size = rows.messages
    answers = rows.of(ACK_INVOKE, NACK_INVOKE)
    answer_ids = rows.id[answers]
    involved = (lives.deliveries > 1) | (counted(answer_ids, size) > 1)
    involved[rows.id[rows.of(TIMEOUT)]] = True
    if not rows.transaction.absent:
        involved[answer_ids[rows.transaction[answers] != NONE]] = True
    asked = np.full(size, -1, dtype=np.int64)
    asked[answer_ids] = answers
    known = (rows.message[delivers] != NONE) & (rows.session[delivers] != NONE)
    mine = delivers[known]
    single = mine[~involved[rows.id[mine]]]
    answer = asked[rows.id[single]]
    released = (
        (answer >= 0)
        & (rows.session[answer] == rows.session[single])
        & (rows.index[answer] > rows.index[single])
    )
    no = np.zeros(len(single), dtype=bool)
    waits = waiting_ns(asking.promises) is not None  # earlier answers say since when
    alone = _table(
        rows, lives, asking, single, release=np.where(released, rows.index[answer], FOREVER),
        since=rows.index[single], fresh=~no, again=no, duplicate=no,
        unflagged=no, fell=no, stuck=no, settled=no, open=no | waits,
    )  # fmt: skip
    if not involved.any():
        return alone
    return joined([alone, _in_detail(rows, lives, asking, involved)])


def _table(
    rows: Rows,
    lives: Lives,
    asking: _Context,
    at: Numbers,
    *,
    release: Numbers,
    since: Numbers,
    **columns: Flags,
) -> Deliveries:
    sessions = asking.ends.sessions
    ended = sessions.find("ended", rows.run[at], rows.session[at])
    ids = rows.id[at].astype(np.int64)
    late = (ended != NONE) & (ended < rows.index[at])
    after = at[late]
    over = sessions.find("over", rows.run[after], rows.session[after])
    late[late] = (over != NONE) & (over < rows.index[after])
    expired, perhaps, when = _expired(rows, lives, asking, at)
    columns["open"] = columns["open"] | perhaps
    since = np.where(perhaps, earliest(since, np.maximum(when, 0)), since)
    if waiting_ns(asking.promises) is not None:
        since = earliest(since, np.maximum(lives.sent[ids], 0))
    return Deliveries(
        place=rows.place[at], life=ids + asking.offset, message=rows.message[at], index=rows.index[at],
        time=rows.time[at], let_go=_let_go(rows, asking, at), lapse=asking.lapsed.lapse_of(at),
        session=rows.session[at],
        release=np.minimum(release, np.where(ended == NONE, FOREVER, ended)),
        producer=rows.producer[at], sequence=rows.sequence[at], certain=lives.ok[ids] != NONE, late=late,
        sent=lives.sent[ids], connection=rows.connection[at], since=since, expired=expired,
        early=_early(rows, lives, asking, at), marked=says_again(rows, at),
        in_turn=lives.in_turn[ids], **columns,
    )  # fmt: skip


def _let_go(rows: Rows, asking: _Context, at: Numbers) -> Numbers:
    if asking.promises.sticky_groups:
        return np.broadcast_to(np.int64(FOREVER), len(at))
    some = marked(rows.id[at], rows.messages)
    asked = acks(rows, some).with_(nacks(rows, some))
    index, run, transaction = rows.index[asked.at], rows.run[asked.at], rows.transaction[asked.at]
    commit, committing = (
        asking.ends.transactions.find(name, run, transaction) for name in ("commit", "asked")
    )
    inside = np.where((commit != NONE) & (committing != NONE), committing, commit)
    taken = np.where(transaction != NONE, inside, np.where(asked.answer >= 0, index, NONE))
    both = np.concatenate([at, asked.at])
    nothing = np.full(len(at), NONE, dtype=np.int64)
    result = np.full(len(both), FOREVER, dtype=np.int64)
    for keys, values in (
        ((rows.id[both], rows.session[both]), np.concatenate([nothing, taken])),
        ((rows.id[both],), np.concatenate([rows.index[at], np.full(len(asked.at), NONE)])),
    ):
        order = ordered(*keys, rows.index[both])
        after = lowest_after(segments(*(key[order] for key in keys)), values[order])
        result[order] = np.minimum(result[order], np.where(after == NONE, FOREVER, after))
    return result[: len(at)]


def _expired(rows: Rows, lives: Lives, asking: _Context, at: Numbers) -> tuple[Flags, Flags, Numbers]:
    """Return which deliveries certainly were, and which may have been, sent after the expiry.

    The expiry is that of their message. The second flags have deliveries of which other parts may
    show it; the last column has the row from which on an answer would.

    A delivery was certainly sent after its session, and the delivery itself, had been asked for. It
    was sent, too, after the latest question on its connection that was answered before it was read.
    """
    expired = asking.wish.expired[rows.id[at]]
    result, perhaps = np.zeros(len(at), dtype=bool), np.zeros(len(at), dtype=bool)
    since = rows.index[at]
    late = np.flatnonzero((expired != NONE) & (rows.time[at] > expired))
    late = late[~_unclear(rows, lives, asking, at[late])]
    if not len(late):
        return result, perhaps, since
    here, expired = at[late], expired[late]
    run, session = rows.run[here], rows.session[here]
    sent_ns = np.maximum(asking.ends.sessions.find("begun_ns", run, session), rows.time_low[here])
    if asking.known is None:
        # The facts of all parts have the answers; until then only the subscribe and ``time_low``
        # say before which moment the delivery was not sent.
        perhaps[late] = sent_ns <= expired
        sends = rows.of(SEND_INVOKE)
        sent_at = first(rows.id[sends], rows.time[sends], rows.messages)[rows.id[here]]
        since[late] = np.where(sent_at <= expired, lives.sent[rows.id[here]], 0)
    elif asking.promises.answers_in_order:
        links = asking.known.links
        asked = links.before(run, session, rows.connection[here], rows.index[here])
        sent_ns = np.maximum(sent_ns, links.moments(run, asked))
    result[late] = sent_ns > expired
    return result, perhaps, since


def _early(rows: Rows, lives: Lives, asking: _Context, at: Numbers) -> Flags:
    """Flag the deliveries that were read before their message was to be delivered."""
    due = asking.wish.early[rows.id[at]]
    result: Flags = (due != NONE) & (rows.time[at] < due)
    result[result] = ~_unclear(rows, lives, asking, at[result])
    return result


def _unclear(rows: Rows, lives: Lives, asking: _Context, at: Numbers) -> Flags:
    """Flag the deliveries whose message's brokers had a wrong clock since its send."""
    ids = rows.id[at].astype(np.int64)
    return asking.clocks.wrong(rows, ids, lives.sent[ids], rows.index[at])


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """The violations of the deliveries among some rows, one flag of each kind for each row."""

    twice: Flags
    unflagged: Flags
    fell: Flags
    stuck: Flags

    def differ(self, other: _Verdicts) -> Flags:
        """Flag the rows in which the two have different violations."""
        result: Flags = (self.twice != other.twice) | (self.unflagged != other.unflagged)
        result |= (self.fell != other.fell) | (self.stuck != other.stuck)
        return result


def _in_detail(rows: Rows, lives: Lives, asking: _Context, involved: Flags) -> Deliveries:
    """Return the deliveries of the involved messages, judged by the earlier rows of each message.

    In the code, ``previous`` is the message's last delivery in this session. ``excuse`` is the last
    nack, rollback, or refused ack or commit in this session. ``settled`` is the row since which the
    message was certainly acknowledged, for ever where acks last. ``taken``: an ack of it in this
    session was answered ``ok`` later, which a broker that refuses stale acks would not have done.
    ``underway``: the delivery may have been sent before the message was settled, to a session that
    the client later found dead or had asked to leave.
    """
    ends = asking.ends
    at = rows.of(DELIVER, ACK_INVOKE, ACK_OK, NACK_INVOKE, NACK_OK, TIMEOUT)
    at = at[involved[rows.id[at]] & (rows.session[at] != NONE) & (rows.message[at] != NONE)]
    order = at[ordered(rows.id[at], rows.session[at], rows.index[at])]
    ids, kind, index, session = rows.id[order], rows.kind[order], rows.index[order], rows.session[order]
    transaction, run = rows.transaction[order], rows.run[order]
    alone = transaction == NONE
    end = ends.transactions.find("end", run, transaction)
    back = ends.transactions.find("undone", run, transaction)
    commit = ends.transactions.find("commit", run, transaction)
    nack, ack = kind == NACK_INVOKE, kind == ACK_INVOKE
    releasing = np.where(nack | (ack & alone), index, np.where(ack, end, NONE))
    asked = acks(rows, involved)
    refused_ack = np.isin(order, asked.at[asked.failed])
    excusing = np.where(nack | refused_ack, index, np.where(ack & ~alone, back, NONE))
    settling = np.where(kind == ACK_OK, np.where(alone, index, commit), NONE)
    delivering = kind == DELIVER
    one = segments(ids, session)
    release = lowest_after(one, releasing)
    excuse = highest_before(one, excusing)
    previous = highest_before(one, np.where(delivering, index, NONE))
    taken = np.zeros(len(order), dtype=bool)
    if asking.promises.refuses_stale_acks:
        taken = lowest_after(one, np.where(kind == ACK_OK, index, NONE)) != NONE

    by_message = ordered(ids, index)
    whole = segments(ids[by_message])
    earlier, since = (np.empty(len(order), dtype=np.int64) for _ in range(2))
    earlier[by_message] = count_before(whole, delivering[by_message])
    since[by_message] = lowest_before(whole, index[by_message])

    ended = ends.sessions.find("ended", run, session)
    reconnected = (ended != NONE) & (ended > previous) & (ended < index)
    given_back = ((excuse != NONE) & (excuse > previous)) | reconnected
    again = earlier > 0
    begun = ends.sessions.find("begun", run, session)
    left = ends.sessions.find("left", run, session)
    answered = ends.sessions.find("answered", run, session)
    lost = (ended != NONE) & ((ended < index) | (left == NONE))
    lost &= (answered == NONE) | (answered > lives.sent[ids])

    process = np.zeros(len(order), dtype=np.int64)
    if asking.promises.marks_redeliveries == "same-process":
        until = ends.sessions.find("until", run, session)
        one_reign = (until != NONE) & (rows.time[order] <= until)
        process = np.where(one_reign, 2 * ends.sessions.find("reign", run, session), 2 * session + 1)

    here = np.flatnonzero(delivering)
    refused = refusals.certain(rows, ends, involved)

    latest = np.maximum.accumulate(np.where(delivering, np.arange(len(order)), -1))
    before = np.concatenate([np.full(1, -1), latest])[: len(order)]
    there = (before >= 0) & (one[before] == one)

    def judged(possible: Numbers, alive: Numbers, lapsed: Lapses) -> _Verdicts:
        """Judge deliveries by when they can have been sent and how long their sessions lived.

        ``possible`` is the earliest row at which each can have been sent. ``alive`` is the latest
        row at which its session was certainly alive. ``lapsed`` has what the broker may have taken
        back.
        """
        settled = np.full(len(order), NONE, dtype=np.int64)
        settles = np.where(lapsed.are_late(order), NONE, settling)
        if asking.promises.durable_acks:
            settled[by_message] = lowest_before(whole, settles[by_message])
        lapse = lapsed.lapse_of(np.where(there, order[before], -1))
        excused = given_back | (rows.time[order] >= lapse)
        excusable = lost & ~taken
        after = np.where(excusable, np.maximum(possible, alive), FOREVER)
        unread = taken_back_unread(rows, order, settles, after, lapsed, asking.promises, ends)
        underway = (after < settled) | unread
        twice = ((settled != NONE) & (settled < index) & ~underway) | ((previous != NONE) & ~excused)
        known = refusals.Redeliveries(order[here], possible[here], alive[here], excusable[here])
        deadly = refusals.deadly(rows, asking.promises, asking.deaths, refused, known)
        twice[here] |= deadly & ~lapsed.unread_of(order[here])
        twice &= again
        stuck = np.zeros(len(order), dtype=bool)
        stuck[here] = counts.stuck(rows, ends, asking.promises, asking.deaths, refused, known)
        unflagged = again & ~twice & (asking.promises.marks_redeliveries != "never")
        unflagged &= _unflagged(rows, order, process, previous, begun, possible)
        return _Verdicts(twice, unflagged, _fell(rows, order, possible), stuck)

    nothing = np.full(len(order), NONE, dtype=np.int64)
    lapsed = asking.lapsed
    if asking.known is None:
        found = judged(begun, nothing, lapsed)
        every = np.full(len(order), FOREVER)
        worst = judged(np.maximum(begun, index), every, Lapses.none())
        opened = delivering & worst.differ(found)
        opened |= delivering & (waiting_ns(asking.promises) is not None)
    else:
        links = nothing
        if asking.promises.answers_in_order:
            links = asking.known.links.before(run, session, rows.connection[order], index)
        proven = asking.known.proven.find("proven", run, session)
        found = judged(np.maximum(begun, links), proven, lapsed)
        opened = np.zeros(len(order), dtype=bool)
    return _table(
        rows, lives, asking, order[here], release=np.where(release[here] == NONE, FOREVER, release[here]),
        since=since[here], fresh=previous[here] == NONE, again=again[here],
        duplicate=found.twice[here], unflagged=found.unflagged[here], fell=found.fell[here],
        stuck=found.stuck[here],
        settled=_settled_twice(rows, order, settling, lapsed)[here], open=opened[here],
    )  # fmt: skip


def _unflagged(
    rows: Rows, order: Numbers, process: Numbers, previous: Numbers, begun: Numbers, possible: Numbers
) -> Flags:
    """Flag the deliveries that must have been marked as redelivered and are not.

    Only the second and later deliveries of a message by one ``process`` must be.

    The delivery that is read last may have been sent first: it can have been sent (``possible``)
    before the others were read, or it has the delivery count 1. But only one delivery of a message
    is the first, and a delivery whose count is not lower than another's is not the first.
    """
    delivering = rows.kind[order] == DELIVER
    index, count = rows.index[order], rows.delivery_count[order]
    bare = delivering & (rows.redelivered[order] == 0)
    by_message = ordered(rows.id[order], process, index)
    whole = segments(rows.id[order[by_message]], process[by_message])
    earlier, another, sent_before, fewer, told = (np.empty(len(order), dtype=np.int64) for _ in range(5))
    earlier[by_message] = count_before(whole, delivering[by_message])
    another[by_message] = count_before(whole, bare[by_message])
    sent_before[by_message] = lowest_before(whole, np.where(delivering, index, NONE)[by_message])
    fewer[by_message] = lowest_before(whole, np.where(delivering, count, NONE)[by_message])
    told[by_message] = count_before(whole, (delivering & (count == NONE))[by_message])
    since = sent_before < possible
    unknown = (begun == NONE) & ((count != 1) | (told > 0))
    told_of = (another > 0) | since | unknown | ((count != NONE) & (fewer != NONE) & (fewer <= count))
    result: Flags = bare & ((previous != NONE) | ((earlier > 0) & told_of))
    return result


def _fell(rows: Rows, order: Numbers, possible: Numbers) -> Flags:
    """Flag the deliveries with a lower count than an earlier one.

    The earlier one is of the same message, and was read before in their session or was certainly
    sent before.
    """
    delivering = rows.kind[order] == DELIVER
    index, count = rows.index[order], np.where(delivering, rows.delivery_count[order], NONE)
    if not (count != NONE).any():
        return np.zeros(len(order), dtype=bool)
    here = highest_before(segments(rows.id[order], rows.session[order]), count)
    asked = np.flatnonzero(possible != NONE)
    ids = np.concatenate([rows.id[order], rows.id[order[asked]]])
    at = np.concatenate([index, np.minimum(possible, index)[asked]])
    values = np.concatenate([count, np.full(len(asked), NONE, dtype=np.int64)])
    by_message = ordered(ids, at)
    before = np.empty(len(ids), dtype=np.int64)
    before[by_message] = highest_before(segments(ids[by_message]), values[by_message])
    elsewhere = np.full(len(order), NONE, dtype=np.int64)
    elsewhere[asked] = before[len(order) :]
    result: Flags = (count != NONE) & (np.maximum(here, elsewhere) > count)
    return result


def _settled_twice(rows: Rows, order: Numbers, settling: Numbers, lapsed: Lapses) -> Flags:
    """Flag the later of the two deliveries of each message that two sessions settled.

    It counts only if the second session had the message before the first had settled it. Nor may
    the earlier delivery have lapsed before the later one was read.
    """
    index, ids, session = rows.index[order], rows.id[order], rows.session[order]
    delivering = rows.kind[order] == DELIVER
    got = highest_before(segments(ids, session), np.where(delivering, index, NONE))
    given = highest_before(segments(ids, session), np.where(delivering, np.arange(len(order)), NONE))
    at = np.flatnonzero((settling != NONE) & ~lapsed.are_late(order))
    at = at[ordered(ids[at], session[at], settling[at], index[at])]
    at = at[starts(segments(ids[at], session[at]))]  # each session's first settlement
    at = at[got[at] != NONE]
    at = at[ordered(ids[at], settling[at], index[at])]
    whole = segments(ids[at])
    firsts = at[starts(whole)]
    leading = firsts[whole - whole[0]] if len(whole) else at
    others = (at != leading) & (got[at] < settling[leading])
    mine, theirs = given[at], given[leading]
    early, late = (np.where((got[at] < got[leading]) == first_, mine, theirs) for first_ in (True, False))
    others &= rows.time[order[late]] < lapsed.lapse_of(order[early])
    later = lowest(ids[at[others]], np.maximum(got[at], got[leading])[others], rows.messages)
    result: Flags = delivering & (index == later[ids])
    return result
