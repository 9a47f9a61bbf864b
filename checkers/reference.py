"""The second implementation.

The definitions written down as loops, no Spark, quadratic where that is clearer.

Why: it is the other side of the differential test, it judges the small histories of search and
shrinking, and it proves every witness (checking only the witness' rows must find the anomaly
again). Nothing here shares code with the rules on Spark except the names of the columns.

Rows are mappings from column to value; a missing column is null. Order is by ``index``.
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
from checkers.reference_groups import Closing, alternation, closings_of, is_closed_between
from checkers.reference_liveness import liveness
from checkers.reference_messages import again, fates, settled_twice, unflagged
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
from checkers.schema import HARNESS, MONITOR, NEMESIS, TEMPORARY
from checkers.verdict import CheckOptions

Row = Mapping[str, Any]
Key = tuple[str | None, str | None, int | None]


def find(rows: Iterable[Row], options: CheckOptions | None = None) -> list[Instance]:
    """Every instance of every anomaly in the rows, whatever the guarantee; sorted.

    ``lost`` and ``stuck`` only if the rows say that everything was drained and every store looked
    into.
    """
    options = options or CheckOptions()
    history = History(sorted(rows, key=lambda row: row["index"]), atomic=options.broker.atomic)
    messages = history.all_messages
    found = [
        *fates(history, messages, options),
        *again(history, messages, options),
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
    found = [one for one in found if one.name not in options.not_judged]
    return sorted(set(found), key=lambda i: (i.name, i.index, i.queue or "", i.group or "", i.message or 0))


class History:
    """Rows in order, and the few questions that every rule asks."""

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
        self.temporary = [r for r in rows if (r.get("queue") or "").startswith(TEMPORARY)]
        self.messages: dict[Key, list[Row]] = defaultdict(list)
        for r in self.data:
            self.messages[r.get("queue"), r.get("group"), r.get("message")].append(r)
        self._of: dict[tuple[str, Any], list[Row]] = defaultdict(list)
        for r in self.rows:
            for what in ("session", "transaction", "connection"):
                if r.get(what) is not None:
                    self._of[what, r[what]].append(r)
        self._proven: dict[int, int] = {}
        self.given: dict[tuple[int, bool], int] = {}
        self._ends: dict[int, int | None] = {}
        self._ended: dict[str | None, Sequence[tuple[int, int]]] = {}
        self._over: dict[int, int | None] = {}
        self._left: dict[int, int | None] = {}
        self.consumers: dict[str | None, Sequence[Consumer]] = {}
        """What ``consumers_of`` has found of each queue."""
        self.asked: dict[tuple[str | None, str], Sequence[tuple[Row, Row | None]]] = {}
        """What subscribes or drops of each place were asked for, with their answers."""
        self.subscription_ends: dict[tuple[str | None, int], Sequence[tuple[Row, Row | None]]] = {}
        """What may have ended the subscription of each place for each reader of it."""
        self.selectors: dict[int, Any] = {}
        """What ``selector`` has found of each session."""
        self._departures: dict[str | None, Sequence[Row]] = {}
        self.answers: dict[int, Row | None] = {}
        """What ``answer_to`` has found of each question, by its index."""
        self._asked: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._answered: dict[tuple[str, int], list[int]] = defaultdict(list)
        for asked, answer in _answered(rows):
            for what in ("session", "connection"):
                if answer.get(what) is not None:
                    self._asked[what, answer[what]].append(asked["index"])
                    self._answered[what, answer[what]].append(answer["index"])

    def reached_the_end(self) -> bool:
        """Whether everything was drained, and then the stores were looked into to the end."""
        return {"browse", "end"} <= {r.get("value") for r in self.control if r["f"] == "phase"}

    def looked_everywhere(self) -> bool:
        """Whether every store that may hold a message was read in the end.

        The history reached its end; no broker's stores stayed closed; and there are rows that say
        that they were read. Of a history of others it is enough that everything was received until
        nothing came any more.
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
        """The brokers that may hold a message: that were live, or took one, or gave one out."""
        found = {r["broker"] for r in self.control if r["f"] == "role" and r.get("role") == "live"}
        for r in self.rows:
            took = r["f"] == "send" and r["type"] in ("ok", "info")
            if (took or _is(r, "deliver", "ok")) and r.get("broker") is not None:
                found.add(r["broker"])
        return found

    def _was_read(self, broker: str, read: set[str]) -> bool:
        """Whether its stores were read: by it, one of its node, or one that took that over."""
        node_id = node_id_of(self, broker)
        taken = (r for r in self.control if r["f"] == "takeover" and r.get("node_id") == node_id)
        return any(of_one_node(self, broker, other) for other in read) or (
            node_id is not None and any(r.get("broker") in read for r in taken)
        )

    def time(self, index: int) -> int:
        """When the row of that index was written (ns)."""
        return self._times[index]

    def departures(self, broker: str | None) -> Sequence[Row]:
        """Return the rows in which the process of a broker was seen gone, in order."""
        if broker not in self._departures:
            self._departures[broker] = [r for r in self.control if saw_gone(r, broker)]
        return self._departures[broker]

    @functools.cached_property
    def first_departure(self) -> float:
        """Index of the first row in which the process of any broker was seen gone."""
        brokers = {r["broker"] for r in self.rows if r.get("broker") is not None}
        return min((r["index"] for name in brokers for r in self.departures(name)), default=float("inf"))

    def row_at(self, moment: int) -> int:
        """Index of the first row at or after that moment (ns), or one behind all."""
        behind = int(self.rows[-1]["index"]) + 1
        return next((int(r["index"]) for r in self.rows if r["time"] >= moment), behind)

    def of_session(self, session: int) -> Sequence[Row]:
        """All rows that name it."""
        return self._of.get(("session", session), [])

    @property
    def by_session(self) -> Mapping[int, Sequence[Row]]:
        """All rows that name a session, by session."""
        return {number: rows for (what, number), rows in self._of.items() if what == "session"}

    def transaction_rows(self, transaction: int) -> Sequence[Row]:
        """Return all rows that name a transaction."""
        return self._of.get(("transaction", transaction), [])

    def beside(self, asked: Row) -> list[Row]:
        """All rows of the session, the connection and the transaction of one, in order."""
        names = [(what, asked[what]) for what in ("session", "connection") if asked.get(what) is not None]
        if asked.get("transaction") is not None:
            names.append(("transaction", asked["transaction"]))
            inside = self.transaction_rows(asked["transaction"])
            names += [("session", r["session"]) for r in inside if r.get("session") is not None]
        rows = {r["index"]: r for name in names for r in self._of.get(name, ())}
        return [rows[index] for index in sorted(rows)]

    def ended(self, transaction: int, f: str, type_: str) -> int | None:
        """Index of the first row of that end of a transaction."""
        return next(
            (r["index"] for r in self._of["transaction", transaction] if r["f"] == f and r["type"] == type_),
            None,
        )

    def undone(self, transaction: int) -> int | None:
        """Where the latest end was asked for that may have given back what it acknowledged."""
        asked = [self.ended(transaction, "abort", "invoke")]
        if self.ended(transaction, "commit", "fail") is not None:
            asked.append(self.ended(transaction, "commit", "invoke"))
        return max((index for index in asked if index is not None), default=None)

    def session_begin(self, session: int) -> int | None:
        """Index of the first row with which its client asked for it."""
        rows = self._of["session", session]
        return next((r["index"] for r in rows if r["f"] == "subscribe" and r["type"] == "invoke"), None)

    def left(self, session: int) -> int | None:
        """Index of the answer to its unsubscribe, if it was ended in order."""
        if session not in self._left:
            rows = self._of["session", session]
            asked = next((r["index"] for r in rows if _is(r, "unsubscribe", "invoke")), None)
            answers = (r["index"] for r in rows if _is(r, "unsubscribe", "ok"))
            later = (index for index in answers if asked is not None and index > asked)
            self._left[session] = max(later, default=None)
        return self._left[session]

    def possible(self, d: Row, options: CheckOptions) -> int | None:
        """The index after which a delivery was certainly sent.

        Its session was asked for, or something on its connection that was answered before it was
        read.
        """
        known = [self.session_begin(d["session"]), *self.answered_before(d, options)]
        return max((index for index in known if index is not None), default=None)

    def answered_before(self, d: Row, options: CheckOptions) -> list[int]:
        """The questions in its session or on its connection that were answered before it was read.

        None where answers and deliveries share no order.
        """
        if not options.broker.answers_in_order:
            return []
        found = []
        for what in ("session", "connection"):
            if d.get(what) is not None:
                count = bisect_left(self._answered[what, d[what]], d["index"])
                found += self._asked[what, d[what]][:count]
        return found

    def session_end(self, session: int) -> int | None:
        """Index of the row with which a session ended for its client."""
        if session not in self._ends:
            rows = self._of["session", session]
            ends = (r for r in rows if r["f"] == "disconnect" or _is(r, "unsubscribe", "invoke"))
            self._ends[session] = next((r["index"] for r in ends), None)
        return self._ends[session]

    def session_ends(self, queue: str | None) -> Sequence[int]:
        """Return where sessions of a queue ended, and those of which the row names no queue."""
        return [end for _, end in self._ended_sessions(queue)]

    def _ended_sessions(self, queue: str | None) -> Sequence[tuple[int, int]]:
        """Return what ``session_ends`` tells, each with its session."""
        if queue not in self._ended:
            self._ended[queue] = [
                (session, end) for session, end, where in self._all_ended if where in (queue, None)
            ]
        return self._ended[queue]

    @functools.cached_property
    def _all_ended(self) -> Sequence[tuple[int, int, str | None]]:
        """Each session that ended, where, and the queue that the row names."""
        found = []
        for session, rows in self.by_session.items():
            end = self.session_end(session)
            if end is not None:
                found.append((session, end, next(r.get("queue") for r in rows if r["index"] == end)))
        return found

    def holders(self, queue: str | None, sent: int) -> int:
        """How many sessions that have ended may have held what was sent there at that row.

        Not those whose unsubscribe was answered before; one may be of any queue where the row that
        ended it names none.
        """
        left = (self.left(session) for session, _ in self._ended_sessions(queue))
        return sum(1 for row in left if row is None or row > sent)

    def reign(self, session: int) -> tuple[int, int | None] | None:
        """The row that said that its broker was live when it began.

        And until when (ns) that was certainly so without a break; None: to the end.
        """
        asked = next((r for r in self._of["session", session] if _is(r, "subscribe", "invoke")), None)
        if asked is None:
            return None
        told = [
            r
            for r in self.rows
            if r["process"] == MONITOR and r["f"] == "role" and r.get("broker") == asked.get("broker")
        ]
        before = [r for r in told if r["index"] < asked["index"]]
        if not before or before[-1].get("role") != "live":
            return None
        over = next((r["time_low"] for r in told if r["index"] > before[-1]["index"]), None)
        return before[-1]["index"], over

    def over(self, session: int) -> int | None:
        """The answer to its unsubscribe, or its disconnect: from there on nothing may come."""
        if session not in self._over:
            gone = next((r["index"] for r in self._of["session", session] if r["f"] == "disconnect"), None)
            ends = (at for at in (gone, self.left(session)) if at is not None)
            self._over[session] = min(ends, default=None)
        return self._over[session]

    def proven(self, session: int) -> int:
        """Up to which index the broker certainly had this session.

        The latest question in it that was answered, or send of what it got.
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
            what = (r["f"], *message)
            if r["type"] == "invoke":
                questions.setdefault(what, r["index"])
            elif r["type"] == "ok" and what in questions:
                best = max(best, questions[what])
        for r in self._of["session", session]:
            if _is(r, "deliver", "ok") and r.get("queue") is not None and r.get("message") is not None:
                sent = self.sent(r)
                if sent is not None and sent < r["index"]:
                    best = max(best, sent)
        return best

    @functools.cached_property
    def clock_effects(self) -> list[Effect]:
        """What faults did, or may have done, that can make the clocks of brokers wrong."""
        told = records(r for r in self.control if r["process"] == NEMESIS)
        return [effect for effect in effects(told) if effect.fault_kind.clocks]

    @functools.cached_property
    def pairs(self) -> Pairs:
        """Which brokers stood in for which."""
        return Pairs.of(r for r in self.control if r["f"] in ("role", "takeover"))

    @functools.cached_property
    def all_messages(self) -> list[PlainMessage]:
        """Every message of which a row tells the number."""
        return [PlainMessage(self, key, rows) for key, rows in self.messages.items() if key[2] is not None]

    @functools.cached_property
    def delivered(self) -> Mapping[tuple[str | None, str | None], Sequence[PlainMessage]]:
        """The messages of each queue and group that came."""
        return defaultdict(
            list, {lane: [m for m in messages if m.deliveries] for lane, messages in self.lanes.items()}
        )

    @functools.cached_property
    def lanes(self) -> Mapping[tuple[str | None, str | None], Sequence[PlainMessage]]:
        """The messages of each queue and group."""
        found: dict[tuple[str | None, str | None], list[PlainMessage]] = defaultdict(list)
        for m in self.all_messages:
            found[m.queue, m.group].append(m)
        return found

    @functools.cached_property
    def readers(self) -> Mapping[tuple[str | None, str | None], AbstractSet[int | None]]:
        """The sessions to which messages of each queue and group were delivered."""
        found: dict[tuple[str | None, str | None], set[int | None]] = defaultdict(set)
        for r in self.data:
            if r["f"] == "deliver":
                found[r.get("queue"), r.get("group")].add(r.get("session"))
        return found

    @functools.cached_property
    def received_from(self) -> AbstractSet[str | None]:
        """The queues of which a receive was asked for."""
        return {r.get("queue") for r in self.rows if r["f"] == "receive"}

    @functools.cached_property
    def with_unreadable_bodies(self) -> AbstractSet[str | None]:
        """The queues from which a body was delivered that could not be read."""
        return {r.get("queue") for r in self.data if r["f"] == "deliver" and r.get("message") is None}

    @functools.cached_property
    def same_id(self) -> Mapping[int, Sequence[PlainMessage]]:
        """Every message by its number, in each queue, group and subscription that a row names."""
        found: dict[int, list[PlainMessage]] = defaultdict(list)
        for m in self.all_messages:
            found[m.id].append(m)
        return found

    def sent(self, r: Row) -> int | None:
        """Index of the first send of its message."""
        mine = self.messages[r.get("queue"), r.get("group"), r.get("message")]
        return next((s["index"] for s in mine if _is(s, "send", "invoke")), None)


def _is_reading(r: Row) -> bool:
    """Whether it says that a broker's stores were read completely."""
    said = r["process"] == HARNESS and _is(r, "browse", "ok") and r.get("queue") is None
    return said and r.get("broker") is not None


