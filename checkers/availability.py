"""The liveness rules: unavailable and not-recovered.

A window of unavailability begins with the first question after an ``ok`` and ends with the last
completion that is not ``ok`` before the next ``ok``. It is longer than the bound and has at least
three questions in it. Keys are each operation, each operation in each queue and in each group, each
client (a producer), and each broker by its sends. A question is an invocation. But an invocation
does not know its broker, so a question to a broker is a completion that names the broker and is not
``ok``.

A broker has to refuse an acknowledgement that comes too late (``checkers.timeouts``). Such a
refusal and its question count neither as failed nor as ``ok``.

Why time slots: one key's rows are spread over all parts, and sorting a history by time to see
pauses would cost more than all other rules. A pause longer than the bound lies between the last
``ok`` of one slot and the first of another. So the extremes of each slot, which is as long as the
bound, suffice to find it; only a pause that was found is looked at row by row. A group lies whole
in one part and may be one of very many: groups in which anything was not ``ok`` are looked at row
by row at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.ends import Ends
from checkers.instance import Instance
from checkers.rows import (
    ACK_FAIL,
    NACK_FAIL,
    NONE,
    SEND_INVOKE,
    TIMEOUT,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    cells_of,
    first,
    gathered,
    highest,
    joined,
    last,
    lowest,
    marked,
    ordered,
)
from checkers.running import segments
from checkers.timeouts import waiting_ns
from checkers.verdict import Promises

OPERATIONS: Final = ("send", "ack", "nack")
ATTEMPTS: Final = 3
BREADTH: Final = ("operation", "broker", "queue", "client", "group")
"""The words that keys begin with, the broadest first."""
FAR: Final = np.iinfo(np.int64).max

Key = tuple[int, str]
"""A run, and the operation, broker, queue, client or group in it that a window is judged for."""


@dataclass(frozen=True, order=True, slots=True)
class Outage:
    """A window of unavailability of ``key``.

    ``index`` is its first question, ``begin`` and ``end`` are times (ns), ``rows`` the indexes of
    the rows that show it. ``brokers`` are those that the operations of the key went to.
    """

    run: int
    key: str
    index: int
    begin: int
    end: int
    rows: tuple[int, ...] = ()
    brokers: frozenset[str] = field(default=frozenset(), compare=False)

    def instance(self) -> Instance:
        """Return the window as an instance of ``unavailable``, at its first question."""
        return Instance("unavailable", None, None, None, self.index, self.key, self.run)


@dataclass(frozen=True, slots=True)
class Slots:
    """The extremes of one key in each slot: one row for each slot's ``number``, in order.

    ``lows`` has the first ``ok`` and the first question (index and ns of each), ``FAR`` where there
    was none. ``highs`` has the last ``ok`` and the last row of any kind (index and ns of each),
    ``NONE`` where there was none.
    """

    number: Numbers
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]


class Gap(NamedTuple):
    """A span of indexes, ends excluded, in which no row of ``key`` is ``ok``."""

    run: int
    key: str
    after: int
    before: int


def judged(rows: Rows, ends: Ends, promises: Promises) -> Rows:
    """Return the rows without the acks and nacks that were refused and may have come too late.

    Their questions are left out, too.
    """
    late = _refused_late(rows, ends, promises)
    if not len(late):
        return rows
    invokes = _questions_of(rows, late)
    is_judged = np.ones(len(rows.index), dtype=bool)
    is_judged[late] = is_judged[invokes[invokes >= 0]] = False
    return rows.some(np.flatnonzero(is_judged))


def _refused_late(rows: Rows, ends: Ends, promises: Promises) -> Numbers:
    """Return the refused acks and nacks of messages that the broker may have taken back by then.

    It may have if a row ``timeout`` of the session names the message. It may have, too, after the
    time for which the broker waits. That time counts from when the message was sent and the session
    was asked for, as far as these moments are known.
    """
    refused = rows.of(ACK_FAIL, NACK_FAIL)
    wait, timeouts = waiting_ns(promises), rows.of(TIMEOUT)
    if not len(refused) or (wait is None and not len(timeouts)):
        return refused[:0]
    refused = refused[rows.session[refused] != NONE]
    run, session, time = rows.run[refused], rows.session[refused], rows.time[refused]
    pairs = np.concatenate([timeouts, refused])
    pair_number = _numbered(rows.id[pairs], rows.session[pairs])
    late = marked(pair_number[: len(timeouts)], len(pairs))[pair_number[len(timeouts) :]]
    if wait is not None:
        sends = rows.of(SEND_INVOKE)
        sent = first(rows.id[sends], rows.time[sends], rows.messages)[rows.id[refused]]
        since = np.maximum(sent, ends.sessions.find("begun_ns", run, session))
        late |= (since != NONE) & (since + wait <= time)
    result: Numbers = refused[late]
    return result


def _numbered(*keys: npt.NDArray[Any]) -> Numbers:
    """Return a number for each row, the same for rows with the same keys."""
    order = ordered(*keys)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = segments(*(key[order] for key in keys))
    return numbers


def _questions_of(rows: Rows, answers: Numbers) -> Numbers:
    """Return the question of each answer: the last before it of its process about the message.

    Questions and answers are positions of rows; -1: no row has the question.
    """
    invokes = np.flatnonzero(rows.type.are("invoke"))
    invokes = invokes[np.isin(rows.process[invokes], rows.process[answers])]
    at = np.sort(np.concatenate([invokes, answers]))
    keys = rows.id[at], rows.process[at], rows.f.codes[at]
    order = ordered(*keys)
    at = at[order]
    operation_number = segments(*(key[order] for key in keys))
    order_places = np.arange(len(at))
    latest = np.maximum.accumulate(np.where(rows.type.are("invoke")[at], order_places, -1))
    question = np.where((latest >= 0) & (operation_number[latest] == operation_number), at[latest], -1)
    question_of = np.full(len(rows.index), -1, dtype=np.int64)
    question_of[at] = question
    return question_of[answers]


def slots(rows: Rows, places: PlaceTable, bound_ns: int) -> dict[Key, Slots]:
    """Return the slots of every key in these rows, except the keys of groups.

    A slot is as long as the bound: a pause that is longer begins in one slot and ends in another.
    """
    result: dict[Key, Slots] = {}
    for family in _families(rows, places):
        result |= _slots(rows, family, bound_ns)
    return result


class _Family(NamedTuple):
    """The rows of all keys of one sort (operations, queues, clients or brokers), in order.

    ``at`` has the positions of the rows, ``key`` the number of each row's key. ``ok``, ``asking``
    and ``failed`` say whether a row is ``ok``, is a question, or is an answer that is not ``ok``.
    ``moves``: a key is one client, which is connected to one broker after the other.
    """

    names: Mapping[int, Key]
    at: Numbers
    key: Numbers
    ok: Flags
    asking: Flags
    failed: Flags
    moves: bool


def _operations(rows: Rows) -> Numbers:
    """Return the number of each row's operation; -1 for others and for rows of no client."""
    operations = np.full(len(rows.f.values) + 1, -1, dtype=np.int64)
    for number, name in enumerate(OPERATIONS):
        if name in rows.f.values:
            operations[rows.f.code(name)] = number
    return np.where(rows.process >= 0, operations[rows.f.codes], -1)


