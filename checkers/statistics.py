"""What is always reported and never a failure: counts, latencies, how long each fault kept clients from sending."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.delivery import RECOVERED, REDELIVERED
from checkers.facts import Facts, FaultSpan
from checkers.instance import Found
from checkers.rows import ACK_INVOKE, ACK_OK, DELIVER, NONE, SEND_INVOKE, SEND_OK, Numbers, Rows, first
from checkers.verdict import FaultRecovery, Latency, Statistics

_BINS_AN_OCTAVE: Final = 8
_SLOT_NS: Final = 100_000_000

Bins = dict[int, tuple[int, int]]
"""Of a histogram: bin -> (how many, the longest of them in ns)."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of some rows: rows by (run, f, type), latency by operation, first and last ``ok`` send (ns) of each tenth of a second."""

    census: dict[tuple[int, str, str], int]
    latency: dict[str, Bins]
    sends: dict[int, tuple[int, int]]


def figures(rows: Rows) -> Figures:
    """All that one part contributes."""
    return Figures(_census(rows), _latency(rows), _sends(rows))


def _census(rows: Rows) -> dict[tuple[int, str, str], int]:
    types, operations = len(rows.type.values), len(rows.f.values)
    combined = (rows.run * operations + rows.f.codes) * types + rows.type.codes
    if not len(combined):
        return {}
    used, counts = np.unique(combined, return_counts=True) if combined.max() > 1 << 16 else _binned(combined)
    found = {}
    for code, count in zip(used.tolist(), counts.tolist(), strict=True):
        rest, type_ = divmod(code, types)
        run, f = divmod(rest, operations)
        found[run, rows.f.values[f], rows.type.values[type_]] = count
    return found


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

    sent, asked = moment(SEND_INVOKE), moment(ACK_INVOKE)
    spans = {
        "send": (sent, moment(SEND_OK)),
        "deliver": (sent, moment(DELIVER)),
        "ack": (asked, moment(ACK_OK)),
    }
    found = {}
    for f, (begin, end) in spans.items():
        took = (end - begin)[(begin != NONE) & (end != NONE) & (end >= begin)]
        if len(took):
            found[f] = _histogram(took)
    return found


def _histogram(took: Numbers) -> Bins:
    bins = np.floor(np.log2(np.maximum(took, 1)) * _BINS_AN_OCTAVE).astype(np.int64)
    counts = np.bincount(bins)
    longest = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(longest, bins, took)
    return {int(b): (int(counts[b]), int(longest[b])) for b in np.flatnonzero(counts)}


def _sends(rows: Rows) -> dict[int, tuple[int, int]]:
    at = rows.of(SEND_OK)
    time = rows.time[at[rows.process[at] >= 0]]
    if not len(time):
        return {}
    slot = time // _SLOT_NS
    starts = np.flatnonzero(np.concatenate(([True], slot[1:] != slot[:-1])))
    ends = np.append(starts[1:], len(time)) - 1
    return {
        int(slot[start]): (int(time[start]), int(time[end]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    }


def merged(parts: Iterable[Figures]) -> Figures:
    """The figures of several parts as one."""
    census: Counter[tuple[int, str, str]] = Counter()
    latency: dict[str, Bins] = defaultdict(dict)
    sends: dict[int, tuple[int, int]] = {}
    for part in parts:
        census.update(part.census)
        for f, bins in part.latency.items():
            for number, (count, longest) in bins.items():
                known = latency[f].get(number, (0, 0))
                latency[f][number] = known[0] + count, max(known[1], longest)
        for slot, (begin, end) in part.sends.items():
            low, high = sends.get(slot, (begin, end))
            sends[slot] = min(low, begin), max(high, end)
    return Figures(dict(census), dict(latency), sends)


def read(rows: int, whole: Figures, known: Facts) -> Statistics:
    """What is reported of one history."""
    return Statistics(
        rows=rows,
        duration_s=known.last_ns / 1e9,
        operations=known.census,
        latency={f: _quantiles(sorted(bins.items())) for f, bins in sorted(whole.latency.items())},
        faults=tuple(_recoveries(whole.sends, known)),
    )


def with_counts(figures: Statistics, found: Mapping[str, Found]) -> Statistics:
    """Adds what the message rules counted on the way."""
    return Statistics(
        rows=figures.rows,
        duration_s=figures.duration_s,
        operations=figures.operations,
        latency=figures.latency,
        faults=figures.faults,
        redeliveries=found[REDELIVERED].count if REDELIVERED in found else 0,
        sends_recovered=found[RECOVERED].count if RECOVERED in found else 0,
    )


def _quantiles(bins: Sequence[tuple[int, tuple[int, int]]]) -> Latency:
    total = sum(count for _, (count, _) in bins)

    def quantile(share: float) -> float:
        seen = 0
        for number, (count, longest) in bins:
            seen += count
            if seen >= share * total:
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


def _recoveries(sends: Mapping[int, tuple[int, int]], known: Facts) -> list[FaultRecovery]:
    """Pauses longer than a slot lie between the sends of two slots."""
    slots = [sends[number] for number in sorted(sends)]
    edges = [(earlier[1], later[0]) for earlier, later in itertools.pairwise(slots)]
    last_ok = slots[-1][1] if slots else -1
    return [_recovery(span, edges, last_ok) for span in known.spans()]


def _recovery(span: FaultSpan, edges: Sequence[tuple[int, int]], last_ok: int) -> FaultRecovery:
    until = span.end if span.end is not None else 2**62
    touching = [end - max(begin, span.begin) for begin, end in edges if end > span.begin and begin < until]
    longest = max(touching, default=None) if last_ok > span.begin else None
    return FaultRecovery(
        fault=span.kind,
        label=span.label,
        bit=span.bit,
        start_s=span.begin / 1e9,
        end_s=None if span.end is None else span.end / 1e9,
        recovery_s=None if longest is None else round(longest / 1e9, 3),
    )
