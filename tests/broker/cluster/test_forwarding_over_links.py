"""A message crosses links once, as it is, whatever answer is lost."""

import asyncio
import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sites import CALL_TIMEOUT_S, TTL_S, Road, Site, body
from stateful.machines import CHECKS, factor
from stateful.virtual_loop import VirtualLoop

from broker.cluster import bridge as bridges
from broker.cluster import messages as m
from broker.cluster.arrivals import Arrivals
from broker.cluster.blobs import WINDOW_BYTES, BlobSender
from broker.cluster.link import LinkError
from broker.core.identity import MessageId
from broker.core.properties import DEFAULT_PRIORITY, Properties
from broker.section import HOPS_MAX
from broker.storage.blobs import CHUNK, Blob
from broker.storage.directory import DirectoryVolume

LIFE_S = 10_000
"""Longer than any journey."""
DELAY_S = 2
MIB = 1024 * 1024


def run(scenario):
    loop = VirtualLoop()
    try:
        return loop.run(scenario(loop))
    finally:
        loop.discard()
        assert not loop.complaints, loop.complaints


async def until(condition, what, seconds=120.0):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Sent:
    """A message at the first broker: a router sends it on at once, or it is moved on later.

    One with ``refusals`` had been refused at another broker, from which it came.
    """

    routed: bool
    group: str | None
    closes: bool
    refusals: int
    size: int
    priority: int
    delayed: bool
    expires: bool

    async def send(self, site, text):
        now_ms = site.engine.now()
        asked = Properties(
            self.priority,
            now_ms + LIFE_S * 1000 if self.expires else 0,
            now_ms + DELAY_S * 1000 if self.delayed else 0,
        )
        message = await site.message(
            text,
            self.size,
            headers=b"routed:1\n" if self.routed else b"",
            group=self.group,
            closes=self.closes,
            properties=None if asked == Properties() else asked,
        )
        if self.refusals:
            message.identity = MessageId("elsewhere", int(text), 3)
            message.deliveries, message.refusals = self.refusals + 1, self.refusals
            site.engine.accept_forwarded("elsewhere", [message])
        else:
            site.engine.send("q", message)


@st.composite
def sends(draw):
    group = draw(st.sampled_from([None, None, "g", "h"]))
    routed = group is None and draw(st.booleans())
    return Sent(
        routed=routed,
        group=group,
        closes=group is not None and draw(st.booleans()),
        refusals=0 if routed else draw(st.sampled_from([0, 0, 1, 2])),
        size=draw(st.sampled_from([0, 0, 0, CHUNK - 1, 3 * CHUNK])),
        priority=draw(st.sampled_from([4, 4, 0, 9])),
        delayed=draw(st.sampled_from([False, False, False, True])),
        expires=draw(st.booleans()),
    )


class Routed:
    """Sends to the broker b what says so in its headers."""

    def route(self, queue, message):
        return "b" if message.headers.startswith(b"routed") else None


def text_of(message):
    return message.headers.rpartition(b"text:")[2].decode().strip()


def dispatched(messages):
    """The order in which a queue without groups gives these out if all of them wait."""
    ranks = dict.fromkeys(messages, DEFAULT_PRIORITY)
    ranks |= {
        message: message.properties.priority
        for message in messages
        if message.properties is not None and message.group is None
    }
    return sorted(messages, key=lambda message: -ranks[message])


async def told(site, messages, *, moved=0):
    """What these messages are, by text, in this order; ``moved`` is added to their moves."""
    found = {}
    for message in messages:
        known = message.identity_at(site.name)
        found[text_of(message)] = (
            MessageId(known.origin, known.record, known.moves + moved),
            message.target,
            message.group,
            message.closes,
            message.deliveries,
            message.refusals,
            message.properties,
            message.headers,
            await site.content(message),
        )
    assert len(found) == len(messages), "a message arrived twice"
    return found


