"""The second implementation of the rules: the definitions as plain loops, without Spark.

It is quadratic where that is clearer. Why a second one: the differential test compares it with the
rules on Spark. Search and shrinking judge small histories by it. It proves every witness: checking
only the rows of the witness must find the anomaly again. It shares no code with the rules on Spark
except the names of the columns.

A row is a mapping from column to value; a missing column is null. Rows are ordered by ``index``.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from checkers.anomaly import looked_for
from checkers.excuses import Effect, Pairs, effects, records
from checkers.instance import Instance
from checkers.reference_attempts import (
    attempts_of,
    is_aborted,
    node_id_of,
    of_one_node,
    saw_gone,
    stored_from,
)
from checkers.reference_consumers import Consumer
from checkers.reference_deletions import after_restorations, restorations
from checkers.reference_groups import Closing, alternation, closings_of, is_closed_between
from checkers.reference_liveness import liveness
from checkers.reference_messages import delivery_anomalies, fates, settled_twice, unflagged
from checkers.reference_order import not_linearizable, out_of_order
from checkers.reference_owed import questions, refused_too_often
from checkers.reference_priorities import inversions
from checkers.reference_queues import whole_queues
from checkers.reference_roles import divergences, double_takeovers, split_brains, zombies
from checkers.reference_sent import may_have_been_under_way, operation
from checkers.reference_subscriptions import by_place, spread
from checkers.reference_totals import wrong_total
from checkers.reference_transactions import torn
from checkers.reference_waits import (
    NEVER,
    answers,
    has_lapsed,
    is_late,
    lapses,
    may_have_been_taken_back,
    refused_late,
    releases,
    time_outs,
)
from checkers.schema import HARNESS, MONITOR, NEMESIS, TEMPORARY, TOPIC
from checkers.verdict import CheckOptions

Row = Mapping[str, Any]
Key = tuple[str | None, str | None, int | None]


def find(rows: Iterable[Row], options: CheckOptions | None = None) -> list[Instance]:
    """Return every instance of every anomaly in the rows, whatever the guarantee; sorted.

    ``lost`` and ``stuck`` are found only if the rows say that every queue was drained and every
    store was read.
    """
    options = options or CheckOptions()
    history = History(sorted(rows, key=lambda row: row["index"]), atomic=options.broker.atomic)
    messages = history.all_messages
    instances = [
        *fates(history, messages, options),
        *delivery_anomalies(history, messages, options),
        *torn(history, messages, options),
        *wrong_total(history, messages, options),
        *out_of_order(history, options),
        *not_linearizable(history, options),
        *whole_queues(history, messages, options),
        *inversions(history, messages, options),
        *_sessions(history, options),
        *split_brains(history.rows),
        *double_takeovers(history.rows),
        *zombies(history.rows),
        *divergences(history.rows),
        *liveness(history, options),
        *_admitted(history, options),
        *_redelivered(history, options),
    ]
    instances = [instance for instance in instances if instance.name not in options.not_judged]
    return sorted(
        set(instances), key=lambda i: (i.name, i.index, i.queue or "", i.group or "", i.message or 0)
    )


class History:
    """The rows of a history in order, with the look-ups that several rules need."""

    def __init__(self, rows: Sequence[Row], *, atomic: bool) -> None:
        self.rows = rows = by_place(rows)
        self.atomic = atomic
        self.control = [r for r in rows if r["process"] < 0]
        self._times = {r["index"]: int(r["time"]) for r in rows}
        self.data = [r for r in spread(rows) if r["f"] in _DATA and r.get("queue") is not None]
        self.subscribing_to: dict[str | None, list[Row]] = defaultdict(list)
        for r in rows:
            if r["f"] in ("subscribe", "drop"):
                self.subscribing_to[r.get("queue")].append(r)
        self.administered: dict[str | None, list[Row]] = defaultdict(list)
        """The creates and deletes of each queue."""
        for r in rows:
            if r["f"] in ("create", "delete"):
                self.administered[r.get("queue")].append(r)
        restored = restorations(self.control)
        for requests_by_name in (self.subscribing_to, self.administered) if restored else ():
            for queue, requests in requests_by_name.items():
                if requests_by_name is self.administered or (queue or "").startswith(TOPIC):
                    requests_by_name[queue] = after_restorations(requests, restored)
        self.deletes: dict[str | None, list[tuple[Row, Row | None]]] = {}
        """The result of ``deletes_of`` for each queue."""
        self.temporary: dict[str | None, list[Row]] = defaultdict(list)
        """All rows that name a temporary queue, by queue."""
        for r in rows:
            if (r.get("queue") or "").startswith(TEMPORARY):
                self.temporary[r["queue"]].append(r)
        self.messages: dict[Key, list[Row]] = defaultdict(list)
        for r in self.data:
            self.messages[r.get("queue"), r.get("group"), r.get("message")].append(r)
        self._of: dict[tuple[str, Any], list[Row]] = defaultdict(list)
        for r in self.rows:
            for column in ("session", "transaction", "connection"):
                if r.get(column) is not None:
                    self._of[column, r[column]].append(r)
        self._proven: dict[int, int] = {}
        self.given: dict[tuple[int, bool], int] = {}
        self._ends: dict[int, int | None] = {}
        self._ended: dict[str | None, Sequence[tuple[int, int]]] = {}
        self._over: dict[int, int | None] = {}
        self._left: dict[int, int | None] = {}
        self.consumers: dict[str | None, Sequence[Consumer]] = {}
        """The result of ``consumers_of`` for each queue."""
        self.asked: dict[tuple[str | None, str], Sequence[tuple[Row, Row | None]]] = {}
        """The subscribes or drops (the second key) of each place, each with its answer."""
        self.subscription_ends: dict[tuple[str | None, int], Sequence[tuple[Row, Row | None]]] = {}
        """The result of ``_ends`` in ``reference_skipped``, by place and begin of the reader."""
        self.selectors: dict[tuple[int, str | None], list[Any]] = {}
        """The result of ``selector`` for each session."""
        self._departures: dict[str | None, Sequence[Row]] = {}
        self.answers: dict[int, Row | None] = {}
        """The result of ``answer_to`` for each invocation, by the index of its row."""
        self.owed: dict[str, tuple[list[tuple[Row, Row]], Any]] = {}
        """The result of ``_lasting_subscribes`` in ``reference_subscriptions`` for each place."""
        self.kept: dict[str, bool] = {}
        """The result of ``_is_kept`` in ``reference_subscriptions`` for each subscription."""
        self._asked: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._answered: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._latest_asked: dict[tuple[str, int], list[int]] = defaultdict(list)
        for invocation, answer in _answered(rows):
            for column in ("session", "connection"):
                if answer.get(column) is not None:
                    name = column, answer[column]
                    self._asked[name].append(invocation["index"])
                    self._answered[name].append(answer["index"])
                    latest = self._latest_asked[name]
                    latest.append(max(invocation["index"], latest[-1] if latest else -1))

    def reached_the_end(self) -> bool:
        """Return whether the test drained every queue and then finished reading the stores."""
        return {"browse", "end"} <= {r.get("value") for r in self.control if r["f"] == "phase"}

    @functools.cached_property
    def looked_everywhere(self) -> bool:
        """True if every store that may hold a message was read at the end of the test.

        The history must have reached its end, no broker's stores may have stayed unreadable, and
        rows must say that the stores were read. In a history of another harness it is enough that
        the drain received messages until no more came.
        """
        phases = {r.get("value"): r for r in reversed(self.control) if r["f"] == "phase"}
        if not {"browse", "end"} <= phases.keys():
            return False
        if "drained" in phases or ("drain" in phases and phases["drain"]["time"] == phases["end"]["time"]):
            return True
        began = phases["browse"]["index"]
        read = {r["broker"] for r in self.control if _is_reading(r) and r["index"] > began}
        if any(_is_closed(r) and r.get("broker") not in read for r in self.control):
            return False
        return bool(read) and all(self._was_read(broker, read) for broker in self._keepers())

    def _keepers(self) -> set[str]:
        """Return the brokers that may hold a message: they were live, took one or delivered one."""
        keepers = {r["broker"] for r in self.control if r["f"] == "role" and r.get("role") == "live"}
        for r in self.rows:
            took = r["f"] == "send" and r["type"] in ("ok", "info")
            if (took or _is(r, "deliver", "ok")) and r.get("broker") is not None:
                keepers.add(r["broker"])
        return keepers

    def _was_read(self, broker: str, read: set[str]) -> bool:
        """Return whether a broker's stores were read.

        The broker itself, another of its node ID, or one that took that node over must be among
        those that were read (``read``).
        """
        node_id = node_id_of(self, broker)
        taken = (r for r in self.control if r["f"] == "takeover" and r.get("node_id") == node_id)
        return any(of_one_node(self, broker, other) for other in read) or (
            node_id is not None and any(r.get("broker") in read for r in taken)
        )

    def time(self, index: int) -> int:
        """Return the time (ns) of the row with an index."""
        return self._times[index]

    def departures(self, broker: str | None) -> Sequence[Row]:
        """Return the rows in which the process of a broker was seen gone, in order."""
        if broker not in self._departures:
            self._departures[broker] = [r for r in self.control if saw_gone(r, broker)]
        return self._departures[broker]

    @functools.cached_property
    def _all_departures(self) -> list[int]:
        """The indices of the rows in which any broker's process was seen gone, in order."""
        brokers = {r["broker"] for r in self.rows if r.get("broker") is not None}
        return sorted({r["index"] for name in brokers for r in self.departures(name)})

    def departed_meanwhile(self, invocation: Row) -> bool:
        """Return whether any broker was seen gone between the begin of a connection and a question.

        Most questions are asked where none was, and need no look at their rows (``rows_around``).
        """
        count = bisect_left(self._all_departures, invocation["index"])
        if not count:
            return False
        rows = [self._of[name][0] for name in self._names_around(invocation) if name in self._of]
        return any(r["index"] < self._all_departures[count - 1] for r in rows)

    def row_at(self, moment: int) -> int:
        """Return the index of the first row at or after a moment (ns).

        If there is none, return the index behind the last row.
        """
        behind = int(self.rows[-1]["index"]) + 1
        return next((int(r["index"]) for r in self.rows if r["time"] >= moment), behind)

    def of_session(self, session: int) -> Sequence[Row]:
        """Return all rows that name a session."""
        return self._of.get(("session", session), [])

    @property
    def by_session(self) -> Mapping[int, Sequence[Row]]:
        """The rows that name a session, by session."""
        return {number: rows for (column, number), rows in self._of.items() if column == "session"}

    def transaction_rows(self, transaction: int) -> Sequence[Row]:
        """Return all rows that name a transaction."""
        return self._of.get(("transaction", transaction), [])

    def rows_around(self, invocation: Row) -> list[Row]:
        """Return all rows of the session, connection and transaction of an invocation, in order.

        The sessions that took part in its transaction are included.
        """
        rows = {r["index"]: r for name in self._names_around(invocation) for r in self._of.get(name, ())}
        return [rows[index] for index in sorted(rows)]

    def _names_around(self, invocation: Row) -> set[tuple[str, Any]]:
        """Return the session, connection and transaction of an invocation, each with its column.

        The sessions that took part in its transaction are included.
        """
        names = {
            (column, invocation[column])
            for column in ("session", "connection", "transaction")
            if invocation.get(column) is not None
        }
        if invocation.get("transaction") is not None:
            inside = self.transaction_rows(invocation["transaction"])
            names |= {("session", r["session"]) for r in inside if r.get("session") is not None}
        return names

    def ended(self, transaction: int, f: str, type_: str) -> int | None:
        """Return the index of a transaction's first ``f`` row (commit, abort) of type ``type_``."""
        return next(
            (r["index"] for r in self._of["transaction", transaction] if r["f"] == f and r["type"] == type_),
            None,
        )

    def undone(self, transaction: int) -> int | None:
        """Return the index of the latest invocation that may have undone a transaction's acks.

        That is an abort, or a commit if a commit of the transaction failed; None if there is none.
        """
        invocations = [self.ended(transaction, "abort", "invoke")]
        if self.ended(transaction, "commit", "fail") is not None:
            invocations.append(self.ended(transaction, "commit", "invoke"))
        return max((index for index in invocations if index is not None), default=None)

    def session_begin(self, session: int) -> int | None:
        """Return the index of the first invocation of a session's subscribe."""
        rows = self._of["session", session]
        return next((r["index"] for r in rows if r["f"] == "subscribe" and r["type"] == "invoke"), None)

    def left_at(self, session: int) -> int | None:
        """Return the index of the last ``ok`` of a session's unsubscribe; None if there is none."""
        if session not in self._left:
            rows = self._of["session", session]
            invoked = next((r["index"] for r in rows if _is(r, "unsubscribe", "invoke")), None)
            answers = (r["index"] for r in rows if _is(r, "unsubscribe", "ok"))
            later = (index for index in answers if invoked is not None and index > invoked)
            self._left[session] = max(later, default=None)
        return self._left[session]

    def possible(self, d: Row, options: CheckOptions) -> int | None:
        """Return the index after which a delivery was certainly sent; None if no row tells.

        It is the latest invocation of the subscribe of its session, or of an operation in its
        session or on its connection that was answered before the delivery was read.
        """
        rows_known = [self.session_begin(d["session"]), self.latest_answered_before(d, options)]
        return max((index for index in rows_known if index is not None), default=None)

    def answered_before(self, d: Row, options: CheckOptions) -> list[int]:
        """Return the invocations that were answered ``ok`` before a delivery was read.

        Only operations in the session or on the connection of the delivery count. The list is empty
        where the broker does not send answers and deliveries in one order.
        """
        if not options.broker.answers_in_order:
            return []
        invocations = []
        for column in ("session", "connection"):
            if d.get(column) is not None:
                count = bisect_left(self._answered[column, d[column]], d["index"])
                invocations += self._asked[column, d[column]][:count]
        return invocations

    def latest_answered_before(self, d: Row, options: CheckOptions) -> int | None:
        """Return the latest of ``answered_before``; None if there is none."""
        if not options.broker.answers_in_order:
            return None
        latest = None
        for column in ("session", "connection"):
            if d.get(column) is not None:
                count = bisect_left(self._answered[column, d[column]], d["index"])
                if count:
                    invocation = self._latest_asked[column, d[column]][count - 1]
                    latest = invocation if latest is None else max(latest, invocation)
        return latest

    def session_end(self, session: int) -> int | None:
        """Return the index of the row that ended a session for its client; None if there is none.

        That is its first disconnect or invocation of its unsubscribe.
        """
        if session not in self._ends:
            rows = self._of["session", session]
            ends = (r for r in rows if r["f"] == "disconnect" or _is(r, "unsubscribe", "invoke"))
            self._ends[session] = next((r["index"] for r in ends), None)
        return self._ends[session]

    def session_ends(self, queue: str | None) -> Sequence[int]:
        """Return the rows at which sessions of a queue ended.

        Sessions are included whose last row names no queue.
        """
        return [end for _, end in self._ended_sessions(queue)]

    def _ended_sessions(self, queue: str | None) -> Sequence[tuple[int, int]]:
        """Return the rows of ``session_ends``, each after its session."""
        if queue not in self._ended:
            self._ended[queue] = [
                (session, end) for session, end, where in self._all_ended if where in (queue, None)
            ]
        return self._ended[queue]

    @functools.cached_property
    def _all_ended(self) -> Sequence[tuple[int, int, str | None]]:
        """Each session that ended, the row of its end, and the queue that this row names."""
        result = []
        for session, rows in self.by_session.items():
            end = self.session_end(session)
            if end is not None:
                result.append((session, end, next(r.get("queue") for r in rows if r["index"] == end)))
        return result

    def holders(self, queue: str | None, sent: int) -> int:
        """Return how many ended sessions of a queue may have held a message sent at row ``sent``.

        A session does not count if its unsubscribe was answered before that row. A session may be
        of any queue if the row that ended it names no queue.
        """
        answers = (self.left_at(session) for session, _ in self._ended_sessions(queue))
        return sum(1 for row in answers if row is None or row > sent)

    def reign(self, session: int) -> tuple[int, int | None] | None:
        """Return the reign of a broker in which a session began.

        The first number is the row that said that the broker was live, the second until when (ns)
        it certainly was so without a break; None: to the end. The whole is None if the broker was
        not known to be live when the session was asked for.
        """
        subscribe = next((r for r in self._of["session", session] if _is(r, "subscribe", "invoke")), None)
        if subscribe is None:
            return None
        role_rows = [
            r
            for r in self.rows
            if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == subscribe.get("broker")
        ]
        before = [r for r in role_rows if r["index"] < subscribe["index"]]
        if not before or before[-1].get("role") != "live":
            return None
        over = next((r["time_low"] for r in role_rows if r["index"] > before[-1]["index"]), None)
        return before[-1]["index"], over

    def over(self, session: int) -> int | None:
        """Return the row after which nothing may be delivered in a session.

        That is the answer to its unsubscribe or its disconnect, whichever came first.
        """
        if session not in self._over:
            disconnect = next(
                (r["index"] for r in self._of["session", session] if r["f"] == "disconnect"), None
            )
            ends = (at for at in (disconnect, self.left_at(session)) if at is not None)
            self._over[session] = min(ends, default=None)
        return self._over[session]

    def proven(self, session: int) -> int:
        """Return the index up to which the broker certainly had a session; -1 if no row proves it.

        That is the latest invocation in the session that was answered ``ok``, or the latest send of
        a message that the session got.
        """
        if session not in self._proven:
            self._proven[session] = self._prove(session)
        return self._proven[session]

    def _prove(self, session: int) -> int:
        best = -1
        questions: dict[tuple[Any, ...], int] = {}
        for r in self._of["session", session]:
            if r["f"] not in ("ack", "nack", "unsubscribe"):
                continue
            message = () if r["f"] == "unsubscribe" else (r.get("queue"), r.get("group"), r.get("message"))
            key = (r["f"], *message)
            if r["type"] == "invoke":
                questions.setdefault(key, r["index"])
            elif r["type"] == "ok" and key in questions:
                best = max(best, questions[key])
        for r in self._of["session", session]:
            if _is(r, "deliver", "ok") and r.get("queue") is not None and r.get("message") is not None:
                sent = self.sent(r)
                if sent is not None and sent < r["index"]:
                    best = max(best, sent)
        return best

    @functools.cached_property
    def effects(self) -> list[Effect]:
        """The effects of faults, certain or possible."""
        return effects(records(r for r in self.control if r["process"] == NEMESIS))

    @functools.cached_property
    def clock_effects(self) -> list[Effect]:
        """The effects, certain or possible, of faults that can make the clocks of brokers wrong."""
        return [effect for effect in self.effects if effect.fault_kind.clocks]

    @functools.cached_property
    def pairs(self) -> Pairs:
        """The pairs of brokers that stood in for each other."""
        return Pairs.of(r for r in self.control if r["f"] in ("role", "takeover"))

    @functools.cached_property
    def all_messages(self) -> list[PlainMessage]:
        """Every message whose number a row tells."""
        return [PlainMessage(self, key, rows) for key, rows in self.messages.items() if key[2] is not None]

    @functools.cached_property
    def delivered(self) -> Mapping[tuple[str | None, str | None], Sequence[PlainMessage]]:
        """The messages of each queue and group that were delivered."""
        return defaultdict(
            list, {lane: [m for m in messages if m.deliveries] for lane, messages in self.lanes.items()}
        )

    @functools.cached_property
    def lanes(self) -> Mapping[tuple[str | None, str | None], Sequence[PlainMessage]]:
        """The messages of each queue and group."""
        by_lane: dict[tuple[str | None, str | None], list[PlainMessage]] = defaultdict(list)
        for m in self.all_messages:
            by_lane[m.queue, m.group].append(m)
        return by_lane

    @functools.cached_property
    def closings(self) -> Mapping[tuple[str | None, str | None], Sequence[Closing]]:
        """The messages that close each queue's groups."""
        grouped = {lane: messages for lane, messages in self.lanes.items() if lane[1] is not None}
        return defaultdict(list, {lane: closings_of(messages) for lane, messages in grouped.items()})

    @functools.cached_property
    def readers(self) -> Mapping[tuple[str | None, str | None], AbstractSet[int | None]]:
        """The sessions to which messages of each queue and group were delivered."""
        by_lane: dict[tuple[str | None, str | None], set[int | None]] = defaultdict(set)
        for r in self.data:
            if r["f"] == "deliver":
                by_lane[r.get("queue"), r.get("group")].add(r.get("session"))
        return by_lane

    @functools.cached_property
    def received_from(self) -> AbstractSet[str | None]:
        """The queues with a ``receive`` that the client never heard answered."""
        return {r.get("queue") for r in self.rows if r["f"] == "receive"}

    @functools.cached_property
    def with_unreadable_bodies(self) -> AbstractSet[str | None]:
        """The queues from which a body was delivered that could not be read."""
        return {r.get("queue") for r in self.data if r["f"] == "deliver" and r.get("message") is None}

    @functools.cached_property
    def same_id(self) -> Mapping[int, Sequence[PlainMessage]]:
        """The messages by number, one for each queue, group and subscription that a row names."""
        by_id: dict[int, list[PlainMessage]] = defaultdict(list)
        for m in self.all_messages:
            by_id[m.id].append(m)
        return by_id

    def sent(self, r: Row) -> int | None:
        """Return the index of the first send of the message that a row names."""
        message_rows = self.messages[r.get("queue"), r.get("group"), r.get("message")]
        return next((s["index"] for s in message_rows if _is(s, "send", "invoke")), None)


