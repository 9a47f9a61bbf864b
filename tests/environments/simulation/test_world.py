"""A world runs what it is given, on virtual time, and says why when it cannot go on."""

import asyncio
import contextvars
import gc
import threading
import warnings

import pytest

from environments.simulation import HARNESS, DeadlockError, EndlessRunError, StallError, World


async def forever():
    await asyncio.Event().wait()


def test_the_result_of_main_is_the_result_of_the_run():
    async def main():
        await asyncio.sleep(1)
        return 42

    assert World(1).run(main) == 42


def test_what_main_raises_comes_out():
    async def main():
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        World(1).run(main)


def test_an_hour_passes_in_a_few_steps_and_to_the_nanosecond():
    world = World(1)

    async def main():
        for _ in range(36):
            await asyncio.sleep(100)
        return asyncio.get_running_loop().time()

    assert world.run(main) == 3600.0
    assert world.now_ns == 3600 * 10**9
    assert world.steps < 200


def test_timers_fire_in_order_and_none_early():
    async def main():
        loop, fired = asyncio.get_running_loop(), []
        for number in (0.3, 0.1 + 0.2, 0.1, 1 / 3, 1e-9, 0.0, 7.7):
            loop.call_later(
                number, lambda number=number: fired.append((loop.time() >= number - 2e-9, number))
            )
        await asyncio.sleep(8)
        return fired

    fired = World(1).run(main)
    assert [number for _, number in fired] == sorted([0.3, 0.1 + 0.2, 0.1, 1 / 3, 1e-9, 0.0, 7.7])
    assert all(in_time for in_time, _ in fired)


def test_a_world_runs_once():
    world = World(1)
    world.run(lambda: asyncio.sleep(0))
    with pytest.raises(RuntimeError, match="once"):
        world.run(lambda: asyncio.sleep(0))


def test_worlds_do_not_run_within_each_other():
    async def main():
        coroutines = []
        with pytest.raises(RuntimeError, match="already runs"):
            World(2).run(lambda: coroutines.append(1))
        return coroutines

    assert World(1).run(main) == []


def test_what_is_left_on_the_harness_is_cancelled_as_asyncio_run_does():
    ended = []

    async def rest():
        try:
            await forever()
        finally:
            await asyncio.sleep(1)
            ended.append(asyncio.get_running_loop().time())

    async def main():
        main.rest = asyncio.create_task(rest())
        await asyncio.sleep(1)

    World(1).run(main)
    assert ended == [2.0]


def test_a_deadlock_names_who_waits_and_where():
    world = World(1)

    async def main():
        world.spawn("a1", forever)
        world.spawn("a2", forever).pause()
        await asyncio.gather(asyncio.create_task(forever(), name="the one that waits"), forever())

    with pytest.raises(DeadlockError) as error:
        world.run(main)
    assert "the one that waits at locks.py" in str(error.value)
    assert "a1: a1 main at locks.py" in str(error.value)
    assert "a2 (paused)" in str(error.value)


def test_a_task_that_never_lets_time_pass_is_named():
    async def busy():
        while True:
            await asyncio.sleep(0)

    async def main():
        asyncio.create_task(busy(), name="the busy one")  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(StallError, match="harness: the busy one at "):
        World(1, stall_steps=1000).run(main)


def test_a_callback_that_never_lets_time_pass_is_named():
    def again():
        asyncio.get_running_loop().call_soon(again)

    async def main():
        again()
        await asyncio.sleep(1)

    with pytest.raises(StallError, match="harness: .*again"):
        World(1, stall_steps=1000).run(main)


def test_many_steps_are_no_stall_as_long_as_time_passes():
    async def main():
        for _ in range(5000):
            await asyncio.sleep(1e-6)

    World(1, stall_steps=1000).run(main)


def test_a_run_of_too_many_steps_is_ended_and_what_runs_is_named():
    async def busy():
        while True:
            await asyncio.sleep(1e-6)

    async def main():
        asyncio.create_task(busy(), name="the busy one")  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(EndlessRunError, match=r"has not ended after [\d,]+ steps, at 0\.0"):
        World(1, steps_max=20_000).run(main)


def test_another_thread_can_interrupt_a_run():
    world = World(1)
    began, may_go_on = threading.Event(), threading.Event()

    def interrupt():
        began.wait()
        world.interrupt(InterruptedError("enough"))
        may_go_on.set()

    async def main():
        began.set()
        may_go_on.wait()
        await forever()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(InterruptedError, match="enough"):
        world.run(main)
    thread.join()


