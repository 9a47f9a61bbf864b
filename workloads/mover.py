"""Movers: transactors that send on to later queues what they get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.interface import WorkloadContext
from workloads.failover import Nodes
from workloads.producer import Producer, Stream
from workloads.sessions import Sessions
from workloads.transactor import Held, Letter, Transactor

TAKEN_MAX: Final = 4
SENT_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a mover: ``onward`` has for each of its queues those to which it may send.

    It sends in any of ``groups``.
    """

    onward: Mapping[str, Sequence[str]]
    groups: Sequence[str | None]


class Mover(Transactor):
    """A transactor that consumes the queues of a route, and sends new messages along it.

    Args:
        context, zone, nodes, sessions, prefetch, hold_s, seed, numbers: see ``Transactor``.
        producer: the producer of the messages that it sends.
        route: the queues that it consumes, and those to which it sends.
    """

    __slots__ = ("_producer", "_route", "_streams")

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Nodes,
        sessions: Sessions,
        *,
        prefetch: int,
        hold_s: float,
        seed: int,
        producer: Producer,
        route: Route,
        numbers: Iterator[int],
    ) -> None:
        super().__init__(
            context, zone, nodes, tuple(route.onward), sessions,
            prefetch=prefetch, hold_s=hold_s, seed=seed, numbers=numbers,
        )  # fmt: skip
        self._producer = producer
        self._route = route
        self._streams: dict[tuple[str, str | None], Stream] = {}

    def _take(self) -> Sequence[Held]:
        few = min(len(self._inbox), self._chance.randint(1, TAKEN_MAX))
        return [self._inbox.popleft() for _ in range(few)]

    def _steps(self, taken: Sequence[Held]) -> list[Held | Letter]:
        chance = self._chance
        steps: list[Held | Letter] = [*taken]
        for _ in range(chance.randint(1, SENT_MAX)):
            session, _, _ = chance.choice(taken)
            stream = self._stream(chance.choice(self._route.onward[session.queue]))
            steps.insert(chance.randint(0, len(steps)), Letter(stream))
        return steps

    def _stream(self, queue: str) -> Stream:
        place = queue, self._chance.choice(self._route.groups)
        known = self._streams.get(place)
        if known is None:
            known = self._streams[place] = Stream(self.context, self._producer, *place)
        return known
