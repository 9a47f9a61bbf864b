"""The rows that carry messages, as numpy columns.

Every rule about messages, groups and sessions reads these.

Why columns in Python and not expressions in Spark: a rule is a handful of passes over fixed-width
numbers, and numpy does a pass over half a million rows in a millisecond or two. The same rules as
Spark SQL (hash aggregation by text keys, two window sorts) judged a tenth as many events a second
on the same cores. Their plans took seconds to build for a history of a minute
(docs/decisions/0008). Spark still decides which task judges which rows, and moves rows whose files
do not have all rows of whole groups.

Null is ``NONE`` in every number, and the code -1 in texts. Rows are in order of ``index``.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.schema import TEMPORARY, TOPIC

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Table = TypeVar("Table", bound="DataclassInstance")
"""A dataclass whose fields are columns, one value a row."""
Key = TypeVar("Key")
Value = TypeVar("Value")

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NONE: Final = np.iinfo(np.int64).min
_BITS_PACKED: Final = 63
FOREVER: Final = 2**32 - 1
"""A number above every index of a row.

An index must stay below 2^32, so that two indexes and a session fit into one number.
"""

(
    SEND_INVOKE, SEND_OK, SEND_FAIL, DELIVER, ACK_INVOKE, ACK_OK, ACK_FAIL, NACK_INVOKE, NACK_OK, NACK_FAIL,
    SEND_INFO, BROWSE, TIMEOUT,
) = range(1, 14)  # fmt: skip
_KINDS: Final = {
    ("send", "invoke"): SEND_INVOKE,
    ("send", "ok"): SEND_OK,
    ("send", "fail"): SEND_FAIL,
    ("send", "info"): SEND_INFO,
    ("deliver", "ok"): DELIVER,
    ("ack", "invoke"): ACK_INVOKE,
    ("ack", "ok"): ACK_OK,
    ("ack", "fail"): ACK_FAIL,
    ("nack", "invoke"): NACK_INVOKE,
    ("nack", "ok"): NACK_OK,
    ("nack", "fail"): NACK_FAIL,
    ("browse", "ok"): BROWSE,
    ("timeout", "info"): TIMEOUT,
}

READ: Final = (
    "index", "type", "f", "queue", "group", "message", "producer", "sequence", "transaction", "session",
    "connection", "subscription", "broker", "redelivered", "delivery_count", "digest", "headers", "value",
    "time", "process",
)  # fmt: skip
"""The columns that the rules read, and ``run`` where a table has it.

