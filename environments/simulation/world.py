"""A world: machines, a network and a clock in one process, in which one seed gives one history.

Each node is an event loop of its own (`loop`), stepped by one `scheduler` of virtual time. The test
itself runs on the node "harness": clients, nemesis, monitor. Other nodes are processes that it
spawns::

    world = World(seed=7)
    async def main():
        broker = world.spawn("a1", serve)    # a coroutine that listens on ("a1", 61613)
        reader, writer = await asyncio.open_connection("a1", 61613)    # over the link harness->a1
        over_zone1_to_a1 = world.network.via("zone1", "a1")
        other = await asyncio.open_connection(over_zone1_to_a1, 61613)
        world.network.apply(Link("zone1", "a1"), LinkCondition(cut=True))
        broker.kill()
        assert await broker.exited == -9
    world.run(main)

Whatever one node passes to another must go over the network. What the harness does to a node
(spawn, kill, set an ``asyncio.Event`` that it waits for) takes effect at the same virtual instant.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import sys
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from environments.simulation.clock import SimulatedClock
from environments.simulation.graveyard import Graveyard
from environments.simulation.guards import Guards
from environments.simulation.loop import NodeLoop
from environments.simulation.network import Network
from environments.simulation.process import SimulatedProcess, exit_status
from environments.simulation.scheduler import Scheduler
from environments.simulation.tasks import describe, sorted_tasks
from environments.simulation.trace import Trace

HARNESS: Final = "harness"

STALL_STEPS: Final = 100_000

BOOT_S_MAX: Final = 100_000

T = TypeVar("T")


class World:
    """Everything that one seed decides. A world runs once.

    ``record`` keeps the text of the trace. After ``stall_steps`` steps without virtual time
    passing, the run counts as a livelock; after ``steps_max`` steps in all, it counts as endless.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        record: bool = False,
        stall_steps: int = STALL_STEPS,
        steps_max: float = math.inf,
    ) -> None:
        self.seed = seed
        self.trace = Trace(recording=record)
        self.graveyard = Graveyard()
        self.scheduler = Scheduler(self.random("scheduler"), self.trace, stall_steps, steps_max)
        self.scheduler.on_system_exit = self._system_exit
        self.network = Network(self.scheduler, self.trace, self.random("network"))
        self._clocks: dict[str, SimulatedClock] = {}
        self._processes: dict[str, SimulatedProcess] = {}
        self._generators: dict[int, NodeLoop] = {}
        self._ran = False
        self.harness = self._loop(HARNESS)
        self._guards = Guards(self.scheduler.fail, self._wall_s, self._node)
        self.scheduler.lifted = self._guards.lifted

    # -------------------------------------------------------------------------------- what there is

    @property
    def now_ns(self) -> int:
        """The virtual nanoseconds since the world began."""
        return self.scheduler.now_ns

    @property
    def steps(self) -> int:
        """The number of steps of all nodes: the measure of work done."""
        return self.scheduler.steps

    def random(self, purpose: str) -> random.Random:
        """Return a new random stream for one purpose ("disk:a1"), independent of all others."""
        return random.Random(f"{self.seed}/{purpose}")

    def clock(self, name: str) -> SimulatedClock:
        """Return a machine's clocks, which outlive its process; the harness' show virtual time."""
        clock = self._clocks.get(name)
        if clock is None:
            boot_s = 0 if name == HARNESS else self.random(f"clock:{name}").randrange(BOOT_S_MAX)
            clock = self._clocks[name] = SimulatedClock(
                lambda: self.scheduler.now_ns, lambda: self._replan(name), boot_s
            )
        return clock

    def process(self, name: str) -> SimulatedProcess | None:
        """Return the latest process of a node, running or not."""
        return self._processes.get(name)

    def spawn(
        self,
        name: str,
        main: Callable[[], Coroutine[Any, Any, Any]],
        on_exit: Callable[[SimulatedProcess], object] | None = None,
    ) -> SimulatedProcess:
        """Start a process on the machine ``name``.

        The process lives until ``main`` returns (its exit status, if that is an int) or raises (1).

        ``on_exit`` is called on the harness' loop, however the process ended. Raises ValueError
        while another process still runs there.
        """
        before = self._processes.get(name)
        if name == HARNESS or (before is not None and before.state != "gone"):
            raise ValueError(f"a process already runs on node {name!r}")
        self.trace.record(self.now_ns, name, "spawned")
        loop = self._loop(name)
        process = self._processes[name] = SimulatedProcess(
            self, name, loop, self.harness.create_future(), on_exit
        )
        process.start(main)
        self.network.machine_started(name)
        return process

    # -------------------------------------------------------------------------------------- running

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``main`` on the node "harness" until it is done, and everything else with it.

        What is left then is cancelled on the harness, as ``asyncio.run`` does; on other nodes it
        ends without any notice. Raises what ``main`` raises, and DeadlockError, StallError,
        EndlessRunError, ForbiddenCallError.
        """
        if self._ran:
            raise RuntimeError("a world runs once; make another one with the same seed")
        self._ran = True
        with self._guards.installed(), self._alone():
            try:
                task = self.harness.create_task(main(), name="main")
                self.scheduler.run(task.done, self._waiting)
                self._cancel_the_rest()
                result: T = task.result()
                return result
            finally:
                self._end()

    def interrupt(self, error: BaseException) -> None:
        """End the run with ``error`` after the present step.

        This is the only call that another thread may make.
        """
        self.scheduler.fail(error)

    def _cancel_the_rest(self) -> None:
        """Cancel the harness' remaining tasks and await their end, as ``asyncio.run`` does."""
        tasks = sorted_tasks(asyncio.all_tasks(self.harness))
        for task in tasks:
            task.cancel()
        if tasks:
            self.scheduler.run(lambda: all(task.done() for task in tasks), self._waiting)

    def _end(self) -> None:
        for process in self._processes.values():
            if process.state != "gone":
                process.loop.die()
                self.graveyard.take(process.loop)
        self.harness.die()
        self.graveyard.take(self.harness)
        self.network.end()
        with self._guards.lifted():
            self.graveyard.bury()
        self.scheduler.end()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep garbage collections and the caller's hooks, loop and task out of the run.

        Since Python 3.14 a thread has one current task, and no longer one for each loop.
        """
        collected = gc.isenabled()
        gc.disable()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generator_begins, self._generator_dropped)
        before = events._get_running_loop()  # noqa: SLF001
        task = asyncio.current_task(before) if before is not None else None
        if before is not None and task is not None:
            asyncio.tasks._leave_task(before, task)  # noqa: SLF001
        try:
            yield
        finally:
            events._set_running_loop(before)  # noqa: SLF001
            if before is not None and task is not None:
                asyncio.tasks._enter_task(before, task)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)
            if collected:
                gc.enable()

    # -------------------------------------------------------------------------------- for its parts

    def _loop(self, name: str) -> NodeLoop:
        return NodeLoop(name, self.scheduler, self.clock(name), self.network)

    def _replan(self, name: str) -> None:
        process = self._processes.get(name)
        if name == HARNESS:
            raise ValueError("the harness' clock is virtual time; it cannot be wrong")
        if process is not None:
            process.loop.replan()

    def _system_exit(self, loop: NodeLoop, exit_: SystemExit) -> None:
        process = self._processes.get(loop.node)
        if process is None or process.loop is not loop:
            raise exit_
        process.exit(exit_status(exit_))

    def _node(self) -> str:
        loop = events._get_running_loop()  # noqa: SLF001
        return loop.node if isinstance(loop, NodeLoop) else HARNESS

    def _wall_s(self) -> float:
        return self.clock(self._node()).wall_s()

    def _generator_begins(self, generator: Any) -> None:
        loop = events._get_running_loop()  # noqa: SLF001
        if isinstance(loop, NodeLoop):
            self._generators[id(generator)] = loop
            loop._asyncgen_firstiter_hook(generator)  # type: ignore[attr-defined]  # noqa: SLF001

    def _generator_dropped(self, generator: Any) -> None:
        loop = self._generators.pop(id(generator), None)
        if loop is not None and not loop.dead:
            loop._asyncgen_finalizer_hook(generator)  # type: ignore[attr-defined]  # noqa: SLF001

    def _waiting(self) -> str:
        """Return each task that waits, and where, by node."""
        waiting = []
        loops = [
            self.harness,
            *(process.loop for process in self._processes.values() if process.state != "gone"),
        ]
        for loop in loops:
            tasks = ", ".join(describe(task) for task in sorted_tasks(asyncio.all_tasks(loop)))
            state = "" if loop.runs else " (paused)"
            waiting.append(f"{loop.node}{state}: {tasks or 'no task'}")
        return "; ".join(["waiting are", *waiting]) if waiting else "nobody waits"
