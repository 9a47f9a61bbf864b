"""The second implementation of ``not-linearizable`` for whole queues: the definitions as loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from checkers.anomaly import LOSSLESS
from checkers.instance import Instance
from checkers.reference_asked import in_turn
from checkers.reference_attempts import of_one_node, stored_by
from checkers.reference_consumers import consumers_of, order_is_off
from checkers.reference_deletions import deletes_of
from checkers.reference_order import never_came
from checkers.schema import TEMPORARY, TOPIC
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage


def whole_queues(
    history: History, messages: Sequence[PlainMessage], options: CheckOptions
) -> Iterator[Instance]:
    """Find the first delivery of each queue that overtook another message.

    Only messages without a group are judged, and only where queues are promised to be FIFO.
    """
    if not options.broker.fifo:
        return
    queues: dict[str, list[PlainMessage]] = defaultdict(list)
    for m in messages:
        if (
            m.group is None
            and m.queue is not None
            and not m.queue.startswith((TOPIC, TEMPORARY))
            and in_turn(m)
        ):
            queues[m.queue].append(m)
    for queue, queue_messages in queues.items():
        yield from _of_queue(history, queue, queue_messages, options)


def _of_queue(
    history: History, queue: str, queue_messages: Sequence[PlainMessage], options: CheckOptions
) -> Iterator[Instance]:
    rows = [r for r in history.data if r.get("queue") == queue and r.get("group") is None]
    got = [r for r in rows if r["f"] == "deliver" and r["type"] == "ok"]
    taking = [*got, *(r for r in rows if (r["f"], r["type"]) == ("send", "ok"))]
    brokers = sorted({r["broker"] for r in taking if r.get("broker") is not None})
    if not all(of_one_node(history, brokers[0], other) for other in brokers):
        return
    readable = all(r.get("message") is not None for r in got)
    arrived = [m for m in queue_messages if _arrived(history, m)]
    lossless = options.guarantee in LOSSLESS and readable and not deletes_of(history, queue)
    never = [
        m
        for m in queue_messages
        if lossless
        and m.sends
        and not m.aborted
        and never_came(history, m, options)
        and m.begun(history) is not None
    ]
    unheard = sum(r["f"] == "receive" and r.get("queue") == queue for r in history.rows)
    pulled = all(m.deliveries[0].get("time_low") is not None for m in arrived)
    nameless = any(r.get("session") is None for r in got)
    if not pulled and (unheard or nameless):
        return
    sessions = {r["session"] for m in arrived for r in m.deliveries[:1] if r.get("session") is not None}
    pairs = []
    for early in arrived:
        for late in (*arrived, *never):
            stored = stored_by(history, late)
            begun = early.begun(history)
            if stored is None or begun is None or stored >= begun:
                continue
            if order_is_off(history, early, late, early.deliveries[0]["index"]):
                continue
            if _overtook(early, late, pulled=pulled) and (
                pulled or _only_one_reader(history, sessions, early, late)
            ):
                moment = early.deliveries[0]["time" if pulled else "index"]
                pairs.append((moment, early.id, stored, late.id, early))
    if len({number for *_, number, _ in pairs}) > (unheard if pulled else 0):
        *_, number, first = min(pairs, key=lambda one: one[:4])
        yield first.instance("not-linearizable", first.deliveries[0]["index"], str(number))


def _arrived(history: History, m: PlainMessage) -> bool:
    """Return whether a message was delivered after its send, which did not certainly fail."""
    begun = m.begun(history) if m.sends and not m.aborted and m.deliveries else None
    return begun is not None and m.deliveries[0]["index"] > begun


def _overtook(early: PlainMessage, late: PlainMessage, *, pulled: bool) -> bool:
    if not late.deliveries:
        return True
    if pulled:
        return bool(late.deliveries[0]["time_low"] > early.deliveries[0]["time"])
    return bool(late.deliveries[0]["index"] > early.deliveries[0]["index"])


def _only_one_reader(history: History, sessions: set[int], early: PlainMessage, late: PlainMessage) -> bool:
    """Return whether only the session that read ``early`` can have got ``late`` before that."""
    read = early.deliveries[0]
    begun = late.begun(history)
    consumers = {c.session: c for c in reversed(list(consumers_of(history, early.queue)))}
    possible = {s for s, c in consumers.items() if c.begin < read["index"] and c.end > (begun or 0)}
    strangers = sessions - {*consumers}
    return possible == {read["session"]} and not strangers
