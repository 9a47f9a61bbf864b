"""The worker process of a refutation: it runs with a changed broker.

It runs one scenario or probe; a scenario first without its faults, then with them.

``python -P -m mutants.refutation_worker ID RUNS STORE``; the answer is one JSON document, the
last line of standard output. Judged by the plain reference checkers: no JVM need run for a history
of a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.registry import chosen
from harness.claims.scenarios.scenario import Scenario
from harness.claims.scenarios.seen import ObservedRun
from harness.history import store as stores
from harness.interface import Schedule, TestSpec
from harness.run.simulate import Simulated, simulate

WITHOUT_FAULTS: Final = Schedule(faults=())


class Outcome(msgspec.Struct, frozen=True, rename="kebab"):
    """The outcome of one run of the row.

    ``problem`` is what was wrong ("" if nothing), ``undecided`` why it cannot be decided ("" if it
    can).
    """

    problem: str = ""
    undecided: str = ""


class Tried(msgspec.Struct, frozen=True, rename="kebab"):
    """The outcome of one row under a changed broker.

    ``before`` is what was wrong with a scenario's run without faults ("" if nothing), ``runs`` are
    the runs of the row.

    For a probe ``before`` is empty. Its runs name the first step that was not as expected. If that
    is not the step that must fail, the broker had failed before it.
    """

    before: str
    runs: tuple[Outcome, ...]


def tried(row: Scenario | Probe, runs: int, root: Path) -> Tried:
    """Run a row under the changed broker.

    A probe is taken once for each run; its steps are its own proof that the broker works.
    """
    if isinstance(row, Probe):
        return Tried("", tuple(_taken(row, root) for _ in range(runs)))
    seeds = [msgspec.structs.replace(row.spec, seed=seed) for seed in range(runs)]
    return Tried(_sound(seeds[0]), tuple(_judged(row, simulate(spec, row.schedule)) for spec in seeds))


def _sound(spec: TestSpec) -> str:
    """Return what a run of the same load without faults found, or why it has no verdict.

    "" if the run was valid. With the unchanged broker there is always a verdict. The run is drained
    everywhere: what a scenario leaves undrained is stuck whatever the broker does.
    """
    ran = simulate(msgspec.structs.replace(spec, drain_at=()), WITHOUT_FAULTS)
    return "" if ran.valid else ", ".join(sorted(ran.grave)) or ran.trouble or "no verdict"


def _judged(row: Scenario, ran: Simulated) -> Outcome:
    judgement = row.judge(ObservedRun.of_simulated(ran))
    return Outcome("" if judgement.undecided else judgement.problem, judgement.undecided)


def _taken(probe: Probe, root: Path) -> Outcome:
    """Take a probe and return its first step that was not as expected.

    Later steps may fail only because of that one.
    """
    steps, undecided = probe.outcome(stores.create(root, f"refute-{probe.id.lower()}"))
    return Outcome(next((str(step) for step in steps if not step.as_expected), ""), undecided)


def main() -> None:
    """Answer for one row."""
    identifier, runs, root = sys.argv[1:]
    (row,) = (candidate for candidate in chosen([identifier]) if candidate.id == identifier)
    answer = tried(row, int(runs), Path(root))
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


if __name__ == "__main__":
    main()
