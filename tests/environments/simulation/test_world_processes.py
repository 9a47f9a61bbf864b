"""Processes of a world live and die as processes do."""

import asyncio

import pytest

from environments.simulation import World


async def forever():
    await asyncio.Event().wait()


def in_world(main, seed=1):
    world = World(seed)
    return world.run(lambda: main(world))


def test_a_killed_process_runs_no_finally_and_sends_no_farewell():
    did = []

    async def careful():
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            did.append("cancelled")
            raise
        finally:
            did.append("finally")

    async def node():
        async with asyncio.TaskGroup() as group:
            group.create_task(careful())
            asyncio.get_running_loop().call_later(3, did.append, "timer")
            await careful()

    async def main(world):
        process = world.spawn("a1", node)
        await asyncio.sleep(1)
        process.kill()
        assert await process.exited == -9
        await asyncio.sleep(100)
        return list(did)

    assert in_world(main) == []


def test_a_process_that_kills_itself_does_nothing_more_than_the_callback_it_is_in():
    did = []

    async def main(world):
        async def node():
            loop = asyncio.get_running_loop()
            loop.call_soon(did.append, "ready before")
            loop.call_soon(world.process("a1").kill)
            loop.call_soon(did.append, "ready after")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            did.append("next step")

        return await world.spawn("a1", node).exited

    assert in_world(main) == -9
    assert did == ["ready before"]


def test_the_kernel_sends_what_a_killed_process_had_written_and_closes():
    async def main(world):
        async def node():
            async def serve(reader, writer):
                await reader.read(1)
                writer.write(b"last words")
                world.process("a1").kill()

            await asyncio.start_server(serve, "a1", 7)
            await forever()

        world.spawn("a1", node)
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("a1", 7)
        writer.write(b"?")
        return await reader.read()

    assert in_world(main) == b"last words"


def test_a_process_killed_with_unread_bytes_resets_its_connections():
    async def main(world):
        async def node():
            async def serve(reader, writer):
                writer.transport.pause_reading()
                await forever()

            await asyncio.start_server(serve, "a1", 7)
            await forever()

        process = world.spawn("a1", node)
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("a1", 7)
        writer.write(b"never read")
        await asyncio.sleep(1)
        process.kill()
        with pytest.raises(ConnectionResetError):
            await reader.read()

    in_world(main)


def test_a_node_can_be_spawned_again_and_keeps_its_machine_s_clock():
    async def main(world):
        times = []

        async def node():
            server = await asyncio.start_server(lambda *_: None, "a1", 7)
            times.append(asyncio.get_running_loop().time())
            await server.serve_forever()

        first = world.spawn("a1", node)
        await asyncio.sleep(10)
        with pytest.raises(ValueError, match="already runs on node 'a1'"):
            world.spawn("a1", node)
        first.kill()
        second = world.spawn("a1", node)
        await asyncio.sleep(1)
        assert world.process("a1") is second
        assert (first.state, second.state) == ("gone", "running")
        return times[1] - times[0]

    assert in_world(main) == pytest.approx(10)


def test_a_paused_process_stands_still_and_its_timers_are_late_all_at_once():
    async def main(world):
        ticks = []

        async def node():
            loop = asyncio.get_running_loop()
            for after in (2, 4, 6, 20):
                loop.call_later(after, lambda after=after: ticks.append((after, world.now_ns / 1e9)))
            await forever()

        process = world.spawn("a1", node)
        await asyncio.sleep(3)
        process.pause()
        await asyncio.sleep(10)
        assert process.state == "paused"
        before = list(ticks)
        process.resume()
        await asyncio.sleep(10)
        return before, ticks

    before, ticks = in_world(main)
    assert before == [(2, 2.0)]
    assert ticks == [(2, 2.0), (4, 13.0), (6, 13.0), (20, 20.0)]


def test_what_arrives_at_a_paused_process_waits():
    async def main(world):
        got = []

        async def node():
            async def serve(reader, writer):
                got.append((await reader.readexactly(5), world.now_ns / 1e9))

            await asyncio.start_server(serve, "a1", 7)
            await forever()

        process = world.spawn("a1", node)
        await asyncio.sleep(1)
        process.pause()
        _, writer = await asyncio.open_connection("a1", 7)  # the kernel accepts
        writer.write(b"hello")
        await asyncio.sleep(4)
        assert got == []
        process.resume()
        await asyncio.sleep(1)
        return got

    [(data, at_s)] = in_world(main)
    assert data == b"hello"
    assert at_s == pytest.approx(5, abs=0.01)


