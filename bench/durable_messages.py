"""Durable messages a second through one broker.

Beside what this machine can do at all in the same minutes.

Why a baseline: a figure without one says more about the machine and its neighbours than about the
broker. The baseline is a bare asyncio server that only splits frames at NUL, appends them to a
file, syncs once per batch and answers with the same receipts: no parsing, no queues, no records.
Both are driven by the same client, one after the other, several times.

    send          SEND with a receipt, durable before it is answered (group commit)
    send+consume  the same messages, each also delivered and acknowledged (client-individual) by a
                  consumer

    python bench/durable_messages.py [--seconds 5] [--rounds 2] [--connections 8] [--window 100]
    [--groups 64] [--bytes 32]
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop

BAR = 10_000
RECEIPT = b"RECEIPT\n"
ACK = re.compile(rb"\nack:([^\n]+)\n")


class Client(asyncio.Protocol):
    """Keeps ``window`` sends without receipts on its way."""

    def __init__(self, number: int, options: argparse.Namespace) -> None:
        self.window = options.window
        login = (
            b"login:%b\npasscode:%b\n" % (options.login.encode(), options.passcode.encode())
            if options.login
            else b""
        )
        self.connect = b"CONNECT\naccept-version:1.2\nhost:bench\n%b\n\0" % login
        self.connected = asyncio.get_running_loop().create_future()
        body = b"x" * options.bytes
        group = number % options.groups if options.groups else None
        grouped = b"" if group is None else b"JMSXGroupID:g%d\n" % group
        self.frame = b"SEND\ndestination:/queue/bench\n%breceipt:r%d\ncontent-length:%d\n\n%b\0" % (
            grouped,
            number,
            len(body),
            body,
        )
        self.receipts = 0
        self.running = False
        self.tail = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.write(self.connect)

    def data_received(self, data: bytes) -> None:
        if not self.connected.done():
            assert data.startswith(b"CONNECTED"), data
            self.connected.set_result(None)
            return
        data = self.tail + data
        whole = data.rfind(b"\0") + 1
        self.tail = data[whole:]
        count = data.count(RECEIPT, 0, whole)
        self.receipts += count
        assert b"ERROR\n" not in data, data[:500]
        if self.running and count:
            self.transport.write(self.frame * count)

    def begin(self) -> None:
        self.running = True
        self.transport.write(self.frame * self.window)


class Consumer(asyncio.Protocol):
    """Acknowledges every message it gets."""

    def __init__(self) -> None:
        self.messages = 0
        self.tail = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.write(
            b"CONNECT\naccept-version:1.2\nhost:bench\n\n\0"
            b"SUBSCRIBE\nid:1\ndestination:/queue/bench\nack:client-individual\nprefetch-count:1000\n\n\0"
        )

    def data_received(self, data: bytes) -> None:
        data = self.tail + data
        whole = data.rfind(b"\0") + 1
        self.tail = data[whole:]
        ids = ACK.findall(data, 0, whole)
        self.messages += len(ids)
        if ids:
            self.transport.write(b"".join([b"ACK\nid:%b\n\n\0" % one for one in ids]))


async def measure(port: int, options: argparse.Namespace, consumers: int) -> tuple[float, float]:
    """(sends answered a second, messages consumed a second), after a second of warming up."""
    loop = asyncio.get_running_loop()
    readers = [(await loop.create_connection(Consumer, "127.0.0.1", port))[1] for _ in range(consumers)]
    clients = [
        (await loop.create_connection(lambda n=n: Client(n, options), "127.0.0.1", port))[1]
        for n in range(options.connections)
    ]
    for client in clients:
        await client.connected
    for client in clients:
        client.begin()
    await asyncio.sleep(1)
    start, sent, consumed = loop.time(), sum(c.receipts for c in clients), sum(r.messages for r in readers)
    await asyncio.sleep(options.seconds)
    span = loop.time() - start
    sent = sum(c.receipts for c in clients) - sent
    consumed = sum(r.messages for r in readers) - consumed
    for one in (*clients, *readers):
        one.running = False
        one.transport.abort()
    return sent / span, consumed / span


async def baseline(directory: str) -> None:
    """Frames in, batches to disk, receipts out; nothing else."""
    loop = asyncio.get_running_loop()
    file = os.open(f"{directory}/baseline", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    waiting: list[tuple[asyncio.Transport, bytes, int]] = []
    pending: list[bytes] = []
    wake = asyncio.Event()

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            self.transport = transport
            self.tail = b""
            self.greeted = False
            self.answer = b""

        def data_received(self, data: bytes) -> None:
            if not self.greeted:
                self.greeted = True
                self.transport.write(b"CONNECTED\nversion:1.2\n\n\0")
                return
            *frames, self.tail = (self.tail + data).split(b"\0")
            if not self.answer and frames:
                receipt = re.search(rb"receipt:(r\d+)", frames[0])
                self.answer = b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt[1]
            pending.extend(frames)
            waiting.append((self.transport, self.answer, len(frames)))
            wake.set()

    async def commit() -> None:
        while True:
            await wake.wait()
            wake.clear()
            batch, answers = pending.copy(), waiting.copy()
            pending.clear()
            waiting.clear()
            os.write(file, b"".join(batch))
            await loop.run_in_executor(None, os.fdatasync, file)
            for transport, answer, count in answers:
                transport.write(answer * count)

    server = await loop.create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await commit()


def start_broker(directory: str) -> tuple[subprocess.Popen[str], int]:
    """A real brokerd on a port of the system's choice."""
    path = Path(directory, "broker.toml")
    path.write_text(
        '[broker]\nname = "bench"\nglobal-max-size = 2000000000\n[acceptor]\nhost = "127.0.0.1"\nport = '
        "0\n[admin]\nport = 0\n"
        '[[address-settings]]\nmatch = "#"\nmax-size-bytes = -1\n'
    )
    command = [sys.executable, "-m", "broker.daemon", "--config", str(path)]
    if os.environ.get("BENCH_PROFILE"):
        command[1:1] = ["-m", "cProfile", "-o", os.environ["BENCH_PROFILE"]]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "serving STOMP on" in line:
            return process, int(line.rsplit(":", 1)[1])
    raise SystemExit("the broker did not start")


