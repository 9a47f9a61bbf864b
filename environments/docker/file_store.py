"""The shared directories of a deployment.

Each is a container with a real NFSv4 server, and every container that mounts it has a client.

Why the server's container has an agent: a file server that stands still must go on by itself when
the harness is killed, as everything else that is broken does. Why each container has a client of
its own: to the server they are machines, each with a lease of its own, and that is what a shared
store is about.

The three faults: "nfs-stall" is SIGSTOP to the server (its machine still acknowledges what comes).
"nfs-restart" is its SIGKILL, and its start at the end. "nfs-disconnect" drops the packets between
one broker's container and its server's, both ways, and no others.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.agent import AGENT_MODULES
from environments.agent.control import DATA, ETC, LOGS, STORE
from environments.docker.base_image import Tell
from environments.docker.deployment import Service
from environments.docker.image import server_image
from environments.ganesha import PACKAGES, PROGRAM, ServerOptions, configuration, times_s
from environments.machines.deployment import Deployment
from environments.machines.faults import at_once
from environments.machines.furniture import Furniture
from environments.machines.node import Node, NodeDownError
from environments.nfs_mounting import FUSE
from filesystems.fuse import device as fuse_device
from filesystems.nfs import asking
from harness.interface import InfrastructureError, Layout, NodePlan, StorePlan, UsageError

PRIMITIVES: Final = ("nfs-stall", "nfs-disconnect", "nfs-restart")
PORT: Final = 2049
CAPABILITIES: Final = ("DAC_READ_SEARCH",)
"""The rights that a server needs beyond a container's usual ones.

It opens files by the handles of its clients.
"""

SECURITY: Final = ("seccomp=unconfined",)
"""The security options of a server's container.

Docker's usual filter of system calls has no name_to_handle_at without SYS_ADMIN, which would be far
more than the server needs.
"""

CLIENT_OPTIONS: Final = {
    "cap_add": ["SYS_ADMIN"],
    "devices": ["/dev/fuse:/dev/fuse:rwm"],
    "security_opt": ["apparmor:unconfined"],
}
"""The options of a container that mounts something through FUSE, as the engine's SDK names them."""

_EXPORT: Final = "/store"
_EXPORTED: Final = Path(DATA) / "store"
_STATE: Final = Path(DATA) / "state"
_CONFIGURATION: Final = "ganesha.conf"
_START_S: Final = 30.0
_AGAIN_S: Final = 0.05
_PATIENCE_S: Final = 0.8
"""The patience for a question to the server.

Lost packets of a handshake are sent again after a second, so waiting longer is no use.
"""


def missing(purpose: str = "mount NFS through it", device: Path = fuse_device.DEVICE) -> str:
    """Return what this host lacks for containers that mount something for this ``purpose``.

    Returns "" if it lacks nothing, or if the engine's host is another machine.
    """
    if not sys.platform.startswith("linux") or device.exists():
        return ""
    return (
        f"{device} is missing on this host, and containers {purpose}: load the kernel module (sudo "
        "modprobe fuse), or use --environment simulation"
    )


def refuses(nodes: Sequence[NodePlan]) -> str:
    """Return why the shared directories of these nodes are impossible here; "" if possible."""
    for node in nodes:
        if node.store is not None:
            try:
                server_options(node.store)
            except UsageError as error:
                return str(error)
            if lack := missing():
                return lack
    return ""


def store_image(client: Any, tell: Tell) -> str:
    """Return the tag of the server's image, which has both ends of a mount."""
    return server_image(client, tell, "nfs", PACKAGES, AGENT_MODULES, "environments.agent.agent")


def server_options(plan: StorePlan) -> ServerOptions:
    """Return the server for a plan. Raises UsageError for times that no real server has."""
    lease_s, grace_s = times_s(plan)
    return ServerOptions(
        directory=_EXPORTED,
        state=_STATE,
        port=PORT,
        export=_EXPORT,
        host="0.0.0.0",
        lease_s=lease_s,
        grace_s=grace_s,
    )


