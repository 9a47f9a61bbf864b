"""The second implementation of the outcomes of the attempts to send a message.

A client may repeat a send under the same id. The fate of the message follows from all attempts:
it is aborted only if every attempt failed or was rolled back, and certain as soon as one attempt
is certain.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.excuses import ends_processes
from checkers.schema import HARNESS, MONITOR, NEMESIS, json_object

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


class Attempt:
    """A single invocation of a send, with its answers and its outcome.

    ``ok`` is the row since which the send certainly happened, ``failed`` says that it certainly did
    not, ``unknown`` that neither is certain. ``asked`` is the invocation; it is None if the answers
    have none in the history.
    """

    def __init__(self, history: History, invocation: Row | None, answers: Sequence[Row]) -> None:
        self.asked = invocation
        self.answers = answers
        self.transaction: int | None = None if invocation is None else invocation.get("transaction")
        oks = [r["index"] for r in answers if r["type"] == "ok"]
        refused = any(r["type"] == "fail" for r in answers)
        self.ok: int | None = None
        self.failed: bool
        if self.transaction is None:
            self.ok = min(oks, default=None)
            self.failed = refused and self.ok is None
        else:
            committed = history.ended(self.transaction, "commit", "ok")
            if committed is not None and not refused:
                if history.atomic:
                    self.ok = committed
                elif oks:  # each send of a batch has its own answer
                    self.ok = max(committed, min(oks))
            self.failed = refused or (self.ok is None and is_rolled_back(history, self.transaction))

    @functools.cached_property
    def options(self) -> list[Row]:
        """The options that an attempt asked for, as JSON objects.

        Its ``ok`` answers come after the invocation: they may say more exactly when the message
        expires.
        """
        rows = [self.asked, *(r for r in self.answers if r["type"] == "ok")]
        values = (json_object(r.get("value")) for r in rows if r is not None)
        return [value for value in values if value is not None]

    @property
    def unknown(self) -> bool:
        """True if the outcome of the send is unknown."""
        return self.ok is None and not self.failed

    @property
    def taker(self) -> str | None:
        """The broker to which an attempt of unknown outcome went, if the client knew it."""
        return next((r.get("broker") for r in self.answers if r["type"] == "info"), None)


def attempts_of(history: History, rows: Sequence[Row]) -> list[Attempt]:
    """Return the attempts among the rows of one message, each with its completion.

    The completion of an attempt is the next answer to a send of the message by the same process.
    If there is only one attempt, every answer belongs to it.
    """
    sends = [r for r in rows if r["f"] == "send"]
    invocations = [r for r in sends if r["type"] == "invoke"]
    if len(invocations) < 2:
        answers = [r for r in sends if r["type"] != "invoke"]
        return [Attempt(history, invocations[0] if invocations else None, answers)] if sends else []
    return [Attempt(history, r, _completion(sends, r)) for r in invocations]


def _completion(sends: Sequence[Row], invocation: Row) -> list[Row]:
    later = (r for r in sends if r["index"] > invocation["index"] and r["process"] == invocation["process"])
    following = next(later, None)
    return [] if following is None or following["type"] == "invoke" else [following]


def is_rolled_back(history: History, transaction: int) -> bool:
    """Return whether no operation of a transaction can have taken effect.

    Its abort was answered ``ok``, or each of its commits failed. Where transactions are batches, a
    failed commit does not tell which sends in it took effect.
    """
    if history.ended(transaction, "abort", "ok") is not None:
        return True
    return history.atomic and each_failed(history, transaction, "commit")


def each_failed(history: History, transaction: int, f: str) -> bool:
    """Return whether each commit or abort (``f``) of a transaction was answered ``fail``.

    After one of unknown outcome, the next one may fail because the first one took effect.
    """
    types = [r["type"] for r in history.transaction_rows(transaction) if r["f"] == f]
    return types.count("fail") >= max(types.count("invoke"), 1)


def is_aborted(m: PlainMessage) -> bool:
    """Return whether every invoked attempt completed ``fail`` or was rolled back with ``ok``."""
    return bool(m.attempts) and all(attempt.failed for attempt in m.attempts)


def is_recovered(m: PlainMessage) -> bool:
    """Return whether a message was delivered although its send was never ``ok``.

    At least one attempt must be of unknown outcome.
    """
    return bool(m.deliveries) and m.ok is None and any(attempt.unknown for attempt in m.attempts)


def shown_though_aborted(m: PlainMessage) -> int | None:
    """Return the first row that shows a message though all attempts until then certainly failed.

    Return None if no row shows the message, or an attempt may have happened before the first one.
    """
    first = min((r["index"] for r in m.shown), default=None)
    if first is None or not m.sends:
        return None
    begun = first_possible(m)
    too_early = begun is not None and m.sends[0]["index"] < first < begun
    return int(first) if is_aborted(m) or too_early else None


def read_before_commit(history: History, m: PlainMessage) -> int | None:
    """Return the row of a message's first delivery if no attempt explains it; else None.

    An attempt in a transaction explains it if its commit was invoked before, an attempt outside of
    transactions if it was invoked before and did not fail.
    """
    if not m.deliveries or all(attempt.transaction is None for attempt in m.attempts):
        return None
    first = int(m.deliveries[0]["index"])
    explained = any(_may_be_read(history, attempt, first) for attempt in m.attempts)
    return None if explained else first


def _may_be_read(history: History, attempt: Attempt, index: int) -> bool:
    if attempt.transaction is not None:
        committing = history.ended(attempt.transaction, "commit", "invoke")
        return committing is not None and committing < index
    return attempt.asked is not None and attempt.asked["index"] < index and not attempt.failed


# -------------------------------------------------------------- when a message may have been stored


def first_possible(m: PlainMessage) -> int | None:
    """Return the invocation of a message's first attempt that did not certainly fail, or None."""
    return min((a.asked["index"] for a in m.attempts if a.asked is not None and not a.failed), default=None)


