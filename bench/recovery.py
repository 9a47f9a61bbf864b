"""How long a broker needs to serve what is stored: 10^3 ..

10^6 messages (row SS8 of the documents: start-up grows with the journal).

Two figures for each number of messages, bodies of 64 bytes to 1 kB in 1000 groups, on a directory
of this machine:

    recovery    the journal opened and an engine built from it, in a process of its own: what a
                start or a takeover costs by itself
    failover    policy shared-store: kill -9 of the live, first receipt from its backup (the backup
                asks for the lock every 100 ms)

Beside a baseline in the same process, just before: the same files read from end to end and their
CRC-32C computed, which no recovery that notices damage can do without.

On a machine that has other work, compare CPU seconds: they hardly depend on it.

With ``--paged`` the messages went through an engine whose queue has 32 MiB in memory (the default
of ``max-size-bytes``): the rest is on pages, as it would be in a broker, and the journal compacted
as in one that has rested for some seconds. Without, all of them are records of the journal, as they
are where ``address-full-policy`` is BLOCK.

    python bench/recovery.py [--messages 1000 10000 100000 1000000] [--rounds 3] [--paged]
    [--no-failover] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from broker import admin_client, config
from broker.core.engine import Engine
from broker.core.message import MESSAGE, QUEUE, Message, encode
from broker.core.settings import EngineSettings
from broker.policies.shared_store.lives import COMPLETE, directory
from broker.seams import real_seams
from broker.stomp.headers import kept_headers
from broker.storage.directory import DirectoryVolume
from broker.storage.entry import ADD, Operation
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal

GROUPS = 1000
LEAST_BYTES, MOST_BYTES = 64, 1024
BATCH = 1000
GC_THRESHOLDS = (50_000, 20, 50)
"""As brokerd's."""
ROOM = 16 * 1024**3
SECRET = "between-brokers-of-a-benchmark"  # noqa: S105 - they live for a minute


def messages(count: int) -> Iterator[Message]:
    """So many, the same ones each time."""
    chance = random.Random(count)
    for number in range(count):
        body = chance.randbytes(chance.randint(LEAST_BYTES, MOST_BYTES))
        group = f"group-{number % GROUPS}"
        headers = {"destination": "/queue/stored", "JMSXGroupID": group, "seq": str(number)}
        yield Message("stored", kept_headers(headers, len(body)), body, group)


async def fill(root: Path, path: str, count: int) -> None:
    """Writes a journal with so many messages in one queue.

    As a broker without pages would have written it.
    """
    volume = DirectoryVolume(root)
    await volume.mkdir(path)
    journal, _ = await Journal.open(volume, path)
    queue_id = journal.next_id()
    journal.append([Operation(ADD, QUEUE, queue_id, b"stored")])
    for number, message in enumerate(messages(count)):
        journal.append([Operation(ADD, MESSAGE, journal.next_id(), encode(message, queue_id))])
        if number % BATCH == 0:
            await journal.flush()
    await journal.close()
    await volume.close()


async def fill_paged(root: Path, path: str, count: int) -> None:
    """The same through an engine that pages."""
    volume = DirectoryVolume(root)
    await volume.mkdir(path)
    journal, recovered = await Journal.open(volume, path)
    gate = DurabilityGate(journal.synced)
    settings = EngineSettings(node_id="bench", global_max_size=ROOM)
    engine = Engine(journal, recovered, gate, settings, real_seams())
    journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
    for number, message in enumerate(messages(count)):
        engine.send("stored", message)
        if number % BATCH == 0:
            await journal.flush()
            while engine.memory.is_full("stored"):
                room = asyncio.Event()
                engine.memory.wait("stored", room.set)
                await room.wait()
    await journal.flush()
    await journal.compacted()
    engine.abandon()
    await journal.close()
    await volume.close()


def read_all(root: Path) -> tuple[float, float, int]:
    """The baseline: reading every file and computing its checksum.

    Returns (seconds, CPU seconds, bytes).
    """
    begin, begin_cpu = time.perf_counter(), time.process_time()
    size = 0
    for path in sorted(root.rglob("*")):
        if path.is_file():
            checksum = google_crc32c.Checksum()
            with path.open("rb") as file:
                while part := file.read(1024 * 1024):
                    checksum.update(part)
                    size += len(part)
    return time.perf_counter() - begin, time.process_time() - begin_cpu, size


async def recover_once(root: Path, path: str) -> dict[str, float]:
    """One recovery in this process. Times in seconds, memory in MiB."""
    baseline_s, baseline_cpu_s, size = read_all(root / path)
    began_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    volume = DirectoryVolume(root)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    journal, recovered = await Journal.open(volume, path)
    opened = time.perf_counter()
    settings = EngineSettings(node_id="bench", global_max_size=ROOM)
    engine = Engine(journal, recovered, DurabilityGate(journal.synced), settings, real_seams())
    ready, ready_cpu = time.perf_counter(), time.process_time()
    found = sum(status.messages for status in engine.status())
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    engine.abandon()
    await journal.close()
    await volume.close()
    return {
        "messages": found,
        "bytes": size,
        "baseline_s": baseline_s,
        "baseline_cpu_s": baseline_cpu_s,
        "cpu_s": ready_cpu - begin_cpu,
        "open_s": opened - begin,
        "engine_s": ready - opened,
        "memory_mib": peak_mib - began_mib,
    }


