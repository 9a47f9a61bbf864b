"""The second implementation of the messages that are owed at the end of a test.

The definitions as loops: when an ack releases a message, when a message is given back, and when it
becomes a dead letter. They read the rows of one message at a time, and of the whole history only
how its sessions, transactions and brokers ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import had_expired, may_be_delayed, may_have_expired, may_wait
from checkers.reference_attempts import each_failed, of_one_node, saw_gone
from checkers.reference_sent import certainly_before, may_have_been_under_way
from checkers.reference_subscriptions import is_owed
from checkers.reference_waits import NEVER, certainly_taken_back, has_lapsed, is_late
from checkers.schema import MONITOR, NEMESIS, TEMPORARY, json_object
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


# ------------------------------------------------------------------- invocations and their outcomes


@dataclass(slots=True)
class Question:
    """An invocation of an operation, and its completion, or None if there is none."""

    asked: Row
    answer: Row | None = None

    @property
    def outcome(self) -> str | None:
        """The type of the completion: ``ok``, ``fail``, ``info``, or None if there is none."""
        return None if self.answer is None else self.answer["type"]

    @property
    def transaction(self) -> int | None:
        """The transaction in which the operation was invoked, or None."""
        return self.asked.get("transaction")


def questions(rows: Iterable[Row], *operations: str) -> list[Question]:
    """Return each invocation of some operations, with the next completion by the same process.

    An ``ok`` without an invocation in the rows counts as an invocation that was answered ``ok``.
    """
    result: list[Question] = []
    waiting: dict[tuple[int, str], Question] = {}
    for r in rows:
        if r["f"] not in operations:
            continue
        key = (r["process"], r["f"])
        if r["type"] == "invoke":
            waiting[key] = Question(r)
            result.append(waiting[key])
        elif key in waiting:
            waiting.pop(key).answer = r
        elif r["type"] == "ok":
            result.append(Question(r, r))
    return result


def gone_before(history: History, invocation: Row, inside: Row | None = None) -> bool:
    """Return whether the broker process at the other end of a connection was gone by a question.

    The process must have been seen gone after the connection was made and before ``invocation``. No
    later answer or delivery there may prove that the broker was alive again; an answer proves that
    even if it names no broker. If ``invocation`` ends a transaction, ``inside`` is an ack or nack
    in that transaction.
    """
    if not history.departed_meanwhile(invocation):
        return False
    answers = [r for r in history.rows_around(invocation) if r["type"] == "ok"]
    with_broker = [r for r in answers if r.get("broker") is not None]
    since = _first_served(history, with_broker, invocation, inside)
    if since is None or len({r["broker"] for r in with_broker}) != 1:  # the client changed its broker
        return False
    for r in history.departures(since["broker"]):
        if not since["index"] < r["index"] < invocation["index"]:
            continue
        if r["process"] == MONITOR and r.get("time_low", since["time"]) <= since["time"]:
            continue  # a row that was written late, about an earlier process
        answered = any(s["f"] != "deliver" and s["index"] > r["index"] for s in answers)
        lived = invocation.get("session") is not None and history.proven(invocation["session"]) > r["index"]
        if not answered and not lived:
            return True
    return False


def _first_served(
    history: History, with_broker: Sequence[Row], invocation: Row, inside: Row | None
) -> Row | None:
    """Return the row that proves that a connection existed before a question, and to which broker.

    That is the latest answer to a ``subscribe``, ``connect`` or ``begin``. If there is none, it is
    the latest delivery, to the same session, of the message that the ack or nack is about.
    """
    before = [r for r in with_broker if r["index"] < invocation["index"]]
    greeting = [r for r in before if r["f"] in ("subscribe", "connect", "begin")]
    if greeting:
        return greeting[-1]
    ack = invocation if inside is None else inside
    rows = history.messages.get((ack.get("queue"), ack.get("group"), ack.get("message")), ())
    delivery = _delivery_of(rows, ack) if ack.get("session") is not None else None
    return delivery if delivery is not None and delivery.get("broker") is not None else None


# --------------------------------------------------------------------------------------------- acks


def releasing(m: PlainMessage, options: CheckOptions) -> list[Question]:
    """Return every ack of a message, and every nack where a nack consumes the message."""
    return questions(m.rows, *(("ack", "nack") if options.broker.nack == "consume" else ("ack",)))


def may_have_happened(history: History, question: Question) -> bool:
    """Return whether an ack or nack may have taken effect; in a transaction, with its commit.

    It did not if it was answered ``fail``, or if the broker process was gone when it was invoked.
    """
    if not may_have_arrived(history, question):
        return False
    return question.transaction is None or may_be_committed(history, question.transaction, question.asked)


def may_have_arrived(history: History, question: Question, inside: Row | None = None) -> bool:
    """Return whether a broker may have processed an operation."""
    return question.outcome != "fail" and not gone_before(history, question.asked, inside)


def may_be_committed(history: History, transaction: int, inside: Row) -> bool:
    """Return whether the commit of a transaction may have happened.

    ``inside`` is an ack or nack in the transaction.
    """
    if each_failed(history, transaction, "commit"):
        return False
    commits = questions(history.transaction_rows(transaction), "commit")
    return any(not gone_before(history, commit.asked, inside) for commit in commits)


def happened(history: History, m: PlainMessage, question: Question, options: CheckOptions) -> bool:
    """Return whether an ack or nack certainly took effect; in a transaction, with its commit.

    That is not certain if the broker may have taken the message back before.
    """
    ack = question.answer or question.asked
    if question.asked.get("session") is not None and is_late(
        history, m.rows, ack, options, own_rows_only=True
    ):
        return False
    committed = (
        question.transaction is None or history.ended(question.transaction, "commit", "ok") is not None
    )
    return question.outcome == "ok" and committed


def may_be_released(history: History, m: PlainMessage, options: CheckOptions) -> list[Question]:
    """Return each ack (or consuming nack) of a message that happened or may have happened."""
    return [question for question in releasing(m, options) if may_have_happened(history, question)]


# ------------------------------------------------------------------------------ messages given back


def is_given_back(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Return whether a session certainly no longer holds a delivery that it did not acknowledge.

    The session ended or gave the message back; or the broker took the message back because its ack
    was late. The broker must have done so before the drain began, so that the drain may see the
    message again. The end of a session of a temporary queue gives nothing back, because the queue
    ends, too.
    """
    if d.get("session") is None:
        return False
    drain = next((r["time"] for r in history.control if r.get("value") == "drain"), -NEVER)
    over = history.over(d["session"]) is not None and not is_temporary(m)
    if over or certainly_taken_back(m.rows, d, drain, options):
        return True
    nacks = options.broker.nack != "consume"
    in_session = (
        question
        for question in questions(m.rows, "ack", "nack")
        if question.asked.get("session") == d["session"]
    )
    return any(
        question.asked["index"] > d["index"] and gave_back(history, question, nacks=nacks)
        for question in in_session
    )


