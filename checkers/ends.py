"""The ends of sessions and transactions, from the control rows.

The rules about messages need them with every part. They are few compared with the messages, so
every task gets all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.rows import NONE, Flags, Numbers, Texts, earliest, numbers_of, texts_of
from checkers.schema import MONITOR

_EVER: Final = np.iinfo(np.int64).max - 1
"""A moment after every other, below the largest number, which ``Keyed`` takes for no value."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Columns of values by (run, number), from which many are looked up at once."""

    numbers: Numbers
    keys: Numbers
    values: Mapping[str, Numbers]

    @classmethod
    def of(
        cls, run: Numbers, number: Numbers, lowest: Mapping[str, tuple[npt.NDArray[np.bool_], Numbers]]
    ) -> Keyed:
        """Return the lowest value of each column for each (run, number).

        ``lowest`` has by the name of the column (flags, values): only the flagged rows count.
        """
        numbers = np.unique(number)
        combined = run * len(numbers) + np.searchsorted(numbers, number)
        keys, inverse = np.unique(combined, return_inverse=True)
        values = {}
        for name, (counts, value) in lowest.items():
            column = np.full(len(keys), np.iinfo(np.int64).max, dtype=np.int64)
            np.minimum.at(column, inverse[counts], value[counts])
            values[name] = np.where(column == np.iinfo(np.int64).max, NONE, column)
        return cls(numbers, keys, values)

    def find(self, name: str, run: Numbers, number: Numbers) -> Numbers:
        """Return the values of a column for some (run, number); ``NONE`` where there is none."""
        if not len(self.keys):
            return np.full(len(number), NONE, dtype=np.int64)
        position, numbered = _positions_among(self.numbers, number)
        at, is_present = _positions_among(self.keys, run * len(self.numbers) + position)
        return np.where(numbered & is_present, self.values[name][at], NONE)

    def counted(self, run: Numbers, number: Numbers) -> Numbers:
        """Return how often each known (run, number) occurs among those given, all of them known."""
        keys = run * len(self.numbers) + np.searchsorted(self.numbers, number)
        return np.bincount(np.searchsorted(self.keys, keys), minlength=len(self.keys))


