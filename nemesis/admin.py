"""What administrators do to a cluster that serves.

Takeover, quiesce (Sun 4.1, "Preventing or Forcing Takeover of a Broker"). A planned shutdown is
``stop``.

Why these are faults: nobody has failed, so nothing is suspected and nothing waited for. A takeover
by hand meets a broker that is serving at that very moment, and must fence it all the same. Commands
go to admin ports, outside every partition, and their effect is read there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Fault, InfrastructureError, NodePlan, UsageError
from nemesis.kind import PAIR, CannotBeginError, FaultActions, Impact, Injection, Option, Situation, some_text
from nemesis.near import near
from nemesis.node import NodeKind
from nemesis.target import resolve_target

COMMAND_PATIENCE_S: Final = 5.0
TAKEOVER_PATIENCE_S: Final = 15.0
"""A taker waits for ``takeover-wait``, reads what it has got, and may stand still itself
meanwhile.
"""

OPEN_PATIENCE_S: Final = 15.0
"""How long a broker may stand still, or its database, before one that was quiesced is called not
healed.
"""
POLL_S: Final = 0.2

SILENT: Final = "no answer"


class AdminKind(NodeKind):
    """A command to brokers that share a database."""

    default_target = "one"
    primitives: ClassVar[tuple[str, ...]] = ()

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Brokers that know the command."""
        if any(self.name in node.commands for node in nodes):
            return ""
        return "only brokers of a high-availability cluster know this command: use --policy ha-database"

    async def ask(
        self,
        actions: FaultActions,
        node: str,
        command: str,
        patience_s: float = COMMAND_PATIENCE_S,
        **arguments: Any,
    ) -> Mapping[str, Any]:
        """The answer.

        Raises InfrastructureError with the node's name when it refuses or does not answer in time.
        """
        try:
            async with asyncio.timeout(patience_s):
                return await actions.administer(node, command, arguments)
        except TimeoutError:
            raise InfrastructureError(f"{node} has not answered {command} within {patience_s:g} s") from None
        except OSError as error:
            raise InfrastructureError(f"{node} did not do {command}: {error}") from None

    async def member(self, actions: FaultActions, asked: str, node: str) -> Mapping[str, Any] | None:
        """The row of a node in the store, as another one or itself reads it.

        None where there is none or nobody answers.
        """
        try:
            rows = (await self.ask(actions, asked, "members"))["members"]
        except InfrastructureError:
            return None
        return next((row for row in rows if row["broker-id"] == node), None)


class AdminTakeover(AdminKind):
    """One broker takes over from others by hand, however alive they are.

    They find themselves replaced and, those that run, join again by themselves, empty.
    """

    name = "takeover"
    description = "a broker is taken over by another on command, whether it serves, stands still or is down"
    mild = True
    seen_as = "taken over by"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "taker": Option("the broker that takes over; by default any other that serves", some_text),
    }

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """As NodeKind's, and the taker."""
        super().validate(fault, nodes)
        taker = fault.options.get("taker")
        names = [node.name for node in nodes]
        if taker is not None and taker not in names:
            raise UsageError(f'unknown taker "{taker}": {near(taker, names)}')

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """The victims, and who takes them over: the target says "a1 by b1"."""
        victims = resolve_target(fault, self.default_target, situation)
        named = fault.options.get("taker")
        others = [name for name in ([named] if named else situation.having("live")) if name not in victims]
        if not others:
            raise CannotBeginError(f"nobody else serves who could take over from {', '.join(victims)}")
        taker = situation.random.choice(others)
        return Impact(f"{', '.join(victims)} by {taker}", nodes=victims, by=taker)

    async def begin(self, injection: Injection) -> str | None:
        """One after the other, without being asked whether it is really meant."""
        for victim in injection.impact.nodes:
            await self.ask(
                injection.actions,
                injection.impact.by,
                "takeover",
                TAKEOVER_PATIENCE_S,
                **{"broker-id": victim, "force": True},
            )
        return None

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """Whom the taker says it has taken over, and what the store says of each now."""
        actions, impact = injection.actions, injection.impact
        taker = impact.by
        seen = {}
        try:
            taken: Sequence[str] = (await self.ask(actions, taker, "status")).get("taken-over", ())
        except InfrastructureError:
            taken = ()
        for victim in impact.nodes:
            row = await self.member(actions, taker, victim)
            state = row["state"] if row else SILENT
            seen[victim] = f"taken over by {taker}, now {state}" if victim in taken else state
        return seen

    def healed(self, observed: Mapping[str, str]) -> bool:
        """No takeover is half-way."""
        return bool(observed) and not any("TAKEOVER_STARTED" in phrase for phrase in observed.values())


class Quiesce(AdminKind):
    """A broker that is to be shut down later: it takes in nobody and serves whom it has (HA7)."""

    name = "quiesce"
    description = "brokers take in no new clients and serve the old ones, until the fault ends"
    mild = True
    seen_as: ClassVar[tuple[str, ...]] = ("QUIESCING", "QUIESCE_COMPLETE")

    async def begin(self, injection: Injection) -> str | None:
        """Ask all of them."""
        for node in injection.impact.nodes:
            await self.ask(injection.actions, node, "quiesce")
        return None

    async def end(self, injection: Injection) -> None:
        """Let them take in clients again.

        One that is gone does so anyway when it is back, and one that does not answer is asked until
        it does.
        """
        async with asyncio.TaskGroup() as group:
            for node in injection.impact.nodes:
                group.create_task(self._open(node, injection.actions))

    async def _open(self, node: str, actions: FaultActions) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OPEN_PATIENCE_S
        while await actions.environment.running(node):
            row = await self.member(actions, node, node)
            if row is not None and row["state"] not in self.seen_as:
                return
            try:
                await self.ask(actions, node, "unquiesce")
            except InfrastructureError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(POLL_S)

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """What the store says of each, as itself reads it."""
        actions = injection.actions
        rows = {node: await self.member(actions, node, node) for node in injection.impact.nodes}
        return {node: row["state"] if row else SILENT for node, row in rows.items()}
