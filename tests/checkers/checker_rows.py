"""One tiny constructor for history rows, and both implementations behind one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from checkers import availability, facts, order, roles, rules, sessions
from checkers.instance import Instance
from checkers.schema import HARNESS, SCHEMA
from checkers.source import COLUMNS, Source
from checkers.verdict import CheckOptions

Row = dict[str, Any]
MS = 1_000_000
S = 1_000 * MS
_MESSAGE_OPERATIONS = ("send", "ack", "nack", "deliver", "browse")


def o(index: int, process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> Row:
    """A row; messages are in queue "q", group "g" unless said otherwise, time is 1 ms an index."""
    row: Row = {"index": index, "time": index * MS, "process": process, "type": type_, "f": f}
    if message is not None or (f in _MESSAGE_OPERATIONS and process >= 0):
        row |= {"queue": "q", "group": "g", "message": message}
    row |= columns
    return {name: value for name, value in row.items() if value is not None}


def phase(index: int, value: str, **columns: Any) -> Row:
    return o(index, HARNESS, "info", "phase", value=value, **columns)


def finished(index: int) -> list[Row]:
    """The end phases of a test in which everything was drained and looked into."""
    return [
        phase(index + n, value) for n, value in enumerate(("heal", "recovered", "drain", "browse", "end"))
    ]


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def spark_instances(
    spark: SparkSession, runs: Sequence[Sequence[Row]], options: CheckOptions | None = None
) -> list[set[Instance]]:
    """Every instance in each of many histories, judged by the rules on Spark in one go."""
    options = options or CheckOptions()
    schema = pa.schema([pa.field("run", pa.int32())] + [pa.field(f.name, _plain(f.type)) for f in SCHEMA])
    rows = [{**row, "run": run} for run, history in enumerate(runs) for row in history]
    columns = T.StructType([T.StructField("run", T.IntegerType()), *COLUMNS.fields])
    everything = spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema), columns).cache()
    with_message = f"f in {_MESSAGE_OPERATIONS} and queue is not null"
    source = Source(
        spark, everything.where(with_message), everything.where(f"not ({with_message})"), ("run",)
    )
    known = facts.read(source)
    transactions = any(f.transactions for f in known.values())
    messages = rules.message_instances(source, ("delivery", "order"), transactions).drop("weight").cache()
    found = messages.collect()
    everything_judged = sessions.found(source, None, None, transactions).collect()
    suspects = messages.where(f"name = '{order.SUSPECT}'").select("run", "queue", "group").distinct()
    involved = messages.where(f"name = '{order.INVOLVED}'").select("run", "queue", "group", "message")
    by_suspicion = sessions.found(source, suspects, involved, transactions).collect()
    assert set(by_suspicion) == set(everything_judged), "what is no suspect must not matter"
    found += by_suspicion
    messages.unpersist()
    instances = [
        Instance(r["name"], r["queue"], r["group"], r["message"], r["index"], None, r["run"]) for r in found
    ]
    reigns = {run: roles.reigns(f.roles, f.last_ns) for run, f in known.items()}
    instances += [overlap.instance(run) for run, some in reigns.items() for overlap in roles.overlaps(some)]
    instances += roles.zombies(source, reigns)
    instances += [pause.instance() for pause in availability.pauses(source, options.unavailable_bound_s)]
    instances += availability.not_recovered(
        source,
        {run: f.phases for run, f in known.items()},
        {run: f.last_ns for run, f in known.items()},
        options.recovery_bound_s,
    )
    everything.unpersist()
    result: list[set[Instance]] = [set() for _ in runs]
    for i in instances:
        if i.name.startswith("~") or (i.name in ("lost", "stuck") and known[i.run].undecided() is not None):
            continue
        result[i.run].add(Instance(i.name, i.queue, i.group, i.message, i.index, i.key))
    return result


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
