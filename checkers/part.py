"""The work of one Spark task: every family of rules judges one part of a history.

Rows become columns once, messages become lives once, and every family reads those. A family that
fails gives its error as its answer and does not affect the others. The task gets its input as data
(``Question``); it gets the families as data, too, so that a judge can ask only some of them.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers import (
    alternation,
    availability,
    breakage,
    delivery,
    fifo,
    links,
    order,
    priorities,
    queues,
    reach,
    roles,
    sessions,
    skipped,
    starved,
    statistics,
    totals,
    transactions,
)
from checkers.attempts import attempts_of
from checkers.cause import in_a_line
from checkers.clocks import Clocks
from checkers.closings import Closings
from checkers.deaths import Deaths
from checkers.deletions import Deletions
from checkers.ends import Ends, Keyed
from checkers.instance import Found, Instance
from checkers.interests import Interests
from checkers.lifecycle import Deliveries, Lives, lives_and_deliveries
from checkers.ordinary import Ordinary, split_ordinary
from checkers.owed import died_unread, died_untaken
from checkers.rows import (
    NONE,
    READ,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    from_table,
    joined,
    marked,
    numbers_of,
)
from checkers.selective import Comparison, SelectiveQueues, Waits, classes, comparisons
from checkers.source import HistoryError, HistoryPart
from checkers.stores import Owners
from checkers.subscriptions import Subscriptions, has_topics, renamed, spread
from checkers.tally import InstanceTally
from checkers.temporaries import Temporaries
from checkers.timeouts import lapses
from checkers.verdict import Promises


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The input of the rules for every part, mostly known from control rows.

    ``limit_s`` is how long a family may take.
    """

    ends: Ends
    examples: int
    bound_ns: int
    windows: Sequence[roles.BrokerWindows] = ()
    since_ns: Mapping[int, int] = field(default_factory=dict)
    limit_s: float = 300.0
    owners: Owners = field(default_factory=Owners)
    promises: Promises = field(default_factory=Promises)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    choosers: SelectiveQueues = field(default_factory=SelectiveQueues)
    temporaries: Temporaries = field(default_factory=Temporaries)
    interests: Interests = field(default_factory=Interests)
    deletions: Deletions = field(default_factory=Deletions)
    consumers: queues.Consumers = field(default_factory=queues.Consumers)
    ordered: bool = True
    """True if the test promises order."""
    lossless: bool = True
    """True if the guarantee promises that every message is delivered."""
    unheard: frozenset[tuple[int, str | None]] = frozenset()
    """The (run, queue) with a ``receive`` whose client never heard its answer."""
    elsewhere: delivery.Elsewhere | None = None
    taken: frozenset[tuple[int, str]] = frozenset()
    """The (run, queue) whose unheard receives may have taken every message that is missing."""
    deaths: Deaths = field(default_factory=Deaths)
    clocks: Clocks = field(default_factory=Clocks)
    last_ns: Mapping[int, int] = field(default_factory=dict)
    """The time of each run's last row."""
    drained_ns: Mapping[int, int] = field(default_factory=dict)
    """The time at which the drain of each run began."""
    waiting: frozenset[int] = frozenset()
    """The runs in which a message given back before the drain may wait until after it."""
    complete: frozenset[int] = frozenset()
    """The runs in which everything was drained and every store read."""
    drained_from: Mapping[int, int] = field(default_factory=dict)
    """The row with which the drain of each run began."""
    look_step: int = 0
    """The step of the knots when a part's rows are validated before the rules judge them.

    One row in so many is a knot (``checkers.breakage``); 0: the rows have been validated.
    """
    look_keys: bool = False
    """True if the validation must ensure that a part has all rows of whole groups."""
    look_lacking: frozenset[str] = frozenset()
    """The columns that the history does not have."""

    @property
    def of_messages(self) -> delivery.RuleContext:
        """The input of the rules about single messages."""
        return delivery.RuleContext(
            ends=self.ends,
            owners=self.owners,
            promises=self.promises,
            deaths=self.deaths,
            subscriptions=self.subscriptions,
            temporaries=self.temporaries,
            interests=self.interests,
            deletions=self.deletions,
            clocks=self.clocks,
            last_ns=self.last_ns,
            drained_ns=self.drained_ns,
            drained_from=self.drained_from,
            waiting=self.waiting,
            elsewhere=self.elsewhere,
            audience=self.audience,
        )

    @property
    def audience(self) -> skipped.Audience:
        """The input of the rules about messages that their subscription skipped."""
        return skipped.Audience(
            ends=self.ends,
            promises=self.promises,
            subscriptions=self.subscriptions,
            temporaries=self.temporaries,
            consumers=self.consumers,
            deaths=self.deaths,
            clocks=self.clocks,
            unheard=self.unheard,
            ordered=self.ordered,
        )

    def places(self) -> PlaceTable:
        """Return an empty table of places that knows the deleted queues."""
        return PlaceTable(deleted_queues=self.deletions.queues)

    def rows(self, table: pa.Table, places: PlaceTable) -> Rows:
        """Return the rows of a table, those of topics by subscription.

        A send to a topic becomes a send to each of its subscriptions.
        """
        return from_table(spread(table, self.subscriptions.numbers), places)


