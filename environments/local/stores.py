"""The shared directories of one local deployment on a real NFSv4 server.

Each server is a process of the agent's, so that it outlives the harness and heals by itself.

Why a FUSE client for each node even where the kernel has one: the kernel's would make this machine
one client with one lease, and the brokers must be machines to the server. Why a proxy between them:
on one machine all clients have one address, and "nfs-disconnect" must hit one of them. As in every
cut here, bytes come late instead of being lost, which is what TCP makes of lost packets.

```
nodes/store-a/data    what brokers of pair a share; with a server, what it exports
nodes/store-a/logs    a server's configuration, log and memory of its clients
nodes/a1/store        where a1 has mounted it; without a server there is no such place, and brokers
                      use the directory itself
```
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from environments import ganesha
from environments.ganesha import GaneshaServer, ServerOptions, times_s
from environments.link_condition import CLEAR, LinkCondition
from environments.link_proxy import LinkProxy, reserve_port
from environments.nfs_mounting import FUSE, Mount, mount
from environments.part import Part, PartFault
from filesystems.fuse import device as fuse_device
from filesystems.nfs import asking
from harness.interface import Address, Link, NodePlan, StorePlan, UsageError

PRIMITIVES: Final = ("nfs-stall", "nfs-disconnect", "nfs-restart")
HOST: Final = "127.0.0.1"
MOUNTED: Final = "store"
"""The place of a node's mount, in the node's own directory."""

_PATIENCE_S: Final = 0.8
"""The patience for a question to the server.

Both ends are on this machine: an answer takes a millisecond.
"""

_CUT: Final = LinkCondition(cut=True)


def missing() -> str:
    """Return what this machine lacks for brokers on NFS; "" if nothing."""
    lack = ganesha.missing() or fuse_device.missing()
    return f"{lack}; or use --environment docker or simulation" if lack else ""


def refuses(nodes: Sequence[NodePlan]) -> str:
    """Return why these nodes' shared directories are impossible here; "" if they are possible."""
    for node in nodes:
        if node.store is not None and node.store.nfs:
            try:
                times_s(node.store)
            except UsageError as error:
                return str(error)
            if lack := missing():
                return f"brokers of this test have their data on NFS, and {lack}"
    return ""


def home(plan: StorePlan) -> str:
    """Return the name of a store's directory, which is also the name of its server."""
    return f"store-{plan.name}"


class SharedDirectories:
    """The nodes' shared directories; there are none if no node shares one."""

    def __init__(self, nodes: Sequence[NodePlan]) -> None:
        self._plans = {node.name: node.store for node in nodes if node.store is not None}

    def __contains__(self, node: str) -> bool:
        return node in self._plans

    def data(self, node: str, place: Path) -> Path | None:
        """Return a node's data directory; None if the node shares none."""
        plan = self._plans.get(node)
        if plan is None:
            return None
        return place / node / MOUNTED if plan.nfs else place / home(plan) / "data"

    def logs(self, place: Path) -> dict[str, Path]:
        """Return server -> the directory of its log."""
        return {home(plan): place / home(plan) / "logs" for plan in self._plans.values() if plan.nfs}

    def describe_services(self) -> dict[str, str]:
        """Return for each store what it is and how it is mounted."""
        found: dict[str, str] = {}
        for plan in self._plans.values():
            if plan.nfs:
                lease_s, grace_s = times_s(plan)
                found[home(plan)] = (
                    f"{FUSE}, nfs-ganesha as a process, lease {lease_s} s, grace {grace_s} s, mounted "
                    f"{plan.mount_options}"
                )
            else:
                found[home(plan)] = "a plain directory of this machine, whose locks never expire"
        return found


