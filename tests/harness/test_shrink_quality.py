"""How small the shrunk runs are: the suite that says whether shrinking is any good.

Every case hides something known among faults, properties and clients that have nothing to do with
it, or is what a search drew for a bug that was put in, and has a bar: how much of everything may be
left. Nothing may be left that can go alone.
"""

from dataclasses import dataclass

import msgspec
import pytest
import share

from harness.claims.scenarios import named
from harness.explore import swarm
from harness.explore.shrink import delta, shrink
from harness.explore.shrink.case import Attempts, Budget, ShrinkCase
from harness.interface import Fault, Schedule, TestSpec, UsageError
from harness.run.simulate import simulate

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


@dataclass(frozen=True)
class Bar:
    """What may be left at the most; ``runs`` is what finding it may take."""

    faults: int
    properties: int
    clients: int
    groups: int
    seconds: float
    runs: int


def shrunk(spec, schedule, anomaly, bar):
    """The smallest case: reproducible, below its bar, and without a fault, property or client
    too many.
    """
    run = simulate(spec, schedule)
    assert anomaly in run.grave
    result = shrink.shrink(run, anomaly, budget=Budget(runs=bar.runs, seconds=UNLIMITED))
    assert result.complete, f"{bar.runs} runs were too few"
    assert anomaly in result.evidence.grave
    assert simulate(result.case.spec, result.case.schedule).digest == result.evidence.digest
    below(result.case, bar)
    minimal(result.case, anomaly, bounded=swarm.promised(spec, schedule))
    return result.case


def below(case, bar):
    spec = case.spec
    left = Bar(
        faults=len(case.schedule.faults),
        properties=sum(len(values) for values in spec.properties.values()),
        clients=spec.producers + spec.consumers,
        groups=spec.groups,
        seconds=spec.time_limit_s,
        runs=0,
    )
    for name in ("faults", "properties", "clients", "groups", "seconds"):
        assert getattr(left, name) <= getattr(bar, name), (name, left)


def minimal(case, anomaly, *, bounded):
    """Each fault and each property that is left is needed."""
    for smaller in [*without_one_fault(case), *without_one_property(case)]:
        if not bounded or swarm.promised(smaller.spec, smaller.schedule):
            assert anomaly not in simulate(smaller.spec, smaller.schedule).grave, smaller


def without_one_fault(case):
    faults = case.schedule.faults
    for place in range(len(faults)):
        yield ShrinkCase(case.spec, Schedule(faults=faults[:place] + faults[place + 1 :]))


def without_one_property(case):
    for node, values in case.spec.properties.items():
        for name in values:
            rest = {other: value for other, value in values.items() if other != name}
            properties = {**case.spec.properties, node: rest}
            yield ShrinkCase(msgspec.structs.replace(case.spec, properties=properties), case.schedule)


CUT = Fault(kind="partition", start_s=4.391, duration_s=5.617, shape="halves", options={"pair": "a"})


FOUR_MORE = (
    Fault(kind="clock-step", start_s=0.9, duration_s=0.7, target="one"),
    Fault(kind="disk-slow", start_s=2.6, duration_s=0.9, target="one", options={"delay_ms": 5.0}),
    Fault(kind="pause", start_s=10.4, duration_s=0.2, target="one"),
    Fault(kind="clock-skew", start_s=11.9, duration_s=1.2, target="one"),
)


@pytest.mark.in_turn
@pytest.mark.parametrize("more", [(), FOUR_MORE], ids=["eight faults", "twelve faults"])
def test_the_split_brain_of_one_pair_shrinks_to_the_one_cut_that_makes_it(more):
    bar = Bar(faults=1, properties=0, clients=2, groups=1, seconds=6.0, runs=120)
    small = shrunk(*hidden(CUT, *more, prefetch=10), "split-brain", bar)
    (fault,) = small.schedule.faults
    assert (fault.kind, fault.shape, fault.options) == ("partition", "pair-link", {})
    assert fault.duration_s <= 4.0
    assert small.spec.prefetch is None
    assert small.spec.rate <= 20.0


@pytest.mark.long
@pytest.mark.in_turn
def test_the_loss_of_rp11_keeps_at_most_the_two_faults_that_it_takes():
    """It takes some 20 s: two hundred runs, of which each loses something."""
    scenario = named("RP11")
    spec = msgspec.structs.replace(scenario.spec, time_limit_s=14.0, rate=40.0, properties=NOISE_PROPERTIES)
    extra = (noise()[0], noise()[1], noise()[4])
    faults = sorted((*scenario.schedule.faults, *extra), key=lambda fault: fault.start_s)
    bar = Bar(faults=2, properties=0, clients=4, groups=2, seconds=5.0, runs=240)
    small = shrunk(spec, Schedule(faults=tuple(faults)), "lost", bar)
    assert "destroy" in [fault.kind for fault in small.schedule.faults]