@dataclass(frozen=True)
class Messages:
    """The messages and deliveries of whole groups: the ordinary ones, and all others in detail.

    ``in_line`` says whether each place is a group whose order can be judged. ``marks`` has the
    marks of each slice, if the family "delivery" is asked.
    """

    lives: Lives
    deliveries: Deliveries
    ordinary: Ordinary
    places: PlaceTable
    in_line: Flags
    choosers: SelectiveQueues
    marks: Sequence[delivery.SliceMarks] = ()

    @cached_property
    def closings(self) -> Closings:
        """The messages that close their group."""
        return Closings.of(self.lives)

    @cached_property
    def turns(self) -> order.Turns:
        """The delivered messages of groups whose order can be judged."""
        return order.turns(self.lives, self.ordinary, self.in_line)

    def compared(self, turns: order.Turns) -> Sequence[Comparison]:
        """Return which of some messages must keep an order among each other."""
        closed = self.closings.unread(turns.place, np.minimum(turns.delivered, turns.stored), turns.delivered)
        waits = Waits(turns.place, turns.matched, turns.waits, turns.delivered, closed)
        return comparisons(waits, self.places.named, self.choosers)

    @cached_property
    def compared_turns(self) -> Sequence[Comparison]:
        """The comparisons among delivered messages that must keep an order."""
        return self.compared(self.turns)

    @cached_property
    def overtaken(self) -> Numbers:
        """The delivered messages that were overtaken by one sent after they were stored."""
        return self.turns.overtaken(self.compared_turns)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of the family "delivery".

    ``survivors`` has, for each group that lost a message, the first and last send of its messages
    that were delivered or stored; ``missing`` the number of missing messages by run and queue;
    ``stray`` what other parts must be asked for.

    ``late``: the acks and nacks that were invoked after their broker process had been seen gone.
    ``overtakers``: for each skipped message the later one that shows it. ``effects``: the copies
    that were sent in transactions and skipped. ``ungrouped``: the copies without a group in FIFO
    queues, whose messages lie in all parts. ``places`` are the places of the last two.
    """

    found: Mapping[int, Mapping[str, Found]]
    survivors: Mapping[Place, tuple[int, int]]
    missing: Mapping[tuple[int, str], int]
    stray: delivery.Stray
    late: links.UnderWay
    overtakers: Mapping[Instance, int]
    effects: transactions.Effects
    ungrouped: skipped.Copies
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class SessionsResult:
    """The result of the family "sessions".

    ``open``: holds may conflict, or an excuse may be refuted, which only proofs from all parts can
    decide. ``excused`` are the deliveries that were excused.
    """

    found: Mapping[int, Mapping[str, Found]]
    open: bool
    excused: links.UnderWay


RowFamily = Callable[[Rows, PlaceTable, Question], Any]
GroupFamily = Callable[[Messages, Question], Any]
LOOK: Final = "look"
"""The name of the answer that says whether the part's rows are valid; it is not of a family."""


