"""The links between live brokers over time, and the brokers at which each queue was consumed.

Why one lane of links for each broker: twelve brokers have 66 links. A lane shows what its broker
said of its own links, and names the live brokers that it was not linked with. In a chain a broker
is compared only with those that it was linked with at some time of the run, in either direction.

Why a broker counts as live only while that is certain: otherwise each kill would show a missing
link. A change of links is dated to the answer that shows it. Brokers are asked once a second, so a
change is drawn up to a second too late.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.history import parquet
from harness.interface import LIVE

SYMMETRIC: Final = "members"
CHAIN: Final = "neighbours"
"""The kinds of views that say with which live brokers a broker is linked."""

ASKED_S: Final = 1.0
"""The time between two questions to a broker: what seems to last less may not have been so (s)."""

SLICES_MAX: Final = 60
SLICE_WIDTHS_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
LANES_MAX: Final = 36
"""The number of lanes of consumption above which queues are left out."""

Row = Mapping[str, Any]
Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]
Lack = Literal["missing", "dead"]
LinkState = Literal["all", "not all", "none", "no other"]


class LinkSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span in which a live broker's links did not change.

    ``linked`` are the other live brokers that it said to be linked with, ``missing`` the other live
    brokers, and ``dead`` those that it said to be linked with although they were not seen live.
    """

    start_s: float
    end_s: float
    linked: tuple[str, ...]
    missing: tuple[str, ...]
    dead: tuple[str, ...]

    @property
    def state(self) -> LinkState:
        """The part of the other live brokers that the broker is linked with."""
        if self.missing:
            return "not all" if self.linked else "none"
        return "all" if self.linked else "no other"


class Gap(NamedTuple):
    """A time in which a live broker was not linked with live ones, or was linked with dead ones."""

    broker: str
    start_s: float
    end_s: float
    missing: list[str]
    dead: list[str]


class ConsumptionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Slices in each of which a broker delivered messages of a queue, one after the other.

    ``share`` is the broker's part of all deliveries of the queue in these slices.
    """

    start_s: float
    end_s: float
    deliveries: int
    share: float


class ConsumptionLane(msgspec.Struct, frozen=True, kw_only=True):
    """The deliveries of one queue by one broker."""

    queue: str
    broker: str
    deliveries: int
    spans: list[ConsumptionSpan]


class Consumption(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of the queues with the most deliveries, and how many queues were left out."""

    lanes: list[ConsumptionLane] = []
    left_out: int = 0


# ------------------------------------------------------------------------------------------- links


def links(changes: Sequence[Row], seconds: Callable[[int], float], end_ns: int) -> dict[str, list[LinkSpan]]:
    """Return the spans of each broker that was asked for its links, from its first answer on.

    There is nothing to show, and no span, if no broker ever had another one beside it.

    Args:
        changes: the rows ``role`` and ``view-change`` of the monitor, in order.
        seconds: turns a time of the history into seconds.
        end_ns: when brokers were asked no longer.
    """
    changes = [_dated(row) for row in changes if row["f"] == "role" or _view(row)[0] in (SYMMETRIC, CHAIN)]
    moments = _moments(changes)
    lives: dict[str, str | None] = {}
    links_by_broker: dict[str, dict[str, str]] = {}
    unasked: set[str] = set()
    adjacent = _adjacent(changes)
    spans: dict[str, list[LinkSpan]] = {}
    for at in [*sorted(moment for moment in moments if moment < end_ns), end_ns]:
        for row in moments[at] if at < end_ns else ():
            _apply(row, lives, links_by_broker)
            unasked.discard(row["broker"])
            if row["f"] == "role" and _is_unasked(row["broker"], at, changes):
                unasked.add(row["broker"])
        for broker, linked in links_by_broker.items():
            own_spans = spans.setdefault(broker, [])
            if own_spans and math.isinf(own_spans[-1].end_s):
                own_spans.append(msgspec.structs.replace(own_spans.pop(), end_s=seconds(at)))
            if broker in lives and broker not in unasked and at < end_ns:
                _extend(own_spans, _span(broker, linked, lives, adjacent.get(broker), seconds(at)))
    without_others = all(span.state == "no other" for own_spans in spans.values() for span in own_spans)
    return {} if without_others else {broker: spans[broker] for broker in sorted(spans)}


def _dated(row: Row) -> Row:
    """Return a change with both ends of the span in which it lies."""
    dated = {name: row["time"] if row[name] is None else row[name] for name in ("time_low", "time_high")}
    return {**row, **dated}


def _moments(changes: Sequence[Row]) -> dict[int, list[Row]]:
    """Return the changes by their moments.

    A broker is certainly live from the end of the span of the change to it, to the begin of the
    span of the next change.
    """
    moments: dict[int, list[Row]] = defaultdict(list)
    latest: dict[str, int] = {}
    for row in changes:
        ends = row["f"] == "role" and row["role"] != LIVE
        at = row["time_low"] if ends else row["time_high"]
        if row["f"] == "role":
            latest[row["broker"]] = at = max(at, latest.get(row["broker"], at))
        moments[at].append(row)
    return moments


