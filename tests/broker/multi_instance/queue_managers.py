"""Hosts with one network file system in a world, and instances of QM1 on them.

For tests of what an instance becomes.
"""

import asyncio

from broker.ha_policy import MultiInstanceSection
from broker.policies.multi_instance.candidate import InstanceCandidate, StartRefusedError
from broker.policies.multi_instance.places import InstanceLocks, InstanceRecord, write_record
from environments.simulation import World
from environments.simulation.filestore import FileServer
from environments.simulation.mount import SimulatedMount
from filesystems.nfs.options import parse

LEASE_S = 4.0
HOSTS = ("one", "two", "three")


def section(*, permitted=True):
    return MultiInstanceSection(
        queue_manager="QM1", permit_standby=permitted, lock_poll_period=50, lock_expiration=4000
    )


class Host:
    """A machine; ``strmqm`` begins what ``strmqm [-x] QM1`` begins there."""

    def __init__(self, name, mount):
        self.name = name
        self.mount = mount
        self.places = InstanceLocks(section(), mount)
        self.candidate = None
        self.beside = []

    def strmqm(self, *, permitted=True):
        self.candidate = InstanceCandidate(
            InstanceLocks(section(permitted=permitted), self.mount),
            section(permitted=permitted),
            self.name,
            self.beside.append,
        )
        return asyncio.ensure_future(self.candidate.run())

    async def run_active(self, granted, state="running"):
        """It says that it runs, or how it ended."""
        await write_record(
            granted.live.data,
            InstanceRecord(instance=self.name, node_id="n", permit_standby=True, state=state),
        )


def in_world(main, seed=1, users=None, options="hard"):
    """Run ``main(world, server, hosts)``."""
    world = World(seed)
    server = FileServer(
        "a", world.scheduler, world.trace, world.random("store"), lease_s=LEASE_S, grace_s=1.0
    )
    hosts = {
        name: Host(
            name,
            SimulatedMount(
                server, name, parse(options), world.random(name), (users or {}).get(name, (501, 501))
            ),
        )
        for name in HOSTS
    }
    return world.run(lambda: main(world, server, hosts))


async def outcome(host, starting, within_s=2.0):
    """What became of a start.

    "active", "standby", "ended", "waits", or the exit status with which it was refused.
    """
    deadline = asyncio.get_running_loop().time() + within_s
    while asyncio.get_running_loop().time() < deadline:
        if starting.done():
            error = starting.exception()
            if isinstance(error, StartRefusedError):
                return error.status
            return "active" if starting.result() is not None else "ended"
        if host.candidate.next_in_line:
            return "standby"
        await asyncio.sleep(0.01)
    return "waits"
