"""The second implementation of what is owed in the end.

What releases a message, what gives it back, what it dies of: the definitions as loops. The rows of
one message at a time, and of the whole history only how its sessions, transactions and brokers
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import may_be_delayed, may_have_expired, may_wait
from checkers.reference_attempts import saw_gone
from checkers.reference_subscriptions import is_owed
from checkers.schema import MONITOR
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


# --------------------------------------------------------------------------- what was asked and how
# it ended


@dataclass(slots=True)
class Question:
    """An operation that was asked for, and its completion; None while there is none."""

    asked: Row
    answer: Row | None = None

    @property
    def outcome(self) -> str | None:
        """``ok``, ``fail``, ``info`` or None."""
        return None if self.answer is None else self.answer["type"]

    @property
    def transaction(self) -> int | None:
        """The transaction that it was asked in."""
        return self.asked.get("transaction")


def questions(rows: Iterable[Row], *operations: str) -> list[Question]:
    """Each invocation with the completion by the same process that comes next.

    What was answered ``ok`` was asked, whether or not a row says so.
    """
    found: list[Question] = []
    waiting: dict[tuple[int, str], Question] = {}
    for r in rows:
        if r["f"] not in operations:
            continue
        who = (r["process"], r["f"])
        if r["type"] == "invoke":
            waiting[who] = Question(r)
            found.append(waiting[who])
        elif who in waiting:
            waiting.pop(who).answer = r
        elif r["type"] == "ok":
            found.append(Question(r, r))
    return found


def gone_before(history: History, asked: Row) -> bool:
    """Whether it was asked of a process that was observed gone before.

    The broker process at the other end of its connection: gone after the connection was there, and
    nothing that was answered or given there tells of a later life.
    """
    there = history.beside(asked)
    told = [
        r for r in there if r["type"] == "ok" and r.get("broker") is not None and r["index"] < asked["index"]
    ]
    brokers = {r["broker"] for r in told}
    if len(brokers) != 1:  # nobody knows, or the client has gone from one to another
        return False
    broker = brokers.pop()
    since = told[0]
    for r in history.control:
        if not since["index"] < r["index"] < asked["index"] or not saw_gone(r, broker):
            continue
        if r["process"] == MONITOR and r.get("time_low", since["time"]) < since["time"]:
            continue  # written late, of a process before
        answered = any(s["type"] == "ok" and s["f"] != "deliver" and s["index"] > r["index"] for s in there)
        lived = asked.get("session") is not None and history.proven(asked["session"]) > r["index"]
        if not answered and not lived:
            return True
    return False


# ------------------------------------------------------------------------------- what releases it


def releasing(m: PlainMessage, options: CheckOptions) -> list[Question]:
    """Every ack of it, and every nack where that means the same."""
    return questions(m.rows, *(("ack", "nack") if options.broker.nack == "consume" else ("ack",)))


def may_have_happened(history: History, one: Question) -> bool:
    """Whether an ack or nack may have taken effect; in a transaction by its commit.

    Not if it was answered ``fail``, nor if it was asked of a process that was gone already.
    """
    if one.outcome == "fail" or gone_before(history, one.asked):
        return False
    return one.transaction is None or may_be_committed(history, one.transaction)


def may_be_committed(history: History, transaction: int) -> bool:
    """Whether its commit was asked for and may have happened."""
    if history.ended(transaction, "commit", "fail") is not None:
        return False
    commits = questions(history.transaction_rows(transaction), "commit")
    return any(not gone_before(history, commit.asked) for commit in commits)


def is_released(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """An ack of it happened, or may have."""
    return any(may_have_happened(history, one) for one in releasing(m, options))


# ------------------------------------------------------------------------------ what gives it back


def is_given_back(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Whether its session certainly holds it no more, without having acknowledged it.

    The session is over; or it refused the message for certain, was refused the ack of it, or rolled
    that back.
    """
    session = d.get("session")
    if session is None:
        return False
    if history.over(session) is not None:
        return True
    refusing = options.broker.nack != "consume"
    for one in questions(m.rows, "ack", "nack"):
        if one.asked.get("session") != session or one.asked["index"] <= d["index"]:
            continue
        if one.transaction is None:
            back = "fail" if one.asked["f"] == "ack" else "ok" if refusing else None
            if one.outcome is not None and one.outcome == back:
                return True
        else:
            ways = [("abort", "ok"), ("commit", "fail")]
            if one.asked["f"] == "nack" and refusing:
                ways.append(("commit", "ok"))
            if any(history.ended(one.transaction, f, type_) is not None for f, type_ in ways):
                return True
    return False


# ------------------------------------------------------------------------------------- what is left


def left_over(
    history: History, m: PlainMessage, options: CheckOptions, *, complete: bool
) -> Iterator[Instance]:
    """Lost, stuck or died early: owed, in nobody's hands, and given up neither.

    Nothing may be missed unless all was drained and every store read (``complete``).
    """
    if not m.sends or m.ok is None or not is_owed(history, m) or is_released(history, m, options):
        return
    if not all(is_given_back(history, m, d, options) for d in m.deliveries):
        return
    dead = may_be_dead(history, m, options)
    kind = "after delivery" if m.deliveries else "never delivered"
    if may_have_expired(history, m):
        return
    dead_letters = [r["index"] for r in m.stored if r.get("value") == "dead-letter"]
    others = [r for r in m.stored if r.get("value") != "dead-letter"]
    late = may_be_delayed(history, m) or may_wait(history, m, options)
    if any(r.get("value") == "expired" or not late for r in others):
        if complete:
            yield m.instance("stuck", m.sends[0]["index"], kind)
    elif dead_letters and not dead:
        yield m.instance("died-early", min(dead_letters))
    elif complete and not m.stored and (not dead or options.broker.keeps_dead_letters):
        yield m.instance("lost", m.sends[0]["index"], "refused too often" if dead else kind)


def may_be_dead(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Whether it was refused, or given back, so often that the broker may have given it up."""
    nacks = acks = ended = 0
    for r in m.rows:
        transaction = r.get("transaction")
        nacks += bool((r["f"], r["type"]) == ("nack", "invoke"))
        acks += (
            (r["f"], r["type"]) == ("ack", "invoke")
            and transaction is not None
            and history.ended(transaction, "abort", "invoke") is not None
        )
    if options.broker.nack == "dead-letter" and nacks:
        return True
    if options.broker.attempts == "given back":
        ended = history.holders(m.queue, m.sends[0]["index"])
    return 0 <= options.broker.delivery_attempts <= nacks + acks + ended
