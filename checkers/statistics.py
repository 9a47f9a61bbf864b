"""What is always reported and never a failure: counts, latencies, how long each fault kept clients from sending."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers.facts import Facts, FaultSpan
from checkers.rules import RECOVERED, REDELIVERED, Found
from checkers.source import Source
from checkers.verdict import FaultRecovery, Latency, Statistics

_BINS_AN_OCTAVE = 8
_SAMPLED_ABOVE_ROWS = 2_000_000
_SLOT_NS = 100_000_000


def read(source: Source, known: Facts) -> Statistics:
    """Two jobs; latencies of histories above two million rows are of a sample by message."""
    return Statistics(
        rows=source.rows,
        duration_s=known.last_ns / 1e9,
        operations=known.census,
        latency=_latency(source),
        faults=tuple(_recoveries(source, known)),
    )


def with_counts(figures: Statistics, found: Mapping[str, Found]) -> Statistics:
    """Adds what the message rules counted on the way."""
    return msgspec.structs.replace(
        figures,
        redeliveries=found[REDELIVERED].count if REDELIVERED in found else 0,
        sends_recovered=found[RECOVERED].count if RECOVERED in found else 0,
    )


def _latency(source: Source) -> dict[str, Latency]:
    rows = source.data.where("message is not null and process >= 0")
    if source.rows > _SAMPLED_ABOVE_ROWS:
        rows = rows.where(F.pmod(F.xxhash64("message"), F.lit(source.rows // _SAMPLED_ABOVE_ROWS + 1)) == 0)
    f, type_, time = F.col("f"), F.col("type"), F.col("time")
    times = rows.groupBy("queue", "group", "message").agg(
        F.min(F.when((f == "send") & (type_ == "invoke"), time)).alias("sent"),
        F.min(F.when((f == "send") & (type_ == "ok"), time)).alias("send"),
        F.min(F.when(f == "deliver", time)).alias("deliver"),
        F.min(F.when((f == "ack") & (type_ == "invoke"), time)).alias("acking"),
        F.min(F.when((f == "ack") & (type_ == "ok"), time)).alias("ack"),
    )
    took = F.explode(
        F.array(
            F.struct(F.lit("send").alias("f"), (F.col("send") - F.col("sent")).alias("ns")),
            F.struct(F.lit("deliver").alias("f"), (F.col("deliver") - F.col("sent")).alias("ns")),
            F.struct(F.lit("ack").alias("f"), (F.col("ack") - F.col("acking")).alias("ns")),
        )
    )
    bins = (
        times.select(took.alias("took"))
        .where("took.ns is not null and took.ns >= 0")
        .groupBy(
            F.col("took.f").alias("f"),
            F.floor(F.log2(F.greatest(F.col("took.ns"), F.lit(1))) * _BINS_AN_OCTAVE).alias("bin"),
        )
        .agg(F.count("*").alias("count"), F.max("took.ns").alias("longest"))
    )
    by_f: dict[str, list[Row]] = defaultdict(list)
    for row in bins.collect():
        by_f[row["f"]].append(row)
    return {f: _quantiles(sorted(some, key=lambda row: row["bin"])) for f, some in sorted(by_f.items())}


def _quantiles(bins: Sequence[Row]) -> Latency:
    total = sum(row["count"] for row in bins)

    def quantile(share: float) -> float:
        seen = 0
        for row in bins:
            seen += row["count"]
            if seen >= share * total:
                middle = 2 ** ((row["bin"] + 0.5) / _BINS_AN_OCTAVE)
                return float(round(min(middle, row["longest"]) / 1e6, 3))
        return 0.0

    longest = max(row["longest"] for row in bins)
    return Latency(
        count=total,
        p50_ms=quantile(0.5),
        p95_ms=quantile(0.95),
        p99_ms=quantile(0.99),
        max_ms=round(longest / 1e6, 3),
    )


def _recoveries(source: Source, known: Facts) -> list[FaultRecovery]:
    spans = known.spans()
    if not spans:
        return []
    slots = _slots(source).collect()
    rows = sorted(slots, key=lambda row: row["slot"])
    edges = [(earlier["end"], later["begin"]) for earlier, later in itertools.pairwise(rows)]
    last_ok = rows[-1]["end"] if rows else -1
    return [_recovery(span, edges, last_ok) for span in spans]


def _slots(source: Source) -> DataFrame:
    """First and last ``ok`` send of each tenth of a second: pauses longer than that lie between two of them."""
    sends = source.data.where("f = 'send' and type = 'ok' and process >= 0")
    slot = (F.col("time") / _SLOT_NS).cast("long").alias("slot")
    return sends.groupBy(slot).agg(F.min("time").alias("begin"), F.max("time").alias("end"))


def _recovery(span: FaultSpan, edges: Sequence[tuple[int, int]], last_ok: int) -> FaultRecovery:
    until = span.end if span.end is not None else 2**62
    touching = [end - max(begin, span.begin) for begin, end in edges if end > span.begin and begin < until]
    longest = max(touching, default=None) if last_ok > span.begin else None
    return FaultRecovery(
        fault=span.kind,
        label=span.label,
        bit=span.bit,
        start_s=span.begin / 1e9,
        end_s=None if span.end is None else span.end / 1e9,
        recovery_s=None if longest is None else round(longest / 1e9, 3),
    )
