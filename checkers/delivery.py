"""What became of each message: lost, stuck, phantom, corrupted, aborted-delivery.

All five read one row of ``checkers.lifecycle`` and nothing else.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

NAMES = ("lost", "stuck", "phantom", "corrupted", "aborted-delivery")


def rules() -> list[tuple[str, Column, Column]]:
    """(name, condition, index of the row that shows it), over the columns of ``lifecycle``.

    ``lost`` and ``stuck`` hold here for whatever was sent and not delivered; whether the history went far enough to say so is
    the judge's to decide.
    """
    known = F.col("message").isNotNull()
    sent, delivered = F.col("sent").isNotNull(), F.col("delivered").isNotNull()
    missing = known & sent & F.col("ok").isNotNull() & ~delivered
    return [
        ("lost", missing & ~F.col("stored"), F.col("sent")),
        ("stuck", missing & F.col("stored"), F.col("sent")),
        ("phantom", known & delivered & ~sent, F.col("delivered")),
        ("corrupted", ~known | (sent & F.col("damaged")), F.col("delivered")),
        ("aborted-delivery", known & sent & delivered & F.col("aborted"), F.col("delivered")),
    ]
