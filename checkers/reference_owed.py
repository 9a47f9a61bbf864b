"""The second implementation of what is owed in the end.

What releases a message, what gives it back, what it dies of: the definitions as loops. The rows of
one message at a time, and of the whole history only how its sessions, transactions and brokers
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import had_expired, may_be_delayed, may_have_expired, may_wait
from checkers.reference_attempts import of_one_node, saw_gone
from checkers.reference_sent import certainly_before, may_have_been_under_way
from checkers.reference_subscriptions import is_owed
from checkers.reference_waits import NEVER, certainly_taken_back, has_lapsed, is_late
from checkers.schema import MONITOR, TEMPORARY
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


def gone_before(history: History, asked: Row, inside: Row | None = None) -> bool:
    """Return whether something was asked of a process that was observed gone before.

    The broker process at the other end of its connection: gone after the connection was there, and
    nothing that was answered or given there tells of a later life. ``inside`` is an ack or nack in
    the transaction of which an end was asked for.
    """
    if asked["index"] <= history.first_departure:
        return False
    there = [r for r in history.beside(asked) if r["type"] == "ok" and r.get("broker") is not None]
    since = _first_served(history, there, asked, inside)
    if since is None or len({r["broker"] for r in there}) != 1:  # the client has gone to another
        return False
    for r in history.departures(since["broker"]):
        if not since["index"] < r["index"] < asked["index"]:
            continue
        if r["process"] == MONITOR and r.get("time_low", since["time"]) <= since["time"]:
            continue  # written late, of a process before
        answered = any(s["f"] != "deliver" and s["index"] > r["index"] for s in there)
        lived = asked.get("session") is not None and history.proven(asked["session"]) > r["index"]
        if not answered and not lived:
            return True
    return False


def _first_served(history: History, there: Sequence[Row], asked: Row, inside: Row | None) -> Row | None:
    """Return the row by which a connection was there, and who was at its other end.

    The latest answer to a ``subscribe``, ``connect`` or ``begin``; else the latest delivery, to the
    same session, of what an ack or nack is about.
    """
    before = [r for r in there if r["index"] < asked["index"]]
    greeting = [r for r in before if r["f"] in ("subscribe", "connect", "begin")]
    if greeting:
        return greeting[-1]
    ack = asked if inside is None else inside
    rows = history.messages.get((ack.get("queue"), ack.get("group"), ack.get("message")), ())
    given = _given(rows, ack) if ack.get("session") is not None else None
    return given if given is not None and given.get("broker") is not None else None


# ------------------------------------------------------------------------------- what releases it


def releasing(m: PlainMessage, options: CheckOptions) -> list[Question]:
    """Every ack of it, and every nack where that means the same."""
    return questions(m.rows, *(("ack", "nack") if options.broker.nack == "consume" else ("ack",)))


def may_have_happened(history: History, one: Question) -> bool:
    """Whether an ack or nack may have taken effect; in a transaction by its commit.

    Not if it was answered ``fail``, nor if it was asked of a process that was gone already.
    """
    if not may_have_arrived(history, one):
        return False
    return one.transaction is None or may_be_committed(history, one.transaction, one.asked)


def may_have_arrived(history: History, one: Question, inside: Row | None = None) -> bool:
    """Return whether a broker may have done what it was asked for."""
    return one.outcome != "fail" and not gone_before(history, one.asked, inside)


def may_be_committed(history: History, transaction: int, inside: Row) -> bool:
    """Return whether the commit of what was asked for in a transaction may have happened."""
    if history.ended(transaction, "commit", "fail") is not None:
        return False
    commits = questions(history.transaction_rows(transaction), "commit")
    return any(not gone_before(history, commit.asked, inside) for commit in commits)


def happened(history: History, m: PlainMessage, one: Question, options: CheckOptions) -> bool:
    """Whether an ack or nack certainly took effect; in a transaction by its commit.

    Not for certain if the broker may have taken the message back before.
    """
    ack = one.answer or one.asked
    if one.asked.get("session") is not None and is_late(history, m.rows, ack, options, alone=True):
        return False
    committed = one.transaction is None or history.ended(one.transaction, "commit", "ok") is not None
    return one.outcome == "ok" and committed


def may_be_released(history: History, m: PlainMessage, options: CheckOptions) -> list[Question]:
    """Each ack of it that happened, or may have."""
    return [one for one in releasing(m, options) if may_have_happened(history, one)]


# ------------------------------------------------------------------------------ what gives it back


def is_given_back(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Whether its session certainly holds it no more, without having acknowledged it.

    It gave the message back; or the broker took that back because its ack was late: that the drain
    may still see it again it must have done so before that began. The end of a session of a
    temporary queue gives nothing back: it is the end of the queue, too.
    """
    if d.get("session") is None:
        return False
    drain = next((r["time"] for r in history.control if r.get("value") == "drain"), -NEVER)
    over = history.over(d["session"]) is not None and not is_temporary(m)
    if over or certainly_taken_back(m.rows, d, drain, options):
        return True
    nacks = options.broker.nack != "consume"
    mine = (one for one in questions(m.rows, "ack", "nack") if one.asked.get("session") == d["session"])
    return any(one.asked["index"] > d["index"] and gave_back(history, one, nacks=nacks) for one in mine)


