"""The outcome of one run of a scenario or probe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from checkers.verdict import Verdict
from harness.claims.scenarios.scenario import Judgement, Scenario
from harness.claims.scenarios.seen import ObservedRun
from harness.history import store as stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run of a scenario or probe.

    It has what was wrong with the run ("" if nothing), what the run found, its directory, and the
    release of its brokers. ``judgement`` exists only for a scenario that was judged.
    """

    problem: str
    undecided: bool = False
    found: frozenset[str] = frozenset()
    store: Path | None = None
    judgement: Judgement | None = None
    release: str = ""


def judged(scenario: Scenario, store: Path, verdict: Verdict) -> Ran:
    """Compare a run that ended with a verdict with what its scenario expects."""
    run = ObservedRun.of_store(store, verdict)
    judgement = scenario.judge(run)
    return Ran(
        problem=judgement.problem,
        undecided=bool(judgement.undecided),
        found=run.grave,
        store=store,
        judgement=judgement,
        release=stores.load_run(store).release(scenario.spec),
    )
