"""The choice of the broker for a message (``message-load-balancing``, AMQ 17.1.1).

It rests on counts of consumers, and uses bridges. With a ``max-hops`` above 1 brokers that others
pass messages on to take part, however far they are.

ON_DEMAND: round robin over the brokers whose queue has consumers that want the message, by their
selectors, this broker among them; if none has any, the message stays here. STRICT: round robin over
all live brokers, with or without consumers. Brokers have their turns in the order in which they
started. OFF: always here. No broker is chosen for a message with a group: without a grouping
handler two brokers could pick two owners for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from broker.cluster import messages as m
from broker.cluster.arrivals import Arrivals
from broker.cluster.bridge import Bridge
from broker.cluster.interest_news import LinkedInterests
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership
from broker.cluster.redistribution import Demand, Redistribution
from broker.cluster.routes import Routes
from broker.cluster.topology import DESTINATION, encoded
from broker.core.engine import Engine
from broker.core.feed import WatchedValue
from broker.core.filtering import headers_of
from broker.core.message import Message
from broker.core.selector import Selector, SelectorError, compile_selector, ungrouped
from broker.turn_budget import TEST

_log = logging.getLogger(__name__)

SELECTORS_MAX: Final = 32
CHARACTERS_MAX: Final = 8192
"""If the consumers of a queue have more selectors, or longer ones, others take them to want all."""

COALESCE_S = 0.02
"""The time within which changes in the numbers of consumers are sent together."""


class Balancing:
    """The ``Router`` of a live broker, from ``attach`` to ``detach``."""

    def __init__(self, membership: Membership, node_id: str) -> None:
        self.node_id = node_id
        self._membership = membership
        self._engine: Engine | None = None
        self._routes = Routes(membership, node_id, self._rerouted)
        self._distant: dict[str, m.LinkState] = {}
        """The state of each broker that we are not linked with, as ``_remote`` has it."""
        self._remote: dict[str, dict[str, int]] = {}
        """Broker -> queue -> number of consumers, as that broker told us."""
        self._filters: dict[str, dict[str, tuple[Selector, ...]]] = {}
        """Broker -> queue -> the selectors of its consumers there, if all have one."""
        self._candidates: dict[str, list[tuple[str | None, Sequence[Selector]]]] = {}
        """Queue -> the nodes that get its next messages, in turn; None stands for us.

        With the selectors of the consumers there, if all have one.
        """
        self._turn: dict[str, int] = {}
        self._bridges: dict[str, Bridge] = {}
        self._arrivals: Arrivals | None = None
        self._interests: LinkedInterests | None = None
        self._redistribution: Redistribution | None = None
        self._news: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._greeted: list[ClusterLink] = []
        """The links over which a broker that is live was told of all our consumers."""
        self._mode = membership.section.message_load_balancing

    def attach(self, engine: Engine) -> None:
        """Begin, with an engine that serves no clients yet; send what waits for other brokers."""
        self._engine = engine
        membership = self._membership
        membership.handlers[m.Consumers] = self._consumers_told
        self._arrivals = Arrivals(engine, membership.handlers, self._passes_on)
        membership.handlers[m.BlobTaken] = self._blob_taken
        membership.on_change.append(self._changed)
        membership.on_linked.append(self._greet)
        engine.consumer_observers.append(self._observed)
        if self._mode != "OFF":
            self._interests = LinkedInterests(membership, engine, self._ensure_bridge)
        self._redistribution = Redistribution(engine, self.route, self._demand)
        self._routes.start()
        engine.feeds[DESTINATION] = WatchedValue()
        prefix = engine.settings.forwarding_queue("")
        for name in list(engine.queues):
            if name.startswith(prefix):
                self._bridge(name.removeprefix(prefix))
        self._changed()

    def detach(self) -> None:
        """Stop forwarding and accepting messages."""
        if self._engine is None:
            return
        self._engine = None
        membership = self._membership
        membership.handlers.pop(m.Consumers, None)
        membership.handlers.pop(m.BlobTaken, None)
        membership.on_change.remove(self._changed)
        membership.on_linked.remove(self._greet)
        self._routes.stop()
        if self._timer is not None:
            self._timer.cancel()
        for bridge in self._bridges.values():
            bridge.stop()
        self._bridges.clear()
        if self._arrivals is not None:
            self._arrivals.stop()
        if self._interests is not None:
            self._interests.stop()
        if self._redistribution is not None:
            self._redistribution.stop()
        membership.neighbours.broadcast(m.Consumers({}, whole=True))

    def route(self, queue: str, message: Message) -> str | None:
        """Return the node ID for a message, None for this broker; see ``Router``.

        Connections outlive the balancing of a broker that stops by one turn of the loop, and a
        client may send in it. Such a message stays here.
        """
        if self._engine is None:
            return None
        candidates = self._candidates.get(queue)
        if candidates is None:
            candidates = self._candidates[queue] = self._find(queue)
        turn = self._turn.get(queue, 0) if len(candidates) > 1 else 0
        for tried in range(turn, turn + len(candidates)):
            node_id, selectors = candidates[tried % len(candidates)]
            if selectors and not self._matches(message, selectors):
                continue
            if len(candidates) > 1:
                self._turn[queue] = tried + 1
            if node_id is not None:
                self._ensure_bridge(node_id)
            return node_id
        return None

    def forwards_to(self, node_id: str) -> bool:
        """Return whether messages can be kept for a node, and forward them from now on.

        A node need not be reachable now. It is known from a way to it, from one of its brokers that
        belongs to the cluster, or from messages that were forwarded to it before.
        """
        if self._engine is None or self._mode == "OFF":
            return False
        members = self._membership.directory.known.values()
        is_known = (
            node_id in self._bridges
            or self._routes.next_to(node_id) is not None
            or any(member.node_id == node_id for member in members)
        )
        if is_known:
            self._ensure_bridge(node_id)
        return is_known

    # --------------------------------------------------------------------------------------- inside

    def _find(self, queue: str) -> list[tuple[str | None, Sequence[Selector]]]:
        assert self._engine is not None
        if self._mode == "OFF":
            return []
        strict = self._mode == "STRICT"
        candidates: list[tuple[str | None, Sequence[Selector]]] = []
        for node_id, name in self._in_start_order():
            if node_id is None:
                if strict or self._engine.consumers(queue):
                    candidates.append((None, () if strict else _within_bounds(self._engine.selectors(queue))))
            elif strict or self._remote.get(name, {}).get(queue, 0):
                candidates.append((node_id, () if strict else self._filters.get(name, {}).get(queue, ())))
        return candidates

    def _in_start_order(self) -> list[tuple[str | None, str]]:
        """Return node IDs and names of the live brokers that messages can reach, and None for us.

        Of brokers that started at one moment, we are the first.
        """
        own = self._membership.own
        states = (route.state for route in self._routes.beyond.values())
        starts = {state.node_id: (state.start, state.origin) for state in states}
        lives = self._membership.directory.lives()
        starts |= {node_id: (member.incarnation, member.name) for node_id, (member, _) in lives.items()}
        starts.pop(self.node_id, None)
        order: list[tuple[int, str, str]] = [(own.incarnation, "", own.name)]
        order += [(start, node_id, name) for node_id, (start, name) in starts.items()]
        return [(node_id or None, name) for _, node_id, name in sorted(order)]

    def _matches(self, message: Message, selectors: Sequence[Selector]) -> bool:
        """Return whether a message matches one of these selectors."""
        assert self._engine is not None
        self._engine.budget.spend(TEST + sum(selector.terms for selector in selectors))
        headers = headers_of(message)
        return any(selector.matches(headers) for selector in selectors)

    def _demand(self, queue: str) -> Demand | None:
        """Return what clients at other brokers want of a queue that none consumes here, or None."""
        candidates = self._find(queue)
        if not candidates:
            return None
        if not all(selectors for _, selectors in candidates):
            return Demand(None)
        selectors = chain.from_iterable(selectors for _, selectors in candidates)
        return Demand(ungrouped(tuple(dict.fromkeys(selectors))))

    def _review(self, queues: Iterable[str]) -> None:
        if self._redistribution is not None:
            self._redistribution.review(queues)

    def _ensure_bridge(self, node_id: str) -> None:
        if node_id not in self._bridges:
            self._bridge(node_id)

    def _bridge(self, node_id: str) -> None:
        assert self._engine is not None
        self._bridges[node_id] = Bridge(self._engine, self._membership, node_id, self._routes.next_to)

    def _passes_on(self, node_id: str) -> bool:
        """Return whether messages can be passed on to a node, and do that from now on."""
        if self._routes.next_to(node_id) is None:
            return False
        if node_id not in self._bridges:
            self._bridge(node_id)
        return True

    def _changed(self) -> None:
        self._greet_lives()
        self._routes.review()
        self._rerouted()

    def _rerouted(self) -> None:
        """Take in that other brokers were lost or found, or what distant ones have told."""
        self._candidates.clear()
        linked = {member.name for member, _ in self._membership.neighbours.linked()}
        self._look_beyond()
        for name in [name for name in self._remote if name not in {*linked, *self._distant}]:
            del self._remote[name]
            self._filters.pop(name, None)
        for bridge in self._bridges.values():
            bridge.wake()
        if self._engine is not None:
            self._engine.feeds[DESTINATION].publish(encoded(self._membership))
        if self._redistribution is not None:
            consumed = chain.from_iterable(self._remote.values())
            self._review(dict.fromkeys((*consumed, *self._redistribution.running)))

    def _look_beyond(self) -> None:
        """Take in the consumers of the brokers that we are not linked with."""
        former = self._distant
        self._distant = {route.state.origin: route.state for route in self._routes.beyond.values()}
        for name, state in self._distant.items():
            if former.get(name) is not state:
                self._remote[name] = dict(state.consumers.counts)
                self._filters[name] = dict(_compiled(state.consumers))

    def _blob_taken(self, link: ClusterLink, message: m.BlobTaken) -> None:
        for bridge in self._bridges.values():
            bridge.taken(link, message.count)

    # ------------------------------------------------------------------------------------ consumers

    def _observed(self, queue: str, count: int) -> None:
        self._candidates.pop(queue, None)
        if self._engine is None:
            return
        self._review((queue,))
        self._news[queue] = count
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        news, self._news = self._news, {}
        self._membership.neighbours.broadcast(self._consumers(news, whole=False))
        if self._routes.used:
            self._routes.tell(self._all_consumers())

    def _greet(self, link: ClusterLink) -> None:
        if self._engine is not None:
            self._greeted.append(link)
            link.send(self._all_consumers())

    def _greet_lives(self) -> None:
        """Tell brokers that have become live of our consumers: a backup does not listen."""
        lives = [link for _, link in self._membership.directory.lives().values()]
        new = [link for link in lives if link not in self._greeted]
        self._greeted = lives
        if new and (consumers := self._all_consumers()).counts:
            for link in new:
                link.send(consumers)

    def _all_consumers(self) -> m.Consumers:
        assert self._engine is not None
        engine = self._engine
        counts = {name: count for name in engine.queues if (count := engine.consumers(name))}
        return self._consumers(counts, whole=True)

    def _consumers(self, counts: dict[str, int], *, whole: bool) -> m.Consumers:
        """Return the news of so many consumers, with their selectors as far as these are few."""
        assert self._engine is not None
        selectors = {}
        for queue in counts:
            if filters := _within_bounds(self._engine.selectors(queue)):
                selectors[queue] = tuple(sorted(selector.text for selector in filters))
        return m.Consumers(counts, whole=whole, selectors=selectors)

    def _consumers_told(self, link: ClusterLink, message: m.Consumers) -> None:
        assert link.member is not None
        if self._membership.directory.is_over(link.member):
            return
        filters = self._filters.setdefault(link.member.name, {})
        if message.whole:
            former = self._remote.get(link.member.name, {})
            self._remote[link.member.name] = dict(message.counts)
            filters.clear()
            self._candidates.clear()
            filters.update(_compiled(message))
            self._review(dict.fromkeys((*former, *message.counts)))
        else:
            self._remote.setdefault(link.member.name, {}).update(message.counts)
            for queue in message.counts:
                self._candidates.pop(queue, None)
                filters.pop(queue, None)
            filters.update(_compiled(message))
            self._review(message.counts)


def _within_bounds(selectors: Sequence[Selector]) -> Sequence[Selector]:
    """Return these selectors, or none if they are too many or too long to be looked at."""
    is_few = (
        len(selectors) <= SELECTORS_MAX
        and sum(len(selector.text) for selector in selectors) <= CHARACTERS_MAX
    )
    return selectors if is_few else ()


def _compiled(message: m.Consumers) -> Iterator[tuple[str, tuple[Selector, ...]]]:
    """Yield the selectors of each queue whose consumers have some; without those we cannot read."""
    for queue, texts in message.selectors.items():
        try:
            yield queue, tuple(map(compile_selector, texts))
        except SelectorError as error:
            _log.warning("cluster: a selector of consumers of queue %r is not understood: %s", queue, error)
