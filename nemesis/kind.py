"""Kinds of faults: the data to list and validate a kind by, and the steps of a fault's life.

Why one class for all: the conductor treats every fault alike (plan, begin, look, end, look again),
so a new kind is one new class and one line in the registry. Planning has no side effects and draws
all its random choices from the fault's own generator; only ``begin`` and ``end`` change the
cluster.
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
    """An option of a fault: its meaning, and the values that it takes.

    ``check`` returns "" for a value that is right, else what would be right.

    ``default`` is the value that the environment gets where a fault does not have the option; with
    None it gets no value. ``drawn`` are the values that a search draws from; without any, a search
    never uses the option.
    """

    meaning: str
    check: Callable[[Any], str]
    default: float | str | None = None
    drawn: tuple[Any, ...] = ()


def number(least: float, *, above: bool = False) -> Callable[[Any], str]:
    """Return a check for finite numbers from ``least`` on, or ``above`` it."""

    def check(value: Any) -> str:
        sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if sound and (value > least or (value == least and not above)):
            return ""
        return f"a number {'above' if above else 'of at least'} {least:g}"

    return check


def probability(value: Any) -> str:
    """Check that a value is a probability above 0."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
    return "" if sound else "a number above 0 and at most 1"


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a check for one of some words."""
    return lambda value: "" if value in words else f"one of {', '.join(words)}"


def truth(value: Any) -> str:
    """Check that a value is true or false."""
    return "" if isinstance(value, bool) else "true or false"


def some_text(value: Any) -> str:
    """Check that a value is a text that is not empty."""
    return "" if isinstance(value, str) and value else "a name"


def some_names(value: Any) -> str:
    """Check that a value is a list of different names."""
    is_list = isinstance(value, list | tuple) and 0 < len(value) == len(set(map(str, value)))
    return "" if is_list and not any(map(some_text, value)) else "a list of names"


def two_names(value: Any) -> str:
    """Check that a value is a list of two different names."""
    is_list = isinstance(value, list | tuple) and len(value) == 2 and value[0] != value[1]
    return "" if is_list and not any(map(some_text, value)) else "two different names"


PAIR = Option("the live-backup pair to take it from; any by default", some_text)


@dataclass(frozen=True, slots=True)
class Situation:
    """The cluster at the moment when a fault begins, for planning.

    ``roles`` has the role in which each node was last seen, ``parts`` the node that plays each of
    ``nemesis.target.PARTS``.
    """

    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    roles: Mapping[str, str]
    random: random.Random
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes, in the order of the plan."""
        return tuple(node.name for node in self.nodes)

    def having(self, role: str, pair: str | None = None) -> list[str]:
        """Return the nodes that were last seen in a role, of one pair or of all."""
        return [
            node.name
            for node in self.nodes
            if self.roles.get(node.name) == role and pair in (None, node.pair)
        ]


@dataclass(frozen=True, slots=True)
class Impact:
    """The links or nodes that a fault will touch; ``target`` describes them in words.

    ``part`` is the part of the nodes that probes look at: "" for their processes, "disk", "clock".
    ``by`` is the broker that carries the fault out, where a broker does, or whose data it uses.
    """

    target: str | None
    shape: str | None = None
    links: tuple[Link, ...] = ()
    nodes: tuple[str, ...] = ()
    part: str = ""
    by: str = ""

    @property
    def probed(self) -> tuple[str, ...]:
        """The nodes, or their parts, in the form that ``Environment.probe`` takes."""
        return tuple(f"{node}/{self.part}" for node in self.nodes) if self.part else self.nodes


class CannotBeginError(Exception):
    """The fault has nothing to hit now, because no broker is live, for example.

    The fault is recorded as without effect, and the test goes on.
    """


