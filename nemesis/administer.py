"""The commands of an administrator to a conventional cluster, while the load goes on.

Why these are faults: no document says that a cluster must be quiet for them. Queues that are made
and deleted at all brokers pass through the master's change record next to what clients do, a
reload compares every link with a list of brokers, and a compaction forgets changes that a member
may still ask for. None of it may lose a link or a message of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Fault, InfrastructureError, NodePlan, UsageError
from nemesis.admin import AdminKind, ask
from nemesis.kind import CannotBeginError, Impact, Injection, Option, Situation, one_of
from nemesis.target import resolve_target

DESTINATIONS: Final = "destinations"
RELOAD: Final = "reload"
COMPACT: Final = "compact"

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    DESTINATIONS: ("create", "delete"),
    RELOAD: ("reload",),
    COMPACT: ("compact-record",),
}
"""The values of the option ``command``, each with the commands that a broker must know for it."""

ADMINISTRATORS: Final = 2
"""The administrators that make and delete the same queues at the same time, at any brokers."""
QUEUES: Final = 3
"""The queues that a fault makes and deletes; few, so that administrators meet in each."""
PAUSE_S: Final = 0.05
"""The mean pause of an administrator between two commands (s)."""

DONE: Final = "done"


class Administer(AdminKind):
    """Commands of an administrator that disturb nobody."""

    name = "administer"
    description = (
        "an administrator makes and deletes queues, reloads the list of brokers, or compacts the record"
    )
    mild = True
    default_target = "all"
    seen_as = DONE
    options: ClassVar[Mapping[str, Option]] = {
        "command": Option(
            "what is done: queues of its own made and deleted (destinations), reload cls at each broker "
            "(reload), or compact-record at the master broker (compact); by default one that the cluster "
            "knows is drawn when the fault begins",
            one_of(*COMMANDS),
            drawn=tuple(COMMANDS),
        ),
    }

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: brokers that know one of the commands."""
        if _known_commands(nodes):
            return ""
        return "only the brokers of a conventional cluster know these commands: use --policy conventional"

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return the commands that this cluster knows."""
        return {"command": tuple(_known_commands(nodes))}

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault as a NodeKind does, and that brokers know its command."""
        super().validate(fault, nodes)
        command = fault.options.get("command")
        choices = _known_commands(nodes)
        if command is not None and choices and command not in choices:
            raise UsageError(
                f'option "command": no broker of this cluster knows {command}: use {" or ".join(choices)}'
            )

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose the command, and the brokers that get it: those of the target that know it.

        The record is compacted by its master, whatever the target.
        """
        command = fault.options.get("command") or situation.random.choice([*_known_commands(situation.nodes)])
        chosen = resolve_target(fault, self.default_target, situation)
        able = _able(command, situation.nodes)
        nodes = tuple(name for name in able if command == COMPACT or name in chosen)
        if not nodes:
            raise CannotBeginError(f"none of {', '.join(chosen)} knows the commands of {command}")
        return Impact(", ".join(nodes), shape=command, nodes=nodes)

    async def begin(self, injection: Injection) -> str | None:
        """Give each broker its command, or begin to make and delete queues until the fault ends."""
        nodes = injection.impact.nodes
        injection.outcomes = {node: [] for node in nodes}
        command = injection.impact.shape or ""
        if command == DESTINATIONS:
            injection.work = asyncio.create_task(self._administrate(injection))
        else:
            await asyncio.gather(*(self._give(injection, node, COMMANDS[command][0]) for node in nodes))
        return None

    async def end(self, injection: Injection) -> None:
        """End the work with queues. Those that are there remain: they are empty."""
        if injection.work is not None:
            injection.work.cancel()
            await asyncio.wait([injection.work])
            if not injection.work.cancelled():
                injection.work.result()

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """Return what has become of the commands to each broker so far."""
        return {node: _summary(outcomes) for node, outcomes in injection.outcomes.items()}

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether a broker has done a command; others may be down, or without a master."""
        del before
        return any(phrase.startswith(DONE) for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether anything was observed: there is nothing to heal."""
        return bool(observed)

    async def _administrate(self, injection: Injection) -> None:
        """Let administrators make and delete queues until cancelled."""
        queues = [f"{injection.label}-{number}" for number in range(1, QUEUES + 1)]
        async with asyncio.TaskGroup() as group:
            for _ in range(ADMINISTRATORS):
                group.create_task(self._make_and_delete(injection, queues))

    async def _make_and_delete(self, injection: Injection, queues: Sequence[str]) -> None:
        chance = injection.random
        while True:
            node, queue = chance.choice(injection.impact.nodes), chance.choice(queues)
            if chance.random() < 0.5:
                await self._give(injection, node, "create", queue=queue)
            else:
                flags = {"remove-messages": True, "remove-consumers": True}
                await self._give(injection, node, "delete", queue=queue, **flags)
            await asyncio.sleep(chance.uniform(0, 2 * PAUSE_S))

    async def _give(self, injection: Injection, node: str, command: str, **arguments: Any) -> None:
        """Give a broker a command, and note what became of it; a refusal is no error."""
        try:
            await ask(injection.actions, node, command, **arguments)
        except InfrastructureError as error:
            injection.outcomes[node].append(str(error))
        else:
            injection.outcomes[node].append(DONE)


def _known_commands(nodes: Sequence[NodePlan]) -> tuple[str, ...]:
    """Return the values of the option ``command`` that brokers of a cluster know."""
    return tuple(command for command in COMMANDS if _able(command, nodes))


def _able(command: str, nodes: Sequence[NodePlan]) -> list[str]:
    """Return the brokers that know everything that a command needs; only a master has a record."""
    return [
        node.name
        for node in nodes
        if {*COMMANDS[command]} <= {*node.commands} and (node.master or command != COMPACT)
    ]


def _summary(outcomes: Sequence[str]) -> str:
    """Return what has become of the commands to one broker, in a few words."""
    count = outcomes.count(DONE)
    if count:
        return f"{DONE} {count} of {len(outcomes)}"
    return outcomes[-1] if outcomes else "nothing was asked"
