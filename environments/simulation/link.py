"""The directed way between two hosts: its delays, and what waits for it to heal."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from environments.link_condition import CLEAR, LinkCondition
from harness.interface import Link

if TYPE_CHECKING:
    from environments.simulation.scheduler import Scheduler
    from environments.simulation.stream import SimulatedConnection

LATENCY_NS: Final = 80_000
SPREAD_NS: Final = 120_000
"""A way takes from 80 to 200 microseconds: machines of one rack, in user space."""

RETRANSMISSION_NS_MAX: Final = 3_000_000_000
"""The longest delay of a retransmission.

Time-outs double while a link is cut, so the first retransmission after the heal comes as late as
the cut was long, up to this.
"""


class Way:
    """A `Link` in the network: its condition and the time until which its wire is busy.

    The latency is that between machines; within one machine, where nothing can be cut, it is a
    small part of that.
    """

    def __init__(self, link: Link, scheduler: Scheduler, chance: random.Random) -> None:
        local = link.source == link.target
        self.link = link
        self.condition = CLEAR
        self.connections: dict[SimulatedConnection, None] = {}
        self._latency_ns = LATENCY_NS // 8 if local else LATENCY_NS
        self._spread_ns = SPREAD_NS // 8 if local else SPREAD_NS
        self._scheduler = scheduler
        self._draw = chance.random
        self._busy_ns = 0
        self._waiting: dict[Callable[[], None], int] = {}

    def arrival_ns(self, size: int) -> int:
        """Return when a segment that leaves now arrives: later if the link is slow."""
        arrival = self._scheduler.now_ns + self._latency_ns + int(self._draw() * self._spread_ns)
        if self.condition is not CLEAR:
            arrival += self._slowness_ns(size)
        return arrival

    def datagram_arrivals_ns(self, size: int) -> list[int]:
        """Return when the copies of a datagram that leaves now arrive; [] if it is lost."""
        arrival = self._scheduler.now_ns + self._latency_ns + int(self._draw() * self._spread_ns)
        condition = self.condition
        if condition is CLEAR:
            return [arrival]
        if condition.cut or (condition.loss and self._draw() < condition.loss):
            return []
        arrival += self._slowness_ns(size)
        copies = 2 if condition.duplicate and self._draw() < condition.duplicate else 1
        arrivals = [arrival] * copies
        if condition.reorder:  # held back long enough for other datagrams to overtake
            arrivals = [
                arrival
                + (int(self._draw() * 20 * self._spread_ns) if self._draw() < condition.reorder else 0)
                for arrival in arrivals
            ]
        return arrivals

    def wait(self, call: Callable[[], None], since_ns: int | None = None) -> None:
        """Call ``call`` once, when a retransmission gets through the healed link."""
        self._waiting.setdefault(call, self._scheduler.now_ns if since_ns is None else since_ns)

    def apply(self, condition: LinkCondition) -> None:
        """Put the link into this condition from now on."""
        healed = self.condition.cut and not condition.cut
        self.condition = CLEAR if condition == CLEAR else condition
        if condition.reset:
            for connection in list(self.connections):
                connection.reset()
        if healed:
            now = self._scheduler.now_ns
            waiting, self._waiting = self._waiting, {}
            for call, since_ns in waiting.items():
                late = int(self._draw() * min(now - since_ns, RETRANSMISSION_NS_MAX))
                self._scheduler.at(self.arrival_ns(0) + late, call)

    def _slowness_ns(self, size: int) -> int:
        condition = self.condition
        late = condition.delay_ms * 1e6
        if condition.jitter_ms:
            late += self._draw() * condition.jitter_ms * 1e6
        if condition.rate_bytes_s is not None:
            now = self._scheduler.now_ns
            self._busy_ns = max(self._busy_ns, now) + round(size / condition.rate_bytes_s * 1e9)
            late += self._busy_ns - now
        return round(late)
