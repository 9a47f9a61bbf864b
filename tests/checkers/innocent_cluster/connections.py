"""Connections of clients to brokers: frames on their way, in order, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from innocent_cluster.timeline import MS, Answer, S

if TYPE_CHECKING:
    from innocent_cluster.brokers import Broker
    from innocent_cluster.messages import Message
    from innocent_cluster.places import Session
    from innocent_cluster.world import World

Work = Callable[[], str]


class Connection:
    """A connection as both sides see it.

    ``is_left``: the client has given it up. ``is_closed``: the broker is rid of it. While
    ``is_cut``, frames wait on the way. ``bound`` are the sends of transactions that are open on it.
    """

    def __init__(self, world: World, number: int, broker: Broker) -> None:
        self.world, self.number, self.broker, self.life = world, number, broker, broker.life
        self.is_left = self.is_closed = self.is_cut = False
        self.sessions: list[Session] = []
        self.bound: dict[int, list[tuple[Message, Callable[[], None]]]] = {}
        self.lost = Answer()
        self.opened = world.timeline.now
        self._up = self._down = 0
        self._held: list[Callable[[], None]] = []
        self._asked: list[Answer] = []
        broker.connections.append(self)

    def ask(self, work: Work) -> Answer:
        """Send a request; the answer is its outcome, None if the connection is lost before."""
        answer = Answer()
        self._asked.append(answer)
        self._travel_up(lambda: self.broker.take(self, work, answer))
        return answer

    def tell(self, action: Callable[[], None]) -> None:
        """Send something to the client, which sees it later, unless it has left by then."""
        world = self.world
        self._down = max(self._down, world.timeline.now + world.latency(self))

        def arrive() -> None:
            if self.is_cut:
                self._held.append(arrive)
            elif not self.is_left:
                action()

        world.timeline.at(self._down, arrive)

    def leave(self) -> None:
        """The client gives the connection up; its broker notices later, sometimes much later."""
        if self.is_left:
            return
        self.is_left = True
        self._fail()
        world = self.world
        if world.chance.random() < 0.8:
            self._travel_up(self.broker_closes)
        world.timeline.after(world.chance.choice([1, 2, 3]) * S, self.broker_closes)

    def lose(self) -> None:
        """The client finds that the connection is lost."""
        if self.is_left:
            return
        self.is_left = True
        self._fail()
        self.world.timeline.after(self.world.chance.choice([5 * MS, 2 * S]), self.broker_closes)

    def broker_closes(self) -> None:
        """The broker is rid of the connection, after the requests on it that it has already."""
        if not self.is_closed and self.broker.life == self.life:
            self.broker.take(self, None, None)
        elif not self.is_closed:
            self.close()

    def close(self) -> None:
        """What the client learns sooner, or when it has heard nothing for too long."""
        if self.is_closed:
            return
        self.is_closed = True
        if self in self.broker.connections:
            self.broker.connections.remove(self)
        world = self.world
        if world.chance.random() < 0.7:
            self.tell(self.lose)
        world.timeline.after(world.chance.choice([1500 * MS, 3 * S]), self.lose)

    def cut(self) -> None:
        """Nothing arrives any more; each side finds that out by itself, if it lasts."""
        self.is_cut = True

    def mend(self) -> None:
        """What waited on the way arrives, in order."""
        self.is_cut = False
        held, self._held = self._held, []
        for arrive in held:
            self.world.timeline.after(0, arrive)
        self._up = self._down = max(self._up, self._down, self.world.timeline.now + MS)

    def _travel_up(self, action: Callable[[], None]) -> None:
        world = self.world
        self._up = max(self._up, world.timeline.now + world.latency(self))

        def arrive() -> None:
            if self.is_cut:
                self._held.append(arrive)
            elif not self.is_closed:
                action()

        world.timeline.at(self._up, arrive)

    def _fail(self) -> None:
        self.lost.give(None)
        for answer in self._asked:
            answer.give(None)
