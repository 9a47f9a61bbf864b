"""The clock of a machine as what can break, on a clock that is none."""

import asyncio

import pytest

from environments.agent import clock as clocks
from environments.agent import end
from environments.agent.clock import Clock
from environments.board import FaultBoard


class Wall:
    """A wall clock that is set, and a monotonic one that is not."""

    ahead_ms = 0.0

    def shift(self, milliseconds):
        self.ahead_ms += milliseconds


@pytest.fixture
def wall(monkeypatch):
    wall = Wall()
    monkeypatch.setattr(clocks, "shift", wall.shift)
    monkeypatch.setattr(Clock, "_offset_ms", staticmethod(lambda: 7000 + wall.ahead_ms))
    return wall


def board(part):
    return FaultBoard([part], say=lambda line: None)


def test_faults_of_a_clock_add_up_and_the_last_one_healed_sets_it_right(wall, tmp_path):
    async def test():
        part = Clock(tmp_path / "clock")
        under_test = board(part)
        assert await part.look("") == "true"
        first = await under_test.begin([under_test.fault("skew", (), (), {"skew_ms": 500})], 60)
        second = await under_test.begin([under_test.fault("skew", (), (), {"skew_ms": -200})], 60)
        assert (wall.ahead_ms, await part.look("")) == (300, "skewed 300 ms")
        assert (tmp_path / "clock").read_text() == "300.0"
        await under_test.heal(first)
        assert wall.ahead_ms == -200
        await under_test.heal(second)
        assert (wall.ahead_ms, await part.look("")) == (0, "true")
        assert (tmp_path / "clock").read_text() in ("0", "0.0")

    asyncio.run(test())


def test_a_clock_that_jumps_is_seen_to_and_stands_right_when_it_stops(wall, tmp_path):
    async def test():
        part = Clock(tmp_path / "clock")
        under_test = board(part)
        wanted = {"skew_ms": 400, "period_ms": 40}
        lease = await under_test.begin([under_test.fault("strobe", (), (), wanted)], 60)
        assert await part.look("") == "true, strobing 400 ms"
        await under_test.heal(lease)
        assert wall.ahead_ms == 0
        await asyncio.sleep(0.1)
        assert wall.ahead_ms == 0

    asyncio.run(test())


def test_nobody_who_does_not_renew_keeps_a_clock_wrong(wall, tmp_path):
    async def test():
        part = Clock(tmp_path / "clock")
        under_test = board(part)
        await under_test.begin([under_test.fault("skew", (), (), {"skew_ms": 500})], 0.05)
        async with asyncio.timeout(10):
            while wall.ahead_ms:
                await asyncio.sleep(0.01)

    asyncio.run(test())


def test_of_a_clock_that_may_not_be_set_nothing_is_recorded(wall, monkeypatch, tmp_path):
    def refuse(_):
        raise PermissionError(1, "Operation not permitted")

    async def test():
        under_test = board(Clock(tmp_path / "clock"))
        monkeypatch.setattr(clocks, "shift", refuse)
        with pytest.raises(PermissionError):
            await under_test.begin([under_test.fault("skew", (), (), {"skew_ms": 500})], 60)
        assert float((tmp_path / "clock").read_text()) == 0  # else its end would set it by as much

    asyncio.run(test())


def test_what_is_left_of_a_node_is_removed_though_its_agent_was_killed_while_it_took_note(
    wall, monkeypatch, tmp_path
):
    root = tmp_path / "run" / "a1"
    root.mkdir(parents=True)
    (root / "clock").touch()
    monkeypatch.setattr(end.sys, "argv", ["end", str(root)])
    end.main()
    assert not root.exists()
    assert wall.ahead_ms == 0


@pytest.mark.parametrize(("name", "wanted"), [("skew", {}), ("strobe", {"skew_ms": 1, "period_ms": 0})])
def test_what_is_no_fault_of_a_clock_is_refused(wall, tmp_path, name, wanted):
    async def test():
        under_test = board(Clock(tmp_path / "clock"))
        with pytest.raises((ValueError, KeyError)):
            under_test.fault(name, (), (), wanted)

    asyncio.run(test())
    assert wall.ahead_ms == 0


def test_a_clock_that_jumps_seldom_is_watched_until_it_would_have(wall, tmp_path):
    async def test():
        part = Clock(tmp_path / "clock")
        under_test = board(part)
        fault = under_test.fault("strobe", (), (), {"skew_ms": 400, "period_ms": 1200})
        lease = await under_test.begin([fault], 60)
        await asyncio.sleep(0.05)
        assert await part.look("") == "true, strobing 400 ms"
        await under_test.heal(lease)
        goes_on = asyncio.create_task(part._strobe(fault))  # as if it were not healed
        await asyncio.sleep(0.05)
        assert "strobing 400 ms" in await part.look("")
        goes_on.cancel()

    asyncio.run(test())