def test_a_paused_process_can_be_killed():
    async def main(world):
        process = world.spawn("a1", forever)
        await asyncio.sleep(1)
        process.pause()
        process.kill()
        process.resume()
        return await process.exited, process.state

    assert in_world(main) == (-9, "gone")


async def returns_nothing():
    pass


async def returns_three():
    return 3


async def raises():
    raise LookupError("nothing there")


async def exits():
    raise SystemExit(7)


async def exits_with_a_text():
    raise SystemExit("no way")


async def is_cancelled():
    asyncio.current_task().cancel()
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("main", "status", "error"),
    [
        (returns_nothing, 0, None),
        (returns_three, 3, None),
        (raises, 1, LookupError),
        (exits, 7, None),
        (exits_with_a_text, 1, None),
        (is_cancelled, 1, asyncio.CancelledError),
    ],
)
def test_a_process_ends_with_the_status_python_would_give(main, status, error):
    async def harness(world):
        ends = []
        process = world.spawn("a1", main, lambda process: ends.append((process.status, world.now_ns)))
        assert await process.exited == status
        await asyncio.sleep(1)
        assert [given for given, _ in ends] == [status]
        assert (process.state, process.status) == ("gone", status)
        assert process.error is None if error is None else isinstance(process.error, error)

    in_world(harness)


def test_a_process_whose_main_returned_cancels_what_it_left_and_lets_it_finish():
    did = []

    async def rest():
        try:
            await forever()
        finally:
            await asyncio.sleep(2)
            did.append("finally")

    async def node():
        node.rest = asyncio.create_task(rest())
        await asyncio.sleep(1)

    async def main(world):
        status = await world.spawn("a1", node).exited
        return status, world.now_ns / 1e9

    assert in_world(main) == (0, 3.0)
    assert did == ["finally"]


def test_who_loses_power_says_nothing_until_the_machine_is_on_again():
    async def main(world):
        async def node():
            async def serve(reader, writer):
                await reader.read()

            await asyncio.start_server(serve, "a1", 7)
            await forever()

        process = world.spawn("a1", node)
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("a1", 7)
        process.lose_power()
        assert await process.exited == -9
        writer.write(b"anybody there?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 60)
        world.spawn("a1", node)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)

    in_world(main)


def test_a_connection_that_was_idle_when_the_power_was_lost_is_reset_by_the_next_write():
    async def main(world):
        async def serve(_reader, writer):  # a writer that nobody keeps is closed by Python 3.13
            await forever()
            writer.close()

        async def node():
            await asyncio.start_server(serve, "a1", 7)
            await forever()

        process = world.spawn("a1", node)
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("a1", 7)
        process.lose_power()
        await asyncio.sleep(1)
        world.spawn("a1", node)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 60)
        writer.write(b"still there?")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 1)

    in_world(main)


def test_connections_to_a_machine_without_power_are_never_answered():
    async def main(world):
        process = world.spawn("a1", forever)
        process.lose_power()
        with pytest.raises(TimeoutError):
            await asyncio.open_connection("a1", 7)
        return world.now_ns / 1e9

    assert in_world(main) == 127.0


def test_an_attempt_to_connect_gets_through_when_the_machine_is_on_again():
    async def main(world):
        async def node():
            await asyncio.start_server(lambda *_: forever(), "a1", 7)
            await forever()

        world.spawn("a1", forever).lose_power()
        connecting = asyncio.create_task(asyncio.open_connection("a1", 7))
        await asyncio.sleep(30)
        assert not connecting.done()
        world.spawn("a1", node)
        await asyncio.wait_for(connecting, 2)

    in_world(main)


def test_what_a_dead_process_still_schedules_and_writes_in_its_last_callback_is_nothing():
    did = []

    async def main(world):
        async def node():
            async def serve(reader, writer):
                writer.write(b"before")
                world.process("a1").kill()
                writer.write(b"after")
                asyncio.get_running_loop().call_soon(did.append, "scheduled by the dead")
                asyncio.get_running_loop().call_later(0, did.append, "timed by the dead")

            await asyncio.start_server(serve, "a1", 7)
            await forever()

        world.spawn("a1", node)
        await asyncio.sleep(1)
        reader, _writer = await asyncio.open_connection("a1", 7)
        received = await reader.read()
        await asyncio.sleep(10)
        return received

    assert in_world(main) == b"before"
    assert did == []
