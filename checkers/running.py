"""Running maxima and minima within segments.

They tell what came before (or comes after) a row in the same group, message or session. Order and
session rules are all of the form "the highest value of the earlier rows".

numpy's running maximum knows no segments, so the number of the segment is put above the value in
one 64-bit number. Values must lie in [0, 2^32), and segments must be numbered in the order of their
rows. A row without earlier rows gets ``NONE``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checkers.rows import FOREVER, NONE, Flags, Numbers

_BITS: Final = 33
_MASK: Final = 2**_BITS - 1


def segments(*keys: npt.NDArray[Any]) -> Numbers:
    """Return the number of each row's segment; rows must be sorted by the keys."""
    size = len(keys[0])
    new = np.zeros(size, dtype=bool)
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.cumsum(new, dtype=np.int64)


def starts(segment: Numbers) -> Numbers:
    """Return the first row of each segment."""
    return np.flatnonzero(np.concatenate(([True], segment[1:] != segment[:-1]))[: len(segment)])


def highest_before(segment: Numbers, values: Numbers) -> Numbers:
    """Return the highest value of the earlier rows of each row's segment.

    Values that are ``NONE`` do not count.
    """
    if not len(values):
        return values
    # A value is raised by one, so that 0 means that there is none.
    packed = segment << _BITS
    packed |= np.maximum(values, -1) + 1
    running = np.maximum.accumulate(packed, out=packed)
    result = np.full(len(values), NONE, dtype=np.int64)
    before = running[:-1] & _MASK
    has_earlier = running[:-1] >> _BITS == segment[1:]
    has_earlier &= before != 0
    np.subtract(before, 1, out=result[1:], where=has_earlier)
    return result


def exceeded(bounds: Numbers, values: Numbers, segment: npt.NDArray[Any]) -> Flags:
    """Return the rows before which their segment has a value above their bound.

    No value may be ``NONE``.
    """
    result = np.zeros(len(values), dtype=bool)
    running = segment.astype(np.int64)
    running <<= _BITS
    running |= values
    running = np.maximum.accumulate(running, out=running)[:-1]
    running &= _MASK
    np.greater(running, bounds[1:], out=result[1:])
    result[1:] &= segment[1:] == segment[:-1]
    return result


def falls(values: Numbers, *keys: npt.NDArray[Any]) -> Flags:
    """Return the rows before which their segment has a higher value; ``NONE`` does not count.

    Rows must be sorted by the keys. In the common case no value is lower than the one right before
    it; then there are no such rows, and no running maximum is needed.
    """
    down: Flags = values[1:] < values[:-1]
    for key in keys:
        down &= key[1:] == key[:-1]
    if not down.any():
        return np.zeros(len(values), dtype=bool)
    result: Flags = (values != NONE) & (highest_before(segments(*keys), values) > values)
    return result


def lowest_before(segment: Numbers, values: Numbers) -> Numbers:
    """Return the lowest value of the earlier rows of each row's segment."""
    turned = highest_before(segment, np.where(values == NONE, NONE, FOREVER - values))
    return np.where(turned == NONE, NONE, FOREVER - turned)


def lowest_after(segment: Numbers, values: Numbers) -> Numbers:
    """Return the lowest value of the later rows of each row's segment."""
    if not len(values):
        return values
    turned = segment[-1] - segment[::-1]
    return lowest_before(turned, values[::-1])[::-1]


def highest_and_whose(
    segment: Numbers, values: Numbers, owner: Numbers, at: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the highest value of each segment's rows up to a position, and the owner of the value.

    Of equal values the first one's owner is returned. ``at`` has one position for each row, which
    counts, too. It is -1 or a position of another segment where no row counts; there both results
    are ``NONE``.
    """
    size = len(values)
    if not size:
        return values, owner
    packed = (segment << _BITS) | (np.maximum(values, -1) + 1)
    running = np.maximum.accumulate(packed)
    new: Flags = np.empty(size, dtype=bool)
    new[0] = True
    new[1:] = packed[1:] > running[:-1]
    holder = np.maximum.accumulate(np.where(new, np.arange(size), 0))
    has_value = (at >= 0) & (running[at] >> _BITS == segment) & (running[at] & _MASK != 0)
    return np.where(has_value, (running[at] & _MASK) - 1, NONE), np.where(has_value, owner[holder[at]], NONE)


def count_before(segment: Numbers, counts: Flags) -> Numbers:
    """Return how many of the earlier rows of each row's segment count."""
    if not len(segment):
        return np.zeros(0, dtype=np.int64)
    running = np.cumsum(counts, dtype=np.int64) - counts
    result: Numbers = running - running[starts(segment)][segment - segment[0]]
    return result
