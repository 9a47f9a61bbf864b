"""What the monitor makes of the takeovers that brokers tell of.

Each once, dated as surely as a change of role.
"""

import asyncio

import pytest

from harness.history.rows import MemoryRecorder
from harness.interface import Status, Takeover
from harness.run.monitor import Monitor, Watched

LOOK_NS = 70_000_000
FIRST, SECOND = Takeover(node_id="n", life=2), Takeover(node_id="m", life=5)


def seen(script):
    """(f, role or node, value, looks between which it happened, from 0) of what a broker's
    answers become: (role, epoch, life, takeovers) or an exception each.
    """
    clock = [0]
    recorder = MemoryRecorder(lambda: clock[0])
    answers = iter(script)
    over = asyncio.Event()

    def look():
        clock[0] += LOOK_NS
        answer = next(answers, None)
        if answer is None:
            over.set()
            raise TimeoutError("stands still")
        if isinstance(answer, Exception):
            raise answer
        role, epoch, life, takeovers = answer
        return Status(name="a1", node_id="n", role=role, epoch=epoch, life=life, takeovers=takeovers)

    async def running():
        return True

    async def never():
        raise AssertionError("a near broker is not asked over the network")

    async def main():
        watched = Watched(name="a1", ask=never, running=running, look=look)
        watching = asyncio.ensure_future(Monitor([watched], recorder, interval_s=0.0).run())
        await asyncio.wait(
            [watching, asyncio.ensure_future(over.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        watching.cancel()
        await asyncio.wait([watching])
        if not watching.cancelled():
            watching.result()

    asyncio.run(main())
    return [
        (
            row["f"],
            row["role"] or row["node_id"],
            row["value"],
            row["time_low"] // LOOK_NS,
            row["time_high"] // LOOK_NS,
        )
        for row in recorder.dicts()
        if row["f"] in ("role", "takeover")
    ]


def test_a_takeover_lies_between_the_last_look_without_it_and_the_first_with_it():
    rows = seen(
        [
            ("backup", 1, None, ()),
            ("backup", 1, None, ()),
            ("live", 2, 2, (FIRST,)),
            ("live", 2, 2, (FIRST,)),
            ("live", 2, 2, (FIRST, SECOND)),
            ("live", 2, 2, (FIRST, SECOND)),
        ]
    )
    assert rows[1:4] == [
        ("role", "live", "2", 1, 2),
        ("takeover", "n", "2", 1, 2),
        ("takeover", "m", "5", 3, 4),
    ]


def test_only_a_live_has_a_number_in_its_row():
    rows = seen([("live", 1, 3, ()), ("verifying", 2, 3, ()), ("live", 3, 3, ())])
    assert [row[:3] for row in rows[:3]] == [
        ("role", "live", "3"),
        ("role", "verifying", None),
        ("role", "live", "3"),
    ]


@pytest.mark.parametrize(
    "between",
    [[], [("verifying", 3, 2, (FIRST,)), ("live", 4, 2, (FIRST,))], [TimeoutError("stands still")]],
)
def test_a_takeover_that_is_told_of_again_and_again_is_one(between):
    rows = seen([("live", 2, 2, (FIRST,)), *between, ("live", 4 if between else 2, 2, (FIRST,))])
    assert [row for row in rows if row[0] == "takeover"] == [("takeover", "n", "2", 0, 0)]


def test_after_a_silence_a_takeover_may_be_as_old_as_the_last_answer():
    rows = seen([("live", 2, 1, ()), TimeoutError("stands still"), ("live", 2, 1, (SECOND,))])
    assert [row for row in rows if row[0] == "takeover"] == [("takeover", "m", "5", 0, 2)]
