"""The shared directories of a deployment: a file server for each, and the mounts of its nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from environments.part import Part, PartFault
from environments.simulation.filestore import FileServer
from environments.simulation.mount import SimulatedMount
from environments.simulation.process import SimulatedProcess
from environments.simulation.world import World
from filesystems.nfs.options import MountOptionError, parse
from harness.interface import NodePlan, UsageError


class SimulatedStores(Part):
    """The file servers and mounts; there are none if no node shares a directory."""

    name = "store"
    primitives = ("nfs-stall", "nfs-disconnect", "nfs-restart")

    def __init__(self) -> None:
        self._servers: dict[str, FileServer] = {}
        self._mounts: dict[str, SimulatedMount] = {}
        self._shared: dict[str, str] = {}

    def mount(self, world: World, node: NodePlan) -> SimulatedMount | None:
        """Return the node's mount of its shared directory; None if it shares none.

        Raises UsageError for wrong mount options.
        """
        plan = node.store
        if plan is None:
            return None
        try:
            options = parse(plan.mount_options)
        except MountOptionError as error:
            raise UsageError(f"store {plan.name}: {error}") from None
        server = self._servers.get(plan.name)
        if server is None:
            server = self._servers[plan.name] = FileServer(
                plan.name,
                world.scheduler,
                world.trace,
                world.random(f"store:{plan.name}"),
                lease_s=plan.lease_ms / 1000,
                grace_s=plan.grace_ms / 1000,
            )
        mount = self._mounts[node.name] = SimulatedMount(
            server, node.name, options, world.random(f"mount:{node.name}"), (plan.uid, plan.gid)
        )
        self._shared[node.name] = plan.name
        return mount

    def of(self, node: str) -> SimulatedMount | None:
        """Return the mount that a node's broker is given; None if it has none."""
        return self._mounts.get(node)

    def boot(self, node: str, chance: random.Random) -> Callable[[SimulatedProcess], None] | None:
        """Note that a process begins; return what the kernel does when it ends by itself.

        Returns None if there is nothing to do.
        """
        mount = self._mounts.get(node)
        if mount is None:
            return None
        number = mount.boot()

        def ended(_: SimulatedProcess) -> None:
            if mount.process == number:  # otherwise a kill or a power loss has done this
                mount.process_ended(chance)

        return ended

    def wanted(self, asked: PartFault) -> Any:
        """Check a fault, which takes no options. Raises UsageError for a node without a store."""
        for node in asked.nodes:
            if node not in self._mounts:
                raise UsageError(
                    f"{asked.primitive}: {node} has no shared directory; use --policy shared-store"
                )
        return super().wanted(asked)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Set the state of the nodes' clients and of their server to what all faults imply."""
        for node in changed.nodes:
            shared = self._shared[node]
            here = {
                fault.primitive
                for fault in in_force
                if any(self._shared.get(other) == shared for other in fault.nodes)
            }
            cut = any(fault.primitive == "nfs-disconnect" and node in fault.nodes for fault in in_force)
            self._mounts[node].set_cut(cut)
            down, stalled = "nfs-restart" in here, "nfs-stall" in here
            self._servers[shared].set_state("down" if down else "stalled" if stalled else "up")

    async def look(self, node: str) -> str:
        """Return how the node finds the store; "none" if it has none."""
        mount = self._mounts.get(node)
        return "none" if mount is None else await mount.look()
