"""Messages that were skipped for a subscription while it existed: lost, kind skipped.

When a subscription ends, the messages that wait in it end, too. That holds for a plain
subscription, a durable one that is dropped or made again with another selector, and a temporary
queue whose owner leaves. So its messages are not owed to the end of the test, and a message that is
missing there is not lost for that alone. But deliveries to a session arrive in order. If the
session to which a message was due read a *later* one, the message was in front of that one and had
been left out.

A message was skipped if all of this holds:

- It was certainly sent, and no row but its sends names it in that place.
- A later message was read in a session of that place before the session was left or lost. *Later*
  is of the same producer and group, with a higher sequence and a later send. If the message was
  sent in a transaction, the later one was sent in the same, or after the commit was answered
  ``ok``. If one of the two was sent several times, the later one was sent only when the message was
  certain. Where a whole queue is FIFO, messages without a group are later if their send was asked
  for after that of the message was certain, whoever sent them.
- The life of the subscription in which the later message was read had begun before the message was
  sent (``meant_since`` of its history), and the selector of the session matches the message.
- Both have one priority, no delay, and cannot have expired when the later one was read.
- No other session of that place can have held the message: each was asked for after the later one
  was read, or was certainly over before the message was sent or this session was asked for. A lost
  connection ends no session, because its broker may not know it.
- The broker that delivered the later message took the message. Or a broker of the same node took
  it, and the session of a subscription was asked for after the message was sent.

Each slice of a part gives the messages that wait and those that were read (``copies_of``), and they
are compared when all slices have been read (``find``). A read message tells one row (``since``)
after which the waiting ones must have been sent. So for each waiting message the later one with the
lowest such row is tried first. All later ones are tried only if that does not show that it was
skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeVar

import numpy as np

from checkers.asked import ORDINARY, Asked, Selector, asked_by
from checkers.attempts import attempts_of
from checkers.clocks import Clocks
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.lifecycle import Lives, as_sent
from checkers.queues import Consumers
from checkers.rows import (
    ACK_FAIL,
    ACK_INVOKE,
    ACK_OK,
    BROWSE,
    DELIVER,
    FOREVER,
    NACK_FAIL,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    SEND_FAIL,
    SEND_INVOKE,
    SEND_OK,
    TIMEOUT,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    first,
    joined,
    marked,
    name_number,
    ordered,
)
from checkers.running import highest_and_whose, segments
from checkers.schema import TOPIC
from checkers.selection import Selection
from checkers.subscriptions import Subscriptions, topic_of
from checkers.temporaries import Temporaries
from checkers.verdict import Promises

_BEYOND: Final = int(np.iinfo(np.int64).max)
"""A moment (ns) after all others, at which a message expires that never expires."""
_ANSWERS: Final = (DELIVER, BROWSE, TIMEOUT, ACK_INVOKE, ACK_OK, ACK_FAIL, NACK_INVOKE, NACK_OK, NACK_FAIL)
_ANYTHING: Final = -1
"""The number of the selector that wants every message."""
_SEVERAL: Final = -2
"""The number for a session that asked for one place with several selectors."""

Columns = TypeVar("Columns", "WaitingMessages", "ReadMessages", "SkippedMessages")


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """The messages of which a place has only sends, a row for each selector that they match.

    ``sent`` is the first send, ``since`` the first that did not certainly fail; ``several``: there
    are several sends. ``stored``: the row from which on a message certainly was in its place;
    ``FOREVER`` if that is so only if its transaction happened. ``unclear``: the row from which on
    no clock tells whether it has expired. ``certain``: it was sent for certain, and so is lost if
    it was skipped. ``effect_of``: the transaction of all its sends, if none of them failed.
    ``broker`` and ``node`` are those that took it.
    """

    place: Numbers
    message: Numbers
    life: Numbers
    sent: Numbers
    since: Numbers
    several: Flags
    stored: Numbers
    certain: Flags
    producer: Numbers
    sequence: Numbers
    transaction: Numbers
    effect_of: Numbers
    priority: Numbers
    expires: Numbers
    unclear: Numbers
    selector: Numbers
    broker: Numbers
    node: Numbers


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """The deliveries; those that are ``usable`` may show that earlier messages were skipped.

    ``begun``: the row since which the message can have been in its place; ``session_begun``: the
    invocation of the session's subscribe. ``broker`` and ``node`` are those that delivered it.
    """

    place: Numbers
    message: Numbers
    index: Numbers
    time: Numbers
    usable: Flags
    session: Numbers
    session_begun: Numbers
    sent: Numbers
    several: Flags
    begun: Numbers
    producer: Numbers
    sequence: Numbers
    transaction: Numbers
    priority: Numbers
    selector: Numbers
    broker: Numbers
    node: Numbers


@dataclass(frozen=True, slots=True)
class Copies:
    """The messages of a slice; ``unreadable`` are the places with a body that could not be read."""

    waiting: WaitingMessages
    read: ReadMessages
    unreadable: Numbers

    @classmethod
    def none(cls) -> Copies:
        """Return no copies."""
        return cls(_empty(WaitingMessages), _empty(ReadMessages), np.zeros(0, dtype=np.int64))

    def chosen(self, places: Flags) -> Copies:
        """Return the copies of some places."""
        return Copies(
            _chosen(self.waiting, np.flatnonzero(places[self.waiting.place])),
            _chosen(self.read, np.flatnonzero(places[self.read.place])),
            self.unreadable[places[self.unreadable]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """The consumers of subscriptions and temporary queues, and what was promised to them.

    ``unheard``: the (run, queue) with a receive whose client never heard its answer.
    """

    ends: Ends
    promises: Promises
    subscriptions: Subscriptions
    temporaries: Temporaries
    consumers: Consumers = field(default_factory=Consumers)
    deaths: Deaths = field(default_factory=Deaths)
    clocks: Clocks = field(default_factory=Clocks)
    unheard: frozenset[tuple[int, str | None]] = frozenset()
    ordered: bool = True

    def selectors(self) -> list[Selector]:
        """Return the different selectors; the number of each is its position."""
        by_text = {
            _text(selector): selector
            for by_place in self.subscriptions.selectors.values()
            for selector in itertools.chain(*by_place.values())
            if selector is not None
        }
        return [*by_text.values()]

    def is_in_order(self, place: Place) -> bool:
        """Return whether messages of a place are promised to come in the order of their sends."""
        promised = self.promises.groups if place[2] is not None else self.promises.fifo
        return self.ordered and promised and not self.is_unheard(place)

    def is_unheard(self, place: Place) -> bool:
        """Return whether a receive that was never heard answered may have taken from a place."""
        run, queue, _ = place
        return bool({(run, queue), (run, topic_of(queue))} & self.unheard)

    def meant_since(self, run: int, queue: str, read: Numbers, selector: Selector | None) -> Numbers:
        """Return ``meant_since`` of the history of a subscription or temporary queue."""
        if (run, queue) in self.subscriptions.numbers:
            history = self.subscriptions.histories[self.subscriptions.numbers[run, queue]]
            return history.meant_since(read, selector)
        if (run, queue) in self.temporaries.numbers:
            return self.temporaries.histories[self.temporaries.numbers[run, queue]].meant_since(read)
        return np.full(len(read), FOREVER, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SkippedMessages:
    """The messages that were skipped; ``later`` is a message that was read and shows it.

    ``certain``: the message was sent for certain, and so is lost. ``effect_of``: the transaction of
    which its send is an effect.
    """

    place: Numbers
    message: Numbers
    life: Numbers
    sent: Numbers
    certain: Flags
    effect_of: Numbers
    later: Numbers

    @classmethod
    def shown_by(cls, waiting: WaitingMessages, read: ReadMessages) -> SkippedMessages:
        """Return the waiting messages, each skipped for the read message at the same position."""
        return cls(
            waiting.place, waiting.message, waiting.life, waiting.sent, waiting.certain, waiting.effect_of,
            read.message,
        )  # fmt: skip

    def earliest(self, count: int) -> SkippedMessages:
        """Return the skipped messages that were sent first."""
        return _chosen(self, np.sort(np.argsort(self.sent, kind="stable")[:count]))


def _empty(table: type[Columns]) -> Columns:
    """Return a table without rows.

    The types of its fields are texts, because annotations are not evaluated.
    """
    types = {"Numbers": np.int64, "Flags": np.bool_}
    return table(**{column.name: np.zeros(0, dtype=types[str(column.type)]) for column in fields(table)})


# ------------------------------------------------------------------------------------------ slices


def copies_of(
    rows: Rows,
    places: PlaceTable,
    lives: Lives,
    audience: Audience,
    open_: Flags,
    elsewhere: Numbers,
    offset: int,
) -> Copies:
    """Return the waiting and the read messages of subscriptions and temporary queues.

    ``rows`` have whole messages. ``open_`` are the messages that are not owed to the end of the
    test. ``elsewhere`` is the first row that shows another copy of each; ``offset`` is how many
    lives came before.
    """
    passing = places.passing()[lives.place]
    if not passing.any():
        return Copies.none()
    options = asked_by(rows, attempts_of(rows, audience.ends, atomic=audience.promises.atomic))
    facts = _message_facts(rows, places, lives, passing, options)
    unreadable = passing & (lives.message == NONE) & (lives.delivered != NONE)
    return Copies(
        _waiting_messages(rows, lives, audience, facts, open_, elsewhere, offset),
        _read_messages(rows, places, lives, audience, facts, passing),
        np.unique(lives.place[unreadable]).astype(np.int64),
    )


@dataclass(frozen=True, slots=True)
class _MessageFacts:
    """The options of each message; those that are ``usable`` have an order to keep."""

    usable: Flags
    priority: Numbers
    transaction: Numbers
    effect_of: Numbers
    expires: Numbers


def _message_facts(
    rows: Rows, places: PlaceTable, lives: Lives, passing: Flags, options: Asked
) -> _MessageFacts:
    sends = rows.of(SEND_INVOKE)
    usable = passing & (lives.message != NONE) & (lives.sent != NONE) & ~lives.delayed
    usable &= ~places.grouped()[lives.place] | ((lives.producer != NONE) & (lives.sequence != NONE))
    transaction = as_sent(rows, rows.transaction, sends)
    divided = marked(rows.id[sends[rows.transaction[sends] != transaction[rows.id[sends]]]], rows.messages)
    divided |= marked(rows.id[rows.of(SEND_FAIL)], rows.messages)
    return _MessageFacts(
        usable,
        np.where(options.priority == NONE, ORDINARY, options.priority),
        transaction,
        np.where(divided, NONE, transaction),
        options.expires,
    )


def _waiting_messages(
    rows: Rows,
    lives: Lives,
    audience: Audience,
    facts: _MessageFacts,
    open_: Flags,
    elsewhere: Numbers,
    offset: int,
) -> WaitingMessages:
    size = rows.messages
    certain = lives.ok != NONE
    usable = facts.usable & open_ & (certain | (facts.effect_of != NONE))
    usable &= (lives.since != NONE) & ~marked(rows.id[rows.of(*_ANSWERS)], size)
    at = np.flatnonzero(usable)
    selector = np.full(len(at), _ANYTHING, dtype=np.int64)
    selectors = audience.selectors()
    if selectors and len(at):
        selection = Selection(rows)
        matching = [at[selection.wants(wanted_selector)[at]] for wanted_selector in selectors]
        numbers = [np.full(len(messages), n, dtype=np.int64) for n, messages in enumerate(matching)]
        at, selector = np.concatenate([at, *matching]), np.concatenate([selector, *numbers])
    answers = rows.of(SEND_OK)
    answer = first(rows.id[answers], answers, size)[at]
    answered = answer != NONE
    broker, node = np.full((2, len(at)), NONE, dtype=np.int64)
    broker[answered], node[answered] = _brokers(rows, answer[answered], audience.deaths)
    expires = facts.expires[at]
    expiring = np.flatnonzero(expires != NONE)
    unclear = np.full(len(at), FOREVER, dtype=np.int64)
    unclear[expiring] = audience.clocks.wrong_from(rows, at[expiring], lives.sent[at[expiring]])
    stored = np.where(certain, lives.ok, np.where(elsewhere == NONE, FOREVER, elsewhere))
    return WaitingMessages(
        place=lives.place[at].astype(np.int64), message=lives.message[at], life=at + offset,
        sent=lives.sent[at], since=lives.since[at], several=lives.several[at], stored=stored[at],
        certain=certain[at], producer=lives.producer[at], sequence=lives.sequence[at],
        transaction=facts.transaction[at], effect_of=facts.effect_of[at],
        priority=facts.priority[at], expires=np.where(expires == NONE, _BEYOND, expires),
        unclear=unclear, selector=selector, broker=broker, node=node,
    )  # fmt: skip


def _read_messages(
    rows: Rows, places: PlaceTable, lives: Lives, audience: Audience, facts: _MessageFacts, passing: Flags
) -> ReadMessages:
    at = rows.of(DELIVER)
    at = at[passing[rows.id[at]]]
    ids, run, session, index = rows.id[at], rows.run[at], rows.session[at], rows.index[at]
    begun, ended = (audience.ends.sessions.find(name, run, session) for name in ("begun", "ended"))
    usable = facts.usable[ids] & (session != NONE) & (begun != NONE) & (begun < index)
    usable &= (ended == NONE) | (index < ended)
    usable &= (lives.sent[ids] < index) & (places.grouped()[rows.place[at]] | (lives.begun[ids] != NONE))
    selector = _selector_numbers(rows.place[at].astype(np.int64), session, places, audience)
    usable &= selector != _SEVERAL
    expires = lives.expires[ids]
    usable &= (expires == NONE) | (expires > rows.time[at])
    expiring = np.flatnonzero(usable & (expires != NONE))
    messages = ids[expiring].astype(np.int64)
    usable[expiring] = ~audience.clocks.wrong(rows, messages, lives.sent[messages], index[expiring])
    broker, node = _brokers(rows, at, audience.deaths)
    return ReadMessages(
        place=rows.place[at].astype(np.int64), message=rows.message[at], index=index,
        time=rows.time[at], usable=usable, session=session, session_begun=begun, sent=lives.sent[ids],
        several=lives.several[ids], begun=lives.begun[ids], producer=lives.producer[ids],
        sequence=lives.sequence[ids], transaction=facts.transaction[ids], priority=facts.priority[ids],
        selector=selector, broker=broker, node=node,
    )  # fmt: skip


def _selector_numbers(place: Numbers, session: Numbers, places: PlaceTable, audience: Audience) -> Numbers:
    """Return the number of the selector with which each session asked for a place."""
    result = np.full(len(place), _ANYTHING, dtype=np.int64)
    if audience.subscriptions.selectors and len(place):
        numbers = {_text(selector): n for n, selector in enumerate(audience.selectors())}
        pairs, inverse = np.unique(np.column_stack([place, session]), axis=0, return_inverse=True)
        of_pairs = []
        for place_number, session_number in pairs.tolist():
            run, queue, _ = places.named[place_number]
            selectors = audience.subscriptions.selectors_of(run, session_number, queue)
            its_numbers = [
                _ANYTHING if selector is None else numbers[_text(selector)] for selector in selectors
            ]
            of_pairs.append(_SEVERAL if len(its_numbers) > 1 else next(iter(its_numbers), _ANYTHING))
        result = np.array(of_pairs, dtype=np.int64)[inverse.ravel()]
    return result


def _text(selector: Selector) -> str:
    """Return a text of a selector; equal selectors have the same text."""
    return repr(sorted(selector.items()))


def _brokers(rows: Rows, at: Numbers, deaths: Deaths) -> tuple[Numbers, Numbers]:
    """Return the number of the broker of each row, and that of its node."""
    names = np.array([*map(name_number, rows.broker.values), NONE], dtype=np.int64)
    return names[rows.broker.codes[at]], deaths.nodes(rows, at)


# ------------------------------------------------------------------------------------------- parts


def joined_copies(slices: Sequence[Copies]) -> Copies:
    """Return the copies of several slices as those of one."""
    return Copies(
        joined(copies.waiting for copies in slices),
        joined(copies.read for copies in slices),
        np.concatenate([copies.unreadable for copies in slices]),
    )


def renumbered(parts: Iterable[tuple[Copies, Sequence[Place]]]) -> tuple[Copies, list[Place]]:
    """Return the copies of several parts as those of one part, and its places."""
    codes: dict[Place, int] = {}
    all_copies = [Copies.none()]
    lives = 0
    for copies, named in parts:
        numbers = np.array([codes.setdefault(place, len(codes)) for place in named], dtype=np.int64)
        waiting = replace(
            copies.waiting, place=numbers[copies.waiting.place], life=copies.waiting.life + lives
        )
        read = replace(copies.read, place=numbers[copies.read.place])
        all_copies.append(Copies(waiting, read, numbers[copies.unreadable]))
        lives = int(waiting.life.max(initial=lives)) + 1
    return joined_copies(all_copies), list(codes)


def find(copies: Copies, named: Sequence[Place], audience: Audience) -> SkippedMessages:
    """Return the messages that were skipped, each with a later message that shows it."""
    none = Copies.none()
    nothing = SkippedMessages.shown_by(none.waiting, none.read)
    judged = np.array([audience.is_in_order(place) for place in named], dtype=bool)
    judged[copies.unreadable] = False
    judged &= marked(copies.read.place[copies.read.usable], len(named))
    at = np.flatnonzero(judged[copies.waiting.place])
    read_at = np.flatnonzero(marked(copies.waiting.place[at], len(named))[copies.read.place])
    if not len(at) or not len(read_at):
        return nothing
    waiting, read = _chosen(copies.waiting, at), _chosen(copies.read, read_at)
    since = _overtaken_since(read, named, audience)
    usable = np.flatnonzero(read.usable & (since < FOREVER))
    if not len(usable):
        return nothing
    read = _chosen(read, usable)
    overtaken, by = _Comparison(waiting, read, since[usable], named).pairs()
    return SkippedMessages.shown_by(_chosen(waiting, overtaken), _chosen(read, by))


def _chosen(columns: Columns, at: Numbers) -> Columns:
    return type(columns)(**{column.name: getattr(columns, column.name)[at] for column in fields(columns)})


def _overtaken_since(read: ReadMessages, named: Sequence[Place], audience: Audience) -> Numbers:
    """Return the row after which each delivery's overtaken messages must have been sent.

    ``FOREVER``: the delivery certainly overtook no message.
    """
    since = np.full(len(read.place), FOREVER, dtype=np.int64)
    selectors = audience.selectors()
    order = np.argsort(read.place, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(read.place[order])) + 1):
        run, queue, _ = named[read.place[at[0]]]
        rivals = _rivals_until(_chosen(read, at), (run, str(queue)), audience)
        for number in np.unique(read.selector[at]).tolist():
            equal = read.selector[at] == number
            selector = selectors[number] if number >= 0 else None
            meant = audience.meant_since(run, str(queue), read.index[at[equal]], selector)
            since[at[equal]] = np.minimum(np.maximum(rivals[equal], meant), FOREVER)
    return since


def _rivals_until(read: ReadMessages, queue: tuple[int, str], audience: Audience) -> Numbers:
    """Return up to which row another session can have been sent what each delivery overtook.

    The result is -1, before all rows, if none can: each other session was over before the session
    was asked for that read the delivery.
    """
    nameless = bool((read.session == NONE).any())
    sessions = audience.consumers.of(queue, np.unique(read.session[read.session != NONE]).tolist())
    order = np.argsort(sessions.begun, kind="stable")
    latest, second, session = -1, -1, NONE
    table = [(latest, second, session)]
    for number, over in zip(sessions.number[order].tolist(), sessions.over[order].tolist(), strict=True):
        if over > latest:
            latest, second, session = over, latest, number
        else:
            second = max(second, over)
        table.append((latest, second, session))
    latest_over, second_over, latest_session = np.array(table, dtype=np.int64).T
    at = np.searchsorted(sessions.begun[order], read.index, "left")
    begun = sessions.since(read.session)
    until = np.where(latest_session[at] == read.session, second_over[at], latest_over[at])
    promises = audience.promises
    if promises.attempts == "refused" or promises.delivery_attempts < 0:
        until = np.where(until < begun, -1, until)
    return np.where(nameless | (begun < 0), FOREVER, until)


class _Comparison:
    """The comparison of waiting messages with those that were read."""

    def __init__(
        self,
        waiting: WaitingMessages,
        read: ReadMessages,
        since: Numbers,
        named: Sequence[Place],
    ) -> None:
        self._waiting, self._read, self._since = waiting, read, since
        self._topics = np.array([(queue or "").startswith(TOPIC) for _, queue, _ in named], dtype=bool)
        grouped = np.array([group is not None for _, _, group in named], dtype=bool)
        self._grouped = grouped[waiting.place]
        self._turn = np.where(self._grouped, waiting.sequence, waiting.stored)
        of_read = grouped[read.place]
        self._later_turn = np.where(of_read, read.sequence, read.begun)
        self._key = np.zeros(len(waiting.place) + len(read.place), dtype=np.int64)
        for name in ("place", "producer", "priority", "selector", "node"):
            column = np.concatenate([getattr(waiting, name), getattr(read, name)])
            if name == "producer":
                column = np.where(np.concatenate([self._grouped, of_read]), column, NONE)
            _, code = np.unique(column, return_inverse=True)
            _, self._key = np.unique(self._key * (int(code.max()) + 1) + code, return_inverse=True)

    def pairs(self) -> tuple[Numbers, Numbers]:
        """Return the positions of the skipped messages, and of a later message for each."""
        size, count = len(self._turn), len(self._later_turn)
        of_read = np.arange(size + count) >= size
        turn = np.concatenate([self._turn, self._later_turn])
        order = ordered(self._key, -turn, of_read)
        since = np.concatenate([np.full(size, NONE), FOREVER - self._since])
        position = np.arange(size + count)
        best, whose = (np.empty(size + count, dtype=np.int64) for _ in range(2))
        best[order], whose[order] = highest_and_whose(
            segments(self._key[order]), since[order], order.astype(np.int64), position
        )
        at = np.flatnonzero((whose[:size] != NONE) & (FOREVER - best[:size] < self._waiting.since))
        later = np.full(size, NONE, dtype=np.int64)
        candidate = whose[at] - size
        right = self._overtaken(at, candidate)
        later[at[right]] = candidate[right]
        by_key = np.argsort(self._key[size:], kind="stable")
        keys = self._key[size:][by_key]
        for message in at[~right].tolist():
            low, high = np.searchsorted(keys, [self._key[message], self._key[message] + 1])
            candidates = by_key[low:high]
            right = self._overtaken(np.full(len(candidates), message, dtype=np.int64), candidates)
            if right.any():
                later[message] = candidates[right][0]
        at = np.flatnonzero(later != NONE)
        _, once = np.unique(self._waiting.life[at], return_index=True)
        return at[once], later[at[once]]

    def _overtaken(self, at: Numbers, by: Numbers) -> Flags:
        """Return which waiting messages were overtaken by the read ones at the same positions."""
        waiting, read = self._waiting, self._read
        result: Flags = (self._later_turn[by] > self._turn[at]) & (read.sent[by] > waiting.sent[at])
        result &= self._since[by] < waiting.since[at]
        in_sequence = waiting.transaction[at] == NONE
        in_sequence |= waiting.transaction[at] == read.transaction[by]
        in_sequence &= ~waiting.several[at] & ~read.several[by]
        result &= in_sequence | (waiting.stored[at] < read.begun[by])
        result &= waiting.expires[at] > read.time[by]
        result &= waiting.unclear[at] > read.index[by]
        moved = self._topics[waiting.place[at]] & (read.session_begun[by] > waiting.sent[at])
        result &= (waiting.broker[at] == read.broker[by]) | moved
        return result
