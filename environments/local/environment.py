"""An environment of processes on this machine, with a proxy in user space for a network.

It needs no root and no containers.

Everything that must outlive a killed harness lives in the deployment's agent
(`environments.local.agent`). This module makes directories and files, asks the agent for the rest,
and translates. Every node listens on loopback ports of its own. It reaches each other node through
ports of the proxy that stand for that one link.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments import log_file
from environments.agent.agent import clear
from environments.agent_process import AgentProcess
from environments.homes import homes_here, path_here
from environments.labels import RUN_ID, STATE_DIR, identify, new_run_id
from environments.lease import DEFAULT_LEASE_S
from environments.link_condition import LINK_PRIMITIVES
from environments.local import clean, database, disks, state, stores
from environments.postgresql.fault import PRIMITIVES as DATABASE_PRIMITIVES
from environments.proxied_links import Routes
from environments.real_environment import DIRECT_PORTS, SIMULATED_ONLY, RealEnvironment
from harness.interface import (
    DATABASE,
    Address,
    DataEdit,
    Effect,
    InfrastructureError,
    Layout,
    Link,
    NodePlan,
    System,
    TestSpec,
    UsageError,
)

LOG_POLL_S: Final = 0.01
ORPHAN_S: Final = 600.0
"""The time after which a harness that is gone does not come back: what it deployed ends."""

TEARDOWN_PATIENCE_S: Final = 15.0
DEPLOY_PATIENCE_S: Final = 360.0
"""The patience with a deployment, in which servers are made and started, too.

