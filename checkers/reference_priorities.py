"""The second implementation of ``priority-inversion``.

It compares every pair of messages of one producer that were first delivered in one session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import is_delayed, priority
from checkers.schema import TOPIC
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage


def inversions(
    history: History, messages: Sequence[PlainMessage], options: CheckOptions
) -> Iterator[Instance]:
    """Find the messages that were in the queue when one of lower priority was chosen.

    The key of an instance is the id of the message of lower priority that was chosen last.
    """
    if options.broker.marks_redeliveries != "always":
        return
    unheard = {r.get("queue") for r in history.rows if r["f"] == "receive"}
    counted = [m for m in messages if m.queue not in unheard and _counts(m)]
    comparable: dict[tuple[Any, ...], list[PlainMessage]] = {}
    for m in counted:
        comparable.setdefault(_place(m), []).append(m)
    for late in counted:
        stored = _stored(late)
        if stored is None:
            continue
        overtook = [
            (chosen, m.id)
            for m in comparable[_place(late)]
            if _at(m) < _at(late) and _priority(m) < _priority(late)
            if (chosen := _chosen(history, m, options)) > stored
        ]
        if overtook:
            yield late.instance("priority-inversion", _at(late), str(max(overtook)[1]))


def _counts(m: PlainMessage) -> bool:
    if m.group is not None or m.queue is None or m.queue.startswith(TOPIC):
        return False
    if not m.sends or not m.deliveries or m.producer is None:
        return False
    first = m.deliveries[0]
    fresh = first.get("redelivered") is False and first.get("session") is not None
    return fresh and bool(m.sends[0]["index"] < first["index"])


def _place(m: PlainMessage) -> tuple[Any, ...]:
    """Return the queue, producer and first session of a message; only equal ones are comparable."""
    return m.queue, m.producer, m.deliveries[0]["session"]


def _priority(m: PlainMessage) -> int:
    return max(0, min(9, priority(m)))


def _at(m: PlainMessage) -> int:
    return int(m.deliveries[0]["index"])


def _stored(m: PlainMessage) -> int | None:
    """Return the row since which a message was certainly deliverable; None if no row tells."""
    if len(m.sends) != 1 or m.transaction is not None or is_delayed(m):
        return None
    oks = [r for r in m.rows if (r["f"], r["type"]) == ("send", "ok")]
    giver = m.deliveries[0].get("broker")
    if not oks or giver is None or oks[0].get("broker") != giver:
        return None
    return int(oks[0]["index"])


def _chosen(history: History, m: PlainMessage, options: CheckOptions) -> int:
    """Return the latest row after which the broker certainly chose a message; -1 if none tells."""
    first = m.deliveries[0]
    begun = history.session_begin(first["session"])
    rows_known = [int(m.sends[0]["index"]), begun, history.latest_answered_before(first, options)]
    return max((at for at in rows_known if at is not None and at < _at(m)), default=-1)
