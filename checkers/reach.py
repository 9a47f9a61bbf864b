"""What a test reached of all that it asked for: a green that shows nothing is none.

A rule finds nothing where nothing was owed. Nothing is owed to a subscription that never came
about, by a broker that took no message, or by a transaction that was never committed; and a history
of such things alone has no finding, whatever the broker would have done. So clients are asked what
they got: of each destination (a queue, or a subscription of a topic) that somebody asked for,
whether anybody ever got it. What nobody got leaves a history without grave findings unknown.

    subscribes  none was answered ``ok``, and nothing was delivered all the same. Of a subscription
                that was given up (a ``drop`` was asked for, as of one that ends with its session)
                nothing is said: its client made another. Of a topic of which no subscription came
                about, it is
    sends       none was answered ``ok``, and nothing was delivered from there; of a history as a
                whole that names its subscribes (of others' the fewest do), whether anything was
                delivered or not
    passing     nothing was ever delivered from a topic that took messages, or from any temporary
                queue, though there were some: what waits there may go unclaimed
    selectors   no session with a selector was ever given anything
    commits     transactions were begun, and none was committed ``ok``

Temporary queues count as one destination: each has one session, which a fault may well prevent.
What a fault prevents for a while is asked for again; so what counts is the whole history, its drain
included.
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
"""Of an answer that is told: so many characters."""


@dataclass(slots=True)
class Destination:
    """What clients asked of a place, and what they had of it.

    ``begun`` of the ``subscribes`` and ``sent`` of the ``sends`` were answered ``ok``;
    ``refusals`` and ``unsent`` have what the others were answered. ``given_up``: a ``drop`` of it
    was asked for.
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
        """What another part of the history says of the same."""
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
        """Whether it was subscribed to, and nobody can say that it ever came about."""
        return bool(self.subscribes) and not self.begun and not self.delivered

    @property
    def unserved(self) -> bool:
        """Whether no send to it is certain, or known to have arrived."""
        return bool(self.sends) and not self.sent and not self.delivered


@dataclass(slots=True)
class Reach:
    """Of one history: its destinations by name, and all sessions with a selector as one."""

    places: dict[str, Destination] = field(default_factory=lambda: defaultdict(Destination))
    choosing: Destination = field(default_factory=Destination)

    def add(self, other: Reach) -> None:
        """What another part of the same history says."""
        for name, one in other.places.items():
            self.places[name].add(one)
        self.choosing.add(other.choosing)

    def whole(self, topic: str) -> Destination:
        """A topic with all its subscriptions."""
        found = Destination()
        mine = self.places.items() if topic.startswith(TOPIC) else [(topic, self.places[topic])]
        for name, one in mine:
            if topic_of(name) == topic:
                found.add(one)
        return found

    @property
    def unserved(self) -> frozenset[str]:
        """Where no send is certain; everywhere, where none is anywhere."""
        sends = {name: one for name, one in self.places.items() if one.sends}
        subscribed = any(one.subscribes for one in self.places.values())
        if subscribed and not any(one.sent for one in sends.values()):
            return frozenset(sends)
        return frozenset(
            name for name, one in sends.items() if one.unserved and not self.whole(name).delivered
        )


def _name(queue: str, subscription: str | None = None) -> str:
    """The destination that a row is about."""
    if queue.startswith(TEMPORARY):
        return TEMPORARY
    if subscription is not None and queue.startswith(TOPIC) and split(queue) is None:
        return place_of(queue, subscription)
    return queue


# ------------------------------------------------------------------------------------------ reading


def gather(rows: Iterable[Row]) -> Reach:
    """Of one history, from rows of any kind."""
    found = Reach()
    chose = set()
    for row in rows:
        queue, f, type_ = row.get("queue"), row["f"], row["type"]
        if queue is None or f not in ("subscribe", "drop", "send", "deliver") or row["process"] < 0:
            continue
        name = _name(queue, row.get("subscription"))
        one = found.places[name]
        if f == "subscribe":
            both = [one]
            session = row.get("session")
            if session is not None and type_ == "invoke" and selector_of(row.get("value")) is not None:
                chose.add(session)
            if session in chose:
                both.append(found.choosing)
            for each in both:
                each.subscribes += type_ == "invoke"
                each.begun += type_ == "ok"
                _answer(each.refusals, row)
        elif f == "drop":
            one.given_up = True
        elif f == "send":
            one.sends += type_ == "invoke"
            one.sent += type_ == "ok"
            _answer(one.unsent, row)
        else:
            one.delivered += 1
            found.choosing.delivered += row.get("session") in chose
    return found


def _answer(answers: Counter[str], row: Row) -> None:
    if row["type"] in ("fail", "info"):
        answers[row.get("error") or "no answer"] += 1


