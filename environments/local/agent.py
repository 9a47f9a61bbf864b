"""The agent of one local deployment.

It owns the link proxy and the brokers, and heals faults that are not renewed.

Why a process of its own: the harness may be killed in the middle of a partition. Then the network
must be healed, stopped brokers resumed, and everything ended later. The environment starts it as

    python -m environments.local.agent STATE_DIRECTORY ORPHAN_S

If its harness is gone for ORPHAN_S seconds, the agent ends the brokers and itself. On SIGTERM it
does the same at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.labels import RUN_ID, STATE_DIR, identify
from environments.link_proxy import reserve_port, reserve_ports
from environments.links_agent import LinksAgent, run
from environments.local import state
from environments.local.database import NODE as DATABASE
from environments.local.database import LocalDatabase
from environments.local.disks import Disks
from environments.local.processes import Brokers
from environments.local.stores import LocalStores
from harness.interface import Address, NodePlan, UsageError

DESCRIPTORS: Final = 65536
STUCK_S: Final = 2.0
"""The time after which a killed broker that is not gone waits for a silent file server."""


class DeploymentAgent(LinksAgent):
    """Everything of one deployment that must outlive the harness."""

    def __init__(self, directory: Path, orphan_s: float) -> None:
        self._directory = directory
        self._place = Path()
        self._brokers = Brokers(self._record)
        self._database = LocalDatabase(self._record)
        self._disks = Disks(lambda node: self._brokers.state(node) != "gone")
        self._stores = LocalStores(self._record)
        self._holders: dict[str, dict[str, socket.socket]] = {}
        super().__init__(orphan_s, self._brokers, self._database, self._disks, self._stores)
        self._record()

    async def do_deploy(
        self, nodes: Sequence[Any], zones: Sequence[str], direct: Sequence[str], place: str
    ) -> dict[str, Any]:
        """Reserve all nodes' ports, lay the links, and start the servers that brokers need.

        ``zones`` are the other ends that connect to nodes, ``direct`` the ports without links;
        nodes have their directories below ``place``. The answer has ``listen`` (node -> port ->
        address), ``routes`` (source -> node -> port -> address), and how brokers reach their
        database: ``databases`` (node -> address) and ``variables`` of their environment.
        """
        plans = msgspec.convert(nodes, list[NodePlan])
        self._place = Path(place)
        for plan in plans:
            self._holders[plan.name] = _reserve(plan)
        listen = {
            node: {port: Address(*holder.getsockname()) for port, holder in holders.items()}
            for node, holders in self._holders.items()
        }
        targets = {
            node: {port: address for port, address in ports.items() if port not in direct}
            for node, ports in listen.items()
        }
        kept = {plan.name: {port: plan.ports[port] for port in plan.announced} for plan in plans}
        routes = await self.links.lay([*targets, *zones], targets, kept)
        self._record()
        await self._stores.make(plans, self._place)
        databases = await self._database.make(plans, self._place)
        for plan in plans:
            if plan.disk:
                await self._disks.mount(plan.name, self._place / plan.name)
        variables = self._database.variables
        return {"listen": listen, "routes": routes, "databases": databases, "variables": variables}

    async def do_start(self, node: str, argv: Sequence[str], variables: Mapping[str, str]) -> int:
        """Start a node's broker and return its pid."""
        self._ports(node)
        await self._stores.mount_again(node)
        listen = [Address(*holder.getsockname()) for holder in self._ports(node).values()]
        return await self._brokers.start(node, argv, self._place / node, variables, listen)

    async def do_wait(self, node: str) -> int | None:
        """Return the exit status of a node's broker once it has ended."""
        self._ports(node)
        return await self._brokers.wait(node)

    async def do_kill(self, node: str) -> None:
        """Send SIGKILL to a node's broker, and wait for its end.

        If it does not end because it waits for a silent file server, its mount is killed, too.
        """
        self._ports(node)
        await self._kill(node)

    async def do_terminate(self, node: str) -> None:
        """Send SIGTERM to a node's broker."""
        self._ports(node)
        self._brokers.terminate(node)

    def check(self, nodes: Sequence[str]) -> None:
        """Raise UsageError if one of the nodes is unknown."""
        for node in nodes:
            self._ports(node.partition("/")[0])

    async def do_shutdown(self) -> None:
        """End the brokers, then the agent. Answers when the brokers are gone."""
        await self._kill(*self._brokers.pids())
        self.ended.set()

    async def end(self) -> None:
        """End the brokers, then all that they used."""
        await self._kill(*self._brokers.pids())
        await super().end()
        for holders in self._holders.values():
            for holder in holders.values():
                holder.close()

    def _ports(self, node: str) -> dict[str, socket.socket]:
        if node not in self._holders:
            raise UsageError(f"no node {node!r}; there are {', '.join(self._holders) or 'none yet'}")
        return self._holders[node]

    def _record(self) -> None:
        """Write down which processes run, for `clean`.

        A full disk must not keep the agent from healing: the labels in the processes remain.
        """
        me = identify()
        assert me is not None, "this process runs"
        pids = {**self._brokers.pids(), **self._stores.pids(), DATABASE: self._database.pid}
        known = {name: identify(pid) for name, pid in pids.items() if pid is not None}
        brokers = {name: process for name, process in known.items() if process is not None}
        scratch = str(self._database.directory or "")
        record = state.AgentState(
            run_id=os.environ.get(RUN_ID, ""), agent=me, brokers=brokers, scratch=scratch
        )
        try:
            state.write(self._directory, record)
        except OSError as error:
            print(f"cannot record the state: {error}", file=sys.stderr, flush=True)

    async def _kill(self, *nodes: str) -> None:
        killing = asyncio.gather(*map(self._brokers.kill, nodes))
        if not (await asyncio.wait((killing,), timeout=STUCK_S))[0]:
            self._stores.abandon(nodes)
        await killing


def _reserve(plan: NodePlan) -> dict[str, socket.socket]:
    """Reserve a node's ports; announced ports keep their numbers, at an address of its own."""
    numbers = [plan.ports[port] for port in plan.announced]
    holders = dict(zip(plan.announced, reserve_ports(numbers), strict=True))
    return {port: holders.get(port) or reserve_port() for port in plan.ports}


def main() -> None:
    """Run an agent in the foreground."""
    directory, orphan_s = sys.argv[1:]
    assert STATE_DIR in os.environ, "an agent without its label could not be cleaned up"
    with contextlib.suppress(OSError, ValueError):
        # Links and their probes take some hundreds of descriptors before the first client connects.
        # The limit stays finite: brokers inherit it, and some size their tables by it.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    run(lambda: DeploymentAgent(Path(directory), float(orphan_s)))


if __name__ == "__main__":
    main()
