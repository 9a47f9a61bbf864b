"""Messages that were sent, delivered and acknowledged once: almost all of a history.

They are found in a few passes. Why: most rules look for messages that went another way: which was
delivered twice, lost or acknowledged late. Of a message that went as it should they need only the
row numbers, and only where other messages of its group are compared with it.

A message is *ordinary* if it has five rows, each with its id, and none in a transaction:

    send invoke, send ok, deliver, ack invoke, ack ok

in this order, except that the send may be answered at any time after its invocation. The rows of
the consumer must be of one session, which had not ended when the ack was invoked. The delivery must
show what was sent (producer, sequence, digest, headers), and not say that it is a redelivery. The
send must have no options (``value``). The message must be of a plain queue that was never deleted,
in a run without selectors.

Why no rule about single messages finds anything in an ordinary message, whatever a broker promised:

- It was certainly sent before it was seen, and to the place where it was seen. So it is neither
  phantom nor corrupted, aborted nor uncommitted, and its ack is of a session that had got it.
- Its ack is ``ok`` outside of transactions, so it is neither lost nor stuck, nor a dead letter. No
  row of a store has it, so it was not resurrected.
- It was delivered once, so it is no duplicate, and has no second holder and no mark or count to
  compare. Its session was not over, so the delivery is not late.
- It has no expiry, delay or priority, and no subscription or selector decides to whom it was due.

The rules that compare messages of a group (order, FIFO, which session held a message when) still
apply. They need no more than ``Ordinary`` has: the message was in the queue from its send on,
certainly from ``ok`` on, and was held from ``delivered`` to ``acked``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.ends import Ends
from checkers.rows import (
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    NONE,
    SEND_INVOKE,
    SEND_OK,
    Numbers,
    PlaceTable,
    Rows,
    ordered,
)
from checkers.subscriptions import Subscriptions

_KINDS: Final = (SEND_INVOKE, SEND_OK, DELIVER, ACK_INVOKE, ACK_OK)
"""The kinds of an ordinary message's rows, in the order of ``Rows.by_message``."""


@dataclass(frozen=True, slots=True)
class Ordinary:
    """The ordinary messages, a row each: the indexes of their rows, and their columns.

    ``acked`` is the invocation of the ack; the index of its answer is not kept.
    """

    place: npt.NDArray[np.int32]
    message: Numbers
    sent: Numbers
    ok: Numbers
    delivered: Numbers
    acked: Numbers
    session: Numbers
    producer: Numbers
    sequence: Numbers

    @classmethod
    def none(cls) -> Ordinary:
        """Return a table without messages."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing.astype(np.int32), *(nothing for _ in range(8)))


def split_ordinary(
    rows: Rows, places: PlaceTable, ends: Ends, subscriptions: Subscriptions
) -> tuple[Ordinary, Rows]:
    """Split the rows of whole messages: return the ordinary messages and the rows of all others."""
    at = _of_five(rows, places, subscriptions)
    sends, oks, delivers, asks, acks = at
    right = (sends < oks) & (sends < delivers) & (delivers < asks) & (asks < acks)
    session = rows.session[delivers]
    right &= (session != NONE) & rows.session.same(asks, delivers) & rows.session.same(acks, delivers)
    ended = ends.sessions.find("ended", rows.run[delivers], session)
    right &= (ended == NONE) | (ended > rows.index[asks])
    right &= (rows.redelivered[delivers] != 1) & (rows.delivery_count[delivers] <= 1)
    for column in (rows.producer, rows.sequence, rows.digest, rows.headers):
        right &= column.same(sends, delivers)
    if not rows.transaction.absent:
        for positions in at:
            right &= rows.transaction[positions] == NONE
    if rows.value.values:
        right &= (rows.value.codes[sends] < 0) & (rows.value.codes[oks] < 0)
    if not right.all():
        session, at = session[right], tuple(positions[right] for positions in at)
        sends, oks, delivers, asks, acks = at
    if not len(sends):
        return Ordinary.none(), rows
    ordinary = Ordinary(
        place=rows.place[sends], message=rows.message[sends], sent=rows.index[sends], ok=rows.index[oks],
        delivered=rows.index[delivers], acked=rows.index[asks], session=session,
        producer=rows.producer[sends], sequence=rows.sequence[sends],
    )  # fmt: skip
    is_other = np.ones(len(rows.index), dtype=bool)
    for positions in at:
        is_other[positions] = False
    return ordinary, rows.some(np.flatnonzero(is_other))


def _of_five(rows: Rows, places: PlaceTable, subscriptions: Subscriptions) -> tuple[Numbers, ...]:
    """Return the positions of the rows, kind by kind, of messages with one row of each kind only.

    Only places count where no rule asks to whom a message was due. The messages are in the order of
    their sends, so that reading the columns of these rows goes through memory in one direction.
    """
    begin = rows.starts[np.diff(rows.starts, append=len(rows.index)) == len(_KINDS)]
    kinds = rows.kind[rows.by_message]
    for n, kind in enumerate(_KINDS):
        begin = begin[kinds[begin + n] == kind]
    begin = begin[ordered(rows.by_message[begin])]
    at = [rows.by_message[begin + n] for n in range(len(_KINDS))]
    choosing = np.array(sorted({run for run, _ in subscriptions.selectors}), dtype=np.int64)
    plain = ~places.ending() & ~np.isin(places.runs(), choosing)
    right = plain[rows.place[at[0]]] & (rows.message[at[0]] != NONE)
    return tuple(at if right.all() else (positions[right] for positions in at))
