"""A small cluster that uses what a broker uses, broken at random.

And one with a flaw that no seed decides.

As a program it prints the digest and the trace of one run: ``python toy_cluster.py SEED [flawed]
[collecting]``, the last with the garbage collector as eager as it can be.
"""

import asyncio
import gc
import sys

from environments.simulation import LinkCondition, World
from environments.simulation.trace import Trace, TraceEvent
from harness.interface import Link

NODES = ("a1", "a2", "b1")
PORT = 61613
CLIENTS = 6
VIRTUAL_S = 12


class Server:
    """Echoes lines late, gossips with its neighbours, gives up on what takes too long."""

    def __init__(self, name, chance, *, flawed):
        self.name = name
        self.chance = chance
        self.flawed = flawed
        self.heard = asyncio.Event()
        self.subscribers = set()

    async def run(self):
        server = await asyncio.start_server(self.serve, self.name, PORT)
        async with server, asyncio.TaskGroup() as group:
            for other in NODES:
                if other != self.name:
                    group.create_task(self.gossip(other), name=f"gossip with {other}")
            group.create_task(self.spread())

    async def serve(self, reader, writer):
        subscriber = Subscriber(writer)
        self.subscribers.add(subscriber)
        try:
            while line := await reader.readline():
                self.heard.set()
                async with asyncio.timeout(0.5):
                    await asyncio.sleep(self.chance.random() * 0.6)
                writer.write(line)
                await writer.drain()
        except (TimeoutError, OSError):
            pass
        finally:
            self.subscribers.discard(subscriber)
            writer.close()

    async def spread(self):
        """Tell every subscriber; the flawed server goes through a set in the order of addresses."""
        number = 0
        while True:
            await asyncio.sleep(0.7)
            number += 1
            ordered = self.subscribers if self.flawed else sorted(self.subscribers, key=Subscriber.key)
            for turn, subscriber in enumerate(ordered):
                subscriber.writer.write(f"news {number} for number {turn}\n".encode())

    async def gossip(self, other):
        while True:
            try:
                async with asyncio.timeout(0.3):
                    reader, writer = await asyncio.open_connection(other, PORT)
            except (TimeoutError, OSError):
                await asyncio.sleep(0.05 + self.chance.random() * 0.1)
                continue
            asking = {
                asyncio.create_task(self.ask(reader, writer)),
                asyncio.create_task(self.heard.wait()),
                asyncio.create_task(asyncio.sleep(self.chance.random())),
            }
            _, pending = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            self.heard.clear()
            writer.close()
            await asyncio.sleep(0.1 + self.chance.random() * 0.1)

    async def ask(self, reader, writer):
        for number in range(3):
            writer.write(f"{self.name} asks {number}\n".encode())
            await reader.readline()


class Subscriber:
    """A connection, whose hash is its address in memory."""

    def __init__(self, writer):
        self.writer = writer

    def key(self):
        return self.writer.get_extra_info("peername")


async def client(world, number, tally):
    chance = world.random(f"client:{number}")
    zone = f"zone{1 + number % 2}"
    while True:
        node = chance.choice(NODES)
        try:
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection(world.network.via(zone, node), PORT)
                for _ in range(5):
                    writer.write(b"hello %d\n" % number)
                    await reader.readline()
                    tally["answers"] += 1
                writer.close()
        except (TimeoutError, OSError):
            tally["failures"] += 1
            await asyncio.sleep(chance.random() * 0.05)


async def nemesis(world, spawn):
    chance = world.random("nemesis")
    ends = (*NODES, "zone1", "zone2")
    while True:
        await asyncio.sleep(chance.random() * 0.5)
        node = chance.choice(NODES)
        process = world.process(node)
        match chance.randrange(5):
            case 0:
                process.kill()
                await process.exited
                await asyncio.sleep(chance.random() * 0.3)
                spawn(node)
            case 1:
                process.pause()
                await asyncio.sleep(chance.random())
                process.resume()
            case 2:
                process.lose_power()
                await asyncio.sleep(chance.random() * 0.3)
                spawn(node)
            case 3:
                link = Link(*chance.sample(ends, 2))
                world.network.apply(link, LinkCondition(cut=True))
                await asyncio.sleep(chance.random() * 2)
                world.network.apply(link, LinkCondition())
            case _:
                link = Link(*chance.sample(ends, 2))
                slow = LinkCondition(delay_ms=20, jitter_ms=30, rate_bytes_s=20_000)
                world.network.apply(link, slow)
                world.clock(node).rate = 0.5 + chance.random()
                await asyncio.sleep(chance.random())
                world.network.apply(link, LinkCondition(reset=chance.random() < 0.5))


def run(seed, *, flawed=False, record=True):
    """The world after its run, and what its clients counted."""
    world = World(seed, record=record)
    tally = {"answers": 0, "failures": 0}

    def spawn(node):
        chance = world.random(f"{node}:{world.now_ns}")
        world.spawn(node, lambda: Server(node, chance, flawed=flawed).run())

    async def main():
        for node in NODES:
            spawn(node)
        try:
            async with asyncio.timeout(VIRTUAL_S), asyncio.TaskGroup() as group:
                group.create_task(nemesis(world, spawn))
                for number in range(CLIENTS):
                    group.create_task(client(world, number, tally))
        except TimeoutError:
            pass

    world.run(main)
    return world, tally


def parse(text):
    """(digest, answers, trace) of what this program printed."""
    first, *lines = text.splitlines()
    digest, _, answers, _ = first.split()
    trace = Trace(recording=True)
    for line in lines:
        at_ns, node, what, detail, size, checksum = line.split("|")
        trace.take(TraceEvent(int(at_ns), node, what, detail, int(size), int(checksum)))
    return digest, int(answers), trace


if __name__ == "__main__":
    if "collecting" in sys.argv:
        gc.set_threshold(1, 1, 1)
    ran, counted = run(int(sys.argv[1]), flawed="flawed" in sys.argv)
    print(ran.trace.digest, ran.steps, counted["answers"], counted["failures"])
    for event in ran.trace.events:
        print("|".join(map(str, event)))