async def hop(sender, receiver, lost):
    """Forward all that waits: what arrived, and how many answers there were."""
    before = sender.stored(sender.forwarding_queue(receiver))
    expected = await told(sender, dispatched(before))
    waited = {text_of(message) for message in before if due(message) and message.identity is None}
    road = Road(sender, receiver, lost=lost)
    await until(lambda: not sender.stored(sender.forwarding_queue(receiver)), "all is forwarded")
    road.stop()
    await asyncio.sleep(1)
    arrived = await told(receiver, receiver.stored())
    assert arrived == expected
    # What was delayed in this queue has its place from the moment at which it was due.
    order = [text for text in expected if text not in waited]
    assert [text for text in arrived if text not in waited] == order, "not in the order of the queue"
    assert not sender.engine.large.store.stored, "a body that was forwarded is still there"
    large = [message.large for message in receiver.stored() if message.large is not None]
    assert sorted(receiver.engine.large.store.stored) == sorted(large)
    assert set(await receiver.engine.large.store.medium.sizes()) == {blob.id for blob in large}
    return arrived, road.answers


async def move(site, other):
    """Move all from the main queue on, also what is delayed; its order there is another matter."""
    before = await told(site, site.stored(), moved=1)
    mover = site.mover(other)
    await until(lambda: not site.stored(), "all is moved")
    site.engine.unsubscribe(mover)
    moved = site.stored(site.forwarding_queue(other))
    found = await told(site, [message for message in moved if text_of(message) in before])
    assert found == before
    await until(lambda: site.engine.now() >= max(map(due, moved), default=0), "nothing is delayed")


def due(message):
    return 0 if message.properties is None else message.properties.due


async def journey(plan, lost=(None, None)):
    """From a over b to c; the numbers of answers on the two hops."""
    a = await Site.start("a", router=Routed())
    b = await Site.start("b")
    c = await Site.start("c")
    for number, sent in enumerate(plan):
        await sent.send(a, str(number))
    await a.engine.flushed()
    await move(a, b)
    there, first = await hop(a, b, lost[0])
    await move(b, c)
    arrived, second = await hop(b, c, lost[1])
    assert sorted(there) == sorted(arrived) == sorted(map(str, range(len(plan))))
    # As it arrives, so it had been sent.
    for number, sent in enumerate(plan):
        identity, target, group, closes, deliveries, refusals, properties, _, content = arrived[str(number)]
        asked = properties or Properties()
        assert target == "q"
        assert identity.moves == (5 if sent.refusals else 1 if sent.routed else 2)
        assert (group, closes, asked.priority) == (sent.group, sent.closes, sent.priority)
        assert (bool(asked.expires), bool(asked.due)) == (sent.expires, sent.delayed)
        assert (deliveries, refusals) == ((sent.refusals + 1, sent.refusals) if sent.refusals else (0, 0))
        assert content == (body(str(number), sent.size) if sent.size else str(number).encode())
    return first, second


@settings(max_examples=20 * factor(), deadline=None, suppress_health_check=CHECKS)
@given(st.lists(sends(), min_size=1, max_size=6))
def test_each_message_arrives_once_as_it_was_over_two_hops_whatever_answer_is_lost(plan):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bridges, "BATCH", 2)
        first, second = run(lambda _: journey(plan))
        for lost in range(first):
            assert run(lambda _, lost=lost: journey(plan, (lost, None)))[0] > first
        for lost in range(second):
            assert run(lambda _, lost=lost: journey(plan, (None, lost)))[1] > second


