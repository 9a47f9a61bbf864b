"""Who ruled when: split-brain and zombie.

Role rows are few (a monitor writes one a change) and are laid out as intervals here; what clients were answered in those intervals is
looked up by Spark, over two short columns and only where two brokers shared a node ID.

A reign is certain from ``time_high`` of its ``live`` row to ``time_low`` of the broker's next row of whatever role
("unreachable" too: from there nothing is claimed), or to the end of the history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers.instance import Instance
from checkers.schema import MONITOR
from checkers.source import Source

NAMES = ("split-brain", "zombie")
_ANSWERS_KEPT = 100_000
"""Of one window: the most that Spark's min_by takes. More are not counted."""


@dataclass(frozen=True, slots=True)
class Reign:
    """Nanoseconds; ``index`` is the row's, ``since`` the earliest moment at which the reign can have begun."""

    broker: str
    node_id: str
    begin: int
    end: int
    index: int
    since: int


class Overlap(NamedTuple):
    """Two certain reigns under one node ID at once, [begin, end) in nanoseconds."""

    earlier: Reign
    later: Reign
    begin: int
    end: int

    def instance(self, run: int) -> Instance:
        """The finding; its row is the later reign's."""
        pair = " ".join(sorted((self.earlier.broker, self.later.broker)))
        key = f"{self.later.node_id} {pair} {self.earlier.index}"
        return Instance("split-brain", None, None, None, self.later.index, key, run)


class Window(NamedTuple):
    """When a broker must not answer (or, in an overlap, must not answer beside the other): asked after ``begin``, answered before ``end``."""

    run: int
    id: int
    broker: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Answers:
    """Operations answered ``ok`` in a window: how many, and the first of them."""

    count: int
    rows: tuple[Row, ...]


def reigns(roles: Sequence[Row], last_ns: int) -> list[Reign]:
    """From the ``role`` rows of one history, in order of their rows."""
    by_broker: dict[str, list[Row]] = defaultdict(list)
    for row in roles:
        if row["process"] == MONITOR and row["f"] == "role" and row["broker"] is not None:
            by_broker[row["broker"]].append(row)
    found = []
    for broker, rows in by_broker.items():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row["role"] == "live" and row["node_id"] is not None:
                end = last_ns if following is None else following["time_low"]
                found.append(
                    Reign(broker, row["node_id"], row["time_high"], end, row["index"], row["time_low"])
                )
    return sorted(found, key=lambda reign: reign.index)


def overlaps(found: Sequence[Reign]) -> list[Overlap]:
    """Every pair of reigns of different brokers under one node ID that certainly overlap."""
    pairs = []
    for n, later in enumerate(found):
        for earlier in found[:n]:
            begin, end = max(earlier.begin, later.begin), min(earlier.end, later.end)
            if earlier.node_id == later.node_id and earlier.broker != later.broker and begin < end:
                pairs.append(Overlap(earlier, later, begin, end))
    return pairs


def fallen(found: Sequence[Reign]) -> list[tuple[str, int, int]]:
    """(broker, begin, end): it was live, another certainly was in its place from ``begin``, and until ``end`` it cannot have been live again."""
    times = []
    for successor in found:
        for broker in sorted({reign.broker for reign in found if reign.broker != successor.broker}):
            own = [reign for reign in found if reign.broker == broker]
            if any(r.node_id == successor.node_id and r.index < successor.index for r in own):
                back = [reign.since for reign in own if reign.index > successor.index]
                times.append((broker, successor.begin, back[0] if back else 2**62))
    return times


def answered(
    source: Source, windows: Sequence[Window], *, only: str | None = None
) -> dict[tuple[int, int], Answers]:
    """(run, window id) -> what was asked and answered ``ok`` within the window by its broker; ``only`` one operation."""
    if not windows:
        return {}
    scope = source.scope
    columns = [*scope, "index", "time", "process", "type", "f", "queue", "group", "message", "broker"]
    rows = source.data.select(*columns).unionAll(source.control.select(*columns)).where("process >= 0")
    rows = rows.where(F.col("f") == only) if only else rows.where("f <> 'deliver'")
    given = source.spark.createDataFrame(
        list(windows), "w_run int, id int, w_broker string, begin long, end long"
    )
    mine = (
        (F.col("broker") == F.col("w_broker"))
        & (F.col("time") > F.col("begin"))
        & (F.col("time") < F.col("end"))
    )
    if scope:
        mine = mine & (F.col("run") == F.col("w_run"))
    answers = rows.where("type = 'ok' and broker is not null").join(F.broadcast(given), mine)
    asked = rows.where("type = 'invoke'").select(
        *(F.col(name).alias(f"a_{name}") for name in (*scope, "index", "time", "process", "f", "message"))
    )
    same = (
        (F.col("process") == F.col("a_process"))
        & (F.col("f") == F.col("a_f"))
        & F.col("message").eqNullSafe(F.col("a_message"))
        & (F.col("a_index") < F.col("index"))
    )
    if scope:
        same = same & (F.col("run") == F.col("a_run"))
    paired = asked.join(F.broadcast(answers), same)
    found = (
        paired.groupBy(
            "w_run", "id", "begin", "index", "time", "process", "f", "queue", "group", "message", "broker"
        )
        .agg(F.max("a_time").alias("asked"))
        .where("asked > begin")
    )
    kept = F.struct("index", "time", "process", "f", "queue", "group", "message", "broker", "asked")
    collected = found.groupBy("w_run", "id").agg(
        F.count("*").alias("count"), F.min_by(kept, "index", _ANSWERS_KEPT).alias("rows")
    )
    return {(r["w_run"], r["id"]): Answers(r["count"], tuple(r["rows"])) for r in collected.collect()}


def zombies(source: Source, by_run: dict[int, Sequence[Reign]]) -> list[Instance]:
    """One instance an operation that a fallen broker answered."""
    windows = [
        Window(run, number, *times)
        for run, found in by_run.items()
        for number, times in enumerate(fallen(found))
    ]
    return sorted(
        {
            Instance("zombie", r["queue"], r["group"], r["message"], r["index"], r["broker"], run)
            for (run, _), answers in answered(source, windows).items()
            for r in answers.rows
        },
        key=lambda instance: (instance.run, instance.index),
    )


__all__ = [
    "NAMES",
    "Answers",
    "Overlap",
    "Reign",
    "Window",
    "answered",
    "fallen",
    "overlaps",
    "reigns",
    "zombies",
]
