"""Internal errors that brokers admit in their answers: internal-error.

Such an answer breaks no promise about messages by itself, and its client goes on as after any other
error. But no broker is meant to give it, whatever was done to the broker. The words of the answer
belong to the broker's dialect (``Promises.admits``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.instance import Instance
from checkers.rows import numbers_of, texts_of
from checkers.source import HistoryPart

NAME = "internal-error"
_READ = ("index", "message", "process", "broker", "error")


def of_table(table: pa.Table, words: str) -> Iterator[Instance]:
    """Yield one instance for each row of a client whose error contains ``words``."""
    if "error" not in table.column_names or not words:
        return
    error = table["error"].cast(pa.string())
    is_admitted = pc.fill_null(pc.match_substring(error, words), False)
    table = table.filter(pc.and_(is_admitted, pc.greater_equal(table["process"], 0))).unify_dictionaries()
    table = table.combine_chunks()
    run = numbers_of(table, "run") if "run" in table.column_names else np.zeros(len(table), np.int64)
    broker = texts_of(table, "broker")
    for run_number, index, code in zip(
        run.tolist(), numbers_of(table, "index").tolist(), broker.codes.tolist(), strict=True
    ):
        yield Instance(NAME, None, None, None, index, broker.values[code] if code >= 0 else None, run_number)


def of_part(part: HistoryPart, words: str) -> list[Instance]:
    """Return one instance for each row of a client in a part whose error contains ``words``."""
    return [instance for table in part.slices(_READ) for instance in of_table(table, words)]
