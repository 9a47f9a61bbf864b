"""The cluster of the tests in a simulated world.

The same brokers, on its network, clocks and disks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from plain_client import BOUND_S
from replicated import Cluster, Node

from broker import config
from environments.link_condition import LinkCondition
from environments.simulation.logs import NodeLogs
from environments.simulation.process import SimulatedProcess
from environments.simulation.world import World
from harness.interface import InProcessResources, Link
from harness.systems.own.system import OwnSystem

PORTS = {"stomp": 61613, "cluster": 61616, "admin": 8161}


class SimulatedNode(Node):
    """Its disk, its process, and what the world has seen it log."""

    def __init__(self, name: str, world: World, logs: NodeLogs) -> None:
        super().__init__(name)
        self.process: SimulatedProcess | None = None
        self.lives = 0
        self.chance = world.random(f"damage:{name}")
        self.disk = OwnSystem().disk()
        self.disk.seed(world.random(f"disk:{name}"))
        self._logs = logs

    def address(self, kind: str) -> tuple[str, int]:
        return self.name, PORTS[kind]

    @property
    def log(self) -> str:
        return "\n".join(self._logs.lines.get(self.name, ()))


class SimulatedCluster(Cluster):
    """See ``Cluster``."""

    def __init__(self, pairs: int = 1, seed: int = 1, **replication: Any) -> None:
        super().__init__(pairs, **replication)
        self.world = World(seed)
        self.logs = NodeLogs()
        self.logs.setLevel(logging.DEBUG)
        self.nodes: dict[str, SimulatedNode] = {
            name: SimulatedNode(name, self.world, self.logs) for name in self.names
        }
        self.hosts = {name: {} for name in self.names}  # they have their names for addresses

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        root = logging.getLogger()
        level = root.level
        root.setLevel(
            logging.DEBUG
        )  # as the processes' brokers: what must not be logged is not there, either
        try:
            with self.logs.capturing():
                self.world.run(main)
        finally:
            root.setLevel(level)

    async def start(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name]
            node.lives += 1
            table = config.dumps(self.table(name)).encode()
            outside = InProcessResources(
                random=self.world.random(f"broker:{name}:{node.lives}"),
                wall_clock=self.world.clock(name).wall_s,
                disk=node.disk,
                stopping=asyncio.Event(),
                observe=lambda _: None,
            )
            node.process = self.world.spawn(name, partial(OwnSystem().serve, {"broker.toml": table}, outside))
            node.started = True

    async def kill(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name]
            if node.process is not None and node.process.state != "gone":
                node.process.kill()
                node.disk.process_ended(node.chance)
            node.started = False

    async def exit_status(self, name: str, timeout_s: float = BOUND_S) -> int:
        node = self.nodes[name]
        assert node.process is not None
        async with asyncio.timeout(timeout_s):
            status = await asyncio.shield(node.process.exited)
        assert node.process.error is None, node.process.error
        node.started = False
        return status

    def pause(self, name: str) -> None:
        process = self.nodes[name].process
        assert process is not None
        process.pause()

    def resume(self, name: str) -> None:
        process = self.nodes[name].process
        assert process is not None
        process.resume()

    def destroy_data(self, name: str) -> None:
        assert not self.nodes[name].started
        self.nodes[name].disk.destroy()

    def set_condition(self, link: Link, condition: LinkCondition) -> None:
        self.world.network.apply(link, condition)
