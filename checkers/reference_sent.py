"""The second implementation of the order in which a broker sent deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.schema import OF_SESSIONS, OF_TRANSACTIONS
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History

Row = Mapping[str, Any]


def operation(r: Row) -> tuple[Any, ...]:
    """Return the key that an invocation and its answer share.

    It has the process, and the columns that tell two operations of one process apart.
    """
    key = r["process"], r["f"]
    if r["f"] in OF_SESSIONS:
        return *key, r.get("session")
    if r["f"] in OF_TRANSACTIONS:
        return *key, r.get("transaction")
    return *key, r.get("queue"), r.get("group"), r.get("message")


def certainly_before(history: History, e: Row, d: Row, options: CheckOptions) -> bool:
    """Return whether delivery ``e``, read before ``d``, was certainly sent before ``d``.

    Both are of one session, or ``e`` was read before ``d`` can have been sent.
    """
    possible = history.possible(d, options)
    return bool(e["session"] == d["session"] or (possible is not None and possible > e["index"]))


def may_have_been_under_way(
    history: History, rows: Sequence[Row], d: Row, settled: int, options: CheckOptions
) -> bool:
    """Return whether a delivery may have been under way when its message was settled.

    The broker may have sent it before row ``settled``, since which an ack is certain
    (docs/decisions/0009), and no row refutes that (docs/decisions/0020).

    Its client must have lost the connection later, or have asked to unsubscribe before it read the
    delivery. It was not under way if its session was asked for after that row; if an operation that
    was answered before on its connection was invoked after that row; if the session was proven
    alive after that; if the unsubscribe was answered before the message was sent; or if the broker
    later accepted an ack of the message in this session and refuses stale acks.
    """
    session = d["session"]
    over, unsubscribed = history.session_end(session), history.left_at(session)
    possible, sent = history.possible(d, options), history.sent(d)
    taken = any(
        (r["f"], r["type"]) == ("ack", "ok") and r.get("session") == session and r["index"] > d["index"]
        for r in rows
    )
    return (
        (possible is None or possible < settled)
        and over is not None
        and (over < d["index"] or unsubscribed is None)
        and not (unsubscribed is not None and sent is not None and unsubscribed < sent)
        and history.proven(session) < settled
        and not (options.broker.refuses_stale_acks and taken)
    )
