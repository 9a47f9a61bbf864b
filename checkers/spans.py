"""Overlapping spans of time, found without comparing all pairs.

Why: brokers may change their roles thousands of times.
"""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]
"""A span [begin, end) in nanoseconds; empty if it ends before it begins."""


def overlapping(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return all pairs of overlapping spans as positions (lower, higher), sorted by the higher."""
    pairs = []
    open_: list[int] = []
    for later in sorted((n for n, (begin, end) in enumerate(spans) if begin < end), key=lambda n: spans[n]):
        open_ = [earlier for earlier in open_ if spans[earlier][1] > spans[later][0]]
        pairs += [(min(later, earlier), max(later, earlier)) for earlier in open_]
        open_.append(later)
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))
