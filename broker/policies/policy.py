"""The base of policies: a broker's role over time, and its reign, in which it serves as the live.

Why one base: the daemon and the admin port know nothing of a policy but what is here, and the
policies know nothing of signals and command lines.
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
"""Takes a request's arguments and returns the answer's fields. Raises RequestRefusedError."""


class RequestRefusedError(Exception):
    """The request of an administrator is refused; the text says why."""


class NodeTakeover(NamedTuple):
    """A takeover of a node's data that is complete.

    ``life`` counts the lives and the takeovers of that node: every one has a number larger than all
    before.
    """

    node_id: str
    life: int


class Succession(NamedTuple):
    """A live's number for its node's data, and its takeovers since it became live.

    A takeover fences all lives with lower numbers.
    """

    life: int | None = None
    takeovers: tuple[NodeTakeover, ...] = ()


class BrokerPolicy(abc.ABC):
    """A broker process from start to end.

    ``role`` is one of "starting", "suspended", "live", "backup", "voting", "verifying",
    "synchronizing", "stopping", "stopped". ``epoch`` grows with each change of it, so that two
    equal epochs prove that nothing changed between. It begins with the clock, so that two lives of
    one broker never show the same number. ``membership`` is our place in the cluster, None without
    [cluster]. ``reign`` exists while data is served.
    """

    membership: Membership | None
    commands: Mapping[str, Command] = {}
    """The policy's own commands on the admin port."""

    def __init__(self, config: BrokerConfig, seams: Seams, membership: Membership | None = None) -> None:
        self.config = config
        self.seams = seams
        self.epoch = int(seams.wall_clock() * 1000)
        if membership is None and config.cluster is not None:
            membership = Membership(config, config.cluster, seams)
        self.membership = membership
        self.reign: LiveReign | None = None
        self.failover: bool | None = None
        """Overrides failover-on-shutdown for the stop that is under way, unless None."""
        self._role = "starting"

    @property
    def role(self) -> str:
        """The role at this moment.

        A broker that may have been replaced while it did not run is not "live".
        """
        if self._role == "live" and self.reign is not None:
            self.reign.look()
        return self._role

    @property
    def node_id(self) -> str | None:
        """The node ID of the data that is served or copied; None if there is none."""
        return None if self.membership is None else self.membership.own.node_id

    @property
    def engine(self) -> Engine | None:
        """The engine of a live; None for any other role."""
        reign = self.reign
        return reign.live.engine if reign is not None and reign.live is not None else None

    @property
    def replicating(self) -> bool:
        """True for a live whose receipts wait for an up-to-date backup, and for such a backup.

        A backup lacks nothing then to become live.
        """
        return False

    @property
    def succession(self) -> Succession:
        """The succession at this moment.

        It has no number while nothing is served, or if there are never takeovers.
        """
        return Succession() if self.reign is None else self.reign.succession

    def request_stop(self, *, failover: bool | None = None) -> None:
        """Prepare for a clean stop; ``failover`` overrides failover-on-shutdown."""
        if failover is not None:
            self.failover = failover
            if self.reign is not None:
                self.reign.failover_on_shutdown = failover

    @abc.abstractmethod
    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping`` is set (a clean stop) or the broker ends. Raises StartError."""

    @abc.abstractmethod
    def details(self) -> dict[str, Any]:
        """Return what else ``brokerctl status`` shows, as JSON; nothing secret."""

    def become(self, role: str, **said: Any) -> None:
        """Take a role, and announce it to the cluster, with whatever else is ``said``."""
        if role != self._role:
            self._role = role
            self.epoch += 1
            if self.membership is not None:
                self.membership.announce(role=role, **said)


class LiveReign(abc.ABC):
    """A broker's service, from the moment at which it may serve to its end.

    ``live`` exists once clients are served. ``store`` names the place of the messages, for logs.
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
        """The number under which it serves; none while nothing is served."""

    @abc.abstractmethod
    def look(self) -> None:
        """Look at the clock, and change the role if the broker may not say "live" any more."""

    def _crashed(self, task: asyncio.Task[Any]) -> None:
        """End the broker after an internal error; it would go on undecided or without its lease."""
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
        """Begin nothing more, and answer what is under way by awaiting ``closing``."""
        self._serving = False
        self._become("stopping")
        self._detach()
        await in_time(closing, self.store)
