"""The second implementation of the rules about the order within a group.

Every pair of messages of a group is compared: one came early, the other late. They came in the
wrong order if the late one was certainly stored before the early one. The producer's sequence tells
that of messages that one producer sent once; otherwise the intervals tell it in which each may have
been stored. Two messages have no order if a consumer's selector may have let one overtake the
other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from checkers.anomaly import LOSSLESS
from checkers.instance import Instance
from checkers.reference_asked import expires, in_turn, timely
from checkers.reference_attempts import over, stored_before, stored_by, stored_from
from checkers.reference_consumers import order_is_off
from checkers.reference_deletions import deletes_of
from checkers.reference_groups import Closing
from checkers.reference_owed import may_be_dead, may_have_died_unread
from checkers.reference_waits import NEVER
from checkers.schema import TEMPORARY, TOPIC
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]
Group = tuple[str | None, str | None]


def out_of_order(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Find reordered, reordered-realtime and reordered-session."""
    delivered = _by_group(
        history,
        lambda m: (
            bool(m.sends and m.deliveries)
            and timely(history, m)
            and not may_have_died_unread(history, m, options)
        ),
    )
    closings = history.closings
    for group, messages in delivered.items():
        in_order = sorted(messages, key=_first_read)
        highest: dict[int | None, int] = {}  # by producer: a message below it was overtaken
        begun = -1
        for n, late in enumerate(in_order):
            by = stored_by(history, late)
            suspected = {
                "reordered": late.sequence is not None and highest.get(late.producer, -1) > late.sequence,
                "reordered-realtime": by is not None and by < begun,
            }
            since = stored_from(late)
            begun = begun if since is None else max(begun, since)
            if late.sequence is not None:
                highest[late.producer] = max(highest.get(late.producer, -1), late.sequence)
            for name, is_wrong in (("reordered", _is_reordered), ("reordered-realtime", stored_before)):
                if suspected[name] and any(
                    is_wrong(history, late, early)
                    and not order_is_off(history, early, late, _first_read(early))
                    and not _is_closed_before(history, closings[group], early, _first_read(early))
                    for early in in_order[:n]
                ):
                    yield late.instance(name, _first_read(late))
    for group, messages in _by_group(history, lambda _: True).items():
        yield from _backwards(history, messages, closings[group])


def _by_group(history: History, is_wanted: Callable[[PlainMessage], bool]) -> dict[Group, list[PlainMessage]]:
    """Return the messages with an order to keep that ``is_wanted`` accepts, by queue and group."""
    groups: dict[Group, list[PlainMessage]] = defaultdict(list)
    for m in history.all_messages:
        if m.group is not None and in_turn(m) and is_wanted(m):
            groups[m.queue, m.group].append(m)
    return groups


def _is_closed_before(history: History, closings: Iterable[Closing], early: PlainMessage, read: int) -> bool:
    """Return whether a group may have been closed before the broker sent ``early``.

    ``early`` was read in row ``read``, and the closing message later or never. Then another session
    owned the group before, and may read later what it was sent before.
    """
    by = stored_by(history, early)
    latest = read if by is None else min(read, by)
    return any(
        closing.begin < latest and (not closing.message.deliveries or _first_read(closing.message) > read)
        for closing in closings
    )


def _first_read(m: PlainMessage) -> int:
    return int(m.deliveries[0]["index"])


def _is_reordered(history: History, late: PlainMessage, early: PlainMessage) -> bool:
    """Return whether one producer sent ``late`` before ``early``, which was delivered first.

    The producer's sequence tells that if ``late`` was certainly sent. If one of the messages has
    several attempts, or ``late`` is of unknown outcome, their intervals must tell it, too.
    """
    if early.producer != late.producer or early.sequence is None or late.sequence is None:
        return False
    if early.sequence <= late.sequence:
        return False
    if len(early.sends) == len(late.sends) == 1 and late.ok is not None:
        return True
    return stored_before(history, late, early)


def _backwards(
    history: History, messages: Sequence[PlainMessage], closings: Sequence[Closing]
) -> Iterator[Instance]:
    """Find the deliveries in a session that follow a later message of the same producer.

    Compared is the first delivery of each message to each session; a message is found only once. In
    a group that may be closed only the very first delivery of a message counts: a message that was
    given back may come behind those that another session got since.
    """
    firsts: dict[tuple[int, int], tuple[Row, PlainMessage]] = {}
    for m in messages:
        for d in m.deliveries:
            if d.get("session") is not None:
                firsts.setdefault((d["session"], m.id), (d, m))
    by_message: dict[int, Instance] = {}
    in_order = sorted(firsts.values(), key=lambda one: int(one[0]["index"]))
    highest: dict[tuple[int, int], int] = {}  # by session and producer
    for n, (d, late) in enumerate(in_order):
        if d.get("producer") is None or d.get("sequence") is None:
            continue
        lane = d["session"], d["producer"]
        before = highest.get(lane, -1)
        highest[lane] = max(before, d["sequence"])
        if late.id in by_message or (closings and d["index"] != _first_read(late)):
            continue
        if before > d["sequence"] and any(
            _goes_back(history, e, early, d, late)
            and not order_is_off(history, early, late, e["index"])
            and not _is_closed_before(history, closings, early, e["index"])
            for e, early in in_order[:n]
        ):
            by_message[late.id] = late.instance("reordered-session", d["index"])
    yield from by_message.values()