def _is_unasked(broker: str, at: int, changes: Sequence[Row]) -> bool:
    """Return whether the next change of a broker's links is the first answer since a moment.

    Until then, what it said before that moment (in an earlier life) proves nothing.
    """
    later = (
        row for row in changes if row["f"] != "role" and row["broker"] == broker and row["time_high"] > at
    )
    following = next(later, None)
    return following is not None and following["time_low"] < at


def _view(row: Row) -> tuple[str, str, str]:
    """Return the kind and the key of a changed view, and the broker's name; "" for none.

    All are "" if the row makes no sense.
    """
    try:
        view = json.loads(row["value"])
        return view["kind"], view["key"], (view["value"] or "").partition(" ")[0]
    except (ValueError, TypeError, KeyError, AttributeError):
        return "", "", ""


def _adjacent(changes: Sequence[Row]) -> dict[str, set[str]]:
    """Return for each broker of a chain all that it was linked with at some time of the run."""
    adjacent: dict[str, set[str]] = defaultdict(set)
    for row in changes:
        if row["f"] == "view-change":
            kind, _, name = _view(row)
            if kind == CHAIN and name:
                adjacent[row["broker"]].add(name)
                adjacent[name].add(row["broker"])
    return adjacent


def _apply(row: Row, lives: dict[str, str | None], links_by_broker: dict[str, dict[str, str]]) -> None:
    """Apply a change to the live brokers (name -> node ID), or to the links of one broker."""
    broker = row["broker"]
    if row["f"] == "role":
        lives.pop(broker, None)
        if row["role"] == LIVE:
            lives[broker] = row["node_id"]
        return
    _, key, name = _view(row)
    linked = links_by_broker.setdefault(broker, {})
    linked.pop(key, None)
    if name:
        linked[key] = name


def _span(
    broker: str,
    linked: Mapping[str, str],
    lives: Mapping[str, str | None],
    adjacent: Collection[str] | None,
    start_s: float,
) -> LinkSpan:
    """Return a span without an end.

    Another broker that is live under the same node ID is none that it should be linked with.
    """
    names = {*linked.values()} - {broker}
    other_lives = {
        name
        for name, node_id in lives.items()
        if name != broker
        and (node_id is None or node_id != lives[broker])
        and (adjacent is None or name in adjacent)
    }
    return LinkSpan(
        start_s=start_s,
        end_s=math.inf,
        linked=tuple(sorted(names & other_lives)),
        missing=tuple(sorted(other_lives - names)),
        dead=tuple(sorted(names - lives.keys())),
    )


def _extend(spans: list[LinkSpan], span: LinkSpan) -> None:
    """Append a span, or let the last one go on if it says the same."""
    if (
        spans
        and spans[-1].end_s == span.start_s
        and msgspec.structs.replace(spans[-1], start_s=span.start_s, end_s=math.inf) == span
    ):
        span = msgspec.structs.replace(spans.pop(), end_s=math.inf)
    spans.append(span)


def gaps(links: Mapping[str, Sequence[LinkSpan]]) -> list[Gap]:
    """Return what lacked of the links, in order, without what was shorter than ``ASKED_S``."""
    lacks_by_span: dict[tuple[float, float, str], dict[Lack, list[str]]] = {}
    for broker, spans in links.items():
        for lack in ("missing", "dead"):
            for name in sorted({name for span in spans for name in getattr(span, lack)}):
                for start_s, end_s in _joined(span for span in spans if name in getattr(span, lack)):
                    if end_s - start_s >= ASKED_S:
                        lacks = lacks_by_span.setdefault(
                            (start_s, end_s, broker), {"missing": [], "dead": []}
                        )
                        lacks[lack].append(name)
    return [
        Gap(broker, start_s, end_s, lacks["missing"], lacks["dead"])
        for (start_s, end_s, broker), lacks in sorted(lacks_by_span.items())
    ]


def _joined(spans: Iterable[LinkSpan]) -> list[tuple[float, float]]:
    """Return the begins and ends of spans; where one begins at the end of the last, it goes on."""
    joined: list[tuple[float, float]] = []
    for span in spans:
        goes_on = joined and joined[-1][1] == span.start_s
        start_s = joined.pop()[0] if goes_on else span.start_s
        joined.append((start_s, span.end_s))
    return joined


# ------------------------------------------------------------------------------------- consumption


