"""The order of first deliveries: reordered and reordered-realtime, and which groups the session rules must look at.

Why the *late* message is named and not the early one: of 1, 2, 3, 0 only 0 is out of place.

Only a message whose send is certain can be late. One of unknown outcome may still be on its way, in the buffers of a connection that
its client has given up, when the producer's next message goes over another: no broker can know their order.

A message is late if some message before it (by first delivery, in its group) should have come after it: for ``reordered`` one of
its producer with a higher sequence, for ``reordered-realtime`` any whose send was invoked after its own was ok. Both are running
maxima over one order, so O(n log n), and Spark sorts within the group's file only.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers.lifecycle import pack, packed_index, packed_session
from checkers.source import Source

NAMES = ("reordered", "reordered-realtime")
SUSPECT = "~suspect"
"""Not a finding: this message's group must be judged by ``checkers.sessions``."""


def ordered(source: Source, life: DataFrame) -> DataFrame:
    """``lifecycle`` with the running maxima of everything delivered before, within the group.

    Adds ``highest`` (sequence, same producer), ``latest`` (send invocation) and ``holding`` (packed: until when some earlier
    delivery may still be held, and its session).
    """
    group = [*source.scope, "queue", "group"]

    def before(*keys: str) -> WindowSpec:
        return Window.partitionBy(*keys).orderBy("delivered").rowsBetween(Window.unboundedPreceding, -1)

    valid = F.col("delivered").isNotNull() & F.col("message").isNotNull()
    sent = F.col("sent").isNotNull()
    by_producer = life.withColumn(
        "highest", F.max(F.when(valid & sent, F.col("sequence"))).over(before(*group, "producer"))
    )
    return by_producer.withColumns(
        {
            "latest": F.max(F.when(valid & sent, F.col("sent"))).over(before(*group)),
            "holding": F.max(F.when(valid, pack(F.col("until"), F.col("session")))).over(before(*group)),
        }
    )


INVOLVED = "~involved"
"""Not a finding: a message whose holds must be read from its rows; in a suspect group, all others from their lifecycle."""


def rules() -> list[tuple[str, Column, Column]]:
    """(name, condition, index) over the columns of ``ordered``; ungrouped messages promise no order."""
    late = (
        F.col("group").isNotNull()
        & F.col("message").isNotNull()
        & F.col("sent").isNotNull()
        & F.col("delivered").isNotNull()
    )
    delivered = F.col("delivered")
    return [
        ("reordered", late & F.col("ok").isNotNull() & (F.col("highest") > F.col("sequence")), delivered),
        ("reordered-realtime", late & (F.col("latest") > F.col("ok")), delivered),
    ]


def suspects() -> list[tuple[str, Column, Column]]:
    """What the session rules must see: a superset of every group or message where one of them can hold.

    A message delivered once, in a group where no other session can have held anything at that moment and nothing came out of
    order, cannot be part of any of their findings.
    """
    overlap = (packed_index(F.col("holding")) > F.col("delivered")) & (
        packed_session(F.col("holding")) != F.col("session")
    )
    grouped, delivered = F.col("group").isNotNull(), F.col("delivered")
    strange = F.col("sent").isNull() | F.col("damaged") | (F.col("highest") > F.col("sequence"))
    suspicious = (F.col("deliveries") > 1) | (grouped & (overlap | strange))
    here = delivered.isNotNull() & F.col("message").isNotNull()
    involved = F.when(grouped, F.col("involved")).otherwise(F.col("deliveries") > 1)
    return [(SUSPECT, here & grouped & suspicious, delivered), (INVOLVED, here & involved, delivered)]
