"""The base of all environments whose brokers are processes of real kernels, in real time."""

from __future__ import annotations

import abc
import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from harness.interface import Address, NodePlan, System, T, TestSpec, UsageError

DIRECT_PORTS: Final = ("admin",)
"""The ports that only the harness uses, and reaches outside every partition."""

_CLOCK: Final = "brokers share this machine's clock; use --environment simulation"
_DATAGRAM: Final = "the links carry streams only; use --environment simulation"

SIMULATED_ONLY: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("clock-skew", "clock-step", "clock-rate", "clock-strobe"), _CLOCK),
        **dict.fromkeys(("datagram-loss", "datagram-duplicate", "datagram-reorder"), _DATAGRAM),
    }
)
"""Fault primitive -> why it cannot be done here, and where it can."""


class RealEnvironment(abc.ABC):
    """An environment of real processes; one instance is one deployment."""

    virtual = False
    # A zone must never have the name of a node: a pair and a number, "c1".
    zones: tuple[str, ...] = ("zone1", "zone2")

    _system: System
    _deployed: tuple[TestSpec, Sequence[NodePlan]]

    async def execute(self, main: Callable[[], Coroutine[Any, Any, T]], *, seed: int) -> T:
        """Run a test's coroutine on the running loop; a real machine's randomness takes no seed."""
        del seed
        return await main()

    def clock_ns(self) -> int:
        """Return the reading of the machine's monotonic clock."""
        return time.monotonic_ns()

    async def reconfigure(self, node: str, configured: str) -> None:
        """Give a node the files of another role; see `Environment.reconfigure`."""
        spec, nodes = self._deployed
        changed = [
            msgspec.structs.replace(each, configured=configured) if each.name == node else each
            for each in nodes
        ]
        self._deployed = spec, changed
        await asyncio.to_thread(self._configure, next(each for each in changed if each.name == node))

    @abc.abstractmethod
    def _configure(self, plan: NodePlan) -> None:
        """Replace a node's files by those that its plan asks for. Blocks."""

    @abc.abstractmethod
    def resolve(self, source: str, node: str, port: str) -> Address:
        """Return where ``source`` reaches a port of a node; see `Environment.resolve`."""

    def _check_names(self, nodes: Sequence[NodePlan]) -> None:
        if both := [node.name for node in nodes if node.name in self.zones]:
            taken = ", ".join(self.zones)
            raise UsageError(f"node {both[0]} has the name of a client zone: {taken} are taken")

    def _announced(self, plan: NodePlan) -> dict[str, Address]:
        """Return where a node reaches the others, by the names and ports that they announce."""
        return {
            f"{other.name}:{number}": self.resolve(plan.name, other.name, port)
            for other in self._deployed[1]
            if other.name != plan.name
            for port, number in other.ports.items()
            if port not in DIRECT_PORTS
        }
