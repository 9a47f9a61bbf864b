"""The conductor, which carries a schedule out.

It injects each fault at its time, proves it by probes, records it, and heals it whatever happens.

A fault is a task with one life. It writes the invoke row, injects the fault, probes until the
effect is seen, and writes the info row. Then the fault lasts for its time, while its lease is
renewed, and is healed in the same steps. A fault that cannot be injected becomes a row that says
so, and never a crash of the run: it is no finding about the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec

from harness.interface import InfrastructureError, NemesisContext, Schedule, UsageError
from nemesis import registry
from nemesis.kind import CannotBeginError, FaultActions, Impact, Injection, Kind, Situation

NEMESIS: Final = -1
"""The process number of nemesis rows in a history."""

RENEW_S: Final = 1.0
"""The seconds between two renewals of a lease.

Leases of environments last 5 s by default, so four renewals may fail before a fault heals by
itself.
"""

OBSERVE_S: Final = 2.0
OBSERVE_EVERY_S: Final = 0.1
PROBE_PATIENCE_S: Final = 5.0

_log = logging.getLogger(__name__)

_EXPECTED: Final = (CannotBeginError, InfrastructureError, UsageError, OSError, TimeoutError)


async def run(schedule: Schedule, context: NemesisContext) -> None:
    """Carry out all faults; time counts from this call. Returns when all are healed.

    A fault without a duration lasts until this call is cancelled; cancelling heals whatever is in
    force before it ends.
    """
    actions = FaultActions(
        context.environment, context.stop_cleanly, context.administer, context.restore_record
    )
    began_s = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for place, fault in enumerate(schedule.faults, 1):
            # Each fault has a generator of its own, so that its choices do not depend on when
            # another fault begins.
            chance = random.Random(context.random.getrandbits(64))
            impact = Impact(fault.target, fault.shape)
            life = _Life(Injection(f"{fault.kind}-{place}", fault, impact, actions, chance), context)
            group.create_task(life.run(began_s), name=f"fault {life.label}")


class _Life:
    """The life of a fault, from its beginning to its healing."""

    def __init__(self, injection: Injection, context: NemesisContext) -> None:
        self.label = injection.label
        self._injection = injection
        self._fault = injection.fault
        self._actions = injection.actions
        self._kind: Kind = registry.get(injection.fault.kind)
        self._context = context
        self._lost: str | None = None
        self._begun = False

    async def run(self, began_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._fault.after is not None:
            await self._event(self._fault.after)
            began_s = loop.time()
        start_s = began_s + self._fault.start_s
        await asyncio.sleep(start_s - loop.time())
        try:
            if await self._begin() and not self._kind.for_good:
                await self._last(start_s)
        finally:
            # Also when cancelled, and also when injecting was interrupted half-way.
            if self._begun and not self._kind.for_good:
                await self._end()

    async def _event(self, event: str) -> None:
        """Wait for an event.

        If the event never comes, the history says so, and ``context.missed`` makes it a trouble of
        the run.
        """
        events = self._context.events
        assert events is not None, f"{self.label} waits for {event} and nobody listens"
        try:
            await events.wait(event)
        except asyncio.CancelledError:
            words = f"{event} never came"
            self._context.missed.append(f"{self.label} was not injected: {words}")
            self._record("invoke", self._fault.kind)
            self._record("info", self._fault.kind, observed={}, bit=False, error=words)
            raise

    async def _begin(self) -> bool:
        """Inject the fault, observe and record it; return False if it could not be injected."""
        fault, kind, context = self._fault, self._kind, self._context
        parts = {} if context.events is None else dict(context.events.parts())
        situation = Situation(
            context.nodes, context.zones, dict(context.roles()), self._injection.random, parts
        )
        try:
            self._injection.impact = kind.plan(fault, situation)
        except CannotBeginError as error:
            self._record("invoke", fault.kind)
            self._record("info", fault.kind, observed={}, bit=False, error=str(error))
            return False
        self._record("invoke", fault.kind)
        observed: Mapping[str, str] = {}
        try:
            nodes = self._injection.impact.nodes
            before = await self._actions.states(nodes) if nodes else {}
            self._begun = True
            if kind.for_good:
                context.departed.update(nodes)
            else:
                context.in_force[self.label] = self._describe()
            await self._inject()
            async with self._renewing():
                observed = await self._observe(lambda seen: kind.bit(before, seen))
        except asyncio.CancelledError:
            self._record("info", fault.kind, observed=observed, bit=False, error="ended before it was seen")
            raise
        except Exception as error:  # noqa: BLE001 - after any error the test goes on, and the history says so
            words = self._complain("was not injected", error)
            self._record("info", fault.kind, observed=observed, bit=False, error=words)
            return False
        told = {
            name: "gone already" if before.get(name) == phrase == "gone" and kind.primitives else phrase
            for name, phrase in observed.items()
        }
        self._record("info", fault.kind, observed=told, bit=kind.bit(before, observed))
        return True

    async def _inject(self) -> None:
        """Begin the fault; even if that is cancelled, keep its lease, which healing needs."""
        begin = asyncio.ensure_future(self._kind.begin(self._injection))
        try:
            self._injection.lease = await asyncio.shield(begin)
        except asyncio.CancelledError:
            await asyncio.wait([begin])
            if not begin.cancelled() and begin.exception() is None:
                self._injection.lease = begin.result()
            raise

    async def _last(self, start_s: float) -> None:
        """Let the fault last for its time, counted from its start."""
        loop = asyncio.get_running_loop()
        async with self._renewing():
            if self._fault.duration_s is None:
                await loop.create_future()
            else:
                await asyncio.sleep(start_s + self._fault.duration_s - loop.time())

    async def _end(self) -> None:
        """Heal the fault, and record what probes saw of that."""
        f = f"heal:{self._fault.kind}"
        self._record("invoke", f)
        observed: Mapping[str, str] = {}
        error = self._lost
        try:
            await self._kind.end(self._injection)
            observed = await self._observe(self._kind.healed)
        except Exception as caught:  # noqa: BLE001 - as above
            error = self._complain("was not healed", caught)
        finally:
            self._context.in_force.pop(self.label, None)
        told = {name: self._kept(name, phrase) for name, phrase in observed.items()}
        self._record(
            "info", f, observed=told, bit=bool(observed) and self._kind.healed(observed), error=error
        )

    async def _observe(self, seen: Callable[[Mapping[str, str]], bool]) -> Mapping[str, str]:
        """Probe until ``seen`` holds or ``OBSERVE_S`` has passed; return the last observation."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OBSERVE_S
        while True:
            async with asyncio.timeout(PROBE_PATIENCE_S):
                observed = await self._kind.look(self._injection)
            if seen(observed) or loop.time() >= deadline:
                return observed
            await asyncio.sleep(OBSERVE_EVERY_S)

    @contextlib.asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        """Renew the lease while the `async with` body runs; stop afterwards."""
        task = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self) -> None:
        """Renew the lease until cancelled.

        If the lease ends before its time, the reason is kept for the heal row.
        """
        lease = self._injection.lease
        if lease is None or self._lost is not None:
            return
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self._actions.environment.renew(lease)
            except Exception as error:  # noqa: BLE001 - as above
                self._lost = self._complain("was not renewed", error)
                return

    def _kept(self, node: str, phrase: str) -> str:
        """Return a probe's phrase, with the fault that keeps the node down if there is another.

        A node that is still gone because of another fault is no failure to heal this one.
        """
        others = sorted(self._actions.down.get(node, set()) - {self.label})
        return f"{phrase}, kept down by {others[0]}" if phrase == "gone" and others else phrase

    def _complain(self, what: str, error: Exception) -> str:
        """Log an error and return its first cause in words; an unexpected one is logged in full."""
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        words = str(cause) or type(cause).__name__
        trace = None if isinstance(cause, _EXPECTED) else cause
        _log.warning("nemesis: %s %s: %s", self.label, what, words, exc_info=trace)
        return words

    def _describe(self) -> str:
        impact = self._injection.impact
        return " ".join(part for part in (self._fault.kind, impact.shape, impact.target) if part)

    def _record(
        self,
        type_: str,
        f: str,
        *,
        observed: Mapping[str, str] | None = None,
        bit: bool | None = None,
        error: str | None = None,
    ) -> None:
        impact = self._injection.impact
        value: dict[str, Any] = {
            "label": self.label,
            "shape": impact.shape,
            "target": impact.target,
            "links": [f"{link.source}->{link.target}" for link in impact.links],
            "nodes": list(impact.nodes),
        }
        if observed is not None:
            value["observed"] = dict(observed)
            value["bit"] = bit
        if self._fault.options and type_ == "invoke":
            value["options"] = self._fault.options
        text = msgspec.json.encode(value, order="deterministic").decode()
        self._context.recorder.event(NEMESIS, type_, f, error=error, value=text)
