"""The second implementation of the consumers that a queue may have had, and their selectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.reference_attempts import stored_from
from checkers.reference_subscriptions import asked_selector, matches
from checkers.schema import SELECTORS_MOST

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A session that may have consumed from a queue since row ``begin`` and until row ``end``."""

    session: int
    selector: Any
    begin: int
    end: float


def consumers_of(history: History, queue: str | None) -> Sequence[Consumer]:
    """Return the sessions that may have consumed from a queue or from a topic's subscription.

    A subscription is given by the name of its place.
    """
    if queue not in history.consumers:
        history.consumers[queue] = [*_find_consumers(history, queue)]
    return history.consumers[queue]


def _find_consumers(history: History, queue: str | None) -> Iterator[Consumer]:
    queues = {queue, None}
    subscribes = (r for name in queues for r in history.subscribing_to[name])
    for r in sorted(subscribes, key=lambda r: int(r["index"])):
        if (r["f"], r["type"]) != ("subscribe", "invoke"):
            continue
        session = r.get("session")
        if session is not None and not _is_refused(history, r):
            yield Consumer(session, asked_selector(r), r["index"], certain_end(history, session))


def _is_refused(history: History, subscribe: Row) -> bool:
    """Return whether a subscribe was refused to its process and session."""
    later = (r for r in history.of_session(subscribe["session"]) if r["index"] > subscribe["index"])
    answer = next((r for r in later if (r["f"], r["process"]) == ("subscribe", subscribe["process"])), None)
    return answer is not None and answer["type"] == "fail"


def certain_end(history: History, session: int) -> float:
    """Return the row after which a broker certainly no longer serves a session; else infinity.

    The unsubscribe of the session was answered, or the process that served it was seen gone. If the
    client lost the connection, that ends nothing: the broker may not know it yet.
    """
    ends: list[Any] = []
    unsubscribed = history.left_at(session)
    if unsubscribed is not None:
        ends.append(unsubscribed)
    served = [r for r in history.of_session(session) if (r["f"], r["type"]) == ("subscribe", "ok")]
    if served and served[0].get("broker") is not None:
        broker, since = served[0]["broker"], served[0]["index"]
        ends += [r["index"] for r in history.departures(broker) if r["index"] > since]
    return min(ends, default=float("inf"))


def order_is_off(history: History, early: PlainMessage, late: PlainMessage, read: int) -> bool:
    """Return whether ``early``, read in row ``read``, may have overtaken ``late`` by a selector.

    While both may have waited, a consumer may have existed whose selector matches ``early`` and not
    ``late``. The answer is yes, too, if the queue had more selectors than are told apart.
    """
    if has_too_many_selectors(history, early.queue):
        return True
    since = max(_waits_from(history, early), _waits_from(history, late))
    return any(
        consumer.begin < read
        and consumer.end > since
        and matches(consumer.selector, early)
        and not matches(consumer.selector, late)
        for consumer in consumers_of(history, early.queue)
        if consumer.selector
    )


def has_too_many_selectors(history: History, queue: str | None) -> bool:
    """Return whether the consumers of a queue had more different selectors than are told apart."""
    selectors = [consumer.selector for consumer in consumers_of(history, queue) if consumer.selector]
    if len(selectors) <= SELECTORS_MOST:
        return False
    return sum(chosen not in selectors[:n] for n, chosen in enumerate(selectors)) > SELECTORS_MOST


def _waits_from(history: History, m: PlainMessage) -> int:
    begun = m.begun(history) if m.sends else None
    possible = begun if begun is not None or not m.sends else stored_from(m)
    return -1 if possible is None else possible