A column that a table lacks reads as null throughout.
"""

Place = tuple[int, str | None, str | None]
"""A place: (run, queue, group). Order is promised within a place."""


@dataclass(slots=True)
class PlaceTable:
    """The numbers of all places seen so far, given in the order in which the places came."""

    named: list[Place] = field(default_factory=list)
    _codes: dict[Place, int] = field(default_factory=dict)
    deleted_queues: frozenset[tuple[int, str]] = frozenset()
    """The (run, queue) that an administrator may have deleted (``checkers.deletions``)."""

    def code(self, place: Place) -> int:
        """Return the number of a place; a new one for a place that was not seen yet."""
        number = self._codes.get(place)
        if number is None:
            number = self._codes[place] = len(self.named)
            self.named.append(place)
        return number

    def runs(self) -> Numbers:
        """Return the run of each place."""
        return np.array([place[0] for place in self.named], dtype=np.int64)

    def grouped(self) -> Flags:
        """Return whether each place is a group; messages without a group are promised no order."""
        return np.array([place[2] is not None for place in self.named], dtype=bool)

    def passing(self) -> Flags:
        """Return whether each place may end with the messages that wait there.

        That is so of subscriptions of a topic and of temporary queues.
        """
        return np.array([(place[1] or "").startswith((TOPIC, TEMPORARY)) for place in self.named], dtype=bool)

    def deleted(self) -> Flags:
        """Return whether each place is of a queue that an administrator may have deleted."""
        return np.array(
            [(place[0], place[1] or "") in self.deleted_queues for place in self.named], dtype=bool
        )

    def ending(self) -> Flags:
        """Return whether each place may end, or have been deleted, with the messages there."""
        return self.passing() | self.deleted()

    def temporaries(self) -> Flags:
        """Return whether each place is a temporary queue."""
        return self.passing() & ~self.topics()

    def topics(self) -> Flags:
        """Return whether each place is of a topic."""
        return np.array([(place[1] or "").startswith(TOPIC) for place in self.named], dtype=bool)


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: a code for each row (-1: null), and the text of each code."""

    codes: npt.NDArray[np.int32]
    values: list[Any]

    def code(self, value: str) -> int:
        """Return the code of a text; a code that no row has if the text does not occur."""
        return self.values.index(value) if value in self.values else len(self.values)

    def at(self, row: int) -> str | None:
        """Return the text of one row, or None."""
        code = self.codes[row]
        return None if code < 0 else str(self.values[code])

    def are(self, *values: str) -> Flags:
        """Return which rows have one of some texts."""
        if len(values) > 4:  # for so many texts a table is quicker
            is_one_of = np.array([value in values for value in self.values] + [False])
            return is_one_of[self.codes]
        flags = np.zeros(len(self.codes), dtype=bool)
        for value in values:
            flags |= self.codes == self.code(value)
        return flags

    def some(self, at: Numbers) -> Texts:
        """Return the texts at some positions."""
        return Texts(self.codes[at], self.values)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers in Arrow's type.

    Only the rows that a rule reads are converted to 64 bits, with ``NONE`` for null.
    """

    values: npt.NDArray[Any]
    valid: Flags | None
    absent: bool = False
    """True if no row has a value; then some rules have nothing to do."""

    @classmethod
    def nothing(cls, size: int) -> Column:
        """Return a column of nulls."""
        return cls(np.broadcast_to(np.int64(NONE), size), None, absent=True)

    @property
    def complete(self) -> bool:
        """True if no row is null."""
        return self.valid is None and not (self.absent and len(self.values))

    def __getitem__(self, at: npt.NDArray[Any]) -> Numbers:
        """Return the numbers at some positions."""
        if self.absent:
            return np.full(self.values[at].shape, NONE, dtype=np.int64)
        numbers: Numbers = self.values[at].astype(np.int64, copy=False)
        if self.valid is not None and not (valid := self.valid[at]).all():
            numbers[~valid] = NONE
        return numbers

    def same(self, first: Numbers, second: Numbers) -> Flags:
        """Return, for pairs of positions, whether both rows have one value or both are null."""
        if self.absent:
            return np.ones(len(first), dtype=bool)
        result: Flags = self.values[first] == self.values[second]
        if self.valid is not None:
            valid = self.valid[first]
            result = (result | ~valid) & (valid == self.valid[second])
        return result

    def some(self, at: Numbers) -> Column:
        """Return the column's rows at some positions."""
        return Column(self.values[at], None if self.valid is None else self.valid[at], self.absent)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of whole messages, a column each.

    ``kind`` is operation and type as one small number, 0 for rows that no rule about messages
    reads.

    ``by_message`` has the positions of all rows, sorted by message (a place and a message id, which
    may be null), then by kind, then by position; ``starts`` has the position in ``by_message`` at
    which each message begins.
    """

    index: Numbers
    time: Numbers
    process: Numbers
    run: Numbers
    f: Texts
    type: Texts
    kind: npt.NDArray[np.int8]
    place: npt.NDArray[np.int32]
    message: Numbers
    producer: Column
    sequence: Column
    transaction: Column
    session: Column
    connection: Column
    broker: Texts
    redelivered: Column
    delivery_count: Column
    digest: Column
    headers: Column
    time_low: Column
    value: Texts
    by_message: Numbers
    starts: Numbers
    _positions_by_kinds: dict[tuple[int, ...], Numbers] = field(default_factory=dict)
    """The results of ``of``, by kinds: most rules ask for the same few kinds."""
    _id: list[npt.NDArray[np.int32]] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return len(self.starts)

    @property
    def id(self) -> npt.NDArray[np.int32]:
        """The number of each row's message, densely from 0."""
        if not self._id:
            new = np.zeros(len(self.by_message), dtype=np.int32)
            new[self.starts[1:]] = 1
            ids = np.empty(len(new), dtype=np.int32)
            ids[self.by_message] = np.cumsum(new, dtype=np.int32)
            self._id.append(ids)
        return self._id[0]

    @property
    def first_row(self) -> Numbers:
        """The position of one row of each message."""
        return self.by_message[self.starts]

    def some(self, at: Numbers) -> Rows:
        """Return the rows at some positions, which must be in order and of whole messages."""
        place, message, kind = self.place[at], self.message[at], self.kind[at]
        by_message, starts = _by_message(place, message, kind)
        return Rows(
            index=self.index[at], time=self.time[at], process=self.process[at], run=self.run[at],
            f=self.f.some(at), type=self.type.some(at), kind=kind, place=place, message=message,
            producer=self.producer.some(at), sequence=self.sequence.some(at),
            transaction=self.transaction.some(at), session=self.session.some(at),
            connection=self.connection.some(at), broker=self.broker.some(at),
            redelivered=self.redelivered.some(at), delivery_count=self.delivery_count.some(at),
            digest=self.digest.some(at), headers=self.headers.some(at),
            time_low=self.time_low.some(at), value=self.value.some(at),
            by_message=by_message, starts=starts,
        )  # fmt: skip

    def of(self, *kinds: int) -> Numbers:
        """Return the positions of all rows of some kinds, in order, as a read-only array."""
        positions = self._positions_by_kinds.get(kinds)
        if positions is None:
            where = self.kind == kinds[0]
            for kind in kinds[1:]:
                where |= self.kind == kind
            positions = self._positions_by_kinds[kinds] = np.flatnonzero(where)
            positions.flags.writeable = False
        return positions


