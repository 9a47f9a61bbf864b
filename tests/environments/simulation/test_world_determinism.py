"""One seed gives one run, in every process; and what is not decided by the seed is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy_cluster

from environments.simulation import first_difference

ROOT = Path(__file__).parents[3]


def run_in_a_fresh_process(seed, hash_seed, *options):
    """(digest, answers, trace)"""
    ran = subprocess.run(
        [sys.executable, toy_cluster.__file__, str(seed), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return toy_cluster.parse(ran.stdout)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.slow
def test_a_seed_gives_the_same_run_whatever_the_hash_seed_and_the_garbage_collector(seed):
    digest, answers, trace = run_in_a_fresh_process(seed, 0)
    again, _, other = run_in_a_fresh_process(seed, 4242, "collecting")
    assert first_difference(trace, other) is None
    assert digest == again == trace.digest
    assert answers > 100


@pytest.mark.slow
def test_other_seeds_give_other_runs_in_which_everything_happens():
    traces = [toy_cluster.run(seed)[0].trace for seed in range(8)]
    assert len({trace.digest for trace in traces}) == 8
    happened = {event.what for trace in traces for event in trace.events}
    assert {"killed", "paused", "resumed", "lost its power", "link", "resets", "refuses", "timer"} <= happened


@pytest.mark.slow
def test_a_second_world_of_the_same_process_runs_the_same():
    first, second = toy_cluster.run(5)[0], toy_cluster.run(5)[0]
    assert first_difference(first.trace, second.trace) is None
    assert (first.now_ns, first.steps) == (second.now_ns, second.steps)


def test_recording_changes_nothing():
    assert toy_cluster.run(6, record=True)[0].trace.digest == toy_cluster.run(6, record=False)[0].trace.digest


@pytest.mark.slow
def test_an_order_of_addresses_is_found_and_the_first_difference_is_shown():
    _, _, trace = run_in_a_fresh_process(1, 0, "flawed")
    for hash_seed in range(1, 9):
        _, _, other = run_in_a_fresh_process(1, hash_seed, "flawed")
        if other.digest != trace.digest:
            break
    else:
        pytest.fail("eight processes ordered objects by their addresses, and all alike")
    shown = first_difference(trace, other)
    at = next(i for i, (one, two) in enumerate(zip(trace.events, other.events, strict=False)) if one != two)
    assert f"from event {at} on" in shown
    assert f"both   {trace.events[at - 1]}" in shown
    assert f"first  {trace.events[at]}" in shown
    assert f"second {other.events[at]}" in shown


def test_a_difference_of_runs_that_were_not_recorded_asks_for_the_record():
    first, second = (toy_cluster.run(seed, record=False)[0].trace for seed in (1, 2))
    with pytest.raises(ValueError, match="record=True"):
        first_difference(first, second)


def test_a_run_that_ended_early_is_shown_as_ended():
    whole, part = toy_cluster.run(1)[0].trace, toy_cluster.Trace(recording=True)
    for event in whole.events[:20]:
        part.take(event)
    shown = first_difference(whole, part)
    assert "from event 20 on" in shown
    assert shown.endswith("second ended")