def _families(rows: Rows, places: PlaceTable) -> Iterator[_Family]:
    """Yield the rows by operation, by queue and operation, and the sends by producer and broker."""
    invoke, ok = rows.type.code("invoke"), rows.type.code("ok")
    operation = _operations(rows)

    def family(
        at: Numbers, code: Numbers, name: Callable[[int], str], *, of_broker: bool = False,
        of_client: bool = False,
    ) -> _Family:  # fmt: skip
        is_known = code >= 0
        at, code = at[is_known], code[is_known]
        width = int(code.max(initial=0)) + 1
        key = rows.run[at] * width + code
        types = rows.type.codes[at]
        names = {k: (k // width, name(k % width)) for k in _distinct(key)}
        failed = (types != invoke) & (types != ok)
        return _Family(
            names, at, key, types == ok, failed if of_broker else types == invoke, failed, of_client
        )

    clients = np.flatnonzero(operation >= 0)
    yield family(clients, operation[clients], lambda code: f"operation {OPERATIONS[code]}")
    queues = list(dict.fromkeys(queue for _, queue, _ in places.named))
    number = {queue: n for n, queue in enumerate(queues)}
    queue = np.array([number[queue] for _, queue, _ in places.named], dtype=np.int64)[rows.place[clients]]
    yield family(
        clients, queue * len(OPERATIONS) + operation[clients],
        lambda code: of_queue(queues[code // len(OPERATIONS)], OPERATIONS[code % len(OPERATIONS)]),
    )  # fmt: skip
    sends = clients[operation[clients] == OPERATIONS.index("send")]
    yield family(sends, rows.producer[sends], lambda code: f"client producer {code}", of_client=True)
    brokers = rows.broker.codes[sends].astype(np.int64)
    yield family(sends, brokers, lambda code: f"broker {rows.broker.values[code]}", of_broker=True)


def of_queue(queue: str | None, operation: str) -> str:
    """Return the key of an operation in a queue."""
    return f'queue "{queue}", {operation}'


def of_group(queue: str | None, group: str | None, operation: str) -> str:
    """Return the key of an operation in a group."""
    return f'group "{group}" of queue "{queue}", {operation}'


def _distinct(numbers: Numbers) -> list[int]:
    top = int(numbers.max(initial=0))
    if top < 1 << 20:
        is_used = np.zeros(top + 1, dtype=bool)
        is_used[numbers] = True
        numbers = np.flatnonzero(is_used)
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
    used, cell = cells_of(cell, (max(family.names) + 1) * size)
    every = np.ones(len(at), dtype=bool)
    firsts = [first(cell[where], at[where], len(used)) for where in (family.ok, family.asking)]
    lasts = [last(cell[where], at[where], len(used)) for where in (family.ok, every)]
    filled = np.flatnonzero(lasts[1] >= 0)
    lows = np.column_stack(
        [_values_at(column, p[filled], FAR) for p in firsts for column in (rows.index, rows.time)]
    )
    highs = np.column_stack(
        [_values_at(column, p[filled], NONE) for p in lasts for column in (rows.index, rows.time)]
    )
    key, number = used[filled] // size, used[filled] % size + low
    result = {}
    for code, name in family.names.items():
        own_slots = slice(*np.searchsorted(key, (code, code + 1)).tolist())
        result[name] = Slots(number[own_slots], lows[own_slots], highs[own_slots])
    return result


def _values_at(column: Numbers, positions: Numbers, missing: int) -> Numbers:
    return np.where(positions >= 0, column[np.maximum(positions, 0)], missing)


def merged(parts: Iterable[Mapping[Key, Slots]]) -> dict[Key, Slots]:
    """Return the slots of several parts as one."""
    return {
        key: same_key[0] if len(same_key) == 1 else _merged(same_key)
        for key, same_key in gathered(parts).items()
    }


def _merged(same_key: Sequence[Slots]) -> Slots:
    number, inverse = np.unique(np.concatenate([slots.number for slots in same_key]), return_inverse=True)
    lows = np.full((len(number), 4), FAR, dtype=np.int64)
    highs = np.full((len(number), 4), NONE, dtype=np.int64)
    np.minimum.at(lows, inverse, np.concatenate([slots.lows for slots in same_key]))
    np.maximum.at(highs, inverse, np.concatenate([slots.highs for slots in same_key]))
    return Slots(number, lows, highs)


def gaps(slots_by_key: Mapping[Key, Slots], bound_ns: int) -> list[Gap]:
    """Return the gaps of all keys: spans without an ``ok`` that are longer than the bound.

    ``questions`` then finds what was asked in them.
    """
    return [gap for key, slots in slots_by_key.items() for gap in _gaps(key, slots, bound_ns)]


def _gaps(key: Key, slots: Slots, bound_ns: int) -> Iterator[Gap]:
    ok_first, ok_begin, _, asked_at = slots.lows.T
    ok_last, ok_end, last, end = slots.highs.T
    if asked_at.min() == FAR:
        return
    ok = np.flatnonzero(ok_last >= 0)
    since = np.concatenate(([asked_at.min()], ok_end[ok]))
    after = np.concatenate(([-1], ok_last[ok]))
    for n in np.flatnonzero(ok_begin[ok] - since[:-1] > bound_ns).tolist():
        yield Gap(*key, int(after[n]), int(ok_first[ok[n]]))
    if end.max() - since[-1] > bound_ns:
        yield Gap(*key, int(after[-1]), int(last.max()) + 1)


@dataclass(frozen=True, slots=True)
class GapRows:
    """The rows of a gap that matter, each an index and a time (ns), and the brokers of its key.

    ``questions`` are the first few questions, ``failed`` is the last answer that is not ``ok``.
    ``brokers`` are all brokers that rows of the key name. If the key is a client, they are those
    that rows in the gap name; the broker named last ``before`` the gap and the one named first
    ``after`` it are then kept apart, with their rows.
    """

    questions: Sequence[tuple[int, int]]
    failed: tuple[int, int] | None
    brokers: frozenset[str]
    before: tuple[int, str] | None = None
    after: tuple[int, str] | None = None


def questions(rows: Rows, places: PlaceTable, gaps: Sequence[Gap]) -> dict[int, GapRows]:
    """Return the rows of each gap that are among ``rows``, by the number of the gap."""
    by_key: dict[Key, list[int]] = defaultdict(list)
    for number, gap in enumerate(gaps):
        by_key[gap.run, gap.key].append(number)
    result = {}
    for family in _families(rows, places):
        codes = [(code, key) for code, key in family.names.items() if key in by_key]
        if not codes:
            continue
        order = np.argsort(family.key, kind="stable")
        keys, at = family.key[order], family.at[order]
        asking, failed = family.asking[order], family.failed[order]
        for code, key in codes:
            low, high = np.searchsorted(keys, (code, code + 1)).tolist()
            index = rows.index[at[low:high]]
            for number in by_key[key]:
                gap = gaps[number]
                first = low + int(np.searchsorted(index, gap.after, "right"))
                last = low + int(np.searchsorted(index, gap.before, "left"))
                gap_rows = at[first:last]
                attempts = gap_rows[np.flatnonzero(asking[first:last])[:ATTEMPTS]]
                bad = gap_rows[np.flatnonzero(failed[first:last])[-1:]]
                moments = [(int(rows.index[n]), int(rows.time[n])) for n in (*attempts, *bad)]
                outcome = moments[: len(attempts)], moments[-1] if len(bad) else None
                if not family.moves:
                    result[number] = GapRows(*outcome, _brokers(rows, at[low:high]))
                    continue
                before, after = (
                    _named(rows, near_rows) for near_rows in (at[low:first][::-1], at[last:high])
                )
                result[number] = GapRows(*outcome, _brokers(rows, gap_rows), before, after)
    return result


def _brokers(rows: Rows, at: Numbers) -> frozenset[str]:
    """Return the brokers that some rows name."""
    codes = rows.broker.codes[at].astype(np.int64)
    return frozenset(rows.broker.values[code] for code in _distinct(codes[codes >= 0]))


def _named(rows: Rows, at: Numbers) -> tuple[int, str] | None:
    """Return the first of some rows that names a broker, and the broker."""
    named = at[rows.broker.codes[at] >= 0][:1].tolist()
    return (int(rows.index[named[0]]), rows.broker.values[rows.broker.codes[named[0]]]) if named else None


def begun(gaps: Sequence[Gap], parts: Iterable[Mapping[int, GapRows]], bound_ns: int) -> list[Outage]:
    """Return the windows of unavailability that the gaps contain.

    Each lasts from the first question in all parts to the last failure. Gaps with too few
    questions, or that are too short, are left out.
    """
    outages = []
    for number, some_parts in gathered(parts).items():
        gap = gaps[number]
        attempts_made = sorted(question for gap_rows in some_parts for question in gap_rows.questions)[
            :ATTEMPTS
        ]
        failed = max(
            (gap_rows.failed for gap_rows in some_parts if gap_rows.failed is not None), default=None
        )
        if failed is None or len(attempts_made) < ATTEMPTS or attempts_made[-1][0] > failed[0]:
            continue
        (index, begin), (last, end) = attempts_made[0], failed
        if end - begin > bound_ns:
            rows = dict.fromkeys([*(row for row, _ in attempts_made), last])
            before = max(
                (gap_rows.before for gap_rows in some_parts if gap_rows.before is not None), default=None
            )
            after = min(
                (gap_rows.after for gap_rows in some_parts if gap_rows.after is not None), default=None
            )
            near = {broker for _, broker in filter(None, (before, after))}
            brokers = near.union(*(gap_rows.brokers for gap_rows in some_parts))
            outages.append(Outage(gap.run, gap.key, index, begin, end, tuple(rows), frozenset(brokers)))
    return sorted(outages)


def troubled(rows: Rows, places: PlaceTable) -> frozenset[Place]:
    """Return the groups in which an operation was not ``ok``."""
    failed = (_operations(rows) >= 0) & ~rows.type.are("invoke", "ok")
    return frozenset(
        place for place in map(places.named.__getitem__, _distinct(rows.place[failed].astype(np.int64)))
        if place[2] is not None
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupOperations:
    """The rows of operations in some groups.

    ``key`` stands for a group and an operation. A row asks (``asking``), is ``ok``, or else failed.
    ``broker`` is a place in a list of names, -1 where a row names none.
    """

    key: Numbers
    index: Numbers
    time: Numbers
    asking: Flags
    ok: Flags
    broker: Numbers


def attempts(
    rows: Rows, places: PlaceTable, groups: Container[Place], brokers: dict[str, int]
) -> GroupOperations:
    """Return the rows of operations in some groups.

    ``brokers`` gets a number for each broker that the rows name.
    """
    is_of_group = np.array([place in groups for place in places.named], dtype=bool)
    operation = _operations(rows)
    at = np.flatnonzero((operation >= 0) & is_of_group[rows.place])
    key = rows.place[at].astype(np.int64) * len(OPERATIONS) + operation[at]
    asking, ok = rows.type.are("invoke")[at], rows.type.are("ok")[at]
    numbers = np.array([brokers.setdefault(name, len(brokers)) for name in rows.broker.values] + [-1])
    broker = numbers[rows.broker.codes[at]]
    return GroupOperations(key, rows.index[at], rows.time[at], asking, ok, broker)


def in_groups(
    slices: Sequence[GroupOperations], places: PlaceTable, brokers: Sequence[str], bound_ns: int
) -> list[Outage]:
    """Return the windows of unavailability of groups that have all of their rows in ``slices``."""
    operations = joined(slices)
    order = np.lexsort((operations.index, operations.key))
    key, index, time, asking, ok, broker = (
        getattr(operations, name)[order] for name in GroupOperations.__slots__
    )
    failed = ~asking & ~ok
    pause_number = segments(key, np.cumsum(ok))  # from one ok to the next
    at = np.arange(len(key))
    first = lowest(pause_number[asking], at[asking], len(key))
    last = highest(pause_number[failed], at[failed], len(key))
    asked_before = np.concatenate(([0], np.cumsum(asking)))
    outages = []
    for n in np.flatnonzero((first != NONE) & (last != NONE)).tolist():
        low, high = int(first[n]), int(last[n])
        if time[high] - time[low] > bound_ns and asked_before[high + 1] - asked_before[low] >= ATTEMPTS:
            shown_rows = at[low:high][asking[low:high]][:ATTEMPTS]
            place, operation = divmod(int(key[low]), len(OPERATIONS))
            run, queue, group = places.named[place]
            rows = (*index[shown_rows].tolist(), int(index[high]))
            name = of_group(queue, group, OPERATIONS[operation])
            group_brokers = broker[slice(*np.searchsorted(key, (key[low], key[low] + 1)).tolist())]
            named = frozenset(brokers[number] for number in _distinct(group_brokers[group_brokers >= 0]))
            outages.append(Outage(run, name, int(index[low]), int(time[low]), int(time[high]), rows, named))
    return sorted(outages)


class Late(NamedTuple):
    """The operations of one run that ended after heal and recovery bound.

    ``ok``: one of them was ``ok``. ``ok_until`` is the last row of the whole run that was ``ok``:
    its index and its time (ns). ``asked`` is the question that was asked last among the operations
    that failed, ``ended`` the row that answered it (-1: none). ``failed_ns`` is when the last
    failed operation ended. Times are ``NONE`` where there is no such row: a clock may begin below
    zero.
    """

    ok: bool = False
    ok_until: tuple[int, int] = (-1, NONE)
    asked: int = -1
    ended: int = -1
    failed_ns: int = NONE

    def merged(self, other: Late) -> Late:
        """Return both as one: the later of their rows and times, ``ok`` if either is."""
        last_question, ended = max((self.asked, self.ended), (other.asked, other.ended))
        ok_until, failed_ns = max(self.ok_until, other.ok_until), max(self.failed_ns, other.failed_ns)
        return Late(self.ok or other.ok, ok_until, last_question, ended, failed_ns)


def late(rows: Rows, since_ns: Mapping[int, int]) -> dict[int, Late]:
    """Return the late operations of each run that ``waiting`` names, by run."""
    result = {}
    operation = _operations(rows) >= 0
    for run, since in since_ns.items():
        is_in_run = operation & (rows.run == run)
        ok = np.flatnonzero(is_in_run & rows.type.are("ok"))
        failed = np.flatnonzero(is_in_run & (rows.time > since) & rows.type.are("fail", "info"))
        run_late = Late(bool(np.any(rows.time[ok] > since)))
        if len(ok):
            run_late = run_late._replace(ok_until=(int(rows.index[ok[-1]]), int(rows.time[ok[-1]])))
        if len(failed) and not run_late.ok:
            question_rows = _questions_of(rows, failed)
            last = int(np.argmax(question_rows))
            run_late = run_late._replace(failed_ns=int(rows.time[failed].max()))
            if question_rows[last] >= 0:
                run_late = run_late._replace(
                    asked=int(rows.index[question_rows[last]]), ended=int(rows.index[failed[last]])
                )
        result[run] = run_late
    return result


def waiting(
    phases: Mapping[int, Sequence[Mapping[str, Any]]], last_ns: Mapping[int, int], bound_s: float
) -> dict[int, int]:
    """Return since when operations must succeed again (ns), by run.

    Runs that ended earlier, or that recorded that they did not recover, are left out.
    """
    bound_ns = int(bound_s * 1e9)
    result = {}
    for run, rows in phases.items():
        heal = [row["time"] for row in rows if row["value"] == "heal"]
        is_recorded = any(row["value"] == "not-recovered" for row in rows)
        if heal and not is_recorded and last_ns.get(run, 0) > heal[0] + bound_ns:
            result[run] = heal[0] + bound_ns
    return result


def not_recovered(
    phases: Mapping[int, Sequence[Mapping[str, Any]]], parts: Iterable[Mapping[int, Late]], bound_s: float
) -> dict[Instance, int]:
    """Return the runs that did not recover, each with the question that shows it.

    A run did not recover if the harness recorded so; then the question is -1. Else it did not if
    operations ended after heal and recovery bound, and none of them was ``ok``. Nor may anything
    have been ``ok`` since the last of them was asked, or within the bound before the last ended.
    """
    instances = {
        Instance("not-recovered", None, None, None, row["index"], None, run): -1
        for run, rows in phases.items()
        for row in [next((row for row in rows if row["value"] == "not-recovered"), None)]
        if row is not None
    }
    for run, all_ in gathered(parts).items():
        total = Late()
        for part_late in all_:
            total = total.merged(part_late)
        index, ok_ns = total.ok_until
        silent = index < 0 or total.failed_ns > ok_ns + int(bound_s * 1e9)
        if total.asked > index and silent and not total.ok:
            instances[Instance("not-recovered", None, None, None, total.ended, None, run)] = total.asked
    return instances
