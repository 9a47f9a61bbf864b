"""The second implementation of the fate of each message, and of deliveries that came again.

The definitions as loops. They read the rows of one message at a time. Of the whole history they
read only where an id was sent, how sessions and transactions ended, which broker has which store,
and how often each store was read. They share no code with the rules on columns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import clocks_wrong, early, expired
from checkers.reference_attempts import read_before_commit, shown_though_aborted
from checkers.reference_deletions import is_back
from checkers.reference_owed import did_not_count, left_over
from checkers.reference_sent import certainly_before
from checkers.reference_skipped import is_not_copied, is_skipped
from checkers.reference_subscriptions import is_owed, not_subscribed
from checkers.reference_temporaries import outlived
from checkers.reference_waits import has_lapsed, is_late
from checkers.schema import HARNESS, MONITOR
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def fates(history: History, messages: Sequence[PlainMessage], options: CheckOptions) -> Iterator[Instance]:
    """Find the anomalies of single messages: lost, stuck, died-early, resurrected and others."""
    for (queue, group, message), rows in history.messages.items():
        if message is None:
            unreadable = [r["index"] for r in rows if _is(r, "deliver", "ok") or _unreadable_in_store(r)]
            if unreadable:
                yield Instance("corrupted", queue, group, None, min(unreadable))
    complete = history.looked_everywhere
    sent = first_sends(messages)
    astray = {m.id for m in messages if misplaced(m, sent) is not None}
    stores = PlainStores(history)
    lost: dict[str | None, list[Instance]] = defaultdict(list)
    for m in messages:
        by_name = {
            "phantom": _phantom(m, sent, options),
            "corrupted": _corrupted(m, sent),
            "aborted-delivery": shown_though_aborted(m),
            "read-uncommitted": read_before_commit(history, m),
            "resurrected": _resurrected(history, m, stores, options),
        }
        for name, index in by_name.items():
            if index is not None:
                yield m.instance(name, index)
        yield from (m.instance("not-subscribed", index, key) for index, key in not_subscribed(history, m))
        if m.id in astray:
            continue
        for anomaly in left_over(history, m, options, complete=complete):
            if anomaly.name == "lost":
                lost[m.queue].append(anomaly)
            else:
                yield anomaly
        if complete:
            yield from _left_out(history, m, options)
    unheard = Counter(r["queue"] for r in history.rows if r["f"] == "receive")
    for queue, queue_losses in lost.items():
        if len(queue_losses) > unheard[queue]:
            yield from queue_losses


def _left_out(history: History, m: PlainMessage, options: CheckOptions) -> Iterator[Instance]:
    """Find whether a message is lost for its subscription: skipped, or not copied."""
    if not m.sends:
        return
    if is_owed(history, m, options):
        if options.broker.atomic and is_not_copied(history, m, options):
            yield m.instance("lost", m.sends[0]["index"], "not copied")
    elif m.ok is not None and is_skipped(history, m, options, m.ok):
        yield m.instance("lost", m.sends[0]["index"], "skipped")


def _is(r: Row, f: str, type_: str) -> bool:
    return bool(r["f"] == f and r["type"] == type_)


def _first(rows: Iterable[Row]) -> int | None:
    return min((r["index"] for r in rows), default=None)


def _unreadable_in_store(r: Row) -> bool:
    """Return whether a row shows an unreadable body in a store.

    A body that was cut has no digest, so no claim is made of it.
    """
    return _is(r, "browse", "ok") and r.get("digest") is not None


# ---------------------------------------------------------------------------- phantom and corrupted


def first_sends(messages: Iterable[PlainMessage]) -> dict[int, int]:
    """Return, by message id, the first invocation of a send of it to any queue and group."""
    sent: dict[int, int] = {}
    for m in messages:
        for r in m.sends:
            sent[m.id] = min(r["index"], sent.get(m.id, r["index"]))
    return sent


def misplaced(m: PlainMessage, sent: Mapping[int, int]) -> int | None:
    """Return the first row that shows a message in a queue and group to which it was not sent.

    The message must have been sent to another queue or group before. Return None if there is no
    such row.
    """
    first_shown, first_sent = _first(m.shown), _first(m.sends)
    if first_shown is None or (first_sent is not None and first_sent < first_shown):
        return None
    return first_shown if sent.get(m.id, first_shown) < first_shown else None


def _phantom(m: PlainMessage, sent: Mapping[int, int], options: CheckOptions) -> int | None:
    """Return the first row that proves a phantom; None if there is none.

    The row shows or acknowledges the message before any send of it; or it acknowledges the message
    with ``ok`` in a session that never got it, where stale acks are refused.
    """
    acks = [r for r in m.rows if _is(r, "ack", "ok")]
    wrong = [r["index"] for r in (*m.shown, *acks) if sent.get(m.id, r["index"]) >= r["index"]]
    if options.broker.refuses_stale_acks:
        wrong += [r["index"] for r in acks if r.get("session") is not None and not _got(m, r)]
    return min(wrong, default=None)


def _got(m: PlainMessage, ack: Row) -> bool:
    return any(d.get("session") == ack["session"] and d["index"] < ack["index"] for d in m.deliveries)


def _corrupted(m: PlainMessage, sent: Mapping[int, int]) -> int | None:
    """Return the first row that shows a message other than any attempt sent it; else None.

    Compared are the digest of the body, the producer, the sequence, the application's own headers,
    and the queue and group. A column that is null is not compared.
    """
    wrong = [
        r["index"]
        for column in ("digest", "producer", "sequence", "headers")
        if (meant := {s[column] for s in m.sends if s.get(column) is not None})
        for r in m.shown
        if r.get(column) is not None and r[column] not in meant
    ]
    elsewhere = misplaced(m, sent)
    return min([*wrong, *([] if elsewhere is None else [elsewhere])], default=None)


# ----------------------------------------------------------------------------- copies in the stores


_KEPT = ("main", "dead-letter", "expired")


class PlainStores:
    """The readings of each broker's stores, and the owners of the stores.

    An owner is a node ID, or a broker whose node ID no row tells.
    """

    def __init__(self, history: History) -> None:
        self._read: dict[str | None, list[int]] = defaultdict(list)
        self._owner: dict[str | None, str] = {}
        for r in history.rows:
            if r["process"] == HARNESS and _is(r, "browse", "ok") and r.get("queue") is None:
                self._read[r.get("broker")].append(r["index"])
            if r["process"] == MONITOR and r["f"] == "role" and r.get("node_id") is not None:
                self._owner[r.get("broker")] = r["node_id"]

    def copies(self, stored: Iterable[Row], back: int) -> dict[str | None, int]:
        """Return the number of copies of a message by owner in one reading of the stores.

        ``back`` is 1 for the last reading and 2 for the one before. If an owner has several
        brokers, the highest number among these counts.
        """
        counts: Counter[str | None] = Counter()
        for r in stored:
            ends = self._read[r.get("broker")]
            if len(ends) >= back and sum(end < r["index"] for end in ends) == len(ends) - back:
                counts[r.get("broker")] += 1
        result: dict[str | None, int] = {}
        for broker, count in counts.items():
            owner = self._owner.get(broker, broker)
            result[owner] = max(count, result.get(owner, 0))
        return result


def _resurrected(history: History, m: PlainMessage, stores: PlainStores, options: CheckOptions) -> int | None:
    """Return the row that shows that a message was resurrected; None if there is none.

    It is in a store though it was acknowledged or its temporary queue had ended, or the stores have
    several copies of it in both of the last two readings, or its queue had been deleted.
    """
    if not m.stored:
        return is_back(history, m, options)
    if options.broker.durable_acks:
        settled = min((at for at, _ in settlements(history, m, options, own_rows_only=True)), default=None)
        in_store = [r for r in m.stored if r.get("value") in _KEPT]
        back = [r["index"] for r in in_store if settled is not None and settled < r["index"]]
        if back:
            return int(min(back))
    stored_copies = [r for r in m.stored if r.get("value") in _KEPT]
    now = stores.copies(stored_copies, 1)
    if sum(now.values()) > 1 and now == stores.copies(stored_copies, 2):
        return max(int(r["index"]) for r in stored_copies)
    ended = [at for at in (outlived(history, m), is_back(history, m, options)) if at is not None]
    return min(ended, default=None)


def settlements(
    history: History, m: PlainMessage, options: CheckOptions, *, own_rows_only: bool = False
) -> Iterator[tuple[int, Row]]:
    """Yield the acks of a message answered ``ok``, each after the row since which it was certain.

    That row is the commit's ``ok`` for an ack in a transaction. An ack is left out if the broker
    may have taken the message back before it came; ``own_rows_only``: judged by the rows of the
    message only.
    """
    for r in m.rows:
        acked = _is(r, "ack", "ok") and r.get("session") is not None
        if acked and not is_late(history, m.rows, r, options, own_rows_only=own_rows_only):
            transaction = r.get("transaction")
            at = r["index"] if transaction is None else history.ended(transaction, "commit", "ok")
            if at is not None:
                yield at, r


# ----------------------------------------------------------------------- deliveries that came again


def delivery_anomalies(
    history: History, messages: Iterable[PlainMessage], options: CheckOptions
) -> Iterator[Instance]:
    """Find late-delivery, count-fell, count-stuck, expired-delivery and early-delivery."""
    for m in messages:
        in_sessions = [d for d in m.deliveries if d.get("session") is not None]
        late = [d["index"] for d in in_sessions if _is_late(history, d)]
        if late:
            yield m.instance("late-delivery", late[0])
        fell = [
            d["index"]
            for n, d in enumerate(in_sessions)
            if n
            and d.get("delivery_count") is not None
            and any(
                e.get("delivery_count") is not None
                and e["delivery_count"] > d["delivery_count"]
                and certainly_before(history, e, d, options)
                for e in in_sessions[:n]
            )
        ]
        if fell:
            yield m.instance("count-fell", fell[0])
        if options.broker.counts == "given back" and options.broker.single:
            stuck = (
                d["index"]
                for n, d in enumerate(in_sessions)
                if any(did_not_count(history, m, e, d, options) for e in in_sessions[:n])
            )
            yield from (m.instance("count-stuck", index) for index in [*stuck][:1])
        for name, is_wrong in (("expired-delivery", expired), ("early-delivery", early)):
            wrong = (d["index"] for d in in_sessions if is_wrong(history, m, d, options))
            at = next((index for index in wrong if not clocks_wrong(history, m, index)), None)
            if at is not None:
                yield m.instance(name, at)


def _is_late(history: History, d: Row) -> bool:
    over = history.over(d["session"])
    return over is not None and over < d["index"]


def unflagged(history: History, earlier: Sequence[Row], d: Row, options: CheckOptions) -> bool:
    """Return whether ``d``, read after ``earlier``, lacks the mark of a redelivery.

    The delivery that was read last may have been sent first, but only one delivery is the first.
    """
    return d.get("redelivered") is False and any(
        e.get("redelivered") is False or not _may_have_been_sent_before(history, d, e, options)
        for e in earlier
        if options.broker.marks_redeliveries == "always" or _of_one_process(history, e, d)
    )


def _of_one_process(history: History, e: Row, d: Row) -> bool:
    """Return whether one process of a broker sent both: to one session, or within one reign."""
    if e["session"] == d["session"]:
        return True
    reign = history.reign(d["session"])
    if reign is None or reign != history.reign(e["session"]):
        return False
    _, until = reign
    return until is None or d["time"] <= until


def _may_have_been_sent_before(history: History, d: Row, e: Row, options: CheckOptions) -> bool:
    """Return whether ``d`` may have been sent before ``e``, which was read before it."""
    count, other = d.get("delivery_count"), e.get("delivery_count")
    if certainly_before(history, e, d, options) or (
        count is not None and other is not None and other <= count
    ):
        return False
    is_known = history.session_begin(d["session"]) is not None
    return is_known or (count == 1 and other is not None)


def settled_twice(history: History, m: PlainMessage, options: CheckOptions) -> set[int]:
    """Return the deliveries that prove that two sessions held a message, as both settled it.

    The second session got the message before the ack of the first was certain. A delivery is left
    out if the broker may have taken the message back from the other session before it.
    """
    first: dict[int, tuple[int, int]] = {}
    for at, r in settlements(history, m, options):
        pair = (at, r["index"])
        first[r["session"]] = min(pair, first.get(r["session"], pair))
    holders = []
    for session, (at, row) in first.items():
        got = [d["index"] for d in m.deliveries if d.get("session") == session and d["index"] < row]
        if got:
            holders.append((at, row, max(got)))
    holders.sort()
    rows = {d["index"]: d for d in m.deliveries}
    twice = set()
    for _, _, got in holders[1:]:
        early, late = sorted((rows[got], rows[holders[0][2]]), key=lambda d: int(d["index"]))
        if got < holders[0][0] and not has_lapsed(history, m.rows, early, late, options):
            twice.add(late["index"])
    return twice
