"""The monitor where brokers live in this process.

It looks instead of asking, and claims no more than it saw.
"""

import asyncio

from harness.history.rows import MemoryRecorder
from harness.interface import Status
from harness.run.monitor import Monitor, Watched


def rows_of(script, *, gone_at=()):
    """Role rows of one broker whose answers are ``script``.

    A (role, epoch) or an exception for each look.
    """
    clock = [0]
    recorder = MemoryRecorder(lambda: clock[0])
    answers = iter(script)
    over = asyncio.Event()
    looks = [0]

    def look():
        clock[0] += 70_000_000
        looks[0] += 1
        try:
            answer = next(answers)
        except StopIteration:
            over.set()
            answer = script[-1]
        if isinstance(answer, Exception):
            raise answer
        role, epoch = answer
        return Status(name="a1", node_id="n", role=role, epoch=epoch)

    async def running():
        return looks[0] not in gone_at

    async def never():
        raise AssertionError("a near broker is not asked over the network")

    async def main():
        monitor = Monitor(
            [Watched(name="a1", ask=never, running=running, look=look)], recorder, interval_s=0.0
        )
        watching = asyncio.ensure_future(monitor.run())
        await asyncio.wait(
            [watching, asyncio.ensure_future(over.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        watching.cancel()
        await asyncio.wait([watching])
        if not watching.cancelled():
            watching.result()

    asyncio.run(main())
    return [
        (row["role"], row["time_low"] // 70_000_000, row["time_high"] // 70_000_000)
        for row in recorder.dicts()
        if row["f"] == "role"
    ]


def test_a_change_lies_between_the_last_look_that_saw_the_old_and_the_first_that_saw_the_new():
    rows = rows_of([("backup", 1), ("backup", 1), ("live", 2), ("live", 2), ("live", 2)])
    assert [row[0] for row in rows] == ["backup", "live"]
    _, low, high = rows[1]
    assert high - low == 1


def test_a_role_that_changed_and_came_back_unseen_is_not_claimed_to_have_lasted():
    assert [row[0] for row in rows_of([("live", 1), ("live", 3), ("live", 3)])] == [
        "live",
        "unreachable",
        "live",
    ]


def test_a_broker_that_stands_still_is_unreachable_and_one_whose_process_is_gone_is_stopped():
    silent = [("live", 1), TimeoutError("stands still"), ("live", 1)]
    assert [row[0] for row in rows_of(silent)] == ["live", "unreachable", "live"]
    refused = [("live", 1), ConnectionRefusedError("nobody"), ("backup", 2)]
    assert [row[0] for row in rows_of(refused, gone_at=(2,))] == ["live", "stopped", "backup"]
