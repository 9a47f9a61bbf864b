"""Links through the proxy in user space, as a part that can break."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from environments.link_condition import LINK_PRIMITIVES, combine, condition_of, link_name
from environments.link_probe import LinkProbe
from environments.link_proxy import LinkProxy
from environments.part import Part, PartFault
from harness.interface import Address, InfrastructureError, Link, UsageError

Routes = dict[str, dict[str, dict[str, Address]]]
"""Source -> node -> logical port -> the address to which that source connects."""


class ProxiedLinks(Part):
    """The proxy and its probe; a fault asks for a LinkCondition."""

    primitives = LINK_PRIMITIVES
    of_links = True

    def __init__(self) -> None:
        self._proxy = LinkProxy()
        self._prober: LinkProbe | None = None

    async def lay(
        self,
        sources: Iterable[str],
        targets: Mapping[str, Mapping[str, Address]],
        kept: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Routes:
        """Lay a link from every source to every other node; ``targets`` has the ports of the nodes.

        ``kept`` (node -> port -> number) has ports whose number must stay. A link with such ports
        has an address of its own on loopback, and refuses connections while its target does not
        listen.
        """
        links = [Link(source, node) for source in sources for node in targets if source != node]
        routes: Routes = {source: {} for source in sources}
        for link in links:
            numbers = (kept or {}).get(link.target, {})
            routes[link.source][link.target] = {
                port: await self._proxy.add_route(link, address)
                for port, address in targets[link.target].items()
                if port not in numbers
            }
            host = ""
            for port, number in numbers.items():
                address = await self._lay_kept(link, targets[link.target][port], host, number)
                routes[link.source][link.target][port] = address
                host = address.host
        self._prober = await LinkProbe.open(self._proxy, links)
        return routes

    async def _lay_kept(self, link: Link, target: Address, host: str, number: int) -> Address:
        """Listen on ``host``, or without one at an address of 127.0.0.0/8 with that port free."""
        while True:
            tried = host or ".".join(["127", *(str(random.randint(1, 254)) for _ in range(3))])
            try:
                return await self._proxy.add_route(link, target, host=tried, port=number, faithful=True)
            except InfrastructureError:
                if host:
                    raise

    def wanted(self, asked: PartFault) -> Any:
        """Return the LinkCondition that a fault asks for.

        Raises UsageError, also for unknown links.
        """
        known = set(self._proxy.links)
        for link in asked.links:
            if link not in known:
                raise UsageError(f"{asked.primitive}: no link {link_name(link)} in this deployment")
        return condition_of(asked.primitive, asked.wanted)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None] | None:
        """Set the links' conditions at once; after a reset, reconnect the probe."""
        for link in changed.links:
            self._proxy.set_condition(link, combine(one.wanted for one in in_force if link in one.links))
        if self._prober is not None and changed.wanted.reset and changed not in in_force:
            return self._prober.mend()
        return None

    async def probe(self, links: Sequence[Link]) -> dict[str, str]:
        """Return what each link does now, by its name."""
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