def _positions_among(among: Numbers, numbers: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return the position of each wanted number among sorted numbers, and whether it is there.

    The position of a number that is not there means nothing. Where the numbers are dense, as those
    of sessions are, they are found by a table: a search for each takes ten times as long.
    """
    low, span = int(among[0]), int(among[-1]) - int(among[0]) + 1
    if span > 4 * len(among) + len(numbers):
        at = np.minimum(np.searchsorted(among, numbers), len(among) - 1)
        return at, among[at] == numbers
    table = np.zeros(span, dtype=np.int64)
    table[among - low] = np.arange(len(among))
    at = table.take(numbers - low, mode="clip")
    return at, among[at] == numbers


@dataclass(frozen=True, slots=True)
class Ends:
    """The rows that end sessions and transactions, by (run, session) and (run, transaction).

    ``sessions`` has ``begun`` (first subscribe invocation; ``begun_ns`` is its moment), ``ended``
    (first unsubscribe invocation or disconnect row), ``left`` (an unsubscribe that was answered),
    ``answered`` (the answer), ``lost`` (the disconnect row) and ``over`` (the earlier of these two:
    nothing may be delivered later). ``reign`` is the row that says that its broker had become live.
    ``until`` is the moment (ns) up to which the broker certainly was live without a break: within
    that span one process served all sessions of the broker.

    ``holders`` has by (run, queue), sorted, the last row at which each session that has ended may
    have been given something: the answer to its unsubscribe, else any row.

    ``endings`` has by (run, queue) the rows with which its sessions ended, in order.

    ``transactions`` has these columns, rows unless something else is said:

        commit, abort   the ``ok`` of a commit, of an abort
        commit_ns       the moment of the ``ok`` of a commit
        committed_by, aborted_by   the place in ``brokers`` of the broker that answered so; -1
                        where the row names none
        refused         the ``fail`` of a commit
        void, kept      the ``fail`` of a commit, of an abort, where each that was asked for failed
        end, asked, back   the first invocation of either, of a commit, of an abort
        connection      the number of the connection on which the commit was asked for
        undone          the invocation of an abort, or of a commit that was refused, whichever is
                        later: it may have given back what was acknowledged
    """

    sessions: Keyed
    transactions: Keyed
    holders: Mapping[tuple[int, str | None], Numbers]
    endings: Mapping[tuple[int, str | None], Numbers] = field(default_factory=dict)
    brokers: Sequence[str] = ()

    def brokers_of(self, ended: str, run: Numbers, transaction: Numbers) -> npt.NDArray[np.object_]:
        """Return the brokers that ended transactions; None where no row names one.

        ``ended`` is "committed_by" or "aborted_by".
        """
        places = np.maximum(self.transactions.find(ended, run, transaction), -1)
        names: npt.NDArray[np.object_] = np.array([*self.brokers, None], dtype=object)[places]
        return names

    def held(self, run: int, queue: str | None, sent: Numbers) -> Numbers:
        """Return how many ended sessions of a queue may have held messages sent at these rows.

        A session whose queue no row names may be of any queue.
        """
        counts = np.zeros(len(sent), dtype=np.int64)
        for whose in {queue, None}:
            until = self.holders.get((run, whose), np.zeros(0, dtype=np.int64))
            counts += len(until) - np.searchsorted(until, sent, side="right")
        return counts


def read(control: pa.Table) -> Ends:
    """Return the ends of all sessions and transactions.

    ``control`` are all control rows, with the columns of ``checkers.schema``, and ``run`` where
    there is one.
    """
    control = control.unify_dictionaries().combine_chunks()
    index = numbers_of(control, "index")
    run = (
        numbers_of(control, "run") if "run" in control.column_names else np.zeros(len(index), dtype=np.int64)
    )
    f, type_ = texts_of(control, "f"), texts_of(control, "type")
    session = numbers_of(control, "session")
    rows = np.flatnonzero((session != NONE) & f.are("subscribe", "unsubscribe", "disconnect"))
    joining, leaving = f.are("subscribe")[rows], f.are("unsubscribe")[rows]
    invoked, ok = type_.are("invoke")[rows], type_.are("ok")[rows]
    at = index[rows]
    reign, until = _reigns(control, index, run, rows, texts_of(control, "broker"))
    served = joining & invoked & (reign != NONE)
    sessions = Keyed.of(
        run[rows], session[rows],
        {
            "begun": (joining & invoked, at),
            "begun_ns": (joining & invoked, numbers_of(control, "time")[rows]),
            "ended": (~joining & (~leaving | invoked), at),
            "asked": (leaving & invoked, at),
            "answered": (leaving & ok, -at),  # the latest
            "gone": (~joining & ~leaving, at),
            "reign": (served, reign),
            "until": (served, until),
        },
    )  # fmt: skip
    asked_at, answered = sessions.values["asked"], sessions.values["answered"]
    in_order = (asked_at != NONE) & (answered != NONE) & (-answered > asked_at)
    columns = {
        "begun": sessions.values["begun"],
        "begun_ns": sessions.values["begun_ns"],
        "ended": sessions.values["ended"],
        "left": np.where(in_order, asked_at, NONE),
        "answered": np.where(in_order, -answered, NONE),
        "reign": sessions.values["reign"],
        "until": sessions.values["until"],
        "over": earliest(np.where(in_order, -answered, NONE), sessions.values["gone"]),
        "lost": sessions.values["gone"],
    }
    sessions = Keyed(sessions.numbers, sessions.keys, columns)

    transaction = numbers_of(control, "transaction")
    rows = np.flatnonzero((transaction != NONE) & f.are("commit", "abort"))
    rows = rows[np.argsort(index[rows], kind="stable")]
    committing, invoked, ok = f.are("commit")[rows], type_.are("invoke")[rows], type_.are("ok")[rows]
    at, connection = index[rows], numbers_of(control, "connection")[rows]
    broker, place = texts_of(control, "broker"), np.arange(len(rows))
    transactions = Keyed.of(
        run[rows], transaction[rows],
        {
            "committed": (committing & ok, place),
            "aborted": (~committing & ok, place),
            "kept": (~committing & type_.are("fail")[rows], at),
            "end": (invoked, at),
            "back": (~committing & invoked, at),
            "asked": (committing & invoked, at),
            "refused": (committing & type_.are("fail")[rows], at),
            "connection": (committing & invoked & (connection != NONE), connection),
        },
    )  # fmt: skip
    asked_at, back = transactions.values["asked"], transactions.values["back"]
    undone = np.where(transactions.values["refused"] == NONE, back, np.maximum(asked_at, back))
    failed = type_.are("fail")[rows]

    def each_failed(operations: Flags, failure: Numbers) -> Numbers:
        """Return the failures of transactions whose operations all failed; else ``NONE``."""
        invocations, failures = (
            transactions.counted(run[rows][chosen], transaction[rows][chosen])
            for chosen in (operations & invoked, operations & failed)
        )
        return np.where(invocations <= failures, failure, NONE)

    values_left = dict(transactions.values)
    committed, aborted = values_left.pop("committed"), values_left.pop("aborted")
    columns = {
        **values_left,
        "commit": _at(at, committed),
        "commit_ns": _at(numbers_of(control, "time")[rows], committed),
        "committed_by": _at(broker.codes[rows], committed),
        "abort": _at(at, aborted),
        "aborted_by": _at(broker.codes[rows], aborted),
        "undone": undone,
        "void": each_failed(committing, transactions.values["refused"]),
        "kept": each_failed(~committing, transactions.values["kept"]),
    }
    transactions = Keyed(transactions.numbers, transactions.keys, columns)
    return Ends(sessions, transactions, *_holders(control, run, session, sessions), broker.values)


def _at(values: npt.NDArray[Any], places: Numbers) -> Numbers:
    """Return the values at some places; ``NONE`` where a place is ``NONE``."""
    padded = np.append(values.astype(np.int64), np.int64(NONE))
    return padded[np.where(places == NONE, len(values), places)]


def _holders(
    control: pa.Table, run: Numbers, session: Numbers, sessions: Keyed
) -> tuple[dict[tuple[int, str | None], Numbers], dict[tuple[int, str | None], Numbers]]:
    """Return the ``holders`` and the ``endings`` of ``Ends``."""
    ended = sessions.find("ended", run, session)
    rows = np.flatnonzero(ended == numbers_of(control, "index"))
    answered = sessions.find("answered", run[rows], session[rows])
    until = np.where(answered == NONE, _EVER, answered)
    queue = texts_of(control, "queue")
    whose = [(int(run[at]), queue.values[code] if (code := queue.codes[at]) >= 0 else None) for at in rows]
    by_queue = {key: np.array([place == key for place in whose], dtype=bool) for key in set(whose)}
    at = ended[rows]
    return (
        {key: np.sort(until[members]) for key, members in by_queue.items()},
        {key: np.sort(at[members]) for key, members in by_queue.items()},
    )


def _reigns(
    control: pa.Table, index: Numbers, run: Numbers, rows: Numbers, broker: Texts
) -> tuple[Numbers, Numbers]:
    """Return ``reign`` and ``until`` (see ``Ends``) of the broker of each row at that row.

    ``NONE`` where the broker was not live.
    """
    reign = np.full(len(rows), NONE, dtype=np.int64)
    until = np.full(len(rows), NONE, dtype=np.int64)
    role_rows = texts_of(control, "f").are("role") & (numbers_of(control, "process") == MONITOR)
    live, low = texts_of(control, "role").are("live"), numbers_of(control, "time_low")
    for run_number in np.unique(run[rows]):
        run_rows = np.flatnonzero(role_rows & (run == run_number))
        run_rows = run_rows[np.argsort(index[run_rows])]
        for name in np.unique(broker.codes[rows[run[rows] == run_number]]):
            broker_rows = run_rows[broker.codes[run_rows] == name]
            own_rows = np.flatnonzero((run[rows] == run_number) & (broker.codes[rows] == name))
            before = np.searchsorted(index[broker_rows], index[rows[own_rows]]) - 1
            own_rows, before = own_rows[before >= 0], before[before >= 0]
            own_rows, before = own_rows[live[broker_rows[before]]], before[live[broker_rows[before]]]
            reign[own_rows] = index[broker_rows[before]]
            until[own_rows] = np.append(low[broker_rows][1:], _EVER)[before]
    return reign, until
