"""Commands of administrators to a cluster that serves: takeover, quiesce.

They are those of Sun 4.1, "Preventing or Forcing Takeover of a Broker". A planned shutdown is
``stop``.

Why these are faults: no broker has failed, so none is suspected and no time-out runs. A takeover by
hand meets a broker that is serving at that very moment, and must fence it all the same. Commands go
to admin ports, outside every partition, and their effect is read there, too.
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
"""The seconds that a takeover may take.

The taker waits for ``takeover-wait``, reads the store that it has got, and may itself stand still
meanwhile.
"""

OPEN_PATIENCE_S: Final = 15.0
"""The seconds after which a quiesced broker that does not take clients again is not healed.

The broker, or its database, may stand still until then.
"""
POLL_S: Final = 0.2

SILENT: Final = "no answer"


async def ask(
    actions: FaultActions,
    node: str,
    command: str,
    patience_s: float = COMMAND_PATIENCE_S,
    **arguments: Any,
) -> Mapping[str, Any]:
    """Send a command to a node's admin port, and return the answer.

    Raises InfrastructureError, with the node's name, when the node refuses or does not answer in
    time.
    """
    try:
        async with asyncio.timeout(patience_s):
            return await actions.administer(node, command, arguments)
    except TimeoutError:
        raise InfrastructureError(f"{node} has not answered {command} within {patience_s:g} s") from None
    except OSError as error:
        raise InfrastructureError(f"{node} did not do {command}: {error}") from None


class AdminKind(NodeKind):
    """A kind of fault that is a command to brokers that share a database."""

    default_target = "one"
    primitives: ClassVar[tuple[str, ...]] = ()

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: brokers that know the command."""
        if any(self.name in node.commands for node in nodes):
            return ""
        return "only brokers of a high-availability cluster know this command: use --policy ha-database"

    async def member(self, actions: FaultActions, asked: str, node: str) -> Mapping[str, Any] | None:
        """Return the row of ``node`` in the store, as the node ``asked`` reads it.

        None where there is no such row, or no answer.
        """
        try:
            rows = (await ask(actions, asked, "members"))["members"]
        except InfrastructureError:
            return None
        return next((row for row in rows if row["broker-id"] == node), None)


class AdminTakeover(AdminKind):
    """A takeover by hand: a broker takes over from others, even if they are alive.

    Those of them that run find themselves replaced, and join again by themselves, empty.
    """

    name = "takeover"
    description = "one broker takes over another on command, whether the other serves, is paused or is down"
    mild = True
    seen_as = "taken over by"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "taker": Option("the broker that takes over; by default any other that serves", some_text),
    }

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault as a NodeKind does, and that its taker is a node."""
        super().validate(fault, nodes)
        taker = fault.options.get("taker")
        names = [node.name for node in nodes]
        if taker is not None and taker not in names:
            raise UsageError(f'unknown taker "{taker}": {near(taker, names)}')

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose the victims and the broker that takes them over: the target says "a1 by b1"."""
        victims = resolve_target(fault, self.default_target, situation)
        named = fault.options.get("taker")
        others = [name for name in ([named] if named else situation.having("live")) if name not in victims]
        if not others:
            raise CannotBeginError(f"no other broker serves that could take over from {', '.join(victims)}")
        taker = situation.random.choice(others)
        return Impact(f"{', '.join(victims)} by {taker}", nodes=victims, by=taker)

    async def begin(self, injection: Injection) -> str | None:
        """Command the takeovers one after the other, by force: victims may be alive."""
        for victim in injection.impact.nodes:
            await ask(
                injection.actions,
                injection.impact.by,
                "takeover",
                TAKEOVER_PATIENCE_S,
                **{"broker-id": victim, "force": True},
            )
        return None

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """Return the state of each victim in the store, and whether the taker has taken it over."""
        actions, impact = injection.actions, injection.impact
        taker = impact.by
        seen = {}
        try:
            taken: Sequence[str] = (await ask(actions, taker, "status")).get("taken-over", ())
        except InfrastructureError:
            taken = ()
        for victim in impact.nodes:
            row = await self.member(actions, taker, victim)
            state = row["state"] if row else SILENT
            seen[victim] = f"taken over by {taker}, now {state}" if victim in taken else state
        return seen

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether no takeover is half-way any more."""
        return bool(observed) and not any("TAKEOVER_STARTED" in phrase for phrase in observed.values())


class Quiesce(AdminKind):
    """A quiesced broker, which is to be shut down later (HA7).

    It goes on to serve its clients, and takes in no new ones.
    """

    name = "quiesce"
    description = "brokers accept no new clients, but serve their present ones, until the fault ends"
    mild = True
    seen_as: ClassVar[tuple[str, ...]] = ("QUIESCING", "QUIESCE_COMPLETE")

    async def begin(self, injection: Injection) -> str | None:
        """Command all nodes of the fault to quiesce."""
        for node in injection.impact.nodes:
            await ask(injection.actions, node, "quiesce")
        return None

    async def end(self, injection: Injection) -> None:
        """Command all nodes of the fault to take in clients again.

        A node that is gone does so anyway when it is back. A node that does not answer is asked
        until it does.
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
                await ask(actions, node, "unquiesce")
            except InfrastructureError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(POLL_S)

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """Return the state of each node in the store, as the node itself reads it."""
        actions = injection.actions
        rows = {node: await self.member(actions, node, node) for node in injection.impact.nodes}
        return {node: row["state"] if row else SILENT for node, row in rows.items()}
