"""The parts of a machine that faults can break: links, processes, disks, clocks, stores, databases.

This module imports only the standard library: agents use it, too, and they run where nothing else
may be installed.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from harness.interface import Link


@dataclass(frozen=True, slots=True, eq=False)
class PartFault:
    """A fault of a single part.

    ``wanted`` is what the fault asks for, in the form that the part made of the options; before the
    part has seen the fault, it is the options themselves. Two faults that ask for the same are not
    equal.
    """

    part: Part
    primitive: str
    links: Sequence[Link] = ()
    nodes: Sequence[str] = ()
    wanted: Any = None

    def __str__(self) -> str:
        """Return the text that stands for this fault in a log."""
        ends = [f"{link.source}->{link.target}" for link in self.links]
        return " ".join([self.primitive, ", ".join([*ends, *self.nodes]) or str(self.wanted)])


class Part(abc.ABC):
    """A kind of thing that can break, for all nodes that have one.

    A part has no switches: whenever a fault begins or ends, a `FaultBoard` tells the part all its
    faults that are in force.
    """

    name: ClassVar[str] = ""
    """The part's name in a probe: "NODE/NAME" is this part of a node, "NODE" its process."""

    primitives: ClassVar[Sequence[str]]
    """The names of the faults that this part can have."""

    momentary: ClassVar[Sequence[str]] = ()
    """The primitives that happen at once and leave nothing to heal."""

    of_links: ClassVar[bool] = False
    """True if the faults of this part strike links, False if they strike nodes."""

    def wanted(self, asked: PartFault) -> Any:
        """Check the options of a fault and return what it asks for, as the part needs it.

        Raises ValueError or UsageError, in one line.
        """
        if asked.wanted:
            raise ValueError(f"{asked.primitive}: takes no options, not {', '.join(asked.wanted)}")

    async def strike(self, fault: PartFault) -> None:
        """Carry out a momentary fault."""
        raise NotImplementedError(f"{fault.primitive} does not happen at once")

    @abc.abstractmethod
    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None] | None:
        """Bring the component into the state that all active faults imply.

        ``in_force`` are all faults of this part, oldest first; ``changed`` is the one that began or
        ended, so what it does not concern may be left alone. What takes time is returned, and is
        awaited in the order of the calls or at the same time.
        """

    async def look(self, node: str) -> str:
        """Return what state a node's part is in now."""
        raise NotImplementedError(f"nobody looks at {self.name or 'the process'} of {node}")

    async def close(self) -> None:  # noqa: B027 - most parts have nothing to end
        """End the part, and leave nothing of it behind."""
