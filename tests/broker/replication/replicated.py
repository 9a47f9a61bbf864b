"""Brokers in pairs, with every link between them that can be cut, and load upon them.

On processes or in the simulation.
"""

import asyncio
import base64
import json
from typing import Any, Self

import pytest
from plain_client import BOUND_S, Client, LostError

from broker import config
from broker.admin_client import NobodyAnswersError, Target, log_in
from environments.link_condition import CLEAR, LinkCondition
from harness.interface import Link

CUT = LinkCondition(cut=True)

SHORT: dict[str, Any] = {
    "cluster.connection-ttl": 6000,
    "cluster.call-timeout": 5000,
    "cluster.retry-interval": 50,
    "cluster.max-retry-interval": 200,
}
"""Short, and yet longer than a loaded machine keeps a process from running.

A connection that is lost by itself is another test.
"""

SHORT_REPLICATION: dict[str, Any] = {
    "replication-patience": 4000,
    "vote-on-replication-failure": True,
    "vote-retries": 3,
    "vote-retry-wait": 200,
    "quorum-vote-wait": 2000,
    "retry-replication-wait": 100,
}


async def until(condition, what: str, timeout_s: float = BOUND_S):
    """The first true value of ``condition()`` (may be a coroutine function).

    AssertionError naming ``what`` after the bound.
    """
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
    """One broker: what it is configured with, and what it says of itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.properties: dict[str, Any] = {}
        self.started = False
        """A process of it was started, and neither killed nor waited for since."""

    def address(self, kind: str) -> tuple[str, int]:
        """Where its port "stomp", "cluster" or "admin" is."""
        raise NotImplementedError

    @property
    def log(self) -> str:
        """All that it has logged, in all its lives."""
        raise NotImplementedError

    async def ask(self, **request: Any) -> dict[str, Any]:
        """One admin request over a connection of its own; OSError when nobody answers."""
        secret = self.properties.get("cluster.cluster-password", "cluster-secret")
        at = Target(*self.address("admin"), secret)
        async with asyncio.timeout(BOUND_S):
            reader, writer = await asyncio.open_connection(at.host, at.port, limit=2**26)
            try:
                await log_in(reader, writer, at, b"no secret of a test".ljust(32))
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
        """A live that answers on its own disk alone.

        Nobody replicates it, and no vote about that is under way.
        """
        status = await self.ask(command="status")
        return status["role"] == "live" and not status["replicating"]

    async def stored(self) -> list[str]:
        """Bodies of all stored messages."""
        answer = await self.ask(command="browse")
        return [base64.b64decode(message["body"]).decode() for message in answer["messages"]]


class Cluster:
    """Pairs a, b, ...: a1 master, a2 slave.

    An async context; everything it started is gone at its end.
    """

    nodes: dict[str, Any]
    hosts: dict[str, dict[str, str]]
    """For each broker, what it finds the others' announced addresses at."""

    def __init__(self, pairs: int = 1, **replication: Any) -> None:
        self.names = [pair + number for pair in "abcdefgh"[:pairs] for number in "12"]
        self.replication = {
            **SHORT_REPLICATION,
            **{key.replace("_", "-"): value for key, value in replication.items()},
        }
        self._clients: list[Client] = []
        self.loads: list[asyncio.Task[None]] = []

    def __getitem__(self, name: str) -> Any:
        return self.nodes[name]

    def run(self, main: Any) -> None:
        """Run ``main()`` where this cluster lives."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for load in self.loads:
            load.cancel()
        await asyncio.gather(*self.loads, return_exceptions=True)
        for client in self._clients:
            client.close()

    async def start(self, *names: str) -> None:
        """Start the processes; wait for nothing."""
        raise NotImplementedError

    async def kill(self, *names: str) -> None:
        """SIGKILL, and wait until it is gone."""
        raise NotImplementedError

    async def exit_status(self, name: str, timeout_s: float = BOUND_S) -> int:
        """Wait for a process that ends by itself."""
        raise NotImplementedError

    def pause(self, name: str) -> None:
        """As by SIGSTOP."""
        raise NotImplementedError

    def resume(self, name: str) -> None:
        """As by SIGCONT."""
        raise NotImplementedError

    def destroy_data(self, name: str) -> None:
        """Nothing is left on the disk of a broker that does not run."""
        raise NotImplementedError

    def links(self) -> list[Link]:
        """All between two brokers."""
        return [Link(one, other) for one in self.names for other in self.names if one != other]

    def set_condition(self, link: Link, condition: LinkCondition) -> None:
        """From now on the link is so."""
        raise NotImplementedError

    def table(self, name: str) -> dict[str, Any]:
        """The node's configuration as a plain table."""
        node = self.nodes[name]

        def place(kind: str) -> dict[str, Any]:
            return {"host": "127.0.0.1", "port": node.address(kind)[1]}

        role = node.properties.get("role") or ("master" if name.endswith("1") else "slave")
        table: dict[str, Any] = {
            "broker": {"name": name, "data-directory": "data", "log-level": "DEBUG"},
            "acceptor": place("stomp"),
            "admin": place("admin"),
            "cluster": {
                "cluster-password": "cluster-secret",
                **place("cluster"),
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
        running = {name for name, other in self.nodes.items() if other.started}
        lives = {broker["node-id"] for broker in brokers if broker["role"] == "live" and broker["linked"]}
        return {b["name"] for b in brokers if b["linked"]} >= running and len(lives) == len(
            {n[0] for n in running}
        )

    async def stop(self, name: str, **options: Any) -> int:
        """A clean stop through the admin port; returns the exit status."""
        answer = await self.nodes[name].ask(command="stop", **options)
        assert answer == {"ok": True}
        return await self.exit_status(name)

    def cut(self, *pairs: tuple[str, str], condition: LinkCondition = CUT) -> None:
        """Cut the links between these brokers, both ways."""
        for one, other in pairs:
            self.set_condition(Link(one, other), condition)
            self.set_condition(Link(other, one), condition)

    def cut_one_way(self, source: str, target: str) -> None:
        """What ``source`` sends does not reach ``target``."""
        self.set_condition(Link(source, target), CUT)

    async def knows_lives(self, node: Node, count: int) -> bool:
        brokers = (await node.ask(command="brokers"))["brokers"]
        return sum(broker["role"] == "live" and broker["linked"] for broker in brokers) == count

    def isolate(self, *names: str) -> None:
        """Cut these brokers from all others (not from clients)."""
        self.cut(*((name, other) for name in names for other in self.names if other not in names))

    def heal(self) -> None:
        for link in self.links():
            self.set_condition(link, CLEAR)

    async def client(self, name: str, **headers: str) -> Client:
        client = await Client.connect(*self.nodes[name].address("stomp"), **headers)
        self._clients.append(client)
        return client


def cluster_test(pairs: int = 1, *, on_processes: bool = False, **replication: Any):
    """Make a test of an ``async def scenario(cluster)``; a failure shows the brokers' logs.

    In the simulation, where a vote takes no time and the same happens each time; what a process
    adds (its files, its signals, its kernel's connections) is tried with the few that are
    ``on_processes``.
    """

    def decorate(scenario):
        def conduct(cluster):
            async def run():
                async with cluster:
                    await scenario(cluster)

            try:
                cluster.run(run)
            except BaseException:
                for node in cluster.nodes.values():
                    print(f"----- {node.name}\n{node.log[-6000:]}")
                raise

        def in_the_simulation():
            from simulated import SimulatedCluster

            conduct(SimulatedCluster(pairs, **replication))

        @pytest.mark.cluster
        def really(tmp_path):
            from processes import ProcessCluster

            conduct(ProcessCluster(tmp_path, pairs, **replication))

        test = really if on_processes else in_the_simulation
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
