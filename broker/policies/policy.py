"""What a policy is to the daemon and to the admin port.

A life of a broker, and what it says of itself meanwhile.

Why a protocol: the daemon knows nothing of roles, the policies nothing of signals and command
lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from broker.core.engine import Engine

if TYPE_CHECKING:
    from broker.cluster.membership import Membership


class RequestRefusedError(Exception):
    """What an administrator asked for is not done; the text says why."""


class Takeover(NamedTuple):
    """A takeover of a node's data that is complete.

    ``life`` counts the lives and the takeovers of that node: every one has a number larger than all
    before.
    """

    node_id: str
    life: int


class Succession(NamedTuple):
    """A live's number for its node's data, and what it has taken over since it became live.

    A takeover fences all lives with lower numbers.
    """

    life: int | None = None
    takeovers: tuple[Takeover, ...] = ()


@runtime_checkable
class Succeeding(Protocol):
    """A policy whose brokers take over from each other, and can tell which of two came later."""

    @property
    def succession(self) -> Succession:
        """At this moment; without a number while nothing is served."""
        ...


@runtime_checkable
class Steered(Protocol):
    """A policy with commands of its own on the admin port."""

    @property
    def commands(self) -> Mapping[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]]:
        """By name: takes the request, gives the answer's fields. Raises RequestRefusedError."""
        ...


class Policy(Protocol):
    """One broker process from start to end.

    ``role`` is one of "starting", "live", "backup", "voting", "verifying", "synchronizing",
    "stopping", "stopped"; ``epoch`` grows with each change of it, so that two equal epochs prove
    that nothing changed between. ``engine`` exists only while the broker is live.
    """

    @property
    def role(self) -> str:
        """At this moment."""
        ...

    @property
    def epoch(self) -> int:
        """Grows with each change of role."""
        ...

    @property
    def node_id(self) -> str | None:
        """Of the data that is served or copied; None while there is none."""
        ...

    @property
    def engine(self) -> Engine | None:
        """None unless live."""
        ...

    @property
    def replicating(self) -> bool:
        """A live: receipts wait for an up-to-date backup; a backup: it is up to date."""
        ...

    @property
    def membership(self) -> Membership | None:
        """Our place in the cluster; None for a broker without [cluster]."""
        ...

    def request_stop(self, *, failover: bool | None = None) -> None:
        """A clean stop is about to be asked for.

        ``failover`` overrides failover-on-shutdown for this once.
        """
        ...

    async def run(self, stopping: asyncio.Event) -> None:
        """Live until ``stopping`` is set (a clean stop) or the policy itself decides to end.

        Raises StartError.
        """
        ...

    def details(self) -> dict[str, Any]:
        """What else ``brokerctl status`` shows, as JSON."""
        ...
