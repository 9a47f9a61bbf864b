"""An environment of machines that somebody else owns, reached over ssh: one for each broker.

``environments.machines.remote`` says what is put on a machine. An agent does the rest, as it does
in a container.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from environments.homes import Homes
from environments.lease import DEFAULT_LEASE_S
from environments.machines import clocks
from environments.machines.clocks import MachineClocks
from environments.machines.disks import MachineDisks
from environments.machines.environment import MachinesEnvironment
from environments.machines.faults import at_once
from environments.machines.remote import RemoteMachine
from environments.postgresql.fault import PRIMITIVES as DATABASE_PRIMITIVES
from environments.ssh import clean
from environments.ssh.host import SshHost
from environments.ssh.hosts import inventory
from harness.interface import InfrastructureError, NodePlan

ORPHAN_S: Final = 600.0
_ELSEWHERE: Final = "runs in containers that jepsen-run starts; use --environment docker"


class SshEnvironment(MachinesEnvironment):
    """The environment "ssh"; ``hosts`` are the words that `inventory` accepts."""

    name = "ssh"

    def __init__(
        self, hosts: Sequence[str] = (), *, lease_s: float = DEFAULT_LEASE_S, orphan_s: float = ORPHAN_S
    ) -> None:
        super().__init__(lease_s)
        self._furniture = (MachineDisks(self._deployment), MachineClocks(self._deployment))
        self._hosts = hosts
        self._orphan_s = orphan_s
        self._connected: list[SshHost] = []

    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "", or with the reason why these machines cannot do it.

        What the kernels of the machines lack is known only after `deploy`.
        """
        fixed = next((host.name for host in inventory(self._hosts).hosts if not host.clock), "")
        clock = f'the clock of {fixed} may not be set ("clock = true" in hosts.toml allows it)'
        return {
            **self._supports(self._missing or {}),
            **dict.fromkeys(("nfs-stall", "nfs-disconnect", "nfs-restart"), f"the file server {_ELSEWHERE}"),
            **dict.fromkeys(DATABASE_PRIMITIVES, f"the database {_ELSEWHERE}"),
            **dict.fromkeys(clocks.PRIMITIVES, clock if fixed else ""),
            "clock-rate": "a machine's clock can be set, not made faster; use --environment simulation",
        }

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Return why this cluster cannot be deployed here, and where it can be; "" if it can."""
        if any(node.store is not None for node in nodes):
            return f"the brokers share a directory, whose file server {_ELSEWHERE}"
        if any(node.database is not None and node.database.type != "given" for node in nodes):
            return f"the brokers share a database, which {_ELSEWHERE}, or give one of your own"
        if not self._hosts:
            return "name the machines: --hosts hosts.toml, or --host user@address for each of them"
        if (have := len(inventory(self._hosts).hosts)) < len(nodes):
            return (
                f"each of the {len(nodes)} brokers takes a machine of its own, and {have} are named: name "
                "more, or take fewer pairs (--pairs)"
            )
        return ""

    async def _prepare(self, nodes: Sequence[NodePlan]) -> None:
        """Bring each machine what it lacks, after a look at all machines, which changes none."""
        known_hosts, hosts = inventory(self._hosts)
        hosts = hosts[: len(nodes)]
        token = secrets.token_hex(16)
        machines = []
        distribution = None if self._provision is None else Homes(self._provision)
        given = (token, self._orphan_s, self._provision, distribution)
        for plan, config in zip(nodes, hosts, strict=True):
            host = SshHost(config, known_hosts)
            self._connected.append(host)
            machines.append(RemoteMachine(host, config.python, self.run, plan.name, *given))
            self._deployment.add(plan, machines[-1], token)
        self.tell(f"looking at {len(nodes)} machines, and bringing them what they lack")
        await at_once(self._deployment.in_thread(machine.look) for machine in machines)
        clean.record(self.run, known_hosts, hosts, [plan.name for plan in nodes])
        await at_once(self._deployment.in_thread(machine.bring) for machine in machines)

    def _remove(self) -> None:
        _, problems = clean.end_run(self.run)
        for host in self._connected:
            host.close()
        if problems:
            raise InfrastructureError("; ".join(problems))