def stored_from(m: PlainMessage) -> int | None:
    """Return the row since which a message may have been stored; None if it never was.

    If there is one attempt, that is its invocation, whatever its outcome.
    """
    return m.sends[0]["index"] if len(m.sends) == 1 else first_possible(m)


def stored_by(history: History, m: PlainMessage) -> int | None:
    """Return the row by which a message was stored, if it ever was; None if no row tells.

    That is the completion of the first attempt that was ``ok``. If none was, it is the row in which
    the processes that took the attempts of unknown outcome were seen gone.
    """
    return m.ok if m.ok is not None else sealed(history, m)


def over(m: PlainMessage) -> int | None:
    """Return the row after which no attempt can store a message; None if no row tells."""
    if any(attempt.unknown for attempt in m.attempts):
        return None
    return max((attempt.ok for attempt in m.attempts if attempt.ok is not None), default=None)


def stored_before(history: History, message: PlainMessage, other: PlainMessage) -> bool:
    """Return whether one message was certainly stored before the other.

    Then the intervals in which each may have been stored do not overlap.
    """
    by, since = stored_by(history, message), stored_from(other)
    return by is not None and since is not None and by < since


def sealed(history: History, m: PlainMessage) -> int | None:
    """Return the row by which a message of unknown outcome was stored; None if no row tells.

    By that row each process that took an attempt of unknown outcome was seen gone. The result is
    None if such an attempt was part of a transaction, or if a broker of another node first
    delivered the message, which was forwarded then.
    """
    unknown = [attempt for attempt in m.attempts if attempt.unknown]
    if m.ok is not None or not unknown or not m.deliveries:
        return None
    giver = m.deliveries[0].get("broker")
    ends = []
    for attempt in unknown:
        invocation = attempt.asked
        if invocation is None or giver is None or attempt.transaction is not None:
            return None
        takers = takers_of(history, attempt)
        if not takers or not all(of_one_node(history, giver, taker) for taker in takers):
            return None
        for taker in takers:
            later = (r["index"] for r in history.departures(taker) if r["index"] > invocation["index"])
            ends.append(min(later, default=None))
    ends_known = [end for end in ends if end is not None]
    return max(ends_known) if len(ends_known) == len(ends) else None


def takers_of(history: History, attempt: Attempt) -> list[str]:
    """Return the brokers that can have taken an attempt of unknown outcome; empty if not known.

    That is the broker that the answer names, else each broker that may have been live between the
    invocation and the answer. If one of these may have been live twice in that time, it is not
    known which of its processes took the attempt.
    """
    if attempt.taker is not None:
        return [attempt.taker]
    answer = next((r for r in attempt.answers if r["type"] == "info"), None)
    if answer is None or attempt.asked is None:
        return []
    begin, end = attempt.asked["time"], answer["time"]
    takers = []
    roles = [r for r in history.control if r["process"] == MONITOR and r["f"] == "role"]
    reachable = [r for r in roles if r["role"] != "unreachable"]
    for n, r in enumerate(reachable):
        if r["role"] != "live" or r["time_low"] > end:
            continue
        following = next((s for s in reachable[n + 1 :] if s["broker"] == r["broker"]), None)
        if following is None or max(following["time_high"], r["time_low"]) >= begin:
            takers.append(r["broker"])
    return takers if len(takers) == len(set(takers)) else []


def of_one_node(history: History, broker: str, other: str) -> bool:
    """Return whether two brokers are the same or last told the same node ID.

    Then no message has to be forwarded from one to the other.
    """
    return broker == other or node_id_of(history, broker) == node_id_of(history, other) is not None


def node_id_of(history: History, broker: str) -> str | None:
    """Return the node ID that a broker told last."""
    node_ids = [
        r["node_id"]
        for r in history.control
        if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == broker
        if r.get("node_id") is not None
    ]
    return node_ids[-1] if node_ids else None


def saw_gone(r: Row, broker: str | None) -> bool:
    """Return whether a row of monitor, harness or nemesis saw the process of a broker gone."""
    if r["process"] == NEMESIS:
        if r["type"] == "invoke" or not ends_processes(r["f"]):
            return False
        observed = (json_object(r.get("value")) or {}).get("observed")
        return isinstance(observed, dict) and observed.get(broker) == "gone"
    if r.get("broker") != broker:
        return False
    stopped = r["process"] == MONITOR and r["f"] == "role" and r.get("role") == "stopped"
    return stopped or (r["process"] == HARNESS and r["f"] == "restart")
