"""Probes of the links of a cluster and of the node IDs of its brokers: rows CL3 and CL4."""

from __future__ import annotations

import functools
import shutil
import signal
from collections.abc import Sequence
from typing import Any, Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, Relay, Workbench, on_bench

_USER: Final = "cluster.user-of-the-probe"
_CLUSTER: Final = "cluster-of-the-probe"
_MEMBER: Final = "broker-of-the-cluster"
_JOINING: Final = "joining-broker"
"""Names so long that no random bytes of a handshake contain them by chance."""
_REASON: Final = "wrong cluster-user or cluster-password"
_DUPLICATE: Final = "duplicate node ID: "
_ATTEMPTS: Final = 12


def _broker(bench: Workbench, name: str, /, **cluster: Any) -> Broker:
    """Return a broker without a backup, with these settings of its cluster besides."""
    table = {"admin": {"secret": bench.secret}, "cluster": {"retry-interval": 50, **cluster}}
    return Broker(bench, name, table)


def _member(bench: Workbench, name: str, /, **cluster: Any) -> Broker:
    """Return a broker of the cluster of CL3, with these settings in place of the right ones."""
    return _broker(bench, name, **{"name": _CLUSTER, "cluster-user": _USER, **cluster})


async def listed(broker: Broker) -> list[str]:
    """Return the names of the other brokers that a broker lists."""
    brokers = (await broker.ask("brokers"))["brokers"]
    return sorted(str(other["name"]) for other in brokers if other["name"] != broker.name)


async def _linked(broker: Broker, other: Broker) -> bool:
    return other.name in await listed(broker)


async def await_listed(bench: Workbench, broker: Broker, other: Broker) -> None:
    """Return when a broker lists the other one. Raises StepMissedError."""
    await bench.until(
        f"{broker.name} meets {other.name}", other.name, functools.partial(_linked, broker, other)
    )


async def _refused(bench: Workbench, member: Broker, credential: str, address: str, **wrong: str) -> None:
    """Let a stranger dial a member from ``address`` until it was refused a dozen times.

    The reason is readable on the way, which shows that the relay sees what passes.

    Each stranger has an address of its own: a broker tells of an address and a reason once.
    """
    earlier = len(member.warnings)
    async with Relay(member.cluster, address) as relay:
        stranger = _member(bench, f"wrong-{credential}", **{"static-connectors": [relay.address], **wrong})
        await stranger.start()
        await stranger.live()

        async def has_tried() -> bool:
            return relay.attempts > _ATTEMPTS or bool(await listed(member))

        await bench.until(
            f"wrong {credential}: the stranger tries again and again", f"{_ATTEMPTS} attempts", has_tried
        )
        lists = {broker.name: await listed(broker) for broker in (member, stranger)}
        bench.compare(f"wrong {credential}: who is listed", {_MEMBER: [], stranger.name: []}, lists)
        refusals = [line for line in member.warnings[earlier:] if _REASON in line]
        bench.compare(f"wrong {credential}: the member logs it once, whatever the attempts", 1, len(refusals))
        reasons = [line.rpartition(": ")[2] for line in stranger.warnings]
        bench.compare(f"wrong {credential}: the stranger logs it once, and nothing else", [_REASON], reasons)
        hidden = [bench.secret, _USER, *wrong.values(), _CLUSTER, _MEMBER, member.connector, stranger.name]
        readable = relay.readable(*hidden, _REASON)
        bench.compare(f"wrong {credential}: what the bytes on the way tell", [_REASON], readable)
        await stranger.kill()


@on_bench
async def _cl3(bench: Workbench) -> None:
    member = _member(bench, _MEMBER)
    await member.start()
    await member.live()
    await _refused(
        bench, member, "password", "127.0.0.2", **{"cluster-password": "not-the-password-of-the-cluster"}
    )
    await _refused(bench, member, "user", "127.0.0.3", **{"cluster-user": "another-user"})
    async with Relay(member.cluster) as relay:
        other = _member(bench, _JOINING, **{"static-connectors": [relay.address]})
        await other.start()
        await await_listed(bench, member, other)
        await await_listed(bench, other, member)
        names = [_CLUSTER, _MEMBER, _JOINING]
        readable = relay.readable(bench.secret, _USER, *names)
        bench.compare("the right ones: what the bytes on the way tell", names, readable)


async def _node_ids(bench: Workbench, brokers: Sequence[Broker]) -> list[str]:
    """Start two brokers, let them meet, and stop them; return their node IDs."""
    for broker in brokers:
        await broker.start()
        await broker.live()
    for broker, other in (brokers, brokers[::-1]):
        await await_listed(bench, broker, other)
    node_ids = [str((await broker.ask("status"))["node-id"]) for broker in brokers]
    for broker in brokers:
        await broker.kill(signal.SIGTERM)
    return node_ids


@on_bench
async def _cl4(bench: Workbench) -> None:
    original = _broker(bench, "a1")
    other = _broker(bench, "b1", **{"static-connectors": [original.connector]})
    brokers = original, other

    def warned() -> list[int]:
        return [sum(_DUPLICATE in line for line in broker.warnings) for broker in brokers]

    first, second = await _node_ids(bench, brokers)
    bench.compare("each broker with data of its own has an ID of its own", True, first != second)
    bench.compare("the same after a restart", [first, second], await _node_ids(bench, brokers))
    bench.compare("warnings of either broker so far", [0, 0], warned())
    shutil.rmtree(other.data)
    shutil.copytree(original.data, other.data)
    bench.compare("b1 on a copy of a1's data", [first, first], await _node_ids(bench, brokers))
    bench.compare("warnings of either broker then", [1, 1], warned())
    shutil.rmtree(other.data)
    third, fourth = await _node_ids(bench, brokers)
    bench.compare("b1 without data has a new ID", [first, True], [third, fourth not in (first, second)])
    bench.compare("no warning is added", [1, 1], warned())


PROBES: Final = (
    Probe(
        id="CL3",
        claim="cluster user and password must match: a broker with another one is refused, both log it "
        "once, and nothing leaks",
        source="AMQ 17.2",
        expected="a stranger is in no list, and learns no name; with the right ones the brokers meet",
        take=_cl3,
    ),
    Probe(
        id="CL4",
        claim="the node ID is durable; if two brokers have one, since data were copied, each warns of it",
        source="AMQ 17.1.3",
        expected="an ID outlives restarts, and goes with the data; two lives with one ID log one warning "
        "each, brokers with data of their own none",
        take=_cl4,
    ),
)
