"""What the brokers of a conventional cluster cost each other.

    python -m bench.conventional [--rounds 3] [--count 1000] [--seconds 5]

Three comparisons on two real brokers, a1 and b1, whose halves are measured in turns:

    delivery   the time from a durable send at a1 until a consumer has the message, and the
               processor time of both brokers for it: a consumer at a1 against one at b1
    commit     the time until a commit is answered that acknowledges two messages: both of one home
               against one of each of two homes, which makes it a two-phase commit
    start      the time from the start of both processes until b1 serves: without a master broker
               against a1 as the master, whose record of changes b1 has to read first
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import uvloop

from bench import cluster_links, policies
from harness.interface import NO_MASTER, Address, TestSpec
from harness.systems.own.system import OwnSystem
from harness.systems.stomp_client import StompClient

POLICY = "conventional"
BROKERS = ("a1", "b1")
PATIENCE_S = 120.0
READY_S = 120.0
PATIENT = {"cluster.connection-ttl": 60_000, "acceptor.connection-ttl": 60_000}
"""No link is lost, and no client with it, while a busy neighbour has the processors."""
POLL_S = 0.01
MILLISECOND = 1e3
COMPARED = (
    ("delivery, from send to consumer", "ms", "consumer at a1", "consumer at b1"),
    (
        "delivery, processor time of both brokers",
        "us",
        "processor, consumer at a1",
        "processor, consumer at b1",
    ),
    ("commit", "ms", "one home", "two homes"),
    ("start to service of b1", "s", "no master", "master a1"),
)

Listen = Mapping[str, Mapping[str, Address]]


async def _connect(system: OwnSystem, listen: Listen, broker: str) -> StompClient:
    client = await StompClient.open(listen[broker]["stomp"], system.dialect, PATIENCE_S)
    assert client.connected.command == "CONNECTED", client.connected
    return client


async def _serves(system: OwnSystem, at: Address) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            with contextlib.suppress(OSError):
                if (await system.status(at)).role == "live":
                    return
            await asyncio.sleep(POLL_S)


async def _ask(client: StompClient, command: str, body: str = "", **headers: str) -> None:
    answer = await client.ask(command, body, **headers)
    assert answer.command == "RECEIPT", answer


async def _subscribe(client: StompClient, queue: str) -> None:
    await _ask(
        client,
        "SUBSCRIBE",
        id=queue,
        destination=f"/queue/{queue}",
        ack="client-individual",
        prefetch_count="1000",
    )


async def delivery_ms(system: OwnSystem, listen: Listen, reader: str, count: int) -> float:
    """Return the median time from a send at a1 until a consumer at ``reader`` has the message."""
    queue = f"to-{reader}"
    times = []
    async with (
        await _connect(system, listen, "a1") as sender,
        await _connect(system, listen, reader) as taker,
    ):
        await _subscribe(taker, queue)
        for number in range(count):
            begun = time.perf_counter()
            sender.tell("SEND", "x" * 32, destination=f"/queue/{queue}")
            [message] = await taker.messages(1)
            if number >= count // 10:  # the first ones find out where the consumer is
                times.append(time.perf_counter() - begun)
            await _ask(taker, "ACK", id=message.headers["ack"])
    return statistics.median(times) * MILLISECOND


async def commit_ms(system: OwnSystem, listen: Listen, other: str, count: int) -> float:
    """Return the median time of a commit that acknowledges a message of a1 and one of ``other``."""
    homes = {"first": "a1", f"second-{other}": other}
    for queue, home in homes.items():
        async with await _connect(system, listen, home) as sender:
            for _ in range(count):
                sender.tell("SEND", "x" * 32, destination=f"/queue/{queue}")
            await _ask(sender, "SEND", "x" * 32, destination=f"/queue/{queue}")
    times = []
    async with await _connect(system, listen, "a1") as client:
        waiting: dict[str, list[str]] = {queue: [] for queue in homes}
        for queue in homes:
            await _subscribe(client, queue)
        for number in range(count):
            while not all(waiting.values()):
                [message] = await client.messages(1)
                waiting[message.headers["subscription"]].append(message.headers["ack"])
            name = f"{other}-{number}"
            client.tell("BEGIN", transaction=name)
            for acks in waiting.values():
                client.tell("ACK", id=acks.pop(0), transaction=name)
            begun = time.perf_counter()
            await _ask(client, "COMMIT", transaction=name)
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * MILLISECOND


def start_s(master: str) -> float:
    """Return the time from the start of both brokers until b1 serves."""
    system = OwnSystem()
    spec = TestSpec(name="bench", policy=POLICY, pairs=2, master=master)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        brokers, listen = policies.prepared(system, spec, Path(directory))
        begun = time.perf_counter()
        for broker in brokers:
            stack.enter_context(broker.running())
        uvloop.run(_serves(system, listen["b1"]["admin"]))
        return time.perf_counter() - begun


async def latencies(system: OwnSystem, listen: Listen, count: int) -> dict[str, float]:
    """Return the times of deliveries and commits (ms), by what is compared."""
    for ports in listen.values():
        await _serves(system, ports["admin"])
    await asyncio.sleep(2)  # the brokers have linked
    measured: dict[str, float] = {}
    for reader in BROKERS:
        measured[f"consumer at {reader}"] = await delivery_ms(system, listen, reader, count)
    for homes, other in (("one home", "a1"), ("two homes", "b1")):
        measured[homes] = await commit_ms(system, listen, other, count)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=1000, help="deliveries and commits of each kind")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a measurement of processor time")
    parser.add_argument("--window", type=int, default=50, help="sends on their way for processor time")
    parser.add_argument("--bytes", type=int, default=32, help="of the payload for processor time")
    options = parser.parse_args()
    options.login, options.passcode = cluster_links.LOGIN, cluster_links.PASSCODE
    options.groups = 0
    figures: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        found: dict[str, float] = {}
        for reader in BROKERS:
            system = OwnSystem()
            with (
                tempfile.TemporaryDirectory() as directory,
                policies.cluster(system, POLICY, Path(directory), 2, PATIENT) as listen,
            ):
                processes = psutil.Process().children()
                used = cluster_links.processor_time(system, listen, reader, processes, options)
                found[f"processor, consumer at {reader}"] = uvloop.run(used) * cluster_links.MILLION
        system = OwnSystem()
        with (
            tempfile.TemporaryDirectory() as directory,
            policies.cluster(system, POLICY, Path(directory), 2, PATIENT) as listen,
        ):
            found |= uvloop.run(latencies(system, listen, options.count))
        found |= {"no master": start_s(NO_MASTER), "master a1": start_s("a1")}
        for name, figure in found.items():
            figures.setdefault(name, []).append(figure)
    print("| what | cheaper | dearer | ratio | of each round |")
    print("|---|---|---|---|---|")
    for what, unit, base, dear in COMPARED:
        ratios = [there / here for here, there in zip(figures[base], figures[dear], strict=True)]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"| {what} | {base}: {statistics.median(figures[base]):.3g} {unit} "
            f"| {dear}: {statistics.median(figures[dear]):.3g} {unit} "
            f"| {statistics.median(ratios):.2f} | {each} |"
        )


if __name__ == "__main__":
    main()