def _delivery(messages: Messages, question: Question) -> Delivered:
    places = messages.places
    tally = InstanceTally(places, question.examples)
    copies = skipped.joined_copies([slice_marks.copies for slice_marks in messages.marks])
    overtaken = skipped.find(copies.chosen(places.grouped()), places.named, question.audience)
    marks = joined([*(slice_marks.marks for slice_marks in messages.marks), delivery.skipped(overtaken)])
    missing = _missing(messages, delivery.lost(marks))
    if question.taken:
        is_taken = [(run, queue) in question.taken for run, queue, _ in places.named]
        marks = delivery.without_lost(marks, np.array(is_taken, dtype=bool))
    delivery.find(marks, messages.lives, tally)
    ungrouped = copies.chosen(~places.grouped() & question.promises.fifo)
    return Delivered(
        tally.found,
        _survivors(messages, delivery.lost(marks)),
        missing,
        joined(slice_marks.stray for slice_marks in messages.marks),
        joined(slice_marks.late for slice_marks in messages.marks),
        delivery.skipped_instances(overtaken.earliest(question.examples), places.named),
        transactions.skipped_effects(overtaken, places.named),
        ungrouped,
        places.named,
    )


def _missing(messages: Messages, lost: Numbers) -> dict[tuple[int, str], int]:
    """Return the number of lost messages by run and queue; ``lost`` are positions of lives."""
    counts: dict[tuple[int, str], int] = {}
    places, numbers = np.unique(messages.lives.place[lost], return_counts=True)
    for place, count in zip(places.tolist(), numbers.tolist(), strict=True):
        run, queue, _ = messages.places.named[place]
        counts[run, str(queue)] = counts.get((run, str(queue)), 0) + count
    return counts


def _survivors(messages: Messages, lost: Numbers) -> dict[Place, tuple[int, int]]:
    """Return, for each group that lost a message, the range of the messages that it kept.

    That is the first and last send of the messages that are not lost and were delivered or stored;
    (-1, -1) if there are none.
    """
    lives, ordinary = messages.lives, messages.ordinary
    somewhere = (lives.sent != NONE) & ((lives.delivered != NONE) | lives.stored)
    somewhere[lost] = False
    result = {}
    for place in np.unique(lives.place[lost]).tolist():
        sent = np.concatenate(
            [lives.sent[(lives.place == place) & somewhere], ordinary.sent[ordinary.place == place]]
        )
        result[messages.places.named[place]] = (int(sent.min()), int(sent.max())) if len(sent) else (-1, -1)
    return result


def _order(messages: Messages, question: Question) -> Mapping[int, Mapping[str, Found]]:
    tally = InstanceTally(messages.places, question.examples)
    order.find(messages.turns, messages.compared_turns, messages.overtaken, tally)
    return tally.found


def _fifo(messages: Messages, question: Question) -> Mapping[int, Mapping[str, Found]]:
    places = messages.places
    tally = InstanceTally(places, question.examples)
    heard = np.array([(run, queue) not in question.unheard for run, queue, _ in places.named], dtype=bool)
    lossless = question.lossless & heard & ~places.ending()
    overtaken = marked(messages.turns.place[messages.overtaken], len(places.named))
    lives = messages.lives
    died = died_untaken(lives.place, lives.sent, lives.untaken, places, question.ends, question.promises)
    lives = replace(lives, untaken=lives.untaken & ~died)
    fifo.find(lives, messages.ordinary, messages.in_line, lossless, overtaken, messages.compared, tally)
    return tally.found


