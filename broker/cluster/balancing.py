"""The choice of the broker for a message (``message-load-balancing``, AMQ 17.1.1).

It rests on counts of consumers, and uses bridges.

ON_DEMAND: round robin over the brokers whose queue has consumers, this broker among them; if no
queue has any, the message stays here. STRICT: round robin over all live brokers, with or without
consumers. OFF: always here. No broker is chosen for a message with a group: without a grouping
handler two brokers could pick two owners for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain

from broker.cluster import messages as m
from broker.cluster.arrivals import Arrivals
from broker.cluster.bridge import Bridge
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership
from broker.cluster.redistribution import Redistribution
from broker.cluster.topology import DESTINATION, encoded
from broker.core.engine import Engine
from broker.core.feed import WatchedValue
from broker.core.message import Message

COALESCE_S = 0.02
"""The time within which changes in the numbers of consumers are sent together."""


class Balancing:
    """The ``Router`` of a live broker, from ``attach`` to ``detach``."""

    def __init__(self, membership: Membership, node_id: str) -> None:
        self.node_id = node_id
        self._membership = membership
        self._engine: Engine | None = None
        self._remote: dict[str, dict[str, int]] = {}
        """Broker -> queue -> number of consumers, as that broker told us."""
        self._candidates: dict[str, list[str | None]] = {}
        """Queue -> the nodes that get its next messages, in turn; None stands for us."""
        self._turn: dict[str, int] = {}
        self._bridges: dict[str, Bridge] = {}
        self._arrivals: Arrivals | None = None
        self._redistribution: Redistribution | None = None
        self._news: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._mode = membership.section.message_load_balancing

    def attach(self, engine: Engine) -> None:
        """Begin, with an engine that serves no clients yet; send what waits for other brokers."""
        self._engine = engine
        membership = self._membership
        membership.handlers[m.Consumers] = self._consumers_told
        self._arrivals = Arrivals(engine, membership.handlers)
        membership.handlers[m.BlobTaken] = self._blob_taken
        membership.on_change.append(self._changed)
        membership.on_linked.append(self._greet)
        engine.consumer_observers.append(self._observed)
        if self._mode == "ON_DEMAND":
            self._redistribution = Redistribution(engine, self.route, self._elsewhere)
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
        if self._timer is not None:
            self._timer.cancel()
        for bridge in self._bridges.values():
            bridge.stop()
        self._bridges.clear()
        if self._arrivals is not None:
            self._arrivals.stop()
        if self._redistribution is not None:
            self._redistribution.stop()
        membership.neighbours.broadcast(m.Consumers({}, whole=True))

    def route(self, queue: str, message: Message) -> str | None:  # noqa: ARG002 - the protocol is the Engine's
        """Return the node ID for a message, None for this broker; see ``Router``.

        Connections outlive the balancing of a broker that stops by one turn of the loop, and a
        client may send in it. Such a message stays here.
        """
        if self._engine is None:
            return None
        candidates = self._candidates.get(queue)
        if candidates is None:
            candidates = self._candidates[queue] = self._find(queue)
        if len(candidates) < 2:
            node_id = candidates[0] if candidates else None
        else:
            turn = self._turn.get(queue, 0)
            self._turn[queue] = turn + 1
            node_id = candidates[turn % len(candidates)]
        if node_id is not None and node_id not in self._bridges:
            self._bridge(node_id)
        return node_id

    # --------------------------------------------------------------------------------------- inside

    def _find(self, queue: str) -> list[str | None]:
        assert self._engine is not None
        if self._mode == "OFF":
            return []
        strict = self._mode == "STRICT"
        found: list[str | None] = [None] if strict or self._engine.consumers(queue) else []
        for node_id, (member, _) in sorted(self._membership.directory.lives().items()):
            if node_id != self.node_id and (strict or self._remote.get(member.name, {}).get(queue, 0)):
                found.append(node_id)
        return found

    def _elsewhere(self, queue: str) -> bool:
        """Return whether clients consume a queue at another broker."""
        lives = self._membership.directory.lives().items()
        return any(
            node_id != self.node_id and self._remote.get(member.name, {}).get(queue, 0)
            for node_id, (member, _) in lives
        )

    def _review(self, queues: Iterable[str]) -> None:
        if self._redistribution is not None:
            self._redistribution.review(queues)

    def _bridge(self, node_id: str) -> None:
        assert self._engine is not None
        self._bridges[node_id] = Bridge(self._engine, self._membership, node_id)

    def _changed(self) -> None:
        self._candidates.clear()
        linked = {member.name for member, _ in self._membership.neighbours.linked()}
        for name in [name for name in self._remote if name not in linked]:
            del self._remote[name]
        for bridge in self._bridges.values():
            bridge.wake()
        if self._engine is not None:
            self._engine.feeds[DESTINATION].publish(encoded(self._membership))
        if self._redistribution is not None:
            consumed = chain.from_iterable(self._remote.values())
            self._review(dict.fromkeys((*consumed, *self._redistribution.running)))

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
        self._membership.neighbours.broadcast(m.Consumers(news, whole=False))

    def _greet(self, link: ClusterLink) -> None:
        engine = self._engine
        if engine is not None:
            counts = {name: count for name in engine.queues if (count := engine.consumers(name))}
            link.send(m.Consumers(counts, whole=True))

    def _consumers_told(self, link: ClusterLink, message: m.Consumers) -> None:
        assert link.member is not None
        if self._membership.directory.is_over(link.member):
            return
        if message.whole:
            former = self._remote.get(link.member.name, {})
            self._remote[link.member.name] = dict(message.counts)
            self._candidates.clear()
            self._review(dict.fromkeys((*former, *message.counts)))
        else:
            self._remote.setdefault(link.member.name, {}).update(message.counts)
            for queue in message.counts:
                self._candidates.pop(queue, None)
            self._review(message.counts)
