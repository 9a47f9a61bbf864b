"""The attempts of messages that were sent more than once.

A client may repeat a send under the same id. Each ``send`` invocation is an attempt; its answer is
the next completion of the same process and message, before that process sends it again. An attempt
without an answer is of unknown outcome. An attempt in a transaction has the outcome of that
transaction: it failed if the transaction was rolled back with ``ok``, or each of its commits
failed. Where transactions are batches, each send has an answer of its own: the send must be
answered ``ok``, too, and a commit that failed says nothing of it.

Most messages are sent once and have no row here: their fate follows from their few rows directly
(``checkers.lifecycle``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.ends import Ends
from checkers.rows import (
    NONE,
    SEND_FAIL,
    SEND_INFO,
    SEND_INVOKE,
    SEND_OK,
    Flags,
    Numbers,
    Rows,
    counted,
    highest,
    lowest,
    marked,
    ordered,
)
from checkers.running import segments


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts to send messages that were sent more than once, one row for each attempt.

    ``several``      by message: whether it was sent more than once
    ``message``      the number of the message among all messages
    ``row``          the position of the invocation
    ``answer``       the position of its answer, -1 for none
    ``asked``        the index of the invocation
    ``transaction``  the transaction in which the message was sent; ``NONE``: in none
    ``certain``      since when the message is certainly stored by this attempt; ``NONE``: it is not
    ``failed``       whether the attempt certainly stored nothing
    ``visible``      since when a consumer may get the message by this attempt; in a transaction,
                     since the commit was invoked; ``NONE``: never
    """

    several: Flags
    message: Numbers
    row: Numbers
    answer: Numbers
    asked: Numbers
    transaction: Numbers
    certain: Numbers
    failed: Flags
    visible: Numbers

    @property
    def possible(self) -> Flags:
        """The attempts that may have stored their message.

        If all attempts of a message failed, all of them are included.
        """
        result: Flags = ~self.failed | self.aborted[self.message]
        return result

    @property
    def aborted(self) -> Flags:
        """The messages whose attempts all certainly failed, by message.

        It says something only of messages that were sent more than once (``several``).
        """
        result: Flags = ~marked(self.message[~self.failed], len(self.several))
        return result

    @property
    def unknown(self) -> Flags:
        """The attempts of unknown outcome."""
        result: Flags = ~self.failed & (self.certain == NONE)
        return result

    def instead(self, usual: Numbers, values: Numbers, flags: Flags) -> Numbers:
        """Return by message the lowest of ``values`` among the attempts that ``flags`` flags.

        A message that was sent once gets its value in ``usual``.
        """
        size = len(self.several)
        return np.where(self.several, lowest(self.message[flags], values[flags], size), usual)

    @property
    def over(self) -> Numbers:
        """The row after which no attempt can store the message, by message.

        ``NONE`` where nothing says so.
        """
        latest = highest(self.message, self.certain, len(self.several))
        return np.where(marked(self.message[self.unknown], len(self.several)), NONE, latest)


def attempts_of(rows: Rows, ends: Ends, *, atomic: bool) -> Attempts | None:
    """Return the attempts of the messages that were sent more than once; None if there are none."""
    sends = rows.of(SEND_INVOKE)
    several = counted(rows.id[sends], rows.messages) > 1
    if not several.any():
        return None
    at = rows.of(SEND_INVOKE, SEND_OK, SEND_FAIL, SEND_INFO)
    at = at[several[rows.id[at]]]
    at = at[ordered(rows.id[at], rows.process[at], rows.index[at])]
    asking = rows.kind[at] == SEND_INVOKE
    process_part = segments(rows.id[at], rows.process[at])
    answered = np.zeros(len(at), dtype=bool)
    answered[:-1] = (process_part[1:] == process_part[:-1]) & ~asking[1:]
    invokes = np.flatnonzero(asking)
    answer = np.where(answered[invokes], at[np.minimum(invokes + 1, len(at) - 1)], -1)
    row = at[invokes]
    kind = np.where(answer < 0, 0, rows.kind[answer])
    transaction, run, invoked = rows.transaction[row], rows.run[row], rows.index[row]
    is_single = transaction == NONE
    ok = np.where(kind == SEND_OK, rows.index[answer], NONE)
    committed = ends.transactions.find("commit", run, transaction)
    if not atomic:
        is_complete = (committed != NONE) & (ok != NONE)
        committed = np.where(is_complete, np.maximum(committed, ok), NONE)
    refused = kind == SEND_FAIL
    certain = np.where(refused, NONE, np.where(is_single, ok, committed))
    failed = refused | ((certain == NONE) & rolled_back(ends, run, transaction, atomic=atomic))
    visible = np.where(failed, NONE, invoked)
    return Attempts(
        several=several, message=rows.id[row].astype(np.int64), row=row, answer=answer, asked=invoked,
        transaction=transaction, certain=certain, failed=failed,
        visible=np.where(is_single, visible, ends.transactions.find("asked", run, transaction)),
    )  # fmt: skip


def rolled_back(ends: Ends, run: Numbers, transaction: Numbers, *, atomic: bool) -> Flags:
    """Flag the transactions in which nothing happened, if none of their commits was ``ok``."""
    result: Flags = ends.transactions.find("abort", run, transaction) != NONE
    if atomic:
        result |= ends.transactions.find("void", run, transaction) != NONE
    return result
