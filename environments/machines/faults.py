"""The faults in force in one deployment, and their leases: each node has a lease of its own.

Why the harness keeps a record in addition to the agents': a killed container comes back with a
clean network, while the others still lose its packets. So the effect of a fault at each node is
remembered here, and repeated when a node is started.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.agent_process import AgentProcess
from environments.link_condition import condition_of
from environments.machines.node import LeaseEndedError, Node, NodeDownError
from harness.interface import InfrastructureError, Link, UsageError


@dataclass(slots=True)
class _Held:
    """A fault: its effect at each node, and its leases there and in the links of client zones."""

    at_nodes: dict[str, dict[str, Any]]
    leases: dict[str, str] = field(default_factory=dict)
    zone_lease: str | None = None


class Faults:
    """Begins, renews and ends faults. ``links`` is set once the links of client zones exist."""

    def __init__(self, nodes: Mapping[str, Node], lease_s: float) -> None:
        self.links: AgentProcess | None = None
        self._nodes = nodes
        self._lease_s = lease_s
        self._held: dict[str, _Held] = {}
        self._next = 1

    async def inject(
        self,
        primitive: str,
        at_nodes: dict[str, dict[str, Any]],
        of_zones: Sequence[Link],
        options: Mapping[str, Any],
    ) -> str:
        """Begin a fault at all its places at the same time, and return the name of its lease.

        If it fails at one place, it is in force at none.
        """
        held = _Held(at_nodes)
        lease = f"fault-{self._next}"
        self._next += 1
        self._held[lease] = held  # first, so that a node that comes back meanwhile has the fault, too
        tasks = [self._inject_at(held, self._nodes[name]) for name in at_nodes]
        if of_zones:
            tasks.append(self._inject_zones(held, primitive, of_zones, options))
        try:
            await at_once(tasks)
        except BaseException:
            with contextlib.suppress(InfrastructureError):  # its lease ends it
                await self.heal(lease)
            raise
        return lease

    async def renew(self, lease: str) -> None:
        """Let a fault last for another full lease everywhere.

        Raises InfrastructureError if it has ended before its time somewhere.
        """
        held = self._held.get(lease)
        if held is None:
            raise UsageError(f"no lease {lease!r} in force")
        tasks = [self._renew_at(held, name, at) for name, at in held.leases.items()]
        if held.zone_lease is not None and self.links is not None:
            tasks.append(self.links.renew(held.zone_lease))
        await at_once(tasks)

    async def heal(self, lease: str) -> None:
        """End a fault; does nothing if it has ended already."""
        held = self._held.pop(lease, None)
        if held is None:
            return
        tasks = [self._heal_at(held, self._nodes[name]) for name in held.at_nodes]
        if held.zone_lease is not None and self.links is not None:
            tasks.append(self.links.heal(held.zone_lease))
        await at_once(tasks)

    async def heal_all(self) -> None:
        """End every fault, of all leases."""
        self._held.clear()
        tasks = [self._heal_all_at(node) for node in self._nodes.values()]
        if self.links is not None:
            tasks.append(self.links.heal_all())
        await at_once(tasks)

    def forget(self) -> None:
        """Forget all faults, because everything is about to be removed."""
        self._held.clear()
        self.links = None

    async def boot(self, node: Node) -> None:
        """Start a node's machine if need be, and repeat the faults in force there.

        The caller holds the node's lock.
        """
        assert node.lock.locked()
        if not await node.boot():
            return
        name = node.plan.name
        here = [held for held in self._held.values() if name in held.at_nodes]
        for held in here:  # first for all faults: the old leases mean nothing to the new agent
            held.leases.pop(name, None)
        for held in here:
            await self._inject_locked(held, node)

    async def _inject_at(self, held: _Held, node: Node) -> None:
        async with node.lock:
            if node.plan.name not in held.leases:
                await self._inject_locked(held, node)

    async def _inject_locked(self, held: _Held, node: Node) -> None:
        name = node.plan.name
        with contextlib.suppress(NodeDownError):  # it obeys when it is started
            answer = await node.ask("inject", fault=held.at_nodes[name], lease_s=self._lease_s)
            held.leases[name] = answer["lease"]

    async def _inject_zones(
        self, held: _Held, primitive: str, links: Sequence[Link], options: Mapping[str, Any]
    ) -> None:
        assert self.links is not None
        held.zone_lease = await self.links.inject(primitive, links, (), options, self._lease_s)

    async def _renew_at(self, held: _Held, name: str, lease: str) -> None:
        try:
            await self._nodes[name].ask("renew", lease=lease)
        except NodeDownError:
            pass  # it obeys when it is started
        except LeaseEndedError as error:
            if held.leases.get(name) != lease:
                return  # it was started again meanwhile, under a new lease
            raise InfrastructureError(
                f"{error}: the fault was healed on the node before its time; was the harness held up "
                "(overloaded machine, suspend)?"
            ) from error

    async def _heal_at(self, held: _Held, node: Node) -> None:
        async with node.lock:
            lease = held.leases.get(node.plan.name)
            if lease is not None:
                with contextlib.suppress(NodeDownError, LeaseEndedError):
                    await node.ask("heal", lease=lease)

    async def _heal_all_at(self, node: Node) -> None:
        async with node.lock:
            with contextlib.suppress(NodeDownError):
                await node.ask("heal_all")


def link_faults(
    primitive: str, options: Mapping[str, Any] | None, links: Sequence[Link], nodes: Mapping[str, Node]
) -> dict[str, dict[str, Any]]:
    """Return what each agent has to do for a fault of links between nodes.

    A link is slowed at its source, and broken at its target. Raises UsageError for options that the
    primitive does not take.
    """
    condition = condition_of(primitive, options)
    found: dict[str, dict[str, Any]] = {}
    for link in links:
        if primitive == "slow":
            slow = {
                "target": nodes[link.target].address,
                "delay_ms": condition.delay_ms,
                "jitter_ms": condition.jitter_ms,
                "rate_bytes_s": condition.rate_bytes_s,
            }
            found.setdefault(link.source, {}).setdefault("slow", []).append(slow)
        else:
            source: Any = nodes[link.source].address
            if primitive == "datagram-loss":
                source = {"source": source, "chance": condition.loss}
            found.setdefault(link.target, {}).setdefault(primitive, []).append(source)
    return found


async def at_once(tasks: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all at the same time and wait for all; raise the first error itself, not a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except BaseExceptionGroup as error:
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
