"""A policy: in which role a broker is, and when; and its reign, what it serves while it is live.

Why one base: the daemon and the admin port know nothing of a policy but what is here, and the
policies nothing of signals and command lines.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from broker.cluster.balancing import Balancing
from broker.cluster.membership import Membership
from broker.config import BrokerConfig
from broker.core.engine import Engine
from broker.policies.live import Live
from broker.policies.stop import in_time
from broker.seams import Seams

_log = logging.getLogger(__name__)

Command = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Takes a request's arguments, gives the answer's fields. Raises RequestRefusedError."""


class RequestRefusedError(Exception):
    """What an administrator asked for is not done; the text says why."""


class NodeTakeover(NamedTuple):
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
    takeovers: tuple[NodeTakeover, ...] = ()


class BrokerPolicy(abc.ABC):
    """One broker process from start to end.

    ``role`` is one of "starting", "live", "backup", "voting", "verifying", "synchronizing",
    "stopping", "stopped"; ``epoch`` grows with each change of it, so that two equal epochs prove
    that nothing changed between. It begins with the clock, so that two lives of one broker never
    show the same number. ``membership`` is our place in the cluster, None without [cluster];
    ``reign`` is there while something is served.
    """

    membership: Membership | None
    commands: Mapping[str, Command] = {}
    """What this broker can be asked on the admin port besides."""

    def __init__(self, config: BrokerConfig, seams: Seams, membership: Membership | None = None) -> None:
        self.config = config
        self.seams = seams
        self.epoch = int(seams.wall_clock() * 1000)
        if membership is None and config.cluster is not None:
            membership = Membership(config, config.cluster, seams)
        self.membership = membership
        self.reign: LiveReign | None = None
        self.failover: bool | None = None
        """For the stop that is under way: overrides failover-on-shutdown."""
        self._role = "starting"

    @property
    def role(self) -> str:
        """At this moment: one that may have been replaced while it did not run is not "live"."""
        if self._role == "live" and self.reign is not None:
            self.reign.look()
        return self._role

    @property
    def node_id(self) -> str | None:
        """Of the data that is served or copied; None while there is none."""
        return None if self.membership is None else self.membership.own.node_id

    @property
    def engine(self) -> Engine | None:
        """None unless live."""
        reign = self.reign
        return reign.live.engine if reign is not None and reign.live is not None else None

    @property
    def replicating(self) -> bool:
        """A live: receipts wait for an up-to-date backup; a backup: it lacks nothing to be live."""
        return False

    @property
    def succession(self) -> Succession:
        """At this moment; without a number while nothing is served, or nobody ever takes over."""
        return Succession() if self.reign is None else self.reign.succession

    def request_stop(self, *, failover: bool | None = None) -> None:
        """A clean stop is about to be asked for; ``failover`` overrides failover-on-shutdown."""
        if failover is not None:
            self.failover = failover
            if self.reign is not None:
                self.reign.failover_on_shutdown = failover

    @abc.abstractmethod
    async def run(self, stopping: asyncio.Event) -> None:
        """Live until ``stopping`` is set (a clean stop) or it ends by itself. Raises StartError."""

    @abc.abstractmethod
    def details(self) -> dict[str, Any]:
        """What else ``brokerctl status`` shows, as JSON; nothing secret."""

    def become(self, role: str, **said: Any) -> None:
        """Be in a role from now on; the cluster is told, with whatever else is ``said``."""
        if role != self._role:
            self._role = role
            self.epoch += 1
            if self.membership is not None:
                self.membership.announce(role=role, **said)


class LiveReign(abc.ABC):
    """What a broker serves, from the moment at which it may to the end of that.

    ``live`` is there once something is served; ``store`` names what keeps its messages, for logs.
    """

    store: str

    def __init__(self, policy: BrokerPolicy, *, failover_on_shutdown: bool) -> None:
        assert policy.membership is not None, "nobody takes over from a broker without a cluster"
        self.live: Live | None = None
        self.membership = policy.membership
        self.failover_on_shutdown = failover_on_shutdown if policy.failover is None else policy.failover
        self._config = policy.config
        self._seams = policy.seams
        self._become = policy.become
        self._balancing: Balancing | None = None
        self._serving = False
        self._ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    @abc.abstractmethod
    def succession(self) -> Succession:
        """Under which number it serves; without one while nothing is served."""

    @abc.abstractmethod
    def look(self) -> None:
        """Look at the clock: may it still say "live"? The role changes where it may not."""

    def _crashed(self, task: asyncio.Task[Any]) -> None:
        """An error of ours ends the broker, which would go on undecided or without its lease."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if self.live is not None:
                self.live.abandon()
            if not self._ended.done():
                self._ended.set_exception(error)

    def _detach(self) -> None:
        if self._balancing is not None:
            self._balancing.detach()

    async def _quiesce(self, closing: Awaitable[object]) -> None:
        """Begin nothing more and answer what is under way, which ``closing`` does."""
        self._serving = False
        self._become("stopping")
        self._detach()
        await in_time(closing, self.store)
