"""Liveness: unavailable and not-recovered.

A window of unavailability begins with the first question after an ``ok`` and ends with the next ``ok``, or with the last row of its key
when none came. Keys are each operation, each client (a producer), and each broker; a question to a broker is a completion that
names it and is not ``ok``, since an invocation does not know where it will arrive.

Why time slots: one key's rows are spread over all parts, and sorting a history by time to see pauses would cost more than all other
rules. A pause longer than the bound lies between the last ``ok`` of one slot and the first of another, so the extremes of each slot (a
fraction of the bound) suffice to find it; only a pause that was found is looked at row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.instance import Instance
from checkers.rows import Flags, Numbers, Rows

OPERATIONS: Final = ("send", "ack", "nack")
FAR: Final = np.iinfo(np.int64).max

Key = tuple[int, str]
"""(run, what)."""


@dataclass(frozen=True, order=True, slots=True)
class Pause:
    """A window of unavailability: ``key`` says of what; the question that began it, and its end (ns)."""

    run: int
    key: str
    index: int
    begin: int
    end: int

    def instance(self) -> Instance:
        """The finding; its row is the unanswered question."""
        return Instance("unavailable", None, None, None, self.index, self.key, self.run)


@dataclass(frozen=True, slots=True)
class Slots:
    """What one key did, by slot: one row for each ``number``, in order.

    ``lows`` has the first ``ok`` (row and ns) and the first question (row and ns), ``FAR`` where there was none; ``highs`` the last ``ok``
    and the last row of any kind, -1 where there was none.
    """

    number: Numbers
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]


class Gap(NamedTuple):
    """Rows of ``key`` strictly between two indexes, none of them ``ok``; ``end`` in ns."""

    run: int
    key: str
    after: int
    before: int
    end: int


def slots(rows: Rows, bound_ns: int) -> dict[Key, Slots]:
    """Of every key in these rows. A slot is as long as the bound: what is longer begins in one and ends in another."""
    found: dict[Key, Slots] = {}
    for family in _families(rows):
        found |= _slots(rows, family, bound_ns)
    return found


class _Family(NamedTuple):
    """Keys of one sort: the rows of all of them, in order, the key of each row, and whether each row is ``ok`` or asks."""

    names: Mapping[int, Key]
    at: Numbers
    key: Numbers
    ok: Flags
    asking: Flags


def _families(rows: Rows) -> Iterator[_Family]:
    """By operation, and the sends by producer and by broker."""
    invoke, ok = rows.type.code("invoke"), rows.type.code("ok")
    operations = np.full(len(rows.f.values) + 1, -1, dtype=np.int64)
    for number, name in enumerate(OPERATIONS):
        if name in rows.f.values:
            operations[rows.f.code(name)] = number
    operation = operations[rows.f.codes]

    def family(at: Numbers, code: Numbers, name: Callable[[int], str], *, of_broker: bool = False) -> _Family:
        known = code >= 0
        at, code = at[known], code[known]
        width = int(code.max(initial=0)) + 1
        key = rows.run[at] * width + code
        types = rows.type.codes[at]
        names = {k: (k // width, name(k % width)) for k in _distinct(key)}
        asking = (types != invoke) & (types != ok) if of_broker else types == invoke
        return _Family(names, at, key, types == ok, asking)

    clients = np.flatnonzero((operation >= 0) & (rows.process >= 0))
    yield family(clients, operation[clients], lambda code: f"operation {OPERATIONS[code]}")
    sends = clients[operation[clients] == OPERATIONS.index("send")]
    yield family(sends, rows.producer[sends], lambda code: f"client producer {code}")
    brokers = rows.broker.codes[sends].astype(np.int64)
    yield family(sends, brokers, lambda code: f"broker {rows.broker.values[code]}", of_broker=True)


def _distinct(numbers: Numbers) -> list[int]:
    top = int(numbers.max(initial=0))
    if top < 1 << 20:
        seen = np.zeros(top + 1, dtype=bool)
        seen[numbers] = True
        numbers = np.flatnonzero(seen)
    else:
        numbers = np.unique(numbers)
    return [int(number) for number in numbers]


def _slots(rows: Rows, family: _Family, bound_ns: int) -> dict[Key, Slots]:
    at = family.at
    if not len(at):
        return {}
    slot = rows.time[at] // bound_ns
    low = int(slot.min())
    size = int(slot.max()) - low + 1
    cell = family.key * size + (slot - low)
    cells = (max(family.names) + 1) * size
    if cells > max(1 << 20, 4 * len(at)):  # few of many: number those that occur
        used, cell = np.unique(cell, return_inverse=True)
        cells = len(used)
    else:
        used = np.arange(cells)
    firsts = [_position(cell, at, where, cells, first=True) for where in (family.ok, family.asking)]
    lasts = [
        _position(cell, at, where, cells, first=False) for where in (family.ok, np.ones(len(at), dtype=bool))
    ]
    there = np.flatnonzero(lasts[1] >= 0)
    lows = np.column_stack([_of(column, p[there], FAR) for p in firsts for column in (rows.index, rows.time)])
    highs = np.column_stack([_of(column, p[there], -1) for p in lasts for column in (rows.index, rows.time)])
    key, number = used[there] // size, used[there] % size + low
    return {
        name: Slots(number[mine], lows[mine], highs[mine])
        for code, name in family.names.items()
        for mine in [np.flatnonzero(key == code)]
    }


def _position(cell: Numbers, at: Numbers, where: Flags, cells: int, *, first: bool) -> Numbers:
    result = np.full(cells, -1, dtype=np.int64)
    cell, at = cell[where], at[where]
    result[cell[::-1] if first else cell] = at[::-1] if first else at
    return result


def _of(column: Numbers, positions: Numbers, missing: int) -> Numbers:
    return np.where(positions >= 0, column[positions], missing)


def merged(parts: Iterable[Mapping[Key, Slots]]) -> dict[Key, Slots]:
    """The slots of several parts as one."""
    by_key: dict[Key, list[Slots]] = defaultdict(list)
    for part in parts:
        for key, some in part.items():
            by_key[key].append(some)
    return {key: some[0] if len(some) == 1 else _merged(some) for key, some in by_key.items()}


def _merged(some: Sequence[Slots]) -> Slots:
    number, inverse = np.unique(np.concatenate([one.number for one in some]), return_inverse=True)
    lows = np.full((len(number), 4), FAR, dtype=np.int64)
    highs = np.full((len(number), 4), -1, dtype=np.int64)
    np.minimum.at(lows, inverse, np.concatenate([one.lows for one in some]))
    np.maximum.at(highs, inverse, np.concatenate([one.highs for one in some]))
    return Slots(number, lows, highs)


def gaps(whole: Mapping[Key, Slots], bound_ns: int) -> list[Gap]:
    """Where no ``ok`` came for longer than the bound; the first question in it is still to be found (``first_questions``)."""
    return [gap for key, mine in whole.items() for gap in _gaps(key, mine, bound_ns)]


def _gaps(key: Key, mine: Slots, bound_ns: int) -> Iterator[Gap]:
    ok_first, ok_begin, _, asked_at = mine.lows.T
    ok_last, ok_end, last, end = mine.highs.T
    if asked_at.min() == FAR:
        return
    ok = np.flatnonzero(ok_last >= 0)
    since = np.concatenate(([asked_at.min()], ok_end[ok]))
    after = np.concatenate(([-1], ok_last[ok]))
    for n in np.flatnonzero(ok_begin[ok] - since[:-1] > bound_ns).tolist():
        yield Gap(*key, int(after[n]), int(ok_first[ok[n]]), int(ok_begin[ok[n]]))
    if end.max() - since[-1] > bound_ns:
        yield Gap(*key, int(after[-1]), int(last.max()) + 1, int(end.max()))


def first_questions(rows: Rows, wanted: Sequence[Gap]) -> dict[int, tuple[int, int]]:
    """Of each gap, by its number, the first question in it (row and ns) that these rows have."""
    by_key: dict[Key, list[int]] = defaultdict(list)
    for number, gap in enumerate(wanted):
        by_key[gap.run, gap.key].append(number)
    found = {}
    for family in _families(rows):
        for code, key in family.names.items():
            for number in by_key.get(key, ()):
                gap = wanted[number]
                questions = family.at[(family.key == code) & family.asking]
                index = rows.index[questions]
                here = questions[(index > gap.after) & (index < gap.before)]
                if len(here):
                    found[number] = int(rows.index[here[0]]), int(rows.time[here[0]])
    return found


def begun(
    wanted: Sequence[Gap], parts: Iterable[Mapping[int, tuple[int, int]]], bound_ns: int
) -> list[Pause]:
    """The pauses, each with its first question in all parts; gaps that began with too late a question go."""
    first: dict[int, tuple[int, int]] = {}
    for part in parts:
        for number, question in part.items():
            first[number] = min(first.get(number, question), question)
    found = []
    for number, (index, time) in first.items():
        gap = wanted[number]
        if gap.end - time > bound_ns:
            found.append(Pause(gap.run, gap.key, index, time, gap.end))
    return sorted(found)


class Late(NamedTuple):
    """What came after heal and bound: whether anything was ``ok``, and the first operation that ended otherwise (-1: none)."""

    ok: bool
    ended: int


def late(rows: Rows, since_ns: Mapping[int, int]) -> dict[int, Late]:
    """By run, of those that ``waiting`` names."""
    found = {}
    for run, since in since_ns.items():
        here = (rows.process >= 0) & (rows.run == run) & (rows.time > since)
        here &= np.isin(rows.f.codes, [rows.f.code(operation) for operation in OPERATIONS])
        types: npt.NDArray[Any] = rows.type.codes
        ended = np.flatnonzero(here & np.isin(types, [rows.type.code("fail"), rows.type.code("info")]))
        found[run] = Late(
            bool(np.any(here & (types == rows.type.code("ok")))),
            int(rows.index[ended[0]]) if len(ended) else -1,
        )
    return found


def waiting(
    phases: Mapping[int, Sequence[Mapping[str, Any]]], last_ns: Mapping[int, int], bound_s: float
) -> dict[int, int]:
    """Since when (ns) operations must succeed again, of the runs that went on so long and did not say how it ended."""
    bound_ns = int(bound_s * 1e9)
    result = {}
    for run, rows in phases.items():
        heal = [row["time"] for row in rows if row["value"] == "heal"]
        said = any(row["value"] == "not-recovered" for row in rows)
        if heal and not said and last_ns.get(run, 0) > heal[0] + bound_ns:
            result[run] = heal[0] + bound_ns
    return result


def not_recovered(
    phases: Mapping[int, Sequence[Mapping[str, Any]]], parts: Iterable[Mapping[int, Late]]
) -> list[Instance]:
    """The harness said so; or after heal and bound operations still end, none of them ``ok``."""
    found = [
        Instance("not-recovered", None, None, None, row["index"], None, run)
        for run, rows in phases.items()
        for row in [next((row for row in rows if row["value"] == "not-recovered"), None)]
        if row is not None
    ]
    whole: dict[int, list[Late]] = defaultdict(list)
    for part in parts:
        for run, some in part.items():
            whole[run].append(some)
    for run, all_ in whole.items():
        ended = [one.ended for one in all_ if one.ended >= 0]
        if ended and not any(one.ok for one in all_):
            found.append(Instance("not-recovered", None, None, None, min(ended), None, run))
    return found
