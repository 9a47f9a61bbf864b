import asyncio
import contextlib

import pytest
import uvloop

from environments.link_condition import CLEAR, LinkCondition
from environments.link_probe import LinkProbe
from environments.link_proxy import LinkProxy
from harness.interface import Link

A, B = Link("a1", "b1"), Link("b1", "a1")
C = Link("c1", "a1")


@contextlib.asynccontextmanager
async def network():
    proxy = LinkProxy()
    probe = await LinkProbe.open(proxy, [A, C, B])
    try:
        yield proxy, probe
    finally:
        await probe.close()
        await proxy.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    return uvloop.run if request.param == "uvloop" else asyncio.run


def slow_ms(answer):
    word, number, unit = answer.split()
    assert (word, unit) == ("slow", "ms")
    return float(number)


def test_each_direction_is_proven_for_itself(run):
    async def main():
        async with network() as (proxy, probe):
            assert await probe.probe([A, B, C]) == {A: "open", B: "open", C: "open"}
            proxy.set_condition(A, LinkCondition(cut=True))
            assert await probe.probe([A, B, C]) == {A: "lost", B: "open", C: "open"}
            proxy.set_condition(B, LinkCondition(cut=True))
            assert await probe.probe([A, B]) == {A: "lost", B: "lost"}
            proxy.set_condition(A, CLEAR)
            assert await probe.probe([A, B]) == {A: "open", B: "lost"}
            proxy.set_condition(B, CLEAR)
            assert await probe.probe([A, B]) == {A: "open", B: "open"}

    run(main())


def test_a_long_cut_can_be_probed_again_and_again(run):
    async def main():
        async with network() as (proxy, probe):
            proxy.set_condition(A, LinkCondition(cut=True))
            answers = await asyncio.gather(*(probe.probe([A, B]) for _ in range(40)))
            assert all(answer == {A: "lost", B: "open"} for answer in answers)
            proxy.set_condition(A, CLEAR)
            assert await probe.probe([A, B]) == {A: "open", B: "open"}

    run(main())


@pytest.mark.slow
def test_delay_and_rate_are_measured_not_believed(run):
    async def main():
        async with network() as (proxy, probe):
            proxy.set_condition(A, LinkCondition(delay_ms=500))
            found = await probe.probe([A, B])
            # The control takes a little time as well, which is taken off: a slow machine may make
            # it some milliseconds less.
            assert slow_ms(found[A]) >= 250
            assert found[B] == "open"
            proxy.set_condition(A, LinkCondition(rate_bytes_s=30_000))
            assert slow_ms((await probe.probe([A]))[A]) >= 250
            proxy.set_condition(A, LinkCondition(rate_bytes_s=500))
            assert (await probe.probe([A]))[A].startswith("slow over ")

    run(main())


def test_a_reset_is_refused_and_mends(run):
    async def main():
        async with network() as (proxy, probe):
            proxy.set_condition(A, LinkCondition(reset=True))
            assert await probe.probe([A, B, C]) == {A: "refused", B: "refused", C: "open"}
            proxy.set_condition(A, CLEAR)
            await probe.mend()
            proxy.set_condition(B, LinkCondition(cut=True))
            assert await probe.probe([A, B]) == {A: "open", B: "lost"}

    run(main())


def test_a_link_that_is_not_there_is_no_proof(run):
    async def main():
        async with network() as (_, probe):
            assert await probe.probe([Link("c1", "c2")]) == {Link("c1", "c2"): "no such link"}
            assert await probe.probe([Link("c1", "c2"), A]) == {Link("c1", "c2"): "no such link", A: "open"}

    run(main())


@pytest.mark.parametrize(
    ("condition", "answers", "told"),
    [
        (CLEAR, ["slow 14 ms", "open"], "open"),
        (CLEAR, ["slow 14 ms", "lost"], "lost"),
        (CLEAR, ["slow 14 ms"] * 5, "slow 14 ms"),
        (LinkCondition(delay_ms=20), ["slow 21 ms"], "slow 21 ms"),
    ],
    ids=["a hiccup", "lost meanwhile", "slow for unknown reasons", "slowed by a fault"],
)
def test_a_link_is_called_slow_without_a_fault_only_when_it_is_so_again_and_again(
    run, condition, answers, told, monkeypatch
):
    async def main():
        async with network() as (proxy, probe):
            left = list(answers)

            async def ask(known):
                return {link: left.pop(0) for link in known}

            proxy.set_condition(A, condition)
            monkeypatch.setattr(probe, "_ask", ask)
            assert await probe.probe([A]) == {A: told}
            assert left == []

    run(main())
