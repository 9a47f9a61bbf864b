"""The second implementation of torn-transaction: the definitions as loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import expires
from checkers.reference_subscriptions import kept_until_settled
from checkers.schema import TEMPORARY, TOPIC
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def torn(history: History, messages: Sequence[PlainMessage], options: CheckOptions) -> Iterator[Instance]:
    """Transactions of which an effect happened and another certainly did not."""
    complete = history.looked_everywhere()
    unheard = {r["queue"] for r in history.rows if r["f"] == "receive"}
    seen: dict[int, set[tuple[str | None, str | None]]] = defaultdict(set)
    for m in messages:
        if m.shown:
            seen[m.id].add((m.queue, m.group))
    happened: set[int] = set()
    missing: dict[int, Instance] = {}
    for m in messages:
        absent = complete and not seen[m.id] - {(m.queue, m.group)} and expires(m) is None
        absent = absent and m.queue not in unheard
        gone = absent and kept_until_settled(history, m)
        for transaction, index, did in (*_send(m, absent), *_acks(history, m, options, gone)):
            if did:
                happened.add(transaction)
            elif transaction not in missing or index < missing[transaction].index:
                missing[transaction] = m.instance("torn-transaction", index, str(transaction))
    yield from (instance for transaction, instance in missing.items() if transaction in happened)


def _send(m: PlainMessage, absent: bool) -> Iterator[tuple[int, int, bool]]:
    """Its transaction, the row that asked for it, and whether it happened; nothing if unknown."""
    if len({s.get("transaction") for s in m.sends}) != 1 or m.transaction is None:
        return
    if (m.queue or "").startswith((TOPIC, TEMPORARY)):
        return
    if any(r["f"] == "send" and r["type"] == "fail" for r in m.rows):
        return
    index = m.sends[0]["index"]
    if any(r["index"] > index for r in m.shown):
        yield m.transaction, index, True
    elif absent and not m.shown and any(r["f"] == "send" and r["type"] == "ok" for r in m.rows):
        yield m.transaction, index, False


def _acks(
    history: History, m: PlainMessage, options: CheckOptions, absent: bool
) -> Iterator[tuple[int, int, bool]]:
    for a in m.rows:
        transaction, session = a.get("transaction"), a.get("session")
        if a["f"] != "ack" or a["type"] != "invoke" or transaction is None or session is None:
            continue
        mine = [r for r in m.rows if r.get("session") == session]
        got = max((d["index"] for d in mine if d["f"] == "deliver" and d["index"] < a["index"]), default=None)
        answers = [r["index"] for r in mine if r["f"] in ("ack", "nack") and r["type"] == "invoke"]
        upto = min((index for index in answers if index > a["index"]), default=None)
        told = {
            r["type"]
            for r in mine
            if r["f"] == "ack" and r["index"] > a["index"] and (upto is None or r["index"] < upto)
        }
        if got is None or "fail" in told:
            continue
        clean = not any(got < index < a["index"] for index in answers)
        sure = "ok" in told and options.broker.durable_acks and options.broker.single
        if sure and (_kept(history, m, a) or (clean and _given_again(history, m, a, got, upto))):
            yield transaction, a["index"], False
        elif absent and _consumed(history, m, a, got, options):
            yield transaction, a["index"], True


def _kept(history: History, m: PlainMessage, a: Row) -> bool:
    """Whether a store had it after the commit, or else the ack, was asked for."""
    asked = history.ended(a["transaction"], "commit", "invoke")
    since = a["index"] if asked is None else max(a["index"], asked)
    return any(r.get("value") in ("main", "dead-letter", "expired") and r["index"] > since for r in m.stored)


def _given_again(history: History, m: PlainMessage, a: Row, got: int, upto: int | None) -> bool:
    """Whether it was certainly given to a session after the delivery that was acknowledged.

    To the same one, or to one that was asked for after that had been read: it had been given back,
    and with that its ack was undone. Not if its session was left before the commit was asked for.
    """
    asked, ended = history.ended(a["transaction"], "commit", "invoke"), history.session_end(a["session"])
    if asked is not None and ended is not None and ended < asked:
        return False
    for d in m.deliveries:
        session = d.get("session")
        if session is None or d["index"] <= got or (upto is not None and d["index"] > upto):
            continue
        begun = history.session_begin(session)
        if session == a["session"] or (begun is not None and begun > got):
            return True
    return False


def _consumed(history: History, m: PlainMessage, a: Row, got: int, options: CheckOptions) -> bool:
    """Whether it is gone since it was delivered, and this ack is all that can have settled it."""
    if m.stored or any(d["index"] > got for d in m.deliveries) or not options.broker.keeps_dead_letters:
        return False
    settling = ("ack", "nack") if options.broker.nack == "consume" else ("ack",)
    others = [r for r in m.rows if r is not a and r["f"] in settling and r["type"] == "invoke"]
    numbers = [r.get("transaction") for r in others]
    if any(number is None or _may_be_committed(history, number) for number in numbers):
        return False
    ends = [("commit", "ok"), ("abort", "ok"), ("commit", "fail")]
    return history.over(a["session"]) is not None or any(
        history.ended(a["transaction"], f, type_) is not None for f, type_ in ends
    )


def _may_be_committed(history: History, transaction: int) -> bool:
    asked = any(history.ended(transaction, "commit", type_) is not None for type_ in ("invoke", "ok"))
    return asked and history.ended(transaction, "commit", "fail") is None
