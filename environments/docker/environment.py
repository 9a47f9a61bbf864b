"""An environment of containers in one bridge network, each a machine of its own for a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from environments.docker import database_server, file_store, kernel
from environments.docker.base_image import Tell
from environments.docker.clean import remove_run
from environments.docker.database_server import DatabaseContainer
from environments.docker.deployment import make_known
from environments.docker.engine import connect
from environments.docker.file_store import CLIENT_OPTIONS, StoreContainers
from environments.docker.image import HOMES, node_image, system_image
from environments.lease import DEFAULT_LEASE_S
from environments.machines import disks
from environments.machines.disks import MachineDisks
from environments.machines.environment import MachinesEnvironment
from harness.interface import InfrastructureError, NodePlan


class DockerEnvironment(MachinesEnvironment):
    """The environment "docker".

    ``publish`` reaches containers through ports of 127.0.0.1 instead of their own addresses; None
    finds out whether that is needed.
    """

    name = "docker"

    def __init__(self, *, lease_s: float = DEFAULT_LEASE_S, publish: bool | None = None) -> None:
        super().__init__(lease_s)
        self._publish = publish
        self._client: Any = None
        self._stores = StoreContainers(self._deployment)
        self._database = DatabaseContainer(self._deployment)
        self._disks = MachineDisks(self._deployment)
        self._furniture = (self._stores, self._database, self._disks)

    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "", or with the reason why this kernel cannot do it.

        After `deploy` this was tried out in the containers. Before, it is what the host's kernel
        says of itself.
        """
        missing = kernel.missing() if self._missing is None else self._missing
        answers = self._supports(missing)
        answers |= dict.fromkeys(file_store.PRIMITIVES, file_store.missing())
        answers |= dict.fromkeys(disks.PRIMITIVES, file_store.missing("put the brokers' disks behind it"))
        answers["nfs-disconnect"] = answers["nfs-disconnect"] or missing.get("cut", "")
        answers["database-disconnect"] = missing.get("cut", "")
        return answers

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Return why this cluster cannot be deployed here, and where it can be; "" if it can."""
        if any(node.finds_by_files for node in nodes):
            return (
                "brokers cannot find each other by files, because containers share no directory: use "
                "--environment simulation or local"
            )
        return file_store.refuses(nodes) or database_server.refuses(nodes)

    async def _prepare(self, nodes: Sequence[NodePlan]) -> None:
        """Make the image and the network, and add the nodes."""
        loop = asyncio.get_running_loop()
        try:
            await self._deployment.in_thread(
                self._make_known, nodes, lambda line: loop.call_soon_threadsafe(self.tell, line)
            )
        except OSError as error:  # the SDK lets errors of its transport through
            raise InfrastructureError(f"the engine could not make images and network: {error}") from error

    def _make_known(self, nodes: Sequence[NodePlan], tell: Tell) -> None:
        self._client = connect()
        if self._provision is None:
            image, homes = node_image(self._client, tell), {}
        else:
            image = system_image(self._client, tell, self._system.name, self._provision)
            homes = {name: f"{HOMES}/{name}" for name in self._provision.names}
        mounting = [node.name for node in nodes if node.name in self._stores or node.name in self._disks.of]
        make_known(
            self._client,
            self._deployment,
            nodes,
            image,
            tell,
            services=[*self._stores.services(), *self._database.services()],
            options=dict.fromkeys(mounting, CLIENT_OPTIONS),
            publish=self._publish,
            homes=homes,
        )

    def _remove(self) -> None:
        if self._client is not None:
            remove_run(self._client, self.run)
            self._client.close()
            self._client = None