async def passed_on(lost):
    """Send a large message and two others from a to c over b; one answer to a is lost."""
    a, b, c = [await Site.start(name) for name in "abc"]
    for text, size in (("1", 0), ("2", 3 * CHUNK), ("3", 0)):
        a.engine.send("q", await a.message(text, size))
    await a.engine.flushed()
    await move(a, c)
    b.reached.add("c")
    road = Road(a, b, destination=c, lost=lost)
    await until(lambda: not a.stored(a.forwarding_queue(c)), "all is at b")
    road.stop()
    between = b.stored(b.forwarding_queue(c))
    assert [(text_of(message), message.identity.hops) for message in between] == [
        ("1", 1),
        ("2", 1),
        ("3", 1),
    ]
    assert not b.stored()
    road = Road(b, c)
    await until(lambda: not b.stored(b.forwarding_queue(c)), "all is at c")
    road.stop()
    await c.engine.flushed()
    assert [(text_of(message), message.identity.hops) for message in c.stored()] == [
        ("1", 0),
        ("2", 0),
        ("3", 0),
    ]
    assert await c.content(c.stored()[1]) == body("2", 3 * CHUNK)
    assert not b.engine.large.store.stored
    return road.answers


@pytest.mark.parametrize("lost", [None, 0, 1, 2, 3])
def test_what_a_broker_in_between_passes_on_arrives_once_in_its_order(lost):
    run(lambda _: passed_on(lost))


def test_bodies_for_two_destinations_do_not_mix_on_their_common_link():
    async def scenario(_):
        a, b, c, d = [await Site.start(name) for name in "abcd"]
        b.reached.update("cd")
        for number, other in enumerate((c, d, c, d)):
            a.engine.send("q", await a.message(str(number), 3 * CHUNK))
            await a.engine.flushed()
            await move(a, other)
        road = Road(a, b, destination=c)
        road.share(d)
        for other in (c, d):
            await until(lambda other=other: not a.stored(a.forwarding_queue(other)), "all is at b")
        road.stop()
        assert (road.links, road.answers) == (1, 8)  # two for each message

    run(scenario)


def test_a_broker_without_a_way_to_the_destination_takes_nothing(caplog):
    async def scenario(loop):
        a, b, c = [await Site.start(name) for name in "abc"]
        a.engine.send("q", await a.message("1"))
        await a.engine.flushed()
        await move(a, c)
        road = Road(a, b, destination=c)
        await until(lambda: road.answers == 2, "it was tried twice")
        assert not b.engine.queues
        b.reached.add("c")
        await until(lambda: not a.stored(a.forwarding_queue(c)), "it is at b")
        road.stop()

    with caplog.at_level("INFO"):
        run(scenario)
    assert "there is no way to node c from here" in caplog.text


def test_a_message_that_was_passed_on_too_often_is_passed_on_no_further(caplog):
    async def scenario(loop):
        a, b, c = [await Site.start(name) for name in "abc"]
        message = await a.message("1")
        message.identity = MessageId("first", 1)
        for _ in range(HOPS_MAX):
            message.identity = message.identity.passed()
        a.engine.accept_forwarded("first", [message], passing=a.forwarding_queue(c))
        await a.engine.flushed()
        road = Road(a, b, destination=c)
        b.reached.add("c")
        await until(lambda: road.answers == 2, "it was tried twice")
        assert not b.engine.queues
        road.stop()

    with caplog.at_level("INFO"):
        run(scenario)
    assert f"a message was passed on {HOPS_MAX} times" in caplog.text


def test_no_more_bytes_than_a_window_are_taken_out_for_a_broker_that_does_not_answer():
    async def scenario(loop):
        a, b = await sites()
        for number in range(60):
            message = await a.message(str(number), headers=b"padding:" + 100_000 * b"x" + b"\n")
            a.engine.send(a.forwarding_queue(b), message)
        await a.engine.flushed()
        requests = []
        accept = b.handlers[m.ForwardRequest]
        b.handlers[m.ForwardRequest] = lambda *request: requests.append(request)
        road = Road(a, b)
        await until(lambda: requests, "a request has arrived")
        (consumer,) = a.engine.queues[a.forwarding_queue(b)].consumers
        taken = sum(delivery.message.size for delivery in consumer.unacknowledged.values())
        assert bridges.WINDOW_BYTES <= taken <= bridges.WINDOW_BYTES + 101_000
        sent = sum(len(envelope.headers) for envelope in requests[0][1].messages)
        assert sent <= bridges.BATCH_BYTES
        b.handlers[m.ForwardRequest] = accept
        accept(*requests[0])
        await arrived(b, *map(str, range(60)))
        road.stop()

    run(scenario)


