"""Probes of who may join a conventional cluster: rows CV7 and CV18."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from harness.claims.scenarios.ha_database_probes import member
from harness.claims.scenarios.probe import Notes, Probe
from harness.claims.scenarios.workbench import Broker, ProbeProcess, Relay, Workbench, on_bench

_SECTION: Final = "ha-policy.conventional"
_ATTEMPTS: Final = 12
_WRONG_CONFIGURATION: Final = 254
"""The exit status of ``brokerd`` for a configuration that is wrong."""
_LOCAL: Final = "127.0.0.1"
_NEWER: Final = (
    "import sys; from broker.cluster import messages; messages.VERSION += 1; "
    "from broker.daemon import main; sys.exit(main(sys.argv[1:]))"
)
"""A broker whose version of the cluster protocol is one newer, and that speaks this one, too."""


class _NewerBroker(Broker):
    """A broker of the next version."""

    async def start(self) -> ProbeProcess:
        """Start the broker."""
        words = "python", "-c", _NEWER, "--config", str(self.path)
        self._process = await self.bench.start(self.name, *words)
        return self._process


class _Cluster:
    """The two brokers of a probe: a1, which b1 dials through ``relay``, and b1."""

    def __init__(self, bench: Workbench, relay: Relay, port: int) -> None:
        self.bench = bench
        self.relay = relay
        self.ports = {"a1": port, "b1": bench.port()}
        self.connectors = {"a1": relay.address, "b1": f"{_LOCAL}:{self.ports['b1']}"}

    def broker(
        self,
        name: str,
        section: Mapping[str, Any] | None = None,
        cluster: Mapping[str, Any] | None = None,
        kind: type[Broker] = Broker,
    ) -> Broker:
        """Return a broker with other values of those properties of its policy and its cluster."""
        list_of_all = {"broker-list": list(self.connectors.values()), "allow-loopback": True}
        own_cluster = {"port": self.ports[name], "connector": self.connectors[name], "retry-interval": 50}
        table = {
            "admin": {"secret": self.bench.secret},
            "cluster": {**own_cluster, **(cluster or {})},
            "ha-policy": {"conventional": {**list_of_all, **(section or {})}},
        }
        return kind(self.bench, name, table)

    async def refused(self, first: Broker, second: Broker, reason: str, links: int = 2) -> None:
        """Start two brokers, and compare what each says of the other after a dozen attempts.

        Each must log each of its links once: the one that it dials, and the one that it accepts.
        Brokers that are linked all the same have not refused each other: then it waits no longer.
        """
        for broker in (first, second):
            await broker.start()

        async def have_tried() -> bool:
            have_said = all(len(broker.warnings) >= links for broker in (first, second))
            return (self.relay.attempts > _ATTEMPTS and have_said) or bool(await _listed(first))

        await self.bench.until("b1 tries again and again", f"{_ATTEMPTS} attempts", have_tried)
        for broker in (first, second):
            lines = [line for line in broker.warnings if reason in line]
            self.bench.compare(f"{broker.name} says it once of each link", links, len(lines))
            self.bench.compare(f"{broker.name} says nothing else", links, len(broker.warnings))
            self.bench.compare(f"whom {broker.name} is linked with", [], await _listed(broker))
            await broker.kill()

    async def linked(self, first: Broker, second: Broker) -> None:
        """Start two brokers, and return when they are linked."""
        for broker in (first, second):
            await broker.start()
        for broker, name in ((first, "b1"), (second, "a1")):
            lists = functools.partial(_lists, broker, name)
            await self.bench.until(f"{broker.name} is linked with {name}", name, lists)


async def _listed(broker: Broker) -> list[str]:
    """Return the names of the brokers that a broker is linked with; none if it does not answer."""
    try:
        brokers = (await broker.ask("brokers"))["brokers"]
    except OSError:
        return []
    return sorted(str(other["name"]) for other in brokers if other["name"] != broker.name and other["linked"])


async def _ended_or_serves(broker: Broker) -> bool:
    return not broker.process.running or await broker.shows("role", "live")


async def _lists(broker: Broker, name: str) -> bool:
    return name in await _listed(broker)


def _use_cluster(
    steps: Callable[[_Cluster], Coroutine[Any, Any, None]],
) -> Callable[[Notes], Coroutine[Any, Any, None]]:
    """Return a probe whose steps are taken with a cluster of their own."""

    @on_bench
    async def take(bench: Workbench) -> None:
        port = bench.port()
        async with Relay(port) as relay:
            await steps(_Cluster(bench, relay, port))

    return take


def _differs(
    name: str, wrong: Callable[[_Cluster], tuple[Any, Any]], *, cluster: bool = False
) -> Callable[[Notes], Coroutine[Any, Any, None]]:
    """Return a probe in which b1 has another value of a property than a1.

    ``wrong`` returns the value of a1, which is right, and that of b1.
    """
    key = name.rpartition(".")[2]

    @_use_cluster
    async def steps(pair: _Cluster) -> None:
        def broker(place: str, value: Any) -> Broker:
            changed = {key: value}
            return pair.broker(place, None if cluster else changed, changed if cluster else None)

        right, other = wrong(pair)
        await pair.refused(broker("a1", right), broker("b1", other), f"{name} is ")
        await pair.linked(broker("a1", right), broker("b1", right))

    return steps


@_use_cluster
async def _version(pair: _Cluster) -> None:
    master = {"master-broker": pair.connectors["a1"]}
    older = "no broker may be older than the master broker, a1"
    await pair.refused(pair.broker("a1", master, kind=_NewerBroker), pair.broker("b1", master), older)
    await pair.linked(pair.broker("a1", master), pair.broker("b1", master, kind=_NewerBroker))


@_use_cluster
async def _loopback(pair: _Cluster) -> None:
    bench = pair.bench
    for errors, host in enumerate((_LOCAL, "localhost"), 1):
        connector = f"{host}:{pair.ports['b1']}"
        strict = pair.broker(
            "b1", {"allow-loopback": False, "broker-list": [connector]}, {"connector": connector}
        )
        await strict.start()
        await bench.until(
            f"{host}: b1 has ended or serves", "either", functools.partial(_ended_or_serves, strict)
        )
        bench.require(f"{host}: b1 has ended", True, not strict.process.running)
        bench.compare(f"{host}: the exit status of b1", _WRONG_CONFIGURATION, await strict.process.wait())
        bench.compare(f"{host}: b1 says one line", errors, len(strict.errors))
        bench.compare(f"{host}: it names the property", True, "cluster.connector: " in strict.errors[-1])
    # Addresses for documentation, which lead to this machine by the tables of hosts.
    pair.connectors = {"a1": "192.0.2.1:61616", "b1": "192.0.2.2:61616"}
    routes = {"192.0.2.1:61616": pair.relay.address, "192.0.2.2:61616": f"{_LOCAL}:{pair.ports['b1']}"}

    def broker(name: str, *, allows: bool) -> Broker:
        table = {
            "admin": {"secret": bench.secret},
            "cluster": {"port": pair.ports[name], "connector": pair.connectors[name], "retry-interval": 50},
            "ha-policy": {
                "conventional": {"broker-list": list(pair.connectors.values()), "allow-loopback": allows}
            },
            "hosts": {other: where for other, where in routes.items() if other != pair.connectors[name]},
        }
        return Broker(bench, name, table)

    a1, b1 = broker("a1", allows=True), broker("b1", allows=False)
    for started in (a1, b1):
        await started.start()

    async def have_said() -> bool:
        return (len(a1.warnings) >= 1 and len(b1.warnings) >= 2) or bool(await _listed(b1))

    await bench.until("a1 and b1 say that a1's address leads back", "a line each", have_said)
    for broken, lines in ((a1, 1), (b1, 2)):
        led_back = [line for line in broken.warnings if "192.0.2.1:61616 leads to 127.0.0.1" in line]
        bench.compare(
            f"{broken.name} says it, and nothing else", [lines] * 2, [len(led_back), len(broken.warnings)]
        )
    for started in (a1, b1):
        bench.compare(f"whom {started.name} is linked with", [], await _listed(started))
        await started.kill()
    await pair.linked(broker("a1", allows=True), broker("b1", allows=True))


@_use_cluster
async def _family(pair: _Cluster) -> None:
    a1 = member(
        pair.bench,
        "a1",
        cluster={"port": pair.ports["a1"], "connector": pair.connectors["a1"]},
    )
    await pair.refused(a1, pair.broker("b1"), "ha-policy is ", links=1)
    await pair.linked(pair.broker("a1"), pair.broker("b1"))


PROBES: Final = (
    *(
        Probe(
            id=f"CV7-{case}",
            claim=claim,
            source="SUN",
            expected="each side logs one line for each of the two links, and they are not linked; with "
            "equal ones they are linked",
            take=take,
        )
        for case, claim, take in (
            (
                "list",
                "a broker with another broker list is refused by name",
                _differs(
                    f"{_SECTION}.broker-list",
                    lambda pair: (
                        list(pair.connectors.values()),
                        [*pair.connectors.values(), "c1.example:61616"],
                    ),
                ),
            ),
            (
                "master",
                "a broker with another master broker is refused by name",
                _differs(
                    f"{_SECTION}.master-broker",
                    lambda pair: (pair.connectors["a1"], pair.connectors["b1"]),
                ),
            ),
            (
                "id",
                "a broker with another cluster id is refused by name",
                _differs(f"{_SECTION}.cluster-id", lambda _: ("green", "blue")),
            ),
        )
    ),
    Probe(
        id="CV7-version",
        claim="a broker of an older version than the master's is refused by name",
        source="SUN",
        expected="each side logs one line for each of the two links; a broker that is newer than the master "
        "is linked",
        take=_version,
    ),
    Probe(
        id="CV7-loopback",
        claim="a broker whose address leads to a loopback address is refused",
        source="SUN",
        expected="it does not start, with one line; another broker that is led back logs one line for each "
        "link, and the refused one does, too; if the brokers allow it, they are linked",
        take=_loopback,
    ),
    Probe(
        id="CV18-family",
        claim="a cluster is conventional or of high availability: an ha-database broker meets a conventional "
        "one",
        source="SUN",
        expected="each side logs one line that names the policies, and they are not linked; two "
        "conventional ones are linked",
        take=_family,
    ),
    Probe(
        id="CV18-property",
        claim="all brokers have the same shared properties: one that differs is refused by its name",
        source="SUN",
        expected="each side logs one line for each of the two links, and they are not linked; with "
        "equal ones they are linked",
        take=_differs("cluster.name", lambda _: ("green", "blue"), cluster=True),
    ),
)