def _goes_back(history: History, e: Row, early: PlainMessage, d: Row, late: PlainMessage) -> bool:
    """Return whether one session wrongly got ``late`` (by ``d``) after ``early`` (by ``e``).

    Both are of one producer. If another session got ``late`` before, this may be another copy of a
    message that was sent more than once: that was stored at the latest by the last attempt.
    """
    if (e["session"], e.get("producer")) != (d["session"], d["producer"]):
        return False
    if e.get("sequence") is None or e["sequence"] <= d["sequence"]:
        return False
    if len(early.sends) <= 1 and len(late.sends) <= 1 and late.ok is not None:
        return True
    is_first = d["index"] == _first_read(late)
    by, since = stored_by(history, late) if is_first else over(late), stored_from(early)
    return by is not None and since is not None and by < since


def not_linearizable(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Find, in each group, the first delivery that overtook another message.

    If it overtook several, the instance names the one that was certainly stored first.
    """
    unheard = {r["queue"] for r in history.rows if r["f"] == "receive"}
    sent = _by_group(
        history,
        lambda m: (
            bool(m.sends)
            and not m.aborted
            and timely(history, m)
            and not may_have_died_unread(history, m, options)
        ),
    )
    for (queue, group), messages in sent.items():
        unreadable = any(
            (r["f"], r["type"]) == ("deliver", "ok") for r in history.messages.get((queue, group, None), ())
        )
        excused = (queue or "").startswith((TOPIC, TEMPORARY)) or queue in unheard or unreadable
        excused = excused or bool(deletes_of(history, queue))
        missing = options.guarantee in LOSSLESS and not excused
        never = [m for m in messages if missing and never_came(history, m, options)]
        arrived = sorted((m for m in messages if _came_after_send(history, m)), key=_first_read)
        instances = (
            early.instance("not-linearizable", _first_read(early), str(min(overtaken)[1]))
            for early in _suspects(history, arrived, never)
            if not _is_closed_before(history, history.closings[queue, group], early, _first_read(early))
            if (overtaken := list(_overtaken(history, early, [*arrived, *never])))
        )
        yield from islice(instances, 1)


def _suspects(
    history: History, arrived: Sequence[PlainMessage], never: Iterable[PlainMessage]
) -> Sequence[PlainMessage]:
    """Return the messages that can have overtaken another.

    Such a message was begun after one was stored that came later or never came. ``arrived`` is in
    the order of first deliveries. Why: comparing every message with every other takes long.
    """
    stored = [by for m in never if (by := stored_by(history, m)) is not None]
    earliest = min(stored, default=NEVER)
    result = []
    for early in reversed(arrived):
        begun, by = early.begun(history), stored_by(history, early)
        if begun is not None and earliest < begun:
            result.append(early)
        earliest = earliest if by is None else min(earliest, by)
    return result[::-1]


def never_came(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether a message was certainly sent and, by all rows, never delivered.

    It must not be able to expire or to be a dead letter, as then it need not be delivered any more.
    """
    answered = any(r["f"] in ("ack", "nack") and r["type"] == "invoke" for r in m.rows)
    if m.ok is None or m.deliveries or answered or expires(m) is not None:
        return False
    if any(r.get("value") in ("dead-letter", "expired") for r in m.stored):
        return False
    return not may_be_dead(history, m, options)


def _came_after_send(history: History, m: PlainMessage) -> bool:
    """Return whether a message's first delivery came when it can have been in the queue."""
    begun = m.begun(history)
    return bool(m.deliveries) and begun is not None and begun <= _first_read(m)


def _overtaken(
    history: History, early: PlainMessage, candidates: Iterable[PlainMessage]
) -> Iterator[tuple[int, int]]:
    """Yield the messages that came after ``early``, though they were stored before it was begun.

    Of each the row by which it was stored, and its id.
    """
    begun = early.begun(history)
    for late in candidates:
        is_late = not late.deliveries or _first_read(late) > _first_read(early)
        by = stored_by(history, late)
        if not is_late or begun is None or by is None or by >= begun:
            continue
        if not order_is_off(history, early, late, _first_read(early)):
            yield by, late.id
