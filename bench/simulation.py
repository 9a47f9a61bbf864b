"""How many virtual seconds the simulation makes in a second.

Three pairs, 20 clients, 100 operations a second, partitions.

Beside it, in the same minutes and in turns, a baseline: the same number of messages a virtual
second thrown to and fro through a world without brokers, so that a slow or busy machine shows in
both. The time is this process's own CPU time (others use the machine too); wall time is printed as
well. ``--profile`` shows where it goes. Exit status 1 if the bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import time

from environments.simulation.world import World
from harness.interface import TestSpec
from harness.run.simulate import Simulated, simulate

BAR = 100.0
CLIENTS = 20
SEGMENTS_S = 700
"""Segments a virtual second that the test's network carries, about.

The baseline carries as many.
"""


def spec(seed: int, seconds: float, sends_s: float) -> TestSpec:
    return TestSpec(
        name="simulation-bench",
        pairs=3,
        producers=CLIENTS // 2,
        consumers=CLIENTS // 2,
        rate=sends_s,
        nemeses=("partition",),
        seed=seed,
        time_limit_s=seconds,
    )


def bare(seconds: float) -> float:
    """CPU seconds for bare exchanges through a world.

    20 connections, one message there and one back each.
    """
    world = World(1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)

    async def serve() -> None:
        server = await asyncio.start_server(answer, "a1", 1)
        await server.serve_forever()

    async def talk(pause_s: float) -> None:
        reader, writer = await asyncio.open_connection("a1", 1)
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            writer.write(b"x" * 99 + b"\n")
            await reader.readline()
            await asyncio.sleep(pause_s)
        writer.close()

    async def main() -> None:
        world.spawn("a1", serve)
        await asyncio.sleep(0.1)
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(talk(2 * CLIENTS / SEGMENTS_S))

    began = time.process_time()
    world.run(main)
    return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40.0, help="virtual seconds of load in a run")
    parser.add_argument(
        "--sends",
        type=float,
        default=50.0,
        help="sends a second; each is acknowledged: twice as many operations",
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    simulate(spec(0, 2.0, arguments.sends))  # imports and caches
    ratios = []
    for seed in range(1, arguments.runs + 1):
        base_s = bare(arguments.seconds)
        wall = time.monotonic()
        cpu = time.process_time()
        run: Simulated = simulate(spec(seed, arguments.seconds, arguments.sends), judge=False)
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        judging = time.process_time()
        operations = sum(1 for row in run.rows if row["type"] == "invoke" and row["f"] in ("send", "ack"))
        judging = time.process_time() - judging
        ratios.append(run.virtual_s / cpu)
        print(
            f"seed {seed}: {run.virtual_s:.1f} virtual s, {operations / arguments.seconds:.0f} "
            f"operations/s, {run.steps} steps: "
            f"{run.virtual_s / cpu:.0f} virtual s per CPU second ({run.virtual_s / wall:.0f} per wall "
            "second); "
            f"bare exchanges {arguments.seconds / base_s:.0f}, ratio "
            f"{run.virtual_s / cpu / (arguments.seconds / base_s):.2f}",
            flush=True,
        )
    best = max(ratios)
    print(f"best of {len(ratios)}: {best:.0f} virtual seconds per second; bar {BAR:.0f}")
    if arguments.profile or best < BAR:
        profile = cProfile.Profile()
        profile.enable()
        simulate(spec(1, arguments.seconds, arguments.sends), judge=False)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    return 0 if best >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