def measured(root: Path, path: str) -> dict[str, float]:
    """``recover_once`` in a fresh process."""
    command = [sys.executable, __file__, "--recover", str(root), path]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def broker(root: Path, name: str, role: str, ports: tuple[int, int, int], peers: list[int]) -> Path:
    """Write the configuration of one broker of the pair."""
    stomp, cluster, admin = ports
    table = {
        "broker": {
            "name": name,
            "data-directory": str(root / "data"),
            "log-level": "INFO",
            "global-max-size": ROOM,
        },
        "acceptor": {"host": "127.0.0.1", "port": stomp},
        "admin": {"port": admin},
        "cluster": {
            "host": "127.0.0.1",
            "port": cluster,
            "cluster-password": SECRET,
            "connector": f"127.0.0.1:{cluster}",
            "stomp-connector": f"127.0.0.1:{stomp}",
            "static-connectors": [f"127.0.0.1:{port}" for port in peers],
        },
        "ha-policy": {"shared-store": {role: {"lock-poll-period": 100}}},
    }
    path = root / f"{name}.toml"
    config.validate(table)
    path.write_text(config.dumps(table))
    return path


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def first_ok(port: int) -> float:
    """When (``perf_counter``) a send was first answered on that port."""
    frames = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0SEND\ndestination:/queue/probe\nreceipt:1\n\nx\0"
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
                connection.sendall(frames)
                answer = b""
                while part := connection.recv(4096):
                    answer += part
                    if b"receipt-id:1" in answer:
                        return time.perf_counter()
        except OSError:
            pass
        time.sleep(0.005)


def role(port: int) -> str:
    """What a broker's admin port says it is; "" while nothing answers."""
    try:
        return str(
            asyncio.run(admin_client.ask(admin_client.Target("127.0.0.1", port, SECRET), "status"))["role"]
        )
    except admin_client.NobodyAnswersError:
        return ""


def failover(root: Path) -> float:
    """Seconds from kill -9 of the live to the first receipt from its backup."""
    ports = free_ports(6)
    paths = (
        broker(root, "a1", "master", (ports[0], ports[1], ports[2]), [ports[4]]),
        broker(root, "a2", "slave", (ports[3], ports[4], ports[5]), [ports[1]]),
    )
    processes: list[subprocess.Popen[bytes]] = []
    with (root / "brokers.log").open("wb") as log:
        try:
            for path, admin, wanted in zip(paths, (ports[2], ports[5]), ("live", "backup"), strict=True):
                command = [sys.executable, "-m", "broker.daemon", "--config", str(path)]
                processes.append(subprocess.Popen(command, stderr=log, stdout=log))
                while role(admin) != wanted:
                    if processes[-1].poll() is not None:
                        raise RuntimeError((root / "brokers.log").read_text())
                    time.sleep(0.05)
            processes[0].kill()
            begin = time.perf_counter()
            return first_ok(ports[3]) - begin
        finally:
            for process in processes:
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paged", action="store_true")
    parser.add_argument("--no-failover", action="store_true")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--recover", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.recover:
        print(json.dumps(asyncio.run(recover_once(Path(arguments.recover[0]), arguments.recover[1]))))
        return 0
    print("                     baseline         recovery                                       failover")
    print("messages      MB  wall s   CPU s   wall s   CPU s  (journal + engine, wall)  memory MiB  wall s")
    for count in arguments.messages:
        with tempfile.TemporaryDirectory(prefix="bench-recovery-", dir=arguments.directory) as name:
            root = Path(name)
            life = directory(1)
            asyncio.run((fill_paged if arguments.paged else fill)(root / "data", life, count))
            rounds = [measured(root / "data", life) for _ in range(arguments.rounds)]
            assert all(one["messages"] == count for one in rounds), rounds
            middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
            (root / "data" / life / COMPLETE).write_text(str(uuid.UUID(int=count)))
            pause = "" if arguments.no_failover else f"{failover(root):>10.3f}"
            total_s = middle["open_s"] + middle["engine_s"]
            parts = f"{middle['open_s']:.3f} + {middle['engine_s']:.3f}"
            print(
                f"{count:>8} {middle['bytes'] / 1e6:>7.1f} {middle['baseline_s']:>7.3f} "
                f"{middle['baseline_cpu_s']:>7.3f} {total_s:>8.3f}"
                f" {middle['cpu_s']:>7.3f}  {parts:>24}  {middle['memory_mib']:>10.0f} {pause}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
