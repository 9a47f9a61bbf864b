"""What clients ask for is done in turns: who waits for whom, and what is still in order then.

Nothing here is timed: turns of the budget are counted, and what was asked and answered in them.
"""

import asyncio
import functools
import gc
from collections import Counter
from functools import partial

import pytest
from engines import Broker, settings

from broker import config
from broker import turn_budget as budget
from broker.core.backlog import CHUNK
from broker.core.consumer import QueueConsumer
from broker.core.expiry import SCANNED
from broker.core.message import Message
from broker.core.properties import Properties
from broker.core.queue import Queue
from broker.core.selector import Selector, compile_selector
from broker.core.subscription import Subscription, SubscriptionKey
from broker.core.transactions import Transaction
from broker.stomp.connection import PIECE_BYTES
from broker.stomp.large import Uploads
from broker.stomp.server import StompServer
from broker.stomp.session import StompSession
from broker.turn_budget import FRAME, SHARE, TURN, Line, TurnBudget
from stomp_protocol.codec import Parser

TOPIC = "/topic/t"
FRAMES = -(-SHARE // FRAME)
"""Frames that one client may have handled before others have their turn."""


def scenario(test):
    """A test that runs in a loop of its own."""

    @functools.wraps(test)
    def run(*arguments, **more):
        asyncio.run(test(*arguments, **more))

    return run


class Wire(asyncio.Transport):
    """A network that takes everything."""

    def __init__(self):
        super().__init__()
        self.sent = b""
        self.reads = True
        self.closed = False
        self.reset = False

    def write(self, data):
        self.sent += data

    def get_extra_info(self, name, default=None):
        return self if self.reset and name == "socket" else default

    def getsockopt(self, *_):
        return 104  # connection reset by peer

    def setsockopt(self, *_):
        pass

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def close(self):
        self.closed = True

    abort = close


class Client:
    """A connection of a broker, without a network."""

    def __init__(self, server, **headers):
        self.wire = Wire()
        number = len(server.connections) + 1
        self.connection = server_connection(server, number)
        self.connection.connection_made(self.wire)
        self.say("CONNECT", accept_version="1.2", host="h", **headers)

    def say(self, command, body="", **headers):
        self.connection.data_received(frame(command, body, **headers))

    def frames(self):
        """All that the broker has said."""
        return Parser().feed(self.wire.sent)

    def receipts(self):
        return [one.headers["receipt-id"] for one in self.frames() if one.command == "RECEIPT"]

    def bodies(self):
        return [one.body.decode() for one in self.frames() if one.command == "MESSAGE"]

    def errors(self):
        return [one.body.decode() for one in self.frames() if one.command == "ERROR"]

    def lose(self):
        self.connection.connection_lost(None)


def server_connection(server, number):
    from broker.stomp.connection import StompConnection

    return StompConnection(server, number, partial(StompSession, server))


def frame(command, body="", **headers):
    lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n{body}\0".encode()


def serve(broker, **acceptor):
    properties = {name.replace("_", "-"): value for name, value in acceptor.items()}
    table = {"broker": {"name": "a1"}, "acceptor": properties}
    return StompServer(config.validate(table), broker.engine)


def named(engine, name):
    """The queue of the durable subscription of client c."""
    return engine.topics.named(SubscriptionKey("", "c", name))


def sends(count, destination="/queue/q", **headers):
    return b"".join(
        frame("SEND", str(n), destination=destination, receipt=f"r{n}", **headers) for n in range(count)
    )


# ------------------------------------------------------------------------------------------- budget


@scenario
async def test_who_waits_is_served_in_order_each_a_share_a_turn():
    turns = TurnBudget()
    served = []

    def work(name, units):
        def go_on():
            served.append((turns.turns, name))
            nonlocal units
            spent = min(units, SHARE)
            units -= spent
            turns.spend(spent)
            if units:
                turns.wait(go_on)

        return go_on

    turns.spend(TURN)
    turns.wait(work("a", 5 * SHARE))
    turns.wait(work("b", SHARE))
    turns.wait(work("c", 2 * SHARE))
    assert served == []
    for _ in range(5):
        await asyncio.sleep(0)
    order = [name for _, name in served]
    assert order == ["a", "b", "c", "a", "c", "a", "a", "a"]
    assert [turn for turn, _ in served] == [1, 1, 1, 2, 2, 2, 3, 3]
    assert 2 * SHARE < TURN <= 3 * SHARE


@scenario
async def test_lines_are_served_by_turns_a_share_each_however_long_one_is():
    turns, served = TurnBudget(), []

    def work(line):
        served.append((turns.turns, line))
        turns.spend(SHARE // 4)

    turns.spend(TURN)
    for _ in range(100):
        turns.wait(partial(work, Line.DELIVERIES), Line.DELIVERIES)
    turns.wait(partial(work, Line.CLIENTS))
    turns.wait(partial(work, Line.COMPLETIONS), Line.COMPLETIONS)
    while any(turns._lines):
        await asyncio.sleep(0)
    assert [line for _, line in served[:6]] == [Line.COMPLETIONS, Line.CLIENTS, *4 * [Line.DELIVERIES]]
    assert [turn for turn, line in served if line is not Line.DELIVERIES] == [1, 1]
    assert len(served) == 102


@scenario
async def test_to_be_asked_is_work_even_for_who_has_nothing_left_to_do():
    turns, asked_in = TurnBudget(), []
    turns.spend(TURN)
    for _ in range(3 * TURN // budget.VISIT):
        turns.wait(lambda _=None: asked_in.append(turns.turns), Line.DELIVERIES)
    while any(turns._lines):
        await asyncio.sleep(0)
    assert len(asked_in) == 3 * TURN // budget.VISIT
    assert set(asked_in) == {1, 2, 3}


@scenario
async def test_one_whose_work_fails_does_not_keep_the_others_waiting():
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    turns, served = TurnBudget(), []
    turns.spend(TURN)
    turns.wait(lambda: 1 / 0)
    turns.wait(partial(served.append, 1))
    await turns.room()
    assert served == [1]
    assert told == ["work for a client failed: please report this"]


# ------------------------------------------------------------------------------------------- frames


@scenario
async def test_a_client_with_one_frame_is_answered_before_one_with_a_thousand():
    broker = await Broker.start()
    server = serve(broker)
    many, one = Client(server), Client(server)
    await broker.settle()
    many.connection.data_received(sends(20 * FRAMES)[:-1])
    assert many.wire.reads
    many.connection.data_received(b"\0")
    assert len(broker.engine.queues["q"].messages) == 0
    assert 0 < broker.engine.queues["q"].size // (256 + 20) <= 2 * FRAMES
    assert not many.wire.reads
    one.say("SEND", "x", destination="/queue/other", receipt="mine")
    while "mine" not in one.receipts():
        await asyncio.sleep(0)
        await broker.engine.journal.flush()
    assert many.receipts() != [f"r{n}" for n in range(20 * FRAMES)]
    await broker.settle()
    assert many.receipts() == [f"r{n}" for n in range(20 * FRAMES)]
    assert many.wire.reads
    reader = broker.consume()
    await broker.settle()
    assert reader.texts == [str(n) for n in range(1000)]  # its window


@scenario
async def test_bytes_that_wait_are_parsed_in_their_turn_and_piece_by_piece(monkeypatch):
    broker = await Broker.start()
    client = Client(serve(broker))
    await broker.settle()
    parsed = []
    feed = Parser.feed
    monkeypatch.setattr(Parser, "feed", lambda parser, data: parsed.append(len(data)) or feed(parser, data))
    broker.engine.budget.spend(TURN)
    data = sends(20 * FRAMES)
    client.connection.data_received(data)
    assert parsed == []
    await broker.settle()
    assert sum(parsed) == len(data)
    assert max(parsed) <= PIECE_BYTES
    assert client.receipts() == [f"r{n}" for n in range(20 * FRAMES)]


HEADERS = 99 * "\\c:\\c\n" + "transaction:t\n\n\0"


@pytest.mark.parametrize(
    "data", [25 * f"BEGIN\n{HEADERS}ABORT\n{HEADERS}", 100_000 * "\n"], ids=["headers", "empty"]
)
@scenario
async def test_lines_are_parsed_in_turns_however_few_frames_they_are(data, monkeypatch):
    broker = await Broker.start()
    server, turns = serve(broker), broker.engine.budget
    clients = [Client(server) for _ in range(8)]
    await broker.settle()
    parsed, feed = Counter(), Parser.feed

    def counting(parser, piece):
        parsed[turns.turns] += piece.count(b"\n")
        return feed(parser, piece)

    monkeypatch.setattr(Parser, "feed", counting)
    for client in clients:
        client.connection.data_received(data.encode())
    await broker.settle()
    assert parsed.total() == len(clients) * data.count("\n")
    assert max(parsed.values()) <= TURN // budget.FURTHER_LINE + PIECE_BYTES


@scenario
async def test_frames_that_wait_stay_behind_a_body_that_goes_to_a_file_meanwhile():
    broker = await Broker.start()
    for number in range(40):
        broker.engine.bind(Subscription("t", f"s{number}", "c", durable=True))
    client = Client(serve(broker))
    await broker.settle()
    turns, body = broker.engine.budget, "x" * 30_000
    assert broker.engine.shares(TOPIC, len(body))
    for _ in range(60):  # others, who are served before the client
        turns.wait(lambda _=None: turns.spend(SHARE))
    turns.spend(turns.left - FRAME)
    first = frame("SEND", body, destination=TOPIC, receipt="first")
    client.connection.data_received(first + frame("SEND", "second", destination=TOPIC, receipt="second"))
    assert client.connection.uploads.busy
    await broker.settle()
    reader = broker.consume(named(broker.engine, "s0").name)
    await broker.settle()
    assert [text[:6] for text in reader.texts] == [body[:6], "second"]
    assert client.receipts() == ["first", "second"]


@scenario
async def test_frames_behind_a_body_that_goes_to_a_file_are_put_off_in_turns(monkeypatch):
    broker = await Broker.start()
    client, turns = Client(serve(broker)), broker.engine.budget
    await broker.settle()
    put_off, take = Counter(), Uploads.take

    def counting(uploads, frames):
        put_off[turns.turns] += len(frames)
        take(uploads, frames)

    monkeypatch.setattr(Uploads, "take", counting)
    body = frame("SEND", "x" * 200_000, destination="/queue/q", receipt="body")
    pair = b"BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\n\n\0"
    client.connection.data_received(body + TURN // budget.PART * pair)
    await broker.settle()
    assert client.receipts() == ["body"]
    assert max(put_off.values()) <= TURN // budget.PART + PIECE_BYTES // len(pair)


@scenario
async def test_what_is_wrong_behind_frames_that_wait_is_said_behind_their_receipts():
    broker = await Broker.start()
    client = Client(serve(broker))
    client.connection.data_received(sends(3 * FRAMES) + b"NONSENSE\n\n\0")
    client.connection.data_received(sends(1, "/queue/late"))
    assert client.errors() == []
    await broker.settle()
    assert client.errors()
    assert "late" not in broker.engine.queues
    assert len(broker.engine.queues["q"].messages) == 3 * FRAMES


@scenario
async def test_what_waits_of_a_connection_that_was_cut_is_not_taken():
    broker = await Broker.start()
    client = Client(serve(broker))
    client.connection.data_received(sends(5 * FRAMES))
    client.wire.reset = True
    await broker.settle()
    assert client.wire.closed
    assert FRAMES <= len(broker.engine.queues["q"].messages) < 2 * FRAMES


@scenario
async def test_what_waits_at_the_end_of_the_stream_is_taken():
    broker = await Broker.start()
    client = Client(serve(broker))
    assert not client.connection.eof_received()
    client.connection.data_received(sends(5 * FRAMES))
    assert client.connection.eof_received()
    await broker.settle()
    assert len(broker.engine.queues["q"].messages) == 5 * FRAMES
    assert client.wire.closed


@pytest.mark.parametrize("end", [b"NONSENSE\n\n\0", b""], ids=["error", "end"])
@pytest.mark.parametrize("spent", [TURN, 0], ids=["later", "at once"])
@scenario
async def test_a_body_that_goes_to_a_file_is_taken_before_the_connection_ends(end, spent):
    broker = await Broker.start()
    client = Client(serve(broker))
    await broker.settle()
    broker.engine.budget.spend(spent)
    first = frame("SEND", "x" * 200_000, destination="/queue/q", receipt="first")
    client.connection.data_received(first + sends(3) + end)
    if not end:
        assert client.connection.eof_received()
    while not client.wire.closed:
        await broker.settle()
    await broker.settle()
    assert len(broker.engine.queues["q"].messages) == 4
    assert len(client.errors()) == bool(end)


@scenario
async def test_a_stop_takes_no_frame_that_waits():
    broker = await Broker.start()
    server = serve(broker)
    client = Client(server)
    client.connection.data_received(sends(5 * FRAMES))
    server.quiesce()
    await broker.settle()
    assert FRAMES <= len(broker.engine.queues["q"].messages) < 2 * FRAMES
    assert client.receipts() == [f"r{n}" for n in range(len(broker.engine.queues["q"].messages))]


@scenario
async def test_sends_that_waited_for_room_go_on_in_turns():
    broker = await Broker.start(made_of=settings(max_size_bytes=800_000, address_full_policy="BLOCK"))
    client = Client(serve(broker))
    count = 3 * TURN // FRAME
    await broker.settle()
    broker.send("x" * 800_000)
    await broker.settle()
    client.say("SUBSCRIBE", id="s", destination="/queue/elsewhere")  # so it is read on
    client.connection.data_received(sends(count))
    await broker.settle()
    assert client.receipts() == []
    taken = []
    send = broker.engine.send
    broker.engine.send = lambda *given: taken.append(broker.engine.budget.turns) or send(*given)
    reader = broker.consume(auto=True)
    await broker.settle()
    assert client.receipts() == [f"r{n}" for n in range(count)]
    assert max(map(taken.count, taken)) <= TURN // FRAME + 1
    assert len(reader.texts) == count + 1


# ---------------------------------------------------------------------------------------- selectors


class Asked:
    """Which selectors were asked, in which turn."""

    def __init__(self, monkeypatch, turns):
        self.asked = []
        matches = Selector.matches

        def watched(selector, headers):
            self.asked.append((turns.turns, selector.text))
            return matches(selector, headers)

        monkeypatch.setattr(Selector, "matches", watched)

    def most_in_a_turn(self):
        turns = [turn for turn, _ in self.asked]
        return max(map(turns.count, turns))


LARGE = " OR ".join(f"b{n} = 'x'" for n in range(100))


def large(number):
    return f"a{number} = 'y' OR {LARGE}"


A_TURN = TURN // (budget.TEST + compile_selector(large(0)).terms) + 2
"""How many such a turn has room for."""


@scenario
@pytest.mark.slow
async def test_many_selectors_are_asked_in_turns_and_the_send_is_one_entry(monkeypatch):
    broker = await Broker.start()
    server = serve(broker, max_selector_terms=1000)
    engine = broker.engine
    for number in range(3 * A_TURN):
        engine.bind(Subscription("t", f"s{number}", "c", large(number), durable=True))
    await broker.settle()
    sent = []
    send = engine.send
    engine.send = lambda target, *more: sent.append(target) or send(target, *more)
    one, other = Client(server), Client(server)
    asked = Asked(monkeypatch, engine.budget)
    one.connection.data_received(
        frame("SEND", "first", destination=TOPIC, receipt="1", a3="y")
        + frame("SEND", "second", destination="/queue/q", receipt="2")
    )
    other.say("SEND", "between", destination="/queue/other", receipt="mine")
    await broker.settle()
    assert sent == ["other", TOPIC, "q"]  # what is behind it waits, and others do not
    assert one.receipts() == ["1", "2"]
    assert other.receipts() == ["mine"]
    assert len(asked.asked) == len(set(asked.asked)) == 3 * A_TURN
    assert asked.most_in_a_turn() <= A_TURN
    holders = [queue for queue in engine.queues.values() if queue.subscription and len(queue)]
    assert [queue.subscription.name for queue in holders] == ["s3"]


@scenario
@pytest.mark.slow
async def test_subscriptions_that_come_and_go_while_selectors_are_asked(monkeypatch):
    broker = await Broker.start()
    engine = broker.engine
    client = Client(serve(broker, max_selector_terms=1000))
    for number in range(3 * A_TURN):
        engine.bind(Subscription("t", f"s{number}", "c", large(number), durable=True))
    await broker.settle()
    asked = Asked(monkeypatch, engine.budget)
    client.say("SEND", "m", destination=TOPIC, receipt="1", a2="y", new="y")
    assert 0 < len(asked.asked) < 3 * A_TURN
    engine.drop(named(engine, "s2"))
    late = engine.bind(Subscription("t", "late", "c", "new = 'y'", durable=True))
    unwilling = engine.bind(Subscription("t", "unwilling", "c", "new = 'z'", durable=True))
    everything = engine.bind(Subscription("t", "all", "c", durable=True))
    await broker.settle()
    assert client.receipts() == ["1"]
    assert (len(late), len(unwilling), len(everything)) == (1, 0, 1)
    assert [queue.name for queue in engine.queues.values() if len(queue)] == [late.name, everything.name]


@scenario
async def test_a_topic_that_ends_and_begins_anew_while_selectors_are_asked():
    broker = await Broker.start()
    engine = broker.engine
    for number in range(2):
        engine.bind(Subscription("t", f"s{number}", "c", large(number), durable=True))
    message = Message(TOPIC, b"a0:y\nnew:y\n", b"m")
    testing = engine.topics.testing(TOPIC, message)
    next(testing)
    for number in range(2):
        engine.drop(named(engine, f"s{number}"))
    new = engine.bind(Subscription("t", "new", "c", "new = 'y'", durable=True))
    assert list(testing) == [None]
    engine.send(TOPIC, message)
    await broker.settle()
    assert len(new) == 1


@scenario
@pytest.mark.slow
async def test_a_send_that_is_being_tested_when_the_broker_stops_is_not_taken():
    broker = await Broker.start()
    server = serve(broker, max_selector_terms=1000)
    client = Client(server)
    for number in range(2 * A_TURN):
        broker.engine.bind(Subscription("t", f"s{number}", "c", large(number), durable=True))
    await broker.settle()
    client.say("SEND", "m", destination=TOPIC, receipt="1", a1="y")
    server.quiesce()
    await broker.settle()
    assert client.receipts() == client.errors() == []
    assert not any(len(queue) for queue in broker.engine.queues.values())


@pytest.mark.slow
@scenario
async def test_a_commit_asks_selectors_in_turns_and_is_still_one_entry(monkeypatch):
    broker = await Broker.start()
    engine = broker.engine
    client = Client(serve(broker, max_selector_terms=1000))
    queues = [
        engine.bind(Subscription("t", f"s{number}", "c", large(number), durable=True))
        for number in range(2 * A_TURN)
    ]
    await broker.settle()
    asked = Asked(monkeypatch, engine.budget)
    appended = []
    append = engine.journal.append
    engine.journal.append = lambda operations: appended.append(len(operations)) or append(operations)
    client.connection.data_received(
        frame("BEGIN", transaction="x")
        + b"".join(frame("SEND", str(n), destination=TOPIC, transaction="x", a1="y") for n in range(4))
        + frame("COMMIT", transaction="x", receipt="c")
        + frame("SEND", "behind", destination="/queue/q", receipt="behind")
    )
    await broker.settle()
    assert client.receipts() == ["c", "behind"]
    assert asked.most_in_a_turn() <= A_TURN
    assert len(asked.asked) == 8 * A_TURN
    assert len(queues[1]) == 4
    assert appended == [4, 1, 1]  # the commit, the queue, the send


@scenario
@pytest.mark.slow
async def test_a_commit_that_is_being_tested_is_undone_with_its_connection():
    broker = await Broker.start()
    engine = broker.engine
    for number in range(2 * A_TURN):
        engine.bind(Subscription("t", f"s{number}", "c", large(number), durable=True))
    broker.send("held")
    await broker.settle()
    for end in ("lost", "quiesced"):
        server = serve(broker, max_selector_terms=1000)
        client = Client(server)
        client.say("SUBSCRIBE", id="s", destination="/queue/q", ack="client-individual")
        await broker.settle()
        ack = client.frames()[-1].headers["ack"]
        client.connection.data_received(
            frame("BEGIN", transaction="x")
            + frame("SEND", "never", destination=TOPIC, transaction="x", a1="y")
            + frame("ACK", id=ack, transaction="x")
            + frame("COMMIT", transaction="x", receipt="c")
        )
        if end == "lost":
            client.lose()
        else:
            server.quiesce()
        await broker.settle()
        assert client.receipts() == client.errors() == []
        assert [one.body for one in engine.queues["q"].messages.values()] == [b"held"]
        assert not any(len(queue) for queue in engine.queues.values() if queue.subscription)
        assert engine.queues["q"].messages[next(iter(engine.queues["q"].messages))].deliveries


@pytest.mark.slow
@scenario
async def test_consumers_with_selectors_are_asked_in_turns_however_many_queues_there_are(monkeypatch):
    broker = await Broker.start()
    engine = broker.engine
    for number in range(3 * A_TURN):
        broker.consume(f"q{number % 7}", selector=compile_selector(large(number)))
    asked = Asked(monkeypatch, engine.budget)
    for number in range(7):
        broker.send("nobody's", queue=f"q{number}")
    await broker.settle()
    assert len(asked.asked) == 3 * A_TURN
    assert asked.most_in_a_turn() <= A_TURN + 7


@scenario
async def test_deliveries_are_made_in_turns_and_in_order():
    broker = await Broker.start()
    engine = broker.engine
    count = 3 * TURN // budget.DELIVERY
    for number in range(count):
        broker.send(str(number))
    await broker.settle()
    turns = []
    reader = broker.consume(window=2 * count)
    deliver = reader.consumer.deliver
    reader.consumer.deliver = lambda delivery: turns.append(engine.budget.turns) or deliver(delivery)
    await broker.settle()
    assert reader.texts == [str(number) for number in range(count)]
    assert max(map(turns.count, turns)) <= TURN // budget.DELIVERY + 1


@scenario
async def test_a_client_with_one_frame_does_not_stand_behind_the_dispatch_of_many_queues():
    broker = await Broker.start()
    engine = broker.engine
    one = Client(serve(broker))
    queues = [f"q{number}" for number in range(4 * TURN // budget.DELIVERY)]
    readers = [broker.consume(queue) for queue in queues]
    transaction = Transaction()
    for queue in queues:
        transaction.send(queue, Message(queue, b"", b"x", None))
    engine.commit(transaction)
    while not any(reader.got for reader in readers):
        await asyncio.sleep(0)
        await engine.journal.flush()
    engine.budget.spend(max(engine.budget.left, 0))  # whoever comes now stands in line
    one.say("SEND", "x", destination="/queue/other", receipt="mine")
    asked_in = engine.budget.turns
    while "other" not in engine.queues:
        await asyncio.sleep(0)
    assert engine.budget.turns == asked_in + 1
    assert not all(reader.got for reader in readers)
    await broker.settle()
    assert [reader.texts for reader in readers] == [["x"]] * len(queues)


@scenario
async def test_queues_that_one_entry_wakes_stand_in_line_when_its_arrivals_took_the_turn():
    broker = await Broker.start()
    engine = broker.engine
    queues = [f"q{number}" for number in range(TURN // budget.ARRIVAL + 1)]
    readers = [broker.consume(queue) for queue in queues]
    await broker.settle()
    transaction, in_line = Transaction(), []
    for queue in queues:
        transaction.send(queue, Message(queue, b"", b"x", None))
    engine.commit(transaction, lambda: in_line.append(len(engine.budget._lines[Line.DELIVERIES])))
    await broker.settle()
    assert in_line == [len(queues)]
    assert all(reader.texts == ["x"] for reader in readers)


@scenario
async def test_what_follows_many_durable_entries_is_done_in_turns_and_in_order():
    broker = await Broker.start()
    engine, turns = broker.engine, []
    count = 3 * TURN // budget.COMPLETION

    for number in range(count):
        engine.gate.when_durable(1, lambda number=number: turns.append((engine.budget.turns, number)))
    engine.gate.when_durable(1, engine.abandon)
    engine.gate.when_durable(1, lambda: turns.append((0, "after the end")))
    broker.send("x")
    await broker.settle()
    assert [number for _, number in turns] == list(range(count))
    per_turn = Counter(turn for turn, _ in turns)
    assert len(per_turn) >= 3
    assert max(per_turn.values()) <= TURN // budget.COMPLETION + 1


# -------------------------------------------------------------------------------------- connections


@pytest.mark.parametrize("how", ["lost", "disconnect"])
@scenario
async def test_a_connection_with_many_subscriptions_leaves_in_turns(how):
    broker = await Broker.start()
    engine = broker.engine
    client = Client(serve(broker, max_subscriptions=100_000))
    count = 3 * TURN // budget.CONSUMER_END
    for number in range(count):
        client.say("SUBSCRIBE", id=str(number), destination="/queue/q", ack="client-individual")
    await broker.settle()
    queue = engine.queues["q"]
    broker.send("held")
    await broker.settle()
    (body,) = client.bodies()
    left = []
    unsubscribe = engine.unsubscribe
    engine.unsubscribe = lambda consumer: left.append(engine.budget.turns) or unsubscribe(consumer)
    if how == "lost":
        client.lose()
    else:
        client.say("DISCONNECT", receipt="bye")
    assert 0 < len(queue.consumers) < count
    other = broker.consume()
    broker.send("later")
    await broker.settle()
    assert len(left) == count
    assert max(map(left.count, left)) <= TURN // budget.CONSUMER_END + 1
    assert other.texts in (["held", "later"], ["later", "held"])  # nothing went to who has gone
    assert client.bodies() == [body]
    assert list(queue.consumers) == [other.consumer]
    assert client.receipts() == ([] if how == "lost" else ["bye"])


@scenario
async def test_a_client_that_comes_back_at_once_gets_the_subscriptions_it_has_not_left_yet():
    broker = await Broker.start()
    server = serve(broker, max_subscriptions=100_000, max_durable_subscriptions=100_000)
    count = 3 * TURN // budget.CONSUMER_END
    names = [
        {"id": str(n), "destination": f"/topic/{n % 7}", "durable_subscription_name": f"s{n}"}
        for n in range(count)
    ]
    first = Client(server, client_id="c")
    for headers in names:
        first.say("SUBSCRIBE", **headers)
    await broker.settle()
    again = Client(server, client_id="c")
    assert first.errors()
    again.say("SUBSCRIBE", **names[-1], receipt="last")
    again.say("UNSUBSCRIBE", id="none", durable_subscription_name=names[-2]["durable_subscription_name"])
    await broker.settle()
    assert again.errors() == []
    assert again.receipts() == ["last"]
    assert named(broker.engine, f"s{count - 2}") is None


@scenario
async def test_an_engine_that_stops_waits_for_nobody_who_leaves():
    broker = await Broker.start()
    server = serve(broker, max_subscriptions=100_000)
    client = Client(server)
    for number in range(3 * TURN // budget.CONSUMER_END):
        client.say("SUBSCRIBE", id=str(number), destination="/topic/x", ack="client-individual")
    await broker.settle()
    client.lose()
    again = await broker.restart()
    assert not any(queue.subscription for queue in again.engine.queues.values())


@scenario
async def test_a_temporary_queue_with_messages_leaves_no_garbage_with_its_connection():
    broker = await Broker.start()
    server = serve(broker)
    gc.collect()
    gc.disable()
    try:
        for destination in ("/temp-queue/t", TOPIC):
            client = Client(server)
            client.say("SUBSCRIBE", id="s", destination=destination, ack="client")
            client.say("SEND", "m", destination=destination)
            await broker.settle()
            client.connection.connection_lost(None)
            await broker.settle()
        assert not broker.engine._dropped.queues
        left = [thing for thing in gc.get_objects() if isinstance(thing, QueueConsumer)]
        assert left == []
    finally:
        gc.enable()


# -------------------------------------------------------------------------------------------- scans


class Removed:
    """How many messages were removed, in which turn."""

    def __init__(self, engine):
        self.removed = {}
        removals = engine.paging.removals

        def watched(messages):
            turn = engine.budget.turns
            self.removed[turn] = self.removed.get(turn, 0) + len(messages)
            return removals(messages)

        engine.paging.removals = watched


@scenario
async def test_subscriptions_that_are_dropped_together_are_emptied_in_turns():
    broker = await Broker.start()
    engine = broker.engine
    queues = [engine.bind(Subscription("t", f"s{number}")) for number in range(40)]
    for _ in range(600):
        engine.send(TOPIC, Message(TOPIC, b"", b"m"))
    await broker.settle()
    removed = Removed(engine)
    for queue in queues:
        engine.drop(queue)
    await broker.settle()
    assert sum(removed.removed.values()) == 24_000
    assert max(removed.removed.values()) <= TURN // budget.REMOVAL + CHUNK
    assert not engine._dropped.queues


@scenario
async def test_what_expires_in_many_queues_at_one_time_is_moved_in_turns():
    time_s = [0.0]
    broker = await Broker.start(
        made_of=settings(expiry_address="", expiry_delay=1000), clock=lambda: time_s[0]
    )
    engine = broker.engine
    for number in range(10_000):
        engine.send(f"q{number % 50}", Message(f"q{number % 50}", b"", b"m"))
    await broker.settle()
    removed = Removed(engine)
    time_s[0] = 10.0
    engine._expiry_scan._begin()
    while engine._expiry_scan._queues:
        await asyncio.sleep(0)
    await broker.settle()
    assert sum(removed.removed.values()) == 10_000
    assert max(removed.removed.values()) <= TURN // budget.REMOVAL + 200


@scenario
async def test_what_was_consumed_before_it_expired_is_forgotten_in_turns():
    """The entries of messages that are gone are work, too."""
    time_s = [0.0]
    broker = await Broker.start(made_of=settings(expiry_delay=1000), clock=lambda: time_s[0])
    engine = broker.engine
    names = [f"q{number}" for number in range(30)]
    readers = [broker.consume(name, auto=True) for name in names]
    for number in range(400):
        for name in names:
            engine.send(name, Message(name, b"", b"%d" % number))
        await broker.settle()
    assert all(len(reader.texts) == 400 for reader in readers)

    def entries():
        return sum(len(engine.queues[name].expiring) for name in names)

    assert entries() == 30 * 400
    time_s[0] = 10.0
    engine._expiry_scan._begin()
    looked_at = Counter()
    while left := entries():
        turn = engine.budget.turns
        await asyncio.sleep(0)
        looked_at[turn] += left - entries()
    assert max(looked_at.values()) <= TURN // budget.REMOVAL + SCANNED


class CallsByTurn:
    """Counts the calls of a method of all queues in each turn."""

    def __init__(self, monkeypatch, method, turns):
        self.counts = Counter()
        real = getattr(Queue, method)

        def watched(queue, *arguments):
            self.counts[turns.turns] += 1
            return real(queue, *arguments)

        monkeypatch.setattr(Queue, method, watched)


@scenario
async def test_what_is_due_at_one_time_in_many_queues_is_lined_up_in_turns(monkeypatch):
    time_s = [0.0]
    broker = await Broker.start(clock=lambda: time_s[0])
    engine = broker.engine
    names = [f"q{number}" for number in range(40)]
    for number in range(200):
        for name in names:
            message = Message(name, b"", b"%d" % number, properties=Properties(due=60_000))
            engine.send(name, message)
    await broker.settle()
    lined_up = CallsByTurn(monkeypatch, "_line_up", engine.budget)
    time_s[0] = 60.0
    for name in names:
        engine.queues[name]._look_for_due()
    while any(engine.budget._lines):
        await asyncio.sleep(0)
    assert lined_up.counts.total() == 8_000
    assert max(lined_up.counts.values()) <= TURN // budget.ARRIVAL + 1
    reader = broker.consume("q0")
    await broker.settle()
    assert reader.texts == [str(number) for number in range(200)]


@scenario
async def test_what_was_refused_at_one_time_comes_back_in_turns(monkeypatch):
    broker = await Broker.start(made_of=settings(redelivery_delay=1))
    queue = broker.engine.queue("q")
    for number in range(5_000):
        broker.send(str(number))
    reader = broker.consume(window=5_000)
    await broker.settle()
    reader.nack(*reader.texts)
    put_back = CallsByTurn(monkeypatch, "_put_back", broker.engine.budget)
    await broker.settle()
    while any(lane.delayed for lane in (queue._plain, *queue.lanes.values())):
        await asyncio.sleep(0.001)
    assert put_back.counts.total() == 5_000
    assert max(put_back.counts.values()) <= TURN // budget.ARRIVAL + 1


@scenario
async def test_queues_with_nothing_due_do_not_keep_a_scan_from_those_behind_them():
    time_s = [0.0]
    broker = await Broker.start(made_of=settings(expiry_address=""), clock=lambda: time_s[0])
    engine = broker.engine
    count = 2 * TURN // budget.VISIT
    for number in range(count):
        due = Properties(expires=5000 if number == count - 1 else 10**9)
        engine.send(f"q{number}", Message(f"q{number}", b"", b"m", properties=due))
    await broker.settle()
    time_s[0] = 10.0
    before = engine.budget.left
    engine._expiry_scan._begin()
    assert 0 <= before - SHARE - engine.budget.left < budget.VISIT
    assert len(engine.queues[f"q{count - 1}"].messages) == 1
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(engine.queues[f"q{count - 1}"].messages) == 0
    assert len(engine.queues["q0"].messages) == 1
