"""The conduct of one test, from deployment to a finished history.

Why phases: what a verdict may claim depends on what was going on, so every phase is a row of the
history. The load goes on while everything is healed and the cluster recovers, because only
operations that succeed prove a recovery. Then the load stops, the queues are drained, and the
stores are read.

How a run ends depends on whose fault it is. A broker that misbehaves is what the test examines: it
gives rows, never an exception here. A fault of the machine is an InfrastructureError: the history
is kept and the verdict unknown. Any other exception is a bug of ours and is raised to the top.
However a run ends, faults are healed, logs are collected, and nothing is left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import nemesis
import nemesis.conductor
from checkers.schema import HARNESS
from environments.simulation.clock import EPOCH_S
from harness.history import store as stores
from harness.history.rows import HistoryRecorder
from harness.interface import (
    SUSPENDED,
    Environment,
    InfrastructureError,
    NemesisContext,
    NodePlan,
    Observer,
    Prepared,
    Recorded,
    Status,
    Steered,
    UsageError,
    WorkloadContext,
)
from harness.report.progress import Progress, RunSnapshot
from harness.run import events, view_changes, views
from harness.run.browse import FORWARDING, browse, stores_left
from harness.run.compose import Composition, randomness
from harness.run.monitor import Monitor, Watched

STOP_S: Final = 30.0
"""Seconds, beyond its operation time-out, that a workload may take to return after it must stop."""

DRAIN_S: Final = 120.0
IDLE_DRAINS: Final = 4
"""The number of consecutive drains without a delivery after which stored messages are stuck."""
FORWARDED_S: Final = 10.0
"""The seconds after which a message on its way to another broker is stuck.

