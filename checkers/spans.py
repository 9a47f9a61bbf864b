"""Which spans overlap, without all pairs: brokers may change roles thousands of times."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]
"""[begin, end) in nanoseconds; empty if it ends before it begins."""


def overlapping(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Every two overlapping spans as positions (earlier, later), by the later one's."""
    found = []
    open_: list[int] = []
    for here in sorted((n for n, (begin, end) in enumerate(spans) if begin < end), key=lambda n: spans[n]):
        open_ = [there for there in open_ if spans[there][1] > spans[here][0]]
        found += [(min(here, there), max(here, there)) for there in open_]
        open_.append(here)
    return sorted(found, key=lambda pair: (pair[1], pair[0]))
