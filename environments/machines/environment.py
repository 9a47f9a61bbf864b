"""Environments whose brokers have machines of their own, each with an agent that injects faults.

The mechanism of each fault:

- links between brokers: rules of the packet filter on the target's machine (see
  `environments.agent.firewall`): packets are really lost;
- links of client zones: the proxy in user space (see `environments.links_agent`), because all
  clients share one host;
- "pause": SIGSTOP to the broker's process group; the agent and its lease go on;
- "kill": SIGKILL to the whole machine where that is ours (a container), as if it had lost power
  except that its disk keeps what was written; elsewhere to the broker.

Blocking calls run in threads.
"""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments import log_file
from environments.agent.control import CONTROL_PORT, PROBE_PORT
from environments.agent_process import AgentProcess
from environments.homes import provision_of
from environments.labels import new_run_id
from environments.link_condition import LINK_PRIMITIVES, link_name
from environments.machines import probes
from environments.machines.deployment import Deployment
from environments.machines.faults import Faults, at_once, link_faults
from environments.machines.furniture import Furniture
from environments.machines.node import Node, NodeDownError
from environments.proxied_links import Routes
from environments.real_environment import DIRECT_PORTS, SIMULATED_ONLY, RealEnvironment
from harness.interface import (
    Address,
    DataEdit,
    Effect,
    InfrastructureError,
    Layout,
    Link,
    NodePlan,
    Provision,
    System,
    TestSpec,
    UsageError,
)

NODE_PRIMITIVES: Final = ("pause", "kill", "stop", "destroy-data", "copy-data", "edit-data")
_STREAMS_TOO: Final = "netem would hit connections, too; use --environment simulation"
LOG_POLL_S: Final = 0.2

_log = logging.getLogger(__name__)


