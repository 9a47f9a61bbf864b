"""A search of the sound broker finds nothing: a few runs of one policy after the other.

Why with commits: a checker that accuses an innocent broker is found by what brokers do, which
no history that somebody wrote down has all of. Whoever changes a checker, or what a search draws,
asks for its test by its name, which tries all policies. Every night has thousands of runs
(.github/workflows/tests.yml).

Both implementations judge each run: searches have the reference, and what is deployed has columns.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checkers import api
from harness.explore import plans, swarm
from harness.history import spec as specs
from harness.history.plain_judge import options_of
from harness.history.rows import MemoryRecorder
from harness.interface import OWN
from harness.run.simulate import simulate
from harness.systems import registry as systems
from workloads.registry import MIXED

ROOT = Path(__file__).parents[2]
RUNS = 6
"""Of each policy."""
HEX_DIGITS = 7


def seed_of_commit() -> int:
    """The first digits of the commit's name; 0 where there is no repository."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    return int(done.stdout[:HEX_DIGITS], 16) if done.returncode == 0 else 0


def plan_of(policy: str, seed: int) -> plans.SearchPlan:
    """What ``jepsen-run search --policy POLICY --workload mixed --seed SEED`` draws."""
    given = {"policy": policy, "workload": MIXED}
    spec = specs.build({**swarm.DEFAULTS, **given, "environment": "simulation"}, None)
    return plans.search_plan({"runs": RUNS, "seed": seed}, spec, fixed=set(given), bounded=True)


@pytest.mark.parametrize("policy", sorted(systems.get(OWN).policies))
@pytest.mark.slow
@pytest.mark.in_turn
def test_nothing_is_found_in_what_the_sound_broker_does(policy, tmp_path):
    plan = plan_of(policy, seed_of_commit())
    for number in range(RUNS):
        run = simulate(*plans.drawn(plan, number))
        again = f"jepsen-run search --policy {policy} --workload {MIXED} --seed {plan.seed} --runs {RUNS}"
        assert run.valid is not False, f"{sorted(run.grave)}: {again}"
        recorder = MemoryRecorder(lambda: 0)
        recorder.rows.extend(run.recorded)
        store = tmp_path / str(number)
        store.mkdir()
        recorder.store(store)
        verdict = api.check(store, options_of(run.spec, run.schedule, run.trouble))
        grave = [finding.sentence for finding in verdict.findings if finding.severity == "grave"]
        assert (verdict.valid is not False, grave) == (True, []), again