def gave_back(history: History, one: Question, *, nacks: bool) -> bool:
    """Return whether an ack or nack certainly left its message without a holder.

    The ack failed, or its transaction did; or, where ``nacks`` give back, the nack happened.
    """
    refusing = one.asked["f"] == "nack"
    if one.transaction is None:
        return one.outcome == ("ok" if refusing else "fail") and (nacks or not refusing)
    ends = [("abort", "ok"), ("commit", "fail"), *([("commit", "ok")] if refusing and nacks else [])]
    return any(history.ended(one.transaction, f, type_) is not None for f, type_ in ends)


def did_not_count(history: History, m: PlainMessage, e: Row, d: Row, options: CheckOptions) -> bool:
    """Whether a delivery is counted no higher than one that was given back before it was sent.

    By one process of a broker: another may count from the beginning.
    """
    one, other = e.get("delivery_count"), d.get("delivery_count")
    if one is None or other is None or other > one or not certainly_before(history, e, d, options):
        return False
    if not any(index < d["index"] for index in _certainly_giving_back(history, m, e, options)):
        return False
    if e["session"] == d["session"]:
        return True
    broker = e.get("broker")
    return broker == d.get("broker") and (broker is None or not lived_anew(history, broker, e["index"], d))


def _certainly_giving_back(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> Iterator[int]:
    """Return the rows with which a session certainly gave back what it got, which must be counted.

    The session is over; an ack of it was refused, or rolled back for certain; or it was refused for
    certain, where the broker promises to give refused messages again. A commit that was refused
    says nothing: its transaction may still be there, with all that it took.
    """
    over = history.over(d["session"])
    if over is not None:
        yield over
    for one in _answered(m.rows, "ack", "fail"):
        given = _given(m.rows, one.asked)
        if given is not None and given["index"] == d["index"]:
            yield one.asked["index"]
    refusals = [*certain_roll_backs(history, m.rows)]
    if options.broker.nack == "requeue":
        refusals += certain_nacks(history, m.rows)
    for refusal in refusals:
        if refusal.given is not None and refusal.given["index"] == d["index"]:
            yield refusal.asked["index"]


# --------------------------------------------------------------------------------- what it dies of


def possible_attempts(history: History, m: PlainMessage, options: CheckOptions) -> int:
    """How often at most it was refused; or given back by whatever, where that counts.

    Every refusal that may have happened: asked and not answered ``fail``, nor asked of a process
    that was gone already. So a roll-back of its ack, which a commit that failed may have been.
    """
    refused = [one for one in questions(m.rows, "nack") if may_have_arrived(history, one)]
    undone = [
        one
        for one in questions(m.rows, "ack")
        if one.transaction is not None and may_have_arrived(history, one)
        if history.ended(one.transaction, "commit", "fail") is not None
        or any(may_have_arrived(history, abort, one.asked) for abort in aborts(history, one.transaction))
    ]
    if options.broker.attempts != "given back":
        return len(refused) + len(undone)
    kept = [d for d in m.deliveries if d.get("session") is None]
    still = {d["session"] for d in m.deliveries if d.get("session") is not None}
    open_ = [session for session in still if history.session_end(session) is None]
    ended = history.holders(m.queue, m.sends[0]["index"])
    last = history.rows[-1]
    late = [
        d
        for d in m.deliveries
        if d.get("session") is not None and has_lapsed(history, m.rows, d, last, options, alone=True)
    ]
    return len(refused) + len(undone) + ended + len(open_) + len(kept) + len(late)


def aborts(history: History, transaction: int) -> list[Question]:
    """Every time that it was asked to be rolled back."""
    return questions(history.transaction_rows(transaction), "abort")


def may_be_dead(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Whether it was refused, or given back, so often that the broker may have given it up."""
    nacks = questions(m.rows, "nack")
    if options.broker.nack == "dead-letter" and any(may_have_arrived(history, one) for one in nacks):
        return True
    return 0 <= options.broker.delivery_attempts <= possible_attempts(history, m, options)


def may_have_died_unread(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether a message may have died before its first delivery was read.

    Where whatever is given back counts: the session that read it was given it in its turn, and gave
    it back when it ended, or when its time was up. Not if an ack or nack of it was answered ``ok``,
    unless it may have been a stale one.
    """
    promised = options.broker
    if promised.attempts != "given back" or promised.delivery_attempts < 0:
        return False
    if not m.sends or not m.deliveries:
        return False
    read, sent = m.deliveries[0], m.sends[0]
    lapsed = sum(r["f"] == "timeout" for r in m.rows)
    if promised.ack_wait_s is not None:
        wait_ns = max(int(promised.ack_wait_s * 1e9), 1)
        lapsed += max(read["time"] - sent["time"], 0) // wait_ns
    answered = any(r["f"] in ("ack", "nack") and r["type"] == "ok" for r in m.rows)
    if answered and (promised.refuses_stale_acks or not lapsed):
        return False
    session = read.get("session")
    if not lapsed and (session is None or history.session_end(session) is None):
        return False
    return history.holders(m.queue, sent["index"]) + int(lapsed) >= promised.delivery_attempts


@dataclass(frozen=True, slots=True)
class Refusal:
    """One that certainly happened: which delivery it gave back.

    ``asked`` is the row that asked for it, or for the end of its transaction, ``answered`` the one
    that was the answer.
    """

    given: Row | None
    asked: Row
    answered: Row


def certain_refusals(history: History, rows: Sequence[Row], options: CheckOptions) -> Iterator[Refusal]:
    """Return the nacks of a message that were answered ``ok``, and such roll-backs of its acks.

    Where a nack alone is a dead letter's making, or none, roll-backs do not count.
    """
    yield from certain_nacks(history, rows)
    if options.broker.nack == "requeue":
        yield from certain_roll_backs(history, rows)


def certain_nacks(history: History, rows: Sequence[Row]) -> Iterator[Refusal]:
    """Return the nacks of a message that were answered ``ok``; in a transaction its commit was."""
    for one in _answered(rows, "nack", "ok"):
        if one.transaction is None:
            yield Refusal(_given(rows, one.asked), one.asked, one.answer or one.asked)
        else:
            yield from _ended(rows, one, questions(history.transaction_rows(one.transaction), "commit"))


def certain_roll_backs(history: History, rows: Sequence[Row]) -> Iterator[Refusal]:
    """Return the acks of a message of which the roll-back was answered ``ok``."""
    for one in _answered(rows, "ack", "ok"):
        if one.transaction is not None:
            yield from _ended(rows, one, aborts(history, one.transaction))


def _answered(rows: Sequence[Row], operation: str, outcome: str) -> Iterator[Question]:
    """Return the acks or nacks of sessions that were answered so."""
    for one in questions(rows, operation):
        if one.outcome == outcome and one.asked.get("session") is not None:
            yield one


def _ended(rows: Sequence[Row], one: Question, ends: Sequence[Question]) -> Iterator[Refusal]:
    """Return what was done by the end of a transaction, which comes after all that is in it."""
    end = next((end for end in ends if end.outcome == "ok"), None)
    if end is None or end.answer is None or one.answer is None:
        return
    if end.answer["index"] > one.answer["index"]:
        asked = max(one.asked, end.asked, key=lambda r: int(r["index"]))
        yield Refusal(_given(rows, one.asked), asked, end.answer)


def _given(rows: Sequence[Row], asked: Row) -> Row | None:
    """The delivery that was answered so: the latest in that session."""
    mine = [r for r in rows if (r["f"], r["type"]) == ("deliver", "ok") and r["index"] < asked["index"]]
    return next((r for r in reversed(mine) if r.get("session") == asked["session"]), None)


def refused_too_often(history: History, rows: Sequence[Row], d: Row, options: CheckOptions) -> bool:
    """Whether it was certainly refused as often as may be before that delivery of it was sent.

    One delivery is refused once, however often that was answered.
    """
    limit = options.broker.dies_after
    if limit < 0:
        return False
    before = [
        one
        for one in certain_refusals(history, rows, options)
        if one.asked["index"] < d["index"]
        and still_counted(history, one, d, options)
        and came_before(history, rows, one, d, options)
    ]
    refused = {one.asked["index"] if one.given is None else one.given["index"] for one in before}
    return len(refused) >= max(limit, 1)


def came_before(history: History, rows: Sequence[Row], one: Refusal, d: Row, options: CheckOptions) -> bool:
    """Whether a refusal took effect before a delivery was sent that was read after it was asked.

    Where only one session can have a message, and only that can refuse it, nothing was sent from
    the delivery that was refused to the refusal: what was sent after the one was sent after the
    other, whether it was read before or after the answer. Elsewhere the answer counts.
    """
    promised = options.broker
    timed = promised.ack_wait_s is not None or any(r["f"] == "timeout" for r in rows)
    if one.given is not None and promised.single and promised.refuses_stale_acks and not timed:
        given = one.given
        mine = [r for r in rows if (r["f"], r["type"]) == ("deliver", "ok") and r["index"] <= d["index"]]
        return any(
            certainly_before(history, given, e, options)
            or not may_have_been_under_way(history, rows, e, given["index"], options)
            for e in mine
            if e.get("session") == d["session"] and e["index"] > given["index"]
        )
    at = one.answered["index"]
    return bool(at < d["index"]) and not may_have_been_under_way(history, rows, d, at, options)


def still_counted(history: History, one: Refusal, d: Row, options: CheckOptions) -> bool:
    """Whether the broker that sent that delivery certainly knew of a refusal.

    Where counts last, a broker of the same node does. Else the process that took it: in one
    session, or that broker if no row tells of another life of it in between.
    """
    taker, giver = one.answered.get("broker"), d.get("broker")
    if options.broker.durable_counts:
        return taker == giver or (
            taker is not None and giver is not None and of_one_node(history, taker, giver)
        )
    if one.given is not None and one.given.get("session") == d["session"]:
        return True
    return taker == giver and (taker is None or not lived_anew(history, taker, one.asked["index"], d))


def lived_anew(history: History, broker: str, since: int, until: Row) -> bool:
    """Whether some row tells that the process of a broker may have been another meanwhile."""
    for r in history.control:
        if r["index"] <= since:
            continue
        if r["index"] < until["index"] and saw_gone(r, broker):
            return True
        changed = r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == broker
        if changed and r.get("time_low", r["time"]) <= until["time"]:
            return True
    return False


# ------------------------------------------------------------------------------------- what is left


def left_over(
    history: History, m: PlainMessage, options: CheckOptions, *, complete: bool
) -> Iterator[Instance]:
    """Lost, stuck or died early: owed, in nobody's hands, and given up neither.

    What lies among the dead letters is in nobody's hands, and died early whatever became of its
    last ack, if that was not answered. Nothing may be missed unless all was drained; lost, or stuck
    on its way to another broker, unless every store was read (``complete``). Nor may in a temporary
    queue what was still to come when that ended. What may have expired need not be anywhere, unless
    a store keeps what expires: what certainly had expired before the drain must be there then.
    """
    if not m.sends or m.ok is None or not is_owed(history, m):
        return
    expiring = may_have_expired(history, m)
    if expiring and not (options.broker.keeps_expired and had_expired(history, m)):
        return
    releases = may_be_released(history, m, options)
    if any(happened(history, m, one, options) for one in releases):
        return
    ended = history.reached_the_end() and sent_before_the_reading(history, m.ok)
    missing = ended and not releases and all(is_given_back(history, m, d, options) for d in m.deliveries)
    dead = may_be_dead(history, m, options)
    kind = "after delivery" if m.deliveries else "never delivered"
    dead_letters = [r["index"] for r in m.stored if r.get("value") == "dead-letter"]
    others = [r for r in m.stored if r.get("value") != "dead-letter"]
    late = may_be_delayed(history, m) or may_wait(history, m, options)
    nowhere = (
        missing
        and complete
        and not m.stored
        and not (late and is_temporary(m))
        and (not dead or options.broker.keeps_dead_letters)
    )
    if expiring:
        if nowhere:
            yield m.instance("lost", m.sends[0]["index"], "expired")
    elif any(r.get("value") == "expired" or not late for r in others):
        on_its_way = all(r.get("value") == "store-and-forward" for r in others)
        if missing and (complete or not on_its_way):
            yield m.instance("stuck", m.sends[0]["index"], kind)
        elif ended and not late and wrong_either_way(history, m, releases, options):
            yield m.instance("stuck", m.sends[0]["index"], "either way")
    elif dead_letters and not dead:
        yield m.instance("died-early", min(dead_letters))
    elif nowhere:
        yield m.instance("lost", m.sends[0]["index"], "refused too often" if dead else kind)


def is_temporary(m: PlainMessage) -> bool:
    """Whether its queue ends with a connection."""
    return (m.queue or "").startswith(TEMPORARY)


def sent_before_the_reading(history: History, ok: int) -> bool:
    """Whether what was certainly sent at that row was there when the stores were read."""
    phases = (r for r in history.control if r["f"] == "phase")
    return next((r["index"] > ok for r in phases if r.get("value") == "browse"), False)


def wrong_either_way(
    history: History, m: PlainMessage, releases: Sequence[Question], options: CheckOptions
) -> bool:
    """Whether the store that has it is wrong, whatever became of its acks of unknown outcome.

    Nobody held it for a full quiet period before the reading: whoever had got it, or acknowledged
    it, was over when the drain began. If an ack was processed it is resurrected, if none was it is
    stuck.
    """
    drain = next((r["index"] for r in history.control if r.get("value") == "drain"), None)
    browse = next((r["index"] for r in history.control if r.get("value") == "browse"), None)
    if not releases or drain is None or browse is None or not options.broker.durable_acks:
        return False
    for one in releases:
        if not over_before(history, one.asked.get("session"), drain, cut=one.transaction is not None):
            return False
    if not all(over_before(history, d.get("session"), drain) for d in m.deliveries):
        return False
    return any(
        r.get("value") == "main" and r["index"] > browse and serves(history, r.get("broker"), r["index"])
        for r in m.stored
    )


def over_before(history: History, session: int | None, index: int, *, cut: bool = False) -> bool:
    """Whether a session was over before that row; with its connection, if ``cut``.

    A transaction ends with its connection only.
    """
    if session is None:
        return False
    if cut:
        return any(r["f"] == "disconnect" and r["index"] < index for r in history.of_session(session))
    over = history.over(session)
    return over is not None and over < index


def serves(history: History, broker: str | None, index: int) -> bool:
    """Whether a broker was live when its stores were read, for all that its roles tell."""
    told = [
        r["role"]
        for r in history.control
        if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == broker
        if r["index"] < index
    ]
    return not told or told[-1] == "live"