def from_table(table: pa.Table, places: PlaceTable) -> Rows:
    """Return the rows of a table with columns of ``checkers.schema``; ``run`` (int) is optional.

    Texts may be plain or dictionary-encoded.
    """
    table = table.unify_dictionaries().combine_chunks()
    index = numbers_of(table, "index")
    if len(index) and np.any(index[1:] < index[:-1]):
        table = table.take(pa.array(np.argsort(index, kind="stable")))
        index = numbers_of(table, "index")
    f, type_ = texts_of(table, "f"), texts_of(table, "type")
    one_run = "run" not in table.column_names
    run = np.broadcast_to(np.int64(0), len(index)) if one_run else numbers_of(table, "run")
    place = _place(table, run, places)
    message = numbers_of(table, "message")
    kind = _kinds(f, type_)
    by_message, starts = _by_message(place, message, kind)
    return Rows(
        index=index, time=numbers_of(table, "time"), process=numbers_of(table, "process"), run=run, f=f,
        type=type_, kind=kind, place=place, message=message,
        producer=_column_of(table, "producer"), sequence=_column_of(table, "sequence"),
        transaction=_column_of(table, "transaction"), session=_column_of(table, "session"),
        connection=_column_of(table, "connection"), broker=texts_of(table, "broker"),
        redelivered=_column_of(table, "redelivered"), delivery_count=_column_of(table, "delivery_count"),
        digest=_column_of(table, "digest"), headers=_column_of(table, "headers"),
        time_low=_column_of(table, "time_low"), value=texts_of(table, "value"), by_message=by_message,
        starts=starts,
    )  # fmt: skip


def _kinds(f: Texts, type_: Texts) -> npt.NDArray[np.int8]:
    """Return operation and type of each row as one number, by a table of all pairs that occur."""
    width = len(type_.values) + 1
    kinds = np.zeros((len(f.values) + 2, width), dtype=np.int8)  # the last of both are for null
    for i, operation in enumerate(f.values):
        for j, outcome in enumerate(type_.values):
            kinds[i, j] = _KINDS.get((operation, outcome), 0)
    combined = f.codes * np.int32(width)
    combined += type_.codes
    result: npt.NDArray[np.int8] = kinds.ravel()[combined]
    return result


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _column_of(table: pa.Table, name: str) -> Column:
    """Return a column of numbers or flags in Arrow's type; nothing is converted yet."""
    if name not in table.column_names:
        return Column.nothing(len(table))
    column = _column(table, name)
    if isinstance(column, pa.ChunkedArray) or column.null_count == len(column):
        return Column.nothing(len(column))
    return Column(_under(column), _valid(column) if column.null_count else None)


def _valid(column: pa.Array) -> Flags:
    """Return which rows are not null."""
    bits = np.frombuffer(column.buffers()[0], dtype=np.uint8)
    flags = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")
    return flags[column.offset :].view(np.bool_)


