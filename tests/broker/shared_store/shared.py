"""Two machines with one store in a world: for tests of what brokers do there."""

from environments.simulation import World
from environments.simulation.filestore import FileServer
from environments.simulation.mount import SimulatedMount
from filesystems.nfs.options import parse

LEASE_S = 4.0


def in_world(main, seed=1, machines=("a1", "a2"), options="hard"):
    """Run ``main(world, server, mounts)``."""
    world = World(seed)
    server = FileServer(
        "a", world.scheduler, world.trace, world.random("store"), lease_s=LEASE_S, grace_s=1.0
    )
    mounts = {name: SimulatedMount(server, name, parse(options), world.random(name)) for name in machines}
    return world.run(lambda: main(world, server, mounts))
