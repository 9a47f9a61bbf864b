"""The second implementation of ``torn-transaction``: the definitions as loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import may_have_expired
from checkers.reference_skipped import copies_of, is_skipped, serves, topic_of
from checkers.reference_subscriptions import is_owed, kept_until_settled
from checkers.reference_waits import has_lapsed, is_late
from checkers.schema import TEMPORARY, TOPIC
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def torn(history: History, messages: Sequence[PlainMessage], options: CheckOptions) -> Iterator[Instance]:
    """Find the transactions with one effect that happened and another that certainly did not."""
    complete = history.looked_everywhere
    unheard = {r["queue"] for r in history.rows if r["f"] == "receive"}
    happened: set[int] = set()
    missing: dict[int, Instance] = {}
    for m in messages:
        if all(r.get("transaction") is None for r in m.rows):
            continue
        absent = complete and not may_have_expired(history, m) and not _is_seen_elsewhere(history, m)
        absent = absent and not {m.queue, topic_of(m)} & unheard
        is_gone = absent and kept_until_settled(history, m)
        for transaction, index, did in (
            *_send(history, m, options, absent),
            *_acks(history, m, options, is_gone),
        ):
            if did:
                happened.add(transaction)
            else:
                anomaly = m.instance("torn-transaction", index, str(transaction))
                missing[transaction] = min(anomaly, missing.get(transaction, anomaly), key=_order)
    yield from (instance for transaction, instance in missing.items() if transaction in happened)


def _order(instance: Instance) -> tuple[int, str]:
    """Return a key that sorts the first effect of a transaction first; the queue decides ties.

    Ties are the copies of one send to a topic.
    """
    return instance.index, str(instance.queue)


def _is_seen_elsewhere(history: History, m: PlainMessage) -> bool:
    """Return whether a message was shown in a queue or group to which this send of it did not go.

    Other subscriptions of its topic do not count, because they have copies of their own.
    """
    other_messages = [other for other in history.same_id[m.id] if other is not m and other.shown]
    copies = copies_of(history, m) if other_messages else []
    return any(all(other is not copy for copy in copies) for other in other_messages)


def _send(
    history: History, m: PlainMessage, options: CheckOptions, absent: bool
) -> Iterator[tuple[int, int, bool]]:
    """Yield the transaction of a send, the row of its invocation, and whether the send happened.

    Yield nothing if that is unknown. A send to a topic has an effect in each of its subscriptions.
    It certainly did not happen if it was answered ``ok`` and the message is nowhere; in a
    subscription only if that was owed the message. It did not happen either in a subscription that
    was skipped, whether all stores were read or not.
    """
    if len({s.get("transaction") for s in m.sends}) != 1 or m.transaction is None:
        return
    if (m.queue or "").startswith(TEMPORARY):
        return
    if any(r["f"] == "send" and r["type"] == "fail" for r in m.rows):
        return
    index = m.sends[0]["index"]
    if any(r["index"] > index for r in m.shown):
        yield m.transaction, index, True
        return
    if m.shown:
        return
    taken = next((r for r in m.rows if (r["f"], r["type"]) == ("send", "ok")), None)
    of_topic = (m.queue or "").startswith(TOPIC)
    if is_owed(history, m) if of_topic else kept_until_settled(history, m):
        near = not of_topic or (taken is not None and serves(history, m.queue, taken.get("broker")))
        if absent and taken is not None and near:
            yield m.transaction, index, False
    elif of_topic and not _is_seen_elsewhere(history, m) and _is_skipped(history, m, options):
        yield m.transaction, index, False


def _is_skipped(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether a subscription was skipped for its copy, if the transaction happened."""
    copied = [r["index"] for copy in copies_of(history, m) for r in copy.shown]
    stored = m.ok if m.ok is not None else min(copied, default=None)
    return is_skipped(history, m, options, stored)


