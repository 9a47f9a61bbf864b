"""Queues that an administrator deletes: what they are owed, and what must not come back.

A ``delete`` ends a queue with the messages that wait there, at all brokers that its clients use.
The queue begins anew by itself, or with the next ``create``.

    owed        messages that were sent after all deletes that did not fail had been answered
                ``ok``, to a broker that certainly knew of them. A ``delete`` whose outcome is
                unknown may happen at any later time, so after it nothing is owed
    comes back  a message that was certain before a ``delete`` was invoked which was answered
                ``ok``. Then a session that began after the answer got it, or a main store had it;
                and both brokers, the one that took it and the one that showed it, certainly knew
                of the ``delete`` by then

A broker that cannot be reached learns of a ``delete`` later. When it certainly knew is said in
``Deletions.knew``. A restored record puts changes in doubt (``checkers.restores``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from checkers import restores
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.excuses import Excuses
from checkers.facts import Facts
from checkers.restores import Request
from checkers.rows import (
    BROWSE,
    DELIVER,
    NONE,
    SEND_OK,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    first,
    lowest,
    texts_of,
)
from checkers.verdict import CheckOptions

Queue = tuple[int, str]
"""A queue of a run: (run, queue)."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """The deletes of all queues that did not fail, in the order of their invocations.

    ``starts`` has, by (run, broker), the rows in which the monitor saw a process that it had seen
    stopped before, each with the moment (ns) of that look. ``drained_from`` has the row with which
    the drain of each run began.
    """

    histories: Mapping[Queue, Sequence[Request]] = field(default_factory=dict)
    excuses: Mapping[int, Excuses] = field(default_factory=dict)
    deaths: Deaths = field(default_factory=Deaths)
    starts: Mapping[Queue, Sequence[tuple[int, int]]] = field(default_factory=dict)
    drained_from: Mapping[int, int] = field(default_factory=dict)

    @property
    def queues(self) -> frozenset[Queue]:
        """The queues that may have ended with the messages that waited there."""
        return frozenset(self.histories)

    def knew(self, run: int, delete: Request, broker: str | None, index: int) -> bool:
        """Return whether a broker (None: any) certainly knew of a delete before a row."""
        home = delete.broker
        if delete.outcome != "ok" or delete.answered > index:
            return False
        if index > self.drained_from.get(run, restores.NEVER):
            return True
        if broker is not None:
            if home is not None and self.deaths.of_one_node(run, broker, home):
                return True
            started = self.starts.get((run, broker), ())
            if any(row < index and ns >= delete.answered_ns for row, ns in started):
                return True
        excuses = self.excuses[run]
        brokers = () if broker is None or home is None else (broker, home)
        return not excuses.may_cut(delete.asked_ns, delete.answered_ns, brokers)

    def _is_over(self, run: int, deletes: Sequence[Request], broker: str | None, index: int) -> bool:
        """Return whether a broker certainly had all deletes behind it before a row."""
        if any(delete.outcome != "ok" or delete.answered > index for delete in deletes):
            return False
        known_deletes = [delete for delete in deletes if self.knew(run, delete, broker, index)]
        return all(
            delete in known_deletes or any(delete.answered < later.asked for later in known_deletes)
            for delete in deletes
        )

    def owed(self, rows: Rows, places: PlaceTable, sent: Numbers) -> Flags:
        """Return which messages are owed in spite of the deletes.

        ``sent`` is the first send of each message that may have arrived.
        """
        result = np.ones(rows.messages, dtype=bool)
        at = np.flatnonzero(places.deleted()[rows.place[rows.first_row]])
        result[at[sent[at] == NONE]] = False
        taker = _takers(rows)
        alike: dict[tuple[Queue, str | None], list[int]] = defaultdict(list)
        for life in at[sent[at] != NONE].tolist():
            run, queue, _ = places.named[rows.place[rows.first_row[life]]]
            alike[(run, queue or ""), taker[life]].append(life)
        for ((run, queue), broker), lives in alike.items():
            is_over = partial(self._is_over, run, self.histories[run, queue], broker)
            lives.sort(key=lambda life: int(sent[life]))
            # What a broker has behind it stays behind it: the first message that is owed tells.
            result[lives[: bisect_left(lives, True, key=lambda life: is_over(int(sent[life])))]] = False
        return result

    def shown_again(self, rows: Rows, places: PlaceTable, over: Numbers, ends: Ends) -> Numbers | None:
        """Return the first row that shows each message though its queue was deleted; None: no row.

        ``over`` is the row after which no send of the message can store it any more.
        """
        at = rows.of(DELIVER, BROWSE)
        at = at[places.deleted()[rows.place[at]] & (over[rows.id[at]] != NONE)]
        at = at[(rows.kind[at] == DELIVER) | rows.value.are("main")[at]]
        if not len(at):
            return None
        begun = ends.sessions.find("begun", rows.run[at], rows.session[at])
        since = np.where(rows.kind[at] == BROWSE, rows.index[at], begun)
        taker = _takers(rows)
        wrong = np.zeros(len(at), dtype=bool)
        for n, row in enumerate(at.tolist()):
            run, queue, _ = places.named[rows.place[row]]
            index, life = int(since[n]), rows.id[row]
            wrong[n] = any(
                over[life] < delete.asked
                and self.knew(run, delete, rows.broker.at(row), index)
                and self.knew(run, delete, taker[life], index)
                for delete in self.histories[run, queue or ""]
            )
        at = at[wrong]
        return lowest(rows.id[at], rows.index[at], rows.messages) if len(at) else None


def _takers(rows: Rows) -> list[str | None]:
    """Return the broker that answered the first ``ok`` send of each message; None if not known."""
    answers = rows.of(SEND_OK)
    codes = first(rows.id[answers], rows.broker.codes[answers].astype(np.int64), rows.messages)
    return [None if code < 0 else str(rows.broker.values[code]) for code in codes.tolist()]


def read(
    control: pa.Table, facts_by_run: Mapping[int, Facts], deaths: Deaths, options: CheckOptions
) -> Deletions:
    """Return the facts about deleted queues from all control rows.

    The table has columns of ``checkers.schema``, and may have ``run``.
    """
    relevant = texts_of(control, "f").are("create", "delete") & (texts_of(control, "queue").codes >= 0)
    if not relevant.any():
        return Deletions()
    changes: dict[Queue, dict[str, list[Request]]] = defaultdict(lambda: {"create": [], "delete": []})
    open_requests: dict[tuple[int, int, str, str], int] = {}
    rows = control.filter(pa.array(relevant)).to_pylist()
    for row in sorted(rows, key=lambda one: one["index"]):
        run = row.get("run") or 0
        requests = changes[run, row["queue"]][row["f"]]
        key = (run, row["process"], row["f"], row["queue"])
        if row["type"] == "invoke":
            open_requests[key] = len(requests)
            requests.append(Request(row["index"], asked_ns=row["time"]))
        elif key in open_requests:
            at = open_requests.pop(key)
            requests[at] = replace(
                requests[at],
                answered=row["index"],
                outcome=row["type"],
                broker=row.get("broker"),
                answered_ns=row["time"],
            )
    restored = restores.read(control)
    histories = {}
    for (run, queue), by_kind in changes.items():
        every = [*by_kind["create"], *by_kind["delete"]]
        ends = restores.endings(every, by_kind["delete"], restored.get(run, ()))
        effective = [delete for delete in ends if delete.outcome != "fail"]
        if effective:
            histories[run, queue] = effective
    return Deletions(
        histories,
        {run: facts.excuses(options) for run, facts in facts_by_run.items()},
        deaths,
        {
            (run, broker): started
            for run, facts in facts_by_run.items()
            for broker, started in _starts(facts).items()
        },
        {run: facts.drained_from for run, facts in facts_by_run.items()},
    )


def _starts(facts: Facts) -> dict[str, list[tuple[int, int]]]:
    """Return the rows that saw a process after one that saw none, with their ``time_low``.

    They are by broker.
    """
    starts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    last: dict[str, str] = {}
    for row in facts.roles:
        if last.get(row["broker"]) == "stopped" and row["role"] not in ("stopped", "unreachable"):
            starts[row["broker"]].append((row["index"], row["time_low"]))
        last[row["broker"]] = row["role"]
    return starts
