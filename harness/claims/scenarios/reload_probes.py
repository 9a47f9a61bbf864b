"""Probes of a conventional cluster that gets other brokers while it serves: rows CV9 and CV19."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from harness.claims.scenarios.probe import Notes, Probe
from harness.claims.scenarios.workbench import Broker, Workbench, on_bench
from harness.systems.stomp_client import StompClient

_FILE: Final = "cluster.toml"
_LEAST: Final = 20
"""The fewest messages that are sent to a broker before, and after, its list is changed."""


class _Load:
    """Messages that are sent to one broker all the time, over one connection."""

    def __init__(self, bench: Workbench, broker: Broker) -> None:
        self.sent: list[str] = []
        self._bench = bench
        self._broker = broker
        self._queue = f"/queue/of-{broker.name}"
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        async with await StompClient.connect(self._broker.stomp) as client:
            while not self._stopping.is_set():
                body = str(len(self.sent))
                await client.ask("SEND", body, destination=self._queue)
                self.sent.append(body)

    async def flows(self) -> None:
        """Return when enough more messages are sent."""
        before = len(self.sent)

        async def has_flowed() -> bool:
            return self._task.done() or len(self.sent) >= before + _LEAST

        await self._bench.until(f"messages are sent to {self._broker.name}", f"{_LEAST} more", has_flowed)

    async def end(self) -> None:
        """Stop sending, take all that was sent, and compare."""
        self._stopping.set()
        await self._task
        async with await StompClient.connect(self._broker.stomp) as client:
            await client.ask("SUBSCRIBE", id="1", destination=self._queue, ack="auto")
            bodies = [frame.body.decode() for frame in await client.messages(len(self.sent))]
        self._bench.compare(f"{self._broker.name} delivers all that it took", True, bodies == self.sent)


class _Cluster:
    """The brokers a1 to d1, with a cluster file or without.

    ``listed`` are the brokers of the list at first.
    """

    def __init__(self, bench: Workbench, listed: str, *, has_file: bool) -> None:
        self.bench = bench
        ports = {name: bench.port() for name in ("a1", "b1", "c1", "d1")}
        self._connectors = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        self._has_file = has_file
        self.brokers = {name: self._broker(name, port) for name, port in ports.items()}
        self.write(listed, *listed.split())

    def _broker(self, name: str, port: int) -> Broker:
        section: dict[str, Any] = {"allow-loopback": True}
        section |= {"cluster-file": _FILE} if self._has_file else {"broker-list": [self._connectors[name]]}
        cluster = {"port": port, "connector": self._connectors[name], "retry-interval": 50}
        return Broker(
            self.bench,
            name,
            {
                "admin": {"secret": self.bench.secret},
                "cluster": {**cluster, "max-retry-interval": 100},
                "ha-policy": {"conventional": section},
            },
        )

    def connectors(self, names: str) -> list[str]:
        """Return the connectors of brokers."""
        return [self._connectors[name] for name in names.split()]

    def write(self, listed: str, *names: str) -> None:
        """Write a list of brokers into the cluster file, or into the files of the named brokers."""
        if self._has_file:
            text = f"[ha-policy.conventional]\nbroker-list = {json.dumps(self.connectors(listed))}\n"
            (self.bench.directory / _FILE).write_text(text, encoding="utf-8")
            return
        for name in names:
            self.brokers[name].change({"ha-policy.conventional.broker-list": self.connectors(listed)})

    async def start(self, *names: str) -> None:
        """Start brokers."""
        for name in names:
            await self.brokers[name].start()
            await self.brokers[name].live()

    async def linked(self, names: str) -> None:
        """Return when each of the brokers is linked with all others of them, and with no other."""
        for name in names.split():

            async def has_links(name: str = name) -> bool:
                return await self.links(name) == sorted({*names.split()} - {name})

            await self.bench.until(f"{name} is linked with the others", names, has_links)

    async def links(self, name: str) -> list[str]:
        """Return the names of the brokers with which one is linked."""
        brokers = (await self.brokers[name].ask("brokers"))["brokers"]
        return sorted(
            str(broker["name"]) for broker in brokers if broker["linked"] and broker["name"] != name
        )

    async def reload(self, name: str) -> dict[str, Any]:
        """Run ``brokerctl reload cls`` at a broker, and return its answer."""
        command = *self.brokers[name].brokerctl, "--json", "reload", "cls"
        result = await self.bench.command(*command)
        self.bench.require(f"exit status of brokerctl reload cls at {name}", 0, result.status)
        answer: dict[str, Any] = json.JSONDecoder().raw_decode(result.output)[0]
        return answer

    async def refused(self, name: str, *by: str) -> None:
        """Return when a broker was refused by others, as all of them say, or is linked."""

        async def has_been() -> bool:
            are_told = all(
                any(
                    "ha-policy.conventional.broker-list is " in line for line in self.brokers[broker].warnings
                )
                for broker in (name, *by)
            )
            return are_told or bool(await self.links(name))

        await self.bench.until(f"{name} is refused by {' and '.join(by)}", "a line at each", has_been)
        self.bench.compare(f"whom {name} is linked with", [], await self.links(name))

    def lost(self, name: str, other: str) -> int:
        """Return how often a broker has lost the link with another one."""
        return self.brokers[name].process.output.count(f"cluster: link with {other} lost")


def _probe(
    listed: str, *, has_file: bool
) -> Callable[
    [Callable[[_Cluster], Coroutine[Any, Any, None]]], Callable[[Notes], Coroutine[Any, Any, None]]
]:
    """Return a probe on a cluster of its own, whose list has those brokers."""

    def decorated(
        steps: Callable[[_Cluster], Coroutine[Any, Any, None]],
    ) -> Callable[[Notes], Coroutine[Any, Any, None]]:
        @on_bench
        async def take(bench: Workbench) -> None:
            await steps(_Cluster(bench, listed, has_file=has_file))

        return take

    return decorated


async def _under_load(
    cluster: _Cluster, names: Sequence[str], change: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Change the cluster while messages are sent to those brokers, which must not notice it."""
    loads = [_Load(cluster.bench, cluster.brokers[name]) for name in names]
    for load in loads:
        await load.flows()
    await change()
    for load in loads:
        await load.flows()
    for load in loads:
        await load.end()
    first, second = names
    cluster.bench.compare(f"links that {first} and {second} lost", 0, cluster.lost(first, second))


