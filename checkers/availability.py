"""Liveness: unavailable and not-recovered.

A window of unavailability begins with the first question after an ``ok`` and ends with the next ``ok``, or with the last row of its key
when none came. Keys are each operation, each client (a producer), and each broker; a question to a broker is a completion that
names it and is not ``ok``, since an invocation does not know where it will arrive.

Why time slots: sorting a history by time to see pauses would cost more than all other rules. A pause longer than the bound lies between
the last ``ok`` of one slot and the first of another, so the extremes of each slot (a fraction of the bound) suffice to find it; only
a pause that was found is looked at row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers.instance import Instance
from checkers.source import Source

NAMES = ("unavailable", "not-recovered")
_OPERATIONS = ("send", "ack", "nack")
_SLOTS_A_BOUND = 8


@dataclass(frozen=True, order=True, slots=True)
class Pause:
    """A window of unavailability: ``key`` says of what; the question that began it, and its end (ns)."""

    run: int
    key: str
    index: int
    begin: int
    end: int

    def instance(self) -> Instance:
        """The finding; its row is the unanswered question."""
        return Instance("unavailable", None, None, None, self.index, self.key, self.run)


class _Gap(NamedTuple):
    """Rows of ``key`` strictly between two indexes, none of them ``ok``; ``end`` in ns."""

    run: int
    key: str
    after: int
    before: int
    end: int


def _keyed(source: Source) -> DataFrame:
    keys = [*source.scope, "index", "time", "type", "f", "producer", "broker"]
    return source.data.select(*keys, "process").where(F.col("f").isin(*_OPERATIONS) & (F.col("process") >= 0))


def _keys() -> Column:
    send = F.col("f") == "send"
    return F.array_compact(
        F.array(
            F.concat(F.lit("operation "), F.col("f")),
            F.when(
                send & F.col("producer").isNotNull(), F.concat(F.lit("client producer "), F.col("producer"))
            ),
            F.when(send & F.col("broker").isNotNull(), F.concat(F.lit("broker "), F.col("broker"))),
        )
    )


def _question() -> Column:
    to_broker = F.col("key").startswith("broker")
    return F.when(to_broker, F.col("type").isin("fail", "info")).otherwise(F.col("type") == "invoke")


def pauses(source: Source, bound_s: float) -> list[Pause]:
    """Every window longer than the bound."""
    bound = int(bound_s * 1e9)
    slot = (F.col("time") / max(1, bound // _SLOTS_A_BOUND)).cast("long").alias("slot")
    run = F.col("run") if source.scope else F.lit(0)
    ok, other = F.col("type") == "ok", F.col("type").isin("fail", "info")
    asked = F.col("type") == "invoke"
    index, time = F.col("index"), F.col("time")
    few = _keyed(source).groupBy(run.alias("run"), "f", "producer", "broker", slot).agg(
        F.min(F.when(ok, index)).alias("ok_first"), F.max(F.when(ok, index)).alias("ok_last"),
        F.min(F.when(ok, time)).alias("ok_begin"), F.max(F.when(ok, time)).alias("ok_end"),
        F.min(F.when(asked, time)).alias("asked"), F.min(F.when(other, time)).alias("other"),
        F.max(index).alias("last"), F.max(time).alias("end"),
    )  # fmt: skip
    small = few.withColumn("key", F.explode(_keys())).groupBy("run", "key", "slot").agg(
        F.min("ok_first").alias("ok_first"), F.max("ok_last").alias("ok_last"),
        F.min("ok_begin").alias("ok_begin"), F.max("ok_end").alias("ok_end"),
        F.min(F.when(F.col("key").startswith("broker"), F.col("other")).otherwise(F.col("asked"))).alias("asked"),
        F.max("last").alias("last"), F.max("end").alias("end"),
    )  # fmt: skip
    by_key: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in small.collect():
        by_key[row["run"], row["key"]].append(row)
    gaps = [
        gap
        for key, rows in by_key.items()
        for gap in _gaps(*key, sorted(rows, key=lambda r: r["slot"]), bound)
    ]
    return _begun(source, gaps, bound)


def _gaps(run: int, key: str, rows: Sequence[Row], bound: int) -> Iterator[_Gap]:
    asked = [row["asked"] for row in rows if row["asked"] is not None]
    if not asked:
        return
    after, since = -1, asked[0]
    for row in rows:
        if row["ok_first"] is not None:
            if row["ok_begin"] - since > bound:
                yield _Gap(run, key, after, row["ok_first"], row["ok_begin"])
            after, since = row["ok_last"], row["ok_end"]
    end = max(row["end"] for row in rows)
    if end - since > bound:
        yield _Gap(run, key, after, max(row["last"] for row in rows) + 1, end)


def _begun(source: Source, gaps: Sequence[_Gap], bound: int) -> list[Pause]:
    """When the first question of each gap was asked; gaps that began with too late a question go."""
    if not gaps:
        return []
    given = source.spark.createDataFrame(
        [(*gap, number) for number, gap in enumerate(gaps)],
        "g_run int, g_key string, after long, before long, end long, number int",
    )
    run = F.col("run") if source.scope else F.lit(0)
    within = (
        (run == F.col("g_run")) & (F.col("key") == F.col("g_key"))
        & (F.col("index") > F.col("after")) & (F.col("index") < F.col("before"))
    )  # fmt: skip
    questions = _keyed(source).withColumn("key", F.explode(_keys())).where(_question())
    rows = (
        questions.join(F.broadcast(given), within)
        .groupBy("number")
        .agg(F.min("index").alias("index"), F.min("time").alias("time"))
        .collect()
    )
    found = []
    for row in rows:
        gap = gaps[row["number"]]
        if gap.end - row["time"] > bound:
            found.append(Pause(gap.run, gap.key, row["index"], row["time"], gap.end))
    return sorted(found)


def not_recovered(
    source: Source, phases: Mapping[int, Sequence[Row]], last_ns: Mapping[int, int], bound_s: float
) -> list[Instance]:
    """The harness said so; or after heal and bound operations still end, none of them ``ok``."""
    found, waiting = [], []
    for run, rows in phases.items():
        said = [row["index"] for row in rows if row["value"] == "not-recovered"]
        heal = [row["time"] for row in rows if row["value"] == "heal"]
        if said:
            found.append(Instance("not-recovered", None, None, None, said[0], None, run))
        elif heal and last_ns.get(run, 0) > heal[0] + int(bound_s * 1e9):
            waiting.append((run, heal[0] + int(bound_s * 1e9)))
    if waiting:
        given = source.spark.createDataFrame(waiting, "w_run int, since long")
        run_column = F.col("run") if source.scope else F.lit(0)
        late = _keyed(source).join(
            F.broadcast(given), (run_column == F.col("w_run")) & (F.col("time") > F.col("since"))
        )
        ends = late.groupBy("w_run").agg(
            F.max(F.col("type") == "ok").alias("ok"),
            F.min(F.when(F.col("type").isin("fail", "info"), F.col("index"))).alias("index"),
        )
        found += [
            Instance("not-recovered", None, None, None, row["index"], None, row["w_run"])
            for row in ends.collect()
            if not row["ok"] and row["index"] is not None
        ]
    return found