class Watched(Road):
    """Counts chunks, and the bytes of bodies that nobody has said to be taken."""

    def __init__(self, *sites, **more):
        self.chunks = self.under_way = self.most_under_way = 0
        super().__init__(*sites, **more)

    def connect(self):
        super().connect()
        send = self.link.send

        def say(message):
            send(message)
            if isinstance(message, m.BlobChunk):
                self.chunks += 1
                self.under_way += len(message.data)
                self.most_under_way = max(self.most_under_way, self.under_way)

        self.link.send = say

    def _told(self, link, message):
        if isinstance(message, m.BlobTaken):
            self.under_way -= message.count
        super()._told(link, message)


async def sites(*messages, **address):
    """Two brokers; the first has these messages for the second: (text, bytes of the body)."""
    a, b = await Site.start("a"), await Site.start("b", **address)
    for text, size in messages:
        a.engine.send(a.forwarding_queue(b), await a.message(text, size))
    await a.engine.flushed()
    return a, b


async def arrived(site, *texts):
    await until(
        lambda: [text_of(message) for message in site.stored()] == list(texts), f"{texts} at {site.name}"
    )


def test_a_body_is_not_sent_again_for_a_message_that_was_taken():
    async def scenario(_):
        a, b = await sites(("x", 5 * CHUNK))
        road = Watched(a, b, lost=1)
        await until(lambda: road.answers == 4, "asked and forwarded twice")
        await until(lambda: not a.stored(a.forwarding_queue(b)), "confirmed")
        await arrived(b, "x")
        assert road.chunks == 5
        assert len(b.engine.large.store.stored) == 1

    run(scenario)


def test_no_body_is_sent_to_a_queue_without_room():
    async def scenario(_):
        a, b = await sites(("x", 5 * CHUNK), max_size_bytes=1000, address_full_policy="BLOCK")
        b.engine.send("q", await b.message("y" * 2000))
        await b.engine.flushed()
        road = Watched(a, b)
        await until(lambda: road.answers >= 3, "asked and refused several times")
        assert not road.chunks
        assert [text_of(message) for message in a.stored(a.forwarding_queue(b))] == ["x"]
        held = []
        b.engine.subscribe("q", held.append)
        await until(lambda: held, "what fills the queue")
        b.engine.acknowledge(held)
        await until(lambda: not a.stored(a.forwarding_queue(b)), "confirmed")
        assert road.chunks == 5

    run(scenario)


def test_a_large_message_whose_queue_fills_up_while_its_body_comes_is_taken():
    async def scenario(_):
        a, b = await sites(("x", 40 * CHUNK), max_size_bytes=1000, address_full_policy="BLOCK")
        road = Watched(a, b, latency_s=0.02)
        await until(lambda: road.chunks, "some of it is on the way")
        b.engine.send("q", await b.message("y" * 2000))
        await until(lambda: not a.stored(a.forwarding_queue(b)), "confirmed")
        assert road.chunks == 40

    run(scenario)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_body_whose_link_is_lost_on_the_way_is_sent_again_and_leaves_no_file(taken):
    async def scenario(loop):
        a, b = await sites(("x", 40 * CHUNK))
        road = Watched(a, b, latency_s=0.02)
        await until(lambda: road.chunks > taken, "some of it is on the way", seconds=10)
        road.pipe.cut()
        cut = loop.time()
        await until(lambda: road.links == 2 and road.chunks > 40, "it is sent again")
        assert loop.time() - cut < CALL_TIMEOUT_S
        await arrived(b, "x")
        (message,) = b.stored()
        assert await b.content(message) == body("x", 40 * CHUNK)
        assert list(await b.engine.large.store.medium.sizes()) == [message.large.id]
        assert road.links == 2

    run(scenario)