@_probe("a1 b1 c1", has_file=True)
async def _grow(cluster: _Cluster) -> None:
    await cluster.start("a1", "b1")
    await cluster.linked("a1 b1")

    async def change() -> None:
        cluster.write("a1 b1 c1 d1")
        answer = await cluster.reload("a1")
        b1, c1, d1 = cluster.connectors("b1 c1 d1")
        cluster.bench.require(
            "b1 has read the file, c1 and d1 are down", {b1: "", c1: None, d1: None}, answer["told"]
        )
        await cluster.start("d1", "c1")
        await cluster.linked("a1 b1 c1 d1")

    await _under_load(cluster, ("a1", "b1"), change)


@_probe("a1 b1", has_file=True)
async def _edited_only(cluster: _Cluster) -> None:
    await cluster.start("a1", "b1")
    await cluster.linked("a1 b1")
    cluster.write("a1 b1 d1")
    await cluster.start("d1")
    await cluster.refused("d1", "a1", "b1")
    await cluster.reload("b1")
    await cluster.linked("a1 b1 d1")


@_probe("a1 b1 c1", has_file=True)
async def _shrink(cluster: _Cluster) -> None:
    await cluster.start("a1", "b1", "c1")
    await cluster.linked("a1 b1 c1")

    async def change() -> None:
        cluster.write("a1 b1")
        for name, other in (("a1", "b1"), ("b1", "a1")):
            await cluster.reload(name)
            cluster.bench.require(f"whom {name} is linked with", [other], await cluster.links(name))
        await cluster.refused("c1", "a1", "b1")
        failed = await cluster.brokers["c1"].ctl("reload", "cls")
        cluster.bench.compare("exit status of brokerctl reload cls at c1", 1, failed.status)
        reason = "broker-list lacks this broker"
        cluster.bench.compare("it says why", True, reason in failed.output)

    await _under_load(cluster, ("a1", "b1"), change)


