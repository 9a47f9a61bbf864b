"""The second implementation of the messages that a subscription was owed while it existed.

A plain subscription, a durable one that was dropped or made again with another selector, and a
temporary queue are owed nothing at the end of the test. A message that was skipped while they
existed is lost all the same: a later message reached the session to which it was due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.reference_asked import clocks_wrong, expires, is_delayed, may_have_expired, priority
from checkers.reference_attempts import of_one_node, stored_from
from checkers.reference_consumers import Consumer, consumers_of
from checkers.reference_owed import may_be_dead
from checkers.reference_subscriptions import answer_to, asked_selector, matches, selectors_of
from checkers.reference_temporaries import endings, rows_of
from checkers.schema import TEMPORARY, TOPIC
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def is_skipped(history: History, m: PlainMessage, options: CheckOptions, stored: int | None) -> bool:
    """Return whether a message was skipped in a subscription while that existed, and never came.

    ``stored`` is the row since which the message was certainly stored. It may be None if one
    transaction sent the message and the later one that came.
    """
    place = m.queue or ""
    if not place.startswith((TEMPORARY, TOPIC)) or not m.sends or _has_other_rows(m):
        return False
    if _may_have_been_received(history, place) or place in history.with_unreadable_bodies:
        return False
    return any(
        _was_due(history, m, later, d, options)
        for later in history.delivered[m.queue, m.group]
        if _comes_later(history, m, later, stored, options)
        for d in later.deliveries
    )


def _has_other_rows(m: PlainMessage) -> bool:
    """Return whether any row but a send names a message in its place."""
    return any(r["f"] != "send" for r in m.rows)


def _may_have_been_received(history: History, place: str) -> bool:
    """Return whether a receive that was not answered may have taken a message of a place."""
    return not history.received_from.isdisjoint((place, place.partition(" > ")[0]))


def _comes_later(
    history: History, m: PlainMessage, later: PlainMessage, stored: int | None, options: CheckOptions
) -> bool:
    """Return whether ``later`` must come after ``m`` in their place.

    Both must be of the same producer and group, or of the same queue without a group, where the
    queue as a whole promises order.
    """
    if later.id == m.id or not later.sends:
        return False
    if later.sends[0]["index"] <= m.sends[0]["index"]:
        return False
    if not options.ordered or not (options.broker.fifo if m.group is None else options.broker.groups):
        return False
    since = later.begun(history)
    certain = stored is not None and since is not None and stored < since
    if m.group is None:
        return certain
    if m.producer is None or later.producer != m.producer or m.sequence is None or later.sequence is None:
        return False
    if later.sequence <= m.sequence:
        return False
    if len(m.sends) > 1 or len(later.sends) > 1:
        return certain
    if m.transaction is not None:
        return certain or m.transaction == later.transaction
    return stored is not None


def _was_due(history: History, m: PlainMessage, later: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Return whether a message was due to the session that got the later one by delivery ``d``."""
    reader = _reader(history, m, d)
    return (
        reader is not None
        and d["index"] > later.sends[0]["index"]
        and _existed(history, m, d, reader)
        and matches(reader.selector, m)
        and priority(m) == priority(later)
        and not any(is_delayed(message) or _may_have_expired(history, message, d) for message in (m, later))
        and not _others_may_hold(history, m, d, reader, options)
        and _is_near(history, m, d, reader)
    )


def _reader(history: History, m: PlainMessage, d: Row) -> Consumer | None:
    """Return the consumer that read a delivery, unless it had asked to leave or was lost."""
    if len(selectors_of(history, d.get("session"), m.queue)) > 1:
        return None
    readers = [c for c in consumers_of(history, m.queue) if c.session == d.get("session")]
    readers = [c for c in readers if c.begin < d["index"]]
    if not readers:
        return None
    end = history.session_end(readers[0].session)
    return readers[0] if end is None or end > d["index"] else None


def _existed(history: History, m: PlainMessage, d: Row, reader: Consumer) -> bool:
    """Return whether a subscription existed from before a message's send until ``d`` was read.

    It must have had the selector of the session that read ``d``: in between, no operation was
    invoked that may have ended it or made it again with another selector.
    """
    sent = stored_from(m)
    if sent is None:
        return False
    if (m.queue or "").startswith(TEMPORARY):
        queue_rows = rows_of(history, m.queue)
        begun = next((r for r in queue_rows if (r["f"], r["type"]) == ("subscribe", "ok")), None)
        ends = [
            invocation
            for invocation, answer in endings(queue_rows)
            if answer is None or answer["type"] != "fail"
        ]
        return begun is not None and begun["index"] < sent and all(r["index"] > d["index"] for r in ends)
    return any(
        answer is not None
        and answer["type"] == "ok"
        and answer["index"] < sent
        and asked_selector(invocation) == reader.selector
        and all(
            _is_over(end, invocation) or end[0]["index"] > d["index"] for end in _ends(history, m, reader)
        )
        for invocation, answer in _requests(history, m.queue, "subscribe")
    )


