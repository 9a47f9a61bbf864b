"""Which spans overlap, without looking at every pair.

Brokers change roles thousands of times in a long history.
"""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]
"""[begin, end) in nanoseconds; empty if it ends before it begins."""


def overlapping(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Every two spans that have a moment in common, as positions (earlier, later).

    In the order of the later one's position.
    """
    found = []
    open_: list[int] = []
    for here in sorted((n for n, (begin, end) in enumerate(spans) if begin < end), key=lambda n: spans[n]):
        open_ = [there for there in open_ if spans[there][1] > spans[here][0]]
        found += [(min(here, there), max(here, there)) for there in open_]
        open_.append(here)
    return sorted(found, key=lambda pair: (pair[1], pair[0]))