def _sessions(messages: Messages, question: Question) -> SessionsResult:
    deliveries, places = messages.deliveries, messages.places
    refused = question.promises.refuses_stale_acks
    session_holds = sessions.holds(deliveries, messages.ordinary, places.grouped())
    is_conflicting = sessions.conflicts(
        deliveries, session_holds, messages.closings, places, question.ends, None, stale_acks_refused=refused
    )
    excused = deliveries.wanted(places.runs())
    tally, alternating = _of_sessions(
        messages.lives, deliveries, messages.ordinary, session_holds, messages.closings, places, question
    )
    tally.add("group-split", *alternating)
    return SessionsResult(tally.found, bool(is_conflicting.any()) or len(excused.run) > 0, excused)


def _of_sessions(
    lives: Lives,
    deliveries: Deliveries,
    ordinary: Ordinary,
    session_holds: sessions.Holds,
    closings: Closings,
    places: PlaceTable,
    question: Question,
) -> tuple[InstanceTally, tuple[npt.NDArray[np.int32], Numbers]]:
    """Return the instances that need no proofs from other parts, and the alternating groups."""
    tally = InstanceTally(places, question.examples)
    sessions.find(deliveries, tally)
    sessions.find_backwards(session_holds, lives, ordinary, closings, places, question.choosers, tally)
    context = alternation.Changes(
        places, question.ends, closings, question.choosers, question.promises.sticky_groups
    )
    return tally, alternation.alternating(sessions.of_groups(session_holds, lives), context)


GROUP_FAMILIES: Final[Mapping[str, GroupFamily]] = {
    "delivery": _delivery,
    "order": _order,
    "fifo": _fifo,
    "sessions": _sessions,
}


def _statistics(rows: Rows, _: PlaceTable, __: Question) -> statistics.Figures:
    return statistics.figures(rows)


def _reach(rows: Rows, places: PlaceTable, question: Question) -> Mapping[int, reach.Reach]:
    return reach.of_rows(rows, places, question.subscriptions.selectors)


def _availability(rows: Rows, places: PlaceTable, question: Question) -> Mapping[Any, availability.Slots]:
    return availability.slots(_judged(rows, question), places, question.bound_ns)


def _groups(rows: Rows, places: PlaceTable, question: Question) -> frozenset[Place]:
    return availability.troubled(_judged(rows, question), places)


def _judged(rows: Rows, question: Question) -> Rows:
    return availability.judged(rows, question.ends, question.promises)


def _starved(rows: Rows, _: PlaceTable, question: Question) -> starved.Activity:
    return starved.activity(rows, question.bound_ns)


def _recovery(rows: Rows, _: PlaceTable, question: Question) -> Mapping[int, availability.Late]:
    return availability.late(_judged(rows, question), question.since_ns)


def _roles(rows: Rows, places: PlaceTable, question: Question) -> roles.Answered:
    return roles.answered(rows, places, question.windows)


def _transactions(rows: Rows, places: PlaceTable, question: Question) -> transactions.Effects:
    return transactions.suspects(_effects(rows, places, question), question.ends)


def _effects(rows: Rows, places: PlaceTable, question: Question) -> transactions.Effects:
    return transactions.effects(
        rows,
        places,
        question.ends,
        question.promises,
        question.complete,
        question.subscriptions,
        question.deaths,
        question.clocks,
        question.last_ns,
        question.unheard,
    )


def _totals(rows: Rows, places: PlaceTable, question: Question) -> totals.Books:
    late = lapses(rows, question.ends, question.promises)
    return totals.books(rows, places, question.ends, question.drained_from, late)


def _priorities(rows: Rows, places: PlaceTable, _: Question) -> frozenset[priorities.Queue]:
    return priorities.ranked(rows, places)


