"""A node's loop calls back in the order in which the stock loop does."""

import asyncio
import gc
import itertools
import random
import selectors
import warnings
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.simulation import World


class VirtualSelector(selectors.SelectSelector):
    """Waits by moving the clock of its loop."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        self.now_s += timeout or 0.0
        return super().select(0)


class StockLoop(asyncio.SelectorEventLoop):
    """The stock loop on virtual time."""

    def __init__(self):
        self.clock = VirtualSelector()
        super().__init__(self.clock)

    def time(self):
        return self.clock.now_s


def on_the_stock_loop(main):
    with asyncio.Runner(loop_factory=StockLoop) as runner:
        return runner.run(main())


actions = st.recursive(
    st.tuples(st.sampled_from(["soon", "later", "cancel", "task", "raise"]), st.integers(0, 5)),
    lambda inner: st.tuples(
        st.sampled_from(["soon", "later", "task"]), st.integers(0, 5), st.lists(inner, max_size=4)
    ),
    max_leaves=30,
)


async def play(plan):
    """Do what the plan says.

    The names of the callbacks in the order in which they ran, with their times.
    """
    loop, ran, handles = asyncio.get_running_loop(), [], []
    loop.set_exception_handler(
        lambda _, context: ran.append((str(context["exception"]), loop.time() - began_s, "failed"))
    )
    began_s = loop.time()
    differences = itertools.count()

    def seconds(roughly):
        """No two alike, nor two sums of them: nobody promises the order of timers of one time."""
        return roughly + random.Random(next(differences)).random() / 1000

    def call(name, inner):
        ran.append((name, loop.time() - began_s))
        for number, action in enumerate(inner):
            act(f"{name}.{number}", action)

    def fail(name):
        raise LookupError(name)

    async def work(name, pauses, inner):
        for _ in range(pauses):
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(seconds(0.05)):
                await asyncio.sleep(seconds(pauses * 0.02))
        except TimeoutError:
            ran.append((name, loop.time() - began_s, "too late"))
        call(name, inner)

    def act(name, action):
        kind, number, *inner = action
        inner = inner[0] if inner else ()
        match kind:
            case "soon":
                handles.append(loop.call_soon(call, name, inner))
            case "later":
                handles.append(loop.call_later(seconds(number * 0.01), call, name, inner))
            case "task":
                handles.append(asyncio.create_task(work(name, number, inner)))
            case "raise":
                handles.append(loop.call_soon(fail, name))
            case "cancel" if handles:
                handles[number % len(handles)].cancel()

    for number, action in enumerate(plan):
        act(str(number), action)
    await asyncio.sleep(5)
    return ran


@given(st.lists(actions, max_size=10))
@pytest.mark.slow
def test_callbacks_timers_tasks_and_cancellations_run_in_the_stock_order(plan):
    ours, stock = World(1).run(lambda: play(plan)), on_the_stock_loop(lambda: play(plan))
    assert [(name, *what) for name, _, *what in ours] == [(name, *what) for name, _, *what in stock]
    assert [at_s for _, at_s, *_ in ours] == pytest.approx([at_s for _, at_s, *_ in stock], abs=1e-7)


def test_timers_of_one_time_fire_in_the_order_they_were_asked_for():
    async def main():
        loop, fired = asyncio.get_running_loop(), []
        for number in range(50):
            loop.call_at(1.0, fired.append, number)
        await asyncio.sleep(2)
        return fired

    assert World(1).run(main) == list(range(50))


def test_cancelled_timers_are_dropped_and_the_others_fire():
    async def main():
        loop, fired = asyncio.get_running_loop(), []
        for number in range(10_000):
            handle = loop.call_later(3600, print)
            if number % 1000:
                handle.cancel()
            else:
                handle.cancel()
                loop.call_later(1 + number / 1e6, fired.append, number)
            if number % 500 == 0:
                await asyncio.sleep(0)
        left = len(loop.timers)
        await asyncio.sleep(2)
        return left, fired

    left, fired = World(1).run(main)
    assert left < 2000
    assert fired == list(range(0, 10_000, 1000))


def test_time_outs_that_do_not_happen_cost_no_wakes():
    world = World(1)

    async def main():
        for _ in range(1000):
            async with asyncio.timeout(30):
                await asyncio.sleep(0.001)

    world.run(main)
    assert world.steps < 5000
    assert world.now_ns == 10**9


def test_a_callback_that_fails_is_told_and_life_goes_on():
    async def main():
        loop, told = asyncio.get_running_loop(), []
        loop.set_exception_handler(
            lambda _, context: told.append((context["message"], str(context["exception"])))
        )

        def fail():
            raise LookupError("nothing there")

        loop.call_soon(fail)
        await asyncio.sleep(1)
        return told

    [(message, error)] = World(1).run(main)
    assert "Exception in callback" in message
    assert "fail" in message
    assert error == "nothing there"


def test_the_interrupt_of_a_person_ends_the_run():
    async def main():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        World(1).run(main)


def test_a_node_is_stepped_by_its_world_alone():
    async def main():
        loop = asyncio.get_running_loop()
        assert loop.is_running()
        for run in (loop.run_forever, lambda: loop.run_until_complete(None)):
            with pytest.raises(RuntimeError, match=r"World\.run"):
                run()

    World(1).run(main)


def test_sets_of_tasks_are_in_the_order_in_which_they_were_made():
    async def main():
        tasks = [asyncio.create_task(asyncio.sleep(1)) for _ in range(20)]
        futures = [asyncio.get_running_loop().create_future() for _ in range(20)]
        numbers = [hash(task) for task in tasks], [hash(future) for future in futures]
        await asyncio.wait(tasks)
        return numbers

    tasks, futures = World(1).run(main)
    assert tasks == sorted(tasks)
    assert futures == sorted(futures)
    assert len({*tasks, *futures}) == 40


def test_a_world_that_never_ran_is_given_back_without_a_word():
    gc.collect()  # what other tests left may warn
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        world = weakref.ref(World(1))
        gc.collect()
    assert world() is None
    assert not said
