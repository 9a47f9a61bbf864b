"""The second implementation of the messages that a subscription is owed or must not get.

The rows of a topic's consumers get the name of their place (topic and subscription) as their queue;
every send to the topic is a send to each of its places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.excuses import Excuses
from checkers.reference_attempts import of_one_node, over, stored_from
from checkers.reference_deletions import deletes_of, survives_deletes
from checkers.reference_temporaries import is_anothers, lives_on
from checkers.schema import TEMPORARY, TOPIC, json_object
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def by_place(rows: Iterable[Row]) -> list[Row]:
    """Return the rows; those of a topic's consumers have the place of the subscription as queue."""
    return [r if (place := _place(r)) is None else {**r, "queue": place} for r in rows]


def _place(r: Row) -> str | None:
    queue, subscription = r.get("queue"), r.get("subscription")
    if queue is None or subscription is None or not queue.startswith(TOPIC) or " > " in queue:
        return None
    return f"{queue} > {subscription}"


def spread(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, each send to a topic once for every place of it that any row names."""
    places = {r["queue"] for r in rows if r.get("subscription") is not None and " > " in r.get("queue", "")}
    for r in rows:
        topic = r.get("queue") or ""
        if r["f"] != "send" or not topic.startswith(TOPIC):
            yield r
        else:
            own_places = [place for place in places if place.split(" > ")[0] == topic]
            yield from ({**r, "queue": place} for place in own_places or [topic])


def is_owed(history: History, m: PlainMessage, options: CheckOptions | None = None) -> bool:
    """Return whether a message is owed to its place; to a queue that lasts every message is.

    With ``options``, a broker of another node that took it must have known of the subscription.
    """
    if (m.queue or "").startswith(TEMPORARY):
        return lives_on(history, m)
    if not (m.queue or "").startswith(TOPIC):
        return survives_deletes(history, m, options)
    place = m.queue or ""
    if place not in history.owed:
        history.owed[place] = _lasting_subscribes(history, place)
    subscribes, selector = history.owed[place]
    sent = stored_from(m)
    if sent is None and m.sends:  # every attempt failed
        sent = m.sends[0]["index"]
    return (
        sent is not None
        and any(
            sent >= answer["index"]
            and (options is None or _news_had_come(history, m, asked, answer, options))
            for asked, answer in subscribes
        )
        and matches(selector, m)
    )


def _lasting_subscribes(history: History, place: str) -> tuple[list[tuple[Row, Row]], Any]:
    """Return the subscribes after which a subscription lasts to the end, and its selector.

    Each comes with its answer. There are none if the subscription may have been dropped for good,
    if no row says that it was made, or if it was made again with another selector.
    """
    requests = history.subscribing_to[place]
    drops = [(r, answer_to(history, r)) for r in requests if (r["f"], r["type"]) == ("drop", "invoke")]
    ended = -1
    for _, answer in drops:
        if answer is None or answer["type"] == "info":
            return [], None
        if answer["type"] == "ok":
            ended = max(ended, answer["index"])
    invocations = [r for r in requests if (r["f"], r["type"]) == ("subscribe", "invoke")]
    subscribes = [(r, answer_to(history, r)) for r in invocations]
    selectors = [asked_selector(r) for r, _ in subscribes]
    if any(other != selectors[0] for other in selectors):
        return [], None
    lasting = [
        (r, answer)
        for r, answer in subscribes
        if r["index"] > ended and answer is not None and answer["type"] == "ok"
    ]
    return lasting, selectors[0] if selectors else None


def _news_had_come(history: History, m: PlainMessage, asked: Row, answer: Row, options: CheckOptions) -> bool:
    """Return whether the broker that took a message knew of its subscription from an answer on.

    It did if no fault can have kept the news from it: see ``checkers.interests``.
    """
    taken = next((r for r in m.rows if (r["f"], r["type"]) == ("send", "ok")), None)
    home = answer.get("broker")
    if home is None or (taken is not None and taken.get("broker") is None):
        return True
    takers = list(history.pairs.together) if taken is None else [str(taken["broker"])]
    if all(of_one_node(history, taker, home) for taker in takers):
        return True
    faults = Excuses(history.effects, history.pairs, {}, options)
    return not faults.may_cut(asked["time"], answer["time"], [] if taken is None else [*takers, home])


def kept_until_settled(history: History, m: PlainMessage) -> bool:
    """Return whether the place of a message never ended, nor was made anew for another selector.

    The answer is no for a temporary queue.
    """
    if (m.queue or "").startswith(TEMPORARY):
        return False
    if not (m.queue or "").startswith(TOPIC):
        return not deletes_of(history, m.queue)
    place = m.queue or ""
    if place not in history.kept:
        history.kept[place] = _is_kept(history, place)
    return history.kept[place]


def _is_kept(history: History, place: str) -> bool:
    """Return whether a subscription was never dropped, nor made anew for another selector."""
    requests = history.subscribing_to[place]
    invocations = [r for r in requests if r["type"] == "invoke"]
    drops = [answer_to(history, r) for r in invocations if r["f"] == "drop"]
    selectors = [asked_selector(r) for r in invocations if r["f"] == "subscribe"]
    return (
        bool(requests)
        and all(other == selectors[0] for other in selectors)
        and all(answer is not None and answer["type"] == "fail" for answer in drops)
    )


def not_subscribed(history: History, m: PlainMessage) -> Iterator[tuple[int, str]]:
    """Find the rows that show a message where it must not be, the first of each kind with its kind.

    The kinds: it was certainly sent before the subscription existed, the selector of the session
    does not match it, or another connection than the owner's got it from a temporary queue.
    """
    wrong = [r["index"] for r in m.shown if _came_before(history, m, r)]
    if wrong:
        yield min(wrong), "sent before it"
    if m.sends:
        unwanted = [r["index"] for r in m.deliveries if not _may_be_wanted(history, m, r)]
        if unwanted:
            yield min(unwanted), "not selected"
    strayed = [r["index"] for r in m.deliveries if is_anothers(history, m, r)]
    if strayed:
        yield min(strayed), "another connection's"


def _came_before(history: History, m: PlainMessage, showing: Row) -> bool:
    """Return whether a message was certainly sent while its subscription certainly did not exist.

    That time must be before the row ``showing``: before its session began, if it is a delivery.
    """
    sent = over(m)
    if sent is None or not (m.queue or "").startswith(TOPIC):
        return False
    requests = history.subscribing_to[m.queue]
    subscribes = [r for r in requests if (r["f"], r["type"]) == ("subscribe", "invoke")]
    if showing["f"] != "browse":
        begun = _begun(history, showing)
    elif showing.get("value") in ("dead-letter", "expired"):  # these outlive a dropped subscription
        begun = subscribes[0]["index"] if subscribes else None
    else:
        begun = showing["index"]
    if begun is None:
        return False
    if subscribes and sent < subscribes[0]["index"] <= begun:
        return True
    for drop in requests:
        answer = answer_to(history, drop) if (drop["f"], drop["type"]) == ("drop", "invoke") else None
        if answer is None or answer["type"] != "ok" or not sent <= answer["index"] < begun:
            continue
        if all(_over_before(history, r, drop["index"]) for r in subscribes if r["index"] < answer["index"]):
            return True
    return False


def _begun(history: History, delivery: Row) -> int | None:
    session = delivery.get("session")
    return None if session is None else history.session_begin(session)


def _over_before(history: History, subscribe: Row, index: int) -> bool:
    answer = answer_to(history, subscribe)
    return answer is not None and answer["type"] in ("ok", "fail") and answer["index"] < index


def answer_to(history: History, invocation: Row) -> Row | None:
    """Return the answer to a subscribe or drop: the next row of the same process and operation.

    Return None if there is none, or if that row is another invocation.
    """
    index = invocation["index"]
    if index not in history.answers:
        key = invocation["process"], invocation["f"]
        same_kind = (
            r for r in history.subscribing_to[invocation.get("queue")] if (r["process"], r["f"]) == key
        )
        later = next((r for r in same_kind if r["index"] > index), None)
        history.answers[index] = None if later is None or later["type"] == "invoke" else later
    return history.answers[index]


def _may_be_wanted(history: History, m: PlainMessage, delivery: Row) -> bool:
    """Return whether the session of a delivery may have asked for the message.

    It may have if it named its place in no subscribe, because then nobody knows its selector.
    """
    selectors = selectors_of(history, delivery.get("session"), m.queue)
    return not selectors or any(matches(selector, m) for selector in selectors)


def selectors_of(history: History, session: int | None, place: str | None) -> list[Any]:
    """Return the different selectors with which a session asked for a place, or for any.

    None is the selector of a subscribe that asks for every message.
    """
    if session is None:
        return []
    if (session, place) not in history.selectors:
        selectors: list[Any] = []
        for r in history.of_session(session):
            if (r["f"], r["type"]) == ("subscribe", "invoke") and r.get("queue") in (place, None):
                selectors += [] if asked_selector(r) in selectors else [asked_selector(r)]
        history.selectors[session, place] = selectors
    return history.selectors[session, place]


def asked_selector(subscribe: Row) -> Any:
    """Return the selector of a subscribe; None: it asks for every message."""
    return _object(subscribe, "selector")


def _object(r: Row, name: str) -> Any:
    value = (json_object(r.get("value")) or {}).get(name)
    return value if isinstance(value, dict) and value else None


def matches(selector: Any, m: PlainMessage) -> bool:
    """Return whether a selector matches a message.

    A message without a send matches only where there is no selector, as its properties are unknown.
    """
    if not m.sends:
        return not selector
    properties = _object(m.sends[0], "properties") or {}
    return not selector or all(properties.get(name) in values for name, values in selector.items())
