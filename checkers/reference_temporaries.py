"""The second implementation of the rules about temporary queues.

They say which messages a temporary queue is owed, and which must not come from it. See
``checkers.temporaries`` for the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from checkers.reference_attempts import node_id_of, over, saw_gone, stored_from
from checkers.schema import HARNESS, NEMESIS, json_object

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def lives_on(history: History, m: PlainMessage) -> bool:
    """Return whether the temporary queue of a message existed from its send until the drain.

    The broker that took the message must have had the queue, or be of another node: it forwards the
    message.
    """
    queue_rows = rows_of(history, m.queue)
    begun = next((r for r in queue_rows if (r["f"], r["type"]) == ("subscribe", "ok")), None)
    taken = next((r for r in m.rows if (r["f"], r["type"]) == ("send", "ok")), None)
    sent = stored_from(m)
    if begun is None or taken is None or sent is None or sent < begun["index"]:
        return False
    home, taker = begun.get("broker"), taken.get("broker")
    if home != taker and not _have_two_nodes(history, home, taker):
        return False
    drains = [r["index"] for r in history.control if _is_drain(r)]
    for invocation, answer in endings(queue_rows):
        certain = answer is not None and answer["type"] == "ok"
        if answer is not None and answer["type"] == "fail":
            continue
        if not drains or invocation["index"] < drains[0] or not (certain or invocation["f"] == "disconnect"):
            return False
    return True


def _have_two_nodes(history: History, broker: str | None, other: str | None) -> bool:
    """Return whether two brokers told node IDs that differ."""
    nodes = [None if name is None else node_id_of(history, name) for name in (broker, other)]
    return None not in nodes and nodes[0] != nodes[1]


def outlived(history: History, m: PlainMessage) -> int | None:
    """Return the first row of a main store that has a message though its queue had ended.

    The queue must have ended after the message was sent. Return None if there is no such row.
    """
    queue_rows = rows_of(history, m.queue)
    ends = [(invocation, answer) for invocation, answer in endings(queue_rows) if invocation["f"] == "drop"]
    drops = [(a["index"], b["index"]) for a, b in ends if b is not None and b["type"] == "ok"]
    ended = [*drops[:1], *_killed(history, m, queue_rows)]
    stored = [r["index"] for r in m.stored if r.get("value") == "main"]
    sent = over(m)
    wrong = (
        i
        for i in stored
        for invocation, answered in ended
        if sent is not None and sent < invocation and answered < i
    )
    return min(wrong, default=None)


def _killed(history: History, m: PlainMessage, queue_rows: list[Row]) -> Iterator[tuple[int, int]]:
    """Yield the invocation and the completion of the first fault that ended the owner's broker.

    Nothing is yielded if another broker took the message.
    """
    begun = next((r for r in queue_rows if (r["f"], r["type"]) == ("subscribe", "ok")), None)
    taken = next((r for r in m.rows if (r["f"], r["type"]) == ("send", "ok")), None)
    if begun is None or taken is None or begun.get("broker") != taken.get("broker"):
        return
    faults = [r for r in history.control if r["process"] == NEMESIS]
    for n, hit in enumerate(faults):
        if hit["type"] != "invoke" or hit["index"] < begun["index"]:
            continue
        completion = next(
            (r for r in faults[n + 1 :] if (r["f"], _label(r)) == (hit["f"], _label(hit))), None
        )
        if completion is None or completion["type"] == "invoke":
            continue
        if saw_gone(completion, begun.get("broker")):
            yield hit["index"], completion["index"]
            return


def _label(r: Row) -> str:
    return str((json_object(r.get("value")) or {}).get("label", ""))


def is_anothers(history: History, m: PlainMessage, delivery: Row) -> bool:
    """Return whether a delivery came on another connection than the owner's.

    The owner of a temporary queue is the first connection that subscribed to it.
    """
    subscribes = (r for r in rows_of(history, m.queue) if r["f"] == "subscribe")
    owner = next((r["connection"] for r in subscribes if r.get("connection") is not None), None)
    return owner is not None and delivery.get("connection") not in (owner, None)


def rows_of(history: History, queue: str | None) -> list[Row]:
    """Return all rows that name a temporary queue."""
    return history.temporary.get(queue, [])


def _is_drain(r: Row) -> bool:
    return (r["process"], r["f"], r.get("value")) == (HARNESS, "phase", "drain")


def endings(queue_rows: list[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Yield the rows that may have ended a temporary queue, each with its answer or None.

    A lost session has no answer.
    """
    for n, r in enumerate(queue_rows):
        if r["f"] == "disconnect":
            yield r, None
        elif r["f"] in ("drop", "unsubscribe") and r["type"] == "invoke":
            answer = next((s for s in queue_rows[n + 1 :] if _question(s) == _question(r)), None)
            yield r, None if answer is None or answer["type"] == "invoke" else answer


def _question(r: Row) -> tuple[str, int, int | None]:
    """Return what a request and its answer have in common."""
    return r["f"], r["process"], r.get("session")