ROW_FAMILIES: Final[Mapping[str, RowFamily]] = {
    "statistics": _statistics,
    "reach": _reach,
    "availability": _availability,
    "groups": _groups,
    "starved": _starved,
    "recovery": _recovery,
    "roles": _roles,
    "transactions": _transactions,
    "totals": _totals,
    "priorities": _priorities,
}
"""The families that read rows, by name.

They must be functions of this module, which Spark sends to its processes by name. A lambda would be
sent as code, which takes the sender 3 ms.
"""


OF_COPIES: Final = ("transactions",)
"""The families that need a send to a topic once for each of its subscriptions."""


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """The answers of each family, one for each slice, and why a family failed, in one sentence."""

    results: Mapping[str, list[Any]]
    failed: Mapping[str, str]


def answer(
    part: HistoryPart, question: Question, rows: Mapping[str, RowFamily], groups: Mapping[str, GroupFamily]
) -> PartAnswer:
    """Let the families judge a part, and return their answers; an error of a family is one, too."""
    results: dict[str, list[Any]] = {}
    failed: dict[str, str] = {}
    places = question.places()
    lives: list[Lives] = []
    deliveries: list[Deliveries] = []
    usual: list[Ordinary] = []
    marks: dict[str, list[Any]] = {}
    waits = question.promises.ack_wait_s is not None
    for table in _tables(part, (*READ, "time_low") if waits else READ, results):
        columns = from_table(table, places)
        topics = has_topics(table) and "subscription" not in question.look_lacking
        if question.look_step:
            looking = partial(
                breakage.of_part,
                columns,
                places,
                question.look_step,
                keys=question.look_keys,
                lacking=question.look_lacking,
                nameless=breakage.of_consumers(table) if topics else None,
            )
            _attempt(LOOK, question.limit_s, results, failed, looking)
            if any(look.broken for look in results.get(LOOK, ())):
                return PartAnswer(results, failed)
        if topics:
            columns = from_table(renamed(table), places)
        copied = question.rows(table, places) if topics else columns
        for name, row_family in rows.items():
            family_rows = copied if name in OF_COPIES else columns
            _attempt(
                name, question.limit_s, results, failed, partial(row_family, family_rows, places, question)
            )
        columns = copied
        if groups:
            before = sum(len(slice_lives.place) for slice_lives in lives)
            ordinary = Ordinary.none()
            if not waits:
                ordinary, columns = split_ordinary(columns, places, question.ends, question.subscriptions)
            usual.append(ordinary)
            slice_lives, slice_deliveries = lives_and_deliveries(
                columns,
                question.ends,
                before,
                question.promises,
                deaths=question.deaths,
                clocks=question.clocks,
                matched=classes(columns, places, question.choosers),
            )
            lives.append(slice_lives)
            deliveries.append(slice_deliveries)
            if "delivery" in groups:
                marking = partial(delivery.marks, columns, places, slice_lives, question.of_messages, before)
                _attempt("delivery", question.limit_s, marks, failed, marking)
    if lives:
        every = joined(lives)
        died = died_unread(every.place, every.sent, every.unread, places, question.ends, question.promises)
        messages = Messages(
            replace(every, timely=every.timely & ~died), joined(deliveries), joined(usual), places,
            places.grouped() & question.choosers.judged(places.named), question.choosers,
            marks.get("delivery", ()),
        )  # fmt: skip
        for name, family in groups.items():
            if name in failed:
                continue
            _attempt(name, question.limit_s, results, failed, partial(family, messages, question))
    return PartAnswer(results, failed)


def _tables(part: HistoryPart, columns: Sequence[str], results: dict[str, list[Any]]) -> Iterator[pa.Table]:
    """Yield a part's slices; if one cannot be read, end, and add that to the answers."""
    try:
        yield from part.slices(columns)
    except HistoryError as error:
        results[LOOK] = [breakage.Look(broken=breakage.Breakage(None, str(error)))]


