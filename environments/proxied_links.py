"""Links through the userspace proxy, as what can break."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from environments.link_condition import LINK_PRIMITIVES, combine, condition_of, link_name
from environments.link_probe import LinkProbe
from environments.link_proxy import LinkProxy
from environments.part import Part, PartFault
from harness.interface import Address, Link, UsageError

Routes = dict[str, dict[str, dict[str, Address]]]
"""Source -> node -> logical port -> where that source connects to."""


class ProxiedLinks(Part):
    """The proxy and its probe; a fault wants a LinkCondition."""

    primitives = LINK_PRIMITIVES
    of_links = True

    def __init__(self) -> None:
        self._proxy = LinkProxy()
        self._prober: LinkProbe | None = None

    async def lay(self, sources: Iterable[str], targets: Mapping[str, Mapping[str, Address]]) -> Routes:
        """Lay a link from every source to every other node, whose ports are at ``targets``."""
        links = [Link(source, node) for source in sources for node in targets if source != node]
        routes: Routes = {source: {} for source in sources}
        for link in links:
            routes[link.source][link.target] = {
                port: await self._proxy.add_route(link, address)
                for port, address in targets[link.target].items()
            }
        self._prober = await LinkProbe.open(self._proxy, links)
        return routes

    def wanted(self, asked: PartFault) -> Any:
        """Raises UsageError for links that there are not, too."""
        known = set(self._proxy.links)
        for link in asked.links:
            if link not in known:
                raise UsageError(f"{asked.primitive}: no link {link_name(link)} in this deployment")
        return condition_of(asked.primitive, asked.wanted)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None] | None:
        """The links are so at once; what a reset has broken is connected again when it ends."""
        for link in changed.links:
            self._proxy.set_condition(link, combine(one.wanted for one in in_force if link in one.links))
        if self._prober is not None and changed.wanted.reset and changed not in in_force:
            return self._prober.mend()
        return None

    async def probe(self, links: Sequence[Link]) -> dict[str, str]:
        """What each link does now, by its name."""
        if not links:
            return {}
        if self._prober is None:
            raise UsageError("nothing is deployed yet")
        return {link_name(link): answer for link, answer in (await self._prober.probe(links)).items()}

    async def close(self) -> None:
        """Reset all connections and give back all ports."""
        if self._prober is not None:
            await self._prober.close()
        await self._proxy.close()
