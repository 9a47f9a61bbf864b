"""The statistics of a history: counts, latencies, and how long faults stopped sends.

They are always reported and are never a failure.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from checkers.delivery import RECOVERED, REDELIVERED
from checkers.facts import Facts, FaultSpan
from checkers.instance import Found
from checkers.rows import (
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    NONE,
    SEND_INFO,
    SEND_INVOKE,
    SEND_OK,
    Numbers,
    Rows,
    cells_of,
    first,
    last,
    marked,
)
from checkers.verdict import FaultRecovery, Latency, LongestPause, Statistics

_BINS_AN_OCTAVE: Final = 8
_SLOT_NS: Final = 100_000_000
_EVER_NS: Final = 2**62

Bins = dict[int, tuple[int, int]]
"""The bins of a histogram: bin -> (how many times are in it, the longest of them in ns)."""

Sends = dict[int, tuple[int, int]]
"""The first and last ``ok`` send (ns) of each tenth of a second."""

WHOLE: Final = ("cluster", "")
ASKED: Final = "asked"
"""The kind of a client's sends of any outcome; a client without more sends is in no pause."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of some rows.

    ``census`` counts the rows by (run, f, type), ``latency`` has the latency by operation.
    ``sends`` says when sends were ``ok``: of the ``WHOLE`` cluster, of each ("broker", name) and
    each ("client", name); and when a client sent at all (``ASKED``, name). ``brokers`` are the
    (run, broker) that took or delivered a message. ``sent_until`` is the last send that was ``ok``
    in each run, ``marks`` the values of ``redelivered`` in the deliveries of each run.
    """

    census: dict[tuple[int, str, str], int]
    latency: dict[str, Bins]
    sends: dict[tuple[str, str], Sends]
    brokers: frozenset[tuple[int, str]] = frozenset()
    sent_until: Mapping[int, int] = field(default_factory=dict)
    marks: frozenset[tuple[int, bool]] = frozenset()


def figures(rows: Rows) -> Figures:
    """Return the figures of the rows of one part."""
    return Figures(
        _census(rows), _latency(rows), _sends(rows), _brokers(rows), _sent_until(rows), _marks(rows)
    )


def _brokers(rows: Rows) -> frozenset[tuple[int, str]]:
    at = rows.of(SEND_OK, SEND_INFO, DELIVER)
    names = len(rows.broker.values) + 1
    combined = rows.run[at] * names + (rows.broker.codes[at] + 1)
    size = int(combined.max(initial=0)) + 1
    used = np.unique(combined) if size > 1 << 16 else np.flatnonzero(marked(combined, size))
    pairs = (divmod(code, names) for code in used.tolist())
    return frozenset((run, str(rows.broker.values[code - 1])) for run, code in pairs if code)


def _marks(rows: Rows) -> frozenset[tuple[int, bool]]:
    at = rows.of(DELIVER)
    mark, run = rows.redelivered[at], rows.run[at]
    marks = np.unique(2 * run[mark != NONE] + mark[mark != NONE])
    return frozenset((code // 2, bool(code % 2)) for code in marks.tolist())


def _sent_until(rows: Rows) -> dict[int, int]:
    at = rows.of(SEND_OK)
    last = np.flatnonzero(np.append(rows.run[at][1:] != rows.run[at][:-1], True)[: len(at)])
    result: dict[int, int] = {}
    for run, index in zip(rows.run[at[last]].tolist(), rows.index[at[last]].tolist(), strict=True):
        result[run] = max(index, result.get(run, index))
    return result


def _census(rows: Rows) -> dict[tuple[int, str, str], int]:
    types, operations = len(rows.type.values), len(rows.f.values)
    combined = (rows.run * operations + rows.f.codes) * types + rows.type.codes
    if not len(combined):
        return {}
    used, counts = np.unique(combined, return_counts=True) if combined.max() > 1 << 16 else _binned(combined)
    census = {}
    for code, count in zip(used.tolist(), counts.tolist(), strict=True):
        rest, type_ = divmod(code, types)
        run, f = divmod(rest, operations)
        census[run, rows.f.values[f], rows.type.values[type_]] = count
    return census


def _binned(numbers: Numbers) -> tuple[Numbers, Numbers]:
    counts = np.bincount(numbers)
    used = np.flatnonzero(counts)
    return used, counts[used]


def _latency(rows: Rows) -> dict[str, Bins]:
    size = rows.messages

    def moment(kind: int) -> Numbers:
        at = rows.of(kind)
        at = at[(rows.message[at] != NONE) & (rows.process[at] >= 0)]
        return first(rows.id[at], rows.time[at], size)

    sent, acknowledged = moment(SEND_INVOKE), moment(ACK_INVOKE)
    spans = {
        "send": (sent, moment(SEND_OK)),
        "deliver": (sent, moment(DELIVER)),
        "ack": (acknowledged, moment(ACK_OK)),
    }
    latencies = {}
    for f, (begin, end) in spans.items():
        took = (end - begin)[(begin != NONE) & (end != NONE) & (end >= begin)]
        if len(took):
            latencies[f] = _histogram(took)
    return latencies


def _histogram(took: Numbers) -> Bins:
    bins = np.floor(np.log2(np.maximum(took, 1)) * _BINS_AN_OCTAVE).astype(np.int64)
    counts = np.bincount(bins)
    longest = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(longest, bins, took)
    return {int(b): (int(counts[b]), int(longest[b])) for b in np.flatnonzero(counts)}


def _sends(rows: Rows) -> dict[tuple[str, str], Sends]:
    at = rows.of(SEND_OK)
    at = at[rows.process[at] >= 0]
    if not len(at):
        return {}
    time = rows.time[at]
    sends = {WHOLE: _by_slot(time, np.zeros(len(at), dtype=np.int64))[0]}
    brokers = _by_slot(time, rows.broker.codes[at].astype(np.int64))
    sends |= {
        ("broker", str(rows.broker.values[code])): slots for code, slots in brokers.items() if code >= 0
    }
    clients = _by_slot(time, rows.producer[at])
    sends |= {("client", f"producer {code}"): slots for code, slots in clients.items() if code >= 0}
    at = rows.of(SEND_INVOKE)
    invoked = _by_slot(rows.time[at], rows.producer[at], _EVER_NS)
    return sends | {(ASKED, f"producer {code}"): slots for code, slots in invoked.items() if code >= 0}


def _by_slot(time: Numbers, code: Numbers, slot_ns: int = _SLOT_NS) -> dict[int, Sends]:
    """Return, by code, the first and last time in each slot.

    ``time`` must not go back within a run.
    """
    if not len(time):
        return {}
    slot = time // slot_ns
    low = int(slot.min())
    width = int(slot.max()) - low + 1
    shifted = np.maximum(code, -1) + 1
    cell = shifted * width + (slot - low)
    used, cell = cells_of(cell, (int(shifted.max()) + 1) * width)
    begin, end = first(cell, time, len(used)), last(cell, time, len(used))
    slots: dict[int, Sends] = defaultdict(dict)
    cells = np.flatnonzero(end != NONE)
    for number, begins, ends in zip(
        used[cells].tolist(), begin[cells].tolist(), end[cells].tolist(), strict=True
    ):
        slots[number // width - 1][number % width + low] = begins, ends
    return slots


def merged(parts: Iterable[Figures]) -> Figures:
    """Return the figures of several parts as one."""
    census: Counter[tuple[int, str, str]] = Counter()
    latency: dict[str, Bins] = defaultdict(dict)
    sends: dict[tuple[str, str], Sends] = defaultdict(dict)
    brokers: set[tuple[int, str]] = set()
    sent_until: dict[int, int] = {}
    marks: set[tuple[int, bool]] = set()
    for part in parts:
        marks |= part.marks
        census.update(part.census)
        brokers |= part.brokers
        for run, index in part.sent_until.items():
            sent_until[run] = max(index, sent_until.get(run, index))
        for f, bins in part.latency.items():
            for number, (count, longest) in bins.items():
                earlier = latency[f].get(number, (0, 0))
                latency[f][number] = earlier[0] + count, max(earlier[1], longest)
        for key, slots in part.sends.items():
            _add(sends[key], slots)
    return Figures(dict(census), dict(latency), dict(sends), frozenset(brokers), sent_until, frozenset(marks))


def _add(sends: Sends, more: Sends) -> None:
    for slot, (begin, end) in more.items():
        low, high = sends.get(slot, (begin, end))
        sends[slot] = min(low, begin), max(high, end)


def read(rows: int, figures: Figures, facts: Facts) -> Statistics:
    """Return the statistics of one history."""
    return Statistics(
        rows=rows,
        duration_s=facts.last_ns / 1e9,
        operations=facts.census,
        latency={f: _quantiles(sorted(bins.items())) for f, bins in sorted(figures.latency.items())},
        faults=tuple(_recoveries(figures.sends, facts)),
    )


def with_counts(figures: Statistics, instances: Mapping[str, Found]) -> Statistics:
    """Return the statistics with the counts that the rules about messages made."""
    return msgspec.structs.replace(
        figures,
        redeliveries=instances[REDELIVERED].count if REDELIVERED in instances else 0,
        sends_recovered=instances[RECOVERED].count if RECOVERED in instances else 0,
    )


def _quantiles(bins: Sequence[tuple[int, tuple[int, int]]]) -> Latency:
    total = sum(count for _, (count, _) in bins)

    def quantile(share: float) -> float:
        counted = 0
        for number, (count, longest) in bins:
            counted += count
            if counted >= share * total:
                middle = 2 ** ((number + 0.5) / _BINS_AN_OCTAVE)
                return float(round(min(middle, longest) / 1e6, 3))
        return 0.0

    longest = max(longest for _, (_, longest) in bins)
    return Latency(
        count=total,
        p50_ms=quantile(0.5),
        p95_ms=quantile(0.95),
        p99_ms=quantile(0.99),
        max_ms=round(longest / 1e6, 3),
    )


@dataclass(frozen=True, slots=True)
class _Pauses:
    """The pauses (``edges``, ns) between one sender's ``ok`` sends, and its first and last send.

    ``sender`` names the sender. Pauses longer than a slot lie between the sends of two slots.
    """

    sender: str
    edges: Sequence[tuple[int, int]]
    first: int
    last: int

    def longest(self, span: FaultSpan) -> float | None:
        """Return the longest pause that touches a fault (s).

        Return None if no send was ``ok`` after the fault began.
        """
        until = span.end if span.end is not None else 2**62
        if self.last <= span.begin:
            return None
        touching = (
            end - max(begin, span.begin) for begin, end in self.edges if end > span.begin and begin < until
        )
        return round(max(touching, default=0) / 1e9, 3)


def _pauses(sender: str, sends: Sends) -> _Pauses:
    slots = [sends[number] for number in sorted(sends)]
    edges = [(earlier[1], later[0]) for earlier, later in itertools.pairwise(slots)]
    return _Pauses(sender, edges, slots[0][0] if slots else -1, slots[-1][1] if slots else -1)


def _recoveries(sends: Mapping[tuple[str, str], Sends], facts: Facts) -> list[FaultRecovery]:
    pairs: dict[str, Sends] = defaultdict(dict)
    partners = _pairs(facts)
    for (kind, name), slots in sends.items():
        if kind == "broker":
            _add(pairs[partners.get(name, name)], slots)
    overall = _pauses("", sends.get(WHOLE, {}))
    of_pairs = [_pauses(name, slots) for name, slots in sorted(pairs.items())]
    of_clients = [_pauses(name, slots) for (kind, name), slots in sorted(sends.items()) if kind == "client"]
    last_invoked = {
        name: max(end for _, end in slots.values()) for (kind, name), slots in sends.items() if kind == ASKED
    }
    recoveries = []
    for span in facts.spans():
        sending = [pauses for pauses in of_clients if last_invoked.get(pauses.sender, 0) > span.begin]
        recoveries.append(_recovery(span, overall, of_pairs, sending))
    return recoveries


def _pairs(facts: Facts) -> dict[str, str]:
    """Return, for each broker, the names of all that ever shared a node ID with it: "a1+a2"."""
    import networkx as nx  # noqa: PLC0415 - most modules that import this one do not judge

    graph = nx.Graph()
    for row in facts.roles:
        if row["node_id"] is not None:
            graph.add_edge(("broker", row["broker"]), ("node", row["node_id"]))
    pairs: dict[str, str] = {}
    for together in nx.connected_components(graph):
        names = sorted(name for kind, name in together if kind == "broker")
        pairs |= dict.fromkeys(names, "+".join(names))
    return pairs


def _slowest(all_: Sequence[_Pauses], span: FaultSpan) -> LongestPause | None:
    """Return the longest pause of the senders that had sent before a fault."""
    pauses = [
        LongestPause(of=pause.sender, seconds=pause.longest(span))
        for pause in all_
        if pause.first <= span.begin
    ]
    return max(pauses, key=lambda pause: math.inf if pause.seconds is None else pause.seconds, default=None)


def _recovery(
    span: FaultSpan, overall: _Pauses, pairs: Sequence[_Pauses], clients: Sequence[_Pauses]
) -> FaultRecovery:
    start_s, end_s = span.asked / 1e9, None if span.healing is None else span.healing / 1e9
    if not span.found_target:
        return FaultRecovery(
            fault=span.kind, label=span.label, bit=False, start_s=start_s, end_s=end_s, recovery_s=None,
            found_target=False,
        )  # fmt: skip
    return FaultRecovery(
        fault=span.kind,
        label=span.label,
        bit=span.bit,
        start_s=start_s,
        end_s=end_s,
        recovery_s=overall.longest(span),
        pair=_slowest(pairs, span),
        client=_slowest(clients, span),
    )