def gave_back(history: History, question: Question, *, nacks: bool) -> bool:
    """Return whether an ack or nack certainly gave its message back.

    The ack failed; or the transaction of the ack or nack was rolled back, or its commit failed; or
    the nack took effect, and ``nacks`` says that a nack gives its message back.
    """
    refusing = question.asked["f"] == "nack"
    if question.transaction is None:
        return question.outcome == ("ok" if refusing else "fail") and (nacks or not refusing)
    ends = [("abort", "ok"), ("commit", "fail"), *([("commit", "ok")] if refusing and nacks else [])]
    return any(history.ended(question.transaction, f, type_) is not None for f, type_ in ends)


def did_not_count(history: History, m: PlainMessage, e: Row, d: Row, options: CheckOptions) -> bool:
    """Return whether delivery ``d`` should have a higher count than ``e``, and has not.

    ``e`` was certainly sent before ``d`` and certainly given back before ``d`` was read. One
    process of a broker must have sent both, because another process may count from the beginning.
    """
    earlier_count, other = e.get("delivery_count"), d.get("delivery_count")
    if (
        earlier_count is None
        or other is None
        or other > earlier_count
        or not certainly_before(history, e, d, options)
    ):
        return False
    if not any(index < d["index"] for index in _certainly_giving_back(history, m, e, options)):
        return False
    if e["session"] == d["session"]:
        return True
    broker = e.get("broker")
    return broker == d.get("broker") and not lived_anew(history, broker, e["index"], d)


