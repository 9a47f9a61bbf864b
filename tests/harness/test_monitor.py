"""The role monitor: every interval it records holds the moment of the change, whatever the
delays.
"""

import asyncio
import random

import pytest

from harness.interface import Server, Status
from harness.run.monitor import Monitor, Watched


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes at once: what would be waited for is skipped."""

    def __init__(self):
        super().__init__()
        self.virtual = 0.0
        real_select = self._selector.select

        def select(timeout):
            if timeout:
                self.virtual += timeout
            return real_select(0)

        self._selector.select = select

    def time(self):
        return self.virtual


class Rows:
    """A recorder on the loop's virtual clock."""

    def __init__(self):
        self.rows = []

    def now_ns(self):
        return round(asyncio.get_running_loop().time() * 1e9)

    def event(self, process, type, f, **columns):  # noqa: A002
        if f == "role":
            self.rows.append(columns)
        return len(self.rows) - 1


class Broker:
    """A broker whose roles change at known moments.

    ``plan`` is [(time, role or None for "process gone")].
    """

    def __init__(self, plan, chance, *, silent=()):
        self.plan = plan
        self.chance = chance
        self.silent = silent

    def at(self, moment):
        past = [(epoch, role) for epoch, (time, role) in enumerate(self.plan) if time <= moment]
        return past[-1] if past else (-1, None)

    async def ask(self):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        if any(start <= loop.time() < end for start, end in self.silent):
            await asyncio.sleep(60)
        epoch, role = self.at(loop.time())
        if role is None:
            raise ConnectionRefusedError
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        return Status(name="a1", node_id="n", role=role, epoch=epoch)

    async def running(self):
        return self.at(asyncio.get_running_loop().time())[1] is not None


