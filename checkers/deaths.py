"""The deaths of brokers' processes, and the sends and acknowledgements that they decide.

Why sends: a send of unknown outcome may sit in the buffers of the process that took it, and be
stored long after its client gave it up. A process that is gone has no buffers. So such a send was
stored before the process was seen to be gone, or never, and what was sent later comes later. The
exception is a message that came by way of another broker. If a message was sent more than once,
each attempt of unknown outcome may sit in another process, and all of these must be gone.

Why acknowledgements: a process that is gone cannot do what it is asked for. An acknowledgement, or
a commit, did not happen if it was asked for on a connection to a process that had been seen gone.

A process is seen to be gone by the monitor (role "stopped"), by a fault that ended it ("gone"), or
by the harness (``restart``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.attempts import Attempts
from checkers.ends import Ends, Keyed
from checkers.excuses import GONE, ends_processes
from checkers.facts import Facts
from checkers.links import Questions, Servers
from checkers.rows import (
    DELIVER,
    FOREVER,
    NONE,
    SEND_INFO,
    SEND_INVOKE,
    Flags,
    Numbers,
    Rows,
    Texts,
    first,
    highest,
    joined,
    name_number,
    numbers_of,
    texts_of,
)
from checkers.schema import json_object

Broker = tuple[int, str]
"""(run, broker)."""
_NO_LINKS: Final = Keyed(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), {})
_EVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Answers:
    """The rows that show which broker was at the other end of a connection, one for each question.

    ``told`` is the latest row that names a broker, ``ns`` its moment and ``broker`` the place of
    the broker in ``Deaths.names``. They are ``NONE`` where no row names a broker; ``broker`` is
    ``NONE``, too, where two rows name two brokers.
    """

    told: Numbers
    ns: Numbers
    broker: Numbers

    @classmethod
    def of(cls, links: Keyed, run: Numbers, number: Numbers, before: Numbers) -> Answers:
        """Return the answers to some sessions, connections or transactions before some rows.

        ``number`` are the numbers of these in ``links``, ``before`` the rows.
        """
        rows, ns, broker = (links.find(name, run, number) for name in ("told", "ns", "broker"))
        return cls(*(np.where(rows < before, values, NONE) for values in (rows, ns, broker)))

    def with_(self, other_answers: Answers) -> Answers:
        """Return the later of each two answers; its broker is ``NONE`` if they name two brokers."""
        later = other_answers.told > self.told
        is_one_broker = (
            (self.broker == other_answers.broker) | (self.told == NONE) | (other_answers.told == NONE)
        )
        return Answers(
            np.where(later, other_answers.told, self.told),
            np.where(later, other_answers.ns, self.ns),
            np.where(is_one_broker, np.where(later, other_answers.broker, self.broker), NONE),
        )

    def or_deliveries(self, delivered: Answers) -> Answers:
        """Return these answers, and deliveries in place of those that are missing.

        The broker is ``NONE`` where an answer and a delivery name two brokers. A delivery may be
        read long after it was sent. So the moment of an answer says until when a connection
        existed, and the moment of a delivery counts only where there is no answer.
        """
        combined = self.with_(delivered)
        is_known = self.told != NONE
        return Answers(
            np.where(is_known, self.told, delivered.told),
            np.where(is_known, self.ns, delivered.ns),
            combined.broker,
        )


def _opposite(numbers: Numbers) -> Numbers:
    """Return the numbers with the other sign, except ``NONE``."""
    return np.where(numbers == NONE, NONE, -numbers)


@dataclass(frozen=True, slots=True)
class AnsweredSince:
    """The latest answers in sessions, connections and transactions that were looked at.

    Each of these has the latest answer (``until``), and the lowest and the highest number of the
    brokers that served it (``least``, ``most``). ``proven`` has until when a session was certainly
    alive (``checkers.sessions``).
    """

    sessions: Keyed = _NO_LINKS
    connections: Keyed = _NO_LINKS
    transactions: Keyed = _NO_LINKS
    proven: Keyed = _NO_LINKS

    @classmethod
    def of(cls, asking: Questions, servers: Servers, proven: Keyed) -> AnsweredSince:
        """Return the latest answers of some questions."""

        def latest_by(column: str) -> Keyed:
            number, served = getattr(asking, column), getattr(servers, column)
            run = np.concatenate([asking.run, servers.run])
            whose = np.concatenate([number, served])
            answering = np.arange(len(run)) < len(number)
            latest = np.concatenate([-asking.answered, np.zeros(len(served), dtype=np.int64)])
            broker = np.concatenate([np.zeros(len(number), dtype=np.int64), servers.broker])
            named = whose != NONE
            lowest = Keyed.of(
                run[named], whose[named],
                {
                    "until": (answering[named], latest[named]),
                    "least": (~answering[named], broker[named]),
                    "most": (~answering[named], -broker[named]),
                },
            )  # fmt: skip
            until, least, most = (lowest.values[name] for name in ("until", "least", "most"))
            values = {"until": _opposite(until), "least": least, "most": _opposite(most)}
            return Keyed(lowest.numbers, lowest.keys, values)

        return cls(latest_by("session"), latest_by("connection"), latest_by("transaction"), proven)


@dataclass(frozen=True, slots=True)
class Deaths:
    """The deaths of brokers' processes, by (run, broker).

    ``rows`` has the rows that saw the broker gone, in order. ``possible_ns`` has the earliest
    moment of each of these deaths: a client that was served later may have met the next process. It
    is the very end where the order of rows alone decides.
    ``node_ids`` has the node ID that a broker reported last. ``changes`` has all rows of its role,
    as (index, earliest moment in ns): it may have been another process before.

    ``lives`` has the earliest begin and the latest end of each time for which a broker was live, by
    run and broker: moments (ns) in order, as many begins as ends.

    ``sessions``, ``connections`` and ``transactions`` say, by (run, number), which broker answered
    the latest ``subscribe``, ``connect`` or ``begin``: ``told`` (the row), ``ns`` (its moment) and
    ``broker`` (its place in ``names``).
    """

    rows: Mapping[Broker, Sequence[int]] = field(default_factory=dict)
    possible_ns: Mapping[Broker, Sequence[int]] = field(default_factory=dict)
    node_ids: Mapping[Broker, str] = field(default_factory=dict)
    changes: Mapping[Broker, Sequence[tuple[int, int]]] = field(default_factory=dict)
    lives: Mapping[int, Mapping[str, tuple[Numbers, Numbers]]] = field(default_factory=dict)
    names: Sequence[str] = ()
    sessions: Keyed = _NO_LINKS
    connections: Keyed = _NO_LINKS
    transactions: Keyed = _NO_LINKS
    answered: AnsweredSince = field(default_factory=AnsweredSince)

    def of_one_node(self, run: int, broker: str, other: str) -> bool:
        """Return whether two brokers are the same or have one node ID.

        Then nothing has to be forwarded from one to the other.
        """
        node_id = self.node_ids.get((run, broker))
        return broker == other or (node_id is not None and node_id == self.node_ids.get((run, other)))

    def node(self, run: int, broker: str | None) -> int:
        """Return the number of the node of a broker, the same in every process."""
        if broker is None:
            return NONE
        node_id = self.node_ids.get((run, broker))
        return name_number(f"broker {broker}" if node_id is None else f"node {node_id}")

    def nodes(self, rows: Rows, at: Numbers) -> Numbers:
        """Return the node number of the broker of each of some rows."""
        pairs = np.column_stack([rows.run[at], rows.broker.codes[at]])
        kinds, pair_of = np.unique(pairs, axis=0, return_inverse=True)
        names = rows.broker.values
        numbers = [self.node(run, names[code] if code >= 0 else None) for run, code in kinds.tolist()]
        return np.array(numbers, dtype=np.int64)[pair_of.ravel()]

    def numbered(self, brokers: Texts, at: Numbers) -> Numbers:
        """Return the places in ``names`` of the brokers of some rows.

        ``NONE`` where a row names no broker; ``len(names)`` for a broker that was never seen gone.
        """
        places = {name: number for number, name in enumerate(self.names)}
        place_of = np.array(
            [*(places.get(name, len(places)) for name in brokers.values), NONE], dtype=np.int64
        )
        result: Numbers = place_of[brokers.codes[at]]
        return result

    def gone_since(
        self, run: Numbers, session: Numbers, connection: Numbers, transaction: Numbers, answers: Answers
    ) -> Numbers:
        """Return the first row that saw the process at the other end gone; ``NONE``: none did.

        Only rows after the latest known answer in that session, on that connection or in that
        transaction count, since another process may have given that answer. The result is ``NONE``,
        too, where two brokers served one of these.
        """
        links = (
            (self.answered.sessions, session),
            (self.answered.connections, connection),
            (self.answered.transactions, transaction),
        )
        until = self.answered.proven.find("proven", run, session)
        least, most = np.full(len(run), _EVER, dtype=np.int64), np.full(len(run), NONE, dtype=np.int64)
        for keyed, number in links:
            until = np.maximum(until, keyed.find("until", run, number))
            lowest = keyed.find("least", run, number)
            least = np.where(lowest == NONE, least, np.minimum(least, lowest))
            most = np.maximum(most, keyed.find("most", run, number))
        several = least < most
        since = np.where(answers.told == NONE, NONE, np.maximum(answers.told, until))
        return self._first_after(run, Answers(since, answers.ns, np.where(several, NONE, answers.broker)))

    def _first_after(self, run: Numbers, answers: Answers) -> Numbers:
        """Return the first row that saw the process gone that gave each answer; ``NONE``: none."""
        result = np.full(len(run), NONE, dtype=np.int64)
        at = np.flatnonzero((answers.broker >= 0) & (answers.broker < len(self.names)))
        pairs = np.column_stack([run[at], answers.broker[at]])
        kinds, pair_of = np.unique(pairs, axis=0, return_inverse=True)
        for number, (run_number, code) in enumerate(kinds.tolist()):
            key = (run_number, self.names[code])
            if key not in self.rows:
                continue
            death_rows, possible_ns = (
                np.array([*values, _EVER], dtype=np.int64)
                for values in (self.rows[key], self.possible_ns[key])
            )
            members = at[pair_of.ravel() == number]
            death = np.searchsorted(death_rows, answers.told[members], "right")
            while (early := possible_ns[death] <= answers.ns[members]).any():  # maybe of the next process
                death = death + early
            result[members] = np.where(death < len(death_rows) - 1, death_rows[death], NONE)
        return result

    def committing(self, ends: Ends, run: Numbers, transaction: Numbers) -> Answers:
        """Return the answers that show which broker was asked for each transaction's commit.

        They are the answers to the ``begin`` and to the ``connect`` before the commit was invoked.
        """
        commits, connection = (
            ends.transactions.find(name, run, transaction) for name in ("asked", "connection")
        )
        by_begin = Answers.of(self.transactions, run, transaction, commits)
        return by_begin.with_(Answers.of(self.connections, run, connection, commits))

    def gone_before_commit(
        self, ends: Ends, run: Numbers, transaction: Numbers, session: Numbers, connection: Numbers
    ) -> Numbers:
        """Return the rows that show that transactions cannot have been committed.

        Such a row saw the process gone before the commit was asked of it; ``NONE`` for all other
        transactions. ``session`` and ``connection`` are those of an operation in each transaction.
        """
        commits, ok = (ends.transactions.find(name, run, transaction) for name in ("asked", "commit"))
        dead = np.full(len(run), NONE, dtype=np.int64)
        doubtful = np.flatnonzero((commits != NONE) & (ok == NONE))
        if len(doubtful) and self.rows:
            answers = self.committing(ends, run[doubtful], transaction[doubtful])
            dead[doubtful] = self.gone_since(
                run[doubtful], session[doubtful], connection[doubtful], transaction[doubtful], answers
            )
        return np.where(dead < commits, dead, NONE)

    def one_process(self, run: int, broker: str | None, since: int, until: int, until_ns: int) -> bool:
        """Return whether a broker may have been one process from one row to another.

        It may, if no row says that its process died or its role changed between. ``until_ns`` is
        the moment of the second row: a row of a role may come later than the change. A broker that
        the rows do not name may be each of those whose deaths or roles the history tells.
        """
        if broker is None:
            return all(known_run != run for known_run, _ in [*self.rows, *self.changes])
        key = (run, broker)
        died = any(since < row < until for row in self.rows.get(key, ()))
        changes = self.changes.get(key, ())
        return not died and not any(row > since and low <= until_ns for row, low in changes)


def read(facts_by_run: Mapping[int, Facts], control: pa.Table) -> Deaths:
    """Return the deaths that the monitor, the nemesis and the harness recorded.

    ``control`` are all control rows: they say which broker answered which client.
    """
    deaths_seen: dict[Broker, list[tuple[int, int]]] = defaultdict(list)
    changes: dict[Broker, list[tuple[int, int]]] = defaultdict(list)
    node_ids: dict[Broker, str] = {}

    for run, facts in facts_by_run.items():
        for row in facts.roles:
            changes[run, row["broker"]].append((row["index"], row["time_low"]))
            if row["role"] == "stopped":
                deaths_seen[run, row["broker"]].append((row["index"], row["time_low"]))
            if row["node_id"] is not None:
                node_ids[run, row["broker"]] = row["node_id"]
        for row in facts.restarts:
            deaths_seen[run, row["broker"]].append((row["index"], _EVER))
        for row in facts.faults:
            for broker in brokers_gone(row):
                deaths_seen[run, broker].append((row["index"], _EVER))
    deaths = Deaths(
        rows={broker: [index for index, _ in sorted(moments)] for broker, moments in deaths_seen.items()},
        possible_ns={broker: [ns for _, ns in sorted(moments)] for broker, moments in deaths_seen.items()},
        node_ids=node_ids,
        changes=changes,
        lives={run: _lives(facts.roles) for run, facts in facts_by_run.items()},
        names=sorted({broker for _, broker in deaths_seen}),
    )
    return _with_links(deaths, control)


def _lives(roles: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Numbers, Numbers]]:
    """Return the earliest begins and latest ends of the times for which each broker was live."""
    by_broker: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in roles:
        if row["role"] != "unreachable":
            by_broker[row["broker"]].append(row)
    lives = {}
    for broker, broker_rows in by_broker.items():
        ends = [row["time_high"] for row in broker_rows[1:]] + [_EVER]
        spans = [
            (row["time_low"], max(end, row["time_low"]))
            for row, end in zip(broker_rows, ends, strict=True)
            if row["role"] == "live"
        ]
        if spans:
            low, high = (np.sort(np.array(moments, dtype=np.int64)) for moments in zip(*spans, strict=True))
            lives[broker] = (low, high)
    return lives


def _with_links(deaths: Deaths, control: pa.Table) -> Deaths:
    """Return the deaths together with the brokers that answered sessions, connections, begins."""
    index, time = numbers_of(control, "index"), numbers_of(control, "time")
    run = numbers_of(control, "run") if "run" in control.column_names else np.zeros(len(index), np.int64)
    f, broker = texts_of(control, "f"), texts_of(control, "broker")
    named = texts_of(control, "type").are("ok") & (broker.codes >= 0)

    def by(column: str, operation: str) -> Keyed:
        number = numbers_of(control, column)
        at = np.flatnonzero(named & f.are(operation) & (number != NONE))
        every = np.ones(len(at), dtype=bool)
        latest = Keyed.of(run[at], number[at], {"row": (every, -index[at])})
        last = -latest.find("row", run[at], number[at]) == index[at]
        columns = {"told": index[at], "ns": time[at], "broker": deaths.numbered(broker, at)}
        return Keyed.of(run[at], number[at], {name: (last, values) for name, values in columns.items()})

    return replace(
        deaths,
        sessions=by("session", "subscribe"),
        connections=by("connection", "connect"),
        transactions=by("transaction", "begin"),
    )


def brokers_gone(row: Mapping[str, Any]) -> Sequence[str]:
    """Return the brokers whose processes a row of the nemesis saw gone."""
    observed = (json_object(row["value"]) or {}).get("observed")
    if row["type"] == "invoke" or not isinstance(observed, dict) or not ends_processes(row["f"]):
        return ()
    return [name for name, phrase in observed.items() if phrase == GONE]


def sealed(rows: Rows, unknown: Flags, deaths: Deaths, attempts: Attempts | None = None) -> Numbers:
    """Return by message the row by which its sends of unknown outcome were stored or never will be.

    ``NONE`` where nothing says so, and for messages that ``unknown`` does not flag.
    """
    result = np.full(rows.messages, NONE, dtype=np.int64)
    if not unknown.any() or not deaths.rows:
        return result
    delivers, codes = rows.of(DELIVER), rows.broker.codes.astype(np.int64)
    giver = first(rows.id[delivers], codes[delivers], rows.messages)
    open_ = _open_sends(rows, codes, unknown, attempts)
    sealing = np.full(len(open_.message), FOREVER, dtype=np.int64)
    at = np.flatnonzero(open_.untransacted & (giver[open_.message] >= 0))
    messages_open = open_.message[at]
    pairs = np.column_stack([rows.run[rows.first_row[messages_open]], open_.taker[at], giver[messages_open]])
    kinds, pair_of = np.unique(pairs, axis=0, return_inverse=True)
    for number, (run, taker_code, other) in enumerate(kinds.tolist()):
        members, giver_name = at[pair_of.ravel() == number], rows.broker.values[other]
        if taker_code < 0:
            sealing[members] = _all_gone(deaths, run, giver_name, open_, members)
        elif deaths.of_one_node(run, rows.broker.values[taker_code], giver_name):
            sealing[members] = _first_death(deaths, run, rows.broker.values[taker_code], open_.asked[members])
    latest = highest(open_.message, sealing, rows.messages)
    return np.where(latest == FOREVER, NONE, latest)


def _first_death(deaths: Deaths, run: int, broker: str, invocations: Numbers) -> Numbers:
    """Return the first row after each question that saw a broker's process gone.

    ``FOREVER`` where no row did.
    """
    death_rows = np.array([*deaths.rows.get((run, broker), ()), FOREVER], dtype=np.int64)
    result: Numbers = death_rows[np.searchsorted(death_rows, invocations, "right")]
    return result


def _all_gone(deaths: Deaths, run: int, giver: str, open_: _OpenSends, sends: Numbers) -> Numbers:
    """Return the rows by which all brokers were gone that can have taken sends without a broker.

    These brokers are all that may have been live from question to answer. Each must have been live
    once only, and belong to the node of the broker that delivered the message first. ``FOREVER``:
    not all are gone, none was live, or the send was never answered.
    """
    asked_ns, answered_ns = open_.asked_ns[sends], open_.answered_ns[sends]
    sealing = np.full(len(sends), NONE, dtype=np.int64)
    for broker, (low, high) in deaths.lives.get(run, {}).items():
        begun, over = np.searchsorted(low, answered_ns, "right"), np.searchsorted(high, asked_ns, "left")
        death = np.full(len(sends), FOREVER, dtype=np.int64)
        if deaths.of_one_node(run, broker, giver):
            death = _first_death(deaths, run, broker, open_.asked[sends])
        death = np.where(begun - over == 1, death, FOREVER)
        sealing = np.where(begun > over, np.maximum(sealing, death), sealing)
    return np.where((sealing == NONE) | (answered_ns == _EVER), FOREVER, sealing)


@dataclass(frozen=True, slots=True)
class _OpenSends:
    """The sends of unknown outcome, one row for each.

    ``asked`` is the row of the invocation, ``taker`` the code of the broker that took the send,
    ``NONE`` where no row names it. ``untransacted``: the send was in no transaction. ``asked_ns``
    and ``answered_ns`` are the moments of question and answer; the very end without an answer.
    """

    message: Numbers
    asked: Numbers
    asked_ns: Numbers
    answered_ns: Numbers
    taker: Numbers
    untransacted: Flags


def _open_sends(rows: Rows, codes: Numbers, unknown: Flags, attempts: Attempts | None) -> _OpenSends:
    """Return the sends of unknown outcome of some messages."""
    takers, times = np.append(np.where(codes < 0, NONE, codes), NONE), np.append(rows.time, _EVER)

    def sends(message: Numbers, at: Numbers, answer: Numbers) -> _OpenSends:
        return _OpenSends(
            message, rows.index[at], rows.time[at], times[answer], takers[answer],
            rows.transaction[at] == NONE,
        )  # fmt: skip

    invokes, ends = rows.of(SEND_INVOKE), rows.of(SEND_INFO)
    once = unknown if attempts is None else unknown & ~attempts.several
    invokes = invokes[once[rows.id[invokes]]]
    answer = first(rows.id[ends], ends, rows.messages)[rows.id[invokes]]
    sent_once = sends(rows.id[invokes].astype(np.int64), invokes, np.where(answer == NONE, -1, answer))
    if attempts is None:
        return sent_once
    at = np.flatnonzero(attempts.unknown & unknown[attempts.message])
    return joined([sent_once, sends(attempts.message[at], attempts.row[at], attempts.answer[at])])
