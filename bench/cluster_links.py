"""What a cluster costs: links, traffic between idle brokers, and a forwarded message.

    python -m bench.cluster_links [--brokers 3,6,12] [--seconds 5] [--rounds 3]

Links and traffic are counted in the simulation, where every byte is known: brokers without backups,
first with nothing to do, then with a load that every broker produces and one broker consumes.

The processor time of a message is measured on two real processes. A message is sent durably at one
broker, and consumed and acknowledged at the same broker (the baseline) or at the other one, in
turns. Both figures are processor time of both brokers for each consumed message.
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import uvloop

from bench import durable_messages, policies
from environments.simulation import pipe
from harness.interface import Address, Schedule, TestSpec
from harness.run.simulate import simulate
from harness.systems.own.configuration import LOGIN, PASSCODE
from harness.systems.own.system import OwnSystem

PORT = ":61616"
"""The end of the name of a connection between brokers."""
LOAD_S = 20.0
LONGER_S = 40.0
MILLION = 1e6


class Traffic:
    """The connections between brokers that were opened, and the bytes on them."""

    def __init__(self) -> None:
        self.opened = 0
        self.sent = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count while it lasts."""
        original = pipe.SimulatedPipe.send

        def send(sender: pipe.SimulatedPipe, item: bytes | pipe.ControlSegment) -> None:
            if PORT in sender.node or PORT in sender.name:
                self.opened += item is pipe.ControlSegment.SYN
                self.sent += len(item) if isinstance(item, bytes) else 0
            original(sender, item)

        pipe.SimulatedPipe.send = send  # type: ignore[method-assign]
        try:
            yield
        finally:
            pipe.SimulatedPipe.send = original  # type: ignore[method-assign]


def traffic(brokers: int, *, load_s: float = LOAD_S, **fields: Any) -> tuple[Traffic, int]:
    """Return the traffic of a simulated run without faults, and how many sends were answered."""
    spec = TestSpec(
        name="links",
        policy="standalone",
        pairs=brokers,
        time_limit_s=load_s,
        seed=1,
        workload="queue",
        **fields,
    )
    count = Traffic()
    with count.counted():
        run = simulate(spec, Schedule(faults=()), judge=False)
    assert not run.trouble, run.trouble
    sends = sum(row["f"] == "send" and row["type"] == "ok" for row in run.rows)
    return count, sends


class Consumer(durable_messages.Consumer):
    """The same with a login, and without a limit that two brokers would feel differently."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.write(
            f"CONNECT\naccept-version:1.2\nhost:bench\nlogin:{LOGIN}\npasscode:{PASSCODE}\n\n\0"
            "SUBSCRIBE\nid:1\ndestination:/queue/bench\nack:client-individual\nprefetch-count:1000\n\n\0".encode()
        )


async def processor_time(
    system: OwnSystem,
    listen: Mapping[str, Mapping[str, Address]],
    reader: str,
    processes: list[psutil.Process],
    options: argparse.Namespace,
) -> float:
    """Return the processor time (s) of both brokers for a message from a1 to ``reader``."""
    async with asyncio.timeout(policies.READY_S):
        for ports in listen.values():
            while await _role(system, ports) != "live":  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    consumer = (await loop.create_connection(Consumer, "127.0.0.1", listen[reader]["stomp"].port))[1]
    await asyncio.sleep(2)  # the news of the consumer has come
    client = (
        await loop.create_connection(
            lambda: durable_messages.Client(0, options), "127.0.0.1", listen["a1"]["stomp"].port
        )
    )[1]
    await client.connected
    client.begin()
    async with asyncio.timeout(policies.READY_S):
        while not consumer.messages:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    before, consumed = _used(processes), consumer.messages
    await asyncio.sleep(options.seconds)
    used, consumed = _used(processes) - before, consumer.messages - consumed
    for one in (client, consumer):
        one.transport.abort()
    return used / consumed


async def _role(system: OwnSystem, ports: Mapping[str, Address]) -> str | None:
    try:
        return (await system.status(ports["admin"])).role
    except OSError:
        return None


def _used(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", default="3,6,12")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=int, default=50, help="sends on their way")
    parser.add_argument("--bytes", type=int, default=32, help="of the payload")
    options = parser.parse_args()
    options.login, options.passcode, options.groups = LOGIN, PASSCODE, 0
    print("| brokers | connections | bytes/s, idle | bytes/s per connection | bytes per forwarded message |")
    print("|---|---|---|---|---|")
    for brokers in map(int, options.brokers.split(",")):
        idle, few = traffic(brokers, rate=0.05)
        busy, many = traffic(brokers, rate=100.0, consume_at=("a1",))
        forwarded = (many - few) * (brokers - 1) / brokers
        longer, _ = traffic(brokers, rate=0.05, load_s=LONGER_S)
        rate = (longer.sent - idle.sent) / (LONGER_S - LOAD_S)
        print(
            f"| {brokers} | {idle.opened} | {rate:,.0f} | {rate / idle.opened:,.0f} "
            f"| {(busy.sent - idle.sent) / forwarded:,.0f} |"
        )
    figures: dict[str, list[float]] = {"a1": [], "b1": []}
    for _ in range(options.rounds):
        for reader, times in figures.items():
            system = OwnSystem()
            with (
                tempfile.TemporaryDirectory() as directory,
                policies.cluster(system, "standalone", Path(directory), pairs=2) as listen,
            ):
                brokers_running = psutil.Process().children()
                times.append(
                    uvloop.run(processor_time(system, listen, reader, brokers_running, options)) * MILLION
                )
    here, there = statistics.median(figures["a1"]), statistics.median(figures["b1"])
    each = "; ".join(", ".join(f"{time:.0f}" for time in times) for times in figures.values())
    print(
        f"\nprocessor time per message: {here:.0f} us here, {there:.0f} us forwarded "
        f"({there / here:.1f} times; {each})"
    )


if __name__ == "__main__":
    main()
