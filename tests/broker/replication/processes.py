"""The cluster of the tests as real processes, every link between them through a proxy."""

import asyncio
import contextlib
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from plain_client import BOUND_S
from replicated import Cluster, Node

from broker import config
from environments.link_condition import LinkCondition
from environments.link_proxy import LinkProxy, reserve_port
from harness.interface import Address, Link

ROOT = Path(__file__).parents[3]


class ProcessNode(Node):
    """Its directory, its ports, its process."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)
        self.directory = directory
        self.directory.mkdir()
        self.ports: dict[str, socket.socket] = {
            kind: reserve_port() for kind in ("stomp", "cluster", "admin")
        }
        self.process: asyncio.subprocess.Process | None = None

    def address(self, kind: str) -> tuple[str, int]:
        return "127.0.0.1", self.ports[kind].getsockname()[1]

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    @property
    def data(self) -> Path:
        return self.directory / "data"


class ProcessCluster(Cluster):
    """See ``Cluster``."""

    def __init__(self, directory: Path, pairs: int = 1, **replication: Any) -> None:
        super().__init__(pairs, **replication)
        self.nodes: dict[str, ProcessNode] = {
            name: ProcessNode(name, directory / name) for name in self.names
        }
        self.hosts = {name: {} for name in self.names}
        self.proxy: LinkProxy

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        asyncio.run(main())

    async def __aenter__(self) -> Self:
        self.proxy = LinkProxy()
        for link in self.links():
            to = Address(*self.nodes[link.target].address("cluster"))
            self.hosts[link.source][f"{link.target}:61616"] = str(await self.proxy.add_route(link, to))
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        for node in self.nodes.values():
            await self.kill(node.name)
            for holder in node.ports.values():
                holder.close()
        await self.proxy.close()

    async def start(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name]
            (node.directory / "broker.toml").write_text(config.dumps(self.table(name)))
            with (node.directory / "log").open("ab") as log:
                node.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "broker.daemon", "--config", str(node.directory / "broker.toml"),
                    cwd=ROOT, stdout=log, stderr=log,
                )  # fmt: skip
            node.started = True

    async def kill(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name]
            if node.process is not None and node.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    node.process.kill()
                await node.process.wait()
            node.started = False

    async def exit_status(self, name: str, timeout_s: float = BOUND_S) -> int:
        node = self.nodes[name]
        assert node.process is not None
        async with asyncio.timeout(timeout_s):
            status = await node.process.wait()
        node.started = False
        return status

    def pause(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self.nodes[name].process
        assert process is not None
        process.send_signal(number)

    def destroy_data(self, name: str) -> None:
        assert not self.nodes[name].started
        shutil.rmtree(self.nodes[name].data)

    def set_condition(self, link: Link, condition: LinkCondition) -> None:
        self.proxy.set_condition(link, condition)
