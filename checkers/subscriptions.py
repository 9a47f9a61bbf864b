"""Topics: which subscriptions existed when, and which messages each was owed.

A queue whose name begins with ``TOPIC`` is a topic. A message that is sent to it is meant for each
of its subscriptions, which are known by name: one send is as many messages as there are
subscriptions. All rows of a topic and a group lie in one part; those of consumers have the name of
their subscription. Before the rules see them, the rows of each subscription become those of a queue
of its own (its *place*, ``place_of``). Every send to the topic is copied to each place
(``spread``). So a rule treats (subscription, group) as it treats (queue, group).

Only what a subscription is owed is different (``Subscriptions``):

    owed        messages that were sent when it certainly existed, if it was not dropped since. The
                send was invoked after the answer to a ``subscribe`` of that name, and no ``drop``
                of it that did not fail was invoked after that. A ``drop`` whose outcome is unknown
                may happen at any later time, so after it nothing is owed. What a broker of another
                node took is owed only once that broker knew of the subscription
                (``checkers.interests``)
    not for it  messages that were certainly sent before it existed. The send was ``ok`` before the
                first ``subscribe`` of its name was invoked, or before a ``drop`` was answered
                ``ok`` while no session was subscribing; and the session that got the message began
                after that
    selector    a ``subscribe`` may have one: as JSON in ``value``, ``{"selector": {property:
                [texts]}}``, which matches one of the texts in each property. A send has its
                properties in the same way, ``{"properties": {property: text}}``. A message that
                does not match is neither owed, nor may it be delivered

A subscription that ends with its connection has ``drop`` rows, too: with its unsubscribe, or
(outcome unknown) when the client sees that the connection is lost.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers import restores
from checkers.asked import Selector, selector_of
from checkers.restores import NEVER, Request
from checkers.rows import NONE, Flags, Numbers, Texts, numbers_of, texts_of
from checkers.schema import TEMPORARY, TOPIC

_BETWEEN: Final = " > "
_BITS: Final = 33


def place_of(topic: str, subscription: str) -> str:
    """Return the name of a subscription's place: the queue that it is for the rules."""
    return f"{topic}{_BETWEEN}{subscription}"


def split(queue: str | None) -> tuple[str, str] | None:
    """Return topic and subscription of a place; None if it is not of a subscription."""
    if queue is None or not queue.startswith(TOPIC):
        return None
    topic, between, subscription = queue.partition(_BETWEEN)
    return (topic, subscription) if between else None


def topic_of(queue: str | None) -> str | None:
    """Return the queue that a place has in the history: the topic, for a subscription's place."""
    topic_and_name = split(queue)
    return queue if topic_and_name is None else topic_and_name[0]


def matches(selector: Selector, properties: Mapping[str, Any]) -> bool:
    """Return whether a selector matches a message with some properties."""
    return all(properties.get(name) in values for name, values in selector.items())


# ------------------------------------------------------------------------------------------- tables


def has_topics(table: pa.Table) -> bool:
    """Return whether any row is of a topic; a table without ``subscription`` has none."""
    if "subscription" not in table.column_names:
        return False
    for chunk in table.column("queue").chunks:
        names = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
        if pc.any(pc.starts_with(names, TOPIC)).as_py():
            return True
    return False