class StoreContainers(Furniture):
    """The servers of the shared directories; there are none if no node shares a directory."""

    part = "store"
    primitives = PRIMITIVES

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._plans: dict[str, StorePlan] = {}
        self._of: dict[str, str] = {}

    def plan(self, nodes: Sequence[NodePlan]) -> None:
        """Take note of the nodes and their stores. Raises UsageError for an impossible store."""
        for node in nodes:
            if node.store is not None:
                server_options(node.store)
                self._of[node.name] = _machine(node.store)
                self._plans[_machine(node.store)] = node.store

    def services(self) -> list[Service]:
        """Return the servers as services."""
        options = {"cap_add": list(CAPABILITIES), "security_opt": list(SECURITY)}
        return [Service(name=name, image=store_image, options=options) for name in self._plans]

    def __contains__(self, node: str) -> bool:
        return node in self._of

    def layout(self, node: Node) -> Layout | None:
        """Return a layout with the broker's data in the store; None if its data is its own."""
        return msgspec.structs.replace(node.layout, data=f"{STORE}/data") if node.plan.name in self else None

    def command(self, node: str, command: list[str]) -> list[str]:
        """Return the command that starts a node's broker once its directory is mounted."""
        return (
            ["python", "-m", "filesystems.nfs.await_mount", STORE, *command] if node in self._of else command
        )

    def describe_services(self) -> dict[str, str]:
        """Return for each store what it is and how it is mounted, for the report."""
        found = {}
        for name, plan in self._plans.items():
            lease_s, grace_s = times_s(plan)
            found[name] = (
                f"{FUSE}, nfs-ganesha in a container, lease {lease_s} s, grace {grace_s} s, mounted "
                f"{plan.mount_options}"
            )
        return found

    async def serve(self) -> None:
        """Start all servers; they answer when this returns."""
        await at_once(self._serve(name) for name in self._plans)

    async def begin(self, node: Node) -> None:
        """Let a container mount its directory, however long that takes, unless it has."""
        name = self._of.get(node.plan.name)
        if name is not None:
            source = f"{self._deployment.services[name].address}:{PORT}{_EXPORT}"
            await node.ask("mount", source=source, directory=STORE, options=self._plans[name].mount_options)

    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return what each agent has to do for a fault.

        Raises UsageError for a node without a shared directory, and for options.
        """
        if options:
            raise UsageError(f"{primitive}: takes no options, not {', '.join(options)}")
        for node in nodes:
            if node not in self._of:
                raise UsageError(f"{primitive}: {node} has no shared directory; use --policy shared-store")
        if primitive == "nfs-stall":
            return {self._of[node]: {"pause": True} for node in nodes}
        if primitive == "nfs-restart":
            return {self._of[node]: {"down": True} for node in nodes}
        found: dict[str, dict[str, Any]] = {}
        for node in nodes:
            server = self._of[node]
            found[node] = {"cut": [self._deployment.services[server].address]}
            found.setdefault(server, {"cut": []})["cut"].append(self._deployment.nodes[node].address)
        return found

    async def look(self, node: str) -> str:
        """Return how the node's machine finds the store: "answers" or "silent".

        Returns "none" for a node without a store.
        """
        name = self._of.get(node)
        if name is None:
            return "none"
        server = self._deployment.services[name]
        try:
            return await _ask(self._deployment.nodes[node], server.address)
        except NodeDownError:  # a machine that does not run cannot look: ask the server itself
            return await _ask(server, "127.0.0.1")

    async def _serve(self, name: str) -> None:
        options = server_options(self._plans[name])
        server = self._deployment.services[name]
        files = {_CONFIGURATION: configuration(options).encode()}
        await self._deployment.in_thread(server.create, files)
        await server.boot()
        program = f"{PROGRAM} -F -f {ETC}/{_CONFIGURATION} -L {LOGS}/ganesha.log -p /run/ganesha.pid"
        command = ["sh", "-c", f"mkdir -p {options.directory}/data {options.state} && exec {program}"]
        await server.ask("start", command=command, environment={})
        await _until_it_answers(server)


def _machine(plan: StorePlan) -> str:
    return f"store-{plan.name}"


async def _ask(asked: Node, host: str) -> str:
    answer = await asked.ask("ask_store", server=host, server_port=PORT, patience_s=_PATIENCE_S)
    return str(answer["seen"])


async def _until_it_answers(server: Node) -> None:
    deadline = time.monotonic() + _START_S
    while await _ask(server, "127.0.0.1") != asking.ANSWERS:
        found = await server.ask("state")
        if found["state"] == "gone":
            raise InfrastructureError(f"{server.plan.name}: {PROGRAM} ended with status {found['status']}")
        if time.monotonic() > deadline:
            raise InfrastructureError(f"{server.plan.name}: {PROGRAM} does not answer after {_START_S:.0f} s")
        await asyncio.sleep(_AGAIN_S)
