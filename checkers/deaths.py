"""When a broker's process was seen to be gone: what it had not stored by then it never will.

Why: a send of unknown outcome may sit in the buffers of the process that took it, and be stored
long after its client gave it up. A process that is gone has no buffers. So such a send was stored
before that, or never, and what was sent later comes later: unless the message came by way of
another broker. Of a message that was sent more than once each attempt of unknown outcome may sit
in another process, and all of these must be gone.

Nor can a process that is gone have done what it was asked for later: an acknowledgement, or a
commit, that was asked for on a connection to it after it had been seen gone did not happen.

Seen by the monitor (role "stopped"), by a fault that ended the process ("gone"), or by the harness
(``restart``).
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
    """What shows who was at the other end of a connection, one row a question.

    ``told`` is the latest row that names a broker, ``ns`` its moment and ``broker`` its place in
    ``Deaths.names``: ``NONE`` where no row does, or two rows name two.
    """

    told: Numbers
    ns: Numbers
    broker: Numbers

    @classmethod
    def of(cls, links: Keyed, run: Numbers, number: Numbers, before: Numbers) -> Answers:
        """The answers of some sessions, connections or transactions before some rows."""
        told, ns, broker = (links.find(name, run, number) for name in ("told", "ns", "broker"))
        known = (told != NONE) & (told < before) & (number != NONE)
        return cls(*(np.where(known, some, NONE) for some in (told, ns, broker)))

    def with_(self, others: Answers) -> Answers:
        """The later of each two, if they name one broker."""
        later = others.told > self.told
        one = (self.broker == others.broker) | (self.told == NONE) | (others.told == NONE)
        return Answers(
            np.where(later, others.told, self.told),
            np.where(later, others.ns, self.ns),
            np.where(one, np.where(later, others.broker, self.broker), NONE),
        )

    def beside(self, delivered: Answers) -> Answers:
        """Return these, or where there are none the deliveries; none where they name two brokers.

        A delivery may be read long after it was sent, so it says nothing of when a connection was
        there if an answer does.
        """
        both = self.with_(delivered)
        known = self.told != NONE
        return Answers(
            np.where(known, self.told, delivered.told), np.where(known, self.ns, delivered.ns), both.broker
        )


@dataclass(frozen=True, slots=True)
class AnsweredSince:
    """Until when sessions and connections were answered, as far as was asked for.

    ``sessions`` and ``connections``: the latest answer (``until``), and whether two brokers served
    them (``several``); ``proven``: until when a session was certainly alive
    (``checkers.sessions``).
    """

    sessions: Keyed = _NO_LINKS
    connections: Keyed = _NO_LINKS
    proven: Keyed = _NO_LINKS

    @classmethod
    def of(cls, some: Questions, servers: Servers, proven: Keyed) -> AnsweredSince:
        """The latest of some answers."""

        def known(column: str) -> Keyed:
            number, served = getattr(some, column), getattr(servers, column)
            run = np.concatenate([some.run, servers.run])
            whose = np.concatenate([number, served])
            answering = np.arange(len(run)) < len(number)
            latest = np.concatenate([-some.answered, np.zeros(len(served), dtype=np.int64)])
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
            values = {"until": np.where(until == NONE, NONE, -until), "several": (least != -most) * 1}
            return Keyed(lowest.numbers, lowest.keys, values)

        return cls(known("session"), known("connection"), proven)


@dataclass(frozen=True, slots=True)
class Deaths:
    """The deaths of brokers' processes, by (run, broker).

    ``rows`` has the rows that saw the broker gone, in order; ``possible_ns`` since when each of
    these deaths may have been, so that whoever was served later may have met the next process
    (the very end, where the order of rows tells).
    ``node_ids`` has the node ID that a broker told last. ``changes`` has all rows that tell of its
    role, as (index, earliest moment in ns): it may have been another process before.

    ``lives`` has since when and until when at most each broker was live, by run and broker: the
    moments (ns) in order, as many of the one as of the other.

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

    def of_one_node(self, run: int, one: str, other: str) -> bool:
        """Whether two brokers are one, or of one node ID: nothing need be forwarded."""
        node_id = self.node_ids.get((run, one))
        return one == other or (node_id is not None and node_id == self.node_ids.get((run, other)))

    def node(self, run: int, broker: str | None) -> int:
        """Return the number of the node of a broker, the same in every process."""
        if broker is None:
            return NONE
        node_id = self.node_ids.get((run, broker))
        return name_number(f"broker {broker}" if node_id is None else f"node {node_id}")

    def nodes(self, rows: Rows, at: Numbers) -> Numbers:
        """Return the node number of the broker of each of some rows."""
        pairs = np.column_stack([rows.run[at], rows.broker.codes[at]])
        kinds, which = np.unique(pairs, axis=0, return_inverse=True)
        names = rows.broker.values
        known = [self.node(run, names[code] if code >= 0 else None) for run, code in kinds.tolist()]
        return np.array(known, dtype=np.int64)[which.ravel()]

    def numbered(self, brokers: Texts, at: Numbers) -> Numbers:
        """The places in ``names`` of the brokers of some rows; ``NONE``: no broker that died."""
        places = {name: number for number, name in enumerate(self.names)}
        known = np.array([*(places.get(name, len(places)) for name in brokers.values), NONE], dtype=np.int64)
        result: Numbers = known[brokers.codes[at]]
        return result

    def gone_since(self, run: Numbers, session: Numbers, connection: Numbers, told: Answers) -> Numbers:
        """Return the first row that saw the process gone at the other end; ``NONE``: none did.

        Since the latest answer in that session or on that connection, as far as those are known:
        whoever gave it may have been another process. Nothing is said where two brokers served it.
        """
        links = ((self.answered.sessions, session), (self.answered.connections, connection))
        until = self.answered.proven.find("proven", run, session)
        several = np.zeros(len(run), dtype=bool)
        for known, number in links:
            until = np.maximum(until, known.find("until", run, number))
            several |= known.find("several", run, number) == 1
        since = np.where(told.told == NONE, NONE, np.maximum(told.told, until))
        return self._first_after(run, Answers(since, told.ns, np.where(several, NONE, told.broker)))

    def _first_after(self, run: Numbers, answers: Answers) -> Numbers:
        """The first row that saw the process gone that gave some answers; ``NONE``: none did."""
        result = np.full(len(run), NONE, dtype=np.int64)
        known = np.flatnonzero((answers.broker >= 0) & (answers.broker < len(self.names)))
        pairs = np.column_stack([run[known], answers.broker[known]])
        kinds, which = np.unique(pairs, axis=0, return_inverse=True)
        for number, (one, code) in enumerate(kinds.tolist()):
            key = (one, self.names[code])
            if key not in self.rows:
                continue
            seen, possible_ns = (
                np.array([*some, _EVER], dtype=np.int64) for some in (self.rows[key], self.possible_ns[key])
            )
            mine = known[which.ravel() == number]
            death = np.searchsorted(seen, answers.told[mine], "right")
            while (early := possible_ns[death] <= answers.ns[mine]).any():  # maybe of the next process
                death = death + early
            result[mine] = np.where(death < len(seen) - 1, seen[death], NONE)
        return result

    def committing(self, ends: Ends, run: Numbers, transaction: Numbers) -> Answers:
        """Who was asked for the commit of each transaction, by ``begin`` and ``connect``."""
        asked, connection = (
            ends.transactions.find(name, run, transaction) for name in ("asked", "connection")
        )
        told = Answers.of(self.transactions, run, transaction, asked)
        return told.with_(Answers.of(self.connections, run, connection, asked))

    def gone_before_commit(
        self, ends: Ends, run: Numbers, transaction: Numbers, session: Numbers, connection: Numbers
    ) -> Numbers:
        """The rows that show that transactions cannot have been committed.

        The process that was asked for it had been seen gone before; ``NONE`` for all others.
        ``session`` and ``connection`` are those of an operation in each.
        """
        asked, ok = (ends.transactions.find(name, run, transaction) for name in ("asked", "commit"))
        dead = np.full(len(run), NONE, dtype=np.int64)
        doubtful = np.flatnonzero((asked != NONE) & (ok == NONE))
        if len(doubtful) and self.rows:
            some = self.committing(ends, run[doubtful], transaction[doubtful])
            dead[doubtful] = self.gone_since(run[doubtful], session[doubtful], connection[doubtful], some)
        return np.where(dead < asked, dead, NONE)

    def one_process(self, run: int, broker: str | None, since: int, until: int, until_ns: int) -> bool:
        """Whether no row says that a broker was another process from a row to another.

        ``until_ns`` is the moment of the latter: a role may be told late.
        """
        key = (run, broker or "")
        died = any(since < row < until for row in self.rows.get(key, ()))
        changes = self.changes.get(key, ())
        return not died and not any(row > since and low <= until_ns for row, low in changes)


