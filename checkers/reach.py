"""The requested operations that a run never exercised, because of which its verdict is unknown.

A rule finds nothing where nothing was owed. A broker owes nothing to a subscription that was never
made, nothing if it took no message, and nothing for a transaction that was never committed. A
history of only such operations has no finding, whatever the broker would have done. So of each
destination (a queue, or a subscription of a topic) that a client asked for, this module looks
whether any client ever got it. If none did, a history without grave findings is unknown.

    subscribes  none was answered ``ok``, and nothing was delivered. A subscription that was given
                up does not count (a ``drop`` of it was invoked, as of each that ends with its
                session), because its client made another; a topic counts if none of its
                subscriptions was made
    sends       none to the destination was answered ``ok``, and nothing was delivered from it. Or
                none in the whole history was, whatever was delivered, if the history has
                ``subscribe`` rows (few histories of other harnesses have)
    passing     nothing was ever delivered from a topic that took messages, or from any of the
                temporary queues: messages that wait there may never be delivered
    selectors   no session with a selector ever got a message
    commits     transactions were begun, and none was committed ``ok``

Temporary queues count as one destination, because each has one session, which a fault may prevent.
Clients ask again for what a fault prevents for a while; so the whole history counts, including its
drain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from checkers.asked import selector_of
from checkers.rows import DELIVER, NONE, SEND_INVOKE, SEND_OK, PlaceTable, Rows, numbers_of, texts_of
from checkers.schema import TEMPORARY, TOPIC
from checkers.subscriptions import place_of, split, topic_of

if TYPE_CHECKING:
    import pyarrow as pa

    from checkers.source import HistoryPart

Row = Mapping[str, Any]
_LONGEST: Final = 120
"""The number of characters after which an answer is cut in a reason."""


@dataclass(slots=True)
class Destination:
    """The numbers of operations that clients asked of a place, and of those that succeeded.

    Of the ``subscribes`` as many as ``begun`` were answered ``ok``, of the ``sends`` as many as
    ``sent``; ``refusals`` and ``unsent`` count the answers to the others. ``given_up``: a ``drop``
    or ``delete`` of the place was invoked.
    """

    subscribes: int = 0
    begun: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    given_up: bool = False
    sends: int = 0
    sent: int = 0
    unsent: Counter[str] = field(default_factory=Counter)
    delivered: int = 0

    def add(self, other: Destination) -> None:
        """Add the numbers that another part of the history has of the same place."""
        self.subscribes += other.subscribes
        self.begun += other.begun
        self.refusals += other.refusals
        self.given_up |= other.given_up
        self.sends += other.sends
        self.sent += other.sent
        self.unsent += other.unsent
        self.delivered += other.delivered

    @property
    def unknown(self) -> bool:
        """True if clients subscribed to the place and no row shows that a subscription was made."""
        return bool(self.subscribes) and not self.begun and not self.delivered

    @property
    def unserved(self) -> bool:
        """True if clients sent to the place, and no send is certain and nothing was delivered."""
        return bool(self.sends) and not self.sent and not self.delivered


@dataclass(slots=True)
class Reach:
    """The destinations of one history by name; all sessions with a selector count as one more."""

    places: dict[str, Destination] = field(default_factory=lambda: defaultdict(Destination))
    choosing: Destination = field(default_factory=Destination)

    def add(self, other: Reach) -> None:
        """Add the destinations of another part of the same history."""
        for name, place in other.places.items():
            self.places[name].add(place)
        self.choosing.add(other.choosing)

    def with_subscriptions(self, topic: str) -> Destination:
        """Return a topic together with all its subscriptions; a queue by itself."""
        total = Destination()
        named_places = self.places.items() if topic.startswith(TOPIC) else [(topic, self.places[topic])]
        for name, place in named_places:
            if topic_of(name) == topic:
                total.add(place)
        return total

    @property
    def unserved(self) -> frozenset[str]:
        """The destinations without a certain send.

        These are all destinations of sends if no send at all is certain and the history has
        subscribes.
        """
        sends = {name: place for name, place in self.places.items() if place.sends}
        subscribed = any(place.subscribes for place in self.places.values())
        if subscribed and not any(place.sent for place in sends.values()):
            return frozenset(sends)
        return frozenset(
            name
            for name, place in sends.items()
            if place.unserved and not place.given_up and not self.with_subscriptions(name).delivered
        )


def _name(queue: str, subscription: str | None = None) -> str:
    """Return the name of the destination of a row; all temporary queues have one name."""
    if queue.startswith(TEMPORARY):
        return TEMPORARY
    if subscription is not None and queue.startswith(TOPIC) and split(queue) is None:
        return place_of(queue, subscription)
    return queue


# ------------------------------------------------------------------------------------------ reading


def gather(rows: Iterable[Row]) -> Reach:
    """Return the destinations of one history from rows of any kind."""
    reach = Reach()
    chose = set()
    for row in rows:
        queue, f, type_ = row.get("queue"), row["f"], row["type"]
        if queue is None or f not in ("subscribe", "drop", "delete", "send", "deliver") or row["process"] < 0:
            continue
        name = _name(queue, row.get("subscription"))
        place = reach.places[name]
        if f == "subscribe":
            destinations = [place]
            session = row.get("session")
            if session is not None and type_ == "invoke" and selector_of(row.get("value")) is not None:
                chose.add(session)
            if session in chose:
                destinations.append(reach.choosing)
            for destination in destinations:
                destination.subscribes += type_ == "invoke"
                destination.begun += type_ == "ok"
                _answer(destination.refusals, row)
        elif f in ("drop", "delete"):
            place.given_up = True
        elif f == "send":
            place.sends += type_ == "invoke"
            place.sent += type_ == "ok"
            _answer(place.unsent, row)
        else:
            place.delivered += 1
            reach.choosing.delivered += row.get("session") in chose
    return reach


def _answer(answers: Counter[str], row: Row) -> None:
    if row["type"] in ("fail", "info"):
        answers[row.get("error") or "no answer"] += 1


def of_control(control: pa.Table) -> dict[int, Reach]:
    """Return, by run, the destinations as rows without messages tell them.

    ``control`` has columns of ``checkers.schema``, and may have ``run``.
    """
    import pyarrow as pa  # noqa: PLC0415 - not needed where rows are plain

    subscribing = control.filter(pa.array(texts_of(control, "f").are("subscribe", "drop", "delete")))
    names = ("index", "run", "process", "f", "type", "queue", "subscription", "session", "error", "value")
    rows = subscribing.select([name for name in names if name in subscribing.column_names]).to_pylist()
    by_run: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda each_row: each_row["index"]):
        by_run[row.get("run") or 0].append(row)
    return {run: gather(run_rows) for run, run_rows in by_run.items()}


def of_rows(rows: Rows, places: PlaceTable, selectors: Collection[tuple[int, int]]) -> dict[int, Reach]:
    """Return, by run, the destinations as sends and deliveries tell them.

    ``selectors`` are the (run, session) that have a selector.
    """
    by_run: dict[int, Reach] = defaultdict(Reach)
    counts = [
        np.bincount(rows.place[rows.of(kind)], minlength=len(places.named)).tolist()
        for kind in (SEND_INVOKE, SEND_OK, DELIVER)
    ]
    for (run, queue, _), sends, sent, delivered in zip(places.named, *counts, strict=True):
        if queue is not None and (sends or sent or delivered):
            by_run[run].places[_name(queue)].add(Destination(sends=sends, sent=sent, delivered=delivered))
    if selectors:
        at = rows.of(DELIVER)
        session = rows.session[at]
        at, session = at[session != NONE], session[session != NONE]
        pairs = zip(rows.run[at].tolist(), session.tolist(), strict=True)
        for (run, _), count in Counter(pair for pair in pairs if pair in selectors).items():
            by_run[run].choosing.delivered += count
    return by_run


Unserved = frozenset[tuple[int, str]]
"""Destinations without a certain send: (run, destination)."""


def unsent(part: HistoryPart, unserved: Unserved) -> dict[tuple[int, str], Counter[str]]:
    """Return how often each error was answered to the sends to some destinations."""
    errors: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for table in part.slices(["index", "type", "f", "queue", "message", "error"]):
        is_unsuccessful = texts_of(table, "f").are("send") & texts_of(table, "type").are("fail", "info")
        at = np.flatnonzero(is_unsuccessful)
        run = numbers_of(table, "run")[at] if "run" in table.column_names else np.zeros(len(at), np.int64)
        queue, error = texts_of(table, "queue"), texts_of(table, "error")
        combinations = zip(run.tolist(), queue.codes[at].tolist(), error.codes[at].tolist(), strict=True)
        for (number, place, answer), count in Counter(combinations).items():
            key = number, _name(queue.values[place])
            if key in unserved:
                errors[key][error.values[answer] if answer >= 0 else "no answer"] += count
    return dict(errors)


# ------------------------------------------------------------------------------------------ reasons


def reasons(reach: Reach, count: Callable[[str, str], int]) -> Iterator[str]:
    """Yield the reasons why a history does not exercise what its clients asked for.

    ``count`` returns how many rows there are of an operation and type.
    """
    yield from _subscribes(reach)
    yield from _sends(reach)
    for name in sorted(reach.places):
        place = reach.with_subscriptions(name)
        if not name.startswith((TOPIC, TEMPORARY)) or topic_of(name) != name:
            continue
        if place.begun and not place.delivered and (place.sent or name == TEMPORARY):
            yield f"nothing was ever delivered from {_words(name)}, though {place.begun} subscribes were ok"
    place = reach.choosing
    if place.subscribes and not place.delivered:
        refusal = _most(place.refusals) if not place.begun else ""
        yield f"no consumer with a selector was ever given anything; {place.subscribes} asked{refusal}"
    begun = max(count("begin", "invoke"), count("commit", "invoke"))
    if begun and not count("commit", "ok"):
        yield f"of {begun} transactions none was committed with ok"


def _subscribes(reach: Reach) -> Iterator[str]:
    unanswered: dict[str, Destination] = {}
    for name, place in reach.places.items():
        combined = place
        topic_and_name = split(name)
        if topic_and_name is not None:
            combined = reach.with_subscriptions(topic_and_name[0])
            if combined.unknown:
                unanswered[topic_and_name[0]] = combined
                continue
        if place.unknown and not place.given_up:
            unanswered[name] = place
    yield from _sentence(
        "subscribe", {name: (place.subscribes, place.refusals) for name, place in unanswered.items()}
    )


def _sends(reach: Reach) -> Iterator[str]:
    unserved_places = {name: reach.places[name] for name in reach.unserved}
    yield from _sentence(
        "send", {name: (place.sends, place.unsent) for name, place in unserved_places.items()}
    )


def _sentence(operation: str, tried_and_answers: Mapping[str, tuple[int, Counter[str]]]) -> Iterator[str]:
    """Yield one sentence for all destinations of a kind; it names the most requested one."""
    if not tried_and_answers:
        return
    names: Sequence[str] = sorted(tried_and_answers, key=lambda name: (-tried_and_answers[name][0], name))
    tried, answers = tried_and_answers[names[0]]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    reason = _most(answers)
    yield (
        f"nothing is known of {_words(names[0])}{more}: "
        f"of {tried} {operation}s none was answered with ok{reason}"
    )


def _words(name: str) -> str:
    topic_and_name = split(name)
    if topic_and_name is not None:
        return f"subscription {topic_and_name[1]} of {topic_and_name[0]}"
    return "temporary queues" if name == TEMPORARY else name


def _most(answers: Counter[str]) -> str:
    """Return the answer that came most often, as words for a reason."""
    if not answers:
        return ", nor otherwise"
    text, _ = min(answers.items(), key=lambda one: (-one[1], one[0]))
    line = " ".join(text.split())
    return f" ({line if len(line) <= _LONGEST else line[: _LONGEST - 3] + '...'})"
