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

    def answer(self, wanted: tuple[str, ...]) -> str:
        """Return "reproduced", "different finding", "not reproduced" or "unknown"."""
        if self.grave:
            return "reproduced" if self.grave & set(wanted) else "different finding"
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
    kept = reproduction.load(request.path)
    environment = request.environment or kept.environment
    spec = msgspec.structs.replace(kept.spec, environment=environment)
    kept = msgspec.structs.replace(kept, spec=spec, environment=environment)
    talk = Talk(request.as_json)
    virtual = environment == SIMULATED
    times = request.times or (1 if virtual else TIMES_REAL)
    talk(
        f"replay: {', '.join(kept.findings) or 'a run without a finding'}, environment {environment}, "
        f"seed {spec.seed}, "
        f"{counted(len(kept.schedule.faults), 'fault')}, {counted(times, 'time')}"
    )
    attempts: list[Attempt] = []
    try:
        for one in _simulated(kept, times) if virtual else _real(kept, times, request, talk):
            attempts.append(one)
            if times > 1:
                talk(f"  {len(attempts)} of {times}: {_how(one, kept.findings)}")
        simulated = None if virtual else _also_simulated(kept, times, request.root, talk)
    except KeyboardInterrupt:
        talk(_interrupted(attempts, kept, times))
        return judging.INTERRUPTED
    answer = _answer(kept, attempts, simulated)
    talk("\n".join(_told(answer, kept, attempts)))
    talk.document(answer)
    return answer.exit_status


def _interrupted(attempts: list[Attempt], kept: Reproduction, times: int) -> str:
    answers = [one.answer(kept.findings) for one in attempts]
    words = ", ".join(f"{answers.count(word)} {word}" for word in dict.fromkeys(answers))
    return f"interrupted after {len(attempts)} of {counted(times, 'run')}" + (f": {words}" if words else "")


def _answer(kept: Reproduction, attempts: list[Attempt], simulated: str | None) -> ReplayAnswer:
    answers = [one.answer(kept.findings) for one in attempts]
    order = ("reproduced", "different finding", "not reproduced", "unknown")
    gravest = min(answers, key=order.index, default="unknown")
    status = {"unknown": judging.UNKNOWN, "not reproduced": judging.VALID}.get(gravest, judging.INVALID)
    return ReplayAnswer(
        answer=gravest,
        exit_status=status,
        wanted=kept.findings,
        found=reproduction.ordered({name for one in attempts for name in one.grave}),
        exact=any(one.exact for one in attempts),
        reproduced=answers.count("reproduced"),
        of=len(attempts),
        environment=kept.environment,
        attempts=tuple(
            {
                "answer": one.answer(kept.findings),
                "found": reproduction.ordered(one.grave),
                "seed": one.seed,
                "store": None if one.store is None else str(one.store),
                "trouble": one.trouble,
            }
            for one in attempts
        ),
        simulated=simulated,
    )


def _simulated(kept: Reproduction, times: int) -> Iterator[Attempt]:
    """Yield attempts in the simulation: the recorded seed first, then others.

    The others show how much depends on the seed.
    """
    for run in _runs(kept, times):
        yield Attempt(
            valid=run.valid,
            grave=run.grave,
            trouble=run.trouble,
            exact=kept.exact and run.digest == kept.digest,
            seed=run.spec.seed,
        )


def _runs(kept: Reproduction, times: int) -> Iterator[Simulated]:
    for number in range(times):
        seed = kept.spec.seed + number
        spec = msgspec.structs.replace(kept.spec, environment=SIMULATED, seed=seed)
        yield simulate(spec, kept.schedule)


def _real(kept: Reproduction, times: int, request: ReplayRequest, talk: Talk) -> Iterator[Attempt]:
    """Yield attempts on processes or containers, each with a store of its own."""
    from checkers import api  # noqa: PLC0415 - imports Spark, which the simulation does without

    compose(kept.spec, kept.schedule)  # raises UsageError before a JVM starts
    spark = api.start_in_background(request.spark_master, wanted=True)
    for _ in range(times):
        yield once(kept.spec, kept.schedule, request.root, talk.stream, spark)


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
        grave=frozenset(found.name for found in verdict.findings if found.severity == "grave"),
        trouble=next(iter(verdict.reasons), None) if verdict.valid is None else None,
        seed=spec.seed,
        store=outcome.store,
    )


def _also_simulated(kept: Reproduction, times: int, root: Path, talk: Talk) -> str:
    """Return the line about the same faults in the simulation.

    A finding that also comes in the simulation has an exact reproduction there.
    """
    try:
        for run in _runs(kept, times):
            if run.grave & set(kept.findings):
                store = stores.create(root, f"{kept.spec.name}-simulated")
                path = reproduction.keep(store, run, f"replay of {kept.environment}")
                names = ", ".join(reproduction.ordered(run.grave))
                return f"also in the simulation ({names}), where it comes always: {reproduction.line(path)}"
    except (UsageError, InfrastructureError) as error:
        return f"could not be tried in the simulation: {error}"
    talk(f"tried in the simulation with {counted(times, 'seed')}")
    return "not in the simulation"


def _how(one: Attempt, wanted: tuple[str, ...]) -> str:
    found = ", ".join(reproduction.ordered(one.grave))
    where = f" ({one.store})" if one.store else f" (seed {one.seed})"
    return one.answer(wanted) + (f": {found}" if found else f": {one.trouble}" if one.trouble else "") + where


def _told(answer: ReplayAnswer, kept: Reproduction, attempts: list[Attempt]) -> Iterator[str]:
    wanted, found = ", ".join(answer.wanted) or "nothing", ", ".join(answer.found) or "nothing"
    counted = f" in {answer.reproduced} of {answer.of} runs" if answer.of > 1 else ""
    if answer.answer == "reproduced":
        yield f"REPRODUCED  {found}{counted}"
    elif answer.answer == "different finding":
        yield f"DIFFERENT FINDING  {found}, and not {wanted}"
    elif answer.answer == "not reproduced":
        yield f"NOT REPRODUCED  {wanted}{counted}"
    else:
        yield f"UNKNOWN  {next((one.trouble for one in attempts if one.trouble), 'not decided')}"
    if answer.environment == SIMULATED and kept.exact:
        if answer.exact:
            yield f"  the same history, byte for byte (sha256 {kept.digest[:16]})"
        else:
            now = reproduction.versions()
            yield (
                f"  another history than the recorded one: it was made with {_versions(kept.versions)}, "
                f"this is {_versions(now)}; "
                "the program, the spec or the schedule has changed"
            )
    if answer.simulated:
        yield f"  {answer.simulated}"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("jepsen-run", "python") if name in versions)
