"""An engine over a disk in memory, and consumers that remember what they got.

For the tests of the core.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from broker import config
from broker.core.consumer import Delivery, QueueConsumer
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume


def settings(node_id: str = "n1", **address: Any) -> EngineSettings:
    """Engine settings with one address-setting for all queues (underscores as hyphens)."""
    table = {"match": "#", **{name.replace("_", "-"): value for name, value in address.items()}}
    parsed = config.validate({"broker": {"name": "a1"}, "address-settings": [table]})
    return EngineSettings.of(parsed, node_id)


class Broker:
    """A journal with its engine; ``crash`` and ``restart`` are the ways to end."""

    def __init__(self, engine: Engine, volume: MemoryVolume, made_of: EngineSettings) -> None:
        self.engine = engine
        self.clock = engine.seams.wall_clock
        self.volume = volume
        self.made_of = made_of

    @classmethod
    async def start(
        cls,
        volume: MemoryVolume | None = None,
        made_of: EngineSettings | None = None,
        router: Any = None,
        seed: int = 1,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> Broker:
        volume = volume or MemoryVolume()
        made_of = made_of or settings()
        journal, recovered = await Journal.open(volume, "journal")
        gate = DurabilityGate(journal.synced)
        engine = Engine(journal, recovered, gate, made_of, Seams(random.Random(seed), clock), router)
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        return cls(engine, volume, made_of)

    async def settle(self) -> None:
        """Return when everything asked for so far is durable and dispatched."""
        for _ in range(200):  # turns; a test that asks for more never settles
            for _ in range(3):
                await self.engine.journal.flush()
                for _ in range(5):
                    await asyncio.sleep(0)
            if not any(self.engine.budget._lines):
                return

    async def restart(self) -> Broker:
        """A clean end and a new start on the same disk."""
        await self.engine.stop()
        await self.engine.journal.close()
        return await Broker.start(self.volume, self.made_of, seed=2, clock=self.clock)

    async def crash(self) -> Broker:
        """An end without warning: what was not synced may be gone."""
        self.engine.abandon()
        self.volume.crash(random.Random(3))
        await self.engine.journal.close()
        return await Broker.start(self.volume, self.made_of, seed=3, clock=self.clock)

    def send(self, text: str, group: str | None = None, queue: str = "q", **more: Any) -> Message:
        message = Message(queue, b"destination:q\n", text.encode(), group, **more)
        self.engine.send(queue, message)
        return message

    def consume(self, queue: str = "q", **options: Any) -> Client:
        return Client(self.engine, queue, **options)


class Client:
    """A consumer that remembers its deliveries, in order."""

    def __init__(self, engine: Engine, queue: str, **options: Any) -> None:
        self.engine = engine
        self.got: list[Delivery] = []
        self.flags: list[tuple[bool, int]] = []
        self.consumer: QueueConsumer = engine.subscribe(queue, self._deliver, **options)

    def _deliver(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        self.flags.append((delivery.message.deliveries > 1, delivery.message.deliveries))

    @property
    def texts(self) -> list[str]:
        return [delivery.message.body.decode() for delivery in self.got]

    @property
    def held(self) -> list[Delivery]:
        return list(self.consumer.unacknowledged.values())

    def delivery(self, text: str) -> Delivery:
        """What it holds now of that text."""
        return next(one for one in self.held if one.message.body.decode() == text)

    def ack(self, *texts: str) -> None:
        self.engine.acknowledge([self.delivery(text) for text in texts])

    def nack(self, *texts: str) -> None:
        self.engine.refuse([self.delivery(text) for text in texts])

    def leave(self) -> None:
        self.engine.unsubscribe(self.consumer)