def test_an_event_set_by_the_harness_wakes_another_node_at_the_same_instant():
    world, seen = World(1), []

    async def main():
        event = asyncio.Event()

        async def waits():
            await event.wait()
            seen.append(world.now_ns)

        process = world.spawn("a1", waits)
        await asyncio.sleep(2.5)
        event.set()
        return await process.exited

    assert world.run(main) == 0
    assert seen == [2_500_000_000]


def test_nodes_share_no_context():
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []

    async def node():
        seen.append(variable.get())

    world = World(1)

    async def main():
        variable.set("the harness'")
        await world.spawn("a1", node).exited

    world.run(main)
    assert seen == ["unset"]


def test_each_purpose_has_its_own_stream_of_chance():
    draws = {name: World(7).random(name).random() for name in ("network", "disk:a1", "disk:a2")}
    assert len(set(draws.values())) == 3
    assert draws == {name: World(7).random(name).random() for name in draws}
    assert World(8).random("network").random() != draws["network"]


def test_which_of_two_nodes_runs_first_is_drawn():
    def order(seed):
        world, ran = World(seed), []

        async def node(name):
            ran.append(name)

        async def main():
            processes = [world.spawn(name, lambda name=name: node(name)) for name in ("a1", "a2", "b1")]
            await asyncio.gather(*(process.exited for process in processes))

        world.run(main)
        return tuple(ran)

    assert len({order(seed) for seed in range(40)}) == 6


def test_an_asynchronous_generator_that_is_dropped_is_closed_on_its_own_node():
    closed = []

    async def numbers():
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0.5)
            closed.append((asyncio.get_running_loop().node, asyncio.get_running_loop().clock.wall_s()))

    async def node():
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    world = World(1)

    async def main():
        await world.spawn("a1", node).exited

    world.run(main)
    assert [name for name, _ in closed] == ["a1"]


class Ballast:
    """Something whose instances are counted."""


def living():
    gc.collect()
    return sum(type(thing) is Ballast for thing in gc.get_objects())


def one_world(seed):
    """Killed, paused and running nodes, with connections and things that wait, all holding
    ballast.
    """
    world = World(seed)

    async def node(name):
        ballast = Ballast()

        async def serve(reader, writer):
            held = Ballast()
            try:
                while await reader.read(100):
                    writer.write(b"y")
            finally:
                await writer.drain()
                held.done = True

        async def generate():
            held = [Ballast(), ballast]
            try:
                while held:
                    yield held
            finally:
                await asyncio.sleep(1)

        server = await asyncio.start_server(serve, name, 7)
        async with server, asyncio.TaskGroup() as group:
            group.create_task(forever())
            group.create_task(asyncio.wait_for(forever(), 3600))
            async for _ in generate():
                await forever()

    async def main():
        processes = [world.spawn(name, lambda name=name: node(name)) for name in ("a1", "a2", "b1")]
        main.writers = [
            (await asyncio.open_connection(name, 7))[1] for name in ("a1", "a2", "b1") for _ in range(3)
        ]
        for writer in main.writers:
            writer.write(b"x")
        await asyncio.sleep(1)
        processes[0].kill()
        processes[1].pause()
        main.left = asyncio.create_task(forever())
        await asyncio.sleep(1)

    world.run(main)
    return world.trace.digest


@pytest.mark.slow
def test_two_hundred_worlds_give_their_memory_back_and_nothing_warns(caplog, monkeypatch):
    gc.collect()  # what other tests left behind would warn in this one
    caplog.clear()
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_world(0)
        before = living()
        for seed in range(200):
            one_world(seed)
        assert living() == before == 0
    assert unraisable == []
    assert caplog.records == []


def test_a_failed_world_gives_its_memory_back_too():
    async def main():
        held = Ballast()
        await forever()
        held.done = True

    for _ in range(3):
        with pytest.raises(DeadlockError):
            World(1).run(main)
    assert living() == 0


def test_the_harness_is_no_process():
    with pytest.raises(ValueError, match="already runs on node 'harness'"):
        World(1).spawn(HARNESS, forever)


def test_the_caller_s_loop_and_collector_are_given_back():
    async def outer():
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        World(1).run(lambda: asyncio.sleep(1))
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    asyncio.run(outer())
    assert gc.isenabled()
