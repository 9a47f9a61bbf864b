"""Sessions in one process under random but mostly sensible frames.

No internal error, nothing lost, nothing counted wrong.

Clients send, consume, acknowledge, refuse, use transactions, make mistakes and disappear, over
queues that are small enough to be full most of the time. At the end every message that was answered
and not consumed is there, in order, and the memory is accounted for.
"""

import asyncio
import random

import pytest

from broker import config
from broker.core.engine import Engine
from broker.core.message import Message
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.stomp.server import StompServer
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stomp_protocol.codec import Parser, encode


class Transport:
    """What a connection sees of the network, without one."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.out = []
        self.closed = False
        self.vanished = False
        self.reading = True
        self.waiting = []

    def get_extra_info(self, name):
        return None

    def set_write_buffer_limits(self, high):
        pass

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        if not self.vanished:
            assert not self.closed, "written after the end"
            self.out.append(data)

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True
        for data in self.waiting:
            asyncio.get_running_loop().call_soon(self.arrive, data)
        self.waiting.clear()

    def arrive(self, data):
        if self.closed:
            return
        if self.reading and not self.waiting:
            self.protocol.data_received(data)
        else:
            self.waiting.append(data)

    def close(self):
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def vanish(self):
        """The peer is gone; what the broker was about to write counts as written, for ack mode
        auto.
        """
        if not self.closed:
            self.vanished = self.closed = True
            self.out += self.protocol._out
            self.protocol.connection_lost(None)


class RandomClient:
    """Does something sensible most of the time."""

    def __init__(self, world, name, produces):
        self.world = world
        self.produces = produces
        self.name = name
        self.chance = world.chance
        self.protocol = world.server._accept()
        self.transport = Transport(self.protocol)
        self.protocol.connection_made(self.transport)
        self.parser = Parser()
        self.held = {}
        self.acking = {}
        self.subscriptions = set()
        self.modes = {}
        self.transactions = {}
        self.count = 0
        self.send("CONNECT", {"accept-version": "1.2", "host": "h"})

    def send(self, command, headers, body=b""):
        self.transport.arrive(encode(command, headers, body))

    def read(self):
        for data in self.transport.out:
            for frame in self.parser.feed(data):
                self.world.frames += 1
                if frame.command == "MESSAGE" and "ack" in frame.headers:
                    name = frame.headers["subscription"]
                    self.held[frame.headers["ack"]] = (frame.body.decode(), name)
                elif frame.command == "MESSAGE" and "browser" not in frame.headers:
                    if frame.headers["subscription"] != "browser":
                        self.world.consumed.add(frame.body.decode())
                elif frame.command == "RECEIPT":
                    self.world.answered |= self.acking.pop(frame.headers["receipt-id"], frozenset())
                elif frame.command == "ERROR":
                    assert "internal error" not in frame.headers["message"], frame
                    self.world.errors.append(frame.body.decode())
        self.transport.out.clear()

    def receipt(self, sends=frozenset()):
        self.count += 1
        name = f"{self.name}-{self.count}"
        self.acking[name] = frozenset(sends)
        return name

    def act(self):
        self.read()
        chance = self.chance
        kind = chance.choices(
            [
                "send",
                "subscribe",
                "unsubscribe",
                "ack",
                "nack",
                "begin",
                "commit",
                "abort",
                "vanish",
                "leave",
                "browse",
                "wrong",
            ],
            [30 if self.produces else 0, 4, 1, 30, 6, 3, 3, 1, 0.5, 0.5, 1, 0.3],
        )[0]
        transaction = chance.choice([None, None, *self.transactions])
        inside = {"transaction": transaction} if transaction else {}
        queue = f"/queue/q{chance.randrange(2)}"
        if kind == "send":
            text = self.world.text()
            group = chance.choice([None, "g", "h"])
            headers = {"destination": queue, **inside, **({"JMSXGroupID": group} if group else {})}
            if transaction:
                self.transactions[transaction].add(text)
            else:
                headers["receipt"] = self.receipt({text})
            self.send("SEND", headers, text.encode())
        elif kind == "subscribe":
            name = str(chance.randrange(3))
            if name not in self.subscriptions:
                self.subscriptions.add(name)
                mode = chance.choice(["auto", "client", "client-individual", "client-individual"])
                self.modes[name] = mode
                self.send("SUBSCRIBE", {"id": name, "destination": queue, "ack": mode, "prefetch-count": "5"})
        elif kind == "unsubscribe" and self.subscriptions:
            name = self.chance.choice(sorted(self.subscriptions))
            self.subscriptions.remove(name)
            self.send("UNSUBSCRIBE", {"id": name, "receipt": self.receipt()})
            self.held = {ack: one for ack, one in self.held.items() if one[1] != name}
        elif kind in ("ack", "nack") and self.held:
            ack = chance.choice(list(self.held))
            _, name = self.held[ack]
            named = [ack]
            if self.modes[name] == "client":  # all up to this one, in the order in which they came
                named = [one for one, (_, of) in self.held.items() if of == name]
                named = named[: named.index(ack) + 1]
            for one in named:
                text, _ = self.held.pop(one)
                if kind == "ack":
                    self.world.consumed.add(text)
            self.send(kind.upper(), {"id": ack, "receipt": self.receipt(), **inside})
        elif kind == "begin":
            self.count += 1
            self.transactions[f"t{self.count}"] = set()
            self.send("BEGIN", {"transaction": f"t{self.count}"})
        elif kind == "commit" and transaction:
            sends = self.transactions.pop(transaction)
            self.send("COMMIT", {"transaction": transaction, "receipt": self.receipt(sends)})
        elif kind == "abort" and transaction:
            del self.transactions[transaction]
            self.send("ABORT", {"transaction": transaction, "receipt": self.receipt()})
        elif kind == "browse" and "browser" not in self.subscriptions:
            self.subscriptions.add("browser")
            self.send("SUBSCRIBE", {"id": "browser", "destination": queue, "browser": "true"})
        elif kind == "vanish":
            self.transport.vanish()
        elif kind == "leave":
            self.send("DISCONNECT", {"receipt": self.receipt()})
        elif kind == "wrong":
            self.send(chance.choice(["ACK", "COMMIT", "UNSUBSCRIBE"]), {"id": "x", "transaction": "x"})


class World:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.policy = "PAGE" if seed % 2 else "BLOCK"
        self.sent = []
        self.consumed = set()  # acknowledged, if only by intention: may be gone
        self.answered = set()
        self.errors = []
        self.frames = 0

    def text(self):
        self.sent.append(f"m{len(self.sent)}")
        return self.sent[-1]

    async def run(self):
        volume = MemoryVolume()
        journal, recovered = await Journal.open(volume, "journal")
        gate = DurabilityGate(journal.synced)
        parsed = config.validate(
            {
                "broker": {"name": "a1", "global-max-size": 20_000},
                "address-settings": [
                    {
                        "match": "#",
                        "max-size-bytes": 4000,
                        "max-delivery-attempts": 4,
                        "address-full-policy": self.policy,
                    }
                ],
            }
        )
        engine = Engine(
            journal, recovered, gate, EngineSettings.of(parsed, "n1"), Seams(self.chance, lambda: 0.0)
        )
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        self.server = StompServer(parsed, engine)
        clients = []
        for turn in range(1500):
            if len(clients) < 6:
                # Every other client only consumes: who has filled a queue is not read, and could
                # not make room itself.
                clients.append(RandomClient(self, f"c{turn}", produces=turn % 2 == 0))
            self.chance.choice(clients).act()
            if self.chance.random() < 0.3:
                await asyncio.sleep(0)
            if self.chance.random() < 0.02:
                await journal.flush()
            for client in [client for client in clients if client.transport.closed]:
                client.read()  # what was written in ack mode auto is gone, seen or not
                clients.remove(client)
        await self.settle(journal)
        for client in clients:
            client.transport.vanish()
            client.read()
        await self.settle(journal)
        held = [one async for one in engine.browse()]
        texts = [one.message.body.decode() for one in held]
        assert len(texts) == len(set(texts)), "a message is stored once"
        missing = self.answered - self.consumed - set(texts)
        assert not missing, f"lost: {missing}"
        in_memory = [
            one for queue in engine.queues.values() for one in queue.all() if isinstance(one, Message)
        ]
        assert engine.memory.size == sum(one.size for one in in_memory)
        assert all(not queue.consumers and not queue.unacknowledged() for queue in engine.queues.values())
        assert all(
            not lane.held and not lane.owner
            for queue in engine.queues.values()
            for lane in queue.lanes.values()
        )
        await engine.stop()
        await journal.close()
        journal, recovered = await Journal.open(volume, "journal")
        again = Engine(
            journal,
            recovered,
            DurabilityGate(journal.synced),
            EngineSettings.of(parsed, "n1"),
            Seams(self.chance, lambda: 0.0),
        )
        assert [one.message.body.decode() async for one in again.browse()] == texts
        await journal.close()

    async def settle(self, journal):
        for _ in range(30):
            await journal.flush()
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(25))
def test_sessions_at_random(seed):
    failures = []

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        await world.run()

    world = World(seed)
    asyncio.run(scenario())
    assert not failures
    assert world.frames > 200
    assert len(world.answered) > 20
