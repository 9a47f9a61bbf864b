"""Single rows of a history, for witnesses and sentences: all columns of the few that are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.schema import COLUMNS, completed
from checkers.source import Part, Source

Row = dict[str, Any]
ROWS_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of a group from one index to another, both included."""

    queue: str | None
    group: str | None
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows: of these messages, groups and indexes, at these moments; ``after``: answers to a session after an index."""

    messages: frozenset[int] = frozenset()
    ranges: Sequence[Range] = ()
    indexes: frozenset[int] = frozenset()
    times: frozenset[int] = frozenset()
    after: Sequence[tuple[int, int]] = ()
    after_rows: int = 60


def messages_rows(source: Source, wanted: Wanted) -> list[Row]:
    """The wanted rows of the parts, in order, without nulls; at most ``ROWS_MAX``."""
    parts = source.ask(partial(_of_part, wanted=wanted))
    rows = sorted((row for part in parts.values() for row in part), key=lambda row: row["index"])
    return rows[:ROWS_MAX]


def control_rows(source: Source, condition: pa.Array | pa.ChunkedArray) -> list[Row]:
    """The rows without messages for which the condition holds, in order, without nulls."""
    return sorted(plain(source.control.filter(condition)), key=lambda row: row["index"])


def plain(table: pa.Table) -> list[Row]:
    """Rows as dictionaries without nulls, in the order of ``COLUMNS``."""
    return [
        {name: row[name] for name in COLUMNS if row[name] is not None} for row in completed(table).to_pylist()
    ]


def _of_part(part: Part, wanted: Wanted) -> list[Row]:
    found: list[Row] = []
    for table in part.slices(COLUMNS):
        found += plain(table.filter(_mask(table, wanted)))
    return sorted(found, key=lambda row: row["index"])[:ROWS_MAX]


def _mask(table: pa.Table, wanted: Wanted) -> pa.Array:
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
    for session, low in wanted.after:
        answers = pc.is_in(table["f"].cast(pa.string()), pa.array(["ack", "nack"]))
        here = pc.and_(pc.fill_null(pc.equal(table["session"], session), False), pc.greater(index, low))
        here = pc.and_(here, answers)
        numbers = np.flatnonzero(np.asarray(here.combine_chunks()))[: wanted.after_rows]
        few = np.zeros(len(table), dtype=bool)
        few[numbers] = True
        mask = pc.or_(mask, pa.chunked_array([pa.array(few)]))
    return mask


def _equal(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    return pc.is_null(text) if value is None else pc.fill_null(pc.equal(text, value), False)
