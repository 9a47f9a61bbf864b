"""The faults in force at one place, and what all of them together mean for its parts.

Why a part is always told all faults: faults overlap, and healing one must leave the others in
force. So nothing is switched on or off; whenever a fault begins or ends, its part is told all its
faults in force.

A board heals by itself whatever is not renewed, even if the process that asked for the fault is
gone. This module imports only the standard library: agents run where nothing else may be installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from environments.lease import LeaseTable
from environments.part import Part, PartFault

if TYPE_CHECKING:
    from harness.interface import Link

EXPIRY_STEP_S: Final = 0.001
"""The shortest time between two looks at the leases.

A timer's rounding may leave the end of a lease a hair ahead of a clock that does not move.
"""

AGAIN_S: Final = 1.0
"""The time after which healing that failed is tried again."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep faults from being healed
        print(text, file=sys.stderr, flush=True)


class FaultBoard:
    """Leases of faults, each of one part or of several.

    ``prefix`` begins the names of leases. ``say`` gets a line for each fault that was not renewed,
    and for each that could not be healed at once.
    """

    def __init__(
        self, parts: Iterable[Part], *, prefix: str = "lease", say: Callable[[str], None] = _say
    ) -> None:
        self.parts = tuple(parts)
        self._leases: LeaseTable[tuple[PartFault, ...]] = LeaseTable(_now_s, prefix=prefix)
        self.say = say
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._mending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def inject(
        self,
        primitive: str,
        links: Sequence[Link],
        nodes: Sequence[str],
        options: Mapping[str, Any],
        lease_s: float,
    ) -> str:
        """Begin a fault and return the name of its lease. Raises ValueError as `fault` does."""
        fault = self.fault(primitive, links, nodes, options)
        taken, others = (links, nodes) if fault.part.of_links else (nodes, links)
        if others or not taken:
            what = "links, no nodes" if fault.part.of_links else "nodes, no links"
            raise ValueError(f"{primitive}: takes {what}")
        if primitive in fault.part.momentary:
            await fault.part.strike(fault)
        return await self.begin([fault], lease_s)

    def fault(self, primitive: str, links: Sequence[Link], nodes: Sequence[str], options: Any) -> PartFault:
        """Return a fault of the part that has this primitive.

        Raises ValueError if no part has it, and whatever the part raises for the options.
        """
        part = next((part for part in self.parts if primitive in part.primitives), None)
        if part is None:
            known = [name for part in self.parts for name in part.primitives]
            raise ValueError(f"no fault {primitive!r}; there are {', '.join(known)}")
        asked = PartFault(part, primitive, tuple(links), tuple(nodes), options)
        return replace(asked, wanted=part.wanted(asked))

    async def begin(self, faults: Iterable[PartFault], lease_s: float) -> str:
        """Put faults in force under one lease, and return its name when they are.

        If this fails for one of them, none is in force.
        """
        faults = tuple(faults)
        lease = self._leases.inject(faults, lease_s)
        self._watch()
        try:
            await self._applied(faults, healing=False)
        except BaseException:  # cancelled, too: the caller has gone
            self._leases.heal(lease)
            with contextlib.suppress(Exception):  # it is tried again
                await self._applied(faults, healing=True)
            raise
        return lease

    async def renew(self, lease: str) -> None:
        """Let a fault last for another full lease.

        Raises LeaseExpiredError if the lease has ended, UnknownLeaseError if it never existed.
        """
        self._leases.renew(lease)

    async def heal(self, lease: str) -> None:
        """End a fault; does nothing if it has ended by itself.

        Raises UnknownLeaseError if the lease never existed.
        """
        await self._applied(self._leases.heal(lease) or (), healing=True)

    async def heal_all(self) -> None:
        """End all faults, the newest first."""
        over = [fault for faults in self._leases.heal_all() for fault in faults]
        await self._applied(over, healing=True)

    def in_force(self, part: Part) -> list[PartFault]:
        """Return the faults of a part that are in force, oldest first."""
        return [fault for faults in self._leases.in_force() for fault in faults if fault.part is part]

    def look(self, names: Sequence[str]) -> Awaitable[list[str]]:
        """Return how nodes ("a1") and parts of nodes ("a1/disk") are now, looking at all at once.

        Raises ValueError for an unknown part.
        """
        return asyncio.gather(*[self._look(name) for name in names])

    async def close(self) -> None:
        """Stop watching over leases, and close all parts."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for part in self.parts:
            await part.close()

    async def _look(self, name: str) -> str:
        node, _, of = name.partition("/")
        part = next((part for part in self.parts if part.name == of and not part.of_links), None)
        if part is None:
            raise ValueError(f"nobody can look at {name!r}")
        return await part.look(node)

    async def _applied(self, faults: Sequence[PartFault], *, healing: bool) -> None:
        """Call `_apply` and wait for it; its task goes on even if this wait is cancelled."""
        task = self._apply(faults, healing=healing)
        if task is not None:
            await asyncio.shield(task)

    def _apply(self, faults: Sequence[PartFault], *, healing: bool) -> asyncio.Task[None] | None:
        """Bring the parts of faults that began or ended into the state that all in force imply.

        A task finishes the steps that take time, and those that failed.
        """
        steps = [(fault, step) for fault in faults if (step := self._step(fault)) is not None]
        if not steps:
            return None
        task = asyncio.get_running_loop().create_task(self._finish(steps, healing=healing))
        self._mending.add(task)
        task.add_done_callback(self._finished)
        return task

    def _step(self, fault: PartFault) -> Awaitable[None] | None:
        try:
            return fault.part.apply(self.in_force(fault.part), fault)
        except Exception as error:  # noqa: BLE001 - the parts of the other faults must still be told
            return _failed(error)

    async def _finish(self, steps: Sequence[tuple[PartFault, Awaitable[None]]], *, healing: bool) -> None:
        outcomes = await asyncio.gather(*(step for _, step in steps), return_exceptions=True)
        failed = {
            fault: outcome
            for (fault, _), outcome in zip(steps, outcomes, strict=True)
            if isinstance(outcome, BaseException)
        }
        if not failed:
            return
        error = next(iter(failed.values()))
        if healing:  # perhaps no caller is left to see the error, and nothing must stay broken
            self.say(f"healing failed, trying again: {error}")
            asyncio.get_running_loop().call_later(AGAIN_S, self._again, tuple(failed))
        raise error

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._mending.discard(task)
        if not task.cancelled():
            task.exception()  # a waiting caller gets the error; without one, ``say`` has it

    def _again(self, faults: Sequence[PartFault]) -> None:
        if not self._closed:
            self._apply(faults, healing=True)

    def _watch(self) -> None:
        """Set the timer for the end of the next lease; a renewal is noticed when it fires."""
        expiry = self._leases.next_expiry()
        if expiry is None or (self._timer is not None and self._wakes_at <= expiry):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = max(expiry, _now_s() + EXPIRY_STEP_S)
        self._timer = asyncio.get_running_loop().call_at(self._wakes_at, self._expire)

    def _expire(self) -> None:
        """Heal the faults whose leases have run out, and watch the leases that remain."""
        self._timer = None
        for lease, faults in self._leases.expire():
            for fault in faults:
                if fault.primitive not in fault.part.momentary:
                    self.say(f"{lease} was not renewed, healed: {fault}")
            self._apply(faults, healing=True)
        self._watch()


async def _failed(error: Exception) -> None:
    raise error
