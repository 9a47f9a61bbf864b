"""A pair of brokers on a shared store behind a real file server, for the tests of the
environments that can make one.
"""

import asyncio
import contextlib

from harness.history import spec as specs
from harness.interface import Schedule
from harness.systems.equipment import equip
from harness.systems.own.system import OwnSystem

BOUND_S = 120.0
"""For whatever takes seconds on an idle machine."""

STORES = ["a1/store", "a2/store"]


class Pair:
    """A deployment of a1 and a2 in ``environment``."""

    def __init__(self, environment):
        self.environment = environment
        self.system = OwnSystem()

    async def begin(self, directory):
        """Deploy, and start both; a1 is live then."""
        spec = specs.build({"policy": "shared-store", "pairs": 1, "properties": {"store": {"type": "nfs"}}})
        nodes = equip(spec, self.system.plan(spec), Schedule())
        await self.environment.deploy(self.system, spec, nodes, directory)
        for node in nodes:
            await self.environment.start(node.name)
        await self.until("a1", "live")
        await self.until("a2", "backup")

    async def role(self, node):
        try:
            async with asyncio.timeout(10.0):
                return (await self.system.status(self.environment.resolve("admin", node, "admin"))).role
        except (OSError, TimeoutError):
            return "unreachable"

    async def until(self, node, *roles):
        seen = None
        try:
            async with asyncio.timeout(BOUND_S):
                while (seen := await self.role(node)) not in roles:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{node} is still {seen}, not {' or '.join(roles)}") from None
        return seen

    async def ended(self, node):
        async with asyncio.timeout(BOUND_S):
            return await self.environment.wait_exit(node)

    async def stores(self):
        found = (await self.environment.probe(nodes=STORES)).observed
        return tuple(found[name] for name in STORES)

    async def until_stores(self, *seen):
        async with asyncio.timeout(BOUND_S):
            while await self.stores() != seen:
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def broken(self, primitive, *nodes):
        """A fault that is renewed for as long as the block lasts."""
        lease = await self.environment.inject(primitive, nodes=nodes)

        async def renew():
            while True:
                await asyncio.sleep(0.5)
                await self.environment.renew(lease)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await self.environment.heal(lease)


async def suffers_what_can_be_done_to_a_store(pair):
    """Each fault is seen where it hits and nowhere else, and does to brokers what it must.

    a1 is live before, one of them after.
    """
    environment = pair.environment
    await pair.until_stores("answers", "answers")

    async with pair.broken("nfs-disconnect", "a1"):
        await pair.until_stores("silent", "answers")
        await pair.until("a2", "live")
        # Whoever cannot confirm its lock must have ended: two would acknowledge.
        assert await pair.ended("a1") not in (None, 0)
    await pair.until_stores("answers", "answers")

    await environment.start("a1")
    await pair.until("a1", "live")  # a master gets its place back
    await pair.until("a2", "backup")

    async with pair.broken("nfs-restart", "a1", "a2"):
        await pair.until_stores("silent", "silent")
    await pair.until_stores("answers", "answers")

    async with pair.broken("nfs-stall", "a1", "a2"):
        await pair.until_stores("silent", "silent")
    await pair.until_stores("answers", "answers")


async def goes_on_by_itself(pair):
    """A server that stands still goes on though nobody renews that fault, and nobody heals it."""
    async with asyncio.timeout(BOUND_S):
        await pair.environment.inject("nfs-stall", nodes=["a1", "a2"])
        while await pair.stores() != (
            "silent",
            "silent",
        ):  # over already, on a machine that was busy for so long
            await pair.environment.inject("nfs-stall", nodes=["a1", "a2"])
    await pair.until_stores("answers", "answers")
