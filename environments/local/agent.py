"""The agent of one local deployment.

Owns the link proxy and the brokers, and heals what nobody renews.

Why a process of its own: the harness may be killed in the middle of a partition, and somebody must
then bring the network back, resume stopped brokers, and later end everything. Started by the
environment as

    python -m environments.local.agent STATE_DIRECTORY [--ready-fd N] [--orphan-s SECONDS]

it serves `environments.local.control` on ``STATE_DIRECTORY/agent.sock``. A harness that stays away
for ``--orphan-s`` will not come back: the agent then ends the brokers and itself. On SIGTERM it
does the same at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from environments.labels import RUN_ID, STATE_DIR, identify
from environments.lease import LeaseExpiredError, LeaseTable
from environments.link_probe import LinkProbe
from environments.link_proxy import (
    CLEAR,
    LinkCondition,
    LinkProxy,
    combine,
    condition_of,
    link_name,
    reserve_port,
)
from environments.local import state
from environments.local.control import ControlServer
from environments.local.database import NODE as DATABASE
from environments.local.database import LocalDatabase
from environments.local.disks import Disks
from environments.local.part import Part
from environments.local.processes import Brokers
from environments.local.stores import Stores
from harness.interface import Address, InfrastructureError, Link, UsageError

PART_PRIMITIVES: Final = {
    **dict.fromkeys(
        LocalDatabase.primitives, "no broker of this test keeps its messages in a server's database"
    ),
    **dict.fromkeys(Disks.primitives, "no broker of this test has a disk that can break"),
    **dict.fromkeys(Stores.primitives, "no broker of this test has its data on NFS"),
}
"""Fault of a part -> why there is none where nobody has that part."""

ORPHAN_S: Final = 600.0
DESCRIPTORS: Final = 65536
STUCK_S: Final = 2.0
"""A killed broker that is not gone by then waits for a file server that does not answer."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """One injected fault: a condition of links, a pause of nodes, or a fault of a part, in that
    part's own words.
    """

    condition: LinkCondition
    links: tuple[Link, ...]
    nodes: tuple[str, ...]
    part: Part | None = None
    of_part: Any = None

    @property
    def paused(self) -> tuple[str, ...]:
        """The nodes whose processes it stops."""
        return self.nodes if self.part is None else ()


class Agent:
    """Everything of one deployment that must outlive the harness."""

    def __init__(self, directory: Path, orphan_s: float = ORPHAN_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._directory = directory
        self._orphan_s = orphan_s
        self._proxy = LinkProxy()
        self._probe: LinkProbe | None = None
        self._brokers = Brokers(self._record)
        self._database: LocalDatabase | None = None
        self._disks: Disks | None = None
        self._stores: Stores | None = None
        self._holders: dict[str, dict[str, Any]] = {}
        self._leases: LeaseTable[_Fault] = LeaseTable(time.monotonic)
        self._expiry: asyncio.TimerHandle | None = None
        self._orphaned: asyncio.TimerHandle | None = None
        self._mending: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self._server = ControlServer(
            {
                "plan": self.plan,
                "database": self.database,
                "disk": self.disk,
                "store": self.store,
                "mount": self.mount,
                "start": self.start,
                "wait": self.wait,
                "states": self.states,
                "kill": self.kill,
                "inject": self.inject,
                "renew": self.renew,
                "heal": self.heal,
                "heal-all": self.heal_all,
                "probe": self.probe,
                "shutdown": self.shutdown,
            },
            self._harness_changed,
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until told to end; then leave nothing."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.ended.set)
        await self._server.listen(self._directory / state.SOCKET_FILE)
        self._record()
        self._harness_changed()
        ready()
        await self.ended.wait()
        self._server.close()
        await self._end()

    async def plan(
        self, nodes: Mapping[str, Sequence[str]], sources: Sequence[str], direct: Sequence[str]
    ) -> dict[str, Any]:
        """Reserve every node's ports and lay the links.

        ``nodes`` maps node names to their logical ports, ``sources`` are the ends that connect to
        nodes, ``direct`` the ports without links. Answers ``listen`` (node -> port -> address) and
        ``routes`` (source -> node -> port -> address).
        """
        if self._holders:
            raise UsageError("the deployment is planned already")
        for node, ports in nodes.items():
            self._holders[node] = {port: reserve_port() for port in ports}
        listen = {
            node: {port: Address(*holder.getsockname()) for port, holder in holders.items()}
            for node, holders in self._holders.items()
        }
        links = [Link(source, node) for source in sources for node in nodes if source != node]
        routes: dict[str, dict[str, dict[str, Address]]] = {source: {} for source in sources}
        for link in links:
            routes[link.source][link.target] = {
                port: await self._proxy.add_route(link, address)
                for port, address in listen[link.target].items()
                if port not in direct
            }
        self._probe = await LinkProbe.open(self._proxy, links)
        self._record()
        return {"listen": listen, "routes": routes}

    async def database(self, log: str, nodes: Sequence[str]) -> dict[str, Any]:
        """Make a PostgreSQL server for these nodes.

        ``routes`` (node -> address) and ``variables`` of their environment.
        """
        if self._database is not None:
            raise UsageError("the deployment has a database already")
        self._database = LocalDatabase(Path(log), self._record)
        return await self._database.begin(nodes)

    async def disk(self, node: str, behind: str, directory: str, log: str) -> None:
        """Put a node's directory onto a disk that can break."""
        self._ports(node)
        self._disks = self._disks or Disks()
        await self._disks.mount(node, Path(behind), Path(directory), Path(log))

    async def store(self, store: str, directory: str, state: str, lease_s: int, grace_s: int) -> None:
        """Start a file server that exports a directory."""
        self._stores = self._stores or Stores(self._record)
        await self._stores.serve(store, directory, state, lease_s, grace_s)

    async def mount(self, node: str, store: str, directory: str, options: str, log: str) -> str:
        """Mount what such a server exports for a node; how it was mounted."""
        assert self._stores is not None, "its server was started"
        self._ports(node)
        return await self._stores.mount(node, store, directory, options, log)

    async def start(
        self, node: str, argv: Sequence[str], cwd: str, log: str, variables: Mapping[str, str]
    ) -> int:
        """Start a node's broker; its pid."""
        ports = [holder.getsockname()[1] for holder in self._ports(node).values()]
        return await self._brokers.start(
            node, argv, cwd=Path(cwd), log=Path(log), variables={**os.environ, **variables}, ports=ports
        )

    async def wait(self, node: str) -> int | None:
        """The exit status of a node's broker once it has ended."""
        self._ports(node)
        return await self._brokers.wait(node)

    async def states(self, nodes: Sequence[str]) -> dict[str, str]:
        """Node -> "running", "paused" or "gone"."""
        return {node: self._brokers.state(node) for node in nodes if self._ports(node) is not None}

    async def kill(self, node: str) -> None:
        """SIGKILL a node's broker."""
        self._ports(node)
        await self._brokers.kill(node)

    async def inject(
        self,
        primitive: str,
        links: Sequence[Sequence[str]],
        nodes: Sequence[str],
        options: Mapping[str, Any],
        lease_s: float,
    ) -> str:
        """Begin a fault; its lease."""
        on_links = tuple(Link(source, target) for source, target in links)
        known = set(self._proxy.links)
        for link in on_links:
            if link not in known:
                raise UsageError(f"{primitive}: no link {link_name(link)} in this deployment")
        for node in nodes:
            self._ports(node)
        if primitive == "pause":
            if on_links or options or not nodes:
                raise UsageError("pause: takes nodes, no links and no options")
            fault = _Fault(CLEAR, (), tuple(nodes))
        elif primitive in PART_PRIMITIVES:
            fault = await self._part_fault(primitive, on_links, nodes, options)
        else:
            if nodes or not on_links:
                raise UsageError(f"{primitive}: takes links, no nodes")
            fault = _Fault(condition_of(primitive, options), on_links, ())
        lease = self._leases.inject(fault, lease_s)
        self._apply(fault)
        self._schedule()
        await self._brokers.settle(fault.paused, "paused")
        await self._obey([fault])
        return lease

    async def renew(self, lease: str) -> None:
        """Let a fault go on. InfrastructureError if it has healed itself meanwhile."""
        try:
            self._leases.renew(lease)
        except LeaseExpiredError as error:
            raise InfrastructureError(
                f"{error}: the fault was healed on the node before its time; was the harness held up "
                "(overloaded machine, suspend)?"
            ) from error
        except KeyError:
            raise UsageError(f"no lease {lease!r}") from None
        self._schedule()

    async def heal(self, lease: str) -> None:
        """End a fault; nothing to do if it ended by itself."""
        try:
            fault = self._leases.heal(lease)
        except KeyError:
            raise UsageError(f"no lease {lease!r}") from None
        if fault is not None:
            await self._undo([fault])

    async def heal_all(self) -> None:
        """End all faults."""
        await self._undo(self._leases.heal_all())

    async def probe(self, links: Sequence[Sequence[str]], nodes: Sequence[str]) -> dict[str, str]:
        """What links and nodes do now, each by its name."""
        wanted = [Link(source, target) for source, target in links]
        observed = {}
        if wanted:
            if self._probe is None:
                raise UsageError("nothing is deployed yet")
            observed = {link_name(link): answer for link, answer in (await self._probe.probe(wanted)).items()}
        for part in self._parts():
            mine = {name: name.partition("/")[0] for name in nodes if name.endswith(f"/{part.name}")}
            found = await part.look(list(mine.values())) if mine else {}
            observed |= {name: found[node] for name, node in mine.items()}
        return observed | await self.states([name for name in nodes if name not in observed])

    async def shutdown(self) -> None:
        """End the brokers, then the agent. Answered when the brokers are gone."""
        await self._kill_brokers()
        self.ended.set()

    def _ports(self, node: str) -> dict[str, Any]:
        if node not in self._holders:
            raise UsageError(f"no node {node!r}; there are {', '.join(self._holders) or 'none yet'}")
        return self._holders[node]

    def _apply(self, fault: _Fault) -> None:
        """Bring what a fault is about into the state that all faults in force ask for, be it
        begun or ended.
        """
        in_force = self._leases.in_force()
        for link in fault.links:
            self._proxy.set_condition(link, combine(one.condition for one in in_force if link in one.links))
        paused = {node for one in in_force for node in one.paused}
        for node in fault.paused:
            self._brokers.signal(node, signal.SIGSTOP if node in paused else signal.SIGCONT)

    async def _undo(self, faults: Sequence[_Fault]) -> None:
        for fault in faults:
            self._apply(fault)
        self._schedule()
        paused = {node for one in self._leases.in_force() for node in one.paused}
        await self._brokers.settle({node for fault in faults for node in fault.paused} - paused, "running")
        await self._obey(faults)
        if self._probe is not None and any(fault.condition.reset for fault in faults):
            await self._probe.mend()

    async def _obey(self, changed: Sequence[_Fault]) -> None:
        """Bring the parts that faults began or ended of into the state that all faults in force
        ask for.
        """
        in_force = self._leases.in_force()
        for part in self._parts():
            if any(fault.part is part for fault in changed):
                await part.obey([fault.of_part for fault in in_force if fault.part is part])

    def _parts(self) -> list[Part]:
        return [part for part in (self._database, self._disks, self._stores) if part is not None]

    async def _part_fault(
        self, primitive: str, links: Sequence[Link], nodes: Sequence[str], options: Mapping[str, Any]
    ) -> _Fault:
        part = next((part for part in self._parts() if primitive in part.primitives), None)
        if part is None:
            raise UsageError(f"{primitive}: {PART_PRIMITIVES[primitive]}")
        if links or not nodes:
            raise UsageError(f"{primitive}: takes nodes, no links")
        asked = part.fault(primitive, nodes, options)
        if primitive in part.momentary:
            running = [node for node in nodes if self._brokers.state(node) != "gone"]
            if running:
                raise UsageError(f"{primitive}: {running[0]} is running: kill it before")
            await part.strike(primitive, nodes, options)
        return _Fault(CLEAR, (), tuple(nodes), part, asked)

    def _schedule(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        next_expiry = self._leases.next_expiry()
        if next_expiry is not None:
            self._expiry = self._loop.call_later(
                max(0.0, next_expiry - time.monotonic()) + 0.002, self._expire
            )

    def _expire(self) -> None:
        self._expiry = None
        over = self._leases.expire()
        for lease, fault in over:
            what = ", ".join([*map(link_name, fault.links), *fault.nodes])
            print(f"{lease} was not renewed: healed {what}", file=sys.stderr, flush=True)
        task = self._loop.create_task(self._undo([fault for _, fault in over]))
        self._mending.add(task)
        task.add_done_callback(self._mending.discard)

    def _harness_changed(self) -> None:
        if self._orphaned is not None:
            self._orphaned.cancel()
            self._orphaned = None
        if self._server.connected == 0:
            self._orphaned = self._loop.call_later(self._orphan_s, self._abandon)

    def _abandon(self) -> None:
        print(f"no harness for {self._orphan_s:.0f} s: ending everything", file=sys.stderr, flush=True)
        self.ended.set()

    def _record(self) -> None:
        """Write down what runs, for `clean`.

        A full disk must not keep the agent from healing: the labels in the processes remain.
        """
        me = identify()
        assert me is not None, "this process runs"
        ports = {
            node: {port: holder.getsockname()[1] for port, holder in holders.items()}
            for node, holders in self._holders.items()
        }
        brokers = self._brokers.identities()
        if self._stores is not None:
            brokers |= self._stores.identities()
        scratch = ""
        if self._database is not None:
            server, directory = self._database.identity, self._database.directory
            brokers |= {} if server is None else {DATABASE: server}
            scratch = "" if directory is None else str(directory)
        record = state.AgentState(
            run_id=os.environ.get(RUN_ID, ""), agent=me, brokers=brokers, ports=ports, scratch=scratch
        )
        try:
            state.write(self._directory, record)
        except OSError as error:
            print(f"cannot record the state: {error}", file=sys.stderr, flush=True)

    async def _kill_brokers(self) -> None:
        killing = self._loop.create_task(self._brokers.kill_all())
        if self._stores is not None and not (await asyncio.wait((killing,), timeout=STUCK_S))[0]:
            self._stores.abandon()
        await killing

    async def _end(self) -> None:
        await self._kill_brokers()
        for part in self._parts():
            await part.close()
        if self._probe is not None:
            await self._probe.close()
        await self._proxy.close()
        for holders in self._holders.values():
            for holder in holders.values():
                holder.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an agent in the foreground."""
    parser = argparse.ArgumentParser(
        prog="environments.local.agent", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready-fd", type=int, help="a descriptor that gets one line when the agent listens")
    parser.add_argument(
        "--orphan-s", type=float, default=ORPHAN_S, help="end everything after so long without a harness"
    )
    options = parser.parse_args(arguments)
    assert STATE_DIR in os.environ, "an agent without its label could not be cleaned up"
    with contextlib.suppress(OSError, ValueError):
        # Links and their probes take some hundreds of descriptors before the first client connects.
        # Not without bound: brokers inherit it, and some size tables by it.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))

    def ready() -> None:
        if options.ready_fd is not None:
            os.write(options.ready_fd, b"ready\n")
            os.close(options.ready_fd)

    async def run() -> None:
        await Agent(options.directory, options.orphan_s).run(ready)

    uvloop.run(run())


if __name__ == "__main__":
    main()
