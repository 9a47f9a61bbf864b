"""From what two agents saw of one link to the one phrase that the history keeps.

A connection needs both directions, a datagram only one. So the connection tells what kind of
trouble there is, and whether the datagrams arrived tells whether it is this direction's trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.link_condition import link_name
from environments.machines.node import Node, NodeDownError
from harness.interface import Link

SLOW_MS: Final = 10.0
"""A bridge in one kernel takes some hundredths of a millisecond.

The fastest of several datagrams this late was delayed on purpose.
"""

TIMEOUT_S: Final = 0.8
"""For a connection and its echo.

Lost packets of a handshake are sent again after a second, so waiting longer is no use.
"""


async def probe(nodes: Mapping[str, Node], links: Sequence[Link]) -> dict[str, str]:
    """What each link between containers does now: link name -> phrase."""
    by_source: dict[str, dict[str, str]] = {}
    for link in links:
        by_source.setdefault(link.source, {})[link.target] = nodes[link.target].address

    async def from_source(source: str) -> dict[Link, dict[str, Any]]:
        try:
            found = await nodes[source].ask("probe", targets=by_source[source], patience_s=TIMEOUT_S)
        except NodeDownError:
            return {}
        return {Link(source, target): seen for target, seen in found.items()}

    async def at_target(target: str, nonces: list[str]) -> dict[str, float | None]:
        try:
            arrived: dict[str, float | None] = await nodes[target].ask("arrived", nonces=nonces)
        except NodeDownError:
            return {}
        return arrived

    seen: dict[Link, dict[str, Any]] = {}
    for found in await asyncio.gather(*map(from_source, by_source)):
        seen.update(found)
    nonces: dict[str, list[str]] = {}
    for link, one in seen.items():
        nonces.setdefault(link.target, []).append(one["nonce"])
    delays_ms: dict[str, float | None] = {}
    for arrived in await asyncio.gather(*(at_target(target, wanted) for target, wanted in nonces.items())):
        delays_ms.update(arrived)
    return {
        link_name(link): "lost"
        if link not in seen
        else phrase(seen[link]["connection"], delays_ms.get(seen[link]["nonce"]))
        for link in links
    }


def phrase(connection: str, delay_ms: float | None) -> str:
    """The word for the state of one direction.

    From how a connection went and how long the fastest datagram took (None: none arrived).
    """
    if delay_ms is not None:
        # This direction passes: whatever happened to the connection happened on the way back.
        return f"slow {delay_ms:.0f} ms" if delay_ms >= SLOW_MS else "open"
    return "refused" if connection == "refused" else "lost"