On an idle machine each server takes two seconds.
"""


class _Deployed(msgspec.Struct):
    """The things that the agent has made: see its ``do_deploy``."""

    listen: dict[str, dict[str, Address]]
    routes: Routes
    databases: dict[str, Address]
    variables: dict[str, str]


class LocalEnvironment(RealEnvironment):
    """The environment "local"; one instance is one deployment.

    ``lease_s`` is how long a fault lasts without `renew`.
    """

    name = "local"

    def __init__(self, *, lease_s: float = DEFAULT_LEASE_S, orphan_s: float = ORPHAN_S) -> None:
        self._lease_s = lease_s
        self._orphan_s = orphan_s
        self._state: Path | None = None
        self._nodes: Path | None = None
        self._agent: AgentProcess | None = None
        self._made = _Deployed({}, {}, {}, {})
        self._homes: Mapping[str, str] = {}
        self._path = ""
        self._stores = stores.SharedDirectories(())

    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "", or with the reason why it cannot be done here.

        A link can hold, delay or reset a stream, but not lose single packets.
        """
        can = dict.fromkeys(
            (*LINK_PRIMITIVES, "pause", "kill", "stop", "destroy-data", "copy-data", "edit-data"), ""
        )
        return {
            **can,
            **SIMULATED_ONLY,
            **dict.fromkeys(DATABASE_PRIMITIVES, database.missing()),
            **disks.supports(),
            **dict.fromkeys(stores.PRIMITIVES, stores.missing()),
        }

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Return why this cluster cannot be deployed here; "" if it can."""
        server = any(node.database is not None and node.database.type == "postgresql" for node in nodes)
        return (database.missing() if server else "") or stores.refuses(nodes)

    async def deploy(
        self, system: System, spec: TestSpec, nodes: Sequence[NodePlan], directory: Path
    ) -> None:
        """Make the nodes' directories under ``directory/nodes``, start the agent, lay the links."""
        assert self._state is None, "an environment is one deployment"
        if not sys.platform.startswith("linux"):
            raise InfrastructureError(
                f"the local environment needs Linux, this is {sys.platform}: use --environment docker"
            )
        self._check_names(nodes)
        self._system = system
        self._homes = homes_here(system, spec)
        self._path = path_here(system, spec)
        run_id = new_run_id()
        try:
            await asyncio.to_thread(self._claim, run_id, directory)
            self._agent = await self._start_agent(run_id)
            answer = await self._agent.ask(
                "deploy",
                timeout_s=DEPLOY_PATIENCE_S,
                nodes=nodes,
                zones=self.zones,
                direct=DIRECT_PORTS,
                place=str(self._nodes),
            )
            self._made = msgspec.convert(answer, _Deployed)
            self._stores = stores.SharedDirectories(nodes)
            self._deployed = spec, nodes
            for node in nodes:
                self._configure(node)
        except BaseException:
            await self.teardown()
            raise

    def resolve(self, source: str, node: str, port: str) -> Address:
        """Return where ``source`` reaches a port of a node: through the proxy, or directly.

        It is the port's own address for "admin", for the node itself, and for `DIRECT_PORTS`.
        """
        listen = self._made.listen.get(node)
        if listen is None or port not in listen:
            raise UsageError(f"no port {port!r} of node {node!r} in this deployment")
        if source in ("admin", node) or port in DIRECT_PORTS:
            return listen[port]
        routes = self._made.routes.get(source)
        if routes is None:
            raise UsageError(f"no source {source!r}; there are {', '.join(self._made.routes)} and admin")
        return routes[node][port]

    async def start(self, node: str) -> None:
        """Start a node's broker; its output goes to ``logs/broker.log``."""
        argv = self._system.command(self._layout(node))
        variables = {"PYTHONUNBUFFERED": "1", "PATH": self._path, **self._made.variables}
        await self._asked.ask("start", node=node, argv=argv, variables=variables)

    async def wait_exit(self, node: str) -> int | None:
        """Wait for the end of a node's broker; see `Environment.wait_exit`."""
        status: int | None = await self._asked.ask("wait", timeout_s=None, node=node)
        return status

    async def running(self, node: str) -> bool:
        """Return whether a node's broker process exists; see `Environment.running`."""
        return (await self._asked.probe(nodes=[node]))[node] != "gone"

    async def kill(self, node: str) -> None:
        """Send SIGKILL to the broker's process group; returns when the broker is gone."""
        await self._asked.ask("kill", node=node)

    async def terminate(self, node: str) -> None:
        """Send SIGTERM to the broker's process group; see `Environment.terminate`."""
        await self._asked.ask("terminate", node=node)

    async def destroy_data(self, node: str) -> None:
        """Empty the data directory of a stopped node; data in a shared directory stays."""
        if await self.running(node):
            raise UsageError(f"{node} is running: its data can be destroyed only when it is stopped")
        if node in self._stores:
            return
        await asyncio.to_thread(clear, self._home(node) / "data")

    async def copy_data(self, source: str, node: str) -> None:
        """Replace a stopped node's data directory by a copy; see `Environment.copy_data`."""
        for name in (source, node):
            if await self.running(name):
                raise UsageError(f"{name} is running: data can be copied only while both brokers are stopped")
        data = self._home(node) / "data"
        await asyncio.to_thread(clear, data)
        await asyncio.to_thread(shutil.copytree, self._home(source) / "data", data, dirs_exist_ok=True)

    async def edit_data(self, node: str, edit: DataEdit) -> None:
        """Edit the files of a stopped node's data directory; see `Environment.edit_data`."""
        if await self.running(node):
            raise UsageError(f"{node} is running: its data can be edited only when it is stopped")
        data = self._home(node) / "data"
        files = await edit(await asyncio.to_thread(_read_files, data))
        await asyncio.to_thread(clear, data)
        await asyncio.to_thread(_write_files, data, files)

    async def inject(
        self,
        primitive: str,
        *,
        links: Sequence[Link] = (),
        nodes: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a fault and return its lease; see `Environment.inject`."""
        if primitive == "power-loss":  # all at the same time, like nodes on one power line
            await asyncio.gather(*(self.kill(node) for node in nodes))
        return await self._asked.inject(primitive, links, nodes, options or {}, self._lease_s)

    async def renew(self, lease: str) -> None:
        """Keep a fault in force for another lease; see `Environment.renew`."""
        await self._asked.renew(lease)

    async def heal(self, lease: str) -> None:
        """End a fault; does nothing if it has ended by itself."""
        await self._asked.heal(lease)

    async def heal_all(self) -> None:
        """End all faults."""
        await self._asked.heal_all()

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> Effect:
        """Probe the links with bytes of its own, and ask the kernel for the processes."""
        return Effect(bit=False, observed=await self._asked.probe(links, nodes))

    def describe_services(self) -> dict[str, str]:
        """Return for each store and the database's server what it is, and how it is mounted."""
        server = {database.NODE: "PostgreSQL, a process of this machine"} if self._made.databases else {}
        return {**self._stores.describe_services(), **server}

    async def log_lines(self, node: str, position: int | None) -> tuple[Sequence[str], int]:
        """Wait for new log lines; see `Environment.log_lines`. A position is a number of bytes."""
        path = self._home(node) / "logs" / "broker.log"

        async def read(begin: int) -> bytes:
            try:
                with path.open("rb") as file:
                    file.seek(begin)
                    return file.read()
            except FileNotFoundError:  # it has not been started yet
                return b""

        return await log_file.follow(read, position, LOG_POLL_S)

    async def collect(self, destination: Path) -> None:
        """Copy every node's logs, and the agent's as ``agent.log`` if it is not empty."""
        homes = {node: self._home(node) / "logs" for node in self._made.listen}
        if self._made.databases and self._nodes is not None:
            homes[database.NODE] = self._nodes / database.NODE / "logs"
        if self._nodes is not None:
            homes |= self._stores.logs(self._nodes)
        agent_log = None if self._state is None else self._state / state.LOG_FILE

        def copy() -> None:
            destination.mkdir(parents=True, exist_ok=True)
            for node, logs in homes.items():
                shutil.copytree(logs, destination / node, dirs_exist_ok=True)
            if agent_log is not None and agent_log.stat().st_size:
                shutil.copyfile(agent_log, destination / "agent.log")

        await asyncio.to_thread(copy)

    async def teardown(self) -> None:
        """Remove all of the deployment, whatever state it is in. Safe to repeat."""
        agent, self._agent = self._agent, None
        if agent is not None:
            with contextlib.suppress(InfrastructureError):
                await agent.ask("shutdown", timeout_s=TEARDOWN_PATIENCE_S)
            await agent.end(TEARDOWN_PATIENCE_S)
        directory, self._state = self._state, None
        if directory is not None:
            # This does not trust the agent's answer, and looks for the processes itself.
            await asyncio.to_thread(clean.end_deployment, directory, keep_logs=False)

    def _claim(self, run_id: str, directory: Path) -> None:
        """Make the directories, first the one that records the owner of the deployment."""
        directory = directory.resolve()  # nodes run in directories of their own
        nodes = directory / "nodes"
        if nodes.exists() and any(nodes.iterdir()):
            raise InfrastructureError(
                f"{nodes} is not empty: it belongs to another deployment; use another directory"
            )
        harness = identify()
        assert harness is not None, "this process runs"
        home = state.local_root() / run_id
        try:
            home.mkdir(parents=True, mode=0o700)
            self._state = home
            state.write(home, state.HarnessState(run_id=run_id, harness=harness, directory=str(directory)))
            nodes.mkdir(parents=True, exist_ok=True)
            (nodes / state.MARKER_FILE).write_text(run_id + "\n")
        except OSError as error:
            raise InfrastructureError(f"cannot make {error.filename}: {error.strerror}") from error
        self._nodes = nodes

    async def _start_agent(self, run_id: str) -> AgentProcess:
        assert self._state is not None
        return await AgentProcess.start(
            "environments.local.agent",
            str(self._state),
            str(self._orphan_s),
            variables={RUN_ID: run_id, STATE_DIR: str(self._state)},
            log=self._state / state.LOG_FILE,
        )

    def _configure(self, plan: NodePlan) -> None:
        spec, nodes = self._deployed
        layout = self._layout(plan.name)
        for part in (layout.etc, layout.data, layout.logs):
            Path(part).mkdir(parents=True, exist_ok=True)
        hosts = self._announced(plan)
        if plan.name in self._made.databases:
            hosts[DATABASE] = self._made.databases[plan.name]
        files = self._system.files(spec, plan, nodes, layout, self._made.listen[plan.name], hosts)
        for name, content in files.items():
            path = Path(layout.etc) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # passwords may be in it
            path.write_bytes(content)

    def _home(self, node: str) -> Path:
        if self._nodes is None or node not in self._made.listen:
            raise UsageError(f"no node {node!r}; there are {', '.join(self._made.listen) or 'none yet'}")
        return self._nodes / node

    def _layout(self, node: str) -> Layout:
        home = self._home(node)
        data = self._stores.data(node, home.parent) or home / "data"
        return Layout(etc=str(home / "etc"), data=str(data), logs=str(home / "logs"), homes=self._homes)

    @property
    def _asked(self) -> AgentProcess:
        if self._agent is None:
            raise InfrastructureError("nothing is deployed (any more)")
        return self._agent


def _read_files(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory, by path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a directory, by path."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
