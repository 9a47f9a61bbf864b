"""The life of each message as one row: what every family of rules shares, computed once.

Why packed numbers: Spark's fast aggregation keeps fixed-width buffers only. "The first delivery and its session" is one
64-bit number, index above session, whose minimum is the first delivery; a struct would make Spark sort instead.
So an index must stay below 2^32 and a session below 2^31.

Columns: the scope, ``queue``, ``group``, ``message`` (null: deliveries whose body could not be read), then
    sent            index of the first ``send`` invocation; null: no send was ever invoked
    ok              index at which the send was certain: its ``ok``, or its transaction's commit ``ok``; else null
    aborted         the send failed, or its transaction was rolled back with ``ok``
    delivered       index of the first delivery; null: never
    session         session of the first delivery
    deliveries      how many
    damaged         a delivery's digest differs from what was sent
    producer, sequence   as sent
    until           index at which the first delivery's hold ends at the latest, ``FOREVER`` if nothing in these rows ends it
    involved        delivered more than once, or acknowledged in a transaction: its holds need more than this row
    arrived_producer, arrived_sequence   as delivered
    stored          some store still held it at the end
    recovered       delivered though its send ended unknown
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers.source import Source

FOREVER: Final = 2**32 - 1
_SESSION_BITS: Final = 31
_SESSION_MASK: Final = 2**31 - 1

SEND_INVOKE, SEND_OK, SEND_FAIL, DELIVER, ACK_INVOKE, ACK_OK, NACK_INVOKE, NACK_OK, BROWSE = range(1, 10)


def kind() -> Column:
    """Operation and type as one small number; null for rows that no rule about messages reads."""
    f, type_ = F.col("f"), F.col("type")
    return (
        F.when(f == "send", F.when(type_ == "invoke", 1).when(type_ == "ok", 2).when(type_ == "fail", 3))
        .when(f == "deliver", F.when(type_ == "ok", 4))
        .when(f == "ack", F.when(type_ == "invoke", 5).when(type_ == "ok", 6))
        .when(f == "nack", F.when(type_ == "invoke", 7).when(type_ == "ok", 8))
        .when(f == "browse", F.when(type_ == "ok", 9))
    )


def pack(index: Column, session: Column) -> Column:
    """Index above session in one number; null if either is."""
    return F.shiftleft(index, _SESSION_BITS).bitwiseOR(session.cast("long"))


def packed_index(packed: Column) -> Column:
    """The index of what ``pack`` made."""
    return F.shiftright(packed, _SESSION_BITS)


def packed_session(packed: Column) -> Column:
    """The session of what ``pack`` made."""
    return packed.bitwiseAND(F.lit(_SESSION_MASK))


def transactions(source: Source) -> DataFrame:
    """One row a transaction: ``t_commit`` and ``t_abort`` (index of the ``ok``), ``t_end`` and ``t_back`` (first invocation of either, of abort)."""
    f, type_, index = F.col("f"), F.col("type"), F.col("index")
    ended = source.control.where("f in ('commit', 'abort') and transaction is not null")
    return ended.groupBy(*source.scope, "transaction").agg(
        F.min(F.when((f == "commit") & (type_ == "ok"), index)).alias("t_commit"),
        F.min(F.when((f == "abort") & (type_ == "ok"), index)).alias("t_abort"),
        F.min(F.when(type_ == "invoke", index)).alias("t_end"),
        F.min(F.when((f == "abort") & (type_ == "invoke"), index)).alias("t_back"),
    )


def lifecycle(source: Source, with_transactions: bool) -> DataFrame:
    """One row a message; needs no exchange where the files are laid out by (queue, group)."""
    k, index = F.col("k"), F.col("index")
    sending, delivering = k == SEND_INVOKE, k == DELIVER
    rows = source.data.select(
        *source.scope, "queue", "group", "message", "index", "session", "producer", "sequence", "digest",
        "transaction", kind().alias("k"),
    ).where("k is not null and (message is not null or k = 4)")  # fmt: skip
    releasing = k.isin(ACK_INVOKE, NACK_INVOKE) & F.col("transaction").isNull()
    life = rows.groupBy(*source.scope, "queue", "group", "message").agg(
        F.min(F.when(sending, index)).alias("sent"),
        F.min(F.when(k == SEND_OK, index)).alias("send_ok"),
        F.max(F.when(k == SEND_FAIL, True)).alias("send_fail"),
        F.max(F.when(k == BROWSE, True)).alias("stored"),
        F.max(F.when(sending, F.col("digest"))).alias("digest"),
        F.min(F.when(delivering, F.col("digest"))).alias("digest_low"),
        F.max(F.when(delivering, F.col("digest"))).alias("digest_high"),
        F.max(F.when(sending, F.col("producer"))).alias("producer"),
        F.max(F.when(sending, F.col("sequence"))).alias("sequence"),
        F.max(F.when(sending, F.col("transaction"))).alias("transaction"),
        F.min(F.when(delivering, pack(index, F.coalesce(F.col("session"), F.lit(0))))).alias("first"),
        F.count(F.when(delivering, 1)).alias("deliveries"),
        F.max(F.when(delivering, F.col("producer"))).alias("arrived_producer"),
        F.max(F.when(delivering, F.col("sequence"))).alias("arrived_sequence"),
        F.max(F.when((k == ACK_INVOKE) & F.col("transaction").isNotNull(), True)).alias("in_transaction"),
        F.min(F.when(releasing, pack(index, F.coalesce(F.col("session"), F.lit(0))))).alias("release"),
    )
    if with_transactions:
        life = life.join(F.broadcast(transactions(source)), [*source.scope, "transaction"], "left")
    else:
        nothing = F.lit(None).cast("long")
        life = life.withColumns({"t_commit": nothing, "t_abort": nothing})
    failed = F.col("send_fail").isNotNull()
    alone = F.col("transaction").isNull()
    delivered, session = packed_index(F.col("first")), packed_session(F.col("first"))
    release = packed_index(F.col("release"))
    held = (packed_session(F.col("release")) == session) & (release > delivered)
    ok = F.when(alone, F.col("send_ok")).when(~failed, F.col("t_commit"))
    digest = F.col("digest")
    return life.select(
        *source.scope, "queue", "group", "message", "sent", "producer", "sequence", "deliveries",
        ok.alias("ok"),
        F.when(alone, failed & F.col("send_ok").isNull()).otherwise(failed | F.col("t_abort").isNotNull()).alias("aborted"),
        delivered.alias("delivered"),
        session.alias("session"),
        F.coalesce((F.col("digest_low") != digest) | (F.col("digest_high") != digest), F.lit(False)).alias("damaged"),
        F.coalesce(F.when(held, release), F.lit(FOREVER)).alias("until"),
        F.coalesce(F.col("stored"), F.lit(False)).alias("stored"),
        ((F.col("deliveries") > 1) | F.col("in_transaction").isNotNull()).alias("involved"),
        "arrived_producer",
        "arrived_sequence",
        (F.col("sent").isNotNull() & F.col("first").isNotNull() & F.col("send_ok").isNull() & ~failed).alias("recovered"),
    )  # fmt: skip