class _TooLongError(Exception):
    """An error: a family took longer than its limit."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End the body with ``_TooLongError`` after some seconds.

    That is possible only in the main thread of a process, as in a task's own process. Elsewhere the
    judge's deadline must do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _attempt(
    name: str, limit_s: float, results: dict[str, list[Any]], failed: dict[str, str], work: Callable[[], Any]
) -> None:
    try:
        with _limited(limit_s):
            results.setdefault(name, []).append(work())
    except _TooLongError:
        failed[name] = f"{name} did not end within {limit_s:g} s"
    except Exception as error:  # noqa: BLE001 - a family's crash is its own result and no other's
        failed[name] = f"{name} crashed: {in_a_line(error)}"


def proofs(part: HistoryPart, spans: links.Spans) -> list[tuple[sessions.Proofs, links.Questions]]:
    """Return, for each slice, proofs that sessions were alive, and the answers in some spans."""
    tables = (from_table(spread(table), PlaceTable()) for table in part.slices(READ))
    return [(sessions.proofs(rows), links.questions(rows, spans)) for rows in tables]


def served_sessions(
    part: HistoryPart, spans: links.Spans
) -> list[tuple[sessions.Proofs, links.Questions, links.Servers]]:
    """Return, for each slice, proofs that sessions were alive, and answers and brokers of spans."""
    tables = (from_table(spread(table), PlaceTable()) for table in part.slices(READ))
    return [
        (sessions.proofs(rows), links.questions(rows, spans, invoked=False), links.servers(rows, spans))
        for rows in tables
    ]


def sends(part: HistoryPart, stray: delivery.Stray) -> delivery.Stray:
    """Return the first sends of some message ids, from all slices of a part."""
    return joined(delivery.first_sends(from_table(table, PlaceTable()), stray) for table in part.slices(READ))


def conflicts(
    part: HistoryPart, question: Question, session_facts: links.SessionFacts
) -> Mapping[int, Mapping[str, Found]]:
    """Return the instances of one part that concern sessions, conflicts included.

    ``session_facts`` has the proofs from all parts: how long each session certainly lived, and
    which operations had been answered when.
    """
    places = question.places()
    lives: list[Lives] = []
    deliveries: list[Deliveries] = []
    before = 0
    for table in part.slices([*READ, "time_low"]):
        columns = question.rows(table, places)
        slice_lives, slice_deliveries = lives_and_deliveries(
            columns,
            question.ends,
            before,
            question.promises,
            session_facts,
            deaths=question.deaths,
            clocks=question.clocks,
            matched=classes(columns, places, question.choosers),
        )
        before += len(slice_lives.place)
        lives.append(slice_lives)
        deliveries.append(slice_deliveries)
    all_deliveries = sessions.held_until_lapse(joined(deliveries), places)
    ordinary = Ordinary.none()
    session_holds = sessions.holds(all_deliveries, ordinary, places.grouped())
    every = joined(lives)
    closings = Closings.of(every)
    tally, alternating = _of_sessions(
        every, all_deliveries, ordinary, session_holds, closings, places, question
    )
    refused = question.promises.refuses_stale_acks
    sessions.conflicts(
        all_deliveries, session_holds, closings, places, question.ends, tally, alternating,
        session_facts.proven, stale_acks_refused=refused,
    )  # fmt: skip
    return tally.found


@dataclass(frozen=True, slots=True)
class WindowAnswers:
    """The windows of unavailability of a part: possible ones by slice, and those of its groups."""

    of_gaps: Sequence[Mapping[int, availability.GapRows]]
    of_groups: Sequence[availability.Outage]


def questions(
    part: HistoryPart, question: Question, gaps: Sequence[availability.Gap], troubled: Container[Place]
) -> WindowAnswers:
    """Return the operations in each gap and in each group that had trouble."""
    places = question.places()
    of_gaps, of_groups = [], []
    brokers: dict[str, int] = {}
    for table in part.slices(READ):
        rows = _judged(from_table(renamed(table), places), question)
        of_gaps.append(availability.questions(rows, places, gaps))
        of_groups.append(availability.attempts(rows, places, troubled, brokers))
    groups = availability.in_groups(of_groups, places, list(brokers), question.bound_ns)
    return WindowAnswers(of_gaps, groups)


def spans(part: HistoryPart, low: int, width: int, count: int) -> list[breakage.Span]:
    """Return, for each slice, how many rows there are in each of ``count`` spans of the index.

    The spans begin at ``low`` and are ``width`` indexes wide.
    """
    return [
        breakage.spans(np.sort(numbers_of(table.combine_chunks(), "index")), low, width, count)
        for table in part.slices(["index", "message"])
    ]


def keyed(part: HistoryPart, key: int) -> list[tuple[int, str]]:
    """Return the first row with a key that must lie in one part, and the key in words, if any."""
    places = PlaceTable()
    slice_rows = [breakage.of_key(from_table(table, places), places, key) for table in part.slices(READ)]
    return sorted(row for row in slice_rows if row is not None)[:1]


def served(part: HistoryPart, idle_times: Sequence[starved.Idle], question: Question) -> list[starved.Served]:
    """Return what sessions held, and which messages waited, in each idle time."""
    places = question.places()
    serving = starved.Serving(
        places, idle_times, question.ends, question.deaths, question.bound_ns, question.subscriptions
    )
    for table in part.slices(READ):
        serving.add(question.rows(table, places))
    return serving.served()


def effects(
    part: HistoryPart, question: Question, transaction_keys: Keyed
) -> tuple[transactions.Effects, Sequence[Place]]:
    """Return the effects of some transactions, from all slices, and the names of their places."""
    places = question.places()
    tables = (question.rows(table, places) for table in part.slices([*READ, "time_low"]))
    all_effects = joined(
        transactions.effects_of(_effects(rows, places, question), transaction_keys) for rows in tables
    )
    return all_effects, places.named


def queues_of(part: HistoryPart, question: Question) -> list[queues.Told]:
    """Return the facts that each slice has about queues without groups."""
    facts = []
    for table in part.slices([*READ, "time_low"]):
        places = question.places()
        ungrouped = queues.without_groups(table).sort_by("index")
        rows = from_table(ungrouped, places)
        lives, _ = lives_and_deliveries(
            rows,
            question.ends,
            0,
            question.promises,
            deaths=question.deaths,
            clocks=question.clocks,
            matched=classes(rows, places, question.choosers),
        )
        died = died_untaken(lives.place, lives.sent, lives.untaken, places, question.ends, question.promises)
        lives = replace(lives, untaken=lives.untaken & ~died)
        facts.append(queues.told(rows, places, lives, numbers_of(ungrouped, "time_low")))
    return facts


def ranked(
    part: HistoryPart, queues: Sequence[priorities.Queue], question: Question
) -> list[priorities.Delivered]:
    """Return the first deliveries of queues with priorities, for each slice."""
    slice_deliveries = []
    for table in part.slices(READ):
        places = PlaceTable()
        rows = from_table(priorities.rows_of_queues(table, queues), places)
        attempts = attempts_of(rows, question.ends, atomic=question.promises.atomic)
        slice_deliveries.append(priorities.first_deliveries(rows, places, queues, attempts))
    return slice_deliveries


def answers(part: HistoryPart, spans: links.Spans) -> list[links.Questions]:
    """Return the operations that were answered in some spans, for each slice."""
    tables = (from_table(spread(table), PlaceTable()) for table in part.slices(READ))
    return [links.questions(rows, spans) for rows in tables]


def sightings(part: HistoryPart, sought: frozenset[tuple[int, int]]) -> set[tuple[int, int, Place]]:
    """Return the places where some messages, given by run and id, were delivered or stored."""
    places = PlaceTable()
    tables = (from_table(renamed(table), places) for table in part.slices(READ))
    return {sighting for rows in tables for sighting in transactions.sightings(rows, places.named, sought)}
