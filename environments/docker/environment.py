"""Brokers as containers of one bridge network, each a machine of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from environments.docker import database_server, file_store, kernel
from environments.docker.database_server import DatabaseContainer
from environments.docker.deployment import Containers
from environments.docker.file_store import FileStores
from environments.docker.nfs_server import CLIENT_CAPABILITIES, CLIENT_DEVICES
from environments.labels import new_run_id
from environments.lease import DEFAULT_LEASE_S
from environments.machines import disks
from environments.machines.disks import Disks
from environments.machines.environment import MachinesEnvironment
from environments.postgresql.fault import PRIMITIVES as DATABASE_PRIMITIVES
from harness.interface import NodePlan

_MOUNTS: Final = {
    "cap_add": list(CLIENT_CAPABILITIES),
    "devices": list(CLIENT_DEVICES),
    "security_opt": ["apparmor:unconfined"],
}
"""What a container needs to mount something through FUSE."""

_log = logging.getLogger(__name__)


class DockerEnvironment(MachinesEnvironment):
    """The environment "docker".

    ``publish`` reaches containers through ports of 127.0.0.1 instead of their own addresses; None
    finds out whether that is needed.
    """

    name = "docker"

    def __init__(
        self,
        *,
        lease_s: float = DEFAULT_LEASE_S,
        tell: Callable[[str], None] = _log.info,
        publish: bool | None = None,
    ) -> None:
        self.run = f"jepsen-run-{new_run_id()}"
        self._publish = publish
        self._containers = Containers(self.run)
        self._stores = FileStores(self._containers)
        self._database = DatabaseContainer(self._containers)
        self._disks = Disks(self._containers)
        super().__init__(self._containers, (self._stores, self._database, self._disks), lease_s, tell)

    def supports(self) -> Mapping[str, str]:
        """What this kernel can do.

        Tried out in the containers, before `deploy` what the host's kernel says of itself.
        """
        missing = kernel.missing() if self._missing is None else self._missing
        answers = self._supports(missing)
        answers |= dict.fromkeys(file_store.PRIMITIVES, file_store.missing())
        answers |= dict.fromkeys(disks.PRIMITIVES, file_store.missing("put the brokers' disks behind it"))
        answers["nfs-disconnect"] = answers["nfs-disconnect"] or missing.get("cut", "")
        answers |= dict.fromkeys(DATABASE_PRIMITIVES, "")
        answers["database-disconnect"] = missing.get("cut", "")
        return answers

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Why this cluster cannot be deployed here, with where it can be; "" if it can."""
        return file_store.refuses(nodes) or database_server.refuses(nodes)

    async def _prepare(self, nodes: Sequence[NodePlan]) -> None:
        """Image, network and volumes."""
        await self._containers.prepare(
            nodes,
            self._publish,
            self.tell,
            services=[*self._stores.services(), *self._database.services()],
            options={
                node.name: _MOUNTS
                for node in nodes
                if node.name in self._stores or node.name in self._disks.of
            },
        )
