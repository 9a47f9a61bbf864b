"""A plugin of pytest that records the histories that tests judge, for ``bench.rule_mutants``.

    JEPSEN_RUN_RECORD=/tmp/judged.jsonl python -m pytest tests/checkers -p bench.recorder

Each line of the file is a history with the options under which it was judged and the first test
that did so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from checkers import judge, reference
from checkers.schema import COLUMNS
from checkers.verdict import CheckOptions

SEEN: Final[dict[tuple[str, str], str]] = {}
_find, _examine = reference.find, judge.examine


def record(rows: Iterable[Mapping[str, Any]], options: CheckOptions) -> None:
    some = [{name: value for name, value in row.items() if value is not None} for row in rows]
    told = msgspec.json.encode(msgspec.structs.replace(options, examples=10)).decode()
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    SEEN.setdefault((told, json.dumps(some, sort_keys=True)), test)


def find_recorded(rows: Any, options: CheckOptions, *rest: Any, **named: Any) -> Any:
    some = list(rows)
    record(some, options)
    return _find(some, options, *rest, **named)


def examine_recorded(check_run: judge.CheckRun) -> judge.Examination | None:
    parts = getattr(check_run.source, "_parts", ())
    tables = [check_run.source.control, *(table for part in parts for table in part.slices(COLUMNS))]
    if not any("run" in table.column_names for table in tables):
        rows = [row for table in tables for row in table.to_pylist()]
        record(sorted(rows, key=lambda row: row["index"]), check_run.options)
    return _examine(check_run)


reference.find, judge.examine = find_recorded, examine_recorded


def pytest_sessionfinish() -> None:
    lines = (
        f'{{"options": {options}, "rows": {rows}, "test": {json.dumps(test)}}}'
        for (options, rows), test in SEEN.items()
    )
    Path(os.environ["JEPSEN_RUN_RECORD"]).write_text("\n".join(lines), encoding="utf-8")