A link that was full, or cut off, when everything was healed is first given up by both sides.
"""
LATE_S: Final = 0.5
"""The seconds by which brokers may be late with a message that they held back for a delay."""

RESTART_AFTER_S: Final = 1.0
"""Seconds without any fault after which a broker that ended by itself is started again."""

_DISPLAY_S: Final = 0.1
_LOG_LINES: Final = 12


class Run:
    """The conduct of one test; ``conduct`` is called once.

    Args:
        test: the test to run.
        store: its directory; must exist.
        progress: shows the state of the run while it goes on.
        recorder: takes the history, on the clock of the environment.

    ``trouble`` is why the verdict cannot be valid, ``loaded`` whether there was anything to judge,
    ``ended_s`` the loop's time of the last operation.
    """

    def __init__(self, test: Composition, store: Path, progress: Progress, recorder: HistoryRecorder) -> None:
        self.test = test
        self.store = store
        self.recorder = recorder
        self.trouble: str | None = None
        self.loaded = False
        self.ended_s: float | None = None
        self._progress = progress
        self._phase = "deploy"
        self._counters: dict[str, int] = {}
        self._in_force: dict[str, str] = {}
        self._departed: set[str] = set()
        self._restorations = 0
        self._roles: Callable[[], Mapping[str, str]] = dict

    async def conduct(self) -> None:
        """Deploy the cluster, load it, break it, heal it, drain it and browse its stores.

        The history is finished on return, whatever happened.

        The deployment stays; the caller removes it (``dismantle``). Raises InfrastructureError (the
        verdict is unknown), or whatever a bug raises.
        """
        recorder = self.recorder
        raised: list[BaseException] = []
        try:
            async with recorder:
                try:
                    await self._guarded(recorder)
                except BaseException as error:
                    raised.append(error)  # closing the recorder may raise another error instead
                    raise
        except BaseException as error:  # noqa: BLE001 - the decisive one is raised below
            # The error that ended the run is raised below; the stream stays to be judged.
            with contextlib.suppress(InfrastructureError):
                await recorder.finish()
            decisive = gravest(BaseExceptionGroup("", [*raised, error]))
            raise decisive from decisive.__cause__ or error  # its own cause may be a full disk
        await recorder.finish()

    async def dismantle(self) -> None:
        """Collect the logs and remove the deployment. May run concurrently with the checking."""
        environment = self.test.environment
        with contextlib.suppress(OSError, InfrastructureError):
            await environment.collect(self.store / stores.LOGS)
        await environment.teardown()

    # --------------------------------------------------------------------------------------- phases

    async def _guarded(self, recorder: HistoryRecorder) -> None:
        """Run the phases, the monitor, the display and the watch over the recorder concurrently.

        All end together.
        """
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: Exception) -> None:
            if not lost.done():  # after the phases closing the recorder raises the error
                lost.set_exception(error)

        recorder.on_failure = fail
        environment = self.test.environment
        monitor = Monitor(
            [self._watched(node) for node in self.test.brokers],
            recorder,
            silence_s=self.test.system.patience.silence_s,
        )
        self._roles = monitor.roles
        try:
            self._enter(recorder, "deploy")
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._display(), name="display"),
                    group.create_task(_raise(lost), name="recorder-watch"),
                ]
                await environment.deploy(self.test.system, self.test.spec, self.test.nodes, self.store)
                self.test.check_deployed()
                helpers.append(group.create_task(monitor.run(), name="monitor"))
                await self._phases(recorder, monitor)
                for helper in helpers:
                    helper.cancel()
        finally:
            await asyncio.shield(self._heal_quietly())

    async def _heal_quietly(self) -> None:
        """Heal all faults, even when the run ends by an error of its own.

        Without this, leases would heal them a little later.
        """
        with contextlib.suppress(OSError, InfrastructureError):
            await self.test.environment.heal_all()

    async def _phases(self, recorder: HistoryRecorder, monitor: Monitor) -> None:
        spec = self.test.spec
        self._enter(recorder, "start")
        await self._start_nodes(monitor)
        workload = WorkloadContext(
            spec=spec,
            recorder=recorder,
            dialect=self.test.system.dialect,
            random=randomness(spec, "workload"),
            nodes=self.test.nodes,
            zones=self.test.environment.zones,
            resolve=lambda zone, node: self.test.environment.resolve(zone, node, "stomp"),
            stopping=asyncio.Event(),
            administer=self._administer,
            zero_ms=zero_ns(self.test.environment, recorder) // 1_000_000,
            redelivery_s=self.test.system.promises(spec).redelivery_s,
            counters=self._counters,
            suspended_s=self._suspended_s(),
            joining=nemesis.held_back(self.test.schedule),
            departed=self._departed,
        )
        self._enter(recorder, "load")
        self.loaded = True
        watching: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
        if spec.watch_views:
            watching = _background(view_changes.watch(self.test, monitor.roles, recorder), "views")
        async with self._loading(workload), watching:
            await self._break(recorder, monitor)
            await self._heal()
            agree_by = asyncio.get_running_loop().time() + spec.recovery_bound_s
            # A live that lost its vote under the last fault may end only now, and then has to be
            # started again.
            async with _background(self._supervise(recorder, set()), "supervisor"):
                recovered = await self._recovery(monitor)
            if recovered is None:
                unproved = (
                    "no operation of a client ended while the cluster was given time to recover"
                    if self._whole_pairs()
                    else "each pair lacks a broker that has left"
                )
                self._trouble(f"{unproved}: whether the cluster recovered cannot be said")
            else:
                self._enter(recorder, "recovered" if recovered else "not-recovered")
        if recovered is not False:
            await monitor.until(self._settled, self.test.system.patience.settle_s)
            if not views.hopeless(monitor.statuses().values()):
                left_s = agree_by - asyncio.get_running_loop().time()
                await views.catch_up(self.test, monitor.roles, left_s)
                left_s = agree_by - asyncio.get_running_loop().time()
                await views.recall(self.test, monitor.roles, recorder, left_s)
                if spec.compare_backups:
                    await views.compare(self.test, monitor.roles, recorder)
        self._check_drainable()
        self._enter(recorder, "drain")
        await self._drain(workload, monitor)
        quiet_s = self.test.system.dialect.quiet_s(spec.quiet_period_s)
        self.ended_s = asyncio.get_running_loop().time() - quiet_s
        await self._bring_back(monitor)
        self._enter(recorder, "browse")
        await browse(self.test, monitor.roles, recorder)
        if recovered is not False:
            left_s = agree_by - asyncio.get_running_loop().time()
            hopeless = views.hopeless(monitor.statuses().values())
            await views.look(self.test, monitor.roles, recorder, 0.0 if hopeless else left_s)
        self._enter(recorder, "end")

    def _enter(self, recorder: HistoryRecorder, phase: str) -> None:
        self._phase = phase
        recorder.event(HARNESS, "info", "phase", value=phase)
        self._show()

    async def _start_nodes(self, monitor: Monitor) -> None:
        """Start the nodes that the schedule does not hold back; wait for the planned cluster.

        Raises InfrastructureError if a broker ends or the cluster is not as planned in time.
        """
        patience_s = self.test.system.patience.start_s
        held_nodes = nemesis.held_back(self.test.schedule)
        nodes = [node for node in self.test.nodes if node.name not in held_nodes]
        starting = [node.name for node in nodes]
        async with asyncio.TaskGroup() as group:
            for name in starting:
                group.create_task(self._start(name, starting, monitor))

        def planned(statuses: Mapping[str, Status]) -> bool:
            return not self._lacking(nodes, statuses)

        ready = asyncio.ensure_future(monitor.until(planned, patience_s))
        ends = {asyncio.ensure_future(self.test.environment.wait_exit(name)): name for name in starting}
        try:
            await asyncio.wait([ready, *ends], return_when=asyncio.FIRST_COMPLETED)
            ended = [(name, task.result()) for task, name in ends.items() if task.done()]
            if ended:
                name, status = ended[0]
                raise InfrastructureError(
                    f"broker {name} ended while it started (exit status {status})"
                    + await self._last_words(name)
                )
            if not await ready:
                name, reason = next(iter(self._lacking(nodes, monitor.statuses()).items()))
                raise InfrastructureError(
                    f"after {patience_s:g} s {reason}; roles: "
                    + ", ".join(f"{node} {role}" for node, role in monitor.roles().items())
                    + await self._last_words(name)
                )
            if isinstance(self.test.system, Prepared):
                await self.test.system.prepare(
                    self.test.spec, {name: self.test.admin(name) for name in starting}
                )
        finally:
            for task in (ready, *ends):
                task.cancel()
            await asyncio.gather(ready, *ends, return_exceptions=True)

    def _lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return the brokers that are not as planned, before those that are held back start.

        A broker that a fault suspends may serve: that is for the expectations to judge.
        """
        suspended = nemesis.suspended(self.test.schedule)
        lacking = {}
        for name, reason in self.test.system.lacking(nodes, statuses).items():
            if name not in suspended:
                lacking[name] = reason
            elif name not in statuses or statuses[name].role != SUSPENDED:
                lacking[name] = f"{name} is not suspended, and {reason}"
        return lacking

    def _suspended_s(self) -> float:
        """Return for how long clients may find suspended brokers only (s); 0 if none is."""
        ends = nemesis.suspended(self.test.schedule).values()
        return max(ends) + self.test.system.patience.start_s if ends else 0.0

    async def _start(self, name: str, starting: Sequence[str], monitor: Monitor) -> None:
        """Start a node, after the node that must be live before it."""
        environment = self.test.environment
        before = next(node.after for node in self.test.nodes if node.name == name)
        if before in starting:
            assert before is not None

            def live(statuses: Mapping[str, Status]) -> bool:
                return before in statuses and statuses[before].serves

            await monitor.until(live, self.test.system.patience.start_s)
        await environment.start(name)

    def _expected(self) -> list[NodePlan]:
        """Return the nodes that must run while there is load: all that have not left."""
        return [node for node in self.test.nodes if node.name not in self._departed]

    def _whole_pairs(self) -> list[tuple[NodePlan, ...]]:
        """Return the brokers of each pair of which no broker has left."""
        pairs = self.test.pairs.values()
        return [nodes for nodes in pairs if self._departed.isdisjoint(node.name for node in nodes)]

    def _settled(self, statuses: Mapping[str, Status]) -> bool:
        """Return whether every pair is as planned, or has no broker left that can become a backup.

        Two live brokers of a pair stay live: waiting for a backup would be in vain.
        """
        lacking = self.test.system.lacking(self._expected(), statuses)
        return all(
            all(node.name in statuses and statuses[node.name].serves for node in nodes)
            for nodes in self._whole_pairs()
            if any(node.name in lacking for node in nodes)
        )

    @contextlib.asynccontextmanager
    async def _loading(self, context: WorkloadContext) -> AsyncIterator[None]:
        """Run the workload while the body runs; then tell it to stop, and wait for it."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.test.workload.run(context), name="workload")
            yield
            context.stopping.set()
            patience_s = self.test.spec.operation_timeout_s + STOP_S
            done, _ = await asyncio.wait([task], timeout=patience_s)
            if not done:
                raise RuntimeError(f"the workload did not stop within {patience_s:g} s of being told to")

    async def _break(self, recorder: HistoryRecorder, monitor: Monitor) -> None:
        """Let the nemesis work for the time limit of the test.

        When it ends, the nemesis heals the faults that are still in force.
        """
        spec = self.test.spec
        listening = None
        if events.needed(self.test.schedule):
            listening = events.LogFollower(
                self.test.environment, [node.name for node in self.test.nodes], self.test.system.events
            )
        context = NemesisContext(
            spec=spec,
            recorder=recorder,
            environment=self.test.environment,
            random=randomness(spec, "nemesis"),
            nodes=self.test.nodes,
            zones=self.test.environment.zones,
            roles=monitor.roles,
            stop_cleanly=self._stop_cleanly,
            administer=self._administer,
            restore_record=self._restore_record,
            in_force=self._in_force,
            departed=self._departed,
            events=listening,
        )
        conducting = asyncio.create_task(nemesis.conductor.run(self.test.schedule, context), name="nemesis")
        end = asyncio.get_running_loop().time() + spec.time_limit_s
        following = contextlib.nullcontext() if listening is None else _background(listening.run(), "events")
        held_nodes = {*nemesis.held_back(self.test.schedule)}
        async with _background(self._supervise(recorder, held_nodes), "supervisor"), following:
            try:
                done, _ = await asyncio.wait([conducting], timeout=spec.time_limit_s)
                if done:
                    conducting.result()
                    await asyncio.sleep(end - asyncio.get_running_loop().time())
                self._enter(recorder, "heal")
            finally:
                await _end(conducting)
        if context.missed:
            self.trouble = "; ".join(context.missed)

    async def _stop_cleanly(self, node: str, failover: bool | None) -> None:
        is_broker = any(node == broker.name for broker in self.test.brokers)
        if is_broker and await self.test.system.stop(self.test.admin(node), failover=failover) is not False:
            return
        await self.test.environment.terminate(node)

    async def _administer(self, node: str, command: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        system = self.test.system
        if not isinstance(system, Steered):
            raise InfrastructureError(f"brokers of {system.name} have no command {command}")
        return await system.administer(self.test.admin(node), command, arguments)

    async def _restore_record(self, node: str, backup: Mapping[str, Any]) -> None:
        system, spec = self.test.system, self.test.spec
        if not isinstance(system, Recorded):
            raise InfrastructureError(f"brokers of {system.name} keep no change record")
        chance = randomness(spec, f"record:{self._restorations}")
        self._restorations += 1
        edit = partial(system.restore_record, node, backup, chance)
        await self.test.environment.edit_data(node, edit)

    async def _supervise(self, recorder: HistoryRecorder, held_nodes: set[str]) -> None:
        """Restart nodes that ended by themselves, as a service manager would.

        A node is restarted once no fault has been in force for ``RESTART_AFTER_S``. The nodes that
        the schedule held back (``held_nodes``) are restarted only after they have run once. Why not
        at once: a live that lost its vote must stay away while the cause lasts. Why at all: with
        brokers missing for the rest of the load, every later fault would meet a cluster that has no
        majority and nothing to lose.
        """
        environment = self.test.environment
        quiet_since: float | None = None
        while True:
            await asyncio.sleep(RESTART_AFTER_S / 4)
            for name in tuple(held_nodes):
                if await environment.running(name):
                    held_nodes.discard(name)
            now = asyncio.get_running_loop().time()
            if self._in_force:
                quiet_since = None
                continue
            quiet_since = now if quiet_since is None else quiet_since
            if now - quiet_since < RESTART_AFTER_S:
                continue
            for node in self._expected():
                ended = node.name not in held_nodes and not await environment.running(node.name)
                if ended and not self._in_force:  # a fault may have begun during the question, and ended it
                    recorder.event(HARNESS, "info", "restart", broker=node.name)
                    await environment.start(node.name)

    def _watched(self, node: NodePlan) -> Watched:
        """Return a node as the monitor watches it.

        Its broker is asked by its admin port, or directly if it lives in this process.
        """
        environment = self.test.environment
        near = environment if isinstance(environment, Observer) else None
        return Watched(
            name=node.name,
            ask=partial(self._ask, node.name),
            running=partial(environment.running, node.name),
            look=None if near is None else partial(near.look, node.name),
            shares=node.store is not None or node.database is not None,
        )

    async def _ask(self, node: str) -> Status:
        return await self.test.system.status(self.test.admin(node))

    async def _heal(self) -> None:
        """Heal all faults and start every node that does not run and has not left."""
        environment = self.test.environment
        await environment.heal_all()
        for node in self._expected():
            if not await environment.running(node.name):
                await environment.start(node.name)

    async def _recovery(self, monitor: Monitor) -> bool | None:
        """Return whether every pair gets a live broker and operations succeed within the bound.

        None if no operation ended: clients so slow prove neither recovery nor its absence. The same
        holds if each pair lacks a broker that has left.
        """
        if not self._whole_pairs():
            return None
        # An attached cluster's own way to report roles may be slow, which proves nothing against
        # the brokers.
        has_roles = self.test.spec.attached is None

        def served(statuses: Mapping[str, Status]) -> bool:
            return not has_roles or all(
                any(statuses[node.name].serves for node in nodes if node.name in statuses)
                for nodes in self._whole_pairs()
            )

        attempts = self._completed()
        bound_s = self.test.spec.recovery_bound_s + self.test.system.patience.restart_s
        try:
            async with asyncio.timeout(bound_s):
                while True:
                    await monitor.until(served, bound_s)
                    before = self._counters.get("ok", 0)
                    while served(monitor.statuses()):
                        if self._counters.get("ok", 0) > before:
                            return True
                        await asyncio.sleep(_DISPLAY_S)
        except TimeoutError:
            return None if served(monitor.statuses()) and self._completed() == attempts else False

    def _completed(self) -> int:
        return sum(self._counters.get(completion, 0) for completion in ("ok", "fail", "info"))

    async def _drain(self, context: WorkloadContext, monitor: Monitor) -> None:
        """Consume the rest of the messages, repeatedly while stores show that some are left.

        A broker of a busy machine may stand still for the quiet period and deliver afterwards. So a
        message is stuck only if several new consumers in turn did not get it, and if the delay has
        passed for which brokers hold back what was refused or rolled back at the end of the load.
        One that is on its way to another broker has ``FORWARDED_S`` besides.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + context.redelivery_s + LATE_S
        forwarded_s = loop.time() + FORWARDED_S
        idle = 0
        remaining = frozenset[str]()
        try:
            async with asyncio.timeout(DRAIN_S):
                while True:
                    before = self._counters.get("deliver", 0)
                    await self.test.workload.drain(context)
                    idle = idle + 1 if self._counters.get("deliver", 0) == before else 0
                    late_s = max(due_s, forwarded_s) if FORWARDING in remaining else due_s
                    if idle >= IDLE_DRAINS and loop.time() >= late_s:
                        return
                    remaining = await stores_left(self.test, monitor.roles())
                    if not remaining:
                        return
        except TimeoutError:
            self._trouble(
                f"the queues could not be drained within {DRAIN_S:g} s: what was left cannot "
                "be told from what was lost"
            )

    def _check_drainable(self) -> None:
        """Raise InfrastructureError if every node at which the drain would consume has left.

        Without a consumer anywhere, what is left in the stores says nothing about the brokers.
        """
        names = {node.name for node in self.test.brokers}
        names &= set(self.test.spec.drain_at) or names
        if names <= self._departed:
            have = "has" if len(names) == 1 else "have"
            raise InfrastructureError(
                f"the queues could not be drained: {', '.join(sorted(names))} {have} left"
            )

    async def _bring_back(self, monitor: Monitor) -> None:
        """Start the nodes that have left, so that their stores can be read.

        No client is there any more. A broker that does not come up is recorded as unread.
        """
        for name in sorted(self._departed):
            if not await self.test.environment.running(name):
                await self.test.environment.start(name)

        def planned(statuses: Mapping[str, Status]) -> bool:
            return not self.test.system.lacking(self.test.nodes, statuses)

        if self._departed:
            await monitor.until(planned, self.test.system.patience.settle_s)

    def _trouble(self, words: str) -> None:
        self.trouble = "; ".join(filter(None, (self.trouble, words)))

    async def _last_words(self, node: str) -> str:
        """Return the end of a broker's log, for an error message."""
        logs = self.store / stores.LOGS
        try:
            await self.test.environment.collect(logs)
        except (OSError, InfrastructureError) as error:
            return f"; its log could not be read: {error}"
        lines = [
            line
            for file in sorted((logs / node).rglob("*"))
            if file.is_file()
            for line in file.read_text(errors="replace").splitlines()
        ]
        if not lines:
            return f"; {node} logged nothing"
        return f"; {node} logged last:\n" + "\n".join(f"    {line}" for line in lines[-_LOG_LINES:])

    # -------------------------------------------------------------------------------------- display

    async def _display(self) -> None:
        while True:
            self._show()
            await asyncio.sleep(_DISPLAY_S)

    def _show(self) -> None:
        self._progress.update(
            RunSnapshot(
                phase=self._phase,
                elapsed_s=self.recorder.now_ns() / 1e9,
                counters=dict(self._counters),
                faults=dict(self._in_force),
                roles=dict(self._roles()),
            )
        )


