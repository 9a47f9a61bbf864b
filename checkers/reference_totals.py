"""The second implementation of ``wrong-total``: the definitions as loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import expires
from checkers.reference_deletions import deletes_of
from checkers.reference_messages import settlements
from checkers.reference_waits import is_late
from checkers.schema import HARNESS, TEMPORARY, TOPIC, json_object
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]
Taken = Mapping[int, Mapping[int, int]]


def wrong_total(
    history: History, messages: Sequence[PlainMessage], options: CheckOptions
) -> Iterator[Instance]:
    """Find whether the amounts that are left certainly differ from those that should be.

    That is what was put in less what was taken out. There is at most one instance.
    """
    amounts = {id(m): amount for m in messages if (amount := _amount(history, m)) is not None}
    with_amount = [m for m in messages if id(m) in amounts]
    promised, drain = options.broker, _drained_from(history)
    if not with_amount or not history.looked_everywhere or not _clear(history, with_amount, drain, options):
        return
    if promised.delivery_attempts >= 0 and not promised.keeps_dead_letters:
        return
    taken = {id(m): _taken(m) for m in with_amount}
    inside = _by_transaction(with_amount, taken)
    happened = {number for number, part in inside.items() if _happened(history, number, part)}
    unknown = {n for n in inside if n not in happened and _may_be_committed(history, n)}
    for number in unknown:
        sent = sum(amounts[id(m)] for m in inside[number] if m.transaction == number)
        if sent != sum(amounts[id(m)] for m in inside[number] if number in taken[id(m)]):
            return
    if any(_failed(number, m) for number in happened | unknown for m in inside[number]):
        return
    flow = {}
    for m in with_amount:
        made = _deposited(m) if m.transaction is None else m.transaction in happened
        flow[id(m)] = made - len(happened & taken[id(m)].keys()) - _is_left(history, m, drain, options)
    total = sum(amounts[pair] * part for pair, part in flow.items())
    if total == 0 or (total < 0 and not (promised.durable_acks and promised.single)):
        return
    wrong = []
    unconfirmed = {n for n in happened | unknown if history.ended(n, "commit", "ok") is None}
    for together in _tied(with_amount, inside, unconfirmed):
        part = [(m, amounts[id(m)] * flow[id(m)] * (1 if total > 0 else -1)) for m in together]
        if sum(weight for _, weight in part) > 0:
            first = min((m for m, weight in part if weight > 0), key=_sent)
            wrong.append((first, together))
    first, together = min(wrong, key=lambda pair: _sent(pair[0]))
    if any(_elsewhere(history, m) for m in together):
        return
    settling = [(at, n) for n, at in taken[id(first)].items() if n in happened | unknown]
    since = max(settling)[1] if settling else first.transaction
    yield first.instance("wrong-total", _sent(first), None if since is None else str(since))


def _sent(m: PlainMessage) -> int:
    return int(next(r["index"] for r in m.sends if _amount_of_row(r) is not None))


def _amount(history: History, m: PlainMessage) -> int | None:
    if (m.queue or "").startswith((TOPIC, TEMPORARY)) or deletes_of(history, m.queue):
        return None
    return next((amount for amount in map(_amount_of_row, m.sends) if amount is not None), None)


def _amount_of_row(r: Row) -> int | None:
    value = r.get("value")
    if value is None or '"amount"' not in value:
        return None
    amount = (json_object(value) or {}).get("amount")
    if not isinstance(amount, int) or isinstance(amount, bool) or abs(amount) > 2**40:
        return None
    return amount


def _clear(history: History, with_amount: Sequence[PlainMessage], drain: int, options: CheckOptions) -> bool:
    """Return whether only transactions may have taken or made messages with amounts.

    And whether each ack in a transaction came before the broker may have taken its message back.
    """
    queues = {m.queue for m in with_amount}
    for r in history.rows:
        if r["f"] == "receive" and r.get("queue") in queues:
            return False
        at_end = r["f"] == "browse" or (r["f"] == "deliver" and r["index"] > drain)
        if at_end and r["type"] == "ok" and r.get("message") is None and r.get("queue") in queues:
            return False
    for m in with_amount:
        loose = any(
            r["f"] == "ack" and r.get("transaction") is None and r["index"] < drain
            for r in m.rows
            if r["type"] == "invoke"
        )
        loose |= any(
            r["f"] == "ack" and r["type"] == "ok" and r.get("transaction") is not None
            and is_late(history, m.rows, r, options, own_rows_only=True)
            for r in m.rows
        )  # fmt: skip
        loose |= expires(m) is not None or any(_read_late(history, r, drain) for r in m.deliveries)
        if loose or len(m.sends) > 1 or any(r["f"] == "nack" and r["type"] == "invoke" for r in m.rows):
            return False
        answered = any(r["f"] == "send" and r["type"] in ("ok", "fail") for r in m.rows)
        if m.transaction is None and not answered and not m.shown:
            return False
    return True


def _read_late(history: History, delivery: Row, drain: int) -> bool:
    """Return whether a session that began before the drain read a delivery in the drain.

    The broker may have sent it that delivery long before.
    """
    session = delivery.get("session")
    begun = None if session is None else history.session_begin(session)
    return bool(delivery["index"] > drain and begun is not None and begun < drain)


def _drained_from(history: History) -> int:
    phases = (r for r in history.rows if r["f"] == "phase" and r["process"] == HARNESS)
    return max((r["index"] for r in phases if r.get("value") == "drain"), default=2**32 - 1)


def _taken(m: PlainMessage) -> dict[int, int]:
    """Return the transactions with an ack of a message, each with the last invocation of one."""
    acks = [r for r in m.rows if r["f"] == "ack" and r["type"] == "invoke"]
    return {r["transaction"]: r["index"] for r in acks if r.get("transaction") is not None}


def _by_transaction(with_amount: Sequence[PlainMessage], taken: Taken) -> dict[int, list[PlainMessage]]:
    inside: dict[int, list[PlainMessage]] = defaultdict(list)
    for m in with_amount:
        for number in dict.fromkeys([m.transaction, *taken[id(m)]]):
            if number is not None:
                inside[number].append(m)
    return inside


def _happened(history: History, number: int, touched: Sequence[PlainMessage]) -> bool:
    if history.ended(number, "commit", "ok") is not None:
        return True
    is_shown = any(m.shown for m in touched if m.transaction == number)
    return is_shown and _may_be_committed(history, number)


def _may_be_committed(history: History, number: int) -> bool:
    is_asked = history.ended(number, "commit", "invoke") is not None
    return is_asked and history.ended(number, "commit", "fail") is None


def _failed(number: int, m: PlainMessage) -> bool:
    """Return whether the send of a message, or an ack of it, failed in a transaction."""
    sent = any(r["f"] == "send" and r["type"] == "fail" for r in m.rows)
    acked = any(r["f"] == "ack" and r["type"] == "fail" and r.get("transaction") == number for r in m.rows)
    return (sent and m.transaction == number) or (acked and number in _taken(m))


def _deposited(m: PlainMessage) -> bool:
    failed = any(r["f"] == "send" and r["type"] == "fail" for r in m.rows)
    ok = any(r["f"] == "send" and r["type"] == "ok" for r in m.rows)
    return ok or (bool(m.shown) and not failed)


def _is_left(history: History, m: PlainMessage, drain: int, options: CheckOptions) -> bool:
    """Return whether the drain or a store had a message before an ack of it was certain."""
    late = [r["index"] for r in m.deliveries if r["index"] > drain]
    late += [r["index"] for r in m.stored]
    settled = min((at for at, _ in settlements(history, m, options, own_rows_only=True)), default=None)
    return bool(late) and (settled is None or min(late) < settled)


def _tied(
    with_amount: Sequence[PlainMessage], inside: Mapping[int, list[PlainMessage]], unconfirmed: set[int]
) -> list[list[PlainMessage]]:
    """Return the messages in sets: messages of one commit without an ``ok`` are in one set."""
    sets = [[m] for m in with_amount]
    for number in unconfirmed:
        touched = [tied for tied in sets if any(m in inside[number] for m in tied)]
        sets = [tied for tied in sets if not any(tied is other for other in touched)]
        sets.append([m for tied in touched for m in tied])
    return sets


def _elsewhere(history: History, m: PlainMessage) -> bool:
    return any(other.shown for other in history.all_messages if other.id == m.id and other is not m)
