"""The things that a nemesis may use, and the events that it may wait for."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from harness.interface.environment import Environment
from harness.interface.plan import NodePlan
from harness.interface.recorder import Recorder
from harness.interface.spec import TestSpec


class Events(Protocol):
    """The events that brokers report in their logs since the load began."""

    async def wait(self, event: str) -> str:
        """Wait until any broker has reported the event; return the node of the first that did."""
        ...

    def parts(self) -> Mapping[str, str]:
        """Return which node plays each part now, by what was reported last: "taker" -> "a2"."""
        ...


class NemesisContext(msgspec.Struct, kw_only=True):
    """Everything that a nemesis may use."""

    spec: TestSpec
    recorder: Recorder
    environment: Environment
    random: random.Random
    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    roles: Callable[[], Mapping[str, str]]
    """The latest observed role of each node, from the monitor outside every partition."""
    stop_cleanly: Callable[[str, bool | None], Awaitable[None]]
    """Asks a node's broker to stop; the second argument says whether another shall take over.

    None leaves that to the broker's own property. Raises OSError.
    """
    administer: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    """Gives a broker any other command of an administrator, and returns its answer.

    Raises OSError, and InfrastructureError if the system's brokers take no commands.
    """
    restore_record: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    """Restores a backup of the change record in the data of a node whose broker does not run.

    The backup is a broker's answer to "backup-record". Raises UsageError while the broker runs, and
    InfrastructureError if the system's brokers keep no such record.
    """
    in_force: dict[str, str] = msgspec.field(default_factory=dict)
    """The description of each fault in force, by lease or fault label, for the live display."""
    events: Events | None = None
    """The events, if a fault of the schedule waits for some; else None."""
    missed: list[str] = msgspec.field(default_factory=list)
    """The faults whose event never came, in words.

    Without these faults the run does not show what it was made for.
    """
    departed: set[str] = msgspec.field(default_factory=set)
    """The nodes that have left for good: nothing starts them while there is load."""
