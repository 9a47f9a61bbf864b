"""Messages of a broker that was taken over, on pages and off them, keep their place.

In the taker's memory, and when it starts again.
"""

import asyncio
import random

import pytest
from database_places import SimulatedPlace

from broker import config
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.pages import Page
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.storage.database import Statement
from broker.storage.database.journal import DatabaseJournal
from broker.storage.database.registry import Registry
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Recovered

TIMEOUT_S = 60.0
NEVER_MS = 600_000
SETTINGS = EngineSettings.of(
    config.validate(
        {
            "broker": {"name": "a1"},
            "address-settings": [{"match": "#", "max-size-bytes": 8000, "page-size-bytes": 2000}],
        }
    ),
    "n1",
)


class Member:
    """A broker of the cluster: its rows, its journal, its engine."""

    @classmethod
    async def start(cls, place, name):
        self = cls()
        self.databases = [place.open(name) for _ in range(3)]
        self.registry = Registry(self.databases[0], "test", name, expiration_ms=NEVER_MS, timeout_s=TIMEOUT_S)
        await self.registry.create()
        self.me = await self.registry.register(f"{name}:61616")
        records = await self.registry.load(self.me, self.me.sessions)
        self.journal = DatabaseJournal(
            *self.databases[1:], self.me, records, sync_period_s=0.0, timeout_s=TIMEOUT_S
        )
        gate = DurabilityGate(0)
        self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        seams = Seams(random.Random(1), lambda: 0.0)
        self.engine = Engine(self.journal, Recovered(records), gate, SETTINGS, seams, None)
        await self.journal.sweep()
        return self

    async def take_over(self, name):
        epoch = await self.registry.begin_takeover(self.me, await self.registry.row(name), forced=True)
        silence = Statement("UPDATE store_broker SET heartbeat = 0 WHERE broker_id = ?", (name,))
        await self.databases[0].transact([silence], TIMEOUT_S)
        session, theirs = await self.registry.complete_takeover(self.me, name, epoch)
        records = await self.registry.load(self.me, theirs)
        self.journal.adopt(session, records)
        self.engine.adopt(Recovered(records))
        await self.journal.sweep_adopted(theirs)

    async def send(self, group, numbers):
        for number in numbers:
            self.engine.send("q", Message("q", b"a:b\n", b"%d" % number, group))
            if number % 5 == 0:
                await self.rest()
        await self.rest()

    async def rest(self):
        """Return when all is durable, and no page is being written or read."""
        paging = self.engine.paging
        await self.journal.flush()
        while paging._writer is not None or paging._readers:
            await asyncio.sleep(0.001)
        await self.journal.flush()

    @property
    def pages(self):
        return [item for item in self.engine.queues["q"].all() if isinstance(item, Page)]

    async def browsed(self):
        """{group: numbers, in the order of the queue}."""
        found = {}
        async for one in self.engine.browse("q"):
            found.setdefault(one.message.group, []).append(int(one.message.body))
        return found

    async def end(self):
        """As a broker whose lease is over ends."""
        self.engine.abandon()
        await self.journal.close()
        for database in self.databases:
            await database.close()


async def consumed(member, most):
    """{group: numbers}, of ``most`` messages or all there are.

    What is held beyond them goes back.
    """
    found, held = {}, []
    consumer = member.engine.subscribe("q", held.append, window=7)
    while most and len(member.engine.queues["q"]):
        await member.rest()
        taken, held[:] = held[:most], []
        member.engine.acknowledge(taken)
        most -= len(taken)
        for one in taken:
            found.setdefault(one.message.group, []).append(int(one.message.body))
        if not most:
            break
    member.engine.unsubscribe(consumer)
    await member.rest()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_each_group_stays_in_order_through_takeovers_and_starts(seed):
    """Groups live where they live until their broker is taken over, and go on at the taker.

    v1 takes x1, then w1, whose sessions are older.
    """
    place = SimulatedPlace(seed)
    chance = random.Random(seed)

    async def main():
        w, x, v = [await Member.start(place, name) for name in ("w1", "x1", "v1")]
        home = {"w": w, "x": x, "v": v}
        sent = dict.fromkeys(home, 0)
        done = dict.fromkeys(home, 0)
        paged = 0

        async def traffic():
            for group, member in home.items():
                more = chance.choice((3, 12, 50))
                await member.send(group, range(sent[group], sent[group] + more))
                sent[group] += more

        async def check(member):
            left = {group: list(range(done[group], sent[group])) for group in home if home[group] is member}
            assert await member.browsed() == {group: numbers for group, numbers in left.items() if numbers}
            for group, numbers in (await consumed(member, chance.randint(1, 30))).items():
                assert numbers == left[group][: len(numbers)]
                done[group] += len(numbers)

        await traffic()
        await traffic()
        for victim, name in ((x, "x1"), (w, "w1")):
            await check(victim)
            await victim.end()
            await v.take_over(name)
            home[name[0]] = v
            await check(v)
            await traffic()
            await check(v)
        for _ in range(2):
            paged += len(v.pages)
            await v.end()
            v = await Member.start(place, "v1")
            home = dict.fromkeys(home, v)
            await check(v)
            await traffic()
            await check(v)
        assert paged
        rest = await consumed(v, sum(sent.values()))
        assert rest == {
            group: list(range(done[group], sent[group])) for group in sent if done[group] < sent[group]
        }
        await v.journal.large.close()
        await v.journal.pages.close()
        assert await v.journal.pages.medium.sizes() == {}
        await v.end()

    place.run(main)