def test_a_body_that_the_other_broker_does_not_take_is_sent_again():
    """It stops while a body comes, goes on as another one, and the link lives: as in a failback."""

    async def scenario(loop):
        a, b = await sites(("x", 40 * CHUNK))
        road = Watched(a, b, latency_s=0.02)
        await until(lambda: road.chunks, "some of it is on the way")
        b.arrivals.stop()
        await asyncio.sleep(1)
        assert not await b.engine.large.store.medium.sizes(), "half a body is still there"
        b.arrivals = Arrivals(b.engine, b.handlers)
        began = loop.time()
        await arrived(b, "x")
        assert CALL_TIMEOUT_S - 1 < loop.time() - began < 2 * CALL_TIMEOUT_S
        assert road.links == 1
        assert await b.content(b.stored()[0]) == body("x", 40 * CHUNK)

    run(scenario)


@pytest.mark.parametrize("damage", ["missing", "another"])
def test_no_message_is_taken_without_its_body(damage):
    async def scenario(_):
        a, b = await sites(("x", 5 * CHUNK))
        road = Watched(a, b)
        send = BlobSender.send

        async def damaged(sender, blobs, blob):
            if damage == "another":
                other = (await a.message("y", 5 * CHUNK)).large
                await send(sender, blobs, other)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlobSender, "send", damaged)
            await until(lambda: road.answers >= 4, "asked and refused twice")
            assert not b.stored()
        await arrived(b, "x")
        assert list(await b.engine.large.store.medium.sizes()) == [b.stored()[0].large.id]

    run(scenario)


def test_what_is_behind_a_large_message_waits_for_it_and_what_is_before_does_not():
    async def scenario(_):
        a, b = await sites(("1", 0), ("2", 3 * CHUNK), ("3", 0), ("4", CHUNK), ("5", 0))
        Watched(a, b)
        await arrived(b, "1", "2", "3", "4", "5")

    run(scenario)


@pytest.mark.parametrize("slow", ["network", "disk"])
def test_a_large_body_needs_two_windows_of_memory_and_no_heartbeat_waits_for_it(slow, tmp_path):
    """It takes several times as long as the link's time to live."""
    size = 16 * MIB
    span_s = 3 * TTL_S

    async def scenario(loop):
        async def at_once(function, *arguments):
            """Do what a volume's thread would do, which this loop cannot await."""
            return function(*arguments)

        async def slowly(function, *arguments):
            await asyncio.sleep(span_s * MIB / size)
            return function(*arguments)

        volumes = [DirectoryVolume(tmp_path / name) for name in "ab"]
        volumes[0].call = at_once
        volumes[1].call = slowly if slow == "disk" else at_once
        a, b = [await Site.start(name, volume) for name, volume in zip("ab", volumes, strict=True)]
        message = await a.message("x", size)
        a.engine.send(a.forwarding_queue(b), message)
        await a.engine.flushed()
        tracemalloc.start()
        road = Watched(a, b, piece=2 * CHUNK, latency_s=0.001 if slow == "disk" else span_s * CHUNK / size)
        began, silence = loop.time(), 0.0
        while not b.stored():
            await asyncio.sleep(0.25)
            if road.link.is_open:
                road.link.ping()
                silence = max(silence, loop.time() - (road.link.confirmed or loop.time()))
            assert loop.time() - began < 10 * span_s
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert loop.time() - began > span_s
        assert road.links == 1
        assert silence < 0.75  # the network takes as long for 512 KiB, with which a link is full
        assert road.most_under_way <= WINDOW_BYTES
        assert peak < 2 * WINDOW_BYTES
        (there,) = b.stored()
        assert (there.large.size, there.large.checksum) == (size, message.large.checksum)
        for volume in volumes:
            await volume.close()

    run(scenario)


