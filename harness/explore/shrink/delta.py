"""Delta debugging over faults (Zeller and Hildebrandt, IEEE TSE 2002).

It tries a case without all faults, without each half, each quarter, ... each single fault.

Why this and nothing else on real processes: a run takes a minute there. The faults of a schedule
are independent, so any subset is a test; of dozens one or two matter, and halves find those in a
few runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from harness.explore.shrink.case import Attempts, ShrinkCase
from harness.interface import Schedule

T = TypeVar("T")


def fewer_faults(attempts: Attempts[T]) -> None:
    """Take away faults until no part can be taken away, or the budget is over."""
    while not attempts.budget.over and any(
        attempts.fails(ShrinkCase(attempts.best.spec, Schedule(faults=remaining)))
        for remaining in without_parts(attempts.best.schedule.faults)
    ):
        pass


def without_parts(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield the complements: without all, then without ever smaller parts, down to each one."""
    for part in parts(len(items)):
        yield items[: part.start] + items[part.stop :]


def parts(count: int) -> Iterator[range]:
    """Yield the ranges of so many things: all, each half, each quarter, ... each one."""
    size = count
    while size:
        for begin in range(0, count, size):
            yield range(begin, min(begin + size, count))
        size = size // 2 if size > 1 else 0
