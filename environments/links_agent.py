"""An agent of this machine for links through the proxy in user space, as a process of its own.

Why a process: forwarding every message twice would take the harness' only core away from the
clients, and faults must be healed even when the harness is killed. The agent's standard input ends
with the harness, however that ends. ``python -m environments.links_agent`` then ends at once,
because the clients that use its links are gone, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import uvloop

from environments.agent.control import TOKEN_VARIABLE
from environments.agent.server import Agent
from environments.board import FaultBoard
from environments.part import Part
from environments.proxied_links import ProxiedLinks, Routes
from harness.interface import Address, Link, UsageError

HOST: Final = "127.0.0.1"


class LinksAgent(Agent):
    """The agent of a deployment's links, and of whatever other parts the deployment has.

    ``orphan_s`` is how long it goes on without a harness, in seconds.
    """

    refusals = (UsageError, ValueError)

    def __init__(self, orphan_s: float = 0.0, *parts: Part) -> None:
        self.links = ProxiedLinks()
        self._orphan_s = orphan_s
        super().__init__(os.environ.pop(TOKEN_VARIABLE), FaultBoard((*parts, self.links)))

    async def serve(self) -> None:
        """Print the port as a line of output, then answer requests until told to end.

        It leaves nothing behind.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ended.set)
        server = await self.listen(HOST, 0)
        loop.add_reader(0, self._harness_gone)
        os.write(1, f"{server.sockets[0].getsockname()[1]}\n".encode())
        os.dup2(2, 1)  # the harness reads only the port
        await self.ended.wait()
        server.close()
        await self.end()

    def encode(self, answer: dict[str, Any]) -> bytes:
        """Return an answer as JSON; msgspec can encode addresses, too."""
        return msgspec.json.encode(answer)

    def check(self, nodes: Sequence[str]) -> None:
        """Raise UsageError if a node or a part of a node ("a1/disk") is unknown; here, never."""

    async def end(self) -> None:
        """Close all parts."""
        await self.board.close()

    async def do_lay(self, sources: Sequence[str], targets: Mapping[str, Any]) -> Routes:
        """Lay a link from every source to every other node; ``targets`` has the nodes' ports."""
        found = msgspec.convert(targets, dict[str, dict[str, Address]])
        return await self.links.lay(sources, found)

    async def do_inject(
        self,
        primitive: str,
        links: Sequence[Any],
        nodes: Sequence[str],
        options: Mapping[str, Any],
        lease_s: float,
    ) -> str:
        """Begin a fault and return the name of its lease."""
        self.check(nodes)
        return await self.board.inject(primitive, msgspec.convert(links, list[Link]), nodes, options, lease_s)

    async def do_probe(self, links: Sequence[Any], nodes: Sequence[str]) -> dict[str, str]:
        """Return what links and nodes do now, each by its name."""
        self.check(nodes)
        observed = await self.links.probe(msgspec.convert(links, list[Link]))
        return observed | dict(zip(nodes, await self.board.look(nodes), strict=True))

    def _harness_gone(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(0)
        loop.call_later(self._orphan_s, self._abandon)

    def _abandon(self) -> None:
        if self._orphan_s:
            gone = f"the harness has been gone for {self._orphan_s:.0f} s: ending all processes and faults"
            print(gone, file=sys.stderr, flush=True)
        self.ended.set()


def run(make: Callable[[], LinksAgent]) -> None:
    """Make an agent on an event loop of its own, and let it serve to its end."""

    async def serve() -> None:
        await make().serve()

    uvloop.run(serve())


if __name__ == "__main__":
    run(LinksAgent)
