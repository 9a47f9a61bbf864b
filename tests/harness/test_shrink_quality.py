"""How small the shrunk runs are: the suite that says whether shrinking is any good.

Every case hides something known among faults, properties and clients that have nothing to do with it, and asserts what is left.
"""

import msgspec
import pytest

from harness import shrink, swarm
from harness.interface import Fault, Schedule, TestSpec, UsageError
from harness.scenarios import named
from harness.simulate import simulate

UNLIMITED = 1e9
"""Seconds: these tests bound runs only, so that a loaded machine gives the same result."""

NOISE_PROPERTIES = {
    "*": {
        "journal.segment-size": 8192,
        "cluster.retry-interval": 300,
        "ha-policy.replication.vote-retries": 10,
    }
}


def noise(after_s=0.0):
    """Seven faults that a pair survives."""
    return (
        Fault(kind="clock-skew", start_s=0.513, duration_s=2.2, target="one"),
        Fault(kind="disk-slow", start_s=1.137, duration_s=2.0, target="live", options={"delay_ms": 5.0}),
        Fault(
            kind="slow",
            start_s=2.011,
            duration_s=1.3,
            shape="pair-link",
            options={"delay_ms": 20.0, "pair": "a"},
        ),
        Fault(kind="pause", start_s=3.217, duration_s=0.3, target="live"),
        Fault(kind="clock-step", start_s=after_s + 9.5, duration_s=1.0, target="one"),
        Fault(kind="kill", start_s=after_s + 11.2, duration_s=1.1, target="backup"),
        Fault(kind="disk-slow", start_s=after_s + 12.6, duration_s=1.0, target="one"),
    )


def hidden(*faults, **changes):
    """Those faults among the noise, in order."""
    together = sorted((*noise(), *faults), key=lambda fault: fault.start_s)
    spec = msgspec.structs.replace(
        named("RP4").spec,
        **{"name": "hidden", "time_limit_s": 14.0, "rate": 60.0, "properties": NOISE_PROPERTIES, **changes},
    )
    return spec, Schedule(faults=tuple(together))


def shrunk(spec, schedule, anomaly, runs=shrink.RUNS):
    run = simulate(spec, schedule)
    assert anomaly in run.grave
    result = shrink.shrink(run, anomaly, budget=shrink.Budget(runs=runs, seconds=UNLIMITED))
    assert anomaly in result.evidence.grave
    assert simulate(result.case.spec, result.case.schedule).digest == result.evidence.digest
    return result


def test_the_split_brain_of_one_pair_among_eight_faults_shrinks_to_the_one_cut_that_makes_it():
    cut = Fault(kind="partition", start_s=4.391, duration_s=5.617, shape="halves", options={"pair": "a"})
    result = shrunk(*hidden(cut, prefetch=10), "split-brain")
    assert [fault.kind for fault in result.case.schedule.faults] == ["partition"]
    (fault,) = result.case.schedule.faults
    assert (fault.shape, fault.options) == ("pair-link", {})
    assert fault.duration_s <= 4.0
    spec = result.case.spec
    assert (spec.groups, spec.properties, spec.prefetch) == (1, {}, None)
    assert spec.time_limit_s <= 6.0
    assert result.complete
    assert result.runs <= 150


def test_the_loss_of_rp11_keeps_at_most_the_two_faults_that_it_takes():
    scenario = named("RP11")
    spec = msgspec.structs.replace(scenario.spec, time_limit_s=14.0, properties=NOISE_PROPERTIES)
    extra = (noise()[0], noise()[1], noise()[4])
    faults = sorted((*scenario.schedule.faults, *extra), key=lambda fault: fault.start_s)
    result = shrunk(spec, Schedule(faults=tuple(faults)), "lost")
    kinds = [fault.kind for fault in result.case.schedule.faults]
    assert len(kinds) <= 2
    assert "destroy" in kinds
    assert result.case.spec.properties == {}


def test_a_broken_property_is_what_is_left_of_several():
    scenario = named("RP14-false")
    properties = {
        "*": {**NOISE_PROPERTIES["*"], **scenario.spec.properties["*"]},
        "a2": {"cluster.call-timeout": 900},
    }
    result = shrunk(
        msgspec.structs.replace(scenario.spec, properties=properties), scenario.schedule, "split-brain"
    )
    assert result.case.spec.properties == scenario.spec.properties
    assert [fault.kind for fault in result.case.schedule.faults] == ["kill"]


