"""One occurrence of an anomaly, as both implementations name it.

Why so little: two implementations can only be compared on what the definitions fix. ``index`` is the row that completes
the anomaly (the late delivery, the send that was lost); everything said in words is read from the witness.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


@dataclass(frozen=True, slots=True)
class Instance:
    """``message`` is None where the anomaly belongs to a group, a broker or the whole history; ``key`` then says which."""

    name: str
    queue: str | None
    group: str | None
    message: int | None
    index: int
    key: str | None = None
    run: int = 0


def flags(*conditions: tuple[str, Column, Column]) -> Column:
    """(name, condition, index) -> one array of the structs whose condition holds, for ``explode``."""
    return F.array_compact(
        F.array(
            *(
                F.when(condition, F.struct(F.lit(name).alias("name"), index.cast("long").alias("index")))
                for name, condition, index in conditions
            )
        )
    )


def any_of(*conditions: tuple[str, Column, Column]) -> Column:
    """Whether any condition holds; null counts as false."""
    found = F.lit(False)
    for _, condition, _ in conditions:
        found = found | F.coalesce(condition, F.lit(False))
    return found
