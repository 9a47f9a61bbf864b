"""A harness that breaks its deployment, says so, and then waits to be killed.

Arguments: directory, lease in seconds.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from echo_system import NODES, SPEC, EchoSystem, echo  # noqa: E402 - after the path

from environments.local.environment import LocalEnvironment  # noqa: E402 - after the path
from harness.interface import Link  # noqa: E402 - after the path


async def main(directory, lease_s):
    environment = LocalEnvironment(lease_s=lease_s)
    await environment.deploy(EchoSystem(), SPEC, NODES, directory)
    for node in NODES:
        await environment.start(node.name)
    for node in NODES:
        await echo(environment.resolve("zone1", node.name, "stomp"))
    cut, back = Link("a1", "b1"), Link("b1", "a1")
    leases = [
        await environment.inject("cut", links=[cut, back]),
        await environment.inject("slow", links=[Link("zone1", "a1")], options={"delay_ms": 3_600_000}),
        await environment.inject("pause", nodes=["b1"]),
    ]
    keeping = asyncio.create_task(keep(environment, leases, lease_s))
    effect = await environment.probe([cut, back], ["a1", "b1"])
    direct = {node.name: str(environment.resolve("admin", node.name, "stomp")) for node in NODES}
    ways = {
        f"{s}->{t}": str(environment.resolve(s, t, "stomp"))
        for s, t in (("a1", "b1"), ("b1", "a1"), ("zone1", "a1"))
    }
    print(json.dumps({"observed": effect.observed, "direct": direct, "ways": ways}), flush=True)
    await keeping


async def keep(environment, leases, lease_s):
    while True:
        for lease in leases:
            await environment.renew(lease)
        await asyncio.sleep(lease_s / 8)


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
