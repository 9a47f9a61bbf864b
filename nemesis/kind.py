"""What a kind of fault is: data to list and validate it by, and the four steps of its life.

Why one class for all: the conductor treats every fault alike (plan, begin, look, end, look again),
so a new kind is one new class and one line in the registry. Planning is pure and draws all its
chance from the fault's own generator; only ``begin`` and ``end`` touch anything.
"""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.interface import Environment, Fault, Link, NodePlan, UsageError
from nemesis.near import near


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a fault: what it means, and which values it takes.

    ``check`` returns "" or what would be right.

    ``default`` is what the environment is told where a fault does not say it; without one it is
    told nothing. ``drawn`` is what a search draws from; without any it never gives the option.
    """

    meaning: str
    check: Callable[[Any], str]
    default: float | str | None = None
    drawn: tuple[Any, ...] = ()


def number(least: float, *, above: bool = False) -> Callable[[Any], str]:
    """A check for finite numbers from ``least`` on (or above it)."""

    def check(value: Any) -> str:
        sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if sound and (value > least or (value == least and not above)):
            return ""
        return f"a number {'above' if above else 'of at least'} {least:g}"

    return check


def one_of(*words: str) -> Callable[[Any], str]:
    """A check for one of some words."""
    return lambda value: "" if value in words else f"one of {', '.join(words)}"


def truth(value: Any) -> str:
    """A check for true or false."""
    return "" if isinstance(value, bool) else "true or false"


def some_text(value: Any) -> str:
    """A check for a text with something in it."""
    return "" if isinstance(value, str) and value else "a name"


PAIR = Option("the live-backup pair to take it from; any by default", some_text)


@dataclass(frozen=True, slots=True)
class Situation:
    """The cluster at the moment when a fault begins: what planning may look at."""

    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    roles: Mapping[str, str]
    random: random.Random
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, as planned."""
        return tuple(node.name for node in self.nodes)

    def having(self, role: str, pair: str | None = None) -> list[str]:
        """The nodes last seen in a role, of one pair or of all."""
        return [
            node.name
            for node in self.nodes
            if self.roles.get(node.name) == role and pair in (None, node.pair)
        ]


@dataclass(frozen=True, slots=True)
class Impact:
    """What a fault will touch, resolved to names. ``target`` says in words what it was resolved to.

    ``part`` is what of the nodes is looked at: "" their processes, "disk", "clock". ``by`` is the
    broker that does it, where one does.
    """

    target: str | None
    shape: str | None = None
    links: tuple[Link, ...] = ()
    nodes: tuple[str, ...] = ()
    part: str = ""
    by: str = ""

    @property
    def probed(self) -> tuple[str, ...]:
        """The nodes, or parts of them, as ``Environment.probe`` takes them."""
        return tuple(f"{node}/{self.part}" for node in self.nodes) if self.part else self.nodes


class CannotBeginError(Exception):
    """The fault makes no sense now: no broker is live, say.

    It is recorded as without effect, and the test goes on.
    """


@dataclass(slots=True)
class FaultActions:
    """Operations that a fault may perform on the cluster.

    ``down`` has, for every node that a fault keeps from running, the labels of those faults.
    """

    environment: Environment
    stop_cleanly: Callable[[str, bool | None], Awaitable[None]]
    administer: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    down: dict[str, set[str]] = field(default_factory=dict)
    _starting: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def states(self, nodes: Sequence[str]) -> dict[str, str]:
        """Each node as its environment sees it: "running", "paused" or "gone"."""
        return dict((await self.environment.probe(nodes=nodes)).observed)

    def keep_down(self, label: str, nodes: Sequence[str]) -> None:
        """None of the nodes is started again before this fault ends."""
        for node in nodes:
            self.down.setdefault(node, set()).add(label)

    async def restart(self, label: str, nodes: Sequence[str]) -> None:
        """Start the nodes again that this fault, and no other, keeps down."""
        for node in nodes:
            self.down.get(node, set()).discard(label)
        for node in nodes:
            async with self._starting.setdefault(node, asyncio.Lock()):
                if not self.down.get(node) and not await self.environment.running(node):
                    await self.environment.start(node)


@dataclass(slots=True)
class Injection:
    """A fault while it is carried out; ``label`` is its name among those of its test."""

    label: str
    fault: Fault
    impact: Impact
    actions: FaultActions
    lease: str | None = None