def lacking(answers: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return for each fault why it cannot be done on all machines, from each node's answer.

    ``answers`` has "" for a fault that a node can do. The reason names a node if other nodes can do
    the fault.
    """
    found: dict[str, str] = {}
    for fault in dict.fromkeys(fault for missing in answers.values() for fault in missing):
        why = {node: missing.get(fault, "") for node, missing in answers.items()}
        name, words = next(((node, words) for node, words in why.items() if words), ("", ""))
        found[fault] = words if all(why.values()) else words and f"{name}: {words}"
    return found


class MachinesEnvironment(RealEnvironment):
    """An environment of machines; one instance is one deployment.

    ``lease_s`` is how long a fault lasts without `renew`. ``tell`` gets a line before anything that
    takes long; it may be set until `deploy`, and is called on the loop. A fault is renewed and
    healed by its lease; this raises InfrastructureError if the fault has ended before its time.
    """

    name: str

    def __init__(self, lease_s: float) -> None:
        self.tell: Callable[[str], None] = _log.info
        self.run = f"jepsen-run-{new_run_id()}"
        self._deployment = Deployment(self.run, self._remove)
        self._furniture: Sequence[Furniture] = ()
        self._links: AgentProcess | None = None
        self._routes: Routes = {}
        self._faults = Faults(self._deployment.machines, lease_s)
        self.renew, self.heal, self.heal_all = self._faults.renew, self._faults.heal, self._faults.heal_all
        self._missing: dict[str, str] | None = None
        self._provision: Provision | None = None

    # ---- what each kind of machine has of its own

    @abc.abstractmethod
    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Return why this cluster cannot be deployed here, and where it can be; "" if it can."""

    @abc.abstractmethod
    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "", or with the reason why it cannot be done here."""

    @abc.abstractmethod
    async def _prepare(self, nodes: Sequence[NodePlan]) -> None:
        """Add the nodes with their addresses; machines of our own need not exist yet."""

    @abc.abstractmethod
    def _remove(self) -> None:
        """Remove all of the deployment, made or half made. Blocks."""

    # ---- life of a deployment

    def _supports(self, missing: Mapping[str, str]) -> dict[str, str]:
        """Return each fault with "" or why it cannot be done, on kernels with these gaps."""
        furnished = [primitive for furniture in self._furniture for primitive in furniture.primitives]
        answers = {**SIMULATED_ONLY, **dict.fromkeys((*LINK_PRIMITIVES, *NODE_PRIMITIVES, *furnished), "")}
        for primitive in ("cut", "reset", "stall"):
            answers[primitive] = missing.get("cut", "")
        answers |= dict.fromkeys(("datagram-duplicate", "datagram-reorder"), _STREAMS_TOO)
        answers["datagram-loss"] = missing.get("datagram-loss", "")
        if missing.get("slow"):
            answers["slow"] = (
                f"{missing['slow']}: links between brokers cannot be slowed, only those of client zones"
            )
        return answers

    async def deploy(
        self, system: System, spec: TestSpec, nodes: Sequence[NodePlan], directory: Path
    ) -> None:
        """Make all machines at the same time, and start their agents. Starts no broker."""
        del directory  # no file of a node is kept on this host
        assert not self._deployment.nodes, "an environment is one deployment"
        if refusal := self.refuses(nodes):
            raise UsageError(refusal)
        taken = [port for node in nodes for port in node.ports.values() if port in (CONTROL_PORT, PROBE_PORT)]
        if taken:
            raise UsageError(
                f"port {taken[0]} is used by the agent on every machine: give the broker another"
            )
        self._check_names(nodes)
        self._system = system
        self._deployed = spec, nodes
        self._provision = provision_of(system, spec)
        try:
            for furniture in self._furniture:
                furniture.plan(nodes)
            await self._prepare(nodes)
            await at_once(furniture.serve() for furniture in self._furniture)
            await at_once(map(self._deploy_node, nodes))
            self._missing = lacking({node.name: await self._missing_of(node.name) for node in nodes})
            self._links = self._faults.links = await AgentProcess.start("environments.links_agent")
            targets = {
                name: {
                    port: node.reach(number)
                    for port, number in node.plan.ports.items()
                    if port not in DIRECT_PORTS
                }
                for name, node in self._deployment.nodes.items()
            }
            laid = await self._links.ask("lay", sources=self.zones, targets=targets)
            self._routes = msgspec.convert(laid, Routes)
        except BaseException:
            with contextlib.suppress(InfrastructureError):  # the first error is the one to tell
                await self.teardown()
            raise

    async def _missing_of(self, node: str) -> dict[str, str]:
        answer: dict[str, str] = (await self._deployment.nodes[node].ask("hello"))["missing"]
        return answer

    def resolve(self, source: str, node: str, port: str) -> Address:
        """Return where ``source`` reaches a port of a node.

        Client zones go through the proxy, except for `DIRECT_PORTS`. "admin" goes to the machine as
        this host reaches it. Other nodes use the machine's address.
        """
        target = self._node(node)
        if port not in target.plan.ports:
            raise UsageError(f"no port {port!r} of node {node!r}; there are {', '.join(target.plan.ports)}")
        number = target.plan.ports[port]
        if source == "admin" or (source in self.zones and port in DIRECT_PORTS):
            return target.reach(number)
        if source in self.zones:
            return self._routes[source][node][port]
        self._node(source)
        return Address(target.address, number)

    def describe_services(self) -> dict[str, str]:
        """Return for each store and the database what it is, and how it is mounted."""
        return {name: what for one in self._furniture for name, what in one.describe_services().items()}

    async def log_lines(self, node: str, position: int | None) -> tuple[Sequence[str], int]:
        """Wait for new log lines; see `Environment.log_lines`. A position is a number of bytes."""
        target = self._node(node)
        if position is None:
            return [], (await target.log(None))[1]

        async def read(begin: int) -> bytes:
            return (await target.log(begin))[0]

        return await log_file.follow(read, position, LOG_POLL_S)

    async def collect(self, destination: Path) -> None:
        """Copy the broker's and the agent's logs of every machine, also of dead ones."""
        await at_once(node.collect(destination / name) for name, node in self._deployment.machines.items())

    async def teardown(self) -> None:
        """Remove all of the deployment, whatever state it is in. Safe to repeat; bounded."""
        links, self._links = self._links, None
        self._faults.forget()
        try:
            if links is not None:
                await links.end()
        finally:
            await self._deployment.remove()

    # ---- nodes

    async def start(self, node: str) -> None:
        """Start a node's broker, and before it the machine, if that was killed."""
        target = self._node(node)
        async with target.lock:
            await self._faults.boot(target)
            command = self._system.command(self._layout(target))
            variables: dict[str, str] = {}
            try:
                for furniture in self._furniture:
                    await furniture.begin(target)
                    command = furniture.command(node, command)
                    variables |= furniture.variables()
                await target.ask("start", command=command, environment=variables)
            except NodeDownError as error:
                raise InfrastructureError(
                    f"{node}: its machine went away while the broker was started"
                ) from error

    async def wait_exit(self, node: str) -> int | None:
        """Wait for the end of a node's broker; see `Environment.wait_exit`."""
        return await self._node(node).wait_exit()

    async def running(self, node: str) -> bool:
        """Return whether a node's broker process exists; see `Environment.running`."""
        return await self._state(node) != "gone"

    async def kill(self, node: str) -> None:
        """Kill a node's machine (broker, agent and network) where it is ours, else its broker."""
        target = self._node(node)
        async with target.lock:
            await target.kill()

    async def terminate(self, node: str) -> None:
        """Send the broker SIGTERM; on a machine that does not run nothing is left to end."""
        with contextlib.suppress(NodeDownError):
            await self._node(node).ask("terminate")

    async def destroy_data(self, node: str) -> None:
        """Remove the data of a node; a killed machine is started for this, without its broker."""
        target = self._node(node)
        async with target.lock:
            await self._faults.boot(target)
            await target.ask("destroy_data")

    async def copy_data(self, source: str, node: str) -> None:
        """Replace the data of a node by a copy of another's; see `Environment.copy_data`.

        A killed machine is started for this, without its broker.
        """
        for name in (source, node):
            if await self.running(name):
                raise UsageError(f"{name} is running: data can be copied only while both brokers are stopped")
        await self.destroy_data(node)
        target = self._node(node)
        async with target.lock:
            await self._deployment.in_thread(target.copy_data, self._node(source))

    async def edit_data(self, node: str, edit: DataEdit) -> None:
        """Edit the data of a node; see `Environment.edit_data`.

        A killed machine is started for this, without its broker.
        """
        if await self.running(node):
            raise UsageError(f"{node} is running: its data can be edited only when it is stopped")
        target = self._node(node)
        files = await edit(await self._deployment.in_thread(target.read_data))
        await self.destroy_data(node)
        async with target.lock:
            await self._deployment.in_thread(target.write_data, files)

    # ---- faults

    async def inject(
        self,
        primitive: str,
        *,
        links: Sequence[Link] = (),
        nodes: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a fault and return its lease; see `Environment.inject`."""
        between, of_zones = self._split(primitive, links, nodes)
        if primitive == "pause":
            at_nodes: dict[str, dict[str, Any]] = {node: {"pause": True} for node in nodes}
        elif furniture := self._part(primitive):
            given = dict(options or {})
            at_nodes = furniture.faults(primitive, nodes, given)
            await furniture.strike(primitive, nodes, given, self._faults.boot)
            options = {}
        else:
            if between and self.supports()[primitive]:
                raise InfrastructureError(f"{primitive}: {self.supports()[primitive]}")
            at_nodes = link_faults(primitive, options, between, self._deployment.nodes)
        return await self._faults.inject(primitive, at_nodes, of_zones, options or {})

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> Effect:
        """Probe the links with traffic of its own, and ask the kernels for the processes."""
        between, of_zones = self._split("probe", links, ())
        observed: dict[str, str] = {}

        async def probe_zones() -> None:
            assert self._links is not None
            observed.update(await self._links.probe(of_zones))

        async def probe_between() -> None:
            observed.update(await probes.probe(self._deployment.nodes, between))

        async def probe_node(name: str) -> None:
            node, _, part = name.partition("/")
            looks = {furniture.part: furniture.look for furniture in self._furniture}
            observed[name] = await looks.get(part, self._state)(node)

        tasks = [probe_node(name) for name in nodes]
        if of_zones:
            tasks.append(probe_zones())
        if between:
            tasks.append(probe_between())
        await at_once(tasks)
        order = [*map(link_name, links), *nodes]
        return Effect(bit=False, observed={name: observed[name] for name in dict.fromkeys(order)})

    # ---- inside

    async def _deploy_node(self, plan: NodePlan) -> None:
        node = self._deployment.nodes[plan.name]
        await self._deployment.in_thread(node.create, self._files_of(plan))
        await node.boot()

    def _configure(self, plan: NodePlan) -> None:
        self._node(plan.name).configure(self._files_of(plan))

    def _files_of(self, plan: NodePlan) -> dict[str, bytes]:
        spec, nodes = self._deployed
        listen = {port: Address("0.0.0.0", number) for port, number in plan.ports.items()}
        hosts = self._announced(plan)
        for furniture in self._furniture:
            hosts |= furniture.hosts(plan.name)
        layout = self._layout(self._deployment.nodes[plan.name])
        return self._system.files(spec, plan, nodes, layout, listen, hosts)

    def _layout(self, node: Node) -> Layout:
        return next(filter(None, (one.layout(node) for one in self._furniture)), node.layout)

    def _part(self, primitive: str) -> Furniture | None:
        return next((one for one in self._furniture if primitive in one.primitives), None)

    def _node(self, name: str) -> Node:
        if name not in self._deployment.nodes:
            raise UsageError(f"no node {name!r}; there are {', '.join(self._deployment.nodes) or 'none yet'}")
        return self._deployment.nodes[name]

    async def _state(self, node: str) -> str:
        return await self._node(node).look("state", "state")

    def _split(self, what: str, links: Sequence[Link], nodes: Sequence[str]) -> tuple[list[Link], list[Link]]:
        """Return the links between nodes, and the links of client zones.

        Raises UsageError for ends that do not exist and for faults of the wrong kind.
        """
        if what == "pause" or self._part(what) is not None:
            if links or not nodes:
                raise UsageError(f"{what}: takes nodes, no links")
        elif what in (*LINK_PRIMITIVES, "datagram-loss"):
            if nodes or not links:
                raise UsageError(f"{what}: takes links, no nodes")
        elif what != "probe":
            raise UsageError(f"no fault {what!r} to inject; there are {', '.join(LINK_PRIMITIVES)} and pause")
        for node in nodes:
            self._node(node)
        between: list[Link] = []
        of_zones: list[Link] = []
        for link in links:
            zones = [end for end in (link.source, link.target) if end in self.zones]
            for end in (link.source, link.target):
                if end not in self.zones:
                    self._node(end)
            if link.source == link.target or len(zones) > 1:
                raise UsageError(f"{what}: no link {link_name(link)} in this deployment")
            (of_zones if zones else between).append(link)
        return between, of_zones
