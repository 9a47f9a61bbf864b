"""Brokers, clients and nemesis in one process, with time, network, disks and clocks of our making.

One seed gives one history.

Why: the code that runs here is the code that runs everywhere; only what it takes from outside is
different. So a fault can be put at any instant, a run can be repeated byte for byte, and a minute
takes a second. Every broker is a process of a `World`: an event loop which is no longer stepped
when it is killed. The harness, its clients and its nemesis are the node "harness".
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.board import FaultBoard
from environments.lease import DEFAULT_LEASE_S, LeaseExpiredError
from environments.simulation import database
from environments.simulation.clock import SimulatedClocks
from environments.simulation.database import DatabaseServer, SimulatedDatabase
from environments.simulation.datagram import open_multicast
from environments.simulation.errors import DeadlockError, StallError
from environments.simulation.links import SimulatedLinks
from environments.simulation.logs import NodeLogs
from environments.simulation.parts import SimulatedDisks, SimulatedProcesses
from environments.simulation.process import SimulatedProcess
from environments.simulation.stores import SimulatedStores
from environments.simulation.world import World
from harness.interface import (
    Address,
    DataEdit,
    Disk,
    Effect,
    InfrastructureError,
    InProcess,
    InProcessResources,
    Layout,
    Link,
    NodePlan,
    Status,
    System,
    T,
    TestSpec,
    UsageError,
)

DIRECT_PORTS: Final = ("admin",)
"""The ports that only the harness uses, and reaches outside every partition."""

PRIMITIVES: Final = (
    *(
        name
        for part in (
            SimulatedLinks,
            SimulatedProcesses,
            SimulatedDisks,
            SimulatedClocks,
            SimulatedStores,
            SimulatedDatabase,
        )
        for name in part.primitives
    ),
    "kill",
    "stop",
    "destroy-data",
    "copy-data",
    "edit-data",
)

_LAYOUT: Final = Layout(etc="/etc", data="/data", logs="/logs")


class SimulationEnvironment:
    """The environment "simulation"; one instance is one deployment.

    ``record`` keeps the text of the world's trace, by which two runs that should be equal are
    compared. After ``steps_max`` steps the run counts as endless.
    """

    name = "simulation"
    virtual = True
    zones: tuple[str, ...] = ("zone1", "zone2")

    def __init__(
        self, *, lease_s: float = DEFAULT_LEASE_S, record: bool = False, steps_max: float = math.inf
    ) -> None:
        self.world: World | None = None
        self.logs = NodeLogs()
        self._record = record
        self._steps_max = steps_max
        self._lease_s = lease_s
        self._system: System
        self._in_process: InProcess
        self._spec: TestSpec
        self._nodes: dict[str, NodePlan] = {}
        self._files: dict[str, Mapping[str, bytes]] = {}
        self._disks: dict[str, Disk] = {}
        self._stores = SimulatedStores()
        self._database = SimulatedDatabase()
        self._chances: dict[str, random.Random] = {}
        self._processes: dict[str, SimulatedProcess] = {}
        self._lives: dict[str, int] = {}
        self._statuses: dict[str, Callable[[], Status]] = {}
        self._links: SimulatedLinks
        self._board = FaultBoard(())

    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "": all of them can be done here."""
        return dict.fromkeys(PRIMITIVES, "")

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Return why this cluster cannot be deployed here; "" if it can."""
        if any(
            node.database is not None and node.database.type in ("postgresql", "sqlite") for node in nodes
        ):
            return "a simulated world has a database server of its own: leave --set database:type out"
        return ""

    # ---- where the test runs

    async def execute(self, main: Callable[[], Coroutine[Any, Any, T]], *, seed: int) -> T:
        """Run a test as ``conduct`` does, in a thread, so that the caller can interrupt it."""
        work = asyncio.ensure_future(asyncio.to_thread(self.conduct, main, seed=seed))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if self.world is not None:
                self.world.interrupt(asyncio.CancelledError())
            with contextlib.suppress(BaseException):
                await work
            raise

    def conduct(self, main: Callable[[], Coroutine[Any, Any, T]], *, seed: int) -> T:
        """Run a test's coroutine on the node "harness" of a new world, in this thread.

        Raises InfrastructureError when nothing can ever happen again, or when no time passes any
        more; EndlessRunError when it takes too many steps; or whatever ``main`` raises.
        """
        self.world = World(seed, record=self._record, steps_max=self._steps_max)
        with self.logs.capturing():
            try:
                return self.world.run(main)
            except (DeadlockError, StallError) as error:
                raise InfrastructureError(f"the simulation cannot go on: {error}") from error
            finally:
                if self._database.server is not None:
                    self._database.server.close()

    def clock_ns(self) -> int:
        """Return the virtual time."""
        return 0 if self.world is None else self.world.now_ns

    def _world(self) -> World:
        if self.world is None:
            raise UsageError("a simulation lives only within execute()")
        return self.world

    # ---- life of a deployment

    async def deploy(
        self, system: System, spec: TestSpec, nodes: Sequence[NodePlan], directory: Path
    ) -> None:
        """Give each node its files, a disk and a clock. Starts no broker."""
        del directory  # nothing is kept on a real disk
        world = self._world()
        assert not self._nodes, "an environment is one deployment"
        if both := [node.name for node in nodes if node.name in (*self.zones, "harness")]:
            raise UsageError(f"a node cannot be named {both[0]}: that is what the clients' side is called")
        assert isinstance(system, InProcess), "brokers that are programs of their own"
        self._system = self._in_process = system
        self._links = SimulatedLinks(world)
        self._board = FaultBoard(
            (
                self._links,
                SimulatedProcesses(self._processes),
                SimulatedDisks(self._disks, self._processes, self._chances),
                SimulatedClocks(world),
                self._stores,
                self._database,
            ),
            say=lambda _: None,  # the harness that did not renew is in this process
        )
        self._nodes = {node.name: node for node in nodes}
        if any(node.database for node in nodes):
            self._database.server = DatabaseServer(world)
        self._spec = spec
        for node in nodes:
            self._write(node)
            disk = self._disks[node.name] = self._stores.mount(world, node) or self._in_process.disk()
            disk.seed(world.random(f"disk:{node.name}"))
            self._chances[node.name] = world.random(f"damage:{node.name}")

    def _write(self, node: NodePlan) -> None:
        """Make the node's files."""
        listen = {port: Address(node.name, number) for port, number in node.ports.items()}
        nodes = tuple(self._nodes.values())
        hosts = {
            f"{other.name}:{number}": Address(other.name, number)
            for other in nodes
            if other.name != node.name
            for number in other.ports.values()
        }
        self._files[node.name] = self._system.files(self._spec, node, nodes, _LAYOUT, listen, hosts)

    async def reconfigure(self, node: str, configured: str) -> None:
        """Give a node the files of another role; see `Environment.reconfigure`."""
        self._nodes[node] = msgspec.structs.replace(self._nodes[node], configured=configured)
        self._write(self._nodes[node])

    def resolve(self, source: str, node: str, port: str) -> Address:
        """Return a node's address: its name; for a client zone, its name over that zone's links."""
        plan = self._nodes.get(node)
        if plan is None or port not in plan.ports:
            raise UsageError(f"no port {port!r} of node {node!r} in this deployment")
        number = plan.ports[port]
        if source in ("admin", node) or port in DIRECT_PORTS or source in self._nodes:
            return Address(node, number)
        if source not in self.zones:
            raise UsageError(
                f"no source {source!r}; there are {', '.join((*self._nodes, *self.zones))} and admin"
            )
        return Address(self._world().network.via(source, node), number)

    async def start(self, node: str) -> None:
        """Start a new process on the node's disk; it is not ready yet when this returns."""
        world = self._world()
        if node not in self._nodes:
            raise UsageError(f"no node {node!r} in this deployment")
        if await self.running(node):
            raise InfrastructureError(f"{node} runs already")
        self._statuses.pop(node, None)
        life = self._lives[node] = self._lives.get(node, 0) + 1
        self._processes[node] = world.spawn(
            node, partial(self._serve, node, life), self._stores.boot(node, self._chances[node])
        )

    async def _serve(self, node: str, life: int) -> int:
        """Run the whole life of one broker process, on its own loop."""
        world = self._world()
        outside = InProcessResources(
            random=world.random(f"broker:{node}:{life}"),
            wall_clock=world.clock(node).wall_s,
            disk=self._disks[node],
            stopping=asyncio.Event(),
            observe=partial(self._statuses.__setitem__, node),
            database=database.ADDRESS if self._nodes[node].database else None,
            store=self._stores.of(node),
            open_multicast=open_multicast,
        )
        return await self._in_process.serve(self._files[node], outside)

    def look(self, node: str) -> Status:
        """Return the status that a broker would answer.

        Raises TimeoutError if it stands still, ConnectionRefusedError if there is none.
        """
        process, status = self._processes.get(node), self._statuses.get(node)
        if process is None or process.state == "gone" or status is None:
            raise ConnectionRefusedError(f"nothing listens on the admin port of {node}")
        if process.state == "paused":
            raise TimeoutError(f"{node} stands still")
        return status()

    async def wait_exit(self, node: str) -> int | None:
        """Return the exit status once the broker has ended, None if it never ran."""
        process = self._processes.get(node)
        if process is None:
            return None
        status: int | None = await asyncio.shield(process.exited)
        return status

    async def running(self, node: str) -> bool:
        """Return whether a node's broker process exists; see `Environment.running`."""
        process = self._processes.get(node)
        return process is not None and process.state != "gone"

    async def kill(self, node: str) -> None:
        """Kill the broker; the disk keeps any prefix of what it had written and not synced."""
        if await self.running(node):
            self._processes[node].kill()
            self._disks[node].process_ended(self._chances[node])

    async def terminate(self, node: str) -> None:
        """Raise InfrastructureError: there are no signals here.

        The admin port has a command to stop a broker.
        """
        raise InfrastructureError(f"{node} is no process of its own, so that SIGTERM could reach it")

    async def destroy_data(self, node: str) -> None:
        """Empty the disk of a stopped node."""
        if await self.running(node):
            raise UsageError(f"{node} is running: its data can be destroyed only when it is stopped")
        self._disks[node].destroy()

    async def copy_data(self, source: str, node: str) -> None:
        """Replace what is on a stopped node's disk by a copy; see `Environment.copy_data`."""
        for name in (source, node):
            if await self.running(name):
                raise UsageError(f"{name} is running: data can be copied only while both brokers are stopped")
        self._disks[node].restore(self._disks[source].image())

    async def edit_data(self, node: str, edit: DataEdit) -> None:
        """Edit the files on a stopped node's disk; see `Environment.edit_data`."""
        if await self.running(node):
            raise UsageError(f"{node} is running: its data can be edited only when it is stopped")
        self._disks[node].restore(await edit(self._disks[node].image()))

    async def log_lines(self, node: str, position: int | None) -> tuple[Sequence[str], int]:
        """Wait for new log lines, which come at the virtual instant in which they are logged.

        A position is a number of lines.
        """
        if position is None:
            return (), len(self.logs.lines.get(node, ()))
        lines = await self.logs.after(node, position)
        return lines, position + len(lines)

    async def collect(self, destination: Path) -> None:
        """Write every node's log, and the harness' as ``simulation.log``."""
        self._write_logs(destination)

    def _write_logs(self, destination: Path) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        for node in self._nodes:
            directory = destination / node
            directory.mkdir(exist_ok=True)
            (directory / "broker.log").write_text(_text(self.logs.lines.get(node, [])))
        if own := self.logs.lines.get("harness"):
            (destination / "simulation.log").write_text(_text(own))

    async def teardown(self) -> None:
        """Forget the processes: nothing is outside this one, and the world ended with its run."""
        self._processes.clear()

    # ---- faults

    async def inject(
        self,
        primitive: str,
        *,
        links: Sequence[Link] = (),
        nodes: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a fault and return the lease to `renew` and `heal`.

        A momentary fault ("power-loss", "disk-corrupt") leaves nothing to heal.
        """
        self._world()
        for name in (*nodes, *(end for link in links for end in (link.source, link.target))):
            if name not in self._nodes and name not in self.zones:
                raise UsageError(f"{primitive}: no node or client zone {name!r} in this deployment")
        try:
            return await self._board.inject(primitive, links, nodes, options or {}, self._lease_s)
        except ValueError as error:
            raise UsageError(str(error)) from None

    async def renew(self, lease: str) -> None:
        """Keep a fault in force for another lease; see `Environment.renew`."""
        try:
            await self._board.renew(lease)
        except LeaseExpiredError as error:
            raise InfrastructureError(str(error)) from None

    async def heal(self, lease: str) -> None:
        """End a fault; does nothing if it has ended by itself."""
        await self._board.heal(lease)

    async def heal_all(self) -> None:
        """End all faults."""
        await self._board.heal_all()

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> Effect:
        """Probe links with packets, processes by a look, disks by writes, and read the clocks."""
        of_links, of_nodes = await asyncio.gather(
            self._links.probe(links),
            self._board.look(nodes),  # at the same time: a part that stalls must not delay the other looks
        )
        return Effect(bit=False, observed=of_links | dict(zip(nodes, of_nodes, strict=True)))


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
