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


def messages_rows(source: HistorySource, wanted: RowSelection) -> list[Row]:
    """Return the wanted rows of the parts, in order, without nulls; at most ``ROWS_MAX``."""
    parts = source.ask(partial(_of_part, wanted=wanted))
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


def _of_part(part: HistoryPart, wanted: RowSelection) -> list[Row]:
    found: list[Row] = []
    for table in map(completed, part.slices(COLUMNS)):
        found += plain(table.filter(_mask(table, wanted)))
    return sorted(found, key=lambda row: row["index"])[:ROWS_MAX]


def _mask(table: pa.Table, wanted: RowSelection) -> pa.Array:
    index = table["index"]
    mask = pc.is_in(index, pa.array(sorted(wanted.indexes), pa.int64()))
    if wanted.messages:
        mask = pc.or_(mask, pc.is_in(table["message"], pa.array(sorted(wanted.messages), pa.int64())))
    if wanted.times:
        mask = pc.or_(mask, pc.is_in(table["time"], pa.array(sorted(wanted.times), pa.int64())))
    for span in wanted.ranges:
        here = pc.and_(_equal(table["queue"], span.queue), _equal(table["group"], span.group))
        within = pc.and_(pc.greater_equal(index, span.low), pc.less_equal(index, span.high))
        mask = pc.or_(mask, pc.and_(here, within))
    f = table["f"].cast(pa.string())
    for session, low in wanted.after:
        mine = pc.is_in(f, pa.array(["ack", "nack", "deliver"]))
        here = pc.and_(_is(table, "session", session), pc.greater(index, low))
        mask = pc.or_(mask, _few(pc.and_(here, mine), slice(wanted.few)))
    for link in wanted.links:
        here = pc.or_(_is(table, "session", link.session), _is(table, "connection", link.connection))
        here = pc.and_(pc.and_(here, pc.less(index, link.before)), pc.not_equal(f, "deliver"))
        mask = pc.or_(mask, _few(here, slice(-wanted.few, None)))
    return mask


def _few(here: pa.ChunkedArray, which: slice) -> pa.ChunkedArray:
    few = np.zeros(len(here), dtype=bool)
    few[np.flatnonzero(np.asarray(here.combine_chunks()))[which]] = True
    return pa.chunked_array([pa.array(few)])


def _is(table: pa.Table, column: str, value: int | None) -> pa.ChunkedArray:
    if value is None or column not in table.column_names:
        return pa.chunked_array([pa.array(np.zeros(len(table), dtype=bool))])
    return pc.fill_null(pc.equal(table[column], value), False)


def _equal(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    return pc.is_null(text) if value is None else pc.fill_null(pc.equal(text, value), False)