@pytest.mark.slow
def test_a_broken_property_is_what_is_left_of_several():
    scenario = named("RP14-false")
    properties = {
        "*": {**NOISE_PROPERTIES["*"], **scenario.spec.properties["*"]},
        "a2": {"cluster.call-timeout": 900},
    }
    bar = Bar(faults=1, properties=1, clients=2, groups=1, seconds=5.0, runs=120)
    small = shrunk(
        msgspec.structs.replace(scenario.spec, properties=properties), scenario.schedule, "split-brain", bar
    )
    assert small.spec.properties == scenario.spec.properties
    assert [fault.kind for fault in small.schedule.faults] == ["kill"]


# ------------------------------------------------------------------------------- the loop by itself

SPEC = TestSpec(name="loop", pairs=3, groups=6)


def plan(*starts):
    return Schedule(faults=tuple(Fault(kind="kill", start_s=start, duration_s=1.0) for start in starts))


def starts_of(case):
    return {fault.start_s for fault in case.schedule.faults}


def fewest(needed, schedule, **options):
    """Faults only: the failure needs all those that begin at ``needed``.

    The cases that were run.
    """
    ran = []

    def find(case):
        ran.append(case)
        return "proof" if set(needed) <= starts_of(case) else None

    attempts = Attempts(ShrinkCase(SPEC, schedule), "given", find, **{"seeds": 1, **options})
    delta.fewer_faults(attempts)
    return attempts.ended(), ran


def smallest(start, find, **options):
    attempts = Attempts(start, "given", find, **{"budget": Budget(runs=3000, seconds=UNLIMITED), **options})
    shrink.reduce(attempts)
    return attempts.ended()


@pytest.mark.parametrize("needed", [(), (7.0,), (0.0, 39.0), (3.0, 4.0, 20.0)])
def test_of_forty_faults_exactly_those_stay_that_it_takes(needed):
    result, ran = fewest(needed, plan(*map(float, range(40))))
    assert starts_of(result.case) == set(needed)
    assert result.runs == len(ran) <= 60
    assert len({msgspec.json.encode(case.schedule) for case in ran}) == len(ran), "nothing is run twice"


def test_the_budget_ends_it_with_the_smallest_case_so_far():
    result, ran = fewest((3.0, 4.0, 20.0), plan(*map(float, range(40))), budget=Budget(runs=5))
    assert len(ran) == result.runs == 5
    assert not result.complete
    assert {3.0, 4.0, 20.0} <= starts_of(result.case)


def test_the_budget_ends_lowering_too_and_what_was_reached_is_a_case_that_fails():
    def fails(case):
        return "proof" if case.spec.groups >= 3 else None

    result = smallest(ShrinkCase(SPEC, plan(1.0)), fails, budget=Budget(runs=8))
    assert result.runs == 8
    assert not result.complete
    assert fails(result.case)


def test_what_cannot_be_made_smaller_stays_as_it_was():
    schedule = plan(1.0, 2.0)
    result, _ = fewest((1.0, 2.0), schedule)
    assert (result.case.schedule, result.evidence, result.complete) == (schedule, "given", True)
    start = ShrinkCase(SPEC, schedule)
    assert smallest(start, lambda _: None).case == start


def test_a_case_that_does_not_exist_is_no_smaller_one():
    def find(case):
        raise UsageError("no such cluster")

    start = ShrinkCase(SPEC, plan(1.0))
    assert smallest(start, find).case == start


def test_other_seeds_are_tried_where_much_is_taken_away():
    def find(case):
        return "proof" if case.schedule.faults == () and case.spec.seed == 1 else None

    start = ShrinkCase(msgspec.structs.replace(SPEC, seed=99), plan(1.0))
    attempts = Attempts(start, "given", find)
    delta.fewer_faults(attempts)
    assert attempts.best == ShrinkCase(msgspec.structs.replace(SPEC, seed=1), Schedule())


def test_shrinking_does_not_leave_the_bounds_that_the_run_kept():
    """With three pairs a cut is to be survived.

    With one pair it is not, and a bug must not shrink to that.
    """
    cut = Schedule(faults=(Fault(kind="partition", start_s=1.0, duration_s=3.0, shape="pair-link"),))
    three, one = (TestSpec(name="bounds", pairs=pairs) for pairs in (3, 1))
    assert swarm.promised(three, cut)
    assert not swarm.promised(one, cut)

    def allowed(case):
        return swarm.promised(case.spec, case.schedule)

    def find(case):
        return "proof" if case.schedule.faults else None

    assert smallest(ShrinkCase(three, cut), find, allowed=allowed).case.spec.pairs == 3
    assert smallest(ShrinkCase(three, cut), find).case.spec.pairs == 1


