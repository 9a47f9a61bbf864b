"""Probes of the links between nodes: from what two agents saw to the phrase that the history keeps.

A connection needs both directions, a datagram only one. So the connection tells what kind of
trouble there is, and the arrival of the datagrams tells whether this direction has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.agent.prober import DATAGRAMS, clock
from environments.link_condition import link_name
from environments.machines.node import Node, NodeDownError
from harness.interface import Link

SLOW_MS: Final = 10.0
"""The delay from which a link is called slow.

A bridge in one kernel takes some hundredths of a millisecond. If even the fastest of several
datagrams is this late, it was delayed on purpose.
"""

TIMEOUT_S: Final = 0.8
"""The patience for a connection and its echo.

Lost packets of a handshake are sent again after a second, so waiting longer is no use.
"""

_CLOCK_ASKS: Final = 5

_AGAIN_MAX: Final = 2
"""The number of further tries for a link that seems slow or lossy.

A busy machine is slow once, a slowed link each time. The same holds for lost datagrams.
"""


async def probe(nodes: Mapping[str, Node], links: Sequence[Link]) -> dict[str, str]:
    """Return what each link between machines does now: link name -> phrase."""
    found = await _once(nodes, links)
    for _ in range(_AGAIN_MAX):
        doubtful = [link for link in links if found[link_name(link)].startswith(("slow ", "lossy "))]
        if not doubtful:
            break
        again = await _once(nodes, doubtful)
        found |= {name: phrase for name, phrase in again.items() if phrase == "open"}
    return found


async def _once(nodes: Mapping[str, Node], links: Sequence[Link]) -> dict[str, str]:
    """Return the phrase of each link, tried with one connection and one row of datagrams."""
    by_source: dict[str, dict[str, str]] = {}
    for link in links:
        by_source.setdefault(link.source, {})[link.target] = nodes[link.target].address

    async def from_source(source: str) -> dict[Link, dict[str, Any]]:
        try:
            found = await nodes[source].ask("probe", targets=by_source[source], patience_s=TIMEOUT_S)
        except NodeDownError:
            return {}
        return {Link(source, target): seen for target, seen in found.items()}

    async def at_target(target: str, nonces: list[str]) -> dict[str, tuple[float, int] | None]:
        try:
            arrived: dict[str, tuple[float, int] | None] = await nodes[target].ask("arrived", nonces=nonces)
        except NodeDownError:
            return {}
        return arrived

    seen: dict[Link, dict[str, Any]] = {}
    for found in await asyncio.gather(*map(from_source, by_source)):
        seen.update(found)
    nonces: dict[str, list[str]] = {}
    for link, one in seen.items():
        nonces.setdefault(link.target, []).append(one["nonce"])
    arrivals: dict[str, tuple[float, int] | None] = {}
    for arrived in await asyncio.gather(*(at_target(target, wanted) for target, wanted in nonces.items())):
        arrivals.update(arrived)
    ends = {end for link in seen for end in (link.source, link.target)}
    clocks = dict(zip(ends, await asyncio.gather(*(_clock(nodes[end]) for end in ends)), strict=True))

    def state(link: Link) -> str:
        if link not in seen:
            return "lost"
        (wrong, since), (also, until) = clocks[link.source], clocks[link.target]
        found = arrivals.get(seen[link]["nonce"])
        if found is None:
            return phrase(seen[link]["connection"], None)
        delay_ms, count = found
        return phrase(seen[link]["connection"], delay_ms - (until - since) - (wrong + also), count)

    return {link_name(link): state(link) for link in links}


async def _clock(node: Node) -> tuple[float, float]:
    """Return the error in ms of a reading of the machine's clock, and its lead over ours."""
    found = []
    for _ in range(_CLOCK_ASKS):
        before_ms = time.monotonic_ns() / 1e6
        try:
            seen = await node.ask("now")
        except NodeDownError:
            return 0.0, 0.0
        if seen["clock"] == clock():
            return 0.0, 0.0
        wrong_ms = (time.monotonic_ns() / 1e6 - before_ms) / 2
        found.append((wrong_ms, seen["ms"] - before_ms - wrong_ms))
    return min(found)


def phrase(connection: str, delay_ms: float | None, count: int = DATAGRAMS) -> str:
    """Return the word for the state of one direction.

    ``connection`` says how a connection went, ``delay_ms`` how long the fastest of ``count``
    datagrams that arrived took at least (None: none arrived).
    """
    if delay_ms is not None:
        # This direction is open: whatever happened to the connection happened on the way back.
        if delay_ms >= SLOW_MS:
            return f"slow {delay_ms:.0f} ms"
        return "open" if count >= DATAGRAMS else f"lossy {DATAGRAMS - count} of {DATAGRAMS}"
    return "refused" if connection == "refused" else "lost"
