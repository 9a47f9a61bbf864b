"""What the nemesis may ask of brokers.

An administrator's commands, over their admin ports and outside every partition.

Why not through the environment: it knows processes and links, and nothing of what a broker
understands. That is the system's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.interface import Address, Environment, InfrastructureError, Steered, System


class Steering:
    """The administrator of one test."""

    def __init__(self, system: System, environment: Environment) -> None:
        self._system = system
        self._environment = environment

    async def stop_cleanly(self, node: str, failover: bool | None) -> None:
        """Ask for a clean stop; ``failover`` None leaves it to the broker's own property.

        Raises OSError.
        """
        await self._system.stop(self._admin(node), failover=failover)

    async def administer(self, node: str, command: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to any other command.

        Raises OSError, and InfrastructureError for a system that takes none.
        """
        if not isinstance(self._system, Steered):
            raise InfrastructureError(
                f"brokers of {self._system.name} take no command {command}: it cannot be given"
            )
        return await self._system.administer(self._admin(node), command, arguments)

    def _admin(self, node: str) -> Address:
        return self._environment.resolve("admin", node, "admin")
