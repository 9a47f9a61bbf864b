"""What a nemesis may touch."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from harness.interface.environment import Environment
from harness.interface.plan import NodePlan, TestSpec
from harness.interface.recorder import Recorder


class Events(Protocol):
    """What brokers say to have happened since the load began, as they say it."""

    async def wait(self, event: str) -> str:
        """Wait until any broker has said so; the node of the first that did."""
        ...

    def parts(self) -> Mapping[str, str]:
        """Who plays a part now, by what was said last: "taker" -> "a2"."""
        ...


class NemesisContext(msgspec.Struct, kw_only=True):
    """What a nemesis may touch."""

    spec: TestSpec
    recorder: Recorder
    environment: Environment
    random: random.Random
    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    roles: Callable[[], Mapping[str, str]]
    """Latest observed role of each node, from the monitor outside every partition."""
    stop_cleanly: Callable[[str, bool | None], Awaitable[None]]
    """Asks a node's broker to stop; None leaves it to its own property whether another takes over.

    Raises OSError.
    """
    administer: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    """A broker's answer to any other command of an administrator.

    Raises OSError, and InfrastructureError where the system's brokers take none.
    """
    in_force: dict[str, str] = msgspec.field(default_factory=dict)
    """lease or fault label -> description, for the live display."""
    events: Events | None = None
    """Only where a fault of the schedule asks for them."""
    missed: list[str] = msgspec.field(default_factory=list)
    """Faults whose event never came, in words.

    Without them the run does not show what it was made for.
    """
