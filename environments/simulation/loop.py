"""A process of a simulated machine, as an event loop.

The loop is asyncio's `BaseEventLoop`: tasks, handles, exception handling and the order of callbacks
are those of the stock code. We replace its clock, which is the machine's, and its tasks and
futures, which sort the same in every process. Its connections are those of the world's network. The
turn of the loop (`drain`) never waits, since the `scheduler` decides when a node runs. `drain` does
what the stock turn does around a selector that is never ready, at half the cost. Calls that would
leave the world are refused by name.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events, format_helpers
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from environments.simulation.errors import ForbiddenCallError
from environments.simulation.tasks import SimulatedFuture, SimulatedTask
from environments.simulation.trace import TIMER

if TYPE_CHECKING:
    from environments.simulation.clock import SimulatedClock
    from environments.simulation.network import Network
    from environments.simulation.scheduler import Scheduler
    from environments.simulation.stream import StreamTransport

NEVER: Final = 1 << 63
"""A virtual time that does not come."""


ROUNDS_MAX: Final = 64
"""The number of rounds of callbacks after which other nodes have their turn."""

TRIM_TIMERS_MIN: Final = 100
"""The number of cancelled timers that may be left where they are; asyncio's own number."""


def _outside(name: str, instead: str) -> Callable[..., NoReturn]:
    """Return a loop method that refuses the call, because it would leave the world."""

    def forbidden(loop: NodeLoop, *_: object, **__: object) -> NoReturn:
        loop.forbid(f"loop.{name}", instead)

    return forbidden


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class NodeLoop(asyncio.BaseEventLoop):
    """The event loop of one process of one node."""

    _ready: deque[Any]  # of handles; an attribute of the stock loop that the type stubs lack
    _timer_cancelled_count: int

    def __init__(self, node: str, scheduler: Scheduler, clock: SimulatedClock, network: Network) -> None:
        super().__init__()
        self.node = node
        self.scheduler = scheduler
        self.clock = clock
        self.network = network
        self.runs = True
        """False while paused and for ever once dead: the scheduler does not step it."""
        self.dead = False
        self.active = False
        """True if the scheduler knows of something to do now (or is just stepping it)."""
        self.now_s = 0.0
        """The result of ``time()`` while active; virtual time stands still during a step."""
        self.planned_ns = NEVER
        """The earliest wake that the scheduler has been asked for."""
        self.unsent: list[StreamTransport] = []
        """The transports with bytes written in this step, which leave together at its end."""
        self.planned_timer: asyncio.TimerHandle | None = None
        """The timer that the planned wake is for."""
        self.timers: list[tuple[float, int, Any]] = []
        """A heap of (when, number, handle); equal times fire in the order of their creation."""
        self.timer_label = scheduler.trace.label(node, TIMER)
        self._timer_number = 0
        self._resolution_s = 0.0
        self._sequence = 0
        self.replan()

    # ----------------------------------------------------------------------------- the stock loop's

    def time(self) -> float:
        """Return the machine's monotonic clock, in seconds."""
        return self.now_s if self.active else self.clock.monotonic_s()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, as asyncio's; code of another node may call this, too."""
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self.active:
            self.scheduler.wake(self)
        return handle

    call_soon_threadsafe: Any = call_soon

    def put(self, handle: asyncio.Handle) -> None:
        """Schedule a handle that is made once and used again, as a selector's are."""
        self._ready.append(handle)
        if not self.active:
            self.scheduler.wake(self)

    def on_due(self) -> None:
        """Tell the scheduler that a planned wake has come."""
        self.scheduler.due(self)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a time, as asyncio's."""
        handle = events.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - what makes its cancellation count
        self._timer_number += 1
        heapq.heappush(self.timers, (when, self._timer_number, handle))
        if not self.active:
            self.scheduler.plan(self)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback after a delay, as asyncio's."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def drain(self) -> int:
        """Run what is ready and due, round after round, until nothing is left at this instant.

        Returns how many rounds that took.

        As in the stock loop, a round runs what was ready when it began, and what becomes ready
        meanwhile belongs to the next round.
        """
        ready, timers = self._ready, self.timers
        rounds = 0
        due_s = self.now_s + self._resolution_s
        while self.runs and rounds < ROUNDS_MAX:
            if self._timer_cancelled_count > TRIM_TIMERS_MIN and 2 * self._timer_cancelled_count > len(
                timers
            ):
                self._trim()
            while timers and timers[0][0] < due_s:
                handle = heapq.heappop(timers)[2]
                handle._scheduled = False  # noqa: SLF001
                if handle._cancelled:  # noqa: SLF001
                    self._timer_cancelled_count -= 1
                else:
                    ready.append(handle)
            if not ready:
                break
            rounds += 1
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:  # noqa: SLF001
                    try:
                        handle._context.run(handle._callback, *handle._args)  # noqa: SLF001 - as Handle._run
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001 - asyncio's rule: a failed callback is reported, and the loop goes on
                        self._callback_failed(handle, error)
        return rounds

    def _callback_failed(self, handle: Any, error: BaseException) -> None:
        source = format_helpers._format_callback_source(handle._callback, handle._args)  # noqa: SLF001
        self.call_exception_handler(
            {"message": f"Exception in callback {source}", "exception": error, "handle": handle}
        )

    def forget_cancelled(self) -> None:
        """Drop cancelled timers from the head of the heap."""
        timers = self.timers
        while timers and timers[0][2]._cancelled:  # noqa: SLF001
            heapq.heappop(timers)[2]._scheduled = False  # noqa: SLF001
            self._timer_cancelled_count -= 1

    def _trim(self) -> None:
        """Drop all cancelled timers, when most are (time-outs that did not happen)."""
        for _, _, handle in self.timers:
            handle._scheduled = not handle._cancelled  # noqa: SLF001
        self.timers[:] = [timer for timer in self.timers if not timer[2]._cancelled]  # noqa: SLF001
        heapq.heapify(self.timers)
        self._timer_cancelled_count = 0

    def create_future(self) -> SimulatedFuture:
        """Return a future whose place in a set is the same in every process."""
        return SimulatedFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **others: Any
    ) -> SimulatedTask:
        """Return a task whose place in a set is the same in every process."""
        if name is None:
            name = f"{self.node}-task-{self._sequence}"  # asyncio counts over all worlds of this process
        return SimulatedTask(coro, loop=self, name=name, context=context, **others)

    def next_sequence(self) -> int:
        """Return the hash of the next task or future that is put into a set or dictionary."""
        self._sequence += 1
        return self._sequence

    def is_running(self) -> bool:
        """Return whether the loop's node is being stepped right now."""
        return events._get_running_loop() is self  # noqa: SLF001

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error, as asyncio's; a dead loop reports nothing."""
        if not self.dead:
            super().call_exception_handler(context)

    def replan(self) -> None:
        """Plan the next wake anew, because the clock's rate has changed."""
        # Virtual times are rounded to a nanosecond: a turn must not miss the timer that it was
        # woken for.
        self._resolution_s = 2e-9 * max(1.0, self.clock.rate)
        self.planned_ns = NEVER
        self.planned_timer = None
        self.scheduler.plan(self)

    def die(self) -> None:
        """Do nothing more; what the present step had still to run is not run."""
        self.runs = False
        self.dead = True
        for handle in self._ready:
            handle._cancelled = True  # noqa: SLF001 - Handle.cancel() would drop what must be kept

    def close(self) -> None:
        """Close the loop; the world does so when it buries the node."""
        self._ready.clear()
        self.timers.clear()
        self._closed = True

    def __del__(self) -> None:
        """Do nothing: a world that was made and never run holds nothing that must be closed."""

    # ---------------------------------------------------------------------------------- the network

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect over the `Network`, which says how hosts are named and how attempts end."""
        self._refuse(options, "create_connection", "ssl", "sock")
        return await self.network.connect(self, protocol_factory, str(host), int(port or 0))

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int | None = None,
        *,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.AbstractServer:
        """Listen on this node; the port None or 0 is any free one."""
        self._refuse(options, "create_server", "ssl", "sock")
        server = self.network.listen(self, protocol_factory, host, int(port or 0))
        if start_serving:
            await server.start_serving()
        return server

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.DatagramProtocol],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        """Open a socket for datagrams on the world's network."""
        self._refuse(options, "create_datagram_endpoint", "sock")
        made = self.network.datagrams.bind(self, protocol_factory, local_addr, remote_addr)
        await self.turn()
        return made

    async def turn(self) -> None:
        """Wait until what was scheduled before has run, such as ``connection_made``."""
        turned = self.create_future()
        self.call_soon(_settle, turned)
        await turned

    def _refuse(self, options: Mapping[str, Any], call: str, *names: str) -> None:
        for name in names:
            if options.get(name):
                self.forbid(f"loop.{call}({name}=...)", "connect by host and port, in the clear")

    # ------------------------------------------------------------------------------- not in a world

    def forbid(self, call: str, instead: str) -> NoReturn:
        """Refuse a call that would leave the world, and end the run."""
        error = ForbiddenCallError(f"{call} on node {self.node}: {instead}")
        self.scheduler.fail(error)
        raise error

    def run_forever(self, *_: object) -> NoReturn:
        """Raise RuntimeError, because the world steps its loops."""
        raise RuntimeError("a simulated node is stepped by its world: use World.run")

    run_until_complete: Any = run_forever

    run_in_executor: Any = _outside(
        "run_in_executor", "there are no threads in a simulation; put what blocks behind a seam"
    )
    start_tls: Any = _outside("start_tls", "connect in the clear")
    getaddrinfo: Any = _outside("getaddrinfo", "a host of the simulated network is named by its node")
    subprocess_exec: Any = _outside("subprocess_exec", "a simulated process is spawned by World.spawn")
    subprocess_shell: Any = _outside("subprocess_shell", "a simulated process is spawned by World.spawn")
    connect_accepted_socket: Any = _outside("connect_accepted_socket", "connect by host and port")
    add_signal_handler: Any = _outside("add_signal_handler", "a simulated process is told by its harness")