def read(known: Mapping[int, Facts], control: pa.Table | None = None) -> Deaths:
    """Read what the monitor, the nemesis and the harness wrote down.

    ``control``: all control rows, for what clients were answered by which broker.
    """
    seen: dict[Broker, list[tuple[int, int]]] = defaultdict(list)
    changes: dict[Broker, list[tuple[int, int]]] = defaultdict(list)
    node_ids: dict[Broker, str] = {}

    for run, facts in known.items():
        for row in facts.roles:
            changes[run, row["broker"]].append((row["index"], row["time_low"]))
            if row["role"] == "stopped":
                seen[run, row["broker"]].append((row["index"], row["time_low"]))
            if row["node_id"] is not None:
                node_ids[run, row["broker"]] = row["node_id"]
        for row in facts.restarts:
            seen[run, row["broker"]].append((row["index"], _EVER))
        for row in facts.faults:
            for broker in gone(row):
                seen[run, broker].append((row["index"], _EVER))
    deaths = Deaths(
        rows={broker: [index for index, _ in sorted(some)] for broker, some in seen.items()},
        possible_ns={broker: [ns for _, ns in sorted(some)] for broker, some in seen.items()},
        node_ids=node_ids,
        changes=changes,
        lives={run: _lives(facts.roles) for run, facts in known.items()},
        names=sorted({broker for _, broker in seen}),
    )
    return deaths if control is None else _with_links(deaths, control)


