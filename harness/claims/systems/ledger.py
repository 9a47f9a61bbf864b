"""The ledger of the runs of a system's rows."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from checkers.verdict import Verdict
from harness.claims.ran import Ran, judged
from harness.claims.scenarios.scenario import Scenario
from harness.claims.systems import results
from harness.claims.systems.results import AS_EXPECTED, OTHERWISE, UNKNOWN, RowRun
from harness.history import store as stores
from harness.interface import TestSpec, UsageError


class Ledger:
    """A file of results that grows with each run.

    Args:
        path: the file.
        system: the system whose brokers ran.
        version: their release.
    """

    def __init__(self, path: Path, system: str, version: str) -> None:
        self._path = path
        self._version = version
        self._results = results.load(path, system)

    def before(self, scenario: Scenario) -> list[Ran]:
        """Return the recorded runs of a row, as it is and with this release.

        Runs that were unknown are left out: they are made again.
        """
        return [
            Ran(problem="" if run.came == AS_EXPECTED else run.words, found=frozenset(run.found))
            for run in self._decided(scenario)
        ]

    def seeds_left(self, scenario: Scenario, runs: int) -> list[int]:
        """Return the seeds that are still to be run for so many runs: the lowest that were not."""
        done = [run.seed for run in self._decided(scenario)]
        seeds = (seed for seed in itertools.count() if seed not in done)
        return list(itertools.islice(seeds, max(0, runs - len(done))))

    def _decided(self, scenario: Scenario) -> list[RowRun]:
        return [run for run in self._results.of(scenario, self._version) if run.came != UNKNOWN]

    def write(self, scenario: Scenario, ran: Ran, seed: int, environment: str, day: str = "") -> None:
        """Record a run that has just ended, or one of another ``day``."""
        run = RowRun(
            row=scenario.id,
            fingerprint=results.fingerprint(scenario),
            version=self._version,
            environment=environment,
            date=day or datetime.now(UTC).date().isoformat(),
            seed=seed,
            came=UNKNOWN if ran.undecided else OTHERWISE if ran.problem else AS_EXPECTED,
            found=tuple(sorted(ran.found)),
            words=ran.problem,
        )
        self._results = self._results.add(run)
        results.save(self._path, self._results)

    def judge_again(self, scenario: Scenario, root: Path) -> int:
        """Judge the stored runs of a row by what it expects now, and record them.

        They replace what was recorded of the row before. Returns how many there were.
        """
        stored_runs = list(self._stored(scenario, root))
        if stored_runs:
            self._results = self._results.without(scenario)
        for store, spec, verdict in stored_runs:
            day = stores.load_run(store).started[:10]
            self.write(scenario, judged(scenario, store, verdict), spec.seed, spec.environment, day)
        return len(stored_runs)

    def _stored(self, scenario: Scenario, root: Path) -> Iterator[tuple[Path, TestSpec, Verdict]]:
        """Yield the stored runs of this row as it is, with this release, that have a verdict."""
        try:
            directories = stores.find(root / stores.directory_name(scenario.spec.name))
        except UsageError:  # the row was never run
            return
        for store in directories:
            with contextlib.suppress(UsageError, OSError, msgspec.MsgspecError):
                spec = stores.load_spec(store)
                verdict = Verdict.from_json((store / stores.FINDINGS).read_bytes())
                same = results.load_of(spec) == results.load_of(scenario.spec)
                released = stores.load_run(store).versions.get(spec.system, "") == self._version
                if same and released and stores.load_schedule(store) == scenario.schedule:
                    yield store, spec, verdict
