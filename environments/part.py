"""What a fault can break: links, processes, disks, clocks, stores, a database.

Only the standard library is imported here: parts are also of agents that run where nothing else may
be installed.
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
    """One fault of one part.

    ``wanted`` is what it asks for, in the part's own words (before the part has seen it: its
    options). Two faults that ask for the same are two.
    """

    part: Part
    primitive: str
    links: Sequence[Link] = ()
    nodes: Sequence[str] = ()
    wanted: Any = None

    def __str__(self) -> str:
        """As it is written in a log."""
        ends = [f"{link.source}->{link.target}" for link in self.links]
        return " ".join([self.primitive, ", ".join([*ends, *self.nodes]) or str(self.wanted)])


class Part(abc.ABC):
    """One kind of thing that can break, of as many nodes as have one.

    It has no switches: a `FaultBoard` tells it all faults in force whenever one begins or ends.
    """

    name: ClassVar[str] = ""
    """A node's part is looked at as "NODE/NAME", its process as "NODE"."""

    primitives: ClassVar[Sequence[str]]
    """Its faults."""

    momentary: ClassVar[Sequence[str]] = ()
    """Those of them that happen at once and leave nothing to heal."""

    of_links: ClassVar[bool] = False
    """Whether its faults are of links, not of nodes."""

    def wanted(self, asked: PartFault) -> Any:
        """What a fault asks for, in the part's own words, of options that it came with.

        Raises ValueError or UsageError, in one line.
        """
        if asked.wanted:
            raise ValueError(f"{asked.primitive}: takes no options, not {', '.join(asked.wanted)}")

    async def strike(self, fault: PartFault) -> None:
        """Do what happens at once."""
        raise NotImplementedError(f"{fault.primitive} does not happen at once")

    @abc.abstractmethod
    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None] | None:
        """Bring the component into the state that all active faults imply.

        ``in_force`` are all faults of this part, oldest first; ``changed`` is the one that began or
        ended, so what it does not concern may be left alone. What takes time is returned, and is
        awaited in the order of the calls or at the same time.
        """

    async def look(self, node: str) -> str:
        """How a node's is now."""
        raise NotImplementedError(f"nobody looks at {self.name or 'the process'} of {node}")

    async def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End it, and leave nothing."""
