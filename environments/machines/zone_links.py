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
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from environments.lease import LeaseExpiredError, LeaseTable
from environments.link_condition import LinkCondition, combine, condition_of, link_name
from environments.link_probe import LinkProbe
from environments.link_proxy import LinkProxy
from environments.local.control import ControlClient, ControlServer
from harness.interface import Address, InfrastructureError, Link, UsageError

_END_PATIENCE_S: Final = 5.0
_ROOT: Final = Path(__file__).resolve().parents[2]

Routes = dict[str, dict[str, dict[str, Address]]]
"""Zone -> node -> logical port -> where a client of that zone connects to."""


@dataclass(frozen=True, slots=True)
class _Fault:
    condition: LinkCondition
    links: tuple[Link, ...]


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
        ends = [(link.source, link.target) for link in links]
        lease: str = await self._control.call(
            "inject", primitive=primitive, links=ends, options=dict(options), lease_s=lease_s
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
        found: dict[str, str] = await self._control.call(
            "probe", links=[(link.source, link.target) for link in links]
        )
        return found

    async def close(self) -> None:
        """End the process; bounded."""
        await self._control.close()  # it ends by itself now
        try:
            await asyncio.to_thread(self._process.wait, _END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


class _Links:
    """The child's side: the proxy, its probe, and the faults in force."""

    def __init__(self) -> None:
        self._proxy = LinkProxy()
        self._probe: LinkProbe | None = None
        self._leases: LeaseTable[_Fault] = LeaseTable(time.monotonic, prefix="zone")
        self._expiry: asyncio.TimerHandle | None = None
        self._mending: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[str, Any]:
        return {
            "plan": self.plan,
            "inject": self.inject,
            "renew": self.renew,
            "heal": self.heal,
            "heal-all": self.heal_all,
            "probe": self.probe,
        }

    async def plan(self, zones: Sequence[str], targets: Mapping[str, Mapping[str, Any]]) -> Routes:
        links = [Link(zone, node) for zone in zones for node in targets]
        routes: Routes = {zone: {} for zone in zones}
        for link in links:
            routes[link.source][link.target] = {
                port: await self._proxy.add_route(link, msgspec.convert(address, Address))
                for port, address in targets[link.target].items()
            }
        self._probe = await LinkProbe.open(self._proxy, links)
        return routes

    async def inject(
        self, primitive: str, links: Sequence[Sequence[str]], options: Mapping[str, Any], lease_s: float
    ) -> str:
        fault = _Fault(condition_of(primitive, options), tuple(Link(*ends) for ends in links))
        unknown = [link_name(link) for link in fault.links if link not in self._proxy.links]
        if unknown:
            raise UsageError(f"{primitive}: no link {unknown[0]} in this deployment")
        lease = self._leases.inject(fault, lease_s)
        self._apply(fault)
        self._watch()
        return lease

    async def renew(self, lease: str) -> None:
        try:
            self._leases.renew(lease)
        except LeaseExpiredError as error:
            raise InfrastructureError(
                f"links of client zones: {error}: the fault ended before its time"
            ) from error
        self._watch()

    async def heal(self, lease: str) -> None:
        fault = self._leases.heal(lease)
        await self._undo([] if fault is None else [fault])

    async def heal_all(self) -> None:
        await self._undo(self._leases.heal_all())

    async def probe(self, links: Sequence[Sequence[str]]) -> dict[str, str]:
        assert self._probe is not None
        found = await self._probe.probe([Link(*ends) for ends in links])
        return {link_name(link): answer for link, answer in found.items()}

    async def close(self) -> None:
        if self._probe is not None:
            await self._probe.close()
        await self._proxy.close()

    def _apply(self, fault: _Fault) -> None:
        in_force = self._leases.in_force()
        for link in fault.links:
            self._proxy.set_condition(link, combine(one.condition for one in in_force if link in one.links))

    async def _undo(self, faults: Sequence[_Fault]) -> None:
        for fault in faults:
            self._apply(fault)
        self._watch()
        if self._probe is not None and any(fault.condition.reset for fault in faults):
            await self._probe.mend()

    def _watch(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        expiry = self._leases.next_expiry()
        loop = asyncio.get_running_loop()
        wait_s = None if expiry is None else max(0.0, expiry - time.monotonic()) + 0.002
        self._expiry = None if wait_s is None else loop.call_later(wait_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        task = asyncio.get_running_loop().create_task(
            self._undo([fault for _, fault in self._leases.expire()])
        )
        self._mending.add(task)
        task.add_done_callback(self._mending.discard)


async def _serve(descriptor: int) -> None:
    links = _Links()
    connection = await asyncio.open_connection(sock=socket.socket(fileno=descriptor), limit=16 << 20)
    await ControlServer(links.handlers(), lambda: None).serve(*connection)
    await links.close()


def main() -> None:
    """Serve until the harness at the other end of the socket is gone."""
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
