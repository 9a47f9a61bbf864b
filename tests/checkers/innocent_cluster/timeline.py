"""Simulated time: actions at moments, and scripts that wait.

A script is a generator. It yields a number of nanoseconds to wait for, or an ``Answer`` of which it
is sent the value.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from typing import Any

MS = 1_000_000
S = 1_000 * MS

Script = Generator[Any, Any, Any]


class Answer:
    """A value that comes later; the first one given counts."""

    def __init__(self) -> None:
        self.value: Any = None
        self.is_given = False
        self._wake: Callable[[Any], None] | None = None

    def give(self, value: Any) -> None:
        if self.is_given:
            return
        self.value, self.is_given = value, True
        if self._wake is not None:
            self._wake(value)

    def wake(self, action: Callable[[Any], None]) -> None:
        """Call the action with the value as soon as there is one."""
        if self.is_given:
            action(self.value)
        else:
            self._wake = action


class EndlessWorldError(RuntimeError):
    """A simulated cluster did not come to its end: a mistake of the cluster, no finding."""


class Timeline:
    """A clock and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (max(time, self.now), next(self._numbers), action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def spawn(self, script: Script) -> Answer:
        """Run a script; the answer is what it returns."""
        ended = Answer()

        def resume(value: Any) -> None:
            try:
                wanted = script.send(value)
            except StopIteration as stop:
                ended.give(stop.value)
                return
            if isinstance(wanted, Answer):
                wanted.wake(resume)
            else:
                self.after(wanted, lambda: resume(None))

        self.after(0, lambda: resume(None))
        return ended

    def run(self, is_over: Callable[[], bool], *, limit: int) -> None:
        """Let time pass until it is over; raises EndlessWorldError where that takes too long."""
        while not is_over():
            if not self._due:
                raise EndlessWorldError(f"nothing happens any more at {self.now / S:.3f} s")
            time, _, action = heapq.heappop(self._due)
            if time > limit:
                raise EndlessWorldError(f"not over after {limit / S:.0f} s")
            self.now = time
            action()
