"""The second implementation of the rule that a group belongs to one session at a time.

A group may change its session when the session ends, when the group is closed, or when messages
that the session held are given back. A selector may leave messages of a group to other sessions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from checkers.reference_attempts import first_possible
from checkers.reference_consumers import consumers_of
from checkers.reference_owed import questions
from checkers.schema import json_object
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]
HANDFUL: Final = 5
"""The number of unexplained changes of session in a row by which a group is split.

Only a change to a session that had the group before counts.
"""


@dataclass(frozen=True, slots=True)
class Closing:
    """A message that closes its group, and the rows between which the broker may have sent it.

    ``end`` is infinity if the broker may send the message again.
    """

    message: PlainMessage
    begin: int
    end: float


def closings_of(messages: Sequence[PlainMessage]) -> list[Closing]:
    """Return the messages that close their group when the broker sends them to a consumer.

    A closing begins with the first attempt to send the message that may have happened. It ends with
    the last delivery, if an ack of the message outside of transactions was answered ``ok``.
    Otherwise it has no end, as the message may be delivered again.
    """
    closings = []
    for m in messages:
        if not any(_closes(r) for r in m.rows if r["f"] == "send"):
            continue
        begin = first_possible(m)
        if begin is not None:
            acked = any((r["f"], r["type"]) == ("ack", "ok") and r.get("transaction") is None for r in m.rows)
            settled = acked and bool(m.deliveries)
            closings.append(Closing(m, begin, m.deliveries[-1]["index"] if settled else float("inf")))
    return closings


def _closes(send: Row) -> bool:
    value = send.get("value")
    return value is not None and (json_object(value) or {}).get("close") is True


def is_closed_between(closings: Sequence[Closing], first: int, second: int) -> bool:
    """Return whether a group may have been closed between two of its deliveries.

    A closing message frees the group when the broker sends it; its consumer may read it later.
    """
    return any(closing.begin < second and closing.end >= first for closing in closings)


def alternation(history: History, queue: str | None, group: str | None, options: CheckOptions) -> int | None:
    """Return the first delivery by which a group has alternated too often between sessions.

    A change of session is explained by a redelivery, a closed group, a selector or the end of a
    session in between; such a change excuses all changes before it. Counted are the unexplained
    changes to a session that had the group since the last explained one: ``HANDFUL`` of them are
    too many. A change to a session that had not is not counted. Where groups need not stay with
    their session, a change does not count if the session that was left held no message of the
    group.
    """
    messages = history.lanes[queue, group]
    firsts = [m.deliveries[0] for m in messages if m.deliveries]
    firsts = sorted((d for d in firsts if d.get("session") is not None), key=_index)
    if sum(_session(d) != _session(before) for before, d in itertools.pairwise(firsts)) < HANDFUL:
        return None
    redeliveries = sorted((d for m in messages for d in m.deliveries[1:]), key=_index)
    closings = history.closings[queue, group]
    ends = history.session_ends(queue)
    selective = [consumer for consumer in consumers_of(history, queue) if consumer.selector]
    sessions = {_session(d) for d in firsts[:1]}
    returns = 0
    for n in range(1, len(firsts)):
        before, d = firsts[n - 1], firsts[n]
        begin, end = _index(before), _index(d)
        explained = (
            any(begin < _index(other) < end for other in redeliveries)
            or _was_given_back(before)
            or _was_given_back(d)
            or is_closed_between(closings, begin, end)
            or any(begin < at < end for at in ends)
            or any(c.begin < end and c.end > begin for c in selective)
            or _was_lost(history, _session(before), firsts[n:])
        )
        if explained:
            sessions, returns = {_session(d)}, 0
        elif _session(d) != _session(before):
            free = not options.broker.sticky_groups and _let_go_of_all(history, messages, before, end)
            returns += _session(d) in sessions and not free
            sessions.add(_session(d))
            if returns >= HANDFUL:
                return end
    return None


def _let_go_of_all(history: History, messages: Sequence[PlainMessage], before: Row, end: int) -> bool:
    """Return whether a session certainly held no message of a group any more at row ``end``.

    ``before`` is a delivery to that session.
    """
    return all(
        _let_go(history, m, d) < end
        for m in messages
        for d in m.deliveries
        if d.get("session") == before["session"] and d["index"] < end
    )


def _let_go(history: History, m: PlainMessage, d: Row) -> float:
    """Return the row since which a session certainly no longer held a delivery; else infinity.

    It is the invocation of an ack or nack that was answered ``ok``, or the next delivery of the
    message. Of an ack or nack in a transaction, the commit and its answer count instead.
    """
    ends = [
        float(e["index"]) for e in m.deliveries if e["index"] > d["index"] and e.get("session") is not None
    ]
    for question in questions(m.rows, "ack", "nack"):
        if question.asked.get("session") != d["session"] or question.asked["index"] <= d["index"]:
            continue
        if question.transaction is None:
            invoked = question.asked["index"] if question.outcome == "ok" else None
        else:
            invoked = history.ended(question.transaction, "commit", "ok")
            if invoked is not None:
                invoked = history.ended(question.transaction, "commit", "invoke") or invoked
        if invoked is not None:
            ends.append(invoked)
    return min(ends, default=float("inf"))


def _index(r: Row) -> int:
    return int(r["index"])


def _session(r: Row) -> int:
    return int(r["session"])


def _was_given_back(d: Row) -> bool:
    """Return whether a first delivery says that the message had been delivered before."""
    return d.get("redelivered") is True or (d.get("delivery_count") or 0) > 1


def _was_lost(history: History, session: int, following: Sequence[Row]) -> bool:
    """Return whether a session may have ended although its client noticed that only later.

    ``following`` are the first deliveries after the session's last; one of them to the session
    proves that it had not ended.
    """
    if any(_session(d) == session for d in following):
        return False
    return any(
        r["f"] == "disconnect" and r["index"] > following[0]["index"] for r in history.of_session(session)
    )
