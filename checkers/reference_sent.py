"""The second implementation of which delivery was sent before what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.schema import OF_SESSIONS, OF_TRANSACTIONS
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History

Row = Mapping[str, Any]


def operation(r: Row) -> tuple[Any, ...]:
    """Return what a question and its answer have in common.

    The process, and what tells two operations of one process apart.
    """
    who = r["process"], r["f"]
    if r["f"] in OF_SESSIONS:
        return *who, r.get("session")
    if r["f"] in OF_TRANSACTIONS:
        return *who, r.get("transaction")
    return *who, r.get("queue"), r.get("group"), r.get("message")


def certainly_before(history: History, e: Row, d: Row, options: CheckOptions) -> bool:
    """Whether ``e`` was sent before ``d``: in its session, or read before that can have been."""
    possible = history.possible(d, options)
    return bool(e["session"] == d["session"] or (possible is not None and possible > e["index"]))


def may_have_been_under_way(
    history: History, rows: Sequence[Row], d: Row, settled: int, options: CheckOptions
) -> bool:
    """Whether a delivery may have been under way when its message was settled.

    Whether it may have been sent before an ack was certain (docs/decisions/0009), and nothing
    refutes that (docs/decisions/0020).

    Its session was there before, the client found its connection dead afterwards (or had asked to
    leave before it read this). No: if something that was answered before on its connection was
    asked after the ack was certain, if the session was alive after that, if it had left for certain
    before the message was sent, or if the broker took an ack of it there.
    """
    session = d["session"]
    begun, over, left = history.session_begin(session), history.session_end(session), history.left(session)
    possible, sent = history.possible(d, options), history.sent(d)
    taken = any(
        (r["f"], r["type"]) == ("ack", "ok") and r.get("session") == session and r["index"] > d["index"]
        for r in rows
    )
    return (
        begun is not None
        and possible is not None
        and possible < settled
        and over is not None
        and (over < d["index"] or left is None)
        and not (left is not None and sent is not None and left < sent)
        and history.proven(session) < settled
        and not (options.broker.refuses_stale_acks and taken)
    )
