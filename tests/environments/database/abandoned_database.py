"""A harness that lets its database stand still, says so, and waits to be killed.

Arguments: directory, lease in seconds.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[up]) for up in (3, 2, 0)]

from database_deployed import NAMES, NODES, PARTS, SPEC, StandBy  # noqa: E402 - after the path

from environments.local.environment import LocalEnvironment  # noqa: E402 - after the path


async def main(directory, lease_s):
    environment = LocalEnvironment(lease_s=lease_s)
    await environment.deploy(StandBy(), SPEC, NODES, directory)
    lease = await environment.inject("database-stall", nodes=NAMES)
    keeping = asyncio.create_task(keep(environment, lease, lease_s))
    observed = (await environment.probe(nodes=PARTS)).observed
    home = next((Path(os.environ["XDG_STATE_HOME"]) / "jepsen-run" / "local").iterdir())
    known = json.loads((home / "agent.json").read_text())
    told = {
        "observed": observed,
        "postmaster": known["brokers"]["database"]["pid"],
        "agent": known["agent"]["pid"],
        "scratch": known["scratch"],
    }
    print(json.dumps(told), flush=True)
    await keeping


async def keep(environment, lease, lease_s):
    while True:
        await environment.renew(lease)
        await asyncio.sleep(lease_s / 8)


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
