"""Who held what, when: duplicate, unflagged-redelivery, double-delivery, group-split, reordered-session.

A session *holds* a delivery from its row until the first of: the invocation of its ack or nack (of the commit or abort, for an ack
in a transaction), of the unsubscribe, or the disconnect row. The hold is *certain* only until the latest moment at which the session is
proven alive at the broker: the invocation of an operation in it that later completed ``ok``. A partitioned client may hold
deliveries of a session that its broker ended long ago; that is no anomaly. Two holds conflict if both are certain at one instant.

Why the running maximum is enough: let d be the first delivery that begins within an earlier certain hold of another session. If the
hold that ends last among the earlier ones is of d's own session, that hold and the other session's overlap too, and the later
of those two begins before d: a contradiction. So the first conflict of a group is always with the hold that ends last.

Only suspects are judged (``checkers.order.suspects``): in a run without failures nothing here is computed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers.instance import any_of, flags
from checkers.lifecycle import (
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    FOREVER,
    NACK_INVOKE,
    NACK_OK,
    SEND_FAIL,
    SEND_INVOKE,
    SEND_OK,
    kind,
    lifecycle,
    pack,
    packed_index,
    packed_session,
    transactions,
)
from checkers.source import Source

_SENDING = (SEND_INVOKE, SEND_OK, SEND_FAIL)
NAMES = ("duplicate", "unflagged-redelivery", "double-delivery", "group-split", "reordered-session")


def _proven(source: Source) -> DataFrame:
    """One row a session: ``proven``, up to which index it was certainly alive at its broker."""
    k, index = F.col("k"), F.col("index")
    keys = [*source.scope, "session"]
    answered = (
        source.data.select(*keys, "queue", "group", "message", "index", kind().alias("k"))
        .where(k.isin(ACK_INVOKE, ACK_OK, NACK_INVOKE, NACK_OK) & F.col("session").isNotNull())
        .withColumn("nack", k >= NACK_INVOKE)
        .groupBy(*keys, "queue", "group", "message", "nack")
        .agg(
            F.min(F.when(k.isin(ACK_INVOKE, NACK_INVOKE), index)).alias("asked"),
            F.max(F.when(k.isin(ACK_OK, NACK_OK), index)).alias("answered"),
        )
        .where("answered > asked")
        .select(*keys, "asked")
    )
    left = (
        source.control.where("f = 'unsubscribe' and session is not null")
        .groupBy(*keys)
        .agg(
            F.min(F.when(F.col("type") == "invoke", index)).alias("asked"),
            F.max(F.when(F.col("type") == "ok", index)).alias("answered"),
        )
        .where("answered > asked")
        .select(*keys, "asked")
    )
    return answered.unionAll(left).groupBy(*keys).agg(F.max("asked").alias("proven"))


def _ended(source: Source) -> DataFrame:
    """One row a session that ended: ``ended``, the first unsubscribe invocation or disconnect row."""
    return (
        source.control.where(
            "session is not null and (f = 'disconnect' or (f = 'unsubscribe' and type = 'invoke'))"
        )
        .groupBy(*source.scope, "session")
        .agg(F.min("index").alias("ended"))
    )


def _before(keys: list[str]) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy("index").rowsBetween(Window.unboundedPreceding, -1)


def _among(rows: DataFrame, named: DataFrame, keys: list[str]) -> DataFrame:
    """The rows whose keys are named; null is a value like any other."""
    other = named.select(*(F.col(key).alias(f"s_{key}") for key in keys))
    same = F.lit(True)
    for key in keys:
        same = same & F.col(key).eqNullSafe(F.col(f"s_{key}"))
    return rows.join(F.broadcast(other), same, "left_semi")


def _deliveries(source: Source, involved: DataFrame | None, with_transactions: bool) -> DataFrame:
    """Every delivery of the involved messages (None: of all) with what was known of its message before it.

    ``previous``: its last delivery in this session. ``earlier``: its deliveries anywhere. ``settled``: since when an ack of it was certain.
    ``certain``: its send is. ``excuse``: the last nack or rollback in this session. ``release``: what ends this hold first.
    """
    scope, k, index = source.scope, F.col("k"), F.col("index")
    group = [*scope, "queue", "group"]
    rows = source.data.select(
        *group, "message", "session", "index", "redelivered", "producer", "sequence", "transaction", kind().alias("k")
    ).where(
        F.col("message").isNotNull()
        & ((k.isin(DELIVER, ACK_INVOKE, ACK_OK, NACK_INVOKE) & F.col("session").isNotNull()) | k.isin(*_SENDING))
    )  # fmt: skip
    if involved is not None:
        rows = _among(rows, involved, [*group, "message"])
    if with_transactions:
        rows = rows.join(F.broadcast(transactions(source)), [*scope, "transaction"], "left")
    else:
        nothing = F.lit(None).cast("long")
        rows = rows.withColumns({"t_commit": nothing, "t_end": nothing, "t_back": nothing})
    alone = F.col("transaction").isNull()
    rows = rows.withColumns(
        {
            "release": F.when(k == NACK_INVOKE, index).when(
                k == ACK_INVOKE, F.when(alone, index).otherwise(F.col("t_end"))
            ),
            "excuse": F.when(k == NACK_INVOKE, index).when(k == ACK_INVOKE, F.when(~alone, F.col("t_back"))),
            "settled": F.when(k == ACK_OK, F.when(alone, index).otherwise(F.col("t_commit"))),
        }
    )
    one = [*group, "message", "session"]
    after = Window.partitionBy(*one).orderBy(F.col("index").desc()).rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("release", F.min("release").over(after))
    rows = rows.withColumns(
        {
            "previous": F.max(F.when(k == DELIVER, index)).over(_before(one)),
            "excuse": F.max("excuse").over(_before(one)),
        }
    )
    message = [*group, "message"]
    whole = Window.partitionBy(*message)
    joined = F.max((k == SEND_INVOKE) & ~alone).over(whole)
    committed = F.max((k == SEND_INVOKE) & F.col("t_commit").isNotNull()).over(whole)
    failed = F.max(k == SEND_FAIL).over(whole)
    rows = rows.withColumn(
        "certain", F.when(joined, committed & ~failed).otherwise(F.max(k == SEND_OK).over(whole))
    )
    rows = rows.withColumns(
        {
            "earlier": F.count(F.when(k == DELIVER, 1)).over(_before(message)),
            "settled": F.min("settled").over(_before(message)),
        }
    )
    return rows.where(k == DELIVER).select(
        *group, "message", "session", "index", "redelivered", "producer", "sequence", "release", "excuse", "previous",
        "earlier", "settled", "certain",
    )  # fmt: skip


def _single(source: Source, groups: DataFrame, with_transactions: bool) -> DataFrame:
    """The deliveries of a group that nothing but their lifecycle is needed of, in the columns of ``_deliveries``."""
    group = [*source.scope, "queue", "group"]
    nothing = F.lit(None).cast("long")
    life = lifecycle(source, with_transactions).where(
        "message is not null and `group` is not null and delivered is not null and not involved"
    )
    return _among(life, groups, group).select(
        *group, "message", F.col("session").cast("int").alias("session"), F.col("delivered").alias("index"),
        F.lit(None).cast("boolean").alias("redelivered"), F.col("arrived_producer").alias("producer"),
        F.col("arrived_sequence").alias("sequence"),
        F.when(F.col("until") < FOREVER, F.col("until")).alias("release"), nothing.alias("excuse"),
        nothing.alias("previous"), F.lit(0).cast("long").alias("earlier"), nothing.alias("settled"),
        F.col("ok").isNotNull().alias("certain"),
    )  # fmt: skip


def _held(source: Source, rows: DataFrame) -> DataFrame:
    """With ``held``: until when the delivery is certainly held, and by whom (packed); null if it never certainly is."""
    keys = [*source.scope, "session"]
    rows = rows.join(F.broadcast(_proven(source)), keys, "left")
    rows = rows.join(F.broadcast(_ended(source)), keys, "left")
    end = F.least(F.coalesce("proven", F.lit(-1)), F.col("release"), F.col("ended"))
    return rows.withColumn("held", F.when(end > F.col("index"), pack(end, F.col("session"))))


def found(
    source: Source, suspects: DataFrame | None, involved: DataFrame | None, with_transactions: bool
) -> DataFrame:
    """Every instance: the scope, name, queue, group, message, index.

    ``suspects`` has the scope, queue and group of the groups to judge; ``involved`` also the messages that their lifecycle
    does not tell enough of. Both None judges everything from its rows.
    """
    scope, index = source.scope, F.col("index")
    group = [*scope, "queue", "group"]
    message = [*group, "message"]
    rows = _held(source, _deliveries(source, involved, with_transactions))
    rows = rows.withColumn("by_message", F.max("held").over(_before(message)))
    if suspects is not None:
        single = _held(source, _single(source, suspects, with_transactions))
        rows = rows.unionByName(single.withColumn("by_message", F.lit(None).cast("long")))
    rows = rows.withColumn("by_group", F.max("held").over(_before(group)))
    backwards = F.max(F.when(F.col("previous").isNull(), F.col("sequence")))
    rows = rows.withColumn("highest", backwards.over(_before([*group, "producer", "session"])))

    again = F.col("earlier") > 0
    reconnected = (F.col("ended") > F.col("previous")) & (F.col("ended") < index)
    excused = F.coalesce(F.col("excuse") > F.col("previous"), F.lit(False)) | F.coalesce(
        reconnected, F.lit(False)
    )
    twice = F.coalesce(F.col("settled") < index, F.lit(False)) | (F.col("previous").isNotNull() & ~excused)

    def conflict(holding: str) -> Column:
        other = (packed_index(F.col(holding)) > index) & (packed_session(F.col(holding)) != F.col("session"))
        return F.col("held").isNotNull() & other

    grouped = F.col("group").isNotNull()
    rules = [
        ("duplicate", again & twice, index),
        ("unflagged-redelivery", again & ~twice & ~F.col("redelivered"), index),
        ("double-delivery", conflict("by_message"), index),
        ("group-split", grouped & conflict("by_group"), index),
        ("reordered-session",
         grouped & F.col("previous").isNull() & F.col("certain") & F.col("producer").isNotNull() & (F.col("highest") > F.col("sequence")), index),
    ]  # fmt: skip
    found = rows.where(any_of(*rules)).select(*group, "message", F.explode(flags(*rules)).alias("flag"))
    # One instance a message, or a group: its first.
    whole = F.when(F.col("flag.name") != "group-split", F.col("message"))
    return found.groupBy(*group, F.col("flag.name").alias("name"), whole.alias("message")).agg(
        F.min("flag.index").alias("index")
    )