def _requests(history: History, place: str | None, f: str) -> Sequence[tuple[Row, Row | None]]:
    """Return each invocation of a subscribe or drop of a place, with its answer or None."""
    if (place, f) not in history.asked:
        requests = (r for r in history.subscribing_to[place] if (r["f"], r["type"]) == (f, "invoke"))
        history.asked[place, f] = [(r, answer_to(history, r)) for r in requests]
    return history.asked[place, f]


def _ends(history: History, m: PlainMessage, reader: Consumer) -> Sequence[tuple[Row, Row | None]]:
    """Return the operations that may have ended a subscription or changed its selector.

    Of each the invocation, and the answer or None.
    """
    key = m.queue, reader.begin
    if key not in history.subscription_ends:
        invocation = _requests(history, m.queue, "subscribe")
        remade = [request for request in invocation if asked_selector(request[0]) != reader.selector]
        history.subscription_ends[key] = [
            (invocation, answer)
            for invocation, answer in (*_requests(history, m.queue, "drop"), *remade)
            if answer is None or answer["type"] != "fail"
        ]
    return history.subscription_ends[key]


def _is_over(end: tuple[Row, Row | None], subscribe: Row) -> bool:
    """Return whether a subscription's end was answered ``ok`` before a subscribe was invoked."""
    answer = end[1]
    return answer is not None and answer["type"] == "ok" and bool(answer["index"] < subscribe["index"])


def _may_have_expired(history: History, m: PlainMessage, d: Row) -> bool:
    low = expires(m)
    return low is not None and (bool(d["time"] >= low) or clocks_wrong(history, m, d["index"]))


def _others_may_hold(
    history: History, m: PlainMessage, d: Row, reader: Consumer, options: CheckOptions
) -> bool:
    """Return whether another session of the subscription could hold a message when ``d`` was read.

    A session that was certainly over before the reader was asked for had given its messages back.
    It counts all the same where a message may have become a dead letter by that.
    """
    sessions = [c for c in consumers_of(history, m.queue) if c.session != reader.session]
    known_sessions = {c.session for c in sessions} | {reader.session}
    if not history.readers[m.queue, m.group] <= known_sessions:
        return True  # no row asked for one of the sessions that got something
    dies = options.broker.attempts == "given back" and options.broker.delivery_attempts >= 0
    sent = stored_from(m)
    over = max(-1 if sent is None else sent, -1 if dies else reader.begin)
    return any(c.begin < d["index"] and c.end >= over for c in sessions)


def _is_near(history: History, m: PlainMessage, d: Row, reader: Consumer) -> bool:
    """Return whether a message did not have to be forwarded to reach the reader of ``d``.

    The broker that took the message delivered the later one. Or a broker of the same node did, to a
    session that was asked for after the message was sent.
    """
    taken = next((r for r in m.rows if (r["f"], r["type"]) == ("send", "ok")), None)
    if taken is None:
        return False
    if taken.get("broker") == d.get("broker"):
        return True
    if taken.get("broker") is None or d.get("broker") is None or (m.queue or "").startswith(TEMPORARY):
        return False
    return reader.begin > m.sends[0]["index"] and of_one_node(history, taken["broker"], d["broker"])


def is_not_copied(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether another subscription shows a message of which this one got no copy.

    The message was sent outside of transactions with unknown outcome. A broker that showed the
    other copy must be of the node that serves this subscription. Callers ensure that the
    subscription was owed the message.
    """
    if not m.sends or m.ok is not None or m.aborted or _has_other_rows(m):
        return False
    if any(attempt.transaction is not None for attempt in m.attempts) or may_have_expired(history, m):
        return False
    if not options.broker.keeps_dead_letters and may_be_dead(history, m, options):
        return False
    if _may_have_been_received(history, m.queue or ""):
        return False
    showing = (r for copy in copies_of(history, m) for r in copy.shown if r["index"] > m.sends[0]["index"])
    return any(serves(history, m.queue, r.get("broker")) for r in showing)


def topic_of(m: PlainMessage) -> str | None:
    """Return the topic to whose subscription a message belongs; else its queue."""
    queue = m.queue or ""
    return queue.split(" > ")[0] if queue.startswith(TOPIC) else m.queue


def copies_of(history: History, m: PlainMessage) -> list[PlainMessage]:
    """Return the same message in the other subscriptions of its topic."""
    if not (m.queue or "").startswith(TOPIC):
        return []
    same = [copy for copy in history.same_id[m.id] if copy.group == m.group and copy.queue != m.queue]
    return [copy for copy in same if topic_of(copy) == topic_of(m) and " > " in (copy.queue or "")]


def serves(history: History, place: str | None, broker: str | None) -> bool:
    """Return whether every broker that answered a subscribe of a place is of a broker's node."""
    subscribed = [
        answer.get("broker")
        for _, answer in _requests(history, place, "subscribe")
        if answer is not None and answer["type"] == "ok"
    ]
    return all(
        broker == other or (broker is not None and other is not None and of_one_node(history, broker, other))
        for other in subscribed
    )
