"""Real broker processes in pairs, with every link between them through a proxy that can be cut, and load upon them."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from plain_client import BOUND_S, Client, LostError

from broker import config
from broker.admin_client import NobodyAnswersError, Target, log_in
from environments.link_proxy import CLEAR, Condition, LinkProxy, reserve_port
from harness.interface import Address, Link

ROOT = Path(__file__).parents[3]
CUT = Condition(cut=True)

SHORT: dict[str, Any] = {
    "cluster.connection-ttl": 6000,
    "cluster.call-timeout": 5000,
    "cluster.retry-interval": 50,
    "cluster.max-retry-interval": 200,
}
"""Short, and yet longer than a loaded machine keeps a process from running: a connection that is lost by itself is another test."""

SHORT_REPLICATION: dict[str, Any] = {
    "replication-patience": 4000,
    "vote-on-replication-failure": True,
    "vote-retries": 3,
    "vote-retry-wait": 200,
    "quorum-vote-wait": 2000,
    "retry-replication-wait": 100,
}


async def until(condition, what: str, timeout_s: float = BOUND_S):
    """The first true value of ``condition()`` (may be a coroutine function); AssertionError naming ``what`` after the bound."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert loop.time() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.02)


class Node:
    """One broker: its directory, its ports, its process."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.ports: dict[str, socket.socket] = {
            kind: reserve_port() for kind in ("stomp", "cluster", "admin")
        }
        self.process: asyncio.subprocess.Process | None = None
        self.properties: dict[str, Any] = {}

    def port(self, kind: str) -> int:
        return self.ports[kind].getsockname()[1]

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    async def ask(self, **request: Any) -> dict[str, Any]:
        """One admin request over a connection of its own; OSError when nobody answers."""
        secret = self.properties.get("cluster.cluster-password", "cluster-secret")
        at = Target("127.0.0.1", self.port("admin"), secret)
        async with asyncio.timeout(BOUND_S):
            reader, writer = await asyncio.open_connection(at.host, at.port, limit=2**26)
            try:
                await log_in(reader, writer, at, os.urandom(32))
                writer.write(json.dumps(request).encode() + b"\n")
                line = await reader.readline()
            except NobodyAnswersError as error:
                raise ConnectionResetError(str(error)) from error
            finally:
                writer.close()
        if not line:
            raise ConnectionResetError(f"{self.name} closed the admin connection")
        return json.loads(line)

    async def role(self) -> str:
        try:
            return (await self.ask(command="status"))["role"]
        except OSError:
            return "stopped"

    async def is_role(self, role: str) -> bool:
        return await self.role() == role

    async def is_synchronized(self) -> bool:
        """A live with an up-to-date backup, or the backup of one."""
        try:
            return (await self.ask(command="status"))["replicating"]
        except OSError:
            return False

    async def is_alone(self) -> bool:
        """A live that answers on its own disk alone: nobody replicates it, and no vote about that is under way."""
        status = await self.ask(command="status")
        return status["role"] == "live" and not status["replicating"]

    async def stored(self) -> list[str]:
        """Bodies of all stored messages."""
        answer = await self.ask(command="browse")
        return [base64.b64decode(message["body"]).decode() for message in answer["messages"]]


class Cluster:
    """Pairs a, b, ...: a1 master, a2 slave. An async context; everything it started is gone at its end."""

    def __init__(self, directory: Path, pairs: int = 1, **replication: Any) -> None:
        self.directory = directory
        self.nodes: dict[str, Node] = {}
        self.replication = {
            **SHORT_REPLICATION,
            **{key.replace("_", "-"): value for key, value in replication.items()},
        }
        for pair in "abcdefgh"[:pairs]:
            for number in "12":
                node = Node(pair + number, directory / (pair + number))
                node.directory.mkdir()
                self.nodes[node.name] = node
        self.proxy: LinkProxy
        self.hosts: dict[str, dict[str, str]] = {name: {} for name in self.nodes}
        self._clients: list[Client] = []
        self.loads: list[asyncio.Task[None]] = []

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    async def __aenter__(self):
        self.proxy = LinkProxy()
        for source in self.nodes:
            for target, node in self.nodes.items():
                if source != target:
                    address = await self.proxy.add_route(
                        Link(source, target), Address("127.0.0.1", node.port("cluster"))
                    )
                    self.hosts[source][f"{target}:61616"] = str(address)
        return self

    async def __aexit__(self, *_):
        for load in self.loads:
            load.cancel()
        await asyncio.gather(*self.loads, return_exceptions=True)
        for client in self._clients:
            client.close()
        for node in self.nodes.values():
            await self.kill(node.name)
            for holder in node.ports.values():
                holder.close()
        await self.proxy.close()

    def table(self, name: str) -> dict[str, Any]:
        """The node's configuration as a plain table."""
        node = self.nodes[name]
        role = node.properties.get("role") or ("master" if name.endswith("1") else "slave")
        table: dict[str, Any] = {
            "broker": {"name": name, "data-directory": "data", "log-level": "DEBUG"},
            "acceptor": {"host": "127.0.0.1", "port": node.port("stomp")},
            "admin": {"host": "127.0.0.1", "port": node.port("admin")},
            "cluster": {
                "cluster-password": "cluster-secret",
                "host": "127.0.0.1",
                "port": node.port("cluster"),
                "connector": f"{name}:61616",
                "stomp-connector": f"{name}:61613",
                "static-connectors": [f"{other}:61616" for other in self.nodes if other != name],
            },
            "hosts": self.hosts[name],
        }
        if role == "standalone":
            return config.apply(
                table, {**SHORT, **{key: node.properties[key] for key in node.properties if key != "role"}}
            )
        section = {"group-name": name[0], **self.replication}
        if role == "master":
            section.setdefault("check-for-live-server", True)
        else:
            section.pop("check-for-live-server", None)
        properties = {f"ha-policy.replication.{role}.{key}": value for key, value in section.items()}
        given = {
            key.replace("REPLICATION", f"ha-policy.replication.{role}"): value
            for key, value in node.properties.items()
            if key != "role"
        }
        return config.apply(table, {**SHORT, **properties, **given})

    async def start(self, *names: str) -> None:
        """Start the processes; wait for nothing."""
        for name in names:
            node = self.nodes[name]
            (node.directory / "broker.toml").write_text(config.dumps(self.table(name)))
            with (node.directory / "log").open("ab") as log:
                node.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "broker.daemon", "--config", str(node.directory / "broker.toml"),
                    cwd=ROOT, stdout=log, stderr=log,
                )  # fmt: skip

    async def start_pair(self, pair: str = "a") -> None:
        """Both brokers of a pair, the backup up to date."""
        live, backup = self.nodes[f"{pair}1"], self.nodes[f"{pair}2"]
        await self.start(live.name)
        await until(lambda: live.is_role("live"), f"{live.name} is live")
        await self.start(backup.name)
        await until(live.is_synchronized, f"{live.name} is replicated")
        await until(backup.is_synchronized, f"{backup.name} is up to date")

    async def start_pairs(self) -> None:
        """All pairs, replicated, and everybody linked with everybody."""
        await asyncio.gather(*(self.start_pair(pair) for pair in sorted({name[0] for name in self.nodes})))
        for node in self.nodes.values():
            await until(lambda node=node: self.knows_all(node), f"{node.name} is linked with all")

    async def knows_all(self, node: Node) -> bool:
        brokers = (await node.ask(command="brokers"))["brokers"]
        running = {name for name, other in self.nodes.items() if other.process is not None}
        lives = {broker["node-id"] for broker in brokers if broker["role"] == "live" and broker["linked"]}
        return {b["name"] for b in brokers if b["linked"]} >= running and len(lives) == len(
            {n[0] for n in running}
        )

    async def kill(self, *names: str) -> None:
        """SIGKILL, and wait until it is gone."""
        for name in names:
            process = self.nodes[name].process
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self.nodes[name].process = None

    async def exit_status(self, name: str, timeout_s: float = BOUND_S) -> int:
        """Wait for a process that ends by itself."""
        process = self.nodes[name].process
        assert process is not None
        async with asyncio.timeout(timeout_s):
            status = await process.wait()
        self.nodes[name].process = None
        return status

    async def stop(self, name: str, **options: Any) -> int:
        """A clean stop through the admin port; returns the exit status."""
        answer = await self.nodes[name].ask(command="stop", **options)
        assert answer == {"ok": True}
        return await self.exit_status(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        process = self.nodes[name].process
        assert process is not None
        process.send_signal(number)

    def cut(self, *pairs: tuple[str, str], condition: Condition = CUT) -> None:
        """Cut the links between these brokers, both ways."""
        for one, other in pairs:
            self.proxy.set_condition(Link(one, other), condition)
            self.proxy.set_condition(Link(other, one), condition)

    def cut_one_way(self, source: str, target: str) -> None:
        """What ``source`` sends does not reach ``target``."""
        self.proxy.set_condition(Link(source, target), CUT)

    async def knows_lives(self, node: Node, count: int) -> bool:
        brokers = (await node.ask(command="brokers"))["brokers"]
        return sum(broker["role"] == "live" and broker["linked"] for broker in brokers) == count

    def isolate(self, *names: str) -> None:
        """Cut these brokers from all others (not from clients)."""
        self.cut(*((name, other) for name in names for other in self.nodes if other not in names))

    def heal(self) -> None:
        for link in self.proxy.links:
            self.proxy.set_condition(link, CLEAR)

    async def client(self, name: str) -> Client:
        client = await Client.connect(self.nodes[name].port("stomp"))
        self._clients.append(client)
        return client


def cluster_test(pairs: int = 1, **replication: Any):
    """Make a test of an ``async def scenario(cluster)``; a failure shows the brokers' logs."""

    def decorate(scenario):
        @pytest.mark.cluster
        def test(tmp_path: Path):
            cluster = Cluster(tmp_path, pairs, **replication)

            async def run():
                async with cluster:
                    await scenario(cluster)

            try:
                asyncio.run(run())
            except BaseException:
                for node in cluster.nodes.values():
                    print(f"----- {node.name}\n{node.log[-6000:]}")
                raise

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        return test

    return decorate


class Load:
    """Producers that send numbered messages until stopped; knows which were answered."""

    def __init__(
        self, cluster: Cluster, brokers: tuple[str, ...], queue: str = "q", producers: int = 3
    ) -> None:
        self.answered: list[str] = []
        self.asked: list[str] = []
        self._cluster = cluster
        self._brokers = brokers
        self._queue = queue
        self._tasks = [asyncio.create_task(self._produce(number)) for number in range(producers)]
        cluster.loads += self._tasks
        self._stopping = False

    async def reached(self, count: int) -> None:
        """Return when so many more sends were answered."""
        goal = len(self.answered) + count
        await until(lambda: len(self.answered) >= goal, f"{goal} sends answered")

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _produce(self, producer: int) -> None:
        count = 0
        while not self._stopping:
            for broker in self._brokers:
                try:
                    client = await self._cluster.client(broker)
                    while not self._stopping:
                        body = f"{producer}-{count}"
                        count += 1
                        self.asked.append(body)
                        await client.send(self._queue, body, timeout_s=3.0)
                        self.answered.append(body)
                except (LostError, TimeoutError):
                    await asyncio.sleep(0.01)


async def nothing_lost(node: Node, load: Load) -> None:
    """Everything that was answered is stored, once, and nothing that was not sent is."""
    stored = await node.stored()
    missing = set(load.answered) - set(stored)
    assert not missing, (
        f"{len(missing)} of {len(load.answered)} answered messages are lost: {sorted(missing)[:5]}"
    )
    assert len(stored) == len(set(stored))
    assert set(stored) <= set(load.asked)
