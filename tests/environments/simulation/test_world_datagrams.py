"""Datagrams of a world arrive whole, or twice, or late, or not."""

import asyncio

import pytest

from environments.simulation import LinkCondition, World
from environments.simulation.datagram import open_multicast
from harness.interface import Link

PORT = 9876
LINK = Link("harness", "a1")


class Ear(asyncio.DatagramProtocol):
    def __init__(self):
        self.heard = []
        self.errors = []
        self.lost = False

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.heard.append((data, addr))

    def error_received(self, exc):
        self.errors.append(exc)

    def connection_lost(self, exc):
        self.lost = True


def in_world(main, seed=1):
    """``main`` with the ear of node a1 and a mouth on the harness."""
    world = World(seed)
    ears = []

    async def node():
        _, ear = await asyncio.get_running_loop().create_datagram_endpoint(Ear, local_addr=("0.0.0.0", PORT))
        ears.append(ear)
        await asyncio.Event().wait()

    async def harness():
        world.spawn("a1", node)
        mouth, _ = await asyncio.get_running_loop().create_datagram_endpoint(Ear, remote_addr=("a1", PORT))
        await asyncio.sleep(0.1)
        return await main(world, ears[0], mouth)

    return world.run(harness)


def said(condition, count=400, seed=1):
    """What arrives of numbered datagrams, sent one each ten milliseconds over a link in a
    condition.
    """

    async def main(world, ear, mouth):
        world.network.apply(LINK, condition)
        for number in range(count):
            mouth.sendto(b"%d" % number)
            await asyncio.sleep(0.001)
        await asyncio.sleep(10)
        return [int(data) for data, _ in ear.heard]

    return in_world(main, seed)


def test_a_sound_link_gives_each_datagram_once_and_in_order():
    assert said(LinkCondition()) == list(range(400))


def test_a_cut_link_loses_datagrams_for_good():
    assert said(LinkCondition(cut=True)) == []


def test_loss_loses_some():
    heard = said(LinkCondition(loss=0.25))
    assert heard == sorted(set(heard))
    assert 250 < len(heard) < 350


def test_duplicates_arrive_twice():
    heard = said(LinkCondition(duplicate=0.25))
    assert set(heard) == set(range(400))
    assert 450 < len(heard) < 550


def test_reordered_datagrams_are_overtaken():
    heard = said(LinkCondition(reorder=0.25))
    assert sorted(heard) == list(range(400))
    assert heard != sorted(heard)


def test_a_delay_holds_for_datagrams_too():
    async def main(world, ear, mouth):
        world.network.apply(LINK, LinkCondition(delay_ms=500))
        mouth.sendto(b"x")
        await asyncio.sleep(0.49)
        early = len(ear.heard)
        await asyncio.sleep(0.02)
        return early, len(ear.heard)

    assert in_world(main) == (0, 1)


def test_the_sender_s_address_is_given_and_can_be_answered():
    async def main(world, ear, mouth):
        answers = Ear()
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: answers, local_addr=("harness", 5))
        answers.transport.sendto(b"ping", ("a1", PORT))
        await asyncio.sleep(0.1)
        [(data, address)] = ear.heard
        assert (data, address) == (b"ping", ("harness", 5))
        ear.transport.sendto(b"pong", address)
        await asyncio.sleep(0.1)
        return answers.heard

    assert in_world(main) == [(b"pong", ("a1", PORT))]


@pytest.mark.parametrize("everyone", ["255.255.255.255", "231.7.7.7"])
def test_a_broadcast_reaches_every_node_that_is_bound_and_not_cut_off(everyone):
    async def main(world, ear, mouth):
        others = []

        async def node():
            _, other = await asyncio.get_running_loop().create_datagram_endpoint(
                Ear, local_addr=("0.0.0.0", PORT)
            )
            others.append(other)
            await asyncio.Event().wait()

        world.spawn("b1", node)
        world.spawn("c1", node)
        speaker, _ = await asyncio.get_running_loop().create_datagram_endpoint(Ear, local_addr=("0.0.0.0", 1))
        world.network.apply(Link("harness", "c1"), LinkCondition(cut=True))
        await asyncio.sleep(0.1)
        speaker.sendto(b"hello", (everyone, PORT))
        await asyncio.sleep(0.1)
        return len(ear.heard), {other.transport.process.node: len(other.heard) for other in others}

    assert in_world(main) == (1, {"b1": 1, "c1": 0})


def test_a_socket_of_a_group_hears_what_is_sent_to_the_group_only():
    async def main(world, ear, mouth):
        group, other = ("231.7.7.7", PORT), ("231.7.7.8", PORT)
        own, second = Ear(), Ear()
        await open_multicast(lambda: own, group, ("", 0), listens=True)
        await open_multicast(lambda: second, other, ("", 0), listens=True)
        speaker = await open_multicast(Ear, group, ("", 7), listens=False)
        speaker.sendto(b"to all of the group", group)
        await asyncio.sleep(0.1)
        return own.heard, second.heard, [data for data, _ in ear.heard]

    heard = [(b"to all of the group", ("harness", 7))]
    assert in_world(main) == (heard, [], [b"to all of the group"])


def test_a_killed_process_hears_no_more_and_a_paused_one_as_much_as_its_kernel_keeps():
    async def main(world, ear, mouth):
        process = world.process("a1")
        process.pause()
        for _ in range(10):
            mouth.sendto(b"x" * 60_000)
        await asyncio.sleep(1)
        process.resume()
        await asyncio.sleep(1)
        kept = len(ear.heard)
        process.kill()
        mouth.sendto(b"x")
        await asyncio.sleep(1)
        return kept, len(ear.heard)

    assert in_world(main) == (3, 3)


def test_a_closed_endpoint_neither_sends_nor_hears():
    async def main(world, ear, mouth):
        mouth.close()
        mouth.sendto(b"x")
        ear.transport.close()
        await asyncio.sleep(1)
        return ear.heard, ear.lost, mouth.is_closing()

    assert in_world(main) == ([], True, True)


def test_what_cannot_be_sent_is_refused():
    async def main(world, ear, mouth):
        with pytest.raises(ValueError, match="Invalid address"):
            mouth.sendto(b"x", ("b1", PORT))
        with pytest.raises(ValueError, match="needs an address"):
            ear.transport.sendto(b"x")
        ear.transport.sendto(b"x" * 70_000, ("harness", 1))
        return [type(error) for error in ear.errors]

    assert in_world(main) == [OSError]
