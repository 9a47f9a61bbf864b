"""Messages that went as they should: almost all of a history, found in a few passes.

Why: most of what rules ask is why something went another way: who got a message twice, what took an
ack, whether one was lost. Of a message that was sent, delivered and acknowledged once they need
nothing but its numbers, and only as far as other messages of its group are compared with it.

A message is *ordinary* if it has five rows, each with its id, and none in a transaction:

    send invoke, send ok, deliver, ack invoke, ack ok

in this order, but that the send may be answered at any time after it was asked for; if those of the
consumer are of one session, which had not ended when the ack was asked for; if what was delivered
is what was sent (producer, sequence, digest, headers), and does not say that it came before; if the
send asked for nothing (``value``); and if it is of a plain queue, in a run in which nobody has a
selector.

Why no rule about single messages finds anything in it, whatever a broker promised:

- It was sent for certain, before it was seen, and to where it was seen: neither phantom nor
  corrupted, aborted nor uncommitted, and its ack is of a session that had got it.
- Its ack is ``ok`` outside of transactions: it is neither lost nor stuck, and no dead letter. No
  row of a store has it, so it did not come back.
- It was delivered once: no duplicate, no second holder, no mark and no count to compare; to a
  session that was not over: not late.
- It has neither a time nor a priority, nor was it for others than those who got it.

What compares messages of a group (order, FIFO, who held what when) is left, and asks for no more
than ``Ordinary`` has: it came when it was sent, for certain from ``ok`` on, and was held from
``delivered`` to ``acked``.
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
"""In the order in which ``Rows.by_message`` has them."""


@dataclass(frozen=True, slots=True)
class Ordinary:
    """One row a message: the indexes of its rows but the last, and what they say."""

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
        """Without any."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing.astype(np.int32), *(nothing for _ in range(8)))


def apart(rows: Rows, places: PlaceTable, ends: Ends, subscriptions: Subscriptions) -> tuple[Ordinary, Rows]:
    """The ordinary messages, and the rows of all others, from whole messages."""
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
        for some in at:
            right &= rows.transaction[some] == NONE
    if rows.value.values:
        right &= (rows.value.codes[sends] < 0) & (rows.value.codes[oks] < 0)
    if not right.all():
        session, at = session[right], tuple(some[right] for some in at)
        sends, oks, delivers, asks, acks = at
    if not len(sends):
        return Ordinary.none(), rows
    found = Ordinary(
        place=rows.place[sends], message=rows.message[sends], sent=rows.index[sends], ok=rows.index[oks],
        delivered=rows.index[delivers], acked=rows.index[asks], session=session,
        producer=rows.producer[sends], sequence=rows.sequence[sends],
    )  # fmt: skip
    others = np.ones(len(rows.index), dtype=bool)
    for some in at:
        others[some] = False
    return found, rows.some(np.flatnonzero(others))


def _of_five(rows: Rows, places: PlaceTable, subscriptions: Subscriptions) -> tuple[Numbers, ...]:
    """The positions of the rows, kind by kind, of messages that have one of each and no others.

    Only in places of which no rule asks for whom a message was. In order of their sends, so that
    whoever looks up what these rows say reads memory from one end to the other.
    """
    begin = rows.starts[np.diff(rows.starts, append=len(rows.index)) == len(_KINDS)]
    kinds = rows.kind[rows.by_message]
    for n, kind in enumerate(_KINDS):
        begin = begin[kinds[begin + n] == kind]
    begin = begin[ordered(rows.by_message[begin])]
    at = [rows.by_message[begin + n] for n in range(len(_KINDS))]
    choosing = np.array(sorted({run for run, _ in subscriptions.selectors}), dtype=np.int64)
    plain = ~places.passing() & ~np.isin(places.runs(), choosing)
    right = plain[rows.place[at[0]]] & (rows.message[at[0]] != NONE)
    return tuple(at if right.all() else (some[right] for some in at))
