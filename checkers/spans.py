"""Overlapping spans of time, found without comparing all pairs.

Why: brokers may change their roles thousands of times.
"""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]
"""A span [begin, end) in nanoseconds; empty if it ends before it begins."""


def overlapping(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return all pairs of overlapping spans as positions (lower, higher), sorted by the higher."""
    found = []
    open_: list[int] = []
    for here in sorted((n for n, (begin, end) in enumerate(spans) if begin < end), key=lambda n: spans[n]):
        open_ = [there for there in open_ if spans[there][1] > spans[here][0]]
        found += [(min(here, there), max(here, there)) for there in open_]
        open_.append(here)
    return sorted(found, key=lambda pair: (pair[1], pair[0]))