def _acks(
    history: History, m: PlainMessage, options: CheckOptions, absent: bool
) -> Iterator[tuple[int, int, bool]]:
    for a in m.rows:
        transaction, session = a.get("transaction"), a.get("session")
        if a["f"] != "ack" or a["type"] != "invoke" or transaction is None or session is None:
            continue
        in_session = [r for r in m.rows if r.get("session") == session]
        got = max(
            (d["index"] for d in in_session if d["f"] == "deliver" and d["index"] < a["index"]), default=None
        )
        answers = [r["index"] for r in in_session if r["f"] in ("ack", "nack") and r["type"] == "invoke"]
        upto = min((index for index in answers if index > a["index"]), default=None)
        answers_by_type = {
            r["type"]: r
            for r in reversed(in_session)
            if r["f"] == "ack" and r["index"] > a["index"] and (upto is None or r["index"] < upto)
        }
        if got is None or "fail" in answers_by_type:
            continue
        clean = not any(got < index < a["index"] for index in answers)
        sure = "ok" in answers_by_type and options.broker.durable_acks and options.broker.single
        sure = sure and not is_late(history, m.rows, answers_by_type["ok"], options, own_rows_only=True)
        if sure and (
            _still_stored(history, m, a) or (clean and _given_again(history, m, a, got, upto, options))
        ):
            yield transaction, a["index"], False
        elif absent and _consumed(history, m, a, got, options):
            yield transaction, a["index"], True


def _still_stored(history: History, m: PlainMessage, a: Row) -> bool:
    """Return whether a store had a message after the commit and its ack were invoked.

    ``a`` is the ack; without a commit only the ack counts.
    """
    commit = history.ended(a["transaction"], "commit", "invoke")
    since = a["index"] if commit is None else max(a["index"], commit)
    return any(r.get("value") in ("main", "dead-letter", "expired") and r["index"] > since for r in m.stored)


def _given_again(
    history: History, m: PlainMessage, a: Row, got: int, upto: int | None, options: CheckOptions
) -> bool:
    """Return whether a message was certainly delivered again, which undid ack ``a`` of it.

    It was delivered to the same session, or to one that was asked for after that delivery (row
    ``got``) had been read: so it had been given back, and its ack was undone. That is not certain
    if the session ended before the commit was invoked, or if the broker may have taken the message
    back because the ack was late.
    """
    commit, ended = history.ended(a["transaction"], "commit", "invoke"), history.session_end(a["session"])
    if commit is not None and ended is not None and ended < commit:
        return False
    for d in m.deliveries:
        session = d.get("session")
        if session is None or d["index"] <= got or (upto is not None and d["index"] > upto):
            continue
        delivered = next(r for r in m.deliveries if r["index"] == got)
        if has_lapsed(history, m.rows, delivered, d, options, own_rows_only=True):
            continue
        begun = history.session_begin(session)
        if session == a["session"] or (begun is not None and begun > got):
            return True
    return False


def _consumed(history: History, m: PlainMessage, a: Row, got: int, options: CheckOptions) -> bool:
    """Return whether a message is gone since row ``got``, and only ack ``a`` can explain that.

    ``got`` is the delivery that the ack is about.
    """
    if m.stored or any(d["index"] > got for d in m.deliveries) or not options.broker.keeps_dead_letters:
        return False
    settling = ("ack", "nack") if options.broker.nack == "consume" else ("ack",)
    other_acks = [r for r in m.rows if r is not a and r["f"] in settling and r["type"] == "invoke"]
    numbers = [r.get("transaction") for r in other_acks]
    if any(number is None or _may_be_committed(history, number) for number in numbers):
        return False
    ends = [("commit", "ok"), ("abort", "ok"), ("commit", "fail")]
    return history.over(a["session"]) is not None or any(
        history.ended(a["transaction"], f, type_) is not None for f, type_ in ends
    )


def _may_be_committed(history: History, transaction: int) -> bool:
    is_asked = history.ended(transaction, "commit", "invoke") is not None
    return is_asked and history.ended(transaction, "commit", "fail") is None
