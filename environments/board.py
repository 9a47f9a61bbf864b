"""The faults in force at one place, and what all of them together mean for its parts.

Why always anew: faults overlap, and healing one must leave the others in force. So nothing is
switched on or off; a part is told all its faults whenever one begins or ends.

Whoever runs a board heals what nobody renews, whether or not there is still anybody to ask it for
that. Only the standard library is imported here: agents run where nothing else may be installed.
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
"""Leases are looked at again no sooner: a timer's rounding may leave the end of one a hair ahead of
a time that does not move.
"""

AGAIN_S: Final = 1.0
"""What could not be healed is tried again after this long."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep anything from being healed
        print(text, file=sys.stderr, flush=True)


class FaultBoard:
    """Leases of faults, each of one part or of several.

    ``prefix`` begins the names of leases; ``say`` gets a line for each
    fault that was not renewed, and for each that could not be healed at once.
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
        """Begin a fault; its lease. Raises ValueError as `fault`."""
        fault = self.fault(primitive, links, nodes, options)
        taken, others = (links, nodes) if fault.part.of_links else (nodes, links)
        if others or not taken:
            what = "links, no nodes" if fault.part.of_links else "nodes, no links"
            raise ValueError(f"{primitive}: takes {what}")
        if primitive in fault.part.momentary:
            await fault.part.strike(fault)
        return await self.begin([fault], lease_s)

    def fault(self, primitive: str, links: Sequence[Link], nodes: Sequence[str], options: Any) -> PartFault:
        """A fault of that part which has it. Raises ValueError if none has, or as the part."""
        part = next((part for part in self.parts if primitive in part.primitives), None)
        if part is None:
            known = [name for part in self.parts for name in part.primitives]
            raise ValueError(f"no fault {primitive!r}; there are {', '.join(known)}")
        asked = PartFault(part, primitive, tuple(links), tuple(nodes), options)
        return replace(asked, wanted=part.wanted(asked))

    async def begin(self, faults: Iterable[PartFault], lease_s: float) -> str:
        """Put faults in force under one lease; returns when they are.

        If that fails for one, none is in force.
        """
        faults = tuple(faults)
        lease = self._leases.inject(faults, lease_s)
        self._watch()
        try:
            await self._applied(faults, healing=False)
        except BaseException:  # cancelled too: whoever asked has gone
            self._leases.heal(lease)
            with contextlib.suppress(Exception):  # it is tried again
                await self._applied(faults, healing=True)
            raise
        return lease

    async def renew(self, lease: str) -> None:
        """Let a fault last for another full lease.

        LeaseExpiredError if it has ended, UnknownLeaseError if there never was one.
        """
        self._leases.renew(lease)

    async def heal(self, lease: str) -> None:
        """End a fault; nothing to do if it has ended by itself.

        UnknownLeaseError if there never was one.
        """
        await self._applied(self._leases.heal(lease) or (), healing=True)

    async def heal_all(self) -> None:
        """End all faults, the newest first."""
        over = [fault for faults in self._leases.heal_all() for fault in faults]
        await self._applied(over, healing=True)

    def in_force(self, part: Part) -> list[PartFault]:
        """The faults of a part, oldest first."""
        return [fault for faults in self._leases.in_force() for fault in faults if fault.part is part]

    def look(self, names: Sequence[str]) -> Awaitable[list[str]]:
        """How nodes ("a1") and parts of them ("a1/disk") are now, all at once.

        Raises ValueError for what there is not.
        """
        return asyncio.gather(*[self._look(name) for name in names])

    async def close(self) -> None:
        """Watch over nothing any more, and end all parts."""
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
        """`_apply`, and wait; what takes time goes on even if nobody waits any more."""
        task = self._apply(faults, healing=healing)
        if task is not None:
            await asyncio.shield(task)

    def _apply(self, faults: Sequence[PartFault], *, healing: bool) -> asyncio.Task[None] | None:
        """Bring the parts of faults that began or ended into the state that all in force imply.

        What takes time, or failed, is left to a task.
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
        except Exception as error:  # noqa: BLE001 - the parts of other faults must be told all the same
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
        if healing:  # nobody may be there to be told, and nothing must stay broken
            self.say(f"healing failed, trying again: {error}")
            asyncio.get_running_loop().call_later(AGAIN_S, self._again, tuple(failed))
        raise error

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._mending.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits is told; if nobody does, it was said

    def _again(self, faults: Sequence[PartFault]) -> None:
        if not self._closed:
            self._apply(faults, healing=True)

    def _watch(self) -> None:
        """Wake up when the next lease runs out; a renewal is noticed then."""
        expiry = self._leases.next_expiry()
        if expiry is None or (self._timer is not None and self._wakes_at <= expiry):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = max(expiry, _now_s() + EXPIRY_STEP_S)
        self._timer = asyncio.get_running_loop().call_at(self._wakes_at, self._expire)

    def _expire(self) -> None:
        """Heal what nobody has renewed, and look again while there is anything to look at."""
        self._timer = None
        for lease, faults in self._leases.expire():
            for fault in faults:
                if fault.primitive not in fault.part.momentary:
                    self.say(f"{lease} was not renewed, healed: {fault}")
            self._apply(faults, healing=True)
        self._watch()


async def _failed(error: Exception) -> None:
    raise error