def _lives(roles: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Numbers, Numbers]]:
    """Since when and until when at most each broker was live, in order."""
    told: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in roles:
        if row["role"] != "unreachable":
            told[row["broker"]].append(row)
    lives = {}
    for broker, mine in told.items():
        ends = [row["time_high"] for row in mine[1:]] + [_EVER]
        spans = [
            (row["time_low"], max(end, row["time_low"]))
            for row, end in zip(mine, ends, strict=True)
            if row["role"] == "live"
        ]
        if spans:
            low, high = (np.sort(np.array(some, dtype=np.int64)) for some in zip(*spans, strict=True))
            lives[broker] = (low, high)
    return lives


def _with_links(deaths: Deaths, control: pa.Table) -> Deaths:
    """The same, and which broker was at the other end of each connection."""
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
        told = {"told": index[at], "ns": time[at], "broker": deaths.numbered(broker, at)}
        return Keyed.of(run[at], number[at], {name: (last, some) for name, some in told.items()})

    return replace(
        deaths,
        sessions=by("session", "subscribe"),
        connections=by("connection", "connect"),
        transactions=by("transaction", "begin"),
    )


def gone(row: Mapping[str, Any]) -> Sequence[str]:
    """The brokers whose processes a row of the nemesis saw gone."""
    observed = (json_object(row["value"]) or {}).get("observed")
    if row["type"] == "invoke" or not isinstance(observed, dict) or not ends_processes(row["f"]):
        return ()
    return [name for name, phrase in observed.items() if phrase == GONE]


