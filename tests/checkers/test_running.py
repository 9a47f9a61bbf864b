"""Running extremes within segments, beside the obvious loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.rows import NONE
from checkers.running import (
    count_before,
    exceeded,
    falls,
    highest_and_whose,
    highest_before,
    lowest_after,
    lowest_before,
    segments,
)

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 2**32 - 2)), st.integers(0, 5))
)


def columns(rows):
    rows = sorted(rows, key=lambda row: row[0])
    key = np.array([k for k, _, _ in rows], dtype=np.int64)
    values = np.array([NONE if v is None else v for _, v, _ in rows], dtype=np.int64)
    owner = np.array([o for _, _, o in rows], dtype=np.int64)
    return rows, (segments(key) if len(key) else key), values, owner


def around(rows, n, after=False):
    others = rows[n + 1 :] if after else rows[:n]
    return [v for k, v, _ in others if k == rows[n][0] and v is not None]


@settings(deadline=None)
@given(ROWS)
def test_extremes_of_earlier_and_later_rows_of_the_segment(rows):
    rows, segment, values, owner = columns(rows)
    expected = [max(around(rows, n), default=NONE) for n in range(len(rows))]
    assert highest_before(segment, values).tolist() == expected
    assert lowest_before(segment, values).tolist() == [
        min(around(rows, n), default=NONE) for n in range(len(rows))
    ]
    assert lowest_after(segment, values).tolist() == [
        min(around(rows, n, after=True), default=NONE) for n in range(len(rows))
    ]
    value, whose = highest_and_whose(segment, values, owner, np.arange(len(rows)) - 1)
    assert value.tolist() == expected
    for n, (key, _, _) in enumerate(rows):
        owners = [o for k, v, o in rows[:n] if k == key and v == expected[n]]
        assert whose[n] == (owners[0] if owners else NONE)


@settings(deadline=None)
@given(ROWS)
def test_how_many_earlier_rows_of_the_segment_count(rows):
    rows, segment, values, _ = columns(rows)
    counts = values != NONE
    assert count_before(segment, counts).tolist() == [len(around(rows, n)) for n in range(len(rows))]


@settings(deadline=None)
@given(ROWS, st.lists(st.one_of(st.none(), st.integers(0, 2**32 - 2))))
def test_rows_before_which_their_segment_has_a_value_above_their_bound(rows, bounds):
    rows, segment, values, _ = columns([(k, 0 if v is None else v, o) for k, v, o in rows])
    bounds = [None if n >= len(bounds) else bounds[n] for n in range(len(rows))]
    found = exceeded(np.array([NONE if b is None else b for b in bounds], dtype=np.int64), values, segment)
    assert found.tolist() == [
        any(v > (NONE if bounds[n] is None else bounds[n]) for v in around(rows, n)) for n in range(len(rows))
    ]


@settings(deadline=None)
@given(ROWS)
def test_rows_before_which_their_segment_has_a_higher_value(rows):
    rows, _, values, _ = columns(rows)
    key = np.array([k for k, _, _ in rows], dtype=np.int64)
    assert falls(values, key).tolist() == [
        v is not None and any(other > v for other in around(rows, n)) for n, (_, v, _) in enumerate(rows)
    ]
