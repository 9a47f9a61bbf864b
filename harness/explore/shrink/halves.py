"""The shortening of faults and of the load, which cost time if brokers are deployed.

Why halves and nothing finer: each step costs minutes. A reader of a schedule gains by a cut of 6 s
instead of 25 s, not by one of 5.3 s instead of 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from harness.explore.shrink.case import Attempts, ShrinkCase
from harness.interface import Schedule

T = TypeVar("T")

LEAST_S: Final = 1.0
"""The shortest duration of a fault, and the least by which the load is shortened (s)."""
LEAST_LOAD_S: Final = 5.0


def shorter(attempts: Attempts[T], start: ShrinkCase) -> None:
    """Halve durations while the case fails; ``start`` is the case as it was found.

    The load before the faults keeps its length, and so does the load from the last fault to the
    end.
    """
    rest_s = _rest_s(start)
    _less_load(attempts, rest_s)
    for number in range(len(attempts.best.schedule.faults)):
        while (case := _halved(attempts.best, number)) is not None and attempts.fails(case):
            pass
    _less_load(attempts, rest_s)


def _halved(case: ShrinkCase, number: int) -> ShrinkCase | None:
    faults = case.schedule.faults
    duration_s = faults[number].duration_s
    if duration_s is None or duration_s < 2 * LEAST_S:
        return None
    fault = msgspec.structs.replace(faults[number], duration_s=round(duration_s / 2, 1))
    return ShrinkCase(case.spec, Schedule(faults=(*faults[:number], fault, *faults[number + 1 :])))


def _less_load(attempts: Attempts[T], rest_s: float | None) -> None:
    """Shorten the load: once if faults say how long it must last, by halves if there are none."""
    for case in _with_less_load(attempts, rest_s):
        if not attempts.fails(case):
            return


def _with_less_load(attempts: Attempts[T], rest_s: float | None) -> Iterator[ShrinkCase]:
    if attempts.best.schedule.faults:
        end_s = _end_s(attempts.best)
        if rest_s is not None and end_s is not None:
            yield from _with_time_limit(attempts.best, end_s + rest_s)
        return
    while attempts.best.spec.time_limit_s >= 2 * LEAST_LOAD_S:
        yield from _with_time_limit(attempts.best, round(attempts.best.spec.time_limit_s / 2, 1))


def _with_time_limit(case: ShrinkCase, seconds: float) -> Iterator[ShrinkCase]:
    if seconds <= case.spec.time_limit_s - LEAST_S:
        yield ShrinkCase(msgspec.structs.replace(case.spec, time_limit_s=seconds), case.schedule)


def _rest_s(case: ShrinkCase) -> float | None:
    end_s = _end_s(case)
    return None if end_s is None else max(0.0, case.spec.time_limit_s - end_s)


def _end_s(case: ShrinkCase) -> float | None:
    """Return when the last fault ends; None if that is not known before, or there is none."""
    ends_s = []
    for fault in case.schedule.faults:
        if fault.after or fault.duration_s is None:
            return None
        ends_s.append(fault.start_s + fault.duration_s)
    return max(ends_s, default=None)