def sealed(rows: Rows, unknown: Flags, deaths: Deaths, attempts: Attempts | None = None) -> Numbers:
    """By message of unknown outcome since which row it was stored; ``NONE``: nothing says so."""
    result = np.full(rows.messages, NONE, dtype=np.int64)
    if not unknown.any() or not deaths.rows:
        return result
    delivers, codes = rows.of(DELIVER), rows.broker.codes.astype(np.int64)
    giver = first(rows.id[delivers], codes[delivers], rows.messages)
    open_ = _open_sends(rows, codes, unknown, attempts)
    gone = np.full(len(open_.message), FOREVER, dtype=np.int64)
    at = np.flatnonzero(open_.alone & (giver[open_.message] >= 0))
    mine = open_.message[at]
    pairs = np.column_stack([rows.run[rows.first_row[mine]], open_.taker[at], giver[mine]])
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    for number, (run, one, other) in enumerate(kinds.tolist()):
        some, given = at[which.ravel() == number], rows.broker.values[other]
        if one < 0:
            gone[some] = _all_gone(deaths, run, given, open_, some)
        elif deaths.of_one_node(run, rows.broker.values[one], given):
            gone[some] = _first_death(deaths, run, rows.broker.values[one], open_.asked[some])
    latest = highest(open_.message, gone, rows.messages)
    return np.where(latest == FOREVER, NONE, latest)


def _first_death(deaths: Deaths, run: int, broker: str, asked: Numbers) -> Numbers:
    """The first rows behind some questions that saw a broker's process gone; ``FOREVER``: none."""
    seen = np.array([*deaths.rows.get((run, broker), ()), FOREVER], dtype=np.int64)
    result: Numbers = seen[np.searchsorted(seen, asked, "right")]
    return result


def _all_gone(deaths: Deaths, run: int, given: str, open_: _OpenSends, some: Numbers) -> Numbers:
    """The rows by which all brokers were gone that can have taken sends that name none.

    These are all that may have been live from question to answer, each in one life, of the node of
    the broker that gave the message out. ``FOREVER``: not all are gone, none was live, or the send
    was never given up.
    """
    asked_ns, answered_ns = open_.asked_ns[some], open_.answered_ns[some]
    gone = np.full(len(some), NONE, dtype=np.int64)
    for broker, (low, high) in deaths.lives.get(run, {}).items():
        begun, over = np.searchsorted(low, answered_ns, "right"), np.searchsorted(high, asked_ns, "left")
        death = np.full(len(some), FOREVER, dtype=np.int64)
        if deaths.of_one_node(run, broker, given):
            death = _first_death(deaths, run, broker, open_.asked[some])
        death = np.where(begun - over == 1, death, FOREVER)
        gone = np.where(begun > over, np.maximum(gone, death), gone)
    return np.where((gone == NONE) | (answered_ns == _EVER), FOREVER, gone)


@dataclass(frozen=True, slots=True)
class _OpenSends:
    """Sends of unknown outcome: when each was asked for, and the code of the broker that took it.

    ``taker`` is ``NONE`` where no row names the broker. ``alone``: in no transaction. ``asked_ns``
    and ``answered_ns`` are the moments of question and answer; the very end where there is none.
    """

    message: Numbers
    asked: Numbers
    asked_ns: Numbers
    answered_ns: Numbers
    taker: Numbers
    alone: Flags


def _open_sends(rows: Rows, codes: Numbers, unknown: Flags, attempts: Attempts | None) -> _OpenSends:
    """Return the sends of unknown outcome of some messages."""
    takers, times = np.append(np.where(codes < 0, NONE, codes), NONE), np.append(rows.time, _EVER)

    def sends(message: Numbers, at: Numbers, answer: Numbers) -> _OpenSends:
        return _OpenSends(
            message, rows.index[at], rows.time[at], times[answer], takers[answer],
            rows.transaction[at] == NONE,
        )  # fmt: skip

    asked, ends = rows.of(SEND_INVOKE), rows.of(SEND_INFO)
    once = unknown if attempts is None else unknown & ~attempts.several
    asked = asked[once[rows.id[asked]]]
    answer = first(rows.id[ends], ends, rows.messages)[rows.id[asked]]
    found = sends(rows.id[asked].astype(np.int64), asked, np.where(answer == NONE, -1, answer))
    if attempts is None:
        return found
    at = np.flatnonzero(attempts.unknown & unknown[attempts.message])
    return joined([found, sends(attempts.message[at], attempts.row[at], attempts.answer[at])])
