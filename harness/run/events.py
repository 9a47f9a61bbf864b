"""The events that brokers log while a test runs, for faults that wait for them.

Why from log lines: they exist anyway, are the same in every environment, and ``coverage`` has names
for them. A fault timed by the clock hits a takeover half-way only by luck. A fault that waits for
the line with which the takeover begins always does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

import nemesis.target
from harness.history import coverage
from harness.interface import Environment, Event, Schedule


def needed(schedule: Schedule) -> bool:
    """Return whether a fault waits for an event, or is aimed at a node that an event names."""
    by_event = (*nemesis.target.PARTS, nemesis.target.RIVALS)
    return any(fault.after is not None or fault.target in by_event for fault in schedule.faults)


class LogFollower:
    """A follower of the logs of some nodes, from ``run`` on until that is cancelled.

    ``told`` holds the events that the system's brokers log.
    """

    def __init__(self, environment: Environment, nodes: Collection[str], events: Mapping[str, Event]) -> None:
        self._environment = environment
        self._events = events
        self._nodes = tuple(nodes)
        self._happened: dict[str, asyncio.Future[str]] = {}
        self._parts: dict[str, str] = {}

    async def run(self) -> None:
        """Follow the logs of all nodes."""
        async with asyncio.TaskGroup() as group:
            for node in self._nodes:
                group.create_task(self._follow(node), name=f"log of {node}")

    async def wait(self, event: str) -> str:
        """Wait until a broker has logged this event since ``run`` began; return the first one."""
        return await asyncio.shield(self._future(event))

    def parts(self) -> Mapping[str, str]:
        """Return which node plays each part now, by what was logged last: "taker" -> "a2"."""
        return self._parts

    async def _follow(self, node: str) -> None:
        _, position = await self._environment.log_lines(node, None)
        while True:
            lines, position = await self._environment.log_lines(node, position)
            self._heard(node, lines)

    def _heard(self, node: str, lines: Sequence[str]) -> None:
        for event in (event for line in lines for event in coverage.events_in_line(line, self._events)):
            if part := self._events[event].plays:
                self._parts[part] = node
            future = self._future(event)
            if not future.done():
                future.set_result(node)

    def _future(self, event: str) -> asyncio.Future[str]:
        if event not in self._happened:
            self._happened[event] = asyncio.get_running_loop().create_future()
        return self._happened[event]
