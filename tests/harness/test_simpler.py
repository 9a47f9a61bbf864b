"""Every simpler test as choices.

The present ones give the test itself, lower ones never more of anything.
"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.explore import swarm
from harness.explore.shrink import case, simpler
from harness.explore.shrink.case import COUNTS, ShrinkCase
from harness.interface import Fault, Schedule, TestSpec

UNBOUNDED = swarm.swarm(TestSpec(**{"name": "simpler", **swarm.DEFAULTS}), bounded=False)


def one(fault, **fields):
    return ShrinkCase(TestSpec(name="one", **fields), Schedule(faults=(fault,)))


@st.composite
def forms(draw):
    """What searches without bounds draw."""
    return simpler.form(ShrinkCase(*swarm.draw(UNBOUNDED, f"simpler/{draw(st.integers(0, 200))}")))


@st.composite
def filled(draw):
    """A form, choices, and the same with one of them lowered."""
    form = draw(forms())
    choices = [draw(st.integers(0, size - 1)) for size in form.sizes]
    lowered = list(choices)
    place = draw(st.integers(0, len(choices) - 1))
    lowered[place] = draw(st.integers(0, choices[place]))
    return form, choices, lowered


def amounts(case):
    """What a reader sees of a test: less is simpler."""
    spec = case.spec
    return {
        "faults": len(case.schedule.faults),
        "options": sum(len(fault.options) for fault in case.schedule.faults),
        "properties": sum(len(values) for values in spec.properties.values()),
        "off default": sum(
            getattr(spec, name) != getattr(TestSpec(name=""), name) for name in simpler.OFF_DEFAULT
        ),
        **{name: getattr(spec, name) for name in ("pairs", "rate", "time_limit_s", *COUNTS)},
    }


@given(forms())
@settings(max_examples=50, deadline=None)
def test_the_present_choices_give_the_test_itself(form):
    assert form.filled(form.present) == form.case


@given(forms())
@settings(max_examples=50, deadline=None)
def test_nothing_but_zeros_is_the_emptiest_test_there_is(form):
    empty = form.filled([0] * len(form.sizes))
    assert empty.schedule.faults == ()
    spec = empty.spec
    assert (spec.properties, spec.nemeses, spec.targets) == ({}, (), ())
    assert {spec.pairs, *(getattr(spec, name) for name in COUNTS)} == {1}
    assert all(getattr(spec, name) == getattr(TestSpec(name=""), name) for name in simpler.OFF_DEFAULT)
    assert (spec.time_limit_s, spec.rate) == (0.5, 5.0)


@pytest.mark.slow
@given(filled())
@settings(max_examples=100, deadline=None)
def test_no_choice_gives_more_of_anything_than_there_was(drawn):
    form, choices, lowered = drawn
    whole = amounts(form.case)
    for chosen in (choices, lowered):
        part = amounts(form.filled(chosen))
        assert all(part[name] <= whole[name] for name in whole), (whole, part)


@given(filled())
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_faults_are_in_order_of_their_start_whatever_is_chosen(drawn):
    form, choices, _ = drawn
    starts = [fault.start_s for fault in form.filled(choices).schedule.faults]
    assert starts == sorted(starts)


def chosen(case, **values):
    """The case with those places of its one fault filled by candidate, the rest as present."""
    form = simpler.form(case)
    choices = list(form.present)
    for place, described in enumerate(form.described[0]):
        if described.name in values:
            choices[place] = described.candidates.index(values[described.name])
    return form.filled(choices).schedule.faults[0]


def test_a_fault_of_another_shape_keeps_no_option_of_its_old_one_but_the_pair():
    cut = Fault(
        kind="slow",
        start_s=1.0,
        duration_s=3.0,
        shape="random",
        options={"delay_ms": 20.0, "pair": "a"},
    )
    assert chosen(one(cut), shape="pair-link") == msgspec.structs.replace(
        cut, shape="pair-link", options={"pair": "a"}
    )
    assert chosen(one(cut), **{"option pair": False}).options == {"delay_ms": 20.0}


@pytest.mark.parametrize(
    ("kind", "simple"),
    [("power-loss", "kill"), ("stop", "kill"), ("stall", "partition"), ("disk-stall", "pause")],
)
def test_a_kind_becomes_the_simpler_one_that_does_much_the_same(kind, simple):
    fault = Fault(kind=kind, start_s=1.0, duration_s=1.0)
    assert chosen(one(fault), kind=simple) == msgspec.structs.replace(fault, kind=simple)


def test_what_is_simplest_already_leaves_nothing_to_choose():
    fault = Fault(kind="kill", start_s=1.0, duration_s=0.5)
    least = one(
        fault,
        pairs=1,
        groups=1,
        producers=1,
        consumers=1,
        rate=5.0,
        time_limit_s=0.5,
        interval_s=TestSpec(name="").interval_s,
    )
    assert simpler.form(least).sizes == (2,), "only whether the fault is there"


def test_a_step_is_large_that_takes_away_faults_pairs_time_or_all_but_few_clients():
    best = one(Fault(kind="kill", start_s=1.0), pairs=3, groups=9, time_limit_s=8.0)

    def changed(**fields):
        return ShrinkCase(msgspec.structs.replace(best.spec, **fields), best.schedule)

    assert case.large(ShrinkCase(best.spec, Schedule()), best)
    assert case.large(changed(pairs=2), best)
    assert case.large(changed(time_limit_s=5.0), best)
    assert case.large(changed(groups=2), best)
    assert not case.large(changed(groups=8), best)
    assert not case.large(changed(rate=5.0), best)