def test_a_run_that_left_one_bound_leaves_no_other_while_it_is_made_smaller(monkeypatch):
    """A kind that was asked for by name is beyond what is promised; the number of pairs is not."""

    @dataclass
    class Ran:
        spec: TestSpec
        schedule: Schedule

        @property
        def grave(self):
            cut = any(fault.kind == "partition" for fault in self.schedule.faults)
            return frozenset({"split-brain"} if cut else ())

    monkeypatch.setattr(shrink, "simulate", Ran)
    faults = (
        Fault(kind="disk-full", start_s=1.0, duration_s=1.0, target="backup"),
        Fault(kind="partition", start_s=6.0, duration_s=2.0, shape="pair-link"),
    )
    spec = TestSpec(**{**swarm.DEFAULTS, "name": "named", "time_limit_s": 12.0})
    for pairs in (3, 1):
        start = Ran(msgspec.structs.replace(spec, pairs=pairs), Schedule(faults=faults))
        small = shrink.shrink(start, "split-brain", budget=Budget(seconds=UNLIMITED)).case
        assert [fault.kind for fault in small.schedule.faults] == ["partition"]
        assert small.spec.pairs == pairs


def test_numbers_that_must_stay_up_stay_exactly_so_and_all_others_go():
    """Five groups, 4 s, one property and one option are needed.

    Nothing else is left of a large test.
    """
    fault = Fault(
        kind="slow", start_s=3.7, duration_s=2.9, shape="halves", options={"delay_ms": 500.0, "pair": "a"}
    )
    spec = TestSpec(
        name="numbers",
        pairs=3,
        groups=24,
        rate=150.0,
        time_limit_s=17.3,
        prefetch=2,
        hold_s=0.5,
        nemeses=("slow",),
        properties={"*": {"journal.segment-size": 8192, "cluster.call-timeout": 900}, "a1": {"x": 1}},
    )

    def find(case):
        needed = (
            case.spec.groups >= 5
            and case.spec.time_limit_s >= 4.0
            and case.spec.hold_s == 0.5
            and "cluster.call-timeout" in case.spec.properties.get("*", {})
            and any(one.options.get("delay_ms") and one.duration_s >= 2.0 for one in case.schedule.faults)
        )
        return "proof" if needed else None

    small = smallest(ShrinkCase(spec, Schedule(faults=(*plan(0.5, 1.5).faults, fault))), find)
    (left,) = small.case.schedule.faults
    assert left == Fault(
        kind="slow", start_s=1.0, duration_s=2.0, shape="halves", options={"delay_ms": 500.0}
    )
    assert small.case.spec == TestSpec(
        name="numbers",
        pairs=1,
        groups=5,
        rate=5.0,
        time_limit_s=4.0,
        producers=1,
        consumers=1,
        hold_s=0.5,
        properties={"*": {"cluster.call-timeout": 900}},
    )
    assert small.runs <= 120


def test_a_dozen_times_the_same_question_gives_the_same_answer():
    """Which runs are tried, and in which order, follows from the case alone."""

    def once():
        ran = []

        def find(case):
            ran.append(msgspec.json.encode((case.spec, case.schedule)))
            return "proof" if case.spec.groups * case.spec.producers >= 7 else None

        return smallest(ShrinkCase(SPEC, plan(1.0, 2.0)), find), ran

    first, tried = once()
    again, retried = once()
    assert first.case == again.case
    assert tried == retried


@pytest.mark.slow
def test_every_step_is_simpler_so_that_shrinking_ends(pytestconfig):
    """Faults drawn unbounded, everything fails: the end is the emptiest test there is."""
    drawn_from = swarm.swarm(TestSpec(**{"name": "ends", **swarm.DEFAULTS}), bounded=False)
    for number in share.chosen(pytestconfig.getoption(share.OPTION), range(6)):
        spec, schedule = swarm.draw(drawn_from, f"ends/{number}")
        for kept in (False, True):
            count = min(len(schedule.faults), 8) if kept else 0
            result = smallest(
                ShrinkCase(spec, schedule),
                lambda case, count=count: "proof" if len(case.schedule.faults) >= count else None,
            )
            assert result.complete
            assert len(result.case.schedule.faults) == count
            assert (result.case.spec.groups, result.case.spec.pairs) == (1, 1)
            assert not any(fault.options for fault in result.case.schedule.faults)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_what_a_run_raises_reaches_who_asked_and_nothing_is_written(raised, tmp_path, monkeypatch):
    """A person who interrupts shrinking, or a bug of ours, is no answer about a case."""
    monkeypatch.chdir(tmp_path)
    tried = []

    def find(case):
        tried.append(case)
        if len(tried) == 5:
            raise raised
        return "proof" if case.spec.groups >= 3 else None

    with pytest.raises(raised):
        smallest(ShrinkCase(SPEC, plan(1.0, 2.0)), find)
    assert len(tried) == 5
    assert not [*tmp_path.iterdir()]


def test_where_two_faults_are_left_the_other_order_may_do_with_one():
    """Short tests need both faults, long ones only the second.

    Less time first ends with two, fewer faults first with one.
    """

    def find(case):
        left = starts_of(case)
        long = case.spec.time_limit_s >= 10.0
        return "proof" if left >= {1.0, 2.0} or (long and 2.0 in left) else None

    spec = msgspec.structs.replace(SPEC, time_limit_s=10.0)
    result = smallest(ShrinkCase(spec, plan(1.0, 2.0, 3.0)), find)
    assert starts_of(result.case) == {2.0}
    assert result.case.spec.time_limit_s == 10.0
    assert result.complete
