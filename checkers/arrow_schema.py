"""The columns of a history (``checkers.schema``) as Arrow and Parquet have them.

Why a module apart from the names of the columns: importing Arrow takes time, and most processes (a
simulated run, a search, most commands) neither write nor judge a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from checkers.schema import ADDED, KINDS, NEVER_NULL

_TYPES: Final = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "bool": pa.bool_(),
    "code": pa.dictionary(pa.int32(), pa.string()),
    "text": pa.string(),
}

SCHEMA: Final = pa.schema(
    [pa.field(name, _TYPES[kind], nullable=name not in NEVER_NULL) for name, kind in KINDS.items()]
)

VERSIONS: Final = tuple(
    pa.schema([field for field in SCHEMA if field.name not in ADDED[count:]])
    for count in range(len(ADDED), -1, -1)
)
"""The schemas of all versions, newest first; columns were added in the order of ``ADDED``."""
OLDER: Final = VERSIONS[-1]
"""The columns that every history has, unless the history declares its own columns."""


def completed(table: pa.Table, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return a table with a schema's columns in their order, null where ``table`` lacks one."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names)


def batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return one batch with all columns from rows that leave out what is null."""
    used: set[str] = set().union(*rows)
    arrays = []
    for field in SCHEMA:
        if field.name not in used:
            arrays.append(pa.nulls(len(rows), field.type))
            continue
        values = [row.get(field.name) for row in rows]
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, field.type.value_type).dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
