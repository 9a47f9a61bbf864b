"""The three faults of a database, as states of its server.

The server stands still, it is down, or clients of its relay lose their connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from environments.part import Part, PartFault
from environments.postgresql import question
from environments.postgresql.relay import Severance

STALL: Final = "database-stall"
RESTART: Final = "database-restart"
DISCONNECT: Final = "database-disconnect"
PRIMITIVES: Final = (STALL, RESTART, DISCONNECT)

CHANCE_DEFAULT: Final = 0.5
COMMITTED_DEFAULT: Final = 0.5


@dataclass(frozen=True, slots=True)
class ServerFault:
    """A fault, or several of them combined.

    ``severed`` is by client: a node's name or address, as the relay tells them apart.
    """

    stall: bool = False
    down: bool = False
    severed: Mapping[str, Severance] = field(default_factory=dict)

    @classmethod
    def of(cls, primitive: str, clients: Sequence[str], options: Mapping[str, Any]) -> ServerFault:
        """Return a primitive as a fault. Raises ValueError, which says what would be right."""
        if primitive != DISCONNECT:
            if options:
                raise ValueError(f"{primitive}: takes no options, not {', '.join(options)}")
            return cls(stall=primitive == STALL, down=primitive == RESTART)
        severance = severance_of(options)
        return cls(severed=dict.fromkeys(clients, severance))

    @classmethod
    def together(cls, faults: Iterable[ServerFault]) -> ServerFault:
        """Return all faults in force as one; of two on one client the later one counts."""
        stall = down = False
        severed: dict[str, Severance] = {}
        for fault in faults:
            stall |= fault.stall
            down |= fault.down
            severed.update(fault.severed)
        return cls(stall, down, severed)


class DatabasePart(Part):
    """A database. A fault asks for a ServerFault."""

    name = "database"
    primitives = PRIMITIVES

    def wanted(self, asked: PartFault) -> Any:
        """Return the ServerFault that a fault asks for. Raises ValueError."""
        return ServerFault.of(asked.primitive, asked.nodes, asked.wanted)


def severance_of(options: Mapping[str, Any]) -> Severance:
    """Check the options of "database-disconnect" and return its Severance. Raises ValueError."""
    unknown = [name for name in options if name not in ("chance", "committed")]
    if unknown:
        raise ValueError(f"{DISCONNECT}: no option {unknown[0]!r}; there are chance and committed")
    chance = options.get("chance", CHANCE_DEFAULT)
    committed = options.get("committed", COMMITTED_DEFAULT)
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (chance, committed))
    if not numbers or not 0 < chance <= 1 or not 0 <= committed <= 1:
        raise ValueError(f"{DISCONNECT}: chance must be above 0 and at most 1, committed from 0 to 1")
    return Severance(float(chance), float(committed))


def phrase(answer: str, *, paused: bool, severed: bool) -> str:
    """Return the word for what a probe saw.

    ``answer`` is how the server answered. ``paused`` says that all of it is stopped, and
    ``severed`` that the client loses connections.
    """
    if answer == question.SILENT:
        return "stalled" if paused else "silent"
    if answer == question.REFUSED:
        return "down"
    if answer == question.STARTING:
        return "down, starting"
    return "severed" if severed else "serving"