def envelope(record=1, **changes):
    known = m.Envelope(MessageId("a", record), "q", None, False, 0, 0, b"", b"", b"text", None)
    return structs.replace(known, **changes)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (envelope(), envelope(2, deliveries=2**32)),
        (envelope(refusals=-1),),
        (envelope(id=MessageId("a", -1)),),
        (envelope(id=MessageId("a", 1, 2**32)),),
        (envelope(id=MessageId("a" * 2**16, 1)),),
        (envelope(target=""),),
        (envelope(target="\u20ac" * 2**15),),
        (envelope(group="g" * 2**16),),
    ],
)
def test_what_cannot_be_stored_is_not_understood_and_leaves_nothing_behind(messages):
    async def scenario(_):
        a, b = await sites()
        link = Road(a, b).link
        await until(lambda: link.is_open, "linked")
        with pytest.raises(LinkError):
            await link.call(m.ForwardRequest(link.number(), "a", messages))
        assert not b.engine.memory.size
        assert not b.engine.was_forwarded(envelope().id)

    run(scenario)


def test_a_large_message_that_does_not_come_alone_is_refused():
    async def scenario(_):
        a, b = await sites(("x", 2 * CHUNK))
        link = Road(a, b).link
        await arrived(b, "x")
        (there,) = b.stored()
        known = envelope(id=there.identity, blob=there.large)
        for others in ((envelope(7, blob=Blob(1, 2**63, 3)),), (envelope(7), envelope(8, blob=there.large))):
            reply = await link.call(m.ForwardRequest(link.number(), "a", (known, *others)))
            assert (reply.count, reply.reason) == (0, "the body of a large message did not come")
        assert b.stored() == [there]
        assert b.engine.large.store.stored == [there.large]

    run(scenario)


def test_the_body_of_a_message_that_was_given_up_is_not_that_of_the_next():
    async def scenario(_):
        a, b = await sites()
        blob = (await a.message("x", 2 * CHUNK)).large
        link = Road(a, b).link
        await until(lambda: link.is_open, "linked")
        assert (await link.call(m.BodyRequest(link.number(), MessageId("a", 1), "q"))).wanted
        await BlobSender(link, CALL_TIMEOUT_S).send(a.engine.large.store, blob)
        reply = await link.call(m.ForwardRequest(link.number(), "a", (envelope(2),)))
        assert reply.count == 1
        (there,) = b.stored()
        assert there.large is None
        await until(lambda: not b.engine.large.store.stored, "its body is removed")

    run(scenario)


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_body_that_cannot_be_read_keeps_nothing_but_its_message_from_the_other_broker(harm, caplog):
    async def scenario(_):
        a, b = await sites(("1", 0), ("2", 3 * CHUNK), ("3", 2 * CHUNK), ("4", 0))
        (broken,) = (one for one in a.stored(a.forwarding_queue(b)) if text_of(one) == "2")
        path = a.engine.large.store.medium.path(broken.large.id)
        content = a.volume._files[path].data
        if harm == "missing":
            await a.volume.remove(path)
        else:
            content[2 * CHUNK] ^= 1
        road = Road(a, b)
        await arrived(b, "1", "3", "4")
        road.pipe.cut()
        a.engine.send(a.forwarding_queue(b), await a.message("5"))
        await arrived(b, "1", "3", "4", "5")
        assert a.stored(a.forwarding_queue(b)) == [broken]
        assert sum(path in line for line in caplog.messages) == 2, "told once for each link"
        if harm == "missing":
            return
        content[2 * CHUNK] ^= 1
        road.pipe.cut()
        await arrived(b, "1", "3", "4", "5", "2")

    run(scenario)


def test_a_body_that_comes_slowly_is_not_given_up_while_it_comes():
    """A link whose buffer takes almost as long as the call-timeout to have room again."""

    async def scenario(loop):
        a, b = await sites(("x", 48 * CHUNK), ("y", 0))
        road = Watched(a, b, piece=CHUNK // 16, latency_s=0.06)
        began = loop.time()
        await arrived(b, "x", "y")
        assert loop.time() - began > 6 * CALL_TIMEOUT_S
        assert road.chunks == 48

    run(scenario)
