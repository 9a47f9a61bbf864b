"""A small made-up history that breaks every promise, judged while the cluster is being deployed.

Why: most of the time of a first verdict goes to the JVM, which loads classes, and to Python's
workers, which start and import the modules that the rules need. When the real history is judged,
that is done.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from checkers.arrow_schema import SCHEMA
from checkers.judge import judge
from checkers.schema import HARNESS, MONITOR, NEMESIS
from checkers.source import Files
from checkers.spark_source import open_with
from checkers.verdict import CheckOptions, Verdict

_MS: Final = 1_000_000


def judge_once(spark: SparkSession) -> Verdict:
    """Judge the made-up history; the verdict is of interest to tests only."""
    scratch = spark.conf.get("spark.local.dir", None)  # removed with the session, even if it was killed
    with tempfile.TemporaryDirectory(prefix="warmup-", dir=scratch) as name:
        directory = Path(name)
        data, control = _history()
        pq.write_table(pa.Table.from_pylist(data, schema=SCHEMA), directory / "part-00000.parquet")
        pq.write_table(pa.Table.from_pylist(control, schema=SCHEMA), directory / "control.parquet")
        return judge(open_with(Files.of(directory), spark), CheckOptions(expect_faults=True))


def _history() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    data: list[dict[str, Any]] = []
    control: list[dict[str, Any]] = []

    def row(rows: list[dict[str, Any]], process: int, type_: str, f: str, **columns: Any) -> None:
        index = len(data) + len(control)
        rows.append(
            {"index": index, "time": index * _MS, "process": process, "type": type_, "f": f, **columns}
        )

    def about(message: int) -> dict[str, Any]:
        return {"queue": "q", "group": "g", "message": message, "producer": 1, "sequence": message}

    def deliver(message: int, session: int, redelivered: bool) -> None:
        row(data, 10 + session, "ok", "deliver", **about(message), session=session, broker="a1",
            redelivered=redelivered, digest=message)  # fmt: skip

    def ack(message: int, session: int) -> None:
        row(data, 10 + session, "invoke", "ack", **about(message), session=session)
        row(data, 10 + session, "ok", "ack", **about(message), session=session, broker="a1")

    row(control, HARNESS, "info", "phase", value="load")
    row(control, MONITOR, "info", "role", broker="a1", node_id="n", role="live", time_low=0, time_high=_MS)
    for message in range(1, 6):
        row(data, 1, "invoke", "send", **about(message), digest=message)
        row(data, 1, "ok", "send", **about(message), broker="a1")
    row(control, NEMESIS, "invoke", "partition", value='{"label": "w"}')
    row(control, NEMESIS, "info", "partition", value='{"label": "w", "bit": true}')
    row(
        control,
        MONITOR,
        "info",
        "role",
        broker="a2",
        node_id="n",
        role="live",
        time_low=5 * _MS,
        time_high=12 * _MS,
    )
    deliver(2, 1, redelivered=False)
    deliver(1, 1, redelivered=False)
    deliver(3, 1, redelivered=False)
    deliver(3, 2, redelivered=True)
    ack(3, 1)
    ack(3, 2)
    deliver(3, 2, redelivered=False)
    row(control, 11, "info", "disconnect", session=1, broker="a1")
    row(control, NEMESIS, "invoke", "heal:partition", value='{"label": "w"}')
    row(control, NEMESIS, "info", "heal:partition", value='{"label": "w"}')
    for phase in ("heal", "recovered", "drain", "browse"):
        row(control, HARNESS, "info", "phase", value=phase)
    row(control, HARNESS, "ok", "browse", broker="a1")
    row(control, HARNESS, "info", "phase", value="end")
    return data, control