def renamed(table: pa.Table) -> pa.Table:
    """Return the rows; those that name a topic's subscription have its place as queue."""
    if not has_topics(table):
        return table
    table = table.unify_dictionaries().combine_chunks()
    queue, subscription = texts_of(table, "queue"), texts_of(table, "subscription")
    where = of_topics(queue) & (subscription.codes >= 0)
    if not where.any():
        return table
    width = len(subscription.values)
    pairs, codes = np.unique(
        queue.codes[where].astype(np.int64) * width + subscription.codes[where], return_inverse=True
    )
    names = [
        place_of(queue.values[pair // width], subscription.values[pair % width]) for pair in pairs.tolist()
    ]
    changed = queue.codes.copy()
    changed[where] = len(queue.values) + codes.astype(np.int32)
    return _with_queue(table, changed, [*queue.values, *names])


def spread(table: pa.Table, known_places: Iterable[tuple[int, str]] = ()) -> pa.Table:
    """Return the rows by place, each send to a topic copied to all its subscriptions, if any.

    The subscriptions are the ``known_places`` (run, place), and those that other rows of the table
    name.
    """
    if not has_topics(table):
        return table
    table = renamed(table)
    queue = texts_of(table, "queue")
    topics = _are_topics(queue)
    topics[:-1] &= [split(name) is None for name in queue.values]
    sent = topics[queue.codes] & texts_of(table, "f").are("send")
    if not sent.any():
        return table
    run = numbers_of(table, "run") if "run" in table.column_names else np.zeros(len(table), dtype=np.int64)
    present = {
        (run_number, queue.values[code])
        for run_number, code in set(zip(run.tolist(), queue.codes.tolist(), strict=True))
        if code >= 0
    }
    places: dict[tuple[int, str], list[str]] = defaultdict(list)
    for run_number, name in sorted(
        {*known_places, *((run_number, name) for run_number, name in present if split(name))}
    ):
        places[run_number, str(topic_of(name))].append(name)
    at, codes = [np.flatnonzero(~sent)], [queue.codes[~sent]]
    names = list(queue.values)
    for run_number, topic in sorted(item for item in present if not split(item[1])):
        sends = np.flatnonzero(sent & (run == run_number) & queue.are(topic))
        for name in places[run_number, topic] or [topic] if len(sends) else ():
            at.append(sends)
            codes.append(np.full(len(sends), len(names), dtype=np.int32))
            names.append(name)
    return _with_queue(table.take(pa.array(np.concatenate(at))), np.concatenate(codes), names)


def of_topics(queue: Texts) -> Flags:
    """Return which rows are of a topic."""
    return _are_topics(queue)[queue.codes]


def _are_topics(queue: Texts) -> Flags:
    return np.array([*(name.startswith(TOPIC) for name in queue.values), False], dtype=bool)


def _with_queue(table: pa.Table, codes: npt.NDArray[np.int32], names: Sequence[str]) -> pa.Table:
    """Return the rows with other queues; several codes may have one name."""
    unique = {name: code for code, name in enumerate(dict.fromkeys(names))}
    same = np.array([unique[name] for name in names], dtype=np.int32)
    column = pa.DictionaryArray.from_arrays(
        pa.array(same[codes], pa.int32(), mask=codes < 0), pa.array(list(unique), pa.string())
    )
    return table.set_column(table.column_names.index("queue"), "queue", column)


# -------------------------------------------------------------------------------------------- facts


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The facts about all subscriptions from the control rows; ``numbers`` numbers them.

    ``since``: the index after which sent messages are owed (``NEVER``: none is). ``steady``: the
    subscription was never dropped, nor made anew for another selector, so that no message that
    waited for it went with it. ``begun``: its first invocation of a subscribe (``NONE`` if there is
    none). ``absent``: indexes just before which a subscription certainly did not exist, packed with
    its number, in order. ``wanted`` is its selector (None: it wants every message; if it changed
    its selector, no message is owed). ``selectors`` are those of the sessions that asked with one,
    by (run, session) and by the place that they asked for (``selectors_of``). ``histories`` has the
    subscribes and drops of each subscription.
    """

    numbers: Mapping[tuple[int, str], int] = field(default_factory=dict)
    since: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    steady: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    begun: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    absent: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    wanted: Sequence[Selector | None] = ()
    selectors: Mapping[tuple[int, int], Mapping[str | None, list[Selector | None]]] = field(
        default_factory=dict
    )
    histories: Sequence[SubscriptionHistory] = ()

    def selectors_of(self, run: int, session: int, place: str | None) -> list[Selector | None]:
        """Return the different selectors with which a session asked for a place or for any.

        None is the selector of a subscribe that wants every message. The list is empty if the
        session never asked for the place, or asked for no place with a selector.
        """
        by_place = self.selectors.get((run, session), {})
        different: list[Selector | None] = []
        for name in {place, None}:
            different += [selector for selector in by_place.get(name, ()) if selector not in different]
        return different

    def number(self, places: Sequence[tuple[int, str | None, str | None]]) -> Numbers:
        """Return the number of each place's subscription; ``NONE`` for another place."""
        numbers_found = [self.numbers.get((run, queue or ""), NONE) for run, queue, _ in places]
        return np.array(numbers_found, dtype=np.int64)

    def kept(self, places: Sequence[tuple[int, str | None, str | None]]) -> Flags:
        """Return whether each place keeps all messages that wait there until they are settled."""
        number = self.number(places)
        is_numbered = number != NONE
        passing = np.array(
            [(queue or "").startswith((TOPIC, TEMPORARY)) for _, queue, _ in places], dtype=bool
        )
        steady = np.zeros(len(places), dtype=bool)
        steady[is_numbered] = self.steady[number[is_numbered]]
        result: Flags = ~passing | steady
        return result

    def last_absent(self, number: Numbers, until: Numbers) -> Numbers:
        """Return the latest index, up to ``until``, before which each certainly did not exist.

        The result is ``NONE`` for a subscription without such an index.
        """
        if not len(self.absent):
            return np.full(len(number), NONE, dtype=np.int64)
        at = np.searchsorted(self.absent, (number << _BITS) | until, "right") - 1
        entry = self.absent[np.maximum(at, 0)]
        return np.where((at >= 0) & (entry >> _BITS == number), entry & NEVER, NONE)


@dataclass(slots=True)
class SubscriptionHistory:
    """The subscribes and drops of one subscription, in the order of their invocations."""

    subscribes: list[Request] = field(default_factory=list)
    drops: list[Request] = field(default_factory=list)

    @property
    def has_one_selector(self) -> bool:
        """True if all subscribes have the same selector."""
        return all(request.selector == self.subscribes[0].selector for request in self.subscribes)

    @property
    def selector(self) -> Selector | None:
        """The selector of the first subscribe; None if it has none."""
        return self.subscribes[0].selector if self.subscribes else None

    @property
    def brokers(self) -> frozenset[str | None]:
        """The brokers that answered a subscribe with ``ok``."""
        return frozenset(request.broker for request in self.subscribes if request.outcome == "ok")

    def is_steady(self) -> bool:
        """Return whether the subscription was never dropped or made again for another selector."""
        return self.has_one_selector and all(drop.outcome == "fail" for drop in self.drops)

    def owed_since(self) -> int:
        """Return the row after which a sent message is owed to the end of the test."""
        return min((request.answered for request in self.lasting_subscribes()), default=NEVER)

    def lasting_subscribes(self) -> list[Request]:
        """Return the subscribes from whose ``ok`` on the subscription lasts to the end."""
        if not self.has_one_selector:
            return []
        effective = [drop for drop in self.drops if drop.outcome != "fail"]
        if any(drop.outcome != "ok" for drop in effective):
            return []
        last = max((drop.answered for drop in effective), default=-1)
        return [request for request in self.subscribes if request.outcome == "ok" and request.asked > last]

    def meant_since(self, read: Numbers, selector: Selector | None) -> Numbers:
        """Return the row after which messages were sent to the life that lasted to each ``read``.

        A life with a selector begins with a subscribe that is answered ``ok``. A drop, or a
        subscribe with another selector, may end the life as soon as it is invoked. Such a subscribe
        begins no life, because the life that it ends is over only when it is answered.
        """
        other_subscribes = [request for request in self.subscribes if request.selector != selector]
        endings = sorted(
            (request.asked, request.answered, request.outcome) for request in (*self.drops, *other_subscribes)
        )
        endings = [request for request in endings if request[2] != "fail"]
        over = [-1, *(answered if outcome == "ok" else NEVER for _, answered, outcome in endings)]
        last_over = np.maximum.accumulate(np.array(over, dtype=np.int64))
        made = sorted(
            (request.asked, request.answered) for request in self.subscribes if request.outcome == "ok"
        )
        answers = np.array([*(answered for _, answered in made), NEVER], dtype=np.int64)
        first_answer = np.minimum.accumulate(answers[::-1])[::-1]
        ended = last_over[np.searchsorted([invoked for invoked, *_ in endings], read, "left")]
        return first_answer[np.searchsorted([invoked for invoked, _ in made], ended, "right")]

    def begun(self) -> int:
        """Return the row of the first subscribe; ``NONE`` if there is none."""
        return min((request.asked for request in self.subscribes), default=NONE)

    def absent(self) -> Iterator[int]:
        """Yield the indexes just before which the subscription certainly did not exist."""
        if self.subscribes:
            yield self.begun()
        begins = [request.asked for request in self.subscribes]  # sorted, as invocations come in order
        ends = (
            request.answered if request.outcome in ("ok", "fail") else NEVER for request in self.subscribes
        )
        latest = [-1, *itertools.accumulate(ends, max)]
        for drop in self.drops:
            if drop.outcome == "ok" and latest[bisect_left(begins, drop.answered)] < drop.asked:
                yield drop.answered + 1


def read(control: pa.Table) -> Subscriptions:
    """Return the facts about subscriptions from all control rows.

    The table has columns of ``checkers.schema``, and may have ``run``.
    """
    f, subscription = texts_of(control, "f"), texts_of(control, "subscription")
    of_topics = f.are("subscribe", "drop") & (subscription.codes >= 0)
    subscribes = f.are("subscribe")
    is_choosing = (subscribes & (texts_of(control, "value").codes >= 0)).any()
    is_relevant = of_topics | subscribes if is_choosing else of_topics
    if not is_relevant.any():
        return Subscriptions()
    histories: dict[tuple[int, str], SubscriptionHistory] = {}
    selectors: dict[tuple[int, int], dict[str | None, list[Selector | None]]] = {}
    open_requests: dict[tuple[int, int, str, str], int] = {}
    rows = control.filter(pa.array(is_relevant)).to_pylist()
    for row in sorted(rows, key=lambda item: item["index"]):
        run, queue = row.get("run") or 0, row.get("queue")
        is_of_topic = row.get("subscription") is not None and (queue or "").startswith(TOPIC)
        place = place_of(queue, row["subscription"]) if is_of_topic else queue
        if row["f"] == "subscribe" and row["type"] == "invoke" and row.get("session") is not None:
            by_place = selectors.setdefault((run, row["session"]), {})
            by_place.setdefault(place, []).append(selector_of(row.get("value")))
        if not is_of_topic:
            continue
        history = histories.setdefault((run, place), SubscriptionHistory())
        requests = history.subscribes if row["f"] == "subscribe" else history.drops
        key = (run, row["process"], row["f"], place)
        if row["type"] == "invoke":
            open_requests[key] = len(requests)
            selector = selector_of(row.get("value")) if row["f"] == "subscribe" else None
            requests.append(Request(row["index"], selector=selector, asked_ns=row["time"]))
        elif key in open_requests:
            at = open_requests.pop(key)
            requests[at] = replace(
                requests[at],
                answered=row["index"],
                outcome=row["type"],
                broker=row.get("broker"),
                answered_ns=row["time"],
            )
    restored = restores.read(control)
    for (run, _), history in histories.items():
        changes = [*history.subscribes, *history.drops]
        history.drops = restores.endings(changes, history.drops, restored.get(run, ()))
    every = list(histories.values())
    absent = [(n << _BITS) | at for n, item in enumerate(every) for at in item.absent()]
    return Subscriptions(
        {key: n for n, key in enumerate(histories)},
        np.array([item.owed_since() for item in every], dtype=np.int64),
        np.array([item.is_steady() for item in every], dtype=bool),
        np.array([item.begun() for item in every], dtype=np.int64),
        np.sort(np.array(absent, dtype=np.int64)),
        [item.selector for item in every],
        {session: by_place for session, by_place in selectors.items() if any(map(any, by_place.values()))},
        every,
    )
