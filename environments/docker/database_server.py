"""The database of a deployment.

It is a container with a PostgreSQL server, which all brokers of the test share.

Why a container of its own: a partition must be able to cut a broker from its database alone. Why an
agent in it: a server that stands still must go on by itself when the harness is killed, as
everything else that is broken does.

The three faults: "database-stall" is SIGSTOP to all processes of the server (its machine still
acknowledges what comes). "database-restart" is SIGKILL to them, and a start at the end.
"database-disconnect" loses the connections of commits in the relay in front of the server. With
chance 1 and committed 0 it drops the packets between one broker's container and the database's,
both ways, and no others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.agent import AGENT_MODULES
from environments.agent.control import DATA, ETC
from environments.agent.database_agent import INSIDE, PORT
from environments.docker.base_image import Tell
from environments.docker.deployment import Service
from environments.docker.image import server_image
from environments.link_condition import link_name
from environments.machines import probes
from environments.machines.deployment import Deployment
from environments.machines.faults import link_faults
from environments.machines.furniture import Furniture
from environments.machines.node import Node
from environments.postgresql import program, question
from environments.postgresql.fault import DISCONNECT, PRIMITIVES, STALL, phrase, severance_of
from harness.interface import DATABASE, Address, InfrastructureError, Link, NodePlan, UsageError

NODE: Final = "database"

_SECRET: Final = "secret"  # noqa: S105 - the name of a file
_DIRECTORY: Final = f"{DATA}/server"
_START_S: Final = 60.0
_AGAIN_S: Final = 0.05
_WITHOUT: Final = ("/usr/lib/*/libLLVM*", "/usr/lib/postgresql/*/lib/bitcode/*")
"""The compiler of long queries, a third of the image; the server runs without it."""

_MODULES: Final = (
    *AGENT_MODULES,
    "environments/agent/database_agent.py",
    *(
        f"environments/postgresql/{name}.py"
        for name in ("__init__", "fault", "program", "question", "relay", "run", "tree")
    ),
)
"""The modules of ours that the image holds."""


def refuses(nodes: Sequence[NodePlan]) -> str:
    """Return why the database of these nodes is impossible here; "" if it is possible."""
    if any(node.database is not None and node.database.type == "sqlite" for node in nodes):
        return (
            "containers do not share a file of SQLite: leave --set database:type out, or use "
            "--environment local"
        )
    return ""


def _image(client: Any, tell: Tell) -> str:
    agent = "environments.agent.database_agent"
    return server_image(client, tell, "database", program.PACKAGES, _MODULES, agent, _WITHOUT)


class DatabaseContainer(Furniture):
    """The database's container; there is none if no node has a database of ours."""

    part = "database"
    primitives = PRIMITIVES

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._variables: dict[str, str] = {}
        self._nodes: tuple[str, ...] = ()

    def plan(self, nodes: Sequence[NodePlan]) -> None:
        """Take note of the nodes with a database that is ours to make."""
        self._nodes = tuple(
            node.name for node in nodes if node.database is not None and node.database.type != "given"
        )

    def services(self) -> list[Service]:
        """Return the server as a service, if there is one."""
        return [Service(name=NODE, image=_image)] if self._nodes else []

    def hosts(self, node: str) -> dict[str, Address]:
        """Return where a node reaches the database."""
        return {DATABASE: Address(self._server.address, PORT)} if node in self._nodes else {}

    def variables(self) -> dict[str, str]:
        """Return the variables by which a broker logs in."""
        return self._variables

    def describe_services(self) -> dict[str, str]:
        """Return what the database is, for the report."""
        return {NODE: "PostgreSQL in a container"} if self._nodes else {}

    async def serve(self) -> None:
        """Make and start the server; it serves when this returns. Raises InfrastructureError."""
        if not self._nodes:
            return
        password = program.new_password()
        server = self._server
        await self._deployment.in_thread(server.create, {_SECRET: f"{password}\n".encode()})
        await server.boot()
        command = ["python", "-m", "environments.postgresql.run", _DIRECTORY, str(INSIDE), f"{ETC}/{_SECRET}"]
        await server.ask("start", command=command, environment={})
        deadline = time.monotonic() + _START_S
        while (await server.ask("look"))["answer"] != question.SERVING:
            found = await server.ask("state")
            if found["state"] == "gone":
                raise InfrastructureError(
                    f"{NODE}: PostgreSQL ended with status {found['status']}; {await self._last_words()}"
                )
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"{NODE}: PostgreSQL does not serve after {_START_S:.0f} s; {await self._last_words()}"
                )
            await asyncio.sleep(_AGAIN_S)
        await server.ask("relay")
        self._variables = {"PGUSER": program.USER, "PGPASSWORD": password}

    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return what each agent has to do for a fault.

        Raises UsageError for a node without a database of ours, and for wrong options.
        """
        for node in nodes:
            if node not in self._nodes:
                raise UsageError(f"{primitive}: {node} has no database here; use --policy ha-database")
        if primitive != DISCONNECT:
            if options:
                raise UsageError(f"{primitive}: takes no options, not {', '.join(options)}")
            return {NODE: {"pause": True} if primitive == STALL else {"down": True}}
        try:
            severance = severance_of(options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        machines = self._deployment.machines
        if severance.chance == 1 and severance.committed == 0:
            both = [link for node in nodes for link in (Link(node, NODE), Link(NODE, node))]
            return link_faults("cut", {}, both, machines)
        severed = {"chance": severance.chance, "committed": severance.committed}
        return {NODE: {"severed": {machines[node].address: severed for node in nodes}}}

    async def look(self, node: str) -> str:
        """Return the state of the database as a probe finds it.

        It is "serving", "stalled", "down", or "severed" for a node whose packets or commits are
        lost.
        """
        if not self._nodes:
            return "absent"
        found = await self._server.ask("look")
        address = self._deployment.machines[node].address
        seen = phrase(found["answer"], paused=found["paused"], severed=address in found["severed"])
        if seen == "serving" and self._deployment.machines[node].up:
            link = Link(node, NODE)
            passes = await probes.probe(self._deployment.machines, [link])
            if passes[link_name(link)] in ("lost", "refused") and self._deployment.machines[node].up:
                return "severed"
        return seen

    async def _last_words(self) -> str:
        words = (await self._server.ask("said"))["lines"]
        return words[-1] if words else "it wrote no log"

    @property
    def _server(self) -> Node:
        return self._deployment.services[NODE]