def of_control(control: pa.Table) -> dict[int, Reach]:
    """By run, what the rows without messages say: columns of ``checkers.schema``, and ``run``."""
    import pyarrow as pa  # noqa: PLC0415 - not needed where rows are plain

    told = control.filter(pa.array(texts_of(control, "f").are("subscribe", "drop")))
    names = ("index", "run", "process", "f", "type", "queue", "subscription", "session", "error", "value")
    rows = told.select([name for name in names if name in told.column_names]).to_pylist()
    by_run: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda one: one["index"]):
        by_run[row.get("run") or 0].append(row)
    return {run: gather(some) for run, some in by_run.items()}


def of_rows(rows: Rows, places: PlaceTable, selectors: Collection[tuple[int, int]]) -> dict[int, Reach]:
    """By run, what was sent and delivered where; ``selectors``: (run, session) that have one."""
    found: dict[int, Reach] = defaultdict(Reach)
    counts = [
        np.bincount(rows.place[rows.of(kind)], minlength=len(places.named)).tolist()
        for kind in (SEND_INVOKE, SEND_OK, DELIVER)
    ]
    for (run, queue, _), sends, sent, delivered in zip(places.named, *counts, strict=True):
        if queue is not None and (sends or sent or delivered):
            found[run].places[_name(queue)].add(Destination(sends=sends, sent=sent, delivered=delivered))
    if selectors:
        at = rows.of(DELIVER)
        session = rows.session[at]
        at, session = at[session != NONE], session[session != NONE]
        given = zip(rows.run[at].tolist(), session.tolist(), strict=True)
        for (run, _), count in Counter(one for one in given if one in selectors).items():
            found[run].choosing.delivered += count
    return found


Unserved = frozenset[tuple[int, str]]
"""(run, destination)."""


def unsent(part: HistoryPart, wanted: Unserved) -> dict[tuple[int, str], Counter[str]]:
    """What the sends to some destinations were answered."""
    found: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for table in part.slices(["index", "type", "f", "queue", "message", "error"]):
        mine = texts_of(table, "f").are("send") & texts_of(table, "type").are("fail", "info")
        at = np.flatnonzero(mine)
        run = numbers_of(table, "run")[at] if "run" in table.column_names else np.zeros(len(at), np.int64)
        queue, error = texts_of(table, "queue"), texts_of(table, "error")
        both = zip(run.tolist(), queue.codes[at].tolist(), error.codes[at].tolist(), strict=True)
        for (number, place, answer), count in Counter(both).items():
            key = number, _name(queue.values[place])
            if key in wanted:
                found[key][error.values[answer] if answer >= 0 else "no answer"] += count
    return dict(found)


# ------------------------------------------------------------------------------------------ telling


def reasons(reach: Reach, count: Callable[[str, str], int]) -> Iterator[str]:
    """Why a history shows nothing of what was asked for.

    ``count`` says how many rows there are of an operation and type.
    """
    yield from _subscribes(reach)
    yield from _sends(reach)
    for name in sorted(reach.places):
        one = reach.whole(name)
        if not name.startswith((TOPIC, TEMPORARY)) or topic_of(name) != name:
            continue
        if one.begun and not one.delivered and (one.sent or name == TEMPORARY):
            yield f"nothing was ever delivered from {_words(name)}, though {one.begun} subscribes were ok"
    one = reach.choosing
    if one.subscribes and not one.delivered:
        said = _most(one.refusals) if not one.begun else ""
        yield f"no consumer with a selector was ever given anything; {one.subscribes} asked{said}"
    begun = max(count("begin", "invoke"), count("commit", "invoke"))
    if begun and not count("commit", "ok"):
        yield f"of {begun} transactions none was committed with ok"


def _subscribes(reach: Reach) -> Iterator[str]:
    found: dict[str, Destination] = {}
    for name, one in reach.places.items():
        whole = one
        both = split(name)
        if both is not None:
            whole = reach.whole(both[0])
            if whole.unknown:
                found[both[0]] = whole
                continue
        if one.unknown and not one.given_up:
            found[name] = one
    yield from _told("subscribe", {name: (one.subscribes, one.refusals) for name, one in found.items()})


def _sends(reach: Reach) -> Iterator[str]:
    some = {name: reach.places[name] for name in reach.unserved}
    yield from _told("send", {name: (one.sends, one.unsent) for name, one in some.items()})


def _told(what: str, found: Mapping[str, tuple[int, Counter[str]]]) -> Iterator[str]:
    """One sentence for all of a kind: the one that was asked for most often, and how many more."""
    if not found:
        return
    names: Sequence[str] = sorted(found, key=lambda name: (-found[name][0], name))
    tried, answers = found[names[0]]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    said = _most(answers)
    yield f"nothing is known of {_words(names[0])}{more}: of {tried} {what}s none was answered with ok{said}"


def _words(name: str) -> str:
    both = split(name)
    if both is not None:
        return f"subscription {both[1]} of {both[0]}"
    return "temporary queues" if name == TEMPORARY else name


def _most(answers: Counter[str]) -> str:
    """The answer that came most often."""
    if not answers:
        return ", nor otherwise"
    text, _ = min(answers.items(), key=lambda one: (-one[1], one[0]))
    line = " ".join(text.split())
    return f" ({line if len(line) <= _LONGEST else line[: _LONGEST - 3] + '...'})"
