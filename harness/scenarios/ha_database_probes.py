"""What chapter 8 of Sun 4.1 says of a high-availability cluster's administration, shown on real processes that share an SQLite file: rows HA8 to HA10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.scenarios.bench import Bench, Broker
from harness.scenarios.probe import Notes, Probe

_CLUSTER: Final = "probe"
_SOURCE: Final = "SUN, High-Availability Clusters"


def member(
    bench: Bench, name: str, *, broker_id: str | None = None, cluster: Mapping[str, Any] | None = None
) -> Broker:
    """A broker of the cluster, in a file beside its configuration. Its lease is long: nobody is taken over because this machine is slow."""
    return Broker(
        bench,
        name,
        {
            "cluster": {"connection-ttl": 6000, **(cluster or {})},
            "ha-policy": {
                "ha-database": {
                    "cluster-id": _CLUSTER,
                    "broker-id": broker_id or name,
                    "heartbeat-interval": 250,
                    "monitor-interval": 200,
                }
            },
            "database-store": {
                "url": "sqlite:store.sqlite",
                "network-timeout": 5000,
                "lock-renew-period": 500,
                "lock-expiration": 8000,
            },
        },
    )


async def _ha8(notes: Notes) -> None:
    async with Bench(notes) as bench:
        first = member(bench, "a1")
        second = member(bench, "b1", cluster={"static-connectors": ["127.0.0.1:1"]})
        twin = member(bench, "twin", broker_id="a1")
        await first.start()
        await first.live()
        listed = await first.ctl("members")
        notes.compare(
            "one broker is there, registered by itself",
            ["a1"],
            [line.split()[0] for line in listed.lines[2:]],
        )
        started = await second.start()
        await second.live()
        listed = await first.ctl("members")
        notes.compare(
            "another one is there, in no list of anybody",
            ["a1", "b1"],
            [line.split()[0] for line in listed.lines[2:]],
        )
        notes.compare(
            "its list of brokers is ignored, and a line warns of it",
            1,
            sum(
                " WARNING " in line and "cluster.static-connectors is ignored" in line
                for line in started.output.splitlines()
            ),
        )
        refused = await twin.start()
        notes.compare("a broker whose id is in use ends", 1, await refused.wait())
        lines = [line for line in refused.output.splitlines() if " ERROR " in line]
        notes.compare(
            "and says so in one line, with who has the id",
            [
                f"ha-policy.ha-database.broker-id 'a1' is in use by the broker at 127.0.0.1:{first.cluster}: every broker of a cluster needs an id of its own"
            ],
            [line.partition(" ERROR twin ")[2] for line in lines],
        )
        status = await first.status()
        notes.compare("the one that has it goes on", "live", status["role"] if status else "gone")


PROBES: Final = (
    Probe(
        id="HA8",
        claim="brokers register themselves under unique ids; a list of brokers is ignored with a warning",
        source=_SOURCE,
        expected="a second broker with an id in use ends with one line that names the first; the first goes on",
        take=_ha8,
    ),
)
