"""The links of a world as a part that can break, and the proof of what faults did to them.

Why packets and not a look at the condition: a row of a history that says a fault was seen must rest
on what happened to something that crossed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from environments.link_condition import (
    DATAGRAM_PRIMITIVES,
    LINK_PRIMITIVES,
    combine,
    condition_of,
    link_name,
)
from environments.part import Part, PartFault
from environments.simulation.world import World
from harness.interface import Link

PACKETS: Final = 5
"""The packets sent over each link; several, because a lossy link loses only some."""

PROBE_BYTES: Final = 16 * 1024
"""The bytes of all packets together; enough for a rate limit of up to 1.6 MB/s to show."""

SLOW_MS: Final = 10.0
"""A link with this delay is called slow: the network's own latency is far below."""

HELD_MS: Final = 0.25
"""A packet that takes longer was held back, on a link that is not slow."""

PATIENCE_S: Final = 0.5
"""A packet that has not arrived after so long is called lost."""


class SimulatedLinks(Part):
    """The directed links between nodes, and from client zones."""

    primitives = (*LINK_PRIMITIVES, *DATAGRAM_PRIMITIVES)
    of_links = True

    def __init__(self, world: World) -> None:
        self._world = world

    def wanted(self, asked: PartFault) -> Any:
        """Return the LinkCondition that a fault asks for."""
        return condition_of(asked.primitive, asked.wanted)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Set the conditions of the changed fault's links, from now on."""
        for link in changed.links:
            self._world.network.apply(link, combine(one.wanted for one in in_force if link in one.links))

    async def probe(self, links: Sequence[Link]) -> dict[str, str]:
        """Return what each link does now.

        The answers are "open", "lost", "lossy 3 of 5", "doubled 2 of 5", "held back 1 of 5",
        "refused", and "slow 120 ms".
        """
        if not links:
            return {}
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        late_ms: dict[Link, list[float]] = {link: [] for link in links}
        doubled = dict.fromkeys(links, 0)
        missing = PACKETS * len(late_ms)
        over = asyncio.Event()

        def arrived(link: Link) -> None:
            nonlocal missing
            late_ms[link].append((loop.time() - began_s) * 1000)
            missing -= 1
            if not missing:
                over.set()

        for link in late_ms:
            for _ in range(PACKETS):
                doubled[link] += self._send(link, partial(arrived, link)) > 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                await over.wait()
        except TimeoutError:
            pass
        return {link_name(link): self._phrase(link, times, doubled[link]) for link, times in late_ms.items()}

    def _send(self, link: Link, arrived: Callable[[], None]) -> int:
        """Send a datagram from machine to machine; return how many copies of it arrive.

        It needs no process at either end. ``arrived`` is called with the first copy.
        """
        way = self._world.network.way(link.source, link.target)
        arrivals_ns = way.datagram_arrivals_ns(PROBE_BYTES // PACKETS)
        for arrival_ns in arrivals_ns[:1]:
            self._world.scheduler.at(arrival_ns, arrived)
        return len(arrivals_ns)

    def _phrase(self, link: Link, late_ms: list[float], doubled: int) -> str:
        if self._world.network.condition(link).reset:
            return "refused"
        if not late_ms:
            slow_ms = self._world.network.condition(link).delay_ms
            return "lost" if slow_ms < PATIENCE_S * 1000 else f"slow over {PATIENCE_S * 1000:.0f} ms"
        if max(late_ms) >= SLOW_MS:
            return f"slow {max(late_ms):.0f} ms"
        if doubled:
            return f"doubled {doubled} of {PACKETS}"
        if self._world.network.condition(link).reorder and (held := sum(ms > HELD_MS for ms in late_ms)):
            return f"held back {held} of {PACKETS}"
        return "open" if len(late_ms) >= PACKETS else f"lossy {PACKETS - len(late_ms)} of {PACKETS}"
