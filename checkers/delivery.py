"""The rules about the fate of each message.

They find lost, stuck, died-early, resurrected, phantom, corrupted, aborted-delivery,
read-uncommitted and not-subscribed.

Whole messages are judged, one slice of a part after the other. The results are small (``Marks``)
and are reported when all slices have been read. Two of the rules need other parts: an id that was
never sent to the queue and group where it was seen may have been sent to others. All parts are
asked for such ids (``Stray``), and then the rules are applied once more (``Elsewhere``).

Two counts are made here that are no findings: messages delivered more than once, and sends of
unknown outcome that were delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.attempts import attempts_of
from checkers.clocks import Clocks
from checkers.deaths import Deaths
from checkers.deletions import Deletions
from checkers.ends import Ends, Keyed
from checkers.instance import Instance
from checkers.interests import Interests
from checkers.lifecycle import Lives, as_sent
from checkers.links import UnderWay
from checkers.owed import Custody, OwedMessages, owed
from checkers.recipients import Recipients, recipients
from checkers.rows import (
    ACK_OK,
    BROWSE,
    DELIVER,
    FOREVER,
    NONE,
    SEND_INVOKE,
    Column,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    earliest,
    first,
    joined,
    lowest,
    marked,
    ordered,
)
from checkers.running import highest_before, segments
from checkers.siblings import not_copied, siblings_of
from checkers.skipped import Audience, Copies, SkippedMessages, copies_of
from checkers.stores import Owners, resurrected
from checkers.subscriptions import Subscriptions
from checkers.tally import InstanceTally
from checkers.temporaries import Temporaries
from checkers.timeouts import Lapses, lapses
from checkers.verdict import Promises

RECOVERED: Final = "~recovered"
REDELIVERED: Final = "~redelivered"
FORWARDED: Final = "~forwarded"
"""The name of messages in a store-and-forward queue, which are stuck if every store was read."""

NEVER: Final = "never delivered"
AFTER: Final = "after delivery"
DEAD: Final = "refused too often"
EXPIRED: Final = "expired"
EARLIER: Final = "sent before it"
EITHER: Final = "either way"
UNWANTED: Final = "not selected"
ANOTHERS: Final = "another connection's"
SKIPPED: Final = "skipped"
NOT_COPIED: Final = "not copied"
_WHAT: Final[tuple[tuple[str, str | None], ...]] = (
    ("lost", NEVER), ("lost", AFTER), ("lost", DEAD), ("died-early", None), ("stuck", NEVER),
    ("stuck", AFTER), ("stuck", EITHER), (FORWARDED, NEVER), (FORWARDED, AFTER), ("resurrected", None),
    ("phantom", None), ("corrupted", None), ("aborted-delivery", None), ("read-uncommitted", None),
    ("not-subscribed", EARLIER), ("not-subscribed", UNWANTED), ("not-subscribed", ANOTHERS),
    ("lost", NOT_COPIED), ("lost", EXPIRED), ("lost", SKIPPED),
)  # fmt: skip
_LOST: Final = tuple(n for n, (name, _) in enumerate(_WHAT) if name == "lost")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The sends of ids that were seen where they had not been sent, by (run, message).

    ``known`` has ``sent``, the first send anywhere, and ``astray``, the same if the message was
    delivered or stored in the wrong place after it.
    """

    known: Keyed

    def find(self, name: str, run: Numbers, message: Numbers) -> Numbers:
        """Return a column for some messages; ``NONE`` where there is no value."""
        return self.known.find(name, run, message)


@dataclass(frozen=True, slots=True)
class Stray:
    """The ids that were seen in a queue and group where they had not been sent, yet or ever.

    ``seen`` is the first row of any kind that shows the id there, ``shown`` the first delivery or
    browse.
    """

    run: Numbers
    message: Numbers
    seen: Numbers
    shown: Numbers


