"""Operations a second that the clients drive and record.

Beside what this machine can do at all in the same minutes.

Why a baseline: the same frames, sent and answered by bare asyncio with nothing parsed, recorded or
stored, on the same loopback: what is between the two is our work. An operation is a send or an ack
(invocation and completion) or a delivery. Real brokers are started here, without proxies and
without backups; clients and recorder are the ones of a test, the history goes to a temporary
directory.

    python -m bench.load [--brokers 1] [--seconds 8] [--rounds 2] [--producers 8] [--groups 64]
    [--pipeline 8] [--workload groups]
"""

# ruff: noqa: D102 - protocols are documented where they are declared
from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

import workloads.registry
from harness.history.recorder import StreamRecorder
from harness.interface import Address, Dialect, NodePlan, TestSpec, WorkloadContext
from stomp_protocol.codec import encode

BAR = 20_000
WARM_S = 1.0


async def drive(ports: dict[str, int], options: argparse.Namespace, directory: Path) -> tuple[float, float]:
    """Drives the clients: (operations a second, share of one core that this process used).

    After a second of warming up; every send is drained.
    """
    spec = TestSpec(
        name="bench",
        workload=options.workload,
        rate=0,
        producers=options.producers,
        consumers=options.consumers,
        groups=options.groups,
        payload_bytes=options.bytes,
    )
    async with StreamRecorder(directory) as recorder:
        context = WorkloadContext(
            spec=spec,
            recorder=recorder,
            dialect=Dialect(count_header="JMSXDeliveryCount", name_header="broker"),
            random=random.Random(1),
            nodes=tuple(
                NodePlan(name=name, pair=name[0], configured="standalone", ports={}) for name in ports
            ),
            zones=("c1",),
            resolve=lambda _, node: Address("127.0.0.1", ports[node]),
            stopping=asyncio.Event(),
        )
        workload = workloads.registry.create(options.workload, pipeline=options.pipeline)
        running = asyncio.create_task(workload.run(context))
        while not context.counters.get("deliver") and not running.done():  # noqa: ASYNC110 - the counters are the interface
            await asyncio.sleep(0.01)
        await asyncio.sleep(WARM_S)
        before, start, cpu = dict(context.counters), time.perf_counter(), time.process_time()
        await asyncio.sleep(options.seconds)
        span, used = time.perf_counter() - start, time.process_time() - cpu
        operations = {name: count - before.get(name, 0) for name, count in context.counters.items()}
        context.stopping.set()
        await running
        await workload.drain(context)
        assert operations.keys() <= {"ok", "deliver"}, operations
    return sum(operations.values()) / span, used / span


class PingPong(asyncio.Protocol):
    """The baseline: sends ``window`` frames, answers each answer with another.

    The other side does the same with its frame.
    """

    def __init__(self, frame: bytes, window: int) -> None:
        self.frame = frame
        self.window = window
        self.answers = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        if self.window:
            transport.write(self.frame * self.window)

    def data_received(self, data: bytes) -> None:
        count = data.count(b"\0")
        self.answers += count
        self.transport.write(self.frame * count)


SEND = encode("SEND", {"destination": "/queue/q0", "JMSXGroupID": "g1", "receipt": "123456"}, b"x" * 32)
RECEIPT = encode("RECEIPT", {"receipt-id": "123456"})


async def serve_baseline() -> None:
    server = await asyncio.get_running_loop().create_server(lambda: PingPong(RECEIPT, 0), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def baseline(port: int, options: argparse.Namespace) -> float:
    """Round trips a second of the same frames."""
    loop = asyncio.get_running_loop()
    window = options.pipeline * options.groups
    clients = [
        (await loop.create_connection(lambda: PingPong(SEND, window), "127.0.0.1", port))[1]
        for _ in range(options.producers)
    ]
    await asyncio.sleep(WARM_S)
    before, start = sum(client.answers for client in clients), time.perf_counter()
    await asyncio.sleep(options.seconds / 2)
    rate = (sum(client.answers for client in clients) - before) / (time.perf_counter() - start)
    for client in clients:
        client.transport.abort()
    return rate


def start_broker(name: str, directory: Path) -> tuple[subprocess.Popen[str], int]:
    """A real brokerd on a port of the system's choice."""
    directory.mkdir()
    path = directory / "broker.toml"
    path.write_text(
        f'[broker]\nname = "{name}"\n[acceptor]\nhost = "127.0.0.1"\nport = 0\n[admin]\nport = 0\n',
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "broker.daemon", "--config", str(path)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "serving STOMP on" in line:
            return process, int(line.rsplit(":", 1)[1])
    raise SystemExit("the broker did not start")


def measure_load(options: argparse.Namespace) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        processes, ports = [], {}
        try:
            for number in range(options.brokers):
                name = f"{chr(ord('a') + number)}1"
                process, ports[name] = start_broker(name, Path(directory, name))
                processes.append(process)
            return uvloop.run(drive(ports, options, Path(directory)))
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def measure_baseline(options: argparse.Namespace) -> float:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.load", "--serve-baseline"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        return uvloop.run(baseline(int(process.stdout.readline()), options))
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument(
        "--consumers", type=int, default=1, help="one a broker at least; more of them come and go"
    )
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--pipeline", type=int, default=8, help="sends under way per producer and group")
    parser.add_argument("--bytes", type=int, default=32, help="of the payload")
    parser.add_argument("--workload", choices=tuple(workloads.registry.WORKLOADS), default="groups")
    parser.add_argument("--serve-baseline", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_baseline:
        uvloop.run(serve_baseline())
        return
    bases, rates, shares = [], [], []
    for _ in range(options.rounds):
        bases.append(measure_baseline(options))
        rate, share = measure_load(options)
        rates.append(rate)
        shares.append(share)
    rate, base = statistics.median(rates), statistics.median(bases)
    verdict = "met" if rate >= BAR else "MISSED"
    print(f"baseline  {base:>9.0f} round trips/s     ({', '.join(f'{each:.0f}' for each in bases)})")
    print(f"load      {rate:>9.0f} operations/s      ({', '.join(f'{each:.0f}' for each in rates)})")
    print(f"          {rate / statistics.median(shares):>9.0f} operations/s of a core of the clients' own")
    print(
        f"bar       {BAR:>9} operations/s      {verdict}; {rate / base:.0%} of the baseline, "
        f"{options.brokers} broker(s)"
    )


if __name__ == "__main__":
    main()
