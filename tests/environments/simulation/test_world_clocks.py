"""Each machine of a world has clocks of its own, and they can be wrong."""

import asyncio

import pytest

from environments.simulation import HARNESS, World
from environments.simulation.clock import EPOCH_S


def in_world(main, seed=1):
    world = World(seed)
    return world.run(lambda: main(world))


async def ticks(world, seen):
    """The true time of each second of this machine."""
    while True:
        await asyncio.sleep(1)
        seen.append(round(world.now_ns / 1e9, 6))


def test_the_harness_clock_is_virtual_time_and_cannot_be_wrong():
    async def main(world):
        await asyncio.sleep(1.5)
        clock = world.clock(HARNESS)
        assert asyncio.get_running_loop().time() == clock.monotonic_s() == 1.5
        assert clock.wall_s() == EPOCH_S + 1.5
        with pytest.raises(ValueError, match="cannot be wrong"):
            clock.rate = 2

    in_world(main)


def test_machines_booted_at_different_times():
    async def main(world):
        await asyncio.sleep(5)
        return [world.clock(name).monotonic_s() for name in ("a1", "a2", "b1")]

    assert len(set(in_world(main))) == 3


def test_a_rate_stretches_timers_from_then_on_and_both_clocks():
    async def main(world):
        seen, clock = [], world.clock("a1")
        world.spawn("a1", lambda: ticks(world, seen))
        await asyncio.sleep(2.5)
        before = clock.monotonic_s(), clock.wall_s()
        clock.rate = 2.0
        await asyncio.sleep(2)
        clock.rate = 0.5
        await asyncio.sleep(4)
        after = clock.monotonic_s(), clock.wall_s()
        return seen, [round(late - early, 6) for early, late in zip(before, after, strict=True)]

    seen, passed = in_world(main)
    assert passed == [6.0, 6.0]
    assert seen == [1, 2, 2.75, 3.25, 3.75, 4.25, 5.5, 7.5]


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_clock_does_not_stand_still_or_run_backwards(rate):
    with pytest.raises(ValueError, match="above 0"):
        World(1).clock("a1").rate = rate


def test_a_skew_moves_the_wall_clock_only():
    async def main(world):
        seen, clock = [], world.clock("a1")
        world.spawn("a1", lambda: ticks(world, seen))
        monotonic_s = clock.monotonic_s()
        clock.skew_ms = -55_000
        await asyncio.sleep(2.5)
        assert clock.monotonic_s() == monotonic_s + 2.5
        assert clock.wall_s() == pytest.approx(EPOCH_S + 2.5 - 55)
        assert world.clock("a2").wall_s() == pytest.approx(EPOCH_S + 2.5)
        return seen

    assert in_world(main) == [1, 2]


def test_a_clock_set_right_shows_true_time_and_its_skew_and_jumps_only_on_the_wall():
    async def main(world):
        clock = world.clock("a1")
        clock.rate = 3.0
        await asyncio.sleep(2.0)
        clock.rate, clock.skew_ms = 1.0, 500
        monotonic_s = clock.monotonic_s()
        assert clock.wall_s() == pytest.approx(EPOCH_S + 6.5)
        clock.set_right()
        assert clock.monotonic_s() == monotonic_s
        assert clock.wall_s() == pytest.approx(EPOCH_S + 2.5)
        await asyncio.sleep(1.0)
        assert clock.monotonic_s() == pytest.approx(monotonic_s + 1)
        assert clock.wall_s() == pytest.approx(EPOCH_S + 3.5)

    in_world(main)


def test_a_rate_set_while_nobody_runs_holds_for_the_next_process():
    async def main(world):
        seen = []
        world.clock("a1").rate = 4
        await asyncio.sleep(1)
        world.spawn("a1", lambda: ticks(world, seen))
        await asyncio.sleep(0.9)
        return seen

    assert in_world(main) == [1.25, 1.5, 1.75]


@pytest.mark.parametrize("rate", [0.1, 0.37, 0.999, 1.0, 1.001, 1.5, 3.3, 10])
def test_every_timer_of_a_wrong_clock_fires_once_and_in_time(rate):
    async def main(world):
        fired = []

        async def node():
            loop = asyncio.get_running_loop()
            for number in range(1, 200):
                when = loop.time() + number / 7
                loop.call_at(when, lambda when=when: fired.append(loop.time() - when))
            await asyncio.sleep(30)

        world.clock("a1").rate = rate
        await world.spawn("a1", node).exited
        return fired, world.steps

    fired, steps = in_world(main)
    assert len(fired) == 199
    assert all(abs(late) < 1e-7 for late in fired)
    assert steps < 250