@_probe("a1 b1", has_file=False)
async def _reload_at_each(cluster: _Cluster) -> None:
    await cluster.start("a1", "b1")
    await cluster.linked("a1 b1")

    async def change() -> None:
        cluster.write("a1 b1 d1", "a1", "b1", "d1")
        for name in ("a1", "b1"):
            answer = await cluster.reload(name)
            cluster.bench.require(f"the list of {name}", cluster.connectors("a1 b1 d1"), answer["brokers"])
            untold = {address for address, problem in answer["told"].items() if problem is None}
            cluster.bench.compare(f"how many {name} has told", 2, len(untold))
        await cluster.start("d1")
        await cluster.linked("a1 b1 d1")

    await _under_load(cluster, ("a1", "b1"), change)


@_probe("a1 b1 c1", has_file=False)
async def _restart(cluster: _Cluster) -> None:
    # A broker that starts may wait so long for one that it refuses, and that may hold its messages.
    for broker in cluster.brokers.values():
        broker.change({"cluster.connection-ttl": 2000})
    await cluster.start("a1", "b1", "c1")
    await cluster.linked("a1 b1 c1")
    sent = [str(number) for number in range(_LEAST)]
    async with await StompClient.connect(cluster.brokers["a1"].stomp) as client:
        for body in sent:
            await client.ask("SEND", body, destination="/queue/of-a1")
    for name in ("a1", "b1"):
        await cluster.brokers[name].kill(signal.SIGTERM)
    cluster.write("a1 b1", "a1", "b1")
    await cluster.start("a1", "b1")
    await cluster.refused("c1", "a1", "b1")
    await cluster.linked("a1 b1")
    async with await StompClient.connect(cluster.brokers["a1"].stomp) as client:
        await client.ask("SUBSCRIBE", id="1", destination="/queue/of-a1", ack="auto")
        bodies = [frame.body.decode() for frame in await client.messages(len(sent))]
    cluster.bench.compare("a1 delivers what it took before", sent, bodies)


def _described(row: str, claim: str, expected: str, take: Callable[[Notes], Any]) -> Probe:
    return Probe(id=row, claim=claim, source="SUN", expected=expected, take=take)


PROBES: Final = (
    _described(
        "CV9-grow",
        "a broker is added to the cluster file under load; `reload cls` at one broker reloads all",
        "the others link with it, and so does a broker that was down; no link is lost; what was sent is "
        "delivered",
        _grow,
    ),
    _described(
        "CV9-edited",
        "as CV9-grow, but without reload at first: the file alone changes nothing",
        "the new broker is refused by name; after a reload it is linked with all",
        _edited_only,
    ),
    _described(
        "CV9-shrink",
        "a broker is taken out of the cluster file under load; `reload cls` goes to each that remains",
        "it is unlinked, and refused by name on both sides; the others keep their link, and what was "
        "sent is delivered",
        _shrink,
    ),
    _described(
        "CV19-reload",
        "a broker is added without a cluster file: each list is changed, and `reload cls` goes to each "
        "broker",
        "the new broker is linked with all; no link is lost; what was sent is delivered",
        _reload_at_each,
    ),
    _described(
        "CV19-restart",
        "a broker is removed without a cluster file: the others restart with a shorter list",
        "the others are linked, and have what was sent before; the removed one is refused by name",
        _restart,
    ),
)
