"""The selection of single rows of a history, with all columns, for witnesses and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.arrow_schema import completed
from checkers.schema import COLUMNS
from checkers.source import HistoryPart, HistorySource

Row = dict[str, Any]
ROWS_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class IndexRange:
    """A selection of the rows of a group from one index to another, both included."""

    queue: str | None
    group: str | None
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class AnsweredBefore:
    """A selection of the questions and answers of a session or connection before an index."""

    session: int | None
    connection: int | None
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """A selection of rows: those of these messages, groups, indexes and moments (ns).

    ``after`` has (session, index): it selects the acks, nacks and deliveries of the session after
    the index.
    """

    messages: frozenset[int] = frozenset()
    ranges: Sequence[IndexRange] = ()
    indexes: frozenset[int] = frozenset()
    times: frozenset[int] = frozenset()
    after: Sequence[tuple[int, int]] = ()
    links: Sequence[AnsweredBefore] = ()
    few: int = 60
    """The number of rows of each session in ``after`` and each link, nearest to the index first."""


def messages_rows(source: HistorySource, selection: RowSelection) -> list[Row]:
    """Return the wanted rows of the parts, in order, without nulls; at most ``ROWS_MAX``."""
    parts = source.ask(partial(_of_part, selection=selection))
    rows = sorted((row for part in parts.values() for row in part), key=lambda row: row["index"])
    return rows[:ROWS_MAX]


def control_rows(source: HistorySource, condition: pa.Array | pa.ChunkedArray) -> list[Row]:
    """Return the rows without messages for which ``condition`` holds, in order, without nulls."""
    return sorted(plain(source.control.filter(condition)), key=lambda row: row["index"])


def plain(table: pa.Table) -> list[Row]:
    """Return the rows of a table as dictionaries without nulls, in the order of ``COLUMNS``."""
    return [
        {name: row[name] for name in COLUMNS if row[name] is not None} for row in completed(table).to_pylist()
    ]


def _of_part(part: HistoryPart, selection: RowSelection) -> list[Row]:
    rows: list[Row] = []
    for table in map(completed, part.slices(COLUMNS)):
        rows += plain(table.filter(_mask(table, selection)))
    return sorted(rows, key=lambda row: row["index"])[:ROWS_MAX]


def _mask(table: pa.Table, selection: RowSelection) -> pa.Array:
    index = table["index"]
    mask = pc.is_in(index, pa.array(sorted(selection.indexes), pa.int64()))
    if selection.messages:
        mask = pc.or_(mask, pc.is_in(table["message"], pa.array(sorted(selection.messages), pa.int64())))
    if selection.times:
        mask = pc.or_(mask, pc.is_in(table["time"], pa.array(sorted(selection.times), pa.int64())))
    for span in selection.ranges:
        is_in_place = pc.and_(_equal(table["queue"], span.queue), _equal(table["group"], span.group))
        within = pc.and_(pc.greater_equal(index, span.low), pc.less_equal(index, span.high))
        mask = pc.or_(mask, pc.and_(is_in_place, within))
    f = table["f"].cast(pa.string())
    for session, low in selection.after:
        settles = pc.is_in(f, pa.array(["ack", "nack", "deliver"]))
        is_in_place = pc.and_(_is(table, "session", session), pc.greater(index, low))
        mask = pc.or_(mask, _first_few(pc.and_(is_in_place, settles), slice(selection.few)))
    for link in selection.links:
        is_in_place = pc.or_(_is(table, "session", link.session), _is(table, "connection", link.connection))
        is_in_place = pc.and_(pc.and_(is_in_place, pc.less(index, link.before)), pc.not_equal(f, "deliver"))
        mask = pc.or_(mask, _first_few(is_in_place, slice(-selection.few, None)))
    return mask


def _first_few(flags: pa.ChunkedArray, span: slice) -> pa.ChunkedArray:
    chosen = np.zeros(len(flags), dtype=bool)
    chosen[np.flatnonzero(np.asarray(flags.combine_chunks()))[span]] = True
    return pa.chunked_array([pa.array(chosen)])


def _is(table: pa.Table, column: str, value: int | None) -> pa.ChunkedArray:
    if value is None or column not in table.column_names:
        return pa.chunked_array([pa.array(np.zeros(len(table), dtype=bool))])
    return pc.fill_null(pc.equal(table[column], value), False)


def _equal(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    return pc.is_null(text) if value is None else pc.fill_null(pc.equal(text, value), False)