@contextlib.asynccontextmanager
async def _background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run the task while the ``async with`` body runs; cancel it afterwards."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        await _end(task)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait until it has ended, however long that takes; raise what it raised.

    If the waiting itself is cancelled, that cancellation is raised at the end: it must not be taken
    for the task's.
    """
    task.cancel()
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            interruption = error
    if not task.cancelled():
        task.result()
    if interruption is not None:
        raise interruption


async def _raise(failure: asyncio.Future[None]) -> None:
    await failure


def gravest(error: BaseException) -> BaseException:
    """Return the one exception that decides how a run ends.

    A bug decides before a fault of the machine, that before a usage error, and a cancellation last.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error

    def lightness(single: BaseException) -> int:
        order = (asyncio.CancelledError, UsageError, InfrastructureError)
        return next((-rank for rank, kind in enumerate(order) if isinstance(single, kind)), -len(order))

    return min((gravest(single) for single in error.exceptions), key=lightness)


def zero_ns(environment: Environment, recorder: HistoryRecorder) -> int:
    """Return what a correct clock shows at the history's time zero, in ns since the epoch."""
    offset_ns = EPOCH_S * 1_000_000_000 if environment.virtual else time.time_ns() - environment.clock_ns()
    return recorder.zero_ns + offset_ns