def _under(column: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a column; a null row has any value of the type.

    Why not by Arrow itself: it converts all values to floats if one is null.
    """
    plain = pa.Array.from_buffers(column.type, len(column), [None, column.buffers()[1]], offset=column.offset)
    values: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=False)
    return values


def numbers_of(table: pa.Table, name: str) -> Numbers:
    """Return a column of numbers or flags; null is ``NONE``."""
    if name not in table.column_names:
        return np.full(len(table), NONE, dtype=np.int64)
    column = _column(table, name)
    if isinstance(column, pa.ChunkedArray):  # a table without rows
        return np.zeros(0, dtype=np.int64)
    if column.null_count == len(column):
        return np.full(len(column), NONE, dtype=np.int64)
    values = _under(column)
    if column.null_count:
        return np.where(_valid(column), values, np.int64(NONE))
    return values.astype(np.int64, copy=False)


def texts_of(table: pa.Table, name: str) -> Texts:
    """Return a column of texts that is plain or dictionary-encoded."""
    if name not in table.column_names:
        return Texts(np.full(len(table), -1, dtype=np.int32), [])
    column = _column(table, name)
    if isinstance(column, pa.ChunkedArray):
        return Texts(np.zeros(0, dtype=np.int32), [])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.null_count == len(column):
        return Texts(np.full(len(column), -1, dtype=np.int32), column.dictionary.to_pylist())
    indices = column.indices
    codes = _under(indices).astype(np.int32, copy=False)
    if indices.null_count:
        codes = codes | (_valid(indices).view(np.int8) - np.int8(1))  # a null gets all bits: -1
    return Texts(codes, column.dictionary.to_pylist())


def _place(table: pa.Table, run: Numbers, places: PlaceTable) -> npt.NDArray[np.int32]:
    """Return the place of each row; a place is coded once for each combination that occurs."""
    queue, group = texts_of(table, "queue"), texts_of(table, "group")
    queues, groups = len(queue.values) + 1, len(group.values) + 1
    span = (int(run.max(initial=0)) + 1) * queues * groups
    if span > max(4 * len(run), 1 << 16):
        combined = (run * queues + (queue.codes + 1)) * groups + (group.codes + 1)
        used, combined = np.unique(combined, return_inverse=True)
        return np.array(
            [_code(c, queues, groups, queue, group, places) for c in used.tolist()], dtype=np.int32
        )[combined]
    # A look-up table is quicker than sorting, and 32-bit numbers are quicker than 64-bit ones.
    combined = queue.codes * np.int32(groups)
    combined += group.codes
    combined += np.int32(groups + 1)
    if span > queues * groups:
        combined += run.astype(np.int32) * np.int32(queues * groups)
    occurs = np.zeros(span, dtype=bool)
    occurs[combined] = True
    used = np.flatnonzero(occurs)
    codes = np.zeros(span, dtype=np.int32)
    codes[used] = [_code(c, queues, groups, queue, group, places) for c in used.tolist()]
    result: npt.NDArray[np.int32] = codes[combined]
    return result


def _code(combined: int, queues: int, groups: int, queue: Texts, group: Texts, places: PlaceTable) -> int:
    rest, g = divmod(combined, groups)
    run, q = divmod(rest, queues)
    return places.code((run, queue.values[q - 1] if q else None, group.values[g - 1] if g else None))


def _by_message(
    place: npt.NDArray[np.int32], message: Numbers, kind: npt.NDArray[np.int8]
) -> tuple[Numbers, Numbers]:
    """Return ``by_message`` and ``starts`` of ``Rows``."""
    if not len(message):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    order = ordered(message, kind)
    sorted_message, sorted_place = message.take(order), place.take(order)
    new = sorted_message[1:] != sorted_message[:-1]
    moved = sorted_place[1:] != sorted_place[:-1]
    if np.any(moved & ~new):  # one id in two places
        order = ordered(message, place, kind)
        sorted_message, sorted_place = message[order], place[order]
        new = (sorted_message[1:] != sorted_message[:-1]) | (sorted_place[1:] != sorted_place[:-1])
    return order, np.flatnonzero(np.concatenate(([True], new)))


def name_number(name: str | None) -> int:
    """Return a number for a name, the same in every process; ``NONE`` for no name."""
    return NONE if name is None else zlib.crc32(name.encode())


def ordered(*keys: npt.NDArray[Any]) -> Numbers:
    """Return the positions of rows sorted by their keys, the first key first; the sort is stable.

    Low values come first, ``NONE`` before all. Keys and position mostly fit into one number of 64
    bits; numpy sorts such numbers with vector instructions, ten times quicker than it sorts
    positions by several keys. Where they do not fit, rows are sorted by the last keys first.
    """
    size = len(keys[0])
    place = max(size - 1, 0).bit_length()
    width, packed = place, np.zeros(1, dtype=np.int64)
    for key in keys if size else ():
        low, high = int(key.min()), int(key.max())
        if low == high:
            continue
        shifted = key
        if low == NONE:
            low = int(key.min(initial=high, where=key != NONE)) - 1
            shifted = np.maximum(key, low)
        bits = (high - low).bit_length()
        width += bits
        if width > _BITS_PACKED:
            if len(keys) == 1:
                return np.argsort(key, kind="stable")
            order = ordered(*keys[1:])
            return order[ordered(keys[0][order])]
        above = np.subtract(shifted, low, dtype=np.int64)
        above |= packed << bits
        packed = above
    packed = packed << place
    packed = packed | np.arange(size)
    packed.sort()
    packed &= (1 << place) - 1
    return packed


def first(ids: npt.NDArray[Any], values: Numbers, size: int) -> Numbers:
    """Return the first value of each id, in the order given; ``NONE`` for ids without a value."""
    result = np.full(size, NONE, dtype=np.int64)
    result[ids[::-1]] = values[::-1]
    return result


def last(ids: npt.NDArray[Any], values: Numbers, size: int) -> Numbers:
    """Return the last value of each id, in the order given; ``NONE`` for ids without a value."""
    result = np.full(size, NONE, dtype=np.int64)
    result[ids] = values
    return result


def highest(ids: npt.NDArray[Any], values: Numbers, size: int) -> Numbers:
    """Return the highest value of each id; ``NONE`` for ids without a value."""
    result = np.full(size, NONE, dtype=np.int64)
    np.maximum.at(result, ids, values)
    return result


def lowest(ids: npt.NDArray[Any], values: Numbers, size: int) -> Numbers:
    """Return the lowest value of each id; ``NONE`` for ids without a value."""
    result = np.full(size, FOREVER, dtype=np.int64)
    np.minimum.at(result, ids, values)
    return np.where(result == FOREVER, NONE, result)


def earliest(*indexes: Numbers) -> Numbers:
    """Return the lowest of several indexes at each position; ``NONE`` only where all are."""
    result = np.full(len(indexes[0]), FOREVER, dtype=np.int64)
    for values in indexes:
        np.minimum(result, values, out=result, where=values != NONE)
    return np.where(result == FOREVER, NONE, result)


def marked(ids: npt.NDArray[Any], size: int) -> Flags:
    """Return which of the ids below ``size`` occur."""
    result = np.zeros(size, dtype=bool)
    result[ids] = True
    return result


def counted(ids: npt.NDArray[Any], size: int) -> Numbers:
    """Return how often each id occurs."""
    return np.bincount(ids, minlength=size)


def cells_of(cell: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Return the cells of a table of ``size``, and the position of each row's cell among them.

    If the table is much larger than the number of rows, only the cells that occur are returned.
    """
    if size > max(1 << 20, 4 * len(cell)):
        used, cell = np.unique(cell, return_inverse=True)
        return used, cell
    return np.arange(size), cell


def joined(tables: Iterable[Table]) -> Table:
    """Return one table made of several; if there is only one, nothing is copied."""
    all_tables = list(tables)
    if len(all_tables) == 1:
        return all_tables[0]
    kind = type(all_tables[0])
    columns = ([getattr(table, column.name) for table in all_tables] for column in fields(kind))
    return kind(*(np.concatenate(pieces) for pieces in columns))


def gathered(parts: Iterable[Mapping[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values that several parts have, by key."""
    by_key: dict[Key, list[Value]] = defaultdict(list)
    for part in parts:
        for key, value in part.items():
            by_key[key].append(value)
    return by_key
