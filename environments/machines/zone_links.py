"""The links between client zones and containers.

The userspace proxy, as a child process of the harness.

Why a proxy and not the firewall: clients of all zones live in the harness' one process, so to a
container they all have one address. Why a process: forwarding every message twice would take the
harness' only core away from the clients. It ends by itself when the harness does, however that
ends, because then nobody is left to use the links.
``python -m environments.machines.zone_links FD`` is that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from environments.board import FaultBoard
from environments.local.control import LINE_BYTES_MAX, ControlClient, ControlServer, fault_handlers
from environments.proxied_links import ProxiedLinks, Routes
from harness.interface import Address, Link

_END_PATIENCE_S: Final = 5.0
_ROOT: Final = Path(__file__).resolve().parents[2]


class ZoneLinks:
    """The harness' side of the child process."""

    def __init__(self, process: subprocess.Popen[bytes], control: ControlClient, routes: Routes) -> None:
        self._process = process
        self._control = control
        self.routes = routes

    @classmethod
    async def open(cls, zones: Sequence[str], targets: Mapping[str, Mapping[str, Address]]) -> ZoneLinks:
        """Start the process and lay a link from every zone to every node's ports."""
        ours, theirs = socket.socketpair()
        search = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - a fork, not a wait
                [sys.executable, "-m", "environments.machines.zone_links", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(search))},
                start_new_session=True,  # Ctrl-C is for the harness, which still needs its links to drain
            )
        control = ControlClient(*await asyncio.open_connection(sock=ours))
        try:
            answer = await control.call("plan", zones=zones, targets=targets)
            return cls(process, control, msgspec.convert(answer, Routes))
        except BaseException:
            await cls(process, control, {}).close()
            raise

    async def inject(
        self, primitive: str, links: Sequence[Link], options: Mapping[str, Any], lease_s: float
    ) -> str:
        """Begin a fault; its lease."""
        lease: str = await self._control.call(
            "inject", primitive=primitive, links=links, nodes=(), options=dict(options), lease_s=lease_s
        )
        return lease

    async def renew(self, lease: str) -> None:
        """Let a fault go on. InfrastructureError if it has ended already."""
        await self._control.call("renew", lease=lease)

    async def heal(self, lease: str) -> None:
        """End a fault; fine if it has ended already."""
        await self._control.call("heal", lease=lease)

    async def heal_all(self) -> None:
        """End all faults."""
        await self._control.call("heal-all")

    async def probe(self, links: Sequence[Link]) -> dict[str, str]:
        """What each link does now, by its name."""
        found: dict[str, str] = await self._control.call("probe", links=links)
        return found

    async def close(self) -> None:
        """End the process; bounded."""
        await self._control.close()  # it ends by itself now
        try:
            await asyncio.to_thread(self._process.wait, _END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


async def _serve(descriptor: int) -> None:
    """The child's side: the proxy, and the faults in force."""
    of_zones = ProxiedLinks()
    board = FaultBoard([of_zones], prefix="zone", say=lambda _: None)

    async def plan(zones: Sequence[str], targets: Mapping[str, Any]) -> Routes:
        return await of_zones.lay(zones, msgspec.convert(targets, dict[str, dict[str, Address]]))

    async def probe(links: Sequence[Any]) -> dict[str, str]:
        return await of_zones.probe(msgspec.convert(links, list[Link]))

    connection = await asyncio.open_connection(sock=socket.socket(fileno=descriptor), limit=LINE_BYTES_MAX)
    handlers: dict[str, Any] = {"plan": plan, "probe": probe, **fault_handlers(board)}
    await ControlServer(handlers, lambda: None).serve(*connection)
    await board.close()


def main() -> None:
    """Serve until the harness at the other end of the socket is gone."""
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
