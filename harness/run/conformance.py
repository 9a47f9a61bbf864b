"""The conformance check: what a system's module says of its brokers, tried with one of them.

Why: verdicts trust the module. A dialect that names the wrong header finds redeliveries without a
mark. A promise that is too large accuses a broker of breaking what it never promised. Either looks
like a finding. So each statement is tried on a small cluster without faults, one row each. A
statement that could not be tried is unknown, with its reason, and never taken for right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from harness.interface import Prepared, Status, StoredMessage
from harness.run.compose import Composition
from harness.run.conversation import Conversation
from harness.run.talk import POLL_S, Row, StepResult, tried

KEPT: Final = "kept over a restart"

STEPS: Final = 24
"""The number of queues, or topics, that the steps use."""


class Conformance:
    """The check of a deployed cluster, from its start to its restart: a row for each statement."""

    def __init__(self, test: Composition, tell: Callable[[Row], None]) -> None:
        self._test = test
        self._tell = tell
        self._rows: list[Row] = []

    async def run(self, queues: Sequence[str], topics: Sequence[str]) -> list[Row]:
        """Try all statements and return their rows.

        The cluster must be deployed; it is not removed.
        """
        started = await self._row("starts", self._starts)
        live = await self._live()
        if started.state == "DEPARTS" or live is None:
            why = "no broker is live"
            for name in ("what clients do", "stop", "restart", KEPT):
                self._add(Row(name, "", why, "unknown"))
            return self._rows
        talk = self._talk(live, iter(queues), iter(topics))
        for row in await talk.rows():
            self._add(row)
        ready = await tried(KEPT, "", lambda: _done(talk.prepare_restart()))
        stopped = await self._row("stop", self._stops)
        if stopped.state == "DEPARTS" or ready.state != "as said":
            why = ready.seen if ready.state != "as said" else "a broker did not stop"
            for name in ("restart", KEPT):
                self._add(Row(name, "", why, "unknown"))
            return self._rows
        second_start = await self._row("restart", self._starts)
        live = await self._live() if second_start.state == "as said" else None
        if live is None:
            self._add(Row(KEPT, "", "no broker is live", "unknown"))
            return self._rows
        talk.at, talk.node = self._test.environment.resolve("admin", live, "stomp"), live
        await self._row(KEPT, talk.restarted)
        return self._rows

    async def _row(self, name: str, step: Callable[[], Awaitable[StepResult]]) -> Row:
        return self._add(await tried(name, "", step))

    def _add(self, row: Row) -> Row:
        self._rows.append(row)
        self._tell(row)
        return row

    def _talk(self, live: str, queues: Iterator[str], topics: Iterator[str]) -> Conversation:
        test = self._test
        return Conversation(
            dialect=test.system.dialect,
            promises=test.system.promises(test.spec),
            at=test.environment.resolve("admin", live, "stomp"),
            node=live,
            queues=queues,
            topics=topics,
            browse=lambda: self._browse(live),
        )

    async def _browse(self, live: str) -> Sequence[StoredMessage]:
        async with asyncio.timeout(self._test.system.patience.browse_s):
            return await self._test.system.browse(self._test.admin(live))

    async def _starts(self) -> StepResult:
        """Start all nodes, and prepare what clients need.

        A node starts after the node that must be live before it.
        """
        test = self._test
        claim = ", ".join(f"{node.name} as {node.configured}" for node in test.nodes)
        for node in sorted(
            test.nodes,
            key=lambda node_to_start: (node_to_start.after is not None, node_to_start.configured == "slave"),
        ):
            if node.after is not None:
                await self._missed(partial(_serves, node.after))
            await test.environment.start(node.name)
        lacking = await self._missed(lambda statuses: not test.system.lacking(test.nodes, statuses))
        if isinstance(test.system, Prepared) and not lacking:
            await test.system.prepare(test.spec, {node.name: test.admin(node.name) for node in test.nodes})
        roles = ", ".join(f"{name} {status.role}" for name, status in (await self._statuses()).items())
        return StepResult(claim, roles or "nobody answers", right=not lacking)

    async def _stops(self) -> StepResult:
        """Stop each broker and wait until its process has ended.

        Backups are stopped first, so that none takes over.
        """
        test = self._test
        statuses = await self._statuses()
        order = sorted(test.nodes, key=lambda node: node.name in statuses and statuses[node.name].serves)
        claim, ends = "each broker ends when it is asked to", []
        for node in order:
            if not node.broker or await test.system.stop(test.admin(node.name), failover=None) is False:
                await test.environment.terminate(node.name)
            try:
                async with asyncio.timeout(test.system.patience.start_s):
                    ends.append(f"{node.name} ended ({await test.environment.wait_exit(node.name)})")
            except TimeoutError:
                return StepResult(claim, f"{node.name} still runs", right=False)
        return StepResult(claim, ", ".join(ends), right=True)

    async def _live(self) -> str | None:
        return next((name for name, status in (await self._statuses()).items() if status.serves), None)

    async def _statuses(self) -> Mapping[str, Status]:
        statuses = {}
        for node in self._test.brokers:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(2.0, self._test.system.patience.silence_s)):
                    statuses[node.name] = await self._test.system.status(self._test.admin(node.name))
        return statuses

    async def _missed(self, holds: Callable[[Mapping[str, Status]], bool]) -> bool:
        """Wait until the statuses satisfy a condition; return True if they did not in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._test.system.patience.start_s
        while not holds(await self._statuses()):
            if loop.time() >= deadline:
                return True
            await asyncio.sleep(POLL_S)
        return False


def _serves(node: str, statuses: Mapping[str, Status]) -> bool:
    return node in statuses and statuses[node].serves


async def _done(work: Awaitable[None]) -> StepResult:
    await work
    return StepResult("", "", right=True)
