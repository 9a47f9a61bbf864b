"""What an injected fault means for links, nodes, disks and clocks, and what all faults in force
mean together.

Why always anew: faults overlap, and healing one must leave the others in force; so nothing is
switched on or off, but the condition of whatever a fault concerned is computed again from the
faults that are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from environments import disk_condition
from environments.disk_condition import DISK_LEASES, DISK_MOMENTS, SOUND, number
from environments.link_condition import condition_of
from environments.simulation.condition import CLEAR, LinkCondition
from harness.interface import DiskCondition, Link, UsageError

STREAMS: Final = ("cut", "reset", "slow", "stall")
DATAGRAMS: Final = ("datagram-loss", "datagram-duplicate", "datagram-reorder")
PROCESSES: Final = ("pause",)
CLOCKS: Final = ("clock-skew", "clock-step", "clock-rate", "clock-strobe")
STORES: Final = ("nfs-stall", "nfs-disconnect", "nfs-restart")
DATABASES: Final = ("database-stall", "database-restart", "database-disconnect")

PRIMITIVES: Final = (
    *STREAMS,
    *DATAGRAMS,
    *PROCESSES,
    *DISK_LEASES,
    *CLOCKS,
    *STORES,
    *DATABASES,
    *DISK_MOMENTS,
    "kill",
    "stop",
    "destroy-data",
)

CHANCE_DEFAULT: Final = 0.3
"""Of a datagram to be lost, doubled or overtaken, where the fault says nothing."""


SEVERED_DEFAULT: Final = 0.5
"""Of a transaction to lose its connection, where the fault says nothing."""

COMMITTED_DEFAULT: Final = 0.5
"""Of those, how many are committed all the same."""


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault as it was asked for, translated: what it does to each of what it concerns."""

    primitive: str
    links: tuple[Link, ...] = ()
    nodes: tuple[str, ...] = ()
    link: LinkCondition = CLEAR
    disk: DiskCondition = SOUND
    severed: float = 0.0
    """The chance of a transaction with the database to lose its connection."""
    committed: float = 0.0
    """The share of these that is committed all the same."""
    skew_ms: float = 0.0
    rate: float = 1.0
    strobe_ms: float | None = None
    """The period in which the clock jumps by ``skew_ms`` and back."""


def translate(
    primitive: str, links: tuple[Link, ...], nodes: tuple[str, ...], options: Mapping[str, Any]
) -> Injected:
    """A primitive with its options. Raises UsageError, saying what would be right."""
    if primitive not in PRIMITIVES:
        raise UsageError(f"no fault {primitive!r}; there are {', '.join(PRIMITIVES)}")
    given = dict(options)
    if primitive in STREAMS:
        same = condition_of(primitive, given)
        return Injected(
            primitive,
            links,
            nodes,
            link=LinkCondition(
                cut=same.cut,
                reset=same.reset,
                delay_ms=same.delay_ms,
                jitter_ms=same.jitter_ms,
                rate_bytes_s=same.rate_bytes_s,
            ),
        )
    fault = Injected(primitive, links, nodes)
    if primitive in DATAGRAMS:
        chance = number(primitive, given, "chance", CHANCE_DEFAULT)
        if not 0 < chance <= 1:
            raise UsageError(f"{primitive}: chance must be above 0 and at most 1, not {chance:g}")
        link = {
            "datagram-loss": LinkCondition(loss=chance),
            "datagram-duplicate": LinkCondition(duplicate=chance),
            "datagram-reorder": LinkCondition(reorder=chance),
        }[primitive]
        fault = Injected(primitive, links, nodes, link=link)
    elif primitive == "database-disconnect":
        severed = number(primitive, given, "chance", SEVERED_DEFAULT)
        if not 0 < severed <= 1:
            raise UsageError(f"{primitive}: chance must be above 0 and at most 1, not {severed:g}")
        committed = number(primitive, given, "committed", COMMITTED_DEFAULT)
        if not 0 <= committed <= 1:
            raise UsageError(f"{primitive}: committed must be from 0 to 1, not {committed:g}")
        fault = Injected(primitive, links, nodes, severed=severed, committed=committed)
    elif primitive == "disk-corrupt":
        disk_condition.damage_of(given)
        given.clear()
    elif primitive in DISK_LEASES:
        fault = Injected(primitive, links, nodes, disk=disk_condition.condition_of(primitive, given))
    elif primitive == "clock-skew":
        fault = Injected(primitive, links, nodes, skew_ms=number(primitive, given, "skew_ms"))
    elif primitive == "clock-step":
        fault = Injected(primitive, links, nodes, skew_ms=number(primitive, given, "step_ms"))
    elif primitive == "clock-rate":
        rate = number(primitive, given, "rate")
        if rate <= 0:
            raise UsageError(f"{primitive}: rate must be above 0, not {rate:g}")
        fault = Injected(primitive, links, nodes, rate=rate)
    elif primitive == "clock-strobe":
        period_ms = number(primitive, given, "period_ms")
        if period_ms <= 0:
            raise UsageError(f"{primitive}: period_ms must be above 0, not {period_ms:g}")
        step_ms = number(primitive, given, "step_ms")
        fault = Injected(primitive, links, nodes, skew_ms=step_ms, strobe_ms=period_ms)
    if given:
        raise UsageError(f"{primitive}: unknown option {min(given)!r}")
    return fault
