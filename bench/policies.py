"""Durable messages a second under each policy, in the same minutes on the same machine.

Why: AMQ 17.3.2 says that a shared store performs better than replication, for nothing is copied
over the network; here that is measured. The baseline is a broker alone (policy ``standalone``):
what the machine can do when nobody else has to know. Every round measures all policies one after
the other, and the ratio to replication is taken within the round, so that a busy neighbour spoils
both.

    python bench/policies.py [--rounds 5] [--seconds 4] [--policies
    standalone,replication,shared-store]

The brokers are real processes configured as ``jepsen-run`` configures them; the client is that of
``durable_messages.py``, window after window.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import durable_messages
from harness.interface import Address, Layout, NodePlan, TestSpec
from harness.systems.own.configuration import LOGIN, PASSCODE
from harness.systems.own.system import OwnSystem

POLICIES = ("standalone", "replication", "shared-store", "ha-database")
REFERENCE = "replication"
BAR = 2 / 3
"""Of replication's rate, for the shared store ("within a third or better")."""
READY_S = 120.0
UNBOUNDED = b'\n[[address-settings]]\nmatch = "#"\nmax-size-bytes = -1\n'
"""Nobody consumes, and a full queue would make the producers wait."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def addresses(nodes: tuple[NodePlan, ...]) -> dict[str, dict[str, Address]]:
    """Where each node listens."""
    ports = iter(free_ports(sum(len(node.ports) for node in nodes)))
    return {node.name: {port: Address("127.0.0.1", next(ports)) for port in node.ports} for node in nodes}


@dataclass(frozen=True)
class Broker:
    """The files of a broker on disk, and the command that starts it."""

    home: Path
    words: tuple[str, ...]

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The broker's process, which is ended at the end."""
        with (self.home / "logs" / "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *self.words], cwd=self.home, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def prepared(
    system: OwnSystem, spec: TestSpec, root: Path
) -> tuple[list[Broker], Mapping[str, Mapping[str, Address]]]:
    """Brokers that are ready to be started, and where each listens."""
    nodes = system.plan(spec)
    listen = addresses(nodes)
    announced = {
        f"{node.name}:{number}": listen[node.name][port]
        for node in nodes
        for port, number in node.ports.items()
    }
    brokers = []
    for node in nodes:
        home = root / "nodes" / node.name
        data = home / "data" if node.store is None else root / "stores" / node.store.name
        layout = Layout(etc=str(home / "etc"), data=str(data), logs=str(home / "logs"))
        for directory in (home / "etc", home / "logs", data):
            directory.mkdir(parents=True, exist_ok=True)
        for name, content in system.files(spec, node, nodes, layout, listen[node.name], announced).items():
            (home / "etc" / name).touch(mode=0o600)
            (home / "etc" / name).write_bytes(content + UNBOUNDED)
        _, *words = system.command(layout)
        brokers.append(Broker(home, tuple(words)))
    return brokers, listen


@contextlib.contextmanager
def cluster(
    system: OwnSystem,
    policy: str,
    root: Path,
    pairs: int = 1,
    properties: Mapping[str, object] | None = None,
) -> Iterator[Mapping[str, Mapping[str, Address]]]:
    """Pairs under a policy, their processes running."""
    roomy = {"broker.global-max-size": 2_000_000_000, **(properties or {})}
    spec = TestSpec(name="bench", policy=policy, pairs=pairs, properties={"*": roomy})
    brokers, listen = prepared(system, spec, root)
    with contextlib.ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker.running())
        yield listen


async def ready(system: OwnSystem, policy: str, listen: Mapping[str, Mapping[str, Address]]) -> int:
    """The STOMP port of the live, once it serves and its backup is where the policy wants it."""
    async with asyncio.timeout(READY_S):
        while True:
            found = {}
            for name, ports in listen.items():
                with contextlib.suppress(OSError):
                    found[name] = await system.status(ports["admin"])
            live = [name for name, status in found.items() if status.role == "live"]
            complete = len(found) == len(listen)
            if policy == REFERENCE:
                complete &= all(status.replicating for status in found.values())
            if live and complete:
                return listen[live[0]]["stomp"].port
            await asyncio.sleep(0.1)


async def measure(
    system: OwnSystem, policy: str, listen: Mapping[str, Mapping[str, Address]], options: argparse.Namespace
) -> float:
    """Receipts a second."""
    port = await ready(system, policy, listen)
    sent, _ = await durable_messages.measure(port, options, 0)
    return sent


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--window", type=int, default=100, help="sends on their way per connection")
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=32, help="of the payload")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--directory", type=Path, help="where the brokers' data lies; default: here")
    options = parser.parse_args()
    options.login, options.passcode = LOGIN, PASSCODE
    policies = options.policies.split(",")
    figures: dict[str, list[float]] = {policy: [] for policy in policies}
    for _ in range(options.rounds):
        for policy in policies:
            system = OwnSystem()
            with (
                tempfile.TemporaryDirectory(dir=options.directory or Path.cwd()) as directory,
                cluster(system, policy, Path(directory)) as listen,
            ):
                figures[policy].append(uvloop.run(measure(system, policy, listen, options)))
    print(f"{'policy':<16}{'messages/s':>12}{'of replication':>16}   bar {BAR:.2f}")
    for policy, rates in figures.items():
        ratios = [rate / base for rate, base in zip(rates, figures.get(REFERENCE, rates), strict=True)]
        ratio = statistics.median(ratios)
        verdict = ("  met" if ratio >= BAR else "  NOT MET") if policy == "shared-store" else ""
        each = ", ".join(f"{rate:.0f}" for rate in rates)
        print(f"{policy:<16}{statistics.median(rates):>12.0f}{ratio:>15.2f} {verdict}   ({each})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
