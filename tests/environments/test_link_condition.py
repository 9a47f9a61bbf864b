import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.link_condition import CLEAR, LinkCondition, combine, condition_of
from harness.interface import UsageError

conditions = st.builds(
    LinkCondition,
    cut=st.booleans(),
    reset=st.booleans(),
    delay_ms=st.integers(0, 500).map(float),
    jitter_ms=st.integers(0, 500).map(float),
    rate_bytes_s=st.none() | st.integers(1, 10**6).map(float),
)


@given(st.lists(conditions, max_size=5), st.randoms())
def test_faults_combine_in_any_order(several, random):
    shuffled = list(several)
    random.shuffle(shuffled)
    assert combine(shuffled) == combine(several)


@given(conditions)
def test_a_single_fault_is_itself_and_none_is_clear(one):
    assert combine([one]) == one
    assert combine([]) == CLEAR
    assert one.active == (one != CLEAR)


def test_healing_one_of_two_faults_leaves_the_other():
    cut, slow = condition_of("cut"), condition_of("slow", {"delay_ms": 50})
    assert combine([cut, slow]) == LinkCondition(cut=True, delay_ms=50.0)
    assert combine([slow]) == LinkCondition(delay_ms=50.0)


def test_the_slowest_rate_limits_and_delays_add_up():
    both = combine(
        [
            condition_of("slow", {"delay_ms": 10, "rate_bytes_s": 500}),
            condition_of("slow", {"delay_ms": 5, "rate_bytes_s": 900}),
        ]
    )
    assert both == LinkCondition(delay_ms=15.0, rate_bytes_s=500.0)


def test_a_stall_is_a_cut():
    assert condition_of("stall") == condition_of("cut") == LinkCondition(cut=True)


@pytest.mark.parametrize(
    ("primitive", "options", "message"),
    [
        ("cutt", {}, "no link fault 'cutt'; there are cut, reset, slow, stall"),
        ("cut", {"delay_ms": 3}, "cut: unknown option 'delay_ms'; it takes no options"),
        (
            "slow",
            {"delay": 3, "delay_ms": 1},
            "unknown option 'delay'; it takes delay_ms, jitter_ms, rate_bytes_s",
        ),
        ("slow", {}, "nothing to slow"),
        ("slow", {"delay_ms": -1}, "delay_ms must be a number of 0 or more, not -1"),
        ("slow", {"delay_ms": "120"}, "not '120'"),
        ("slow", {"delay_ms": True}, "not True"),
        ("slow", {"jitter_ms": math.nan}, "not nan"),
        ("slow", {"rate_bytes_s": 0}, "rate_bytes_s must be a number above 0, not 0"),
    ],
)
def test_bad_input_is_named(primitive, options, message):
    with pytest.raises(UsageError) as raised:
        condition_of(primitive, options)
    assert message in str(raised.value)