def _is_reading(r: Row) -> bool:
    """Return whether a row says that a broker's stores were read completely."""
    is_answer = r["process"] == HARNESS and _is(r, "browse", "ok") and r.get("queue") is None
    return is_answer and r.get("broker") is not None


def _is_closed(r: Row) -> bool:
    """Return whether a row says that a broker's stores could not be read."""
    tried = r["process"] == HARNESS and r["f"] == "browse" and r["type"] in ("info", "fail")
    return tried and r.get("message") is None


_DATA = ("send", "ack", "nack", "deliver", "browse", "timeout")


def _answered(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield the invocation and the answer of every operation of a client that was answered ``ok``.

    A login is left out, as there is no connection yet when it is asked for; a delivery has no
    invocation.
    """
    latest: dict[tuple[Any, ...], Row] = {}
    for r in rows:
        if r["process"] >= 0 and r["type"] == "invoke":
            latest[operation(r)] = r
        elif r["type"] == "ok" and r["f"] not in ("deliver", "connect"):
            invocation = latest.get(operation(r))
            if invocation is not None:
                yield invocation, r


def _is(r: Row, f: str, type_: str) -> bool:
    return bool(r["f"] == f and r["type"] == type_)


class PlainMessage:
    """A message in one queue and group, with the facts that the definitions need."""

    def __init__(self, history: History, key: Key, rows: list[Row]) -> None:
        self.queue, self.group = key[:2]
        self.id: int = key[2]  # type: ignore[assignment]  # only of rows that name a message
        self.rows = rows
        self.sends = [r for r in rows if r["f"] == "send" and r["type"] == "invoke"]
        self.deliveries = [r for r in rows if r["f"] == "deliver" and r["type"] == "ok"]
        self.stored = [r for r in rows if r["f"] == "browse" and r["type"] == "ok"]
        self.shown = [*self.deliveries, *self.stored]
        self.attempts = attempts_of(history, rows)
        self.counted = [attempt for attempt in self.attempts if not attempt.failed] or self.attempts
        """The attempts to send the message that did not fail; if all failed, all of them."""
        self.options = [options for attempt in self.counted for options in attempt.options]
        """The options that the counted attempts asked for, as JSON objects."""
        self.ok = min((attempt.ok for attempt in self.attempts if attempt.ok is not None), default=None)
        self.transaction = _largest(self.sends, "transaction")
        self.producer = _largest(self.sends, "producer")
        self.sequence = _largest(self.sends, "sequence")
        self.digest = _largest(self.sends, "digest")

    @property
    def aborted(self) -> bool:
        """True if every attempt to send the message failed or was rolled back."""
        return is_aborted(self)

    def begun(self, history: History) -> int | None:
        """Return the row since which the message can have been in its queue; None if it never was.

        If the only attempt was in a transaction, that is the invocation of its commit. Otherwise it
        is the row that ``stored_from`` tells.
        """
        if self.transaction is not None and len(self.sends) == 1:
            return history.ended(self.transaction, "commit", "invoke")
        return stored_from(self)

    def instance(self, name: str, index: int, key: str | None = None) -> Instance:
        """Return an instance of an anomaly of this message that row ``index`` shows."""
        return Instance(name, self.queue, self.group, self.id, index, key)


def _largest(rows: Iterable[Row], column: str) -> Any:
    values = [value for r in rows if (value := r.get(column)) is not None]
    return max(values) if values else None


def _redelivered(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Find every message that was delivered twice, where the guarantee allows no redelivery."""
    if "redelivery" in looked_for(options):
        for m in history.all_messages:
            if len(m.deliveries) > 1:
                yield m.instance("redelivery", m.deliveries[0]["index"])


def _admitted(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Find the answers in which a broker admits an internal error."""
    words = options.broker.admits
    for r in history.rows:
        if words and r["process"] >= 0 and words in (r.get("error") or ""):
            yield Instance("internal-error", None, None, None, r["index"], r.get("broker"))


class Hold:
    """A span [begin, end) of rows in which a session certainly held a delivery.

    It is empty if end <= begin.
    """

    def __init__(self, history: History, delivery: Row, rows: Sequence[Row], options: CheckOptions) -> None:
        self.delivery = delivery
        self.begin: int = delivery["index"]
        self.session: int = delivery["session"]
        ends = [history.proven(self.session), *releases(history, rows, delivery)]
        over = history.session_end(self.session)
        if over is not None:
            ends.append(over)
        lapse = lapses(history, rows, delivery, options)
        if lapse < NEVER:
            ends.append(history.row_at(lapse))
        self.end = min(ends)
        sent, begun = history.sent(delivery), history.session_begin(self.session)
        self.possible = max((at for at in (sent, begun) if at is not None and at < self.begin), default=None)

    def conflicts(self, other: Hold) -> bool:
        """Return whether two sessions certainly held at one instant; ``other`` began before."""
        if self.session == other.session:
            return False
        when_sent = self.possible is not None and other.begin < self.possible and self.begin < other.end
        together = max(self.begin, other.begin) < min(self.end, other.end)
        return when_sent or (together and self.begin < self.end and other.begin < other.end)


def _sessions(history: History, options: CheckOptions) -> Iterator[Instance]:
    holds: dict[tuple[str | None, str | None], list[Hold]] = defaultdict(list)
    for (queue, group, message), rows in history.messages.items():
        if message is None:
            continue
        deliveries = [r for r in rows if _is(r, "deliver", "ok") and r.get("session") is not None]
        message_holds = [Hold(history, d, rows, options) for d in deliveries]
        holds[queue, group] += message_holds
        indexes: dict[str, int] = {}
        twice: set[int] = set()
        if len(deliveries) > 1:  # only what was delivered twice can be settled by two sessions
            twice = settled_twice(history, PlainMessage(history, (queue, group, message), rows), options)
        for n, d in enumerate(deliveries):
            if n and _is_duplicate(history, rows, deliveries[:n], d, options):
                indexes.setdefault("duplicate", d["index"])
            elif (
                n
                and options.broker.marks_redeliveries != "never"
                and unflagged(history, deliveries[:n], d, options)
            ):
                indexes.setdefault("unflagged-redelivery", d["index"])
            settled = options.broker.refuses_stale_acks and d["index"] in twice
            if settled or any(message_holds[n].conflicts(earlier) for earlier in message_holds[:n]):
                indexes.setdefault("double-delivery", d["index"])
        for name, index in indexes.items():
            yield Instance(name, queue, group, message, index)
    for (queue, group), all_holds in holds.items():
        if group is not None:
            alternating = alternation(history, queue, group, options)
            split = [_held_twice(all_holds, history.closings[queue, group]), alternating]
            first = min((index for index in split if index is not None), default=None)
            if first is not None:
                yield Instance("group-split", queue, group, None, first)


def _held_twice(holds: Sequence[Hold], closings: Sequence[Closing]) -> int | None:
    """Return the first delivery while another session held a message of the group."""
    still: list[Hold] = []  # the holds that may last when the next one begins
    for hold in sorted(holds, key=lambda hold: hold.begin):
        still = [earlier for earlier in still if earlier.end > hold.begin]
        for earlier in still:
            if hold.conflicts(earlier) and not is_closed_between(closings, earlier.begin, hold.begin):
                return hold.begin
        still.append(hold)
    return None


def _is_duplicate(
    history: History, rows: list[Row], earlier: list[Row], d: Row, options: CheckOptions
) -> bool:
    certain = []
    for r in rows:
        acked = _is(r, "ack", "ok") and r.get("session") is not None and r["index"] < d["index"]
        if acked and not is_late(history, rows, r, options):
            transaction = r.get("transaction")
            at = r["index"] if transaction is None else history.ended(transaction, "commit", "ok")
            certain.append((at, r))
    if options.broker.durable_acks and any(
        settled is not None
        and settled < d["index"]
        and not may_have_been_under_way(history, rows, d, settled, options)
        and not may_have_been_taken_back(history, rows, d, ack, settled, options)
        for settled, ack in certain
    ):
        return True
    unread = d["index"] in time_outs(rows, d["session"]).unread
    if options.broker.durable_acks and not unread and refused_too_often(history, rows, d, options):
        return True
    in_session = [e for e in earlier if e["session"] == d["session"]]
    if not in_session or has_lapsed(history, rows, in_session[-1], d, options):
        return False
    if refused_late(rows, in_session[-1], options):
        return False
    previous = in_session[-1]["index"]
    over = history.session_end(d["session"])
    if over is not None and previous < over < d["index"]:
        return False
    refused = {question.asked["index"] for question in questions(rows, "ack") if question.outcome == "fail"}
    for r in answers(rows, d):
        if r["index"] < d["index"]:
            transaction = r.get("transaction")
            excuse = r["index"] if r["f"] == "nack" or r["index"] in refused else None
            if excuse is None and transaction is not None:
                excuse = history.undone(transaction)
            if excuse is not None and excuse > previous:
                return False
    return True