class Kind(ABC):
    """A kind of fault, as long as it says nothing else a lease on links or nodes.

    Its instances keep no state: one serves all faults of all tests.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    primitives: ClassVar[tuple[str, ...]]
    """What the environment must be able to do."""
    targets: ClassVar[bool] = False
    default_target: ClassVar[str | None] = None
    shapes: ClassVar[tuple[str, ...]] = ()
    default_shapes: ClassVar[tuple[str, ...]] = ()
    seen_as: ClassVar[str | tuple[str, ...]] = ()
    """How the phrase of a probe begins, or how any of them may, of what the fault has hit."""
    options: ClassVar[Mapping[str, Option]] = {}

    stops: ClassVar[bool] = False
    """It takes a broker down, or keeps it from starting.

    Who stops under another kind has ended itself.
    """
    ends: ClassVar[bool] = False
    """A broker must start again after it, taken down or ended by itself.

    Other kinds silence or disturb brokers.
    """
    slows: ClassVar[bool] = False
    """It makes what brokers do take longer, so that they need longer to recover from something
    else.
    """
    lasts: ClassVar[bool] = False
    """Rather a condition than an event, as a slow disk or a fast clock.

    A search lets it last to the end now and then.
    """
    mild: ClassVar[bool] = False
    """Every promise covers it beside any other kind."""
    unpromised: ClassVar[str] = ""
    """Why nobody promises that brokers survive it.

    A bounded search takes it only if it is named.
    """
    wants_quorum: ClassVar[str] = ""
    """Why brokers with a backup survive it only where there are pairs enough for a vote."""

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Option -> what a search of this cluster draws from."""
        del nodes
        return {name: option.drawn for name, option in self.options.items() if option.drawn}

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Checks a fault's target, shape and options.

        Raises UsageError, saying what would be right, for one that this kind does not know.
        """
        if fault.shape is not None and fault.shape not in self.shapes:
            if not self.shapes:
                raise UsageError(f'takes no shape, but has "{fault.shape}"')
            raise UsageError(f'unknown shape "{fault.shape}": {near(fault.shape, self.shapes)}')
        if fault.target is not None and not self.targets:
            raise UsageError(f'takes no target, but has "{fault.target}"; it takes a shape')
        for name, value in fault.options.items():
            option = self.options.get(name)
            if option is None:
                if not self.options:
                    raise UsageError(f'takes no options, but has "{name}"')
                raise UsageError(f'unknown option "{name}": {near(name, self.options)}')
            wanted = option.check(value)
            if wanted:
                raise UsageError(f'option "{name}" is {value!r}: it must be {wanted}')
        pair = fault.options.get("pair")
        pairs = {node.pair for node in nodes if node.broker}
        if pair is not None and pair not in pairs:
            raise UsageError(f'unknown pair "{pair}": {near(pair, pairs)}')

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """What this kind would break and the cluster does not have, with what would be right.

        "" if it can break something.
        """
        del nodes
        return ""

    @abstractmethod
    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Resolve the fault to links or nodes.

        Raises CannotBeginError if there is nothing that it could touch now.
        """

    def given(self, fault: Fault) -> Mapping[str, Any]:
        """What the environment is told beside the links or nodes."""
        said = {name: value for name, value in fault.options.items() if name != "pair"}
        unsaid = {name: option.default for name, option in self.options.items() if option.default is not None}
        return {**unsaid, **said}

    async def begin(self, injection: Injection) -> str | None:
        """Break it; the lease to renew, if it is a lease."""
        impact = injection.impact
        return await injection.actions.environment.inject(
            self.primitives[0], links=impact.links, nodes=impact.nodes, options=self.given(injection.fault)
        )

    async def end(self, injection: Injection) -> None:
        """Mend it. Must do no harm when it has healed by itself."""
        if injection.lease is not None:
            await injection.actions.environment.heal(injection.lease)

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """One probe of what was hit, for ``bit`` and ``healed``.

        What the environment sees, unless a kind looks elsewhere.
        """
        impact = injection.impact
        return (await injection.actions.environment.probe(impact.links, impact.probed)).observed

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Whether a probe shows the effect, on all that was hit.

        ``before`` is what the nodes were just before.
        """
        del before
        return bool(observed) and all(phrase.startswith(self.seen_as) for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Whether a probe shows that it is over, everywhere."""
        return not any(phrase.startswith(self.seen_as) for phrase in observed.values())