def _is_closed(r: Row) -> bool:
    """Whether it says that a broker's stores could not be read."""
    tried = r["process"] == HARNESS and r["f"] == "browse" and r["type"] in ("info", "fail")
    return tried and r.get("message") is None


_DATA = ("send", "ack", "nack", "deliver", "browse", "timeout")


def _answered(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Every operation of a client that was answered ``ok``, as question and answer.

    A login has no connection to be asked on, a delivery no question.
    """
    latest: dict[tuple[Any, ...], Row] = {}
    for r in rows:
        what = operation(r)
        if r["process"] >= 0 and r["type"] == "invoke":
            latest[what] = r
        elif r["type"] == "ok" and r["f"] not in ("deliver", "connect") and what in latest:
            yield latest[what], r


def _is(r: Row, f: str, type_: str) -> bool:
    return bool(r["f"] == f and r["type"] == type_)


class PlainMessage:
    """What the definitions ask about one message."""

    def __init__(self, history: History, key: Key, rows: list[Row]) -> None:
        self.queue, self.group = key[:2]
        self.id: int = key[2]  # type: ignore[assignment]  # only of rows that name a message
        self.rows = rows
        self.sends = [r for r in rows if _is(r, "send", "invoke")]
        self.deliveries = [r for r in rows if _is(r, "deliver", "ok")]
        self.stored = [r for r in rows if _is(r, "browse", "ok")]
        self.shown = [*self.deliveries, *self.stored]
        self.attempts = attempts_of(history, rows)
        self.ok = min((attempt.ok for attempt in self.attempts if attempt.ok is not None), default=None)
        self.transaction = _largest(self.sends, "transaction")
        self.producer = _largest(self.sends, "producer")
        self.sequence = _largest(self.sends, "sequence")
        self.digest = _largest(self.sends, "digest")

    @property
    def aborted(self) -> bool:
        """Whether every attempt to send it failed or was rolled back."""
        return is_aborted(self)

    def begun(self, history: History) -> int | None:
        """Return since when it can be in its queue.

        Of an only attempt in a transaction since its commit, else since the first attempt.
        """
        if self.transaction is not None and len(self.sends) == 1:
            return history.ended(self.transaction, "commit", "invoke")
        return stored_from(self)

    def instance(self, name: str, index: int, key: str | None = None) -> Instance:
        """An anomaly of this message, shown by row ``index``."""
        return Instance(name, self.queue, self.group, self.id, index, key)


def _largest(rows: Iterable[Row], column: str) -> Any:
    return max((r[column] for r in rows if r.get(column) is not None), default=None)


def _redelivered(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Any second delivery, where the guarantee allows none."""
    if "redelivery" in looked_for(options):
        for m in history.all_messages:
            if len(m.deliveries) > 1:
                yield m.instance("redelivery", m.deliveries[0]["index"])


def _admitted(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Answers by which a broker admits an error of its own."""
    words = options.broker.admits
    for r in history.rows:
        if words and r["process"] >= 0 and words in (r.get("error") or ""):
            yield Instance("internal-error", None, None, None, r["index"], r.get("broker"))


class Hold:
    """A delivery held for certain by its session over [begin, end); empty if end <= begin."""

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
        """Both certain at one instant, in two sessions; ``other`` began before."""
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
        mine = [Hold(history, d, rows, options) for d in deliveries]
        holds[queue, group] += mine
        found: dict[str, int] = {}
        twice: set[int] = set()
        if len(deliveries) > 1:  # two sessions settle what two got
            twice = settled_twice(history, PlainMessage(history, (queue, group, message), rows), options)
        for n, d in enumerate(deliveries):
            if n and _is_duplicate(history, rows, deliveries[:n], d, options):
                found.setdefault("duplicate", d["index"])
            elif (
                n
                and options.broker.marks_redeliveries != "never"
                and unflagged(history, deliveries[:n], d, options)
            ):
                found.setdefault("unflagged-redelivery", d["index"])
            settled = options.broker.refuses_stale_acks and d["index"] in twice
            if settled or any(mine[n].conflicts(earlier) for earlier in mine[:n]):
                found.setdefault("double-delivery", d["index"])
        for name, index in found.items():
            yield Instance(name, queue, group, message, index)
    for (queue, group), all_holds in holds.items():
        if group is not None:
            messages = history.lanes[queue, group]
            alternating = alternation(history, queue, messages, options)
            split = [_held_twice(all_holds, closings_of(messages)), alternating]
            first = min((index for index in split if index is not None), default=None)
            if first is not None:
                yield Instance("group-split", queue, group, None, first)


def _held_twice(holds: Sequence[Hold], closings: Sequence[Closing]) -> int | None:
    """Return the first delivery that conflicts with what another session holds of a group."""
    still: list[Hold] = []  # what may be held when the next one begins
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
    refused = {one.asked["index"] for one in questions(rows, "ack") if one.outcome == "fail"}
    for r in answers(rows, d):
        if r["index"] < d["index"]:
            transaction = r.get("transaction")
            excuse = r["index"] if r["f"] == "nack" or r["index"] in refused else None
            if excuse is None and transaction is not None:
                excuse = history.undone(transaction)
            if excuse is not None and excuse > previous:
                return False
    return True