@dataclass(frozen=True, slots=True)
class Marks:
    """The findings about messages, one row for each.

    ``what`` is a place in ``_WHAT``, ``life`` the number of the message among those of all slices.
    """

    place: npt.NDArray[np.int32]
    message: Numbers
    life: Numbers
    what: Numbers
    index: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleContext:
    """The facts, besides the rows, that the rules need.

    ``last_ns`` is the moment of each run's last row, ``drained_ns`` the moment at which its drain
    began, and ``drained_from`` the row. In the runs of ``waiting``, messages that were given back
    before the drain may be due only after it.
    """

    ends: Ends
    owners: Owners
    promises: Promises
    deaths: Deaths = field(default_factory=Deaths)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    temporaries: Temporaries = field(default_factory=Temporaries)
    interests: Interests = field(default_factory=Interests)
    deletions: Deletions = field(default_factory=Deletions)
    clocks: Clocks = field(default_factory=Clocks)
    last_ns: Mapping[int, int] = field(default_factory=dict)
    drained_ns: Mapping[int, int] = field(default_factory=dict)
    drained_from: Mapping[int, int] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    elsewhere: Elsewhere | None = None
    audience: Audience

    def custody(self, lapsed: Lapses) -> Custody:
        """Return the facts that decide which messages are still held at the end."""
        return Custody(
            ends=self.ends, deaths=self.deaths, promises=self.promises, drained_from=self.drained_from,
            drained_ns=self.drained_ns, last_ns=self.last_ns, lapsed=lapsed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SliceMarks:
    """The findings about the messages of a slice, and the questions to other parts.

    ``copies`` are compared when all slices have been read. ``late`` are acks and nacks that came
    too late for the process that they were meant for, unless it answered something later.
    """

    marks: Marks
    stray: Stray
    copies: Copies
    late: UnderWay


def marks(rows: Rows, places: PlaceTable, lives: Lives, asked: RuleContext, offset: int) -> SliceMarks:
    """Return the findings about whole messages; ``offset`` is how many are in earlier slices."""
    size = rows.messages
    stored = rows.of(BROWSE)
    in_store = first(rows.id[stored], rows.index[stored], size) if len(stored) else None
    shown = lives.delivered if in_store is None else earliest(lives.delivered, in_store)
    phantom, misplaced, stray = _strange(rows, lives, shown, asked)
    of = recipients(
        rows, places, lives, asked.ends, asked.subscriptions, asked.temporaries, asked.interests,
        asked.deletions,
    )  # fmt: skip
    certain = (lives.sent != NONE) & (lives.ok != NONE) & of.owed
    lapsed = lapses(rows, asked.ends, asked.promises)
    left = owed(rows, asked.custody(lapsed), places, lives.sent, certain, lives.stored)
    at_home = np.ones(rows.messages, dtype=bool)
    if asked.elsewhere is not None:
        at_home = asked.elsewhere.find("astray", rows.run[rows.first_row], lives.message) == NONE
    missing, unsettled = left.missing & at_home, left.unsettled & at_home
    # If no store was read, nothing is decided, and the verdict says how many are missing so far.
    browsed = [asked.owners.browsed.get(run, FOREVER) for run in places.runs().tolist()]
    in_time = lives.ok < np.array(browsed, dtype=np.int64)[lives.place]
    missing = missing & in_time
    gone, past, early = _untimely(rows, places, lives, asked)
    early = early | _waiting(rows, places, lives, asked)
    dead_letters, expired, forwarded, main = _stores(rows, stored)
    nowhere = missing & ~lives.stored & ~(left.dead & (not asked.promises.keeps_dead_letters))
    nowhere &= ~(early & places.temporaries()[lives.place])  # its owner leaves before it is due
    lost, dropped = nowhere & ~gone, nowhere & past & asked.promises.keeps_expired
    stuck = missing & ((main & ~early) | expired) & ~gone
    on_its_way = missing & forwarded & ~early & ~stuck & ~gone
    either = unsettled & in_time & _kept(rows, stored, left, asked) & ~early & ~gone
    elsewhere = ((main | forwarded) & ~early) | expired
    died_early = unsettled & (dead_letters != NONE) & ~elsewhere & ~left.dead & ~gone
    never = lives.delivered == NONE
    siblings = siblings_of(places, lives, shown)
    uncopied = np.zeros(rows.messages, dtype=bool)
    if asked.promises.atomic:
        uncopied = not_copied(rows, places, lives, siblings, of.owed, asked.audience)
    tables = [
        (lost & never & ~left.dead, lives.sent),
        (lost & ~never & ~left.dead, lives.sent),
        (lost & left.dead, lives.sent),
        (died_early, dead_letters),
        (stuck & never, lives.sent),
        (stuck & ~never, lives.sent),
        (either, lives.sent),
        (on_its_way & never, lives.sent),
        (on_its_way & ~never, lives.sent),
        (None, _resurrected(rows, of, asked, lapsed) if len(stored) else of.outlived),
        (None, phantom),
        (None, _corrupted(rows, lives, misplaced)),
        ((lives.sent != NONE) & (shown != NONE) & _aborted(lives, shown), shown),
        (None, _uncommitted(rows, lives, asked)),
        (None, of.earlier),
        (None, of.unwanted),
        (None, of.anothers),
        (uncopied & at_home & ~gone, lives.sent),
        (dropped, lives.sent),
    ]
    pieces = []
    for what, (where, index) in enumerate(tables):
        if index is not None:
            life = np.flatnonzero(index != NONE if where is None else where)
            whats = np.full(len(life), what, dtype=np.int64)
            pieces.append(Marks(lives.place[life], lives.message[life], life + offset, whats, index[life]))
    copies = copies_of(rows, places, lives, asked.audience, at_home & ~of.owed, siblings.shown, offset)
    return SliceMarks(joined(pieces), stray, copies, left.late)


def skipped(found: SkippedMessages) -> Marks:
    """Return the findings about messages that were certainly sent and were skipped."""
    at = np.flatnonzero(found.certain)
    whats = np.full(len(at), _WHAT.index(("lost", SKIPPED)), dtype=np.int64)
    place = found.place[at].astype(np.int32)
    return Marks(place, found.message[at], found.life[at], whats, found.sent[at])


def skipped_instances(found: SkippedMessages, named: Sequence[Place]) -> dict[Instance, int]:
    """Return the skipped messages as instances of lost, in order of their sends.

    Each has the later message that was read.
    """
    shown = {}
    at = np.flatnonzero(found.certain)
    for n in at[np.argsort(found.sent[at], kind="stable")].tolist():
        run, queue, group = named[found.place[n]]
        message, index = int(found.message[n]), int(found.sent[n])
        shown[Instance("lost", queue, group, message, index, SKIPPED, run)] = int(found.later[n])
    return shown


def _resurrected(rows: Rows, of: Recipients, asked: RuleContext, lapsed: Lapses) -> Numbers:
    """Return the first row of each message that shows it though it must be gone, or twice."""
    durable = asked.promises.durable_acks
    found = resurrected(rows, asked.ends, asked.owners, lapsed, durable_acks=durable)
    return found if of.outlived is None else np.where(found == NONE, of.outlived, found)


def _stores(rows: Rows, stored: Numbers) -> tuple[Numbers, Flags, Flags, Flags]:
    """Return the stores that hold each message.

    The first column has the first row that shows it among the dead letters. The flags are: it is in
    the store of expired messages, it is on its way to another broker, it is in any other store.
    """
    dead, expired, forwarded = (
        rows.value.are(store)[stored] for store in ("dead-letter", "expired", "store-and-forward")
    )
    at = stored[dead]
    return (
        lowest(rows.id[at], rows.index[at], rows.messages),
        marked(rows.id[stored[expired]], rows.messages),
        marked(rows.id[stored[forwarded]], rows.messages),
        marked(rows.id[stored[~dead & ~expired & ~forwarded]], rows.messages),
    )


def _kept(rows: Rows, stored: Numbers, left: OwedMessages, asked: RuleContext) -> Flags:
    """Flag the messages in a main store that must not be there, whether they were settled or not.

    No session held them since the drain began, so a message that was not settled should have been
    delivered in the drain. And a message that was settled must be in no store where
    acknowledgements last.
    """
    if not (asked.promises.durable_acks and left.idle.any()):
        return np.zeros(rows.messages, dtype=bool)
    at = stored[left.idle[rows.id[stored]]]
    at = at[rows.value.are("main")[at]]
    at = at[asked.owners.owned(rows.run[at], rows.broker, at, rows.index[at])]
    return marked(rows.id[at], rows.messages)


def _untimely(rows: Rows, places: PlaceTable, lives: Lives, asked: RuleContext) -> tuple[Flags, Flags, Flags]:
    """Flag messages by their expiry and delay.

    The three flags are: it may have expired by the end, it certainly had expired before the drain,
    it may not have been due before the drain.
    """
    none = np.zeros(rows.messages, dtype=bool)
    some = np.flatnonzero((lives.expires != NONE) | lives.delayed)
    if not len(some):
        return none, none, none
    run = rows.run[rows.first_row[some]]
    unclear = asked.clocks.wrong_at_end(rows, some, lives.sent[some], places)
    last, drained = (
        np.array([known.get(one, NONE) for one in run.tolist()], dtype=np.int64)
        for known in (asked.last_ns, asked.drained_ns)
    )
    gone, past, early = none.copy(), none.copy(), none.copy()
    gone[some] = (lives.expires[some] != NONE) & (unclear | (lives.expires[some] <= last))
    past[some] = (lives.expired[some] != NONE) & ~unclear & (lives.expired[some] < drained)
    due = lives.due[some]
    early[some] = lives.delayed[some] & (unclear | (due == NONE) | (due >= drained))
    return gone, past, early


def _waiting(rows: Rows, places: PlaceTable, lives: Lives, asked: RuleContext) -> Flags:
    """Flag the messages that may wait for a redelivery when the stores are read.

    In the runs concerned these are the messages that were delivered, and those of a group: a group
    waits with any of its messages that was given back.
    """
    if not asked.waiting:
        return np.zeros(rows.messages, dtype=bool)
    short = np.isin(places.runs(), sorted(asked.waiting))[lives.place]
    result: Flags = short & ((lives.delivered != NONE) | places.grouped()[lives.place])
    return result


def _strange(
    rows: Rows, lives: Lives, shown: Numbers, asked: RuleContext
) -> tuple[Numbers | None, Numbers | None, Stray]:
    """Return the rows that show phantoms, those that show misplaced messages, and the stray ids.

    A phantom had not been sent when it was seen. Where stale acks are refused, an ack in a session
    that had not got the message is one, too. A misplaced message was sent to another queue or
    group. All parts must be asked for the stray ids. None: there are no such rows.
    """
    acked, stale = _acknowledged(rows, lives)
    seen = shown if acked is None else earliest(shown, acked)
    at = np.flatnonzero(
        (lives.message != NONE) & (seen != NONE) & ((lives.sent == NONE) | (lives.sent > seen))
    )
    sent = lives.sent[at]
    out_of_place = np.where((sent == NONE) | (sent > shown[at]), shown[at], NONE)
    stray = Stray(rows.run[rows.first_row[at]], lives.message[at], seen[at], out_of_place)
    phantom = misplaced = None
    if len(at):
        if asked.elsewhere is not None:
            sent = asked.elsewhere.find("sent", stray.run, stray.message)
            misplaced = np.full(rows.messages, NONE, dtype=np.int64)
            misplaced[at] = np.where((sent != NONE) & (sent < stray.shown), stray.shown, NONE)
        phantom = np.full(rows.messages, NONE, dtype=np.int64)
        phantom[at] = np.where((sent == NONE) | (sent > stray.seen), stray.seen, NONE)
    if stale is not None and asked.promises.refuses_stale_acks:
        phantom = stale if phantom is None else earliest(phantom, stale)
    return phantom, misplaced, stray


def _acknowledged(rows: Rows, lives: Lives) -> tuple[Numbers | None, Numbers | None]:
    """Return the first acks of each message, answered ``ok``, that a delivery does not explain.

    The first column has acks that the message's first delivery does not explain: they are of
    another session, or earlier. The second has acks in a session that had not got the message
    before. None: there are no such acks.
    """
    acks, delivers = rows.of(ACK_OK), rows.of(DELIVER)
    ids, session = rows.id[acks], rows.session[acks]
    whose = first(rows.id[delivers], rows.session[delivers], rows.messages)
    delivered = lives.delivered[ids]
    odd = (whose[ids] != session) | (session == NONE) | (delivered > rows.index[acks])
    odd &= lives.message[ids] != NONE
    if not odd.any():
        return None, None
    acks = acks[odd]
    acked = first(rows.id[acks], rows.index[acks], rows.messages)
    acks = acks[rows.session[acks] != NONE]  # an ack without a session is of any that got the message
    delivers = delivers[marked(rows.id[acks], rows.messages)[rows.id[delivers]]]
    at = np.concatenate([delivers, acks])
    order = at[ordered(rows.id[at], rows.session[at], rows.index[at])]
    index, delivering = rows.index[order], rows.kind[order] == DELIVER
    before = highest_before(segments(rows.id[order], rows.session[order]), np.where(delivering, index, NONE))
    stale = order[~delivering & (before == NONE)]
    return acked, lowest(rows.id[stale], rows.index[stale], rows.messages)


def _corrupted(rows: Rows, lives: Lives, misplaced: Numbers | None) -> Numbers | None:
    """Return the first row of each message that shows it corrupted or misplaced; None: no row.

    Such a row has a value with which the message was not sent, or a body that cannot be read.
    """
    sends, shown = rows.of(SEND_INVOKE), rows.of(DELIVER, BROWSE)
    ids = rows.id[shown]
    wrong = _other(rows, rows.producer, lives.producer, sends, shown)
    wrong |= _other(rows, rows.sequence, lives.sequence, sends, shown)
    wrong |= _other(rows, rows.digest, as_sent(rows, rows.digest, sends), sends, shown)
    if not rows.headers.absent:
        wrong |= _other(rows, rows.headers, as_sent(rows, rows.headers, sends), sends, shown)
    unreadable = lives.message == NONE
    if unreadable.any():
        wrong |= unreadable[ids] & ((rows.kind[shown] == DELIVER) | (rows.digest[shown] != NONE))
    if not wrong.any():
        return misplaced
    found = first(ids[wrong], rows.index[shown[wrong]], rows.messages)
    return found if misplaced is None else earliest(found, misplaced)


def _other(rows: Rows, column: Column, meant: Numbers, sends: Numbers, at: Numbers) -> Flags:
    """Flag the rows that have a value with which no attempt sent their message.

    ``meant`` is the value of one attempt of each message.
    """
    told, meant = column[at], meant[rows.id[at]]
    result: Flags = told != meant
    if not result.any():
        return result
    result &= (told != NONE) & (meant != NONE)
    others = np.flatnonzero(result)
    sends = sends[marked(rows.id[at[others]], rows.messages)[rows.id[sends]]]
    sent = set(zip(rows.id[sends].tolist(), column[sends].tolist(), strict=True))
    shown = zip(rows.id[at[others]].tolist(), told[others].tolist(), strict=True)
    result[others] = [one not in sent for one in shown]
    return result


def _aborted(lives: Lives, shown: Numbers) -> Flags:
    """Flag the messages of which all attempts that were invoked by ``shown`` certainly failed."""
    if not lives.several.any():
        return lives.aborted
    result: Flags = lives.aborted | ((lives.sent < shown) & (shown < lives.since))
    return result


def _uncommitted(rows: Rows, lives: Lives, context: RuleContext) -> Numbers | None:
    """Return the first delivery of each message that came before its commit was asked for."""
    if rows.transaction.absent:
        return None
    ends = context.ends
    transaction = as_sent(rows, rows.transaction, rows.of(SEND_INVOKE))
    asked = ends.transactions.find("asked", rows.run[rows.first_row], transaction)
    attempts = attempts_of(rows, ends, atomic=context.promises.atomic)
    if attempts is not None:
        asked = attempts.instead(asked, attempts.visible, attempts.visible != NONE)
    early = (transaction != NONE) & ((asked == NONE) | (lives.delivered < asked))
    return np.where(early, lives.delivered, NONE)


def find(found: Marks, lives: Lives, tally: InstanceTally) -> None:
    """Add all findings and the two counts to the tally.

    ``lost`` and ``stuck`` are added for all messages that were sent and not acknowledged. The judge
    decides whether the history goes far enough to say so.
    """
    for what, (name, key) in enumerate(_WHAT):
        at = np.flatnonzero(found.what == what)
        tally.add(name, found.place[at], found.index[at], found.message[at], key=key)
    known = lives.message != NONE
    for name, where, weight in (
        (RECOVERED, lives.recovered, None),
        (REDELIVERED, known & (lives.deliveries > 1), lives.deliveries - 1),
    ):
        at = np.flatnonzero(where)
        tally.add(
            name,
            lives.place[at],
            lives.delivered[at],
            lives.message[at],
            weight=None if weight is None else weight[at],
        )


def without_lost(found: Marks, places: Flags) -> Marks:
    """Return the findings without the lost messages of the places that ``places`` flags."""
    left = ~(np.isin(found.what, _LOST) & places[found.place])
    return Marks(*(getattr(found, column.name)[left] for column in fields(found)))


def lost(found: Marks) -> Numbers:
    """Return the numbers of the lives of all messages that are lost."""
    return found.life[np.isin(found.what, _LOST)]


def first_sends(rows: Rows, stray: Stray) -> Stray:
    """Return the sends of stray ids among these rows, in ``seen``."""
    sends = rows.of(SEND_INVOKE)
    sends = sends[np.isin(rows.message[sends], stray.message)]
    return Stray(rows.run[sends], rows.message[sends], rows.index[sends], rows.index[sends])


def elsewhere(stray: Stray, sends: Stray) -> Elsewhere | None:
    """Return what all sends of stray ids show.

    None where it changes nothing: no stray id was sent before it was seen.
    """
    every = np.ones(len(sends.run), dtype=bool)
    sent = Keyed.of(sends.run, sends.message, {"sent": (every, sends.seen)})
    known = sent.find("sent", stray.run, stray.message)
    before = (known != NONE) & (
        known < np.where(stray.shown == NONE, stray.seen, np.maximum(stray.seen, stray.shown))
    )
    if not before.any():
        return None
    gone = known < stray.shown
    return Elsewhere(
        Keyed.of(stray.run, stray.message, {"sent": (known != NONE, known), "astray": (gone, known)})
    )
