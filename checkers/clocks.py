"""The clocks that were wrong, and the messages whose expiry and delay they make uncertain.

A clock is wrong from the row that asked for the fault to the row in which its healing was observed.
Without such a row it is wrong to the end. The messages concerned are those that went by a broker of
the fault or of its pair. The broker that takes a send writes down the expiry by its clock, and the
broker that delivers the message reads it by its own. A message that was never delivered may have
been forwarded to any broker at which its queue had a consumer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from checkers.excuses import Effect, Pairs, effects
from checkers.facts import Facts
from checkers.rows import FOREVER, SEND_FAIL, SEND_INFO, SEND_OK, Flags, Numbers, PlaceTable, Rows, marked

if TYPE_CHECKING:
    import pyarrow as pa

Spans = tuple[Numbers, Numbers]
"""The rows at which spans begin, in order, and the last row of all spans up to each."""
Consumed = tuple[str | None, str | None]
"""(broker, queue)."""


@dataclass(frozen=True, slots=True)
class WrongClocks:
    """The clocks of some brokers of a run, which were wrong in the same ``spans``.

    ``elsewhere`` are the brokers whose clocks these certainly are not; None: the history does not
    say whose clocks were wrong. ``queues`` are the queues that had a consumer at a broker whose
    clock may be one of these.
    """

    run: int
    elsewhere: frozenset[str] | None
    spans: Spans
    queues: frozenset[str | None] = frozenset()


@dataclass(frozen=True, slots=True)
class Clocks:
    """The wrong clocks of a history."""

    wrong_clocks: tuple[WrongClocks, ...] = ()

    def wrong(self, rows: Rows, ids: Numbers, low: Numbers, high: Numbers) -> Flags:
        """Flag the messages that went by a broker whose clock was wrong between two rows.

        ``ids`` are the numbers of the messages, ``low`` and ``high`` the indexes of the two rows.
        """
        return self._wrong(rows, ids, low, high, None)

    def wrong_at_end(self, rows: Rows, ids: Numbers, low: Numbers, places: PlaceTable) -> Flags:
        """Flag the messages that may have gone by a broker whose clock was wrong after ``low``.

        Every message may have been forwarded unseen to a broker at which its queue had a consumer.
        """
        return self._wrong(rows, ids, low, np.full(len(ids), FOREVER), places)

    def wrong_from(self, rows: Rows, ids: Numbers, low: Numbers) -> Numbers:
        """Return the row up to which ``wrong`` is false for each message; ``FOREVER``: always."""
        result = np.full(len(ids), FOREVER, dtype=np.int64)
        run = rows.run[rows.first_row[ids]]
        for clocks in self.wrong_clocks if len(ids) else ():
            begin, end = clocks.spans
            chosen = np.flatnonzero(run == clocks.run)
            chosen = chosen[_concerned(rows, ids[chosen], clocks, None)]
            at = np.searchsorted(end, low[chosen], "left")
            result[chosen] = np.minimum(result[chosen], np.append(begin, FOREVER)[at])
        return result

    def _wrong(
        self, rows: Rows, ids: Numbers, low: Numbers, high: Numbers, places: PlaceTable | None
    ) -> Flags:
        result = np.zeros(len(ids), dtype=bool)
        if not self.wrong_clocks or not len(ids):
            return result
        run = rows.run[rows.first_row[ids]]
        for clocks in self.wrong_clocks:
            begin, end = clocks.spans
            at = np.searchsorted(begin, high, "right") - 1
            lasted = (run == clocks.run) & (at >= 0) & (end[np.maximum(at, 0)] >= low)
            chosen = np.flatnonzero(lasted)
            result[chosen] |= _concerned(rows, ids[chosen], clocks, places)
        return result


def _concerned(rows: Rows, ids: Numbers, clocks: WrongClocks, places: PlaceTable | None) -> Flags:
    """Flag the messages that went by a broker with one of these clocks, or may have."""
    if clocks.elsewhere is None or not len(ids):
        return np.ones(len(ids), dtype=bool)
    codes = rows.broker.codes
    sent = rows.of(SEND_OK, SEND_INFO, SEND_FAIL)
    sent = sent[codes[sent] >= 0]
    near = np.array([name not in clocks.elsewhere for name in rows.broker.values] + [False], dtype=bool)
    by = np.flatnonzero(near[codes])
    result = marked(rows.id[by], rows.messages) | ~marked(rows.id[sent], rows.messages)
    result = result[ids]
    if places is not None:
        served = [place[0] == clocks.run and place[1] in clocks.queues for place in places.named]
        result |= np.array(served, dtype=bool)[rows.place[rows.first_row[ids]]]
    return result


def read(facts_by_run: Mapping[int, Facts], control: pa.Table) -> Clocks:
    """Return the wrong clocks, from the faults that the nemesis recorded.

    ``control`` has the rows that say at which brokers queues had consumers.
    """
    wrong_clocks = [clocks for run, facts in facts_by_run.items() for clocks in _of_run(run, facts)]
    if all(clocks.elsewhere is None for clocks in wrong_clocks):
        return Clocks(tuple(wrong_clocks))
    consumed = _consumed(control)
    return Clocks(
        tuple(
            replace(clocks, queues=_queues(consumed.get(clocks.run, ()), clocks)) for clocks in wrong_clocks
        )
    )


def _of_run(run: int, facts: Facts) -> Iterator[WrongClocks]:
    wrong = [effect for effect in effects(facts.fault_records()) if effect.fault_kind.clocks]
    if not wrong:
        return
    pairs = Pairs.of([*facts.roles, *facts.takeovers])
    by_place: dict[frozenset[str] | None, list[Effect]] = defaultdict(list)
    for effect in wrong:
        brokers = pairs.around(effect.nodes)
        by_place[None if brokers is None else frozenset(pairs.together) - brokers].append(effect)
    for elsewhere, place_effects in by_place.items():
        spans = [
            (effect_there.begin_row, FOREVER if effect_there.end_row is None else effect_there.end_row)
            for effect_there in place_effects
        ]
        begin, end = np.array(sorted(spans), dtype=np.int64).T
        yield WrongClocks(run, elsewhere, (begin, np.maximum.accumulate(end)))


def _queues(consumed: Iterable[Consumed], clocks: WrongClocks) -> frozenset[str | None]:
    return frozenset(queue for broker, queue in consumed if broker not in (clocks.elsewhere or ()))


def _consumed(control: pa.Table) -> dict[int, set[Consumed]]:
    """Return by run the brokers at which consumers subscribed, each with the queue."""
    import pyarrow.compute as pc  # noqa: PLC0415 - not needed where no clock was wrong

    f, type_ = (control[name].cast("string") for name in ("f", "type"))
    subscribes = control.filter(pc.and_(pc.equal(f, "subscribe"), pc.equal(type_, "ok")))
    runs = subscribes["run"].to_pylist() if "run" in subscribes.column_names else [0] * len(subscribes)
    by_run: dict[int, set[Consumed]] = defaultdict(set)
    for run, broker, queue in zip(
        runs, subscribes["broker"].to_pylist(), subscribes["queue"].to_pylist(), strict=True
    ):
        by_run[run].add((broker, queue))
    return by_run