def observe(broker, seconds):
    """The rows a monitor records of one broker."""
    rows = Rows()

    async def main():
        monitor = Monitor([Watched(name="a1", ask=broker.ask, running=broker.running)], rows)
        task = asyncio.create_task(monitor.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return monitor

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        monitor = runner.run(main())
    return rows.rows, monitor


def certain(rows, role):
    """Intervals (ns) within which ``role`` is claimed for certain."""
    return [
        (row["time_high"], after["time_low"])
        for row, after in zip(rows, [*rows[1:], {"time_low": 10**18}], strict=True)
        if row["role"] == role and after["time_low"] > row["time_high"]
    ]


def truth(plan, role, end):
    """Intervals (s) in which the broker really had the role."""
    return [
        (start, after)
        for (start, which), (after, _) in zip(plan, [*plan[1:], (end, None)], strict=True)
        if which == role
    ]


@pytest.mark.parametrize("seed", range(60))
def test_certain_intervals_lie_within_the_truth(seed):
    """Roles, deaths, restarts and silences at random.

    Nothing that is claimed for certain is ever wrong.
    """
    chance = random.Random(seed)
    moments = sorted(chance.uniform(0, 20) for _ in range(chance.randrange(2, 12)))
    plan = [
        (0.0, "live"),
        *((moment, chance.choice(["live", "backup", "stopping", None])) for moment in moments),
    ]
    silent = [
        (start, start + chance.uniform(0.1, 3))
        for start in (chance.uniform(0, 20) for _ in range(chance.randrange(3)))
    ]
    rows, _ = observe(Broker(plan, chance, silent=silent), 22)
    assert rows
    for role in ("live", "backup"):
        real = truth(plan, role, 22.0)
        for start, end in certain(rows, role):
            end_s = min(end / 1e9, 22.0)
            assert any(begin <= start / 1e9 and end_s <= finish for begin, finish in _merged(real)), (
                role,
                start,
                end,
                plan,
            )


def _merged(intervals):
    """Touching intervals as one: live, then live again without a moment between, is live."""
    merged = []
    for start, end in sorted(intervals):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


@pytest.mark.parametrize("seed", range(20))
def test_a_change_lies_within_its_interval_and_soon_after(seed):
    chance = random.Random(seed)
    change = chance.uniform(1, 5)
    rows, _ = observe(Broker([(0.0, "backup"), (change, "live")], chance), 8)
    assert [row["role"] for row in rows] == ["backup", "live"]
    low, high = rows[1]["time_low"] / 1e9, rows[1]["time_high"] / 1e9
    assert low <= change <= high
    assert high - low < 0.5


def test_a_role_that_went_and_came_back_unseen_breaks_the_certainty():
    rows, _ = observe(Broker([(0.0, "live"), (1.0, "stopping"), (1.001, "live")], random.Random(3)), 3)
    assert [row["role"] for row in rows] == ["live", "unreachable", "live"]
    starts = certain(rows, "live")
    assert len(starts) == 2
    assert not any(start < 1.0e9 and end > 1.001e9 for start, end in starts)


def test_a_paused_broker_is_unreachable_and_then_itself_again():
    rows, monitor = observe(Broker([(0.0, "live")], random.Random(1), silent=[(1, 3)]), 5)
    assert [row["role"] for row in rows] == ["live", "unreachable", "live"]
    assert rows[1]["time_low"] / 1e9 <= 1.0
    assert monitor.roles() == {"a1": "live"}


def test_stopped_is_claimed_only_when_the_process_is_gone():
    class Deaf(Broker):
        async def running(self):
            return True

    plan = [(0.0, "live"), (1.0, None)]
    assert [row["role"] for row in observe(Broker(plan, random.Random(1)), 3)[0]] == ["live", "stopped"]
    assert [row["role"] for row in observe(Deaf(plan, random.Random(1)), 3)[0]] == ["live", "unreachable"]


def test_a_node_that_was_never_started_is_no_row():
    rows, monitor = observe(Broker([(0.0, None)], random.Random(1)), 2)
    assert rows == []
    assert monitor.roles() == {"a1": "stopped"}


def test_until_waits_for_an_answer_and_gives_up_in_time():
    broker = Broker([(0.0, "backup"), (2.0, "live")], random.Random(1))

    async def main():
        monitor = Monitor([Watched(name="a1", ask=broker.ask, running=broker.running)], Rows())
        task = asyncio.create_task(monitor.run())

        def live(statuses):
            return "a1" in statuses and statuses["a1"].role == "live"

        early = await monitor.until(live, 1.0)
        late = await monitor.until(live, 5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return early, late

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == (False, True)


class ReplicatedBroker(Broker):
    """A live whose backup is up to date at first, goes away at 2 s and is back at 4 s."""

    async def ask(self):
        await asyncio.sleep(0.01)
        now = asyncio.get_running_loop().time()
        return Status(name="a1", node_id="n", role="live", epoch=1, replicating=not 2 <= now < 4)


@pytest.mark.parametrize("shares", [False, True])
def test_the_window_without_an_up_to_date_backup_is_recorded(shares):
    """Data that are shared have no copy that could be out of date."""

    class All(Rows):
        def event(self, process, type, f, **columns):  # noqa: A002
            self.rows.append((f, columns))
            return len(self.rows) - 1

    rows = All()
    broker = ReplicatedBroker([(0, "live")], random.Random(1))

    async def watch():
        watched = [Watched(name="a1", ask=broker.ask, running=broker.running, shares=shares)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(6):
                await Monitor(watched, rows).run()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(watch())
    told = [
        (columns["value"], columns["time_low"] / 1e9, columns["time_high"] / 1e9)
        for f, columns in rows.rows
        if f == "replication"
    ]
    if shares:
        assert told == []
        return
    assert [value for value, _, _ in told] == ["replicated", "unreplicated", "replicated"]
    for moment, (_, low, high) in zip((2, 4), told[1:], strict=True):
        assert low <= moment <= high


class Colocated:
    """A broker beside whose own server a backup of "b" runs, which takes over and goes away."""

    def backup(self, moment):
        if moment < 2.0:
            return (Server(name="a1/b", node_id="b", role="backup", epoch=1, replicating=True),)
        return (Server(name="a1/b", node_id="b", role="live", epoch=2),) if moment < 4.0 else ()

    async def ask(self):
        now = asyncio.get_running_loop().time()
        if now >= 6.0:
            raise ConnectionRefusedError
        own = "backup" if now >= 1.0 else "live"
        return Status(name="a1", node_id="a", role=own, epoch=int(now >= 1.0), others=self.backup(now))

    async def running(self):
        return True


def test_each_server_of_a_node_has_rows_of_its_own_and_the_node_serves_if_one_of_them_does():
    roles = []
    rows = Rows()
    loop = VirtualLoop()
    monitor = Monitor(
        [Watched("a1", (broker := Colocated()).ask, broker.running)],
        rows,
        on_change=lambda node, role: roles.append((node, role)),
    )

    async def watch():
        task = asyncio.ensure_future(monitor.run())
        await asyncio.sleep(8.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    loop.run_until_complete(watch())
    loop.close()
    assert [(row["broker"], row["node_id"], row["role"]) for row in rows.rows] == [
        ("a1", "a", "live"),
        ("a1/b", "b", "backup"),
        ("a1", "a", "backup"),
        ("a1/b", "b", "live"),
        ("a1/b", None, "stopped"),
        ("a1", None, "unreachable"),
    ]
    assert roles == [
        ("a1", "live"),
        ("a1", "backup"),
        ("a1", "live"),
        ("a1", "backup"),
        ("a1", "unreachable"),
    ]
