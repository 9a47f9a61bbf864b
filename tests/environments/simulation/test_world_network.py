"""Connecting over a world's network ends as it would over a real one."""

import asyncio
import errno

import pytest

from environments.simulation import LinkCondition, World, combine
from harness.interface import Link

PORT = 61613


async def echo():
    async def serve(reader, writer):
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, None, PORT) as server:
        await server.serve_forever()


def in_world(main, seed=1):
    world = World(seed)

    async def harness():
        world.spawn("a1", echo)
        await asyncio.sleep(0.1)
        return await main(world)

    return world.run(harness)


async def answers(reader, writer, patience_s=1.0):
    """Whether a connection works, there and back."""
    writer.write(b"?")
    try:
        async with asyncio.timeout(patience_s):
            return await reader.readexactly(1) == b"?"
    except TimeoutError:
        return False


def test_a_node_that_does_not_listen_refuses_after_a_round_trip():
    async def main(world):
        began = world.now_ns
        for host, port in (("a1", PORT + 1), ("nobody", PORT)):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, port)
        return world.now_ns - began

    assert 4 * 80_000 <= in_world(main) <= 4 * 200_000


def test_a_cut_link_answers_nothing_until_the_kernel_gives_up():
    async def main(world):
        world.network.apply(Link("harness", "a1"), LinkCondition(cut=True))
        began = world.now_ns
        with pytest.raises(TimeoutError) as error:
            await asyncio.open_connection("a1", PORT)
        assert error.value.errno == errno.ETIMEDOUT
        return world.now_ns - began

    assert in_world(main) == 127 * 10**9


@pytest.mark.parametrize("cut", [Link("harness", "a1"), Link("a1", "harness")])
def test_an_attempt_begun_in_a_cut_succeeds_after_it_heals(cut):
    async def main(world):
        world.network.apply(cut, LinkCondition(cut=True))
        connecting = asyncio.create_task(asyncio.open_connection("a1", PORT))
        await asyncio.sleep(20)
        assert not connecting.done()
        world.network.apply(cut, LinkCondition())
        async with asyncio.timeout(4):
            reader, writer = await connecting
        assert await answers(reader, writer)

    in_world(main)


