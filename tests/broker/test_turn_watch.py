"""The watchdog of the event loop: which turns it logs, how often, and what it names."""

import asyncio
import logging
import time

import pytest

from broker.turn_budget import TurnBudget
from broker.turn_watch import LINES_MAX, PERIOD_S, TICK_S, TurnWatch

TOLD = (
    "a turn of the event loop took {0} ms, of which the process ran {0} ms (broker.longest-turn is 500 ms); "
    "no client was served meanwhile: {1}"
)

WAITED = (
    "no single piece of work took long; the process had to wait, for a processor or the disk, or was stopped"
)


class Clock:
    """A clock that goes when it is told to, and the processor time of a process."""

    def __init__(self):
        self.now_s = 100.0
        self.processor_s = 0.0

    def __call__(self):
        return self.now_s

    def processor(self):
        return self.processor_s

    def run(self, seconds, processor=None):
        self.now_s += seconds
        self.processor_s += seconds if processor is None else processor


@pytest.fixture
def watched(caplog):
    """(clock, watch, function that ends a turn, lines)."""
    clock = Clock()
    watch = TurnWatch(500, clock, clock.processor)
    caplog.set_level(logging.INFO, "broker.turn_watch")

    async def begin():
        watch.start()
        watch._timer.cancel()

    asyncio.run(begin())

    def tick(seconds, processor=None):
        async def turn():
            clock.run(TICK_S + seconds, processor)
            watch._tick()
            watch._timer.cancel()

        asyncio.run(turn())

    return clock, watch, tick, lambda: [record.getMessage() for record in caplog.records]


def test_a_turn_above_the_bound_is_logged_with_the_longest_that_ran_in_it(watched):
    clock, watch, tick, lines = watched
    began = watch.now()
    watch.note(began, lambda: "nothing much")
    clock.run(0.6)
    watch.note(began, lambda: "SEND '/topic/t' of session 1")
    watch.note(watch.now(), lambda: "nothing either")
    tick(0.1 - TICK_S)
    assert lines() == [
        TOLD.format(650, "600 ms of it were spent on SEND '/topic/t' of session 1"),
    ]
    tick(0.1)
    tick(0.7)
    assert lines()[1:] == [
        TOLD.format(700, "no single piece of work took long"),
    ]


def test_turns_within_the_bound_are_not_logged(watched):
    _, _, tick, lines = watched
    for _ in range(3):
        tick(0.4)
    assert lines() == []


def test_a_process_that_did_not_run_is_not_blamed(watched):
    _, _, tick, lines = watched
    tick(5.0, processor=0.1)
    assert lines() == [TOLD.replace("ran {0}", "ran 100").format(5000, WAITED)]


def test_lines_are_few_and_what_is_left_out_is_told_with_the_longest(watched):
    clock, watch, tick, lines = watched
    for seconds in (*[0.6] * LINES_MAX, 2.0, 0.7):
        tick(seconds)
    assert len(lines()) == LINES_MAX
    clock.run(PERIOD_S)
    tick(0.6)
    assert lines()[LINES_MAX] == (
        "2 more turns of the event loop exceeded broker.longest-turn; the longest took 2000 ms"
    )
    for _ in range(LINES_MAX):
        tick(0.6)
    watch.stop()
    assert "1 more turns of the event loop exceeded" in lines()[-1]


def test_a_loop_that_is_kept_busy_is_seen(caplog):
    """With the clock of this machine; the turn has a least length, and no bound above it."""

    async def scenario():
        watch = TurnWatch(20, processor_clock=time.perf_counter)  # as if nobody else ran
        watch.start()
        await asyncio.sleep(0)
        began = watch.now()
        while watch.now() - began < 0.1:
            pass
        watch.note(began, lambda: "a busy test")
        await asyncio.sleep(0.05)
        watch.stop()

    asyncio.run(scenario())
    assert "ms of it were spent on a busy test" in caplog.text


def test_a_budget_has_no_watch_unless_it_is_given_one():
    """As in every simulation."""

    async def scenario():
        assert TurnBudget().watch is None

    asyncio.run(scenario())