class LocalStores(Part):
    """Servers by their names, mounts by node.

    ``on_change`` is called when a process of either starts.
    """

    name = "store"
    primitives = PRIMITIVES

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._proxy = LinkProxy()
        self._servers: dict[str, GaneshaServer] = {}
        self._down: dict[str, None] = {}
        self._mounts: dict[str, Mount] = {}
        self._mounting: dict[str, Callable[[], Awaitable[Mount]]] = {}
        self._abandoned: set[str] = set()
        self._routes: dict[str, tuple[Link, Address]] = {}
        self._holders: list[Any] = []
        self._turn = asyncio.Lock()

    async def make(self, nodes: Iterable[NodePlan], place: Path) -> None:
        """Start the servers that these nodes need and mount their exports, below ``place``.

        Raises InfrastructureError, for a client with its words.
        """
        plans = {node.name: node.store for node in nodes if node.store is not None and node.store.nfs}
        for plan in {plan.name: plan for plan in plans.values()}.values():
            await self._serve(plan, place / home(plan))
        for node, plan in plans.items():
            await self._mount(node, plan, place / node)

    def wanted(self, asked: PartFault) -> Any:
        """Check a fault, which takes no options. Raises UsageError for a node without a store."""
        for node in asked.nodes:
            if node not in self._routes:
                raise UsageError(f"{asked.primitive}: {node} has no directory on NFS")
        return super().wanted(asked)

    async def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Cut clients off; stop, end and start servers; returns when it is done."""
        del changed
        async with self._turn:
            hit = {
                primitive: {node for one in in_force if one.primitive == primitive for node in one.nodes}
                for primitive in PRIMITIVES
            }
            for node, (link, _) in self._routes.items():
                condition = _CUT if node in hit["nfs-disconnect"] else CLEAR
                for one in (link, Link(link.target, link.source)):
                    self._proxy.set_condition(one, condition)
            for name, server in self._servers.items():
                await self._bring(
                    name,
                    server,
                    down=self._any(name, hit["nfs-restart"]),
                    paused=self._any(name, hit["nfs-stall"]),
                )

    async def look(self, node: str) -> str:
        """Return how the node finds its store: "answers" or "silent"; "none" without a store."""
        route = self._routes.get(node)
        return "none" if route is None else await asking.ask(route[1].host, route[1].port, _PATIENCE_S)

    def pids(self) -> dict[str, int | None]:
        """Return the processes for `clean`: servers by their names, clients by their nodes."""
        pids = {name: server.child.pid for name, server in self._servers.items()}
        return pids | {f"{node}/{self.name}": one.process.pid for node, one in self._mounts.items()}

    def abandon(self, nodes: Iterable[str]) -> None:
        """Kill the clients of these nodes without a word to the server, as dying machines would.

        A process that waits in such a mount, and could not even be killed, gets an error.
        """
        for node in self._mounts.keys() & set(nodes):
            self._abandoned.add(node)
            if self._mounts[node].process.returncode is None:
                self._mounts[node].process.kill()

    async def mount_again(self, node: str) -> None:
        """Mount again what was abandoned. Raises InfrastructureError as `make` does."""
        if node in self._abandoned:
            await self._mounts[node].unmount()
            self._mounts[node] = await self._mounting[node]()
            self._abandoned.discard(node)
            self._on_change()

    async def close(self) -> None:
        """End all mounts, whether or not their servers answer, then the servers.

        Brokers have ended, or wait for a store that will not answer.
        """
        mounts, self._mounts = list(self._mounts.values()), {}
        await asyncio.gather(*(mounted.unmount() for mounted in mounts))
        await asyncio.gather(*(server.kill() for server in self._servers.values()))
        await self._proxy.close()
        for holder in self._holders:
            holder.close()

    async def _serve(self, plan: StorePlan, directory: Path) -> None:
        lease_s, grace_s = times_s(plan)
        holder = reserve_port()
        self._holders.append(holder)
        server = self._servers[home(plan)] = GaneshaServer(
            ServerOptions(
                directory=directory / "data",
                state=directory / "logs",
                port=holder.getsockname()[1],
                host=HOST,
                lease_s=lease_s,
                grace_s=grace_s,
            )
        )
        await server.start()
        self._on_change()

    async def _mount(self, node: str, plan: StorePlan, directory: Path) -> None:
        link, server = Link(node, home(plan)), self._servers[home(plan)].options
        address = await self._proxy.add_route(link, Address(HOST, server.port))
        self._routes[node] = link, address
        logs = directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self._mounting[node] = functools.partial(
            mount, address, server.export, directory / MOUNTED, plan.mount_options, logs / "nfs-client.log"
        )
        self._mounts[node] = await self._mounting[node]()
        self._on_change()

    async def _bring(self, name: str, server: GaneshaServer, *, down: bool, paused: bool) -> None:
        if down:
            self._down[name] = None
            await server.kill()
            return
        if name in self._down:
            del self._down[name]
            await server.start()
            self._on_change()
        if paused:
            await server.pause()
        else:
            server.resume()

    def _any(self, server: str, nodes: set[str]) -> bool:
        return any(self._routes[node][0].target == server for node in nodes)