def _certainly_giving_back(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> Iterator[int]:
    """Yield the rows with which a session certainly gave delivery ``d`` back.

    A broker that counts what is given back must count these. The session is over; an ack of the
    delivery failed or was certainly rolled back; or the delivery was certainly refused, where the
    broker promises to deliver refused messages again. A commit that failed proves nothing: its
    transaction may still be open and hold the messages.
    """
    over = history.over(d["session"])
    if over is not None:
        yield over
    for question in _answered(m.rows, "ack", "fail"):
        delivery = _delivery_of(m.rows, question.asked)
        if delivery is not None and delivery["index"] == d["index"]:
            yield question.asked["index"]
    refusals = [*certain_roll_backs(history, m.rows)]
    if options.broker.nack == "requeue":
        refusals += certain_nacks(history, m.rows)
    for refusal in refusals:
        if refusal.given is not None and refusal.given["index"] == d["index"]:
            yield refusal.asked["index"]


# ------------------------------------------------------------------------------------- dead letters


def possible_attempts(history: History, m: PlainMessage, options: CheckOptions) -> int:
    """Return how often at most a message was refused, or given back where the broker counts that.

    Every nack counts that was not answered ``fail`` and whose broker process was not gone. So does
    every ack that may have been rolled back, by an abort or by a commit that failed. Where the
    broker counts whatever is given back, each session that may have held the message counts, and
    each time that a delivery may have timed out.
    """
    refused = [question for question in questions(m.rows, "nack") if may_have_arrived(history, question)]
    undone = [
        question
        for question in questions(m.rows, "ack")
        if question.transaction is not None and may_have_arrived(history, question)
        if history.ended(question.transaction, "commit", "fail") is not None
        or (
            not each_failed(history, question.transaction, "abort")
            and any(
                may_have_arrived(history, abort, question.asked)
                for abort in aborts(history, question.transaction)
            )
        )
    ]
    if options.broker.attempts != "given back":
        return len(refused) + len(undone)
    without_session = [d for d in m.deliveries if d.get("session") is None]
    still = {d["session"] for d in m.deliveries if d.get("session") is not None}
    open_ = [session for session in still if history.session_end(session) is None]
    ended = history.holders(m.queue, m.sends[0]["index"])
    last = history.rows[-1]
    late = [
        d
        for d in m.deliveries
        if d.get("session") is not None and has_lapsed(history, m.rows, d, last, options, own_rows_only=True)
    ]
    return len(refused) + len(undone) + ended + len(open_) + len(without_session) + len(late)


def aborts(history: History, transaction: int) -> list[Question]:
    """Return every abort of a transaction."""
    return questions(history.transaction_rows(transaction), "abort")


def may_be_dead(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether a message may be a dead letter.

    It may have been refused, or given back, as often as the broker allows.
    """
    nacks = questions(m.rows, "nack")
    if options.broker.nack == "dead-letter" and any(
        may_have_arrived(history, question) for question in nacks
    ):
        return True
    return 0 <= options.broker.delivery_attempts <= possible_attempts(history, m, options)


def may_have_died_unread(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether a message may have died before its first delivery was read.

    That is possible only where the broker counts whatever is given back: sessions may have got the
    message in its turn and given it back when they ended or timed out, before it was read. It is
    not possible if an ack or nack of the message was answered ``ok``, unless that may have been a
    stale one.
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
    """A refusal that certainly happened.

    ``given`` is the delivery that it gave back, None if that is not in the rows. ``asked`` is the
    invocation of the refusal or of the end of its transaction, whichever came later, ``answered``
    the answer to it.
    """

    given: Row | None
    asked: Row
    answered: Row


def certain_refusals(history: History, rows: Sequence[Row], options: CheckOptions) -> Iterator[Refusal]:
    """Yield the certain nacks of a message, and the certain roll-backs of its acks.

    Certain means answered ``ok``. Roll-backs count only where a nack requeues the message.
    """
    yield from certain_nacks(history, rows)
    if options.broker.nack == "requeue":
        yield from certain_roll_backs(history, rows)


def certain_nacks(history: History, rows: Sequence[Row]) -> Iterator[Refusal]:
    """Yield the nacks of a message that were answered ``ok``.

    Of a nack in a transaction the commit must have been answered ``ok``, too.
    """
    for question in _answered(rows, "nack", "ok"):
        if question.transaction is None:
            yield Refusal(
                _delivery_of(rows, question.asked), question.asked, question.answer or question.asked
            )
        else:
            yield from _ended(
                rows, question, questions(history.transaction_rows(question.transaction), "commit")
            )


def certain_roll_backs(history: History, rows: Sequence[Row]) -> Iterator[Refusal]:
    """Yield the acks of a message whose roll-back was answered ``ok``."""
    for question in _answered(rows, "ack", "ok"):
        if question.transaction is not None:
            yield from _ended(rows, question, aborts(history, question.transaction))


def _answered(rows: Sequence[Row], operation: str, outcome: str) -> Iterator[Question]:
    """Yield the acks or nacks of sessions with a certain outcome, ``ok`` or ``fail``."""
    for question in questions(rows, operation):
        if question.outcome == outcome and question.asked.get("session") is not None:
            yield question


def _ended(rows: Sequence[Row], question: Question, ends: Sequence[Question]) -> Iterator[Refusal]:
    """Yield the refusal that an ended transaction makes of an ack or nack in it.

    The end must have been answered ``ok``, and after the ack or nack was.
    """
    end = next((end for end in ends if end.outcome == "ok"), None)
    if end is None or end.answer is None or question.answer is None:
        return
    if end.answer["index"] > question.answer["index"]:
        latest = max(question.asked, end.asked, key=lambda r: int(r["index"]))
        yield Refusal(_delivery_of(rows, question.asked), latest, end.answer)


def _delivery_of(rows: Sequence[Row], invocation: Row) -> Row | None:
    """Return the delivery that an ack or nack is about: the latest before it in its session."""
    before = [
        r for r in rows if (r["f"], r["type"]) == ("deliver", "ok") and r["index"] < invocation["index"]
    ]
    return next((r for r in reversed(before) if r.get("session") == invocation["session"]), None)


def refused_too_often(history: History, rows: Sequence[Row], d: Row, options: CheckOptions) -> bool:
    """Return whether a message was certainly refused too often before delivery ``d`` was sent.

    A delivery is refused only once, however often a refusal of it was answered.
    """
    limit = options.broker.dies_after
    if limit < 0:
        return False
    before = [
        refusal
        for refusal in certain_refusals(history, rows, options)
        if refusal.asked["index"] < d["index"]
        and still_counted(history, refusal, d, options)
        and came_before(history, rows, refusal, d, options)
    ]
    refused = {
        refusal.asked["index"] if refusal.given is None else refusal.given["index"] for refusal in before
    }
    return len(refused) >= max(limit, 1)


def came_before(
    history: History, rows: Sequence[Row], refusal: Refusal, d: Row, options: CheckOptions
) -> bool:
    """Return whether a refusal took effect before ``d`` was sent.

    ``d`` was read after the invocation of the refusal.

    Where only one session can have a message, and only that session can refuse it, the broker sent
    no delivery between the one that was refused and the refusal. A delivery that was sent after the
    refused one was sent after the refusal, too, whether it was read before or after the answer.
    Elsewhere ``d`` must have been sent after the answer.
    """
    promised = options.broker
    timed = promised.ack_wait_s is not None or any(r["f"] == "timeout" for r in rows)
    if refusal.given is not None and promised.single and promised.refuses_stale_acks and not timed:
        refused = refusal.given
        earlier = [r for r in rows if (r["f"], r["type"]) == ("deliver", "ok") and r["index"] <= d["index"]]
        return any(
            certainly_before(history, refused, e, options)
            or not may_have_been_under_way(history, rows, e, refused["index"], options)
            for e in earlier
            if e.get("session") == d["session"] and e["index"] > refused["index"]
        )
    at = refusal.answered["index"]
    return bool(at < d["index"]) and not may_have_been_under_way(history, rows, d, at, options)


def still_counted(history: History, refusal: Refusal, d: Row, options: CheckOptions) -> bool:
    """Return whether the broker that sent delivery ``d`` certainly knew of a refusal.

    Where counts outlive a process (``durable_counts``), every broker of the same node knows of it.
    Elsewhere only the process that took the refusal does: it sent the delivery if both are in one
    session, or if both are of one broker and no row tells of another life of it in between.
    """
    taker, giver = refusal.answered.get("broker"), d.get("broker")
    if options.broker.durable_counts:
        return taker == giver or (
            taker is not None and giver is not None and of_one_node(history, taker, giver)
        )
    if refusal.given is not None and refusal.given.get("session") == d["session"]:
        return True
    return taker == giver and not lived_anew(history, taker, refusal.asked["index"], d)


def lived_anew(history: History, broker: str | None, since: int, until: Row) -> bool:
    """Return whether a row tells that a broker may have been another process by row ``until``.

    Rows up to ``since`` do not count. A broker that the rows do not name may be any: then each row
    counts that tells of the role or the death of one.
    """
    if broker is None:
        return any(tells_of_a_life(r) for r in history.control)
    for r in history.control:
        if r["index"] <= since:
            continue
        if r["index"] < until["index"] and saw_gone(r, broker):
            return True
        changed = r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == broker
        if changed and r.get("time_low", r["time"]) <= until["time"]:
            return True
    return False


def tells_of_a_life(r: Row) -> bool:
    """Return whether a row tells the role of a broker, or that a broker's process was gone."""
    observed = (json_object(r.get("value")) or {}).get("observed") if r["process"] == NEMESIS else None
    named = observed if isinstance(observed, dict) else [r.get("broker")]
    has_role = r["process"] == MONITOR and r["f"] == "role"
    return any(name is not None and (has_role or saw_gone(r, name)) for name in named)


# ------------------------------------------------------------------------- messages left at the end


def left_over(
    history: History, m: PlainMessage, options: CheckOptions, *, complete: bool
) -> Iterator[Instance]:
    """Find whether a message is lost, stuck or died early.

    The message is owed, no session holds it, and it was not refused too often. A message among the
    dead letters is held by no session, and died early even if its last ack was not answered.
    A message is missed only if everything was drained; it is lost, or stuck on
    its way to another broker, only if every store was read (``complete``). A message that was not
    yet due when its temporary queue ended is not missed. A message that may have expired need not
    be anywhere, unless a store keeps what expires: then a message that had certainly expired before
    the drain must be there.
    """
    if not m.sends or m.ok is None or not is_owed(history, m, options):
        return
    expiring = may_have_expired(history, m)
    if expiring and not (options.broker.keeps_expired and had_expired(history, m)):
        return
    releases = may_be_released(history, m, options)
    if any(happened(history, m, question, options) for question in releases):
        return
    ended = history.reached_the_end() and sent_before_the_reading(history, m.ok)
    missing = ended and not releases and all(is_given_back(history, m, d, options) for d in m.deliveries)
    dead = may_be_dead(history, m, options)
    kind = "after delivery" if m.deliveries else "never delivered"
    dead_letters = [r["index"] for r in m.stored if r.get("value") == "dead-letter"]
    other_rows = [r for r in m.stored if r.get("value") != "dead-letter"]
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
    elif any(r.get("value") == "expired" or not late for r in other_rows):
        on_its_way = all(r.get("value") == "store-and-forward" for r in other_rows)
        if missing and (complete or not on_its_way):
            yield m.instance("stuck", m.sends[0]["index"], kind)
        elif ended and not late and wrong_either_way(history, m, releases, options):
            yield m.instance("stuck", m.sends[0]["index"], "either way")
    elif dead_letters and not dead:
        yield m.instance("died-early", min(dead_letters))
    elif nowhere:
        yield m.instance("lost", m.sends[0]["index"], "refused too often" if dead else kind)


def is_temporary(m: PlainMessage) -> bool:
    """Return whether the queue of a message is temporary, so that it ends with a connection."""
    return (m.queue or "").startswith(TEMPORARY)


def sent_before_the_reading(history: History, ok: int) -> bool:
    """Return whether the reading of the stores began after row ``ok``, a message's certain send."""
    phases = (r for r in history.control if r["f"] == "phase")
    return next((r["index"] > ok for r in phases if r.get("value") == "browse"), False)


def wrong_either_way(
    history: History, m: PlainMessage, releases: Sequence[Question], options: CheckOptions
) -> bool:
    """Return whether a stored message is an anomaly whatever the outcome of its unanswered acks.

    No session held the message for a full quiet period before the reading: every session that had
    got or acknowledged it was over when the drain began, and had given it back. If an ack was
    processed, the message is resurrected; if none was, it is stuck.
    """
    drain = next((r["index"] for r in history.control if r.get("value") == "drain"), None)
    browse = next((r["index"] for r in history.control if r.get("value") == "browse"), None)
    if not releases or drain is None or browse is None or not options.broker.durable_acks:
        return False
    for question in releases:
        if not over_before(
            history, question.asked.get("session"), drain, cut=question.transaction is not None
        ):
            return False
    if not all(over_before(history, d.get("session"), drain) for d in m.deliveries):
        return False
    if not all(is_given_back(history, m, d, options) for d in m.deliveries):
        return False
    return any(
        r.get("value") == "main" and r["index"] > browse and serves(history, r.get("broker"), r["index"])
        for r in m.stored
    )


def over_before(history: History, session: int | None, index: int, *, cut: bool = False) -> bool:
    """Return whether a session was over before a row.

    If ``cut``, its connection must have ended, because only that ends an open transaction.
    """
    if session is None:
        return False
    if cut:
        return any(r["f"] == "disconnect" and r["index"] < index for r in history.of_session(session))
    over = history.over(session)
    return over is not None and over < index


def serves(history: History, broker: str | None, index: int) -> bool:
    """Return whether a broker was live before row ``index``, or no row tells its role."""
    role_names = [
        r["role"]
        for r in history.control
        if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == broker
        if r["index"] < index
    ]
    return not role_names or role_names[-1] == "live"
