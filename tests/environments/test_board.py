"""A board of faults: leases, expiry and combination of whatever parts it has; on virtual time."""

import asyncio

import pytest

from environments import board as boards
from environments.agent import agent
from environments.board import FaultBoard
from environments.lease import LeaseExpiredError, UnknownLeaseError
from environments.part import Part, PartFault
from environments.simulation import World


class Lamps(Part):
    """Broken lamps by node; what takes time is awaited, what cannot be done fails so often."""

    name = "lamp"
    primitives = ("dark", "flash")
    momentary = ("flash",)

    def __init__(self, *, slow=False):
        self.dark = set()
        self.fails = 0
        self.struck = []
        self.closed = False
        self.slow = slow

    async def strike(self, fault):
        self.struck.append(fault.nodes)

    def apply(self, in_force, changed):
        return self._later(in_force) if self.slow else self._now(in_force)

    def _now(self, in_force):
        if self.fails:
            self.fails -= 1
            raise OSError("the ladder is too short")
        self.dark = {node for fault in in_force for node in fault.nodes if fault.primitive == "dark"}

    async def _later(self, in_force):
        await asyncio.sleep(0.02)
        self._now(in_force)

    async def look(self, node):
        return "dark" if node in self.dark else "lit"

    async def close(self):
        self.closed = True


class Wires(Part):
    primitives = ("cut",)
    of_links = True

    def apply(self, in_force, changed):
        return None


@pytest.fixture(params=[False, True], ids=["at once", "taking time"])
def lamps(request):
    return Lamps(slow=request.param)


def on_board(parts, main):
    said = []

    async def run():
        board = FaultBoard(parts, say=said.append)
        try:
            await main(board)
        finally:
            await board.close()

    World(1).run(run)
    return said


async def dark(board, *nodes, lease_s=60.0):
    return await board.inject("dark", (), nodes, {}, lease_s)


def test_of_overlapping_faults_each_heals_alone_and_two_that_ask_for_the_same_are_two(lamps):
    async def main(board):
        first, again, other = [await dark(board, *nodes) for nodes in (("a", "b"), ("a", "b"), ("b", "c"))]
        assert lamps.dark == {"a", "b", "c"}
        await board.heal(first)
        await board.heal(first)
        assert lamps.dark == {"a", "b", "c"}
        await board.heal(again)
        assert lamps.dark == {"b", "c"}
        assert await board.look(["a/lamp", "b/lamp"]) == ["lit", "dark"]
        await board.heal(other)
        assert not lamps.dark

    assert on_board([Wires(), lamps], main) == []
    assert lamps.closed


def test_what_nobody_renews_ends_by_itself_and_what_somebody_does_stays(lamps):
    async def main(board):
        kept, left = await dark(board, "a", lease_s=0.2), await dark(board, "b", lease_s=0.2)
        for _ in range(4):
            await asyncio.sleep(0.1)
            await board.renew(kept)
        assert lamps.dark == {"a"}
        with pytest.raises(LeaseExpiredError):
            await board.renew(left)
        await asyncio.sleep(0.3)
        assert not lamps.dark

    said = on_board([lamps], main)
    assert said == ["lease-2 was not renewed, healed: dark b", "lease-1 was not renewed, healed: dark a"]


def test_what_nobody_renews_ends_where_nothing_can_be_said_either(lamps, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.print", full)

    async def run():
        for put in (boards._say, agent.say):
            board = FaultBoard([lamps], say=put)
            await dark(board, "a", lease_s=0.05)
            await asyncio.sleep(0.2)
            assert not lamps.dark

    World(1).run(run)


def test_a_short_lease_ends_in_time_behind_a_long_one(lamps):
    async def main(board):
        await dark(board, "a", lease_s=30)
        await dark(board, "b", lease_s=0.05)
        await asyncio.sleep(0.2)
        assert lamps.dark == {"a"}

    on_board([lamps], main)


def test_an_injection_that_fails_leaves_nothing_in_force(lamps):
    async def main(board):
        before = await dark(board, "a")
        lamps.fails = 1
        with pytest.raises(OSError, match="ladder"):
            await dark(board, "b")
        assert lamps.dark == {"a"}
        assert [fault.nodes for fault in board.in_force(lamps)] == [("a",)]
        await board.heal(before)
        assert not lamps.dark

    assert on_board([lamps], main) == []


def test_of_a_fault_of_two_parts_none_is_in_force_if_one_fails():
    good, bad = Lamps(), Lamps()

    async def main(board):
        bad.fails = 1
        with pytest.raises(OSError, match="ladder"):
            await board.begin(
                [PartFault(good, "dark", nodes=("a",)), PartFault(bad, "dark", nodes=("a",))], 60
            )
        assert not good.dark
        await board.begin([PartFault(good, "dark", nodes=("a",)), PartFault(bad, "dark", nodes=("b",))], 60)
        assert (good.dark, bad.dark) == ({"a"}, {"b"})
        await board.heal_all()
        assert (good.dark, bad.dark) == (set(), set())

    on_board([good, bad], main)


@pytest.mark.parametrize("expires", [False, True])
def test_healing_that_fails_is_tried_again_until_it_works(lamps, expires, monkeypatch):
    monkeypatch.setattr("environments.board.AGAIN_S", 0.05)

    async def main(board):
        lease = await dark(board, "a", lease_s=0.05 if expires else 60)
        lamps.fails = 3
        if expires:
            await asyncio.sleep(0.1)
        else:
            with pytest.raises(OSError, match="ladder"):
                await board.heal(lease)
        assert lamps.dark == {"a"}
        async with asyncio.timeout(5):
            while lamps.dark:
                await asyncio.sleep(0.01)

    said = on_board([lamps], main)
    assert said[-3:] == ["healing failed, trying again: the ladder is too short"] * 3


def test_what_takes_time_goes_on_when_nobody_waits_any_more():
    lamps = Lamps(slow=True)

    async def main(board):
        lease = await dark(board, "a")
        asking = asyncio.create_task(board.heal(lease))
        await asyncio.sleep(0)
        asking.cancel()
        asking = asyncio.create_task(dark(board, "b"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.sleep(0.1)
        assert not lamps.dark
        assert not board.in_force(lamps)

    on_board([lamps], main)


def test_what_happens_at_once_is_struck_once_and_leaves_nothing_to_heal(lamps):
    async def main(board):
        lease = await board.inject("flash", (), ["a"], {}, 0.05)
        await asyncio.sleep(0.1)
        await board.heal(lease)

    assert on_board([lamps], main) == []
    assert lamps.struck == [("a",)]


@pytest.mark.parametrize(
    ("primitive", "links", "nodes", "options", "message"),
    [
        ("melt", (), ("a",), {}, "no fault 'melt'; there are cut, dark, flash"),
        ("dark", (), (), {}, "dark: takes nodes, no links"),
        ("dark", ("a->b",), ("a",), {}, "dark: takes nodes, no links"),
        ("cut", ("a->b",), ("a",), {}, "cut: takes links, no nodes"),
        ("dark", (), ("a",), {"dim": 1}, "dark: takes no options, not dim"),
    ],
)
def test_bad_input_is_named(primitive, links, nodes, options, message):
    async def main(board):
        with pytest.raises(ValueError, match=f"^{message}$"):
            await board.inject(primitive, links, nodes, options, 60)
        with pytest.raises(UnknownLeaseError, match="no lease 'lease-1'"):
            await board.heal("lease-1")
        with pytest.raises(ValueError, match="nobody can look at 'a/clock'"):
            await board.look(["a/clock"])

    on_board([Wires(), Lamps()], main)