@dataclass(slots=True)
class FaultActions:
    """The operations that a fault may perform on the cluster.

    ``down`` has, for every node that faults keep from running, the labels of those faults.
    """

    environment: Environment
    stop_cleanly: Callable[[str, bool | None], Awaitable[None]]
    administer: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    restore_record: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    down: dict[str, set[str]] = field(default_factory=dict)
    _starting: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def states(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the state of each node in its environment: "running", "paused" or "gone"."""
        return dict((await self.environment.probe(nodes=nodes)).observed)

    def keep_down(self, label: str, nodes: Sequence[str]) -> None:
        """Keep the nodes from being started again before this fault ends."""
        for node in nodes:
            self.down.setdefault(node, set()).add(label)

    async def restart(self, label: str, nodes: Sequence[str]) -> None:
        """Start the nodes that this fault kept down and no other fault keeps down."""
        for node in nodes:
            self.down.get(node, set()).discard(label)
        for node in nodes:
            async with self._starting.setdefault(node, asyncio.Lock()):
                if not self.down.get(node) and not await self.environment.running(node):
                    await self.environment.start(node)


@dataclass(slots=True)
class Injection:
    """A fault while it is carried out; ``label`` is its name among those of its test.

    ``random`` is the fault's own generator. ``work`` goes on while the fault lasts, if its kind
    began any, and ``outcomes`` has what became of each command of that work, by node.
    """

    label: str
    fault: Fault
    impact: Impact
    actions: FaultActions
    random: random.Random = field(default_factory=lambda: random.Random(0))
    lease: str | None = None
    work: asyncio.Task[None] | None = None
    outcomes: dict[str, list[str]] = field(default_factory=dict)


class Kind(ABC):
    """A kind of fault; unless a subclass does otherwise, a lease on links or nodes.

    Instances keep no state: one instance serves all faults of all tests.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    primitives: ClassVar[tuple[str, ...]]
    """The operations that the environment must support."""
    targets: ClassVar[bool] = False
    default_target: ClassVar[str | None] = None
    shapes: ClassVar[tuple[str, ...]] = ()
    default_shapes: ClassVar[tuple[str, ...]] = ()
    seen_as: ClassVar[str | tuple[str, ...]] = ()
    """The possible beginnings of a probe's phrase about a place that the fault has hit."""
    options: ClassVar[Mapping[str, Option]] = {}

    stops: ClassVar[bool] = False
    """True if the fault takes a broker down, or keeps it from starting.

    A broker that stops under a fault of another kind has ended itself.
    """
    ends: ClassVar[bool] = False
    """True if a broker must start again after the fault, taken down or ended by itself.

    Other kinds silence or disturb brokers.
    """
    for_good: ClassVar[bool] = False
    """True if nothing heals the fault: its nodes have left, and no heal row is written."""
    undoes: ClassVar[bool] = False
    """True if the fault may undo changes of the cluster that brokers have confirmed."""
    slows: ClassVar[bool] = False
    """True if the fault slows brokers down, so that they need longer to recover from others."""
    lasts: ClassVar[bool] = False
    """True if the fault is a condition rather than an event, as a slow disk or a fast clock is.

    A search sometimes lets it last to the end.
    """
    mild: ClassVar[bool] = False
    """True if every promise holds under this fault together with one of any other kind."""
    unpromised: ClassVar[str] = ""
    """The reason why no document promises that brokers survive the fault; "" if one does.

    A bounded search uses such a kind only if it is named.
    """
    wants_quorum: ClassVar[str] = ""
    """The reason why brokers with a backup survive the fault only with enough pairs for a vote."""

    def unpromised_in(self, nodes: Sequence[NodePlan]) -> str:
        """Return the reason why no document promises that this cluster survives; "" if one does."""
        del nodes
        return self.unpromised

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return the values that a search of this cluster draws from, by option."""
        del nodes
        return {name: option.drawn for name, option in self.options.items() if option.drawn}

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check a fault's target, shape and options.

        Raises UsageError, with what would be right, for one that this kind does not know.
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
        """Return what this kind would break and the cluster lacks, and the remedy.

        "" if there is something to break.
        """
        del nodes
        return ""

    @abstractmethod
    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Resolve the fault to links or nodes.

        Raises CannotBeginError if there is nothing that the fault could touch now.
        """

    def given(self, fault: Fault) -> Mapping[str, Any]:
        """Return the options that the environment gets with the links or nodes."""
        said = {name: value for name, value in fault.options.items() if name != "pair"}
        unsaid = {name: option.default for name, option in self.options.items() if option.default is not None}
        return {**unsaid, **said}

    async def begin(self, injection: Injection) -> str | None:
        """Inject the fault, and return its lease, which must be renewed; None if it has none."""
        impact = injection.impact
        return await injection.actions.environment.inject(
            self.primitives[0], links=impact.links, nodes=impact.nodes, options=self.given(injection.fault)
        )

    async def end(self, injection: Injection) -> None:
        """Heal the fault; do no harm if it has healed by itself."""
        if injection.lease is not None:
            await injection.actions.environment.heal(injection.lease)

    async def look(self, injection: Injection) -> Mapping[str, str]:
        """Probe what was hit once, for ``bit`` and ``healed``.

        The answers are those of the environment, unless a kind looks elsewhere.
        """
        impact = injection.impact
        return (await injection.actions.environment.probe(impact.links, impact.probed)).observed

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether a probe shows the effect on everything that was hit.

        ``before`` has the states of the nodes just before the fault.
        """
        del before
        return bool(observed) and all(phrase.startswith(self.seen_as) for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether a probe shows that the fault is over everywhere."""
        return not any(phrase.startswith(self.seen_as) for phrase in observed.values())
