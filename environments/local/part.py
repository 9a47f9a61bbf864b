"""What a local deployment has beside brokers and links and can break.

Its database, the disks of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Part(Protocol):
    """One kind of part, of as many nodes as have one.

    Run by the agent, so that it heals without the harness.
    """

    @property
    def name(self) -> str:
        """A node's part is looked at as "NODE/NAME"."""
        ...

    @property
    def primitives(self) -> Sequence[str]:
        """Its faults."""
        ...

    @property
    def momentary(self) -> Sequence[str]:
        """Those of them that happen at once and leave nothing to heal."""
        ...

    def fault(self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]) -> Any:
        """A fault as it was asked for, in the part's own words. Raises UsageError."""
        ...

    async def strike(self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]) -> None:
        """Do what happens at once."""
        ...

    async def obey(self, in_force: Sequence[Any]) -> None:
        """Be as all faults in force together want it; returns when it is."""
        ...

    async def look(self, nodes: Sequence[str]) -> dict[str, str]:
        """What a probe finds, by node."""
        ...

    async def close(self) -> None:
        """End it, and leave nothing."""
        ...