def test_an_attempt_that_was_cancelled_leaves_nothing_that_lasts():
    async def main(world):
        link = Link("harness", "a1")
        world.network.apply(link, LinkCondition(cut=True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.open_connection("a1", PORT)
        world.network.apply(link, LinkCondition())
        await asyncio.sleep(10)
        return len(world.network.way("harness", "a1").connections)

    assert in_world(main) == 0


def test_closed_connections_leave_nothing_that_lasts():
    async def main(world):
        for _ in range(20):
            reader, writer = await asyncio.open_connection("a1", PORT)
            assert await answers(reader, writer)
            writer.close()
        await asyncio.sleep(1)
        return len(world.network.way("harness", "a1").connections), len(world.network._sockets)

    assert in_world(main) == (0, 0)


@pytest.mark.parametrize("cut", [Link("harness", "a1"), Link("a1", "harness")])
def test_a_link_is_cut_in_one_direction_only(cut):
    async def main(world):
        reader, writer = await asyncio.open_connection("a1", PORT)
        world.network.apply(cut, LinkCondition(cut=True))
        assert not await answers(reader, writer)
        received = [event.node for event in world.trace.events if event.size]
        world.network.apply(cut, LinkCondition())
        assert await reader.readexactly(1) == b"?"
        return received

    world = World(1, record=True)

    async def harness():
        world.spawn("a1", echo)
        await asyncio.sleep(0.1)
        return await main(world)

    assert world.run(harness) == ([] if cut.source == "harness" else [f"a1:{PORT}"])


def test_zones_have_links_of_their_own():
    async def main(world):
        first, second = [
            await asyncio.open_connection(world.network.via(zone, "a1"), PORT) for zone in ("zone1", "zone2")
        ]
        world.network.apply(Link("zone1", "a1"), LinkCondition(cut=True))
        assert not await answers(*first)
        assert await answers(*second)
        assert first[1].get_extra_info("sockname")[0] == "zone1"

    in_world(main)


def test_a_node_reaches_itself_whatever_is_cut():
    async def main(world):
        async def node():
            await asyncio.start_server(lambda _, writer: writer.write(b"hello"), "127.0.0.1", 7)
            reader, _ = await asyncio.open_connection("localhost", 7)
            return int(await reader.readexactly(5) == b"hello")

        for link in (Link("b1", "a1"), Link("a1", "b1"), Link("harness", "b1"), Link("b1", "harness")):
            world.network.apply(link, LinkCondition(cut=True))
        return await world.spawn("b1", node).exited

    assert in_world(main) == 1


def test_a_reset_ends_both_sides_of_what_crosses_and_what_tries_to():
    async def main(world):
        reader, _writer = await asyncio.open_connection("a1", PORT)
        other, other_writer = await asyncio.open_connection(world.network.via("zone1", "a1"), PORT)
        world.network.apply(Link("a1", "harness"), LinkCondition(reset=True))
        with pytest.raises(ConnectionResetError):
            await reader.read()
        with pytest.raises(ConnectionResetError):
            await asyncio.open_connection("a1", PORT)
        assert await answers(other, other_writer)
        world.network.apply(Link("a1", "harness"), LinkCondition())
        assert await answers(*await asyncio.open_connection("a1", PORT))
        assert world.process("a1").state == "running"

    in_world(main)


def test_a_delay_is_added_to_one_direction():
    async def main(world):
        reader, writer = await asyncio.open_connection("a1", PORT)
        times = []
        for condition in (
            LinkCondition(),
            LinkCondition(delay_ms=100),
            LinkCondition(delay_ms=100, jitter_ms=50),
        ):
            world.network.apply(Link("harness", "a1"), condition)
            began = world.now_ns
            assert await answers(reader, writer)
            times.append((world.now_ns - began) / 1e6)
        return times

    clear_ms, slow_ms, jittery_ms = in_world(main)
    assert clear_ms < 0.5
    assert 100 < slow_ms < 100.5
    assert 100 < jittery_ms < 150.5


def test_a_rate_is_shared_by_all_connections_of_a_link():
    async def main(world):
        streams = [await asyncio.open_connection("a1", PORT) for _ in range(4)]
        world.network.apply(Link("harness", "a1"), LinkCondition(rate_bytes_s=10_000))
        began = world.now_ns
        for _, writer in streams:
            writer.write(b"x" * 5_000)
        for reader, _ in streams:
            await reader.readexactly(5_000)
        return (world.now_ns - began) / 1e9

    assert in_world(main) == pytest.approx(2, abs=0.01)


def test_a_link_that_loses_datagrams_delays_no_stream():
    async def main(world):
        reader, writer = await asyncio.open_connection("a1", PORT)
        world.network.apply(Link("harness", "a1"), LinkCondition(loss=1.0))
        began = world.now_ns
        for _ in range(100):
            assert await answers(reader, writer, 60)
        return (world.now_ns - began) / 1e9

    assert in_world(main) < 0.1


def test_what_was_cut_for_long_comes_late_after_the_heal_but_within_seconds():
    async def main(world, cut_s):
        reader, writer = await asyncio.open_connection("a1", PORT)
        link = Link("harness", "a1")
        world.network.apply(link, LinkCondition(cut=True))
        writer.write(b"?")
        await asyncio.sleep(cut_s)
        world.network.apply(link, LinkCondition())
        healed = world.now_ns
        await reader.readexactly(1)
        return (world.now_ns - healed) / 1e9

    after_short = [in_world(lambda world: main(world, 0.1), seed) for seed in range(30)]
    after_long = [in_world(lambda world: main(world, 60), seed) for seed in range(30)]
    assert max(after_short) < 0.11
    assert 1 < max(after_long) < 3.01
    assert len(set(after_long)) == 30


def test_a_port_is_taken_until_its_server_is_closed():
    async def main(world):
        async def node():
            server = await asyncio.start_server(lambda *_: None, "b1", 7)
            try:
                await asyncio.start_server(lambda *_: None, "b1", 7)
            except OSError as error:
                assert error.errno == errno.EADDRINUSE  # noqa: PT017
            else:
                return 1
            server.close()
            await server.wait_closed()
            assert not server.is_serving()
            assert server.sockets == ()
            again = await asyncio.start_server(lambda *_: None, "b1", 7)
            free = await asyncio.start_server(lambda *_: None, "b1", 0)
            assert again.is_serving()
            assert free.sockets[0].getsockname()[1] not in (0, 7)
            return 0

        return await world.spawn("b1", node).exited

    assert in_world(main) == 0


def test_a_node_cannot_listen_in_the_name_of_another():
    async def main(world):
        with pytest.raises(OSError, match="'a1' is not harness") as error:
            await asyncio.start_server(lambda *_: None, "a1", 7)
        assert error.value.errno == errno.EADDRNOTAVAIL

    in_world(main)


def test_a_server_that_does_not_serve_yet_refuses():
    async def main(world):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "harness", 7, start_serving=False)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("harness", 7)
        await server.start_serving()
        await asyncio.open_connection("harness", 7)

    in_world(main)


def test_what_a_server_accepted_lives_on_when_it_is_closed():
    async def main(world):
        server = await asyncio.start_server(lambda _, writer: writer.write(b"hello"), "harness", 7)
        reader, _ = await asyncio.open_connection("harness", 7)
        server.close()
        await server.wait_closed()
        assert await reader.readexactly(5) == b"hello"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("harness", 7)

    in_world(main)


@pytest.mark.parametrize(
    "wrong",
    [{"loss": 1.5}, {"duplicate": -0.1}, {"delay_ms": -1}, {"jitter_ms": float("inf")}, {"rate_bytes_s": 0}],
)
def test_a_condition_that_no_link_can_have_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LinkCondition(**wrong)


def test_conditions_combine():
    together = combine(
        [
            LinkCondition(delay_ms=10, rate_bytes_s=500, loss=0.5),
            LinkCondition(delay_ms=5, jitter_ms=1, rate_bytes_s=100, loss=0.5, duplicate=0.1),
            LinkCondition(cut=True),
        ]
    )
    assert together == LinkCondition(
        cut=True, delay_ms=15, jitter_ms=1, rate_bytes_s=100, loss=0.75, duplicate=0.1
    )
    assert combine([]) == LinkCondition()
    assert not combine([]).active
    assert together.active


@pytest.mark.parametrize("option", ["ssl", "sock"])
def test_a_connection_that_would_leave_the_world_is_refused(option):
    from environments.simulation import ForbiddenCallError

    async def main(world):
        with pytest.raises(ForbiddenCallError, match=option):
            await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, "a1", PORT, **{option: object()}
            )

    with pytest.raises(ForbiddenCallError, match=option):
        in_world(main)
