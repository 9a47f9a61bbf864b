"""Proof of what faults did to links and clocks.

Packets that cross the simulated network, and clocks read again and again.

Why not ask the condition: a row of a history that says a fault was seen must rest on what happened
to something that crossed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from environments.link_condition import link_name
from environments.simulation.clock import EPOCH_S
from environments.simulation.world import World
from harness.interface import Link

PACKETS: Final = 5
"""Sent over each link: some may get lost on a link that only loses some."""

PROBE_BYTES: Final = 16 * 1024
"""Together; enough for a rate limit of up to 1.6 MB/s to show as a delay."""

SLOW_MS: Final = 10.0
"""A link that takes this much is called slow: the network's own latency is far below."""

PATIENCE_S: Final = 0.5
"""A packet that has not arrived after so long is called lost."""

CLOCK_S: Final = 0.05
CLOCK_PARTS: Final = (0.07, 0.13, 0.19, 0.26, 0.35)
"""Of ``CLOCK_S``, from one reading to the next: unequal, so that no clock jumps in their rhythm."""
SKEWED_MS: Final = 1.0
RATE_MARGIN: Final = 0.001


class Prober:
    """Looks at a world from the node "harness"."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def links(self, links: Sequence[Link]) -> dict[str, str]:
        """What each link does now: "open", "lost", "lossy 3 of 5", "refused", "slow 120 ms"."""
        if not links:
            return {}
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        late_ms: dict[Link, list[float]] = {link: [] for link in links}
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
                self._send(link, partial(arrived, link))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await over.wait()
        except TimeoutError:
            pass
        return {link_name(link): self._phrase(link, times) for link, times in late_ms.items()}

    def _send(self, link: Link, arrived: Callable[[], None]) -> None:
        """One datagram from machine to machine: it needs no process at either end."""
        way = self._world.network.way(link.source, link.target)
        for arrival_ns in way.datagram_arrivals_ns(PROBE_BYTES // PACKETS)[:1]:
            self._world.scheduler.at(arrival_ns, arrived)

    def _phrase(self, link: Link, late_ms: list[float]) -> str:
        if self._world.network.condition(link).reset:
            return "refused"
        if not late_ms:
            slow_ms = self._world.network.condition(link).delay_ms
            return "lost" if slow_ms < PATIENCE_S * 1000 else f"slow over {PATIENCE_S * 1000:.0f} ms"
        if max(late_ms) >= SLOW_MS:
            return f"slow {max(late_ms):.0f} ms"
        return "open" if len(late_ms) >= PACKETS else f"lossy {PACKETS - len(late_ms)} of {PACKETS}"

    async def clock(self, node: str) -> str:
        """A node's clocks against true time.

        "true", "skewed 60000 ms", "rate 1.500", "true, strobing 500 ms".
        """
        clock, world = self._world.clock(node), self._world
        before_s, before_ns = clock.monotonic_s(), world.now_ns
        errors_ms, jumps_ms = [], []
        for part in CLOCK_PARTS:
            passed_s, passed_ns = clock.wall_s() - clock.monotonic_s(), world.now_ns
            await asyncio.sleep(CLOCK_S * part)
            assert world.now_ns > passed_ns, "a look at a clock that took no time"
            jumps_ms.append((clock.wall_s() - clock.monotonic_s() - passed_s) * 1000)
            errors_ms.append((clock.wall_s() - EPOCH_S - world.now_ns / 1e9) * 1000)
        jump_ms = max(jumps_ms, key=abs)
        strobing = f", strobing {abs(jump_ms):.0f} ms" if abs(jump_ms) >= SKEWED_MS else ""
        rate = (clock.monotonic_s() - before_s) / ((world.now_ns - before_ns) / 1e9)
        if abs(rate - 1) > RATE_MARGIN:
            return f"rate {rate:.3f}{strobing}"
        skew_ms = min(errors_ms, key=abs) if strobing else errors_ms[-1]
        return ("true" if abs(skew_ms) < SKEWED_MS else f"skewed {skew_ms:.0f} ms") + strobing