def start_baseline(directory: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve-baseline", directory], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--window", type=int, default=100, help="sends on their way per connection")
    parser.add_argument("--groups", type=int, default=64, help="0: no groups")
    parser.add_argument("--bytes", type=int, default=32, help="of the payload")
    parser.add_argument("--serve-baseline", help=argparse.SUPPRESS)
    parser.set_defaults(login="", passcode="")
    options = parser.parse_args()
    if options.serve_baseline:
        uvloop.run(baseline(options.serve_baseline))
        return
    kinds = (("baseline", start_baseline, 0), ("send", start_broker, 0), ("send+consume", start_broker, 2))
    figures: dict[str, list[float]] = {name: [] for name, _, _ in kinds}
    for _ in range(options.rounds):
        for name, start, consumers in kinds:
            with tempfile.TemporaryDirectory(dir=".") as directory:
                process, port = start(directory)
                try:
                    sent, consumed = uvloop.run(measure(port, options, consumers))
                finally:
                    process.terminate()
                    process.wait()
                figures[name].append(min(sent, consumed) if consumers else sent)
    base = statistics.median(figures["baseline"])
    print(f"{'what':<14}{'messages/s':>12}{'of baseline':>13}   bar {BAR}")
    for name, rates in figures.items():
        rate = statistics.median(rates)
        verdict = "" if name == "baseline" else ("  met" if rate >= BAR else "  MISSED")
        spread = ", ".join(f"{each:.0f}" for each in rates)
        print(f"{name:<14}{rate:>12.0f}{rate / base:>12.0%} {verdict}   ({spread})")


if __name__ == "__main__":
    main()
