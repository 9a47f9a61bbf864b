"""The life of one process on a simulated machine: it runs, stands still, ends or is killed.

A killed process does nothing more: it runs no ``finally``, sees no cancellation, and sends nothing.
Its tasks are kept, unfinished, until the world is over, because dropping them would run those
``finally`` blocks. Its kernel closes what it had open.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Literal

from environments.simulation.tasks import sorted_tasks

if TYPE_CHECKING:
    from environments.simulation.loop import NodeLoop
    from environments.simulation.world import World

KILLED: Final = -9
"""The exit status of a killed process, as in subprocess."""


class SimulatedProcess:
    """A process of a node. ``exited`` is done, on the harness' loop, with the exit status."""

    def __init__(
        self,
        world: World,
        name: str,
        loop: NodeLoop,
        exited: asyncio.Future[int],
        on_exit: Callable[[SimulatedProcess], object] | None,
    ) -> None:
        self.name = name
        self.loop = loop
        self.state: Literal["running", "paused", "gone"] = "running"
        self.exited = exited
        self.error: BaseException | None = None
        """The exception that its main raised, if it ended so; the status is then 1, as Python's."""
        self._world = world
        self._on_exit = on_exit
        self._main: asyncio.Task[Any] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def status(self) -> int | None:
        """The exit status, or None while the process exists."""
        return self.exited.result() if self.exited.done() and not self.exited.cancelled() else None

    def start(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Begin to run ``main``; the coroutine is made in a context of its own."""
        context = contextvars.Context()
        self._main = self.loop.create_task(context.run(main), name=f"{self.name} main", context=context)
        self._main.add_done_callback(self._finish)

    def pause(self) -> None:
        """Stand still, as after SIGSTOP: what arrives waits, and timers are late."""
        if self.state == "running":
            self._tell("paused")
            self.state = "paused"
            self.loop.runs = False

    def resume(self) -> None:
        """Go on, as after SIGCONT."""
        if self.state == "paused":
            self._tell("resumed")
            self.state = "running"
            self.loop.runs = True
            if self.loop._ready:  # noqa: SLF001 - the stock loop's own
                self._world.scheduler.wake(self.loop)
            else:
                self._world.scheduler.plan(self.loop)

    def kill(self) -> None:
        """End at once, as by SIGKILL: the kernel closes its connections."""
        self._end(KILLED, "killed")

    def lose_power(self) -> None:
        """End with the machine, without notice; the next process spawned there turns it on."""
        self._end(KILLED, "lost its power", power_lost=True)

    def exit(self, status: int) -> None:
        """End at once with a status, as ``os._exit``."""
        self._end(status, f"exited with {status}")

    # ------------------------------------------------------------------------------ the orderly end

    def _finish(self, main: asyncio.Task[Any]) -> None:
        """Main is done: cancel what it left behind, as ``asyncio.run`` does, then exit."""
        others = sorted_tasks(asyncio.all_tasks(self.loop))
        if others:
            self._ending = self.loop.create_task(self._cancel(others), name=f"{self.name} ends")
            self._ending.add_done_callback(lambda _: self._exit(main))
        else:
            self._exit(main)

    async def _cancel(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    def _exit(self, main: asyncio.Task[Any]) -> None:
        if main.cancelled():
            self.error = asyncio.CancelledError()
            self.exit(1)
        elif (error := main.exception()) is not None:
            self.error = error
            self.exit(exit_status(error) if isinstance(error, SystemExit) else 1)
        else:
            result = main.result()
            self.exit(result if isinstance(result, int) else 0)

    def _end(self, status: int, how: str, *, power_lost: bool = False) -> None:
        if self.state == "gone":
            return
        self._tell(how)
        self.state = "gone"
        self.loop.die()
        self._world.network.process_ended(self.loop, power_lost=power_lost)
        self._world.graveyard.take(self.loop)
        if not self.exited.done():
            self.exited.set_result(status)
        if self._on_exit is not None:
            self._world.harness.call_soon(self._on_exit, self)

    def _tell(self, what: str) -> None:
        self._world.trace.record(self._world.now_ns, self.name, what)


def exit_status(exit_: SystemExit) -> int:
    """Return the exit status that a shell would see."""
    if exit_.code is None:
        return 0
    return exit_.code if isinstance(exit_.code, int) else 1
