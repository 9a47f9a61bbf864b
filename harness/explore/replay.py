"""The command ``jepsen-run replay``: it says whether a finding comes again.

Why three answers: "reproduced" sends somebody to a debugger, "not reproduced" closes a ticket, and
"different finding" must do neither. In the simulation one run decides, and equal digests say that
every row is the same. On real processes the same faults begin at the same moments and the rest is
chance, so the answer is k of n runs. The schedule is then tried in the simulation too, because a
finding that comes there comes always.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from harness.explore.talk import Talk, counted
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import InfrastructureError, Schedule, TestSpec, UsageError
from harness.run import reproduction
from harness.run.compose import compose
from harness.run.reproduction import Reproduction
from harness.run.simulate import Simulated, simulate

if TYPE_CHECKING:
    from checkers.starting import Starting

SIMULATED: Final = "simulation"
TIMES_REAL: Final = 3
"""The number of runs on real processes, unless another is requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The request of ``jepsen-run replay``.

    ``times`` None is once in the simulation, and three times elsewhere.
    """

    path: Path
    times: int | None = None
    environment: str | None = None
    root: Path = stores.DEFAULT
    spark_master: str | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The outcome of one repetition.

    ``exact`` says that its history is the recorded one, row for row.
    """

    valid: bool | None
    grave: frozenset[str] = frozenset()
    trouble: str | None = None
    exact: bool = False
    seed: int = 0
    store: Path | None = None

    def answer(self, findings: tuple[str, ...]) -> str:
        """Return "reproduced", "different finding", "not reproduced" or "unknown"."""
        if self.grave:
            return "reproduced" if self.grave & set(findings) else "different finding"
        return "unknown" if self.valid is None else "not reproduced"


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The answer of a replay: ``--json``.

    ``of`` is the number of repetitions, of which ``reproduced`` gave a recorded finding.
    """

    answer: str
    exit_status: int
    wanted: tuple[str, ...]
    found: tuple[str, ...]
    exact: bool
    reproduced: int
    of: int
    environment: str
    attempts: tuple[dict[str, Any], ...]
    simulated: str | None = None


def run(request: ReplayRequest) -> int:
    """Repeat a finding and print the answer; return the exit status.

    0 not reproduced, 1 reproduced or another finding, 2 unknown.
    """
    recorded = reproduction.load(request.path)
    environment = request.environment or recorded.environment
    spec = msgspec.structs.replace(recorded.spec, environment=environment)
    recorded = msgspec.structs.replace(recorded, spec=spec, environment=environment)
    talk = Talk(request.as_json)
    virtual = environment == SIMULATED
    times = request.times or (1 if virtual else TIMES_REAL)
    talk(
        f"replay: {', '.join(recorded.findings) or 'a run without a finding'}, environment {environment}, "
        f"seed {spec.seed}, "
        f"{counted(len(recorded.schedule.faults), 'fault')}, {counted(times, 'time')}"
    )
    attempts: list[Attempt] = []
    try:
        for attempt in _simulated(recorded, times) if virtual else _real(recorded, times, request, talk):
            attempts.append(attempt)
            if times > 1:
                talk(f"  {len(attempts)} of {times}: {_how(attempt, recorded.findings)}")
        simulated = None if virtual else _also_simulated(recorded, times, request.root, talk)
    except KeyboardInterrupt:
        talk.always(_interrupted(attempts, recorded, times))
        return judging.INTERRUPTED
    answer = _answer(recorded, attempts, simulated)
    talk.result(_lines(answer, recorded, attempts))
    talk.document(answer)
    return answer.exit_status


def _interrupted(attempts: list[Attempt], recorded: Reproduction, times: int) -> str:
    answers = [attempt.answer(recorded.findings) for attempt in attempts]
    words = ", ".join(f"{answers.count(word)} {word}" for word in dict.fromkeys(answers))
    return f"interrupted after {len(attempts)} of {counted(times, 'run')}" + (f": {words}" if words else "")


def _answer(recorded: Reproduction, attempts: list[Attempt], simulated: str | None) -> ReplayAnswer:
    answers = [attempt.answer(recorded.findings) for attempt in attempts]
    order = ("reproduced", "different finding", "not reproduced", "unknown")
    gravest = min(answers, key=order.index, default="unknown")
    status = {"unknown": judging.UNKNOWN, "not reproduced": judging.VALID}.get(gravest, judging.INVALID)
    return ReplayAnswer(
        answer=gravest,
        exit_status=status,
        wanted=recorded.findings,
        found=reproduction.ordered({name for attempt in attempts for name in attempt.grave}),
        exact=any(attempt.exact for attempt in attempts),
        reproduced=answers.count("reproduced"),
        of=len(attempts),
        environment=recorded.environment,
        attempts=tuple(
            {
                "answer": attempt.answer(recorded.findings),
                "found": reproduction.ordered(attempt.grave),
                "seed": attempt.seed,
                "store": None if attempt.store is None else str(attempt.store),
                "trouble": attempt.trouble,
            }
            for attempt in attempts
        ),
        simulated=simulated,
    )


def _simulated(recorded: Reproduction, times: int) -> Iterator[Attempt]:
    """Yield attempts in the simulation: the recorded seed first, then others.

    The others show how much depends on the seed.
    """
    for run in _runs(recorded, times):
        yield Attempt(
            valid=run.valid,
            grave=run.grave,
            trouble=run.trouble,
            exact=recorded.exact and run.digest == recorded.digest,
            seed=run.spec.seed,
        )


def _runs(recorded: Reproduction, times: int) -> Iterator[Simulated]:
    for number in range(times):
        seed = recorded.spec.seed + number
        spec = msgspec.structs.replace(recorded.spec, environment=SIMULATED, seed=seed)
        yield simulate(spec, recorded.schedule)


def _real(recorded: Reproduction, times: int, request: ReplayRequest, talk: Talk) -> Iterator[Attempt]:
    """Yield attempts on processes or containers, each with a store of its own."""
    from checkers import api  # noqa: PLC0415 - imports Spark, which the simulation does without

    compose(recorded.spec, recorded.schedule)  # raises UsageError before a JVM starts
    spark = api.start_in_background(request.spark_master, wanted=True)
    for _ in range(times):
        yield once(recorded.spec, recorded.schedule, request.root, talk.stream, spark)


def once(spec: TestSpec, schedule: Schedule, root: Path, talk: TextIO, spark: Starting) -> Attempt:
    """Make one run on processes or containers, and judge it by all rules.

    If the machine spoils it, it is an attempt without an answer; an interrupt is raised.
    """
    from harness.run import session  # noqa: PLC0415 - imports every part

    outcome = session.execute(compose(spec, schedule, ""), root, talk, spark=spark)
    if outcome.interrupted:
        raise KeyboardInterrupt
    verdict = outcome.verdict
    if verdict is None:
        raise RuntimeError(f"the run in {outcome.store} ended by an internal error, told above")
    return Attempt(
        valid=verdict.valid,
        grave=frozenset(finding.name for finding in verdict.findings if finding.severity == "grave"),
        trouble=next(iter(verdict.reasons), None) if verdict.valid is None else None,
        seed=spec.seed,
        store=outcome.store,
    )


def _also_simulated(recorded: Reproduction, times: int, root: Path, talk: Talk) -> str:
    """Return the line about the same faults in the simulation.

    A finding that also comes in the simulation has an exact reproduction there.
    """
    try:
        for run in _runs(recorded, times):
            if run.grave & set(recorded.findings):
                store = stores.create(root, f"{recorded.spec.name}-simulated")
                path = reproduction.keep(store, run, f"replay of {recorded.environment}")
                names = ", ".join(reproduction.ordered(run.grave))
                return f"also in the simulation ({names}), where it comes always: {reproduction.line(path)}"
    except (UsageError, InfrastructureError) as error:
        return f"could not be tried in the simulation: {error}"
    talk(f"tried in the simulation with {counted(times, 'seed')}")
    return "not in the simulation"


def _how(attempt: Attempt, findings: tuple[str, ...]) -> str:
    names = ", ".join(reproduction.ordered(attempt.grave))
    where = f" ({attempt.store})" if attempt.store else f" (seed {attempt.seed})"
    return (
        attempt.answer(findings)
        + (f": {names}" if names else f": {attempt.trouble}" if attempt.trouble else "")
        + where
    )


def _lines(answer: ReplayAnswer, recorded: Reproduction, attempts: list[Attempt]) -> Iterator[str]:
    expected, names = ", ".join(answer.wanted) or "nothing", ", ".join(answer.found) or "nothing"
    counted = f" in {answer.reproduced} of {answer.of} runs" if answer.of > 1 else ""
    if answer.answer == "reproduced":
        yield f"REPRODUCED  {names}{counted}"
    elif answer.answer == "different finding":
        yield f"DIFFERENT FINDING  {names}, and not {expected}"
    elif answer.answer == "not reproduced":
        yield f"NOT REPRODUCED  {expected}{counted}"
    else:
        yield f"UNKNOWN  {next((attempt.trouble for attempt in attempts if attempt.trouble), 'not decided')}"
    if answer.environment == SIMULATED and recorded.exact:
        if answer.exact:
            yield f"  the same history, byte for byte (sha256 {recorded.digest[:16]})"
        else:
            now = reproduction.versions()
            yield (
                f"  another history than the recorded one: it was made with {_versions(recorded.versions)}, "
                f"this is {_versions(now)}; "
                "the program, the spec or the schedule has changed"
            )
    if answer.simulated:
        yield f"  {answer.simulated}"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("jepsen-run", "python") if name in versions)
