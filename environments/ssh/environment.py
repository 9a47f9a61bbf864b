"""Brokers on machines that somebody else owns, reached over ssh: one machine for each.

What is done there, and how it ends, is the agent's (``environments.agent``), as in a container;
see ``environments.ssh.machine`` for what is put there, and ``environments.ssh.clean`` for what is
removed when the harness was killed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from environments.disk_condition import DISK_LEASES, DISK_MOMENTS
from environments.labels import new_run_id
from environments.lease import DEFAULT_LEASE_S
from environments.machines import clocks
from environments.machines.clocks import Clocks
from environments.machines.deployment import Deployment
from environments.machines.disks import Disks
from environments.machines.environment import MachinesEnvironment
from environments.machines.faults import at_once
from environments.machines.node import Node
from environments.postgresql.fault import PRIMITIVES as DATABASE_PRIMITIVES
from environments.ssh import clean, hosts
from environments.ssh.host import SshHost
from environments.ssh.hosts import Inventory
from environments.ssh.machine import ORPHAN_S, SshMachine
from harness.interface import NodePlan, UsageError

_ELSEWHERE: Final = "is made of containers of ours; use --environment docker"
_NFS_PRIMITIVES: Final = ("nfs-stall", "nfs-disconnect", "nfs-restart")

_log = logging.getLogger(__name__)


def inventory(given: Sequence[str]) -> Inventory:
    """What ``--hosts FILE`` or ``--host user@address`` name. Raises UsageError."""
    files = [one for one in given if "@" not in one]
    if not files:
        return hosts.listed(given)
    if len(given) > 1:
        raise UsageError(f"--hosts {files[0]}: one file, or --host user@address for each machine")
    return hosts.load(Path(files[0]))


class SshDeployment(Deployment):
    """The machines of one run, of which the local state directory has a record."""

    def prepare(self, plans: Sequence[NodePlan], found: Inventory, orphan_s: float) -> None:
        """Make them known; none is connected to yet."""
        token = secrets.token_hex(16)
        chosen = found.hosts[: len(plans)]
        for plan, config in zip(plans, chosen, strict=True):
            machine = SshMachine(SshHost(config, found.known_hosts), self.run, plan.name, token, orphan_s)
            self.nodes[plan.name] = self.machines[plan.name] = Node(plan, machine, token)

    def _remove(self) -> None:
        clean.end_run(self.run)
        for node in self.nodes.values():
            assert isinstance(node.machine, SshMachine)
            node.machine.host.close()


class SshEnvironment(MachinesEnvironment):
    """The environment "ssh"; ``hosts`` as ``inventory`` takes them."""

    name = "ssh"

    def __init__(
        self,
        hosts: Sequence[str] = (),
        *,
        lease_s: float = DEFAULT_LEASE_S,
        tell: Callable[[str], None] = _log.info,
        orphan_s: float = ORPHAN_S,
    ) -> None:
        self.run = f"jepsen-run-{new_run_id()}"
        self._hosts = hosts
        self._orphan_s = orphan_s
        self._machines = SshDeployment(self.run)
        super().__init__(self._machines, (Disks(self._machines), Clocks(self._machines)), lease_s, tell)

    def supports(self) -> Mapping[str, str]:
        """What the machines' kernels can do, tried out on them.

        Before `deploy` nothing is known against them.
        """
        answers = self._supports(self._missing or {})
        answers |= dict.fromkeys((*DISK_LEASES, *DISK_MOMENTS), "")
        answers |= dict.fromkeys(_NFS_PRIMITIVES, f"the file server {_ELSEWHERE}")
        answers |= dict.fromkeys(DATABASE_PRIMITIVES, f"the database {_ELSEWHERE}")
        fixed = [host.name for host in inventory(self._hosts).hosts if not host.clock] if self._hosts else ()
        for primitive in clocks.PRIMITIVES:
            answers[primitive] = (
                f'the clock of {fixed[0]} may not be set ("clock = true" in hosts.toml allows it)'
                if fixed
                else ""
            )
        answers["clock-rate"] = "a machine's clock can be set, not made faster; use --environment simulation"
        return answers

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Why this cluster cannot be deployed there, with where it can be; "" if it can."""
        if not self._hosts:
            return "name the machines: --hosts hosts.toml, or --host user@address for each of them"
        have = len(inventory(self._hosts).hosts)
        if have < len(nodes):
            return (
                f"each of the {len(nodes)} brokers takes a machine of its own, and {have} are named: name "
                "more, or take fewer pairs (--pairs)"
            )
        if any(node.store is not None for node in nodes):
            return f"the brokers share a directory, whose file server {_ELSEWHERE}"
        if any(node.database is not None and node.database.type != "given" for node in nodes):
            return f"the brokers share a database, which {_ELSEWHERE}, or give one of your own"
        return ""

    async def _prepare(self, nodes: Sequence[NodePlan]) -> None:
        found = inventory(self._hosts)
        await self._machines.in_thread(self._machines.prepare, nodes, found, self._orphan_s)
        self.tell(f"looking at {len(nodes)} machines, and bringing them what they lack")
        await self._at_all(SshMachine.look)
        plans = [node.name for node in nodes]
        clean.record(self.run, found.known_hosts, found.hosts[: len(plans)], plans)
        await self._at_all(SshMachine.bring)

    async def _at_all(self, do: Callable[[SshMachine], None]) -> None:
        """Nothing is changed on any machine before all were looked at."""
        await at_once(self._at(node, do) for node in self._machines.nodes.values())

    async def _at(self, node: Node, do: Callable[[SshMachine], None]) -> None:
        assert isinstance(node.machine, SshMachine)
        await self._machines.in_thread(do, node.machine)
        node.address = node.machine.address
