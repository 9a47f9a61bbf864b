"""Hosts with one network file system in a world, and instances of QM1 on them; brokers of one.

For tests of what an instance becomes, and of what its successor has.
"""

import asyncio
from pathlib import Path

import msgspec

from broker.ha_policy import MultiInstanceSection
from broker.policies.multi_instance.candidate import InstanceCandidate, StartRefusedError
from broker.policies.multi_instance.places import InstanceLocks, InstanceRecord, write_record
from environments.simulation import World
from environments.simulation.environment import SimulationEnvironment
from environments.simulation.filestore import FileServer
from environments.simulation.mount import SimulatedMount
from filesystems.nfs.options import parse
from harness.claims.scenarios import named
from harness.systems.own.system import OwnSystem
from harness.systems.stomp_client import StompClient

SPEC = named("MI2").spec
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


class Brokers:
    """a1 and a2 in the simulation, without a harness around them."""

    def __init__(self, **properties):
        self.spec = SPEC if not properties else msgspec.structs.replace(SPEC, properties={"*": properties})
        self.environment = SimulationEnvironment()
        self.system = OwnSystem()

    def run(self, main):
        async def deployed():
            nodes = self.system.plan(self.spec)
            await self.environment.deploy(self.system, self.spec, nodes, Path())
            async with asyncio.timeout(120):  # of virtual time
                await main(self)

        self.environment.conduct(deployed, seed=1)

    async def start(self, node, role):
        await self.environment.start(node)
        while await self.role(node) != role:
            await asyncio.sleep(0.02)

    async def role(self, node):
        try:
            return self.environment.look(node).role
        except ConnectionRefusedError:
            return None

    async def ask(self, node, command, **arguments):
        admin = self.environment.resolve("admin", node, "admin")
        return await self.system.administer(admin, command, arguments)

    async def client(self, node, client_id=None):
        address = self.environment.resolve("zone1", node, "stomp")
        return await StompClient.connect(address.port, client_id=client_id, host=address.host)

    async def connect(self, node):
        """A client that has logged in; whoever is refused gets OSError or no answer."""
        address = self.environment.resolve("zone1", node, "stomp")
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(
            b"CONNECT\naccept-version:1.2\nhost:x\nlogin:tester\npasscode:tester-secret\nheart-beat:0,0\n\n\0"
        )
        frame = await reader.readuntil(b"\0")
        assert frame.lstrip().startswith(b"CONNECTED"), frame
        return writer
