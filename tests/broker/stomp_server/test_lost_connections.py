"""What a lost connection had in memory is free at once, without a collection of garbage.

Why it matters: CPython collects cycles by how many objects there are, never by their bytes. If each
lost connection were one, a client could fill the memory by sending half a message and leaving.
"""

import asyncio
import gc

import pytest
from test_next_connections import LARGE, Broker, Client, WebClient
from wsproto.events import BytesMessage

from broker.stomp.connection import StompConnection
from broker.stomp.session import StompSession


def alive():
    return sorted(
        type(thing).__name__
        for thing in gc.get_objects()
        if isinstance(thing, (StompConnection, StompSession))
    )


def idle(client, broker):
    pass


def subscribed(client, broker):
    for number, destination in enumerate(["q", "/topic/t", "/temp-queue/t"]):
        client.send("SUBSCRIBE", {"id": str(number), "destination": destination, "ack": "client"})
    client.send("SEND", {"destination": "q"}, b"held")


def browsing(client, broker):
    client.send("SEND", {"destination": "q"}, b"shown")
    client.send("SUBSCRIBE", {"id": "b", "destination": "q", "browser": "true"})


def in_a_transaction(client, broker):
    client.send("BEGIN", {"transaction": "t"})
    client.send("SEND", {"destination": "q", "transaction": "t"}, b"unsent")


def waiting_for_room(client, broker):
    broker.engine.memory.take(broker.engine.queue("full"), 1 << 30)
    client.send("SEND", {"destination": "full"}, b"parked")


def uploading(client, broker):
    client.send("SEND", {"destination": "q"}, LARGE)


def half_a_message(client, broker):
    data = b"SEND\ndestination:q\ncontent-length:90000\n\n" + b"x" * 80000
    client.writer.write(client.web.send(BytesMessage(data)) if isinstance(client, WebClient) else data)


def malformed(client, broker):
    data = b"SEND\nno colon\n\n\0"
    client.writer.write(client.web.send(BytesMessage(data)) if isinstance(client, WebClient) else data)


def refused(client, broker):
    client.send("ACK", {"id": "unknown"})


@pytest.mark.parametrize("kind", [Client, WebClient])
@pytest.mark.parametrize(
    "busy",
    [
        idle,
        subscribed,
        browsing,
        in_a_transaction,
        waiting_for_room,
        uploading,
        half_a_message,
        malformed,
        refused,
    ],
)
def test_a_lost_connection_leaves_no_garbage(busy, kind):
    async def scenario():
        broker = await Broker.start()
        client = await kind.connect(broker)
        busy(client, broker)
        await client.writer.drain()
        await asyncio.sleep(0.01)
        assert alive() == ([] if busy in (malformed, refused) else ["StompConnection", "StompSession"])
        client.writer.transport.abort()
        if busy in (waiting_for_room, uploading):  # a connection that is not read does not see it
            broker.server.abandon()
        while broker.server.connections:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        left = alive()
        await broker.stop()
        return left

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(scenario()) == []
    finally:
        gc.enable()
