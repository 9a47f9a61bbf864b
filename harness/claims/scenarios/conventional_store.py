"""A scenario and probes of conventional clusters whose brokers store in databases: row CV17."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.claims.scenarios.cases import SLOW, at_stake, fault, faults, load
from harness.claims.scenarios.cluster_probes import await_listed
from harness.claims.scenarios.expectations import Answers
from harness.claims.scenarios.ha_database_probes import QUEUE, started, stored
from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.scenario import Scenario
from harness.claims.scenarios.workbench import Broker, Workbench, on_bench
from harness.systems.stomp_client import send

_SOURCE: Final = "CAPS, JDBC store"
_EXPIRATION_MS: Final = 4000
"""Long enough for a busy machine: nothing here waits for it but a restart after a kill."""


def _brokers(bench: Workbench, names: Sequence[str]) -> list[Broker]:
    """Return the brokers of a cluster, each with a store of its own in one database."""
    ports = [bench.port() for _ in names]
    members = [f"127.0.0.1:{port}" for port in ports]
    return [_broker(bench, name, name, port, members) for name, port in zip(names, ports, strict=True)]


def _broker(bench: Workbench, name: str, store_name: str, port: int, members: Sequence[str]) -> Broker:
    return Broker(
        bench,
        name,
        {
            "cluster": {"port": port, "connector": f"127.0.0.1:{port}", "retry-interval": 50},
            "ha-policy": {"conventional": {"broker-list": [*members], "allow-loopback": True}},
            "database-store": {
                "url": "sqlite:store.sqlite",
                "store-name": store_name,
                "lock-renew-period": 500,
                "lock-expiration": _EXPIRATION_MS,
            },
        },
    )


@on_bench
async def _cv17(bench: Workbench) -> None:
    first, other = _brokers(bench, ("a1", "b1"))
    await started(first, other)
    await await_listed(bench, first, other)
    await send(first.stomp, QUEUE, "kept")
    await send(other.stomp, QUEUE, "other")
    await first.kill()
    bench.compare("no broker takes over from a killed one", ["other"], await stored(other))
    await send(other.stomp, QUEUE, "later")
    await started(first)
    bench.compare("the restarted broker has its messages", ["kept"], await stored(first))
    await first.stop()
    await started(first)
    bench.compare("it has them after a stop, too", ["kept"], await stored(first))
    bench.compare("the other broker has its own", ["other", "later"], await stored(other))


@on_bench
async def _cv17_name(bench: Workbench) -> None:
    [owner] = _brokers(bench, ("a1",))
    await started(owner)
    await send(owner.stomp, QUEUE, "kept")
    port = bench.port()
    second = _broker(bench, "b1", "a1", port, [f"127.0.0.1:{port}"])
    refusal = (
        "database-store.store-name 'a1' is the store of broker 'a1': each broker of a conventional cluster "
        "has a store of its own"
    )
    process = await second.start()
    bench.compare("a second broker with the name of a store in use ends", 1, await process.wait())
    bench.compare("one error line names the store and its broker", [refusal], second.errors)
    bench.compare("the owner goes on", True, await owner.shows("role", "live"))
    await owner.stop()
    process = await second.start()

    async def decided() -> str:
        if not process.running:
            return "ends"
        return "serves" if await second.shows("role", "live") else ""

    bench.require(
        "the second broker, when the owner does not run",
        "ends",
        await bench.until("the second broker", "ends", decided),
    )
    await started(owner)
    bench.compare("the owner has its messages", ["kept"], await stored(owner))


SCENARIOS: Final = (
    Scenario(
        id="CV17-kill",
        claim="a broker with a store in a database is killed: its messages wait for its restart, and the "
        "other broker goes on",
        source=_SOURCE,
        spec=load("cv17-kill", "conventional", 12.0, pairs=2, store={"type": "database"}, **SLOW),
        schedule=faults(fault("kill", 4.0, 4.0)),
        besides=(Answers(window=("kill-1", "heal:kill-1"), broker="b1", least=20),),
        guards=at_stake("kill-1"),
    ),
)

PROBES: Final = (
    Probe(
        id="CV17",
        claim="each broker of a conventional cluster may keep its messages in a database: after a kill it "
        "has them again, and no other broker takes over",
        source=_SOURCE,
        expected="each broker has what it took, after a kill and after a stop",
        take=_cv17,
    ),
    Probe(
        id="CV17-name",
        claim="each broker has a store of its own: a second broker with the same store-name is refused, "
        "whether the first one runs or not",
        source=_SOURCE,
        expected="the second broker ends with one line that names the first, which keeps its messages",
        take=_cv17_name,
    ),
)
