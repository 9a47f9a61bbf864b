"""Queues that an administrator makes and deletes while clients use them.

A request goes to any broker of the pairs that have the queue. The pair whose broker does it tells
the others at once, as far as they can hear it; the others learn of it before they do anything with
the queue again that clients may rely on: when they serve again, or at the latest before the drain.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from innocent_cluster.brokers import Pair
from innocent_cluster.connections import Connection
from innocent_cluster.timeline import MS, S, Script

if TYPE_CHECKING:
    from innocent_cluster.world import World


@dataclass(eq=False)
class Request:
    """A create or a delete; ``asked`` and ``answered`` are moments, ``outcome`` None until then."""

    f: str
    queue: str
    asked: int
    answered: int | None = None
    outcome: str | None = None


class Administrator:
    """Makes a queue and deletes it, again and again, while the load goes on."""

    def __init__(self, world: World, queue: str, pairs: Sequence[Pair], chance: random.Random) -> None:
        self.world, self.queue, self.pairs = world, queue, pairs
        self.requests: list[Request] = []
        self._chance = chance
        self._patience = chance.choice([S, 2500 * MS])

    @property
    def answered(self) -> bool | None:
        """Whether the latest change that was done made the queue; None: no answer tells."""
        if any(one.outcome in (None, "info") for one in self.requests):
            return None
        done = [one.f for one in self.requests if one.outcome == "ok"]
        return done[-1] == "create" if done else None

    def run(self) -> Script:
        """Make requests until the load ends."""
        chance = self._chance
        yield chance.choice([50, 300, 1000]) * MS
        while not self.world.is_ending:
            yield from self._request(chance.choice(["create", "delete", "delete"]))
            yield chance.choice([50, 300, 1000]) * MS

    def _request(self, f: str) -> Script:
        world, queue = self.world, self.queue
        broker = self._chance.choice([one for pair in self.pairs for one in pair.brokers])
        process = world.recording.process()
        request = Request(f, queue, world.timeline.now)
        self.requests.append(request)
        world.recording.add(process, "invoke", f, queue=queue)
        yield MS
        outcome: str | None = "fail"
        if broker.is_reachable:
            connection = Connection(world, world.number("connection"), broker)
            answer = connection.ask(lambda: broker.pair.change(request, self.pairs))
            world.timeline.after(self._patience, lambda: answer.give(None))
            outcome = yield answer
            connection.leave()
        request.outcome, request.answered = outcome or "info", world.timeline.now
        told = None if outcome == "fail" else broker.name
        world.recording.add(process, request.outcome, f, queue=queue, broker=told)
        if outcome is not None:
            world.recording.release(process)
