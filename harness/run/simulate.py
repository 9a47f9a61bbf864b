"""The simulation of one test, from a spec and a schedule to its findings.

Search, shrinking, sweep and replay all use this function.

Why one function: a search for a schedule that breaks the brokers, a reduction of it and a replay
must run exactly the same thing. Equal arguments give equal histories, byte for byte, in every
process and on every machine. The plain reference checkers judge it: a history of a minute is small,
and no JVM need run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from environments import scratch
from environments.simulation.environment import SimulationEnvironment
from harness.history import coverage, plain_judge
from harness.history.rows import MemoryRecorder
from harness.interface import InfrastructureError, Schedule, TestSpec
from harness.interface.recorder import Row
from harness.report.progress import RunSnapshot
from harness.run.compose import compose
from harness.run.run import Run

if TYPE_CHECKING:
    from checkers.instance import Instance


_STEPS_A_SECOND: Final = 20_000
"""Steps in a virtual second, about six times as many as the busiest seconds of runs have."""
_USUAL_RATE: Final = 40.0
"""The sends per second of the runs in which these steps were counted."""
_AFTER_LOAD_S: Final = 60.0
"""Virtual seconds for starting, healing and draining, several times as many as that takes."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The outcome of a simulated test.

    ``valid`` is None if nothing can be said (``trouble`` says why) or no verdict was requested.
    ``findings`` are all instances that the reference finds, ``grave`` the names of those that the
    spec's guarantee forbids. ``digest`` is that of the history: equal digests are equal histories.
    ``trace_digest`` is that of everything that happened in the simulated world.
    """

    spec: TestSpec
    schedule: Schedule
    recorded: Sequence[Row]
    findings: tuple[Instance, ...] = ()
    grave: frozenset[str] = frozenset()
    valid: bool | None = None
    trouble: str | None = None
    digest: str = ""
    trace_digest: str = ""
    virtual_s: float = 0.0
    steps: int = 0
    coverage: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, list[str]] = field(default_factory=dict)
    trace: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The history: one dict a row, by the columns of ``checkers.schema``."""
        from checkers.schema import COLUMNS  # noqa: PLC0415 - Arrow, which whoever only wants the verdict does without

        return [dict(zip(COLUMNS, row, strict=True)) for row in self.recorded]


class Silent:
    """An observer that ignores every event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Ignore the text."""

    def warn(self, text: str) -> None:
        """Ignore the text."""

    def update(self, snapshot: RunSnapshot) -> None:
        """Ignore the snapshot."""


def steps_max(spec: TestSpec) -> float:
    """Return after how many steps a run of this kind counts as endless.

    Why a bound: a search, a shrink or a hunt for a bug makes thousands of runs, and one that never
    ends would stop it without a word. It is a count of steps, so that it is reached in the same run
    on every machine.
    """
    if not spec.rate:  # as fast as the brokers can, which is not known before
        return math.inf
    seconds = spec.time_limit_s + _AFTER_LOAD_S
    return seconds * _STEPS_A_SECOND * max(1.0, spec.rate / _USUAL_RATE)


def simulate(
    spec: TestSpec, schedule: Schedule | None = None, *, judge: bool = True, trace: bool = False
) -> Simulated:
    """Run a test in the simulation.

    Args:
        spec: the test; its environment is taken to be "simulation".
        schedule: the faults; None: those that the spec's nemeses and seed give.
        judge: find anomalies and say whether the history is valid.
        trace: keep the text of everything that happened in the world, to compare two runs that
            should be equal.

    Raises:
        UsageError: the spec or the schedule is wrong.
        EndlessRunError: the run took many times as many steps as such a run takes.
    """
    test = compose(msgspec.structs.replace(spec, environment="simulation"), schedule)
    environment = SimulationEnvironment(record=trace, steps_max=steps_max(test.spec))
    test = replace(test, environment=environment)
    recorder = MemoryRecorder(environment.clock_ns)
    trouble = None
    # Nothing is stored, but the last log lines of a broker that cannot start are read from files,
    # as in every environment.
    with scratch.directory("simulation") as directory:
        life = Run(test, directory, Silent(), recorder)
        try:
            environment.conduct(life.conduct, seed=spec.seed)
            trouble = life.trouble
        except InfrastructureError as error:
            trouble = str(error)
    world = environment.world
    assert world is not None
    rows = recorder.dicts()
    findings: tuple[Instance, ...] = ()
    grave: frozenset[str] = frozenset()
    valid: bool | None = None
    if judge:
        judged = plain_judge.judge(rows, test.spec, test.schedule, trouble)
        findings, grave = judged.findings, judged.decision.grave
        trouble, valid = judged.decision.reason, judged.decision.valid
    return Simulated(
        spec=test.spec,
        schedule=test.schedule,
        recorded=recorder.rows,
        findings=findings,
        grave=grave,
        valid=valid,
        trouble=trouble,
        digest=recorder.digest(),
        trace_digest=world.trace.digest,
        virtual_s=world.now_ns / 1e9,
        steps=world.steps,
        coverage=coverage.count(rows, environment.logs.lines, test.system.events),
        logs=environment.logs.lines,
        trace=world.trace.text,
    )
