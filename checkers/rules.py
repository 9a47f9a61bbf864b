"""All families over one source: every instance, or how many of each kind with the earliest few.

Delivery and order are one pass with one job. It also says which groups the session rules must look at; where there are none, they
cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers import delivery, order, sessions
from checkers.instance import Instance, any_of, flags
from checkers.lifecycle import lifecycle
from checkers.source import Source

INVOLVED_MAX = 100_000
RECOVERED = "~recovered"
REDELIVERED = "~redelivered"


@dataclass(frozen=True, slots=True)
class Found:
    """One kind: how many, and the earliest."""

    count: int
    first: tuple[Instance, ...]


class Suspects(NamedTuple):
    """Groups (queue, group) and messages (queue, group, message) as ``sessions.found`` takes them.

    ``everything`` where they are too many to name, or where nobody could say.
    """

    groups: tuple[tuple[str | None, str | None], ...]
    involved: tuple[tuple[str | None, str | None, int], ...]
    everything: bool


def message_rules(families: Collection[str]) -> list[tuple[str, Column, Column]]:
    """The rules of the families "delivery" and "order", with what the statistics and the session rules need of the same rows."""
    rules: list[tuple[str, Column, Column]] = []
    if "delivery" in families:
        known = F.col("message").isNotNull()
        rules += delivery.rules()
        rules += [
            (RECOVERED, known & F.col("recovered"), F.col("delivered")),
            (REDELIVERED, known & (F.col("deliveries") > 1), F.col("delivered")),
        ]
    if "order" in families:
        rules += order.rules() + order.suspects()
    return rules


def message_instances(source: Source, families: Collection[str], with_transactions: bool) -> DataFrame:
    """Scope, name, queue, group, message, index, weight: one row an instance."""
    life = lifecycle(source, with_transactions)
    if "order" in families:
        life = order.ordered(source, life)
    rules = message_rules(families)
    return (
        life.where(any_of(*rules))
        .select(*source.scope, "queue", "group", "message", "deliveries", F.explode(flags(*rules)).alias("flag"))
        .select(
            *source.scope, "queue", "group", "message", F.col("flag.name").alias("name"), F.col("flag.index").alias("index"),
            F.when(F.col("flag.name") == REDELIVERED, F.col("deliveries") - 1).otherwise(F.lit(1)).alias("weight"),
        )
    )  # fmt: skip


def message_findings(
    source: Source, families: Collection[str], with_transactions: bool, examples: int
) -> tuple[dict[str, Found], Suspects]:
    """One job: counts and the earliest few of each kind, and the suspects."""
    instances = message_instances(source, families, with_transactions)
    suspect, involved = F.col("name") == order.SUSPECT, F.col("name") == order.INVOLVED
    place = F.struct("queue", "group", "message", "index")
    rows = instances.groupBy("name").agg(
        F.sum("weight").alias("count"),
        F.min_by(place, "index", examples).alias("first"),
        F.collect_set(F.when(suspect, F.struct("queue", "group"))).alias("groups"),
        F.min_by(F.struct("queue", "group", "message"), F.when(involved, F.col("index")), INVOLVED_MAX).alias("involved"),
    ).collect()  # fmt: skip
    found = {}
    suspects = Suspects((), (), everything=False)
    for row in rows:
        if row["name"] == order.SUSPECT:
            suspects = suspects._replace(groups=tuple((g["queue"], g["group"]) for g in row["groups"]))
        elif row["name"] == order.INVOLVED:
            named = tuple((m["queue"], m["group"], m["message"]) for m in row["involved"] or ())
            suspects = suspects._replace(involved=named, everything=row["count"] > INVOLVED_MAX)
        else:
            first = (
                Instance(row["name"], p["queue"], p["group"], p["message"], p["index"]) for p in row["first"]
            )
            found[row["name"]] = Found(row["count"], tuple(first))
    return found, suspects


def session_findings(
    source: Source, suspects: Suspects, with_transactions: bool, examples: int
) -> dict[str, Found]:
    """One job over the suspects; none if there are none."""
    if not suspects.groups and not suspects.involved and not suspects.everything:
        return {}
    groups = involved = None
    if not suspects.everything:
        groups = source.spark.createDataFrame(list(suspects.groups), "queue string, group string")
        involved = source.spark.createDataFrame(
            list(suspects.involved), "queue string, group string, message long"
        )
    instances = sessions.found(source, groups, involved, with_transactions)
    place = F.struct("queue", "group", "message", "index")
    rows = instances.groupBy("name").agg(
        F.count("*").alias("count"), F.min_by(place, "index", examples).alias("first")
    )
    return {
        row["name"]: Found(
            row["count"],
            tuple(
                Instance(row["name"], p["queue"], p["group"], p["message"], p["index"]) for p in row["first"]
            ),
        )
        for row in rows.collect()
    }
