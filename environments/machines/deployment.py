"""The machines of one run: made at the same time, and removed whatever state they are in.

Blocking calls run in the deployment's own threads. A harness that is interrupted while machines are
being made must wait for those threads before it removes the machines, or one more would appear
afterwards.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from environments.machines.node import Machine, Node
from harness.interface import InfrastructureError, NodePlan

TEARDOWN_PATIENCE_S: Final = 60.0
_AT_ONCE: Final = 8

T = TypeVar("T")


class Deployment:
    """The machines of a deployment.

    ``nodes`` has the brokers' machines by name, in the order of their plans, and ``services`` the
    other machines likewise; ``machines`` has both. The given function removes all of the
    deployment, made or half made; it blocks.
    """

    def __init__(self, run: str, remove: Callable[[], None]) -> None:
        self.run = run
        self._remove = remove
        self.nodes: dict[str, Node] = {}
        self.services: dict[str, Node] = {}
        self.machines: dict[str, Node] = {}
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix=run)

    def add(self, plan: NodePlan, machine: Machine, token: str, *, service: bool = False) -> None:
        """Add a machine; its agent is asked with ``token``."""
        node = self.machines[plan.name] = Node(plan, machine, token, self.in_thread)
        (self.services if service else self.nodes)[plan.name] = node

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a blocking function in a thread; `remove` waits for it."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, functools.partial(function, *arguments)
        )

    async def remove(self) -> None:
        """Remove everything.

        This is safe to repeat. Raises InfrastructureError, which names what was not removed in
        time.
        """
        for node in self.machines.values():
            node.abandon()
        try:
            async with asyncio.timeout(TEARDOWN_PATIENCE_S):
                await asyncio.to_thread(functools.partial(self._threads.shutdown, cancel_futures=True))
                await asyncio.to_thread(self._remove)
        except TimeoutError:
            raise InfrastructureError(
                f"{self.run} was not removed within {TEARDOWN_PATIENCE_S:.0f} s; "
                "`jepsen-run clean` tries again"
            ) from None
