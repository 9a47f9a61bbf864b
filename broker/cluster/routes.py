"""The ways to brokers that this broker is not linked with: who is next, and how far they are.

Each live broker tells its neighbours a *link state*: the live brokers that it is linked with, and
its consumers. They pass it on to theirs, so every broker knows the state of every other, and finds
the shortest ways itself (as OSPF does).

Why states and not distances: a broker that learns distances from its neighbours may learn its own
distance again, one hop longer, when a link is cut, and count on (count to infinity). A state says
only what its origin knows itself. A link that ends is told by the brokers at its ends; whatever
only it led to is then without a way, at once and for everybody.

Why a state is passed on whatever its distance: it may come by a longer way first, and a bound
would drop it there. ``max-hops`` bounds the ways instead: who is farther away is not used.

Of the states of one origin the one of the highest version counts, by whatever way it comes, and is
passed on once. A new neighbour is told all states. So a broker whose former life has told a higher
version hears of that, and goes on above it. It is named as a neighbour once it has told its own
state, so that nobody takes an old state for that of its new life.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership

_log = logging.getLogger(__name__)

ANSWERS_MAX: Final = 1000
"""The most states of other brokers of our name above whose versions we go.

A former life of ours tells nothing new, so only another broker that is live can bring more.
"""
STATES_MAX: Final = 1000
"""The number of states beyond which those of brokers without a way to them are forgotten."""

NO_CONSUMERS = m.Consumers({}, whole=True)


class Route(NamedTuple):
    """The way to a live broker that told ``state``: over ``link`` to ``neighbour``, then on."""

    state: m.LinkState
    distance: int
    neighbour: m.Member
    link: ClusterLink


class Routes:
    """The link states of all brokers, and the ways that follow, from ``start`` to ``stop``.

    With a ``max-hops`` of 1 there are none, and nothing is told.

    ``on_change`` is called whenever what another broker told, or a way, has changed.
    """

    def __init__(self, membership: Membership, node_id: str, on_change: Callable[[], None]) -> None:
        self.beyond: Mapping[str, Route] = {}
        """The ways to nodes that we are not linked with, by node ID."""
        self._membership = membership
        self._node_id = node_id
        self._on_change = on_change
        self._states: dict[str, m.LinkState] = {}
        """The latest state of each other broker, by name."""
        self._own: m.LinkState | None = None
        self._heard: dict[str, tuple[str, int]] = {}
        """The life of each broker that has told its own state over a link with us, by name."""
        self._told: list[ClusterLink] = []
        """The links over which a live broker was told all states."""
        self._answers = 0
        """How often we went above the version of a state of our name."""
        self._hops_max = membership.section.max_hops

    @property
    def used(self) -> bool:
        """True if messages may cross more than one link."""
        return self._hops_max > 1

    def start(self) -> None:
        """Begin to tell, and to hear."""
        if self.used:
            self._membership.handlers[m.LinkState] = self._hear
            self.tell(NO_CONSUMERS)

    def stop(self) -> None:
        """Hear nothing more."""
        self._membership.handlers.pop(m.LinkState, None)
        self._own = None

    def next_to(self, node_id: str) -> tuple[m.Member, ClusterLink] | None:
        """Return the next broker on the way to a node, and the link with it; None: no way."""
        neighbour = self._membership.directory.lives().get(node_id)
        if neighbour is None and (route := self.beyond.get(node_id)) is not None:
            neighbour = route.neighbour, route.link
        return neighbour

    def tell(self, consumers: m.Consumers) -> None:
        """Tell all brokers our state: these are all of our consumers."""
        own = self._membership.own
        version = own.incarnation if self._own is None else self._own.version + 1
        self._own = m.LinkState(
            own.name, self._node_id, own.incarnation, version, self._neighbours(), consumers
        )
        self._flood(self._own)

    def review(self) -> None:
        """Take in that links, or the roles of brokers at their other ends, have changed."""
        if self._own is None:
            return
        links = [link for _, link in self._linked().values()]
        for link in links:
            if link not in self._told:
                for state in (self._own, *self._states.values()):
                    link.send(state)
        self._told = links
        self._tell_neighbours()
        self._find()

    # --------------------------------------------------------------------------------------- inside

    def _linked(self) -> dict[str, tuple[m.Member, ClusterLink]]:
        """Return the live brokers that we are linked with, by name."""
        lives = self._membership.directory.lives().values()
        return {member.name: (member, link) for member, link in lives}

    def _neighbours(self) -> tuple[str, ...]:
        linked = self._linked().items()
        return tuple(sorted(name for name, (member, _) in linked if self._heard.get(name) == member.life))

    def _tell_neighbours(self) -> None:
        assert self._own is not None
        if self._own.neighbours != self._neighbours():
            self.tell(self._own.consumers)

    def _hear(self, link: ClusterLink, state: m.LinkState) -> None:
        own, sender = self._own, link.member
        assert own is not None
        assert sender is not None
        if state.origin == own.origin:
            if state.version >= own.version and state != own:  # it is of a former life of ours
                self._go_above(state, own)
            return
        if state.origin == sender.name:
            self._heard[sender.name] = sender.life
        known = self._states.get(state.origin)
        if known is None or _is_newer(state, known):
            self._states.pop(state.origin, None)
            self._states[state.origin] = state
            self._flood(state, besides=sender.name)
            self._forget_oldest()
        self._tell_neighbours()
        self._find()

    def _go_above(self, state: m.LinkState, own: m.LinkState) -> None:
        """Tell our state with a higher version than that of another state of our name."""
        if state.version > m.STATE_VERSION_MAX // 2:
            return  # no life tells as much, and we could not go on above it
        self._answers += 1
        if self._answers > ANSWERS_MAX:
            return
        if self._answers == ANSWERS_MAX:
            _log.warning(
                "cluster: another broker has the name of this one, %s (its node ID is %s): only one of them "
                "gets messages that others pass on; names must be unique in the cluster",
                own.origin,
                state.node_id,
            )
        self._own = msgspec.structs.replace(own, version=state.version)
        self.tell(own.consumers)

    def _forget_oldest(self) -> None:
        """Forget the state that was told first of those without a way, if there are many states.

        When there is a way again, the broker at its other end tells it again.
        """
        if len(self._states) <= STATES_MAX:
            return
        reached = {*self._linked()}
        waiting = [*reached]
        while waiting:
            state = self._states.get(waiting.pop())
            ahead = {*state.neighbours} - reached if state is not None else ()
            reached.update(ahead)
            waiting.extend(ahead)
        name = next((name for name in self._states if name not in reached), None)
        if name is not None:
            del self._states[name]
            self._heard.pop(name, None)

    def _flood(self, state: m.LinkState, besides: str = "") -> None:
        """Pass a state on to all neighbours but the one that it came from.

        If another broker than its origin told it, the origin gets it, too: it may be of a former
        life, of whose version the origin does not know.
        """
        for name, (_, link) in sorted(self._linked().items()):
            if name != besides:
                link.send(state)

    def _find(self) -> None:
        """Find the shortest ways to all brokers within ``max-hops`` that we are not linked with."""
        lives = self._membership.directory.lives()
        linked = self._linked()
        routes: dict[str, Route] = {}
        visited = {*linked, self._membership.own.name}
        queue = deque((name, 1, name) for name in sorted(linked))
        while queue:
            name, distance, first = queue.popleft()
            state = self._states.get(name)
            if state is None:
                continue
            if distance > 1 and state.node_id not in {*lives, *routes, self._node_id}:
                routes[state.node_id] = Route(state, distance, *linked[first])
            if distance < self._hops_max:
                ahead = [other for other in state.neighbours if other not in visited]
                visited.update(ahead)
                queue.extend((other, distance + 1, first) for other in ahead)
        if routes != self.beyond:
            self.beyond = routes
            self._on_change()


def _is_newer(state: m.LinkState, known: m.LinkState) -> bool:
    """Return whether a state counts more than another one of the same origin.

    Two lives of a broker may have told one version. Then it matters only that all choose the same.
    """
    if state.version != known.version or state == known:
        return state.version > known.version
    return m.encode(state) > m.encode(known)