# ------------------------------------------------------------------------------------------------- the loop by itself

SPEC = TestSpec(name="loop", pairs=3, groups=6)


def plan(*starts):
    return Schedule(faults=tuple(Fault(kind="kill", start_s=start, duration_s=1.0) for start in starts))


def starts_of(case):
    return {fault.start_s for fault in case.schedule.faults}


def reduced(needed, schedule, **options):
    """Faults only: the failure needs all those that begin at ``needed``; the cases that were run."""
    ran = []

    def find(case):
        ran.append(case)
        return "proof" if set(needed) <= starts_of(case) else None

    start = shrink.Case(SPEC, schedule)
    return shrink.reduce(start, "given", find, [shrink.fewer_faults], **{"seeds": 1, **options}), ran


@pytest.mark.parametrize("needed", [(), (7.0,), (0.0, 39.0), (3.0, 4.0, 20.0)])
def test_of_forty_faults_exactly_those_stay_that_it_takes(needed):
    result, ran = reduced(needed, plan(*map(float, range(40))))
    assert starts_of(result.case) == set(needed)
    assert result.runs == len(ran) <= 60
    assert len({msgspec.json.encode(case.schedule) for case in ran}) == len(ran), "nothing is run twice"


def test_the_budget_ends_it_with_the_smallest_case_so_far():
    result, ran = reduced((3.0, 4.0, 20.0), plan(*map(float, range(40))), budget=shrink.Budget(runs=5))
    assert len(ran) == result.runs == 5
    assert not result.complete
    assert {3.0, 4.0, 20.0} <= starts_of(result.case)


def test_what_cannot_be_made_smaller_stays_as_it_was():
    schedule = plan(1.0, 2.0)
    result, _ = reduced((1.0, 2.0), schedule)
    assert (result.case.schedule, result.evidence, result.complete) == (schedule, "given", True)


def test_a_case_that_does_not_exist_is_no_smaller_one():
    def find(case):
        raise UsageError("no such cluster")

    start = shrink.Case(SPEC, plan(1.0))
    assert shrink.reduce(start, "given", find, shrink.PASSES).case == start


def test_other_seeds_are_tried_where_much_is_taken_away():
    def find(case):
        return "proof" if case.schedule.faults == () and case.spec.seed == 1 else None

    start = shrink.Case(msgspec.structs.replace(SPEC, seed=99), plan(1.0))
    result = shrink.reduce(start, "given", find, [shrink.fewer_faults])
    assert result.case.schedule.faults == ()
    assert result.case.spec.seed == 1


def test_shrinking_does_not_leave_the_bounds_that_the_run_kept():
    """With three pairs a cut is to be survived; with one pair it is not, and a bug must not shrink to that."""
    cut = Schedule(faults=(Fault(kind="partition", start_s=1.0, duration_s=3.0, shape="pair-link"),))
    three, one = (TestSpec(name="bounds", pairs=pairs) for pairs in (3, 1))
    assert swarm.promised(three, cut)
    assert not swarm.promised(one, cut)

    def allowed(case):
        return swarm.promised(case.spec, case.schedule)

    def find(case):
        return "proof" if case.schedule.faults else None

    result = shrink.reduce(
        shrink.Case(three, cut), "given", find, [shrink.fewer_pairs, shrink.fewer_faults], allowed=allowed
    )
    assert result.case.spec.pairs == 3
    free = shrink.reduce(shrink.Case(three, cut), "given", find, [shrink.fewer_pairs])
    assert free.case.spec.pairs == 1


def test_every_step_of_every_pass_is_simpler_so_that_shrinking_ends():
    """Faults drawn unbounded, everything fails: the end is the emptiest test there is, in few steps."""
    drawn_from = swarm.swarm(TestSpec(**{"name": "ends", **swarm.DEFAULTS}), bounded=False)
    for number in range(6):
        spec, schedule = swarm.draw(drawn_from, f"ends/{number}")
        for kept in (False, True):
            count = len(schedule.faults) if kept else 0
            result = shrink.reduce(
                shrink.Case(spec, schedule),
                "given",
                lambda case, count=count: "proof" if len(case.schedule.faults) >= count else None,
                shrink.PASSES,
                budget=shrink.Budget(runs=3000, seconds=UNLIMITED),
            )
            assert result.complete
            assert len(result.case.schedule.faults) == count
            assert (result.case.spec.groups, result.case.spec.pairs) == (1, 1)
            assert not any(fault.options for fault in result.case.schedule.faults)
