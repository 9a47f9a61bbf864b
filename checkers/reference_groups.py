"""The second implementation of to whom a group belongs: one session at a time.

A group changes its session rightly when that ends, when the group is closed, when what the session
held is given back, or when a selector leaves something to others.
"""

from __future__ import annotations

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
"""How often in a row a group may change its session for no reason that a row tells, and come back
to where it was.
"""


@dataclass(frozen=True, slots=True)
class Closing:
    """A message that closes its group, which may have been given out from ``begin`` to ``end``."""

    message: PlainMessage
    begin: int
    end: float


def closings_of(messages: Sequence[PlainMessage]) -> list[Closing]:
    """Return the messages that close their group once they are given out.

    From the first attempt that may have happened to the last delivery of it, if an ack of it was
    answered; else it may be given out again.
    """
    found = []
    for m in messages:
        begin = first_possible(m)
        if begin is not None and any(_closes(r) for r in m.rows if r["f"] == "send"):
            acked = any((r["f"], r["type"]) == ("ack", "ok") and r.get("transaction") is None for r in m.rows)
            settled = acked and bool(m.deliveries)
            found.append(Closing(m, begin, m.deliveries[-1]["index"] if settled else float("inf")))
    return found


def _closes(send: Row) -> bool:
    return (json_object(send.get("value")) or {}).get("close") is True


def is_closed_between(closings: Sequence[Closing], first: int, second: int) -> bool:
    """Whether a group may have been closed between two deliveries of it.

    A closing message frees the group when it is given out; it may be read later.
    """
    return any(closing.begin < second and closing.end >= first for closing in closings)


def alternation(
    history: History, queue: str | None, messages: Sequence[PlainMessage], options: CheckOptions
) -> int | None:
    """Return the first delivery by which a group has alternated too often between sessions.

    First deliveries of a group that alternate more than a handful of times, without a redelivery, a
    closed group, a selector, or a session's end in between. The first change is to a session that
    had nothing of the group yet, and so may be the first to a third one; all others return it to a
    session that had it. Where groups do not stay with their session, one does not count that left a
    session with nothing of the group in hand.
    """
    firsts = [m.deliveries[0] for m in messages if m.deliveries]
    firsts = sorted((d for d in firsts if d.get("session") is not None), key=_index)
    again = sorted((d for m in messages for d in m.deliveries[1:]), key=_index)
    closings = closings_of(messages)
    ends = history.session_ends(queue)
    selective = [consumer for consumer in consumers_of(history, queue) if consumer.selector]
    sessions = {_session(d) for d in firsts[:1]}
    returns = 0
    for n in range(1, len(firsts)):
        before, d = firsts[n - 1], firsts[n]
        begin, end = _index(before), _index(d)
        explained = (
            any(begin < _index(other) < end for other in again)
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
    """Whether a session had certainly let go of all that it had of a group by some row."""
    return all(
        _let_go(history, m, d) < end
        for m in messages
        for d in m.deliveries
        if d.get("session") == before["session"] and d["index"] < end
    )


def _let_go(history: History, m: PlainMessage, d: Row) -> float:
    """Return since when a delivery was certainly not its session's any more.

    It was acknowledged or refused, which was answered ``ok``, or somebody got the message again.
    """
    ends = [
        float(e["index"]) for e in m.deliveries if e["index"] > d["index"] and e.get("session") is not None
    ]
    for one in questions(m.rows, "ack", "nack"):
        if one.asked.get("session") != d["session"] or one.asked["index"] <= d["index"]:
            continue
        if one.transaction is None:
            asked = one.asked["index"] if one.outcome == "ok" else None
        else:
            asked = history.ended(one.transaction, "commit", "ok")
            if asked is not None:
                asked = history.ended(one.transaction, "commit", "invoke") or asked
        if asked is not None:
            ends.append(asked)
    return min(ends, default=float("inf"))


def _index(r: Row) -> int:
    return int(r["index"])


def _session(r: Row) -> int:
    return int(r["session"])


def _was_given_back(d: Row) -> bool:
    """Whether the first delivery that was read says that somebody had had the message before."""
    return d.get("redelivered") is True or (d.get("delivery_count") or 0) > 1


def _was_lost(history: History, session: int, following: Sequence[Row]) -> bool:
    """Whether a session that is left may have ended by then, and its client saw that later."""
    if any(_session(d) == session for d in following):
        return False
    return any(
        r["f"] == "disconnect" and r["index"] > following[0]["index"] for r in history.of_session(session)
    )
