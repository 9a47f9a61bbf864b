"""Virtual time, and the choice of the node that runs next.

One heap holds what will happen: arrivals from the network, and the times at which nodes want to be
woken by their timers. When no node has anything left to do, time moves to the earliest of them. So
a minute in which nothing happens costs nothing. Computing takes no virtual time.

Within a node, callbacks run in the order that asyncio promises. No order is promised between
several nodes, or between two events of the same nanosecond: it is drawn from the world's chance.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import random
from asyncio import events
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from environments.simulation.errors import DeadlockError, EndlessRunError, StallError
from environments.simulation.loop import NEVER, NodeLoop
from environments.simulation.tasks import describe
from environments.simulation.trace import Trace

STEPS_PER_COLLECTION: Final = 50_000
"""The number of steps between two garbage collections.

A finalizer that runs when the interpreter pleases would be an event that no seed decides.
"""

STALL_EVIDENCE_STEPS: Final = 1_000


class Scheduler:
    """The heap, the nodes with something to do now, and the time.

    ``stall_steps`` steps without time passing are a livelock. A run of more than ``steps_max``
    steps in all counts as endless.
    """

    def __init__(self, chance: random.Random, trace: Trace, stall_steps: int, steps_max: float) -> None:
        self.now_ns = 0
        self.steps = 0
        self._next_collection = STEPS_PER_COLLECTION
        self._still_steps = 0
        self._stall_steps = stall_steps
        self._steps_max = steps_max
        self._draw = chance.random
        self.trace = trace
        self._heap: list[tuple[int, float, int, Callable[[], object]]] = []
        self._sequence = 0
        self._runnable: list[NodeLoop] = []
        self._failure: BaseException | None = None
        self._evidence: Counter[str] = Counter()
        self.lifted: Callable[[], AbstractContextManager[None]] = nullcontext
        """A context in which the world's guards let calls pass."""
        self.on_system_exit: Callable[[NodeLoop, SystemExit], None] | None = None

    def at(self, when_ns: int, call: Callable[[], object]) -> None:
        """Call ``call`` at a virtual time, outside every node."""
        self._sequence += 1
        heapq.heappush(self._heap, (when_ns, self._draw(), self._sequence, call))

    def fail(self, error: BaseException) -> None:
        """End the run with this error after the present step, even if a caller swallows it."""
        if self._failure is None:
            self._failure = error

    def end(self) -> None:
        """Drop everything that was still to happen."""
        self._heap.clear()
        self._runnable.clear()

    # ---------------------------------------------------------------------------------------- nodes

    def wake(self, loop: NodeLoop) -> None:
        """Make a loop runnable, because its ready queue is not empty."""
        if loop.runs and not loop.active:
            loop.active = True
            loop.now_s = loop.clock.monotonic_at(self.now_ns)
            self._runnable.append(loop)

    def plan(self, loop: NodeLoop) -> None:
        """Plan a wake of the loop for its next timer; call this when that may be earlier."""
        loop.forget_cancelled()
        if loop.timers and loop.runs:
            when, _, handle = loop.timers[0]
            loop.planned_timer = handle
            due = loop.clock.due_ns(when)
            if due < loop.planned_ns:
                loop.planned_ns = due = max(due, self.now_ns)
                self.at(due, loop.on_due)

    def due(self, loop: NodeLoop) -> None:
        """Wake the loop at a planned time, unless the timer has been cancelled since."""
        if loop.planned_ns > self.now_ns:
            return  # an older plan for a later time; an earlier one has replaced it
        loop.planned_ns = NEVER
        loop.planned_timer = None
        if loop.active or not loop.runs:
            return
        loop.forget_cancelled()
        if loop.timers:
            if loop.clock.due_ns(loop.timers[0][0]) <= self.now_ns:
                self.trace.mark(self.now_ns, loop.timer_label)
                self.wake(loop)
            else:
                self.plan(loop)

    # -------------------------------------------------------------------------------------- running

    def run(self, done: Callable[[], bool], waiting: Callable[[], str]) -> None:
        """Step everything until ``done``. ``waiting`` says for an error what waits, and where."""
        runnable, heap, pop = self._runnable, self._heap, heapq.heappop
        while not done():
            if runnable:
                if len(runnable) == 1:
                    loop = runnable.pop()
                else:
                    chosen = int(self._draw() * len(runnable))
                    runnable[chosen], runnable[-1] = runnable[-1], runnable[chosen]
                    loop = runnable.pop()
                self._step(loop)
            elif heap:
                when, _, _, call = pop(heap)
                if when > self.now_ns:
                    self.now_ns = when
                    self._still_steps = 0
                    if self._evidence and self.steps <= self._steps_max:
                        self._evidence.clear()
                call()
            else:
                raise DeadlockError(
                    f"nothing can happen any more after {self.now_ns / 1e9:.3f} s; {waiting()}"
                )
            if self._failure is not None:
                raise self._failure

    def _step(self, loop: NodeLoop) -> None:
        if not loop.runs:
            loop.active = False
            return
        events._set_running_loop(loop)  # noqa: SLF001
        rounds = 1
        try:
            rounds = loop.drain()
        except SystemExit as exit_:
            if self.on_system_exit is None:
                raise
            self.on_system_exit(loop, exit_)
        unsent = loop.unsent
        if unsent:
            for transport in unsent:
                transport.flush()
            unsent.clear()
        self.steps += rounds
        self._still_steps += rounds
        if self._still_steps > self._stall_steps:
            self._stalled(loop)
        elif self.steps > self._steps_max:
            self._endless(loop)
        if self.steps > self._next_collection:
            self._next_collection = self.steps + STEPS_PER_COLLECTION
            with self.lifted():
                gc.collect(1)
        if loop._ready and loop.runs:  # noqa: SLF001
            self._runnable.append(loop)
        else:
            loop.active = False
            timers = loop.timers
            if timers and timers[0][2] is not loop.planned_timer:
                self.plan(loop)

    def _stalled(self, stepped: NodeLoop) -> None:
        """Watch a livelock a little longer, to name what runs; then raise StallError."""
        self._watch(stepped)
        if self._still_steps >= self._stall_steps + STALL_EVIDENCE_STEPS:
            raise StallError(
                f"{self._still_steps} steps and no virtual time passes, at {self.now_ns / 1e9:.3f} s; "
                f"what runs: {self._watched()}"
            )

    def _endless(self, stepped: NodeLoop) -> None:
        """Watch an endless run a little longer, to name what runs; then raise EndlessRunError."""
        self._watch(stepped)
        if self.steps >= self._steps_max + STALL_EVIDENCE_STEPS:
            raise EndlessRunError(
                f"the run has not ended after {self.steps:,} steps, at {self.now_ns / 1e9:.3f} s of virtual "
                f"time; what runs: {self._watched()}"
            )

    def _watch(self, stepped: NodeLoop) -> None:
        """Count the callbacks that each loop is about to run."""
        for loop in [*self._runnable, stepped]:
            for handle in loop._ready or ():  # noqa: SLF001
                self._evidence[f"{loop.node}: {_name(handle)}"] += 1

    def _watched(self) -> str:
        return "; ".join(f"{count} x {name}" for name, count in self._evidence.most_common(5))


def _name(handle: asyncio.Handle) -> str:
    """Return the task or the function that a handle runs."""
    callback = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return describe(owner)
    return str(getattr(callback, "__qualname__", type(callback).__name__))
