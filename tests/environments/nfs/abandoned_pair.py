"""A harness that stalls the store of its brokers, says so, and then waits to be killed.

Arguments: directory, lease in seconds.
"""

import asyncio
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parent)]

from pair_on_nfs import Pair  # noqa: E402 - after the path

from environments.local.environment import LocalEnvironment  # noqa: E402 - after the path


async def main(directory, lease_s):
    pair = Pair(LocalEnvironment(lease_s=lease_s))
    await pair.begin(directory)
    async with pair.broken("nfs-stall", "a1", "a2"):
        print(*await pair.stores(), flush=True)
        await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
