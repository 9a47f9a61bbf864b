"""What browsers remember of what is stored, however many of them a client begins."""

import asyncio

from engines import Broker
from test_turns_of_clients import Client, scenario, serve

from broker.core import backlog
from broker.core.browsing import Browsing
from broker.core.feed import WatchedValue


async def read(browsing):
    return [found.message.body.decode() async for found in browsing]


@scenario
async def test_a_record_becomes_a_message_when_it_is_shown(monkeypatch):
    """A start leaves records: as many messages as there are would take a turn of seconds."""
    broker = await Broker.start()
    for number in range(300):
        broker.send(str(number))
    await broker.settle()
    broker = await broker.crash()
    made, restore = [], backlog.restore
    monkeypatch.setattr(
        backlog, "restore", lambda record, **more: made.append(record.id) or restore(record, **more)
    )
    browsing = broker.engine.browse("q")
    assert made == []
    first = await anext(browsing)
    assert (first.message.body, len(made)) == (b"0", 1)
    consumer = broker.consume()
    await broker.settle()
    consumer.ack(*consumer.texts)
    await broker.settle()
    assert await read(browsing) == [str(number) for number in range(1, 300)]


class Watched(Browsing):
    """Those that are open, and when each was begun."""

    open = 0
    most = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        Watched.open += 1
        Watched.most = max(Watched.most, Watched.open)

    def close(self):
        Watched.open -= 1
        super().close()


async def serve_watched(monkeypatch, count):
    """A server of a broker with so many messages in q, whose browsings are watched."""
    monkeypatch.setattr("broker.core.engine.Browsing", Watched)
    Watched.open = Watched.most = 0
    broker = await Broker.start()
    for number in range(count):
        broker.send(str(number))
    await broker.settle()
    return serve(broker)


@scenario
async def test_browsers_of_a_connection_show_one_after_the_other(monkeypatch):
    messages, browsers = 2500, 20  # one shows in several turns
    server = await serve_watched(monkeypatch, messages)
    client, other = Client(server), Client(server)
    for number in range(browsers):
        client.say("SUBSCRIBE", id=f"b{number}", destination="/queue/q", browser="true", selector="x = 1")
    other.say("SUBSCRIBE", id="b", destination="/queue/q", browser="true")
    assert Watched.open == 0, "a turn that takes in frames must not find what is stored for each"
    while len(client.frames()) < 1 + browsers or len(other.frames()) < 1 + messages + 1:
        await asyncio.sleep(0)
    assert [frame.headers["subscription"] for frame in client.frames()[1:]] == [
        f"b{number}" for number in range(browsers)
    ]
    assert other.bodies() == [*map(str, range(messages)), ""]
    assert (Watched.most, Watched.open) == (2, 0), "one of each connection"


@scenario
async def test_browsers_end_with_their_subscription_or_connection_shown_or_not(monkeypatch):
    server = await serve_watched(monkeypatch, 5)
    client = Client(server)
    client.connection.pause_writing()
    for number in range(4):
        client.say("SUBSCRIBE", id=f"b{number}", destination="/queue/q", browser="true")
    for _ in range(10):
        await asyncio.sleep(0)
    assert (Watched.open, client.bodies()) == (1, [])
    client.say("UNSUBSCRIBE", id="b0")
    client.say("UNSUBSCRIBE", id="b2")
    client.connection.resume_writing()
    for _ in range(50):
        await asyncio.sleep(0)
    shown = [frame.headers["subscription"] for frame in client.frames() if frame.command == "MESSAGE"]
    assert shown == 6 * ["b1"] + 6 * ["b3"]
    client.connection.pause_writing()
    client.say("SUBSCRIBE", id="last", destination="/queue/q", browser="true")
    client.say("SUBSCRIBE", id="never", destination="/queue/q", browser="true")
    for _ in range(10):
        await asyncio.sleep(0)
    assert Watched.open == 1
    client.lose()
    for _ in range(10):
        await asyncio.sleep(0)
    assert Watched.open == 0


@scenario
async def test_a_client_that_reads_nothing_gets_nothing_of_what_it_subscribes_to_then():
    broker = await Broker.start()
    server = serve(broker)
    feed = broker.engine.feeds["$SYS.feed"] = WatchedValue()
    feed.publish(b"value")
    broker.send("message")
    await broker.settle()
    client = Client(server)
    await asyncio.sleep(0)
    client.connection.pause_writing()
    client.say("SUBSCRIBE", id="browser", destination="/queue/q", browser="true")
    client.say("SUBSCRIBE", id="consumer", destination="/queue/q")
    client.say("SUBSCRIBE", id="feed", destination="$SYS.feed")
    await broker.settle()
    assert client.bodies() == []
    client.connection.resume_writing()
    await broker.settle()
    assert sorted(client.bodies()) == ["", "message", "message", "value"]