def consumption(
    history: Path, pairs: Mapping[str, str], begin_s: float, end_s: float, *, placed: bool
) -> Consumption:
    """Return where queues were consumed.

    Returns nothing unless clients were ``placed`` or a message was delivered by a broker of another
    pair than that which acknowledged its send.

    Args:
        history: the directory of the Parquet files.
        pairs: the pair of each broker.
        begin_s: where the first slice begins.
        end_s: where the last slice ends at the latest.
        placed: whether the test says at which brokers clients work.
    """
    tables = [
        pq.read_table(file, columns=["time", "type", "f", "queue", "message", "broker"])
        for file in sorted(history.glob("*.parquet"))
        if file.name != parquet.CONTROL
    ]
    chosen = [_answered(table) for table in tables]
    if not any(table.num_rows for table in chosen):
        return Consumption()
    table = pa.concat_tables(chosen)
    deliveries = table.filter(pc.equal(table["f"], "deliver"))
    sends = table.filter(pc.equal(table["f"], "send"))
    if not (placed or _crossed(sends, deliveries, pairs)):
        return Consumption()
    width = next((width for width in SLICE_WIDTHS_S if (end_s - begin_s) / width <= SLICES_MAX), 3600.0)
    edges = begin_s + width * np.arange(math.floor((end_s - begin_s) / width) + 2)
    lanes_by_queue: dict[str, list[ConsumptionLane]] = {}
    for queue in sorted(pc.unique(deliveries["queue"]).to_pylist()):
        of_queue = deliveries.filter(pc.equal(deliveries["queue"], queue))
        lanes_by_queue[queue] = _lanes(queue, of_queue, edges, end_s)
    drawn_queues: set[str] = set()
    number = 0
    for queue in sorted(lanes_by_queue, key=lambda queue: -sum(x.deliveries for x in lanes_by_queue[queue])):
        number += len(lanes_by_queue[queue])
        if drawn_queues and number > LANES_MAX:
            break
        drawn_queues.add(queue)
    lanes = [lane for queue, of_queue in lanes_by_queue.items() if queue in drawn_queues for lane in of_queue]
    return Consumption(lanes=lanes, left_out=len(lanes_by_queue) - len(drawn_queues))


def _answered(table: pa.Table) -> pa.Table:
    """Return the acknowledged sends and the deliveries whose brokers are known, as plain texts."""
    mask = pc.and_(
        pc.and_(
            pc.equal(table["type"], "ok"),
            pc.is_in(table["f"].cast(pa.string()), pa.array(["send", "deliver"])),
        ),
        pc.and_(pc.is_valid(table["broker"]), pc.is_valid(table["queue"])),
    )
    rows = table.filter(mask)
    return pa.table(
        {
            "time": rows["time"],
            "message": rows["message"],
            **{name: rows[name].cast(pa.string()) for name in ("f", "queue", "broker")},
        }
    )


def _crossed(sends: pa.Table, deliveries: pa.Table, pairs: Mapping[str, str]) -> bool:
    """Return whether a message was delivered by another pair than that which took it."""
    sent_messages, sent_pairs = _messages(sends, pairs)
    messages, delivering_pairs = _messages(deliveries, pairs)
    if not len(sent_messages):
        return False
    order = np.argsort(sent_messages)
    sent_messages, sent_pairs = sent_messages[order], sent_pairs[order]
    positions = np.searchsorted(sent_messages, messages).clip(max=len(sent_messages) - 1)
    return bool(np.any((sent_messages[positions] == messages) & (sent_pairs[positions] != delivering_pairs)))


def _messages(rows: pa.Table, pairs: Mapping[str, str]) -> tuple[Integers, Integers]:
    """Return the messages of rows, and the numbers of the pairs of their brokers."""
    readable = rows.filter(pc.is_valid(rows["message"]))
    brokers = pa.array(list(pairs))
    names = list(dict.fromkeys(pairs.values()))
    numbers = np.array([*(names.index(pair) for pair in pairs.values()), len(names)])
    positions = pc.fill_null(pc.index_in(readable["broker"], value_set=brokers), len(pairs))
    return readable["message"].to_numpy(), numbers[positions.to_numpy()]


def _lanes(queue: str, deliveries: pa.Table, edges: Floats, end_s: float) -> list[ConsumptionLane]:
    counts_by_broker: dict[str, Integers] = {}
    for broker in sorted(pc.unique(deliveries["broker"]).to_pylist()):
        times = deliveries.filter(pc.equal(deliveries["broker"], broker))["time"].to_numpy() / 1e9
        counts_by_broker[broker] = np.histogram(times, bins=edges)[0]
    totals = np.sum(list(counts_by_broker.values()), axis=0)
    return [
        ConsumptionLane(
            queue=queue,
            broker=broker,
            deliveries=int(counts.sum()),
            spans=_spans(counts, totals, edges, end_s),
        )
        for broker, counts in counts_by_broker.items()
        if counts.any()
    ]


def _spans(counts: Integers, totals: Integers, edges: Floats, end_s: float) -> list[ConsumptionSpan]:
    busy = np.concatenate(([0], counts > 0, [0])).astype(int)
    starts, ends = np.flatnonzero(np.diff(busy) > 0), np.flatnonzero(np.diff(busy) < 0)
    return [
        ConsumptionSpan(
            start_s=float(edges[start]),
            end_s=min(float(edges[end]), end_s),
            deliveries=int(counts[start:end].sum()),
            share=float(counts[start:end].sum() / totals[start:end].sum()),
        )
        for start, end in zip(starts, ends, strict=True)
    ]
