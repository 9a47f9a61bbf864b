"""``jepsen-run search``: simulated runs drawn one after the other until one breaks the guarantee.

Why in the simulation only: a run costs a second or two there, and the one that fails can be had again, made smaller and looked into. Each
run has a phase under faults; then everything heals, and the run itself demands that every pair serves, operations succeed and queues
drain ("not-recovered", "stuck", "unavailable" are findings). What a campaign of runs never saw is named, because it was never tested.

A run is decided by the seed of the search and its own number. Runs are begun in order and those that were begun are finished, so
that with a number of runs as the only limit the first finding is the same however many processes there are.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

import msgspec

from harness import coverage, reproduction
from harness import judge as judging
from harness import shrink as shrinking
from harness import store as stores
from harness.interface import InfrastructureError, Schedule, TestSpec
from harness.simulate import Simulated, simulate
from harness.swarm import BEYOND, CONNECTED, Swarm, draw

CAMPAIGN: Final = "campaign.json"
TOLD_EVERY_S: Final = 10.0
_FORKLESS: Final = "spawn"  # a fork would take half-built state of whoever starts a search along


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a search was asked for. ``runs`` or ``time_limit_s`` None is without that limit; ``jobs`` are processes.

    ``shrink_limit_s`` is for making a finding smaller afterwards; 0 leaves it as it was found.
    """

    swarm: Swarm
    seed: int
    runs: int | None = None
    time_limit_s: float | None = None
    jobs: int = 1
    keep_going: bool = False
    shrink_limit_s: float = shrinking.SECONDS
    root: Path = stores.DEFAULT
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """How one run ended; small enough to come from another process. ``bug`` is the traceback of an error of ours."""

    number: int
    spec: TestSpec
    schedule: Schedule
    valid: bool | None = None
    grave: frozenset[str] = frozenset()
    trouble: str | None = None
    virtual_s: float = 0.0
    coverage: Mapping[str, int] = field(default_factory=dict)
    bug: str = ""

    @property
    def word(self) -> str:
        """ "valid", "invalid", "unknown" or "failed"."""
        return "failed" if self.bug else {True: "valid", False: "invalid", None: "unknown"}[self.valid]


class Kept(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run that was not valid, as ``campaign.json`` lists it; it is drawn again from the search's seed and its number."""

    number: int
    seed: str
    ended: str  # "invalid" | "unknown" | "failed"
    findings: tuple[str, ...]
    trouble: str | None
    spec: TestSpec
    schedule: Schedule


class Campaign(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a search did: ``campaign.json``. ``ended`` counts runs by how they ended, ``never`` has the names of what happened in none."""

    versions: dict[str, str]
    seed: int
    base: TestSpec
    kinds: tuple[str, ...]
    bounded: bool
    runs: int
    ended: dict[str, int]
    real_s: float
    virtual_s: float
    kept: tuple[Kept, ...]
    coverage: dict[str, int]
    never: dict[str, str]
    stopped: str
    reproduction: str | None = None


def attempt(swarm: Swarm, seed: int, number: int) -> Tried:
    """Draw and run one. An error of ours is an answer too: the search must say which run it was."""
    spec, schedule = draw(swarm, run_seed(seed, number))
    try:
        run = simulate(spec, schedule)
    except Exception:  # noqa: BLE001 - told with its seed, and ends the search as a bug
        return Tried(number=number, spec=spec, schedule=schedule, bug=traceback.format_exc())
    return Tried(
        number=number,
        spec=run.spec,
        schedule=schedule,
        valid=run.valid,
        grave=run.grave,
        trouble=run.trouble,
        virtual_s=run.virtual_s,
        coverage=run.coverage,
    )


def run_seed(seed: int, number: int) -> str:
    """What decides one run of a search."""
    return f"{seed}/{number}"


def tried(request: Request) -> Generator[Tried, None, None]:
    """The runs of a search as they end, until a limit, or until one ends invalid or by a bug (unless told to keep going).

    Closing the iterator ends the processes.
    """
    deadline = None if request.time_limit_s is None else time.monotonic() + request.time_limit_s

    def open_for(number: int) -> bool:
        below = request.runs is None or number < request.runs
        return below and (deadline is None or time.monotonic() < deadline)

    yield from _alone(request, open_for) if request.jobs == 1 else _together(request, open_for)


def _stops(request: Request, one: Tried) -> bool:
    return bool(one.bug) or (one.valid is False and not request.keep_going)


def _alone(request: Request, open_for: Callable[[int], bool]) -> Iterator[Tried]:
    number = 0
    while open_for(number):
        one = attempt(request.swarm, request.seed, number)
        yield one
        if _stops(request, one):
            return
        number += 1


def _together(request: Request, open_for: Callable[[int], bool]) -> Iterator[Tried]:
    context = multiprocessing.get_context(_FORKLESS)
    pool = ProcessPoolExecutor(request.jobs, mp_context=context, initializer=_ignore_interrupts)
    under_way: set[Future[Tried]] = set()
    number, stopping = 0, False
    try:
        while True:
            while not stopping and len(under_way) < request.jobs and open_for(number):
                under_way.add(pool.submit(attempt, request.swarm, request.seed, number))
                number += 1
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                one = future.result()
                stopping = stopping or _stops(request, one)
                yield one
    except BrokenProcessPool:
        raise InfrastructureError(
            "a process of the search was killed, perhaps for lack of memory: try fewer --jobs"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C goes to the whole group; the searcher alone decides what it means, and its processes end their run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Tally:
    """Counts what ended how."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.coverage: Counter[str] = Counter()
        self.kept: list[Tried] = []
        self.virtual_s = 0.0

    def add(self, one: Tried) -> None:
        self.ended[one.word] += 1
        self.coverage.update(one.coverage)
        self.virtual_s += one.virtual_s
        if one.word != "valid":
            self.kept.append(one)

    @property
    def runs(self) -> int:
        return self.ended.total()

    def first(self, word: str) -> Tried | None:
        """The one with the lowest number that ended so."""
        return min((one for one in self.kept if one.word == word), key=lambda one: one.number, default=None)

    @property
    def status(self) -> int:
        """The gravest exit status: a finding, a bug of ours, nothing decided."""
        if self.ended["invalid"]:
            return judging.INVALID
        if self.ended["failed"]:
            return judging.INTERNAL
        return judging.VALID if self.ended["valid"] else judging.UNKNOWN


def run(request: Request) -> int:
    """Search, tell, keep; the exit status: 1 if something was found, 0 if not, 2 if no run could be decided."""
    talk = sys.stderr if request.as_json else sys.stdout
    tally = _Tally()
    began = told = time.monotonic()
    interrupted = False
    _tell(talk, "\n".join(_opening(request)))
    trying = tried(request)
    try:
        for one in trying:
            tally.add(one)
            if one.word != "valid":
                _tell(talk, f"  run {one.number}: {_how(one)}")
            if time.monotonic() - told >= TOLD_EVERY_S:
                told = time.monotonic()
                _tell(talk, f"  {_counts(tally, told - began)}")
    except KeyboardInterrupt:
        interrupted = True
        _tell(talk, "interrupted: what was tried is kept")
    finally:
        trying.close()
    real_s = time.monotonic() - began
    store = stores.create(request.root, f"search-{request.swarm.base.policy}")
    found = tally.first("invalid")
    smallest: Simulated | None = None
    kept: Path | None = None
    if found is not None and not interrupted:
        smallest = simulate(found.spec, found.schedule)
        _same(found, smallest)
        try:
            smallest = _shrunk(request, smallest, talk)
        except KeyboardInterrupt:
            _tell(talk, "interrupted: what was found is kept as it is")
        kept = reproduction.keep(store, smallest, f"search {run_seed(request.seed, found.number)}")
    campaign = _campaign(request, tally, real_s, kept, interrupted=interrupted)
    stores.save(store, CAMPAIGN, campaign)
    _tell(talk, "\n".join(_closing(tally, campaign, store, smallest)))
    if request.as_json:
        print(msgspec.json.format(msgspec.json.encode(campaign), indent=1).decode())
    return judging.INTERRUPTED if interrupted else tally.status


def _same(found: Tried, again: Simulated) -> None:
    assert again.grave == found.grave, (
        f"run {found.number} found {sorted(found.grave)}, and {sorted(again.grave)} when it was run again"
    )


def _shrunk(request: Request, run: Simulated, talk: TextIO) -> Simulated:
    """The run made smaller, if there is time for it and anything that can be taken away."""
    if not request.shrink_limit_s:
        return run
    anomaly = reproduction.ordered(run.grave)[0]
    _tell(talk, f"shrinking: {anomaly} with {shrinking.describe(shrinking.Case(run.spec, run.schedule))}")
    result = shrinking.shrink(
        run,
        anomaly,
        budget=shrinking.Budget(seconds=request.shrink_limit_s),
        tell=lambda text: _tell(talk, f"  {text}"),
    )
    why = "nothing more can be taken away" if result.complete else "the budget ended it"
    _tell(talk, f"  {result.runs} runs in {result.seconds:.0f} s: {why}")
    return result.evidence


def _campaign(
    request: Request, tally: _Tally, real_s: float, kept: Path | None, *, interrupted: bool
) -> Campaign:
    never = coverage.never([tally.coverage], request.swarm.kinds)
    if interrupted:
        stopped = "interrupted"
    elif tally.ended["failed"]:
        stopped = "a bug of jepsen-run"
    elif tally.ended["invalid"] and not request.keep_going:
        stopped = "a finding"
    else:
        stopped = "all runs" if tally.runs == request.runs else "the time limit"
    return Campaign(
        versions=reproduction.versions(),
        seed=request.seed,
        base=request.swarm.base,
        kinds=request.swarm.kinds,
        bounded=request.swarm.bounded,
        runs=tally.runs,
        ended=dict(sorted(tally.ended.items())),
        real_s=round(real_s, 3),
        virtual_s=round(tally.virtual_s, 3),
        kept=tuple(
            Kept(
                number=one.number,
                seed=run_seed(request.seed, one.number),
                ended=one.word,
                findings=reproduction.ordered(one.grave),
                trouble=one.bug or one.trouble,
                spec=one.spec,
                schedule=one.schedule,
            )
            for one in sorted(tally.kept, key=lambda one: one.number)
        ),
        coverage=dict(sorted(tally.coverage.items())),
        never={name: _meaning(name) for name in never},
        stopped=stopped,
        reproduction=None if kept is None else str(kept),
    )


def _meaning(name: str) -> str:
    kind = name.removeprefix("fault/")
    return coverage.REGISTRY.get(name, f"a {kind} took effect")


def _opening(request: Request) -> Iterator[str]:
    swarm, base = request.swarm, request.swarm.base
    limits = [
        *([] if request.runs is None else [f"{request.runs} runs"]),
        *([] if request.time_limit_s is None else [f"{request.time_limit_s:g} s"]),
    ]
    yield (
        f"search: policy {base.policy}, {base.pairs} {'pair' if base.pairs == 1 else 'pairs'}, workload {base.workload}, "
        f"{base.time_limit_s:g} s of load a run, seed {request.seed}; at most {' or '.join(limits) or 'for ever'}, "
        f"{request.jobs} {'process' if request.jobs == 1 else 'processes'}"
    )
    yield f"faults drawn from: {', '.join(swarm.kinds)}"
    if swarm.bounded and not base.nemeses:
        for name, why in {**BEYOND, **CONNECTED}.items():
            if name not in swarm.kinds:
                yield f"  not {name}: {why}"


def _how(one: Tried) -> str:
    if one.bug:
        return f"failed\n{one.bug.rstrip()}"
    found = ", ".join(reproduction.ordered(one.grave))
    return f"INVALID: {found}" if found else f"unknown: {one.trouble}"


def _counts(tally: _Tally, real_s: float) -> str:
    words = ", ".join(f"{count} {word}" for word, count in sorted(tally.ended.items()))
    return f"{tally.runs} runs in {real_s:.0f} s ({words or 'none'}), {tally.virtual_s:.0f} virtual seconds"


def _closing(tally: _Tally, campaign: Campaign, store: Path, smallest: Simulated | None) -> Iterator[str]:
    found = tally.first("invalid")
    if found is not None:
        yield f"FOUND  {', '.join(reproduction.ordered(found.grave))}: run {found.number} of seed {campaign.seed}"
        if smallest is not None:
            yield f"Shrunk   {shrinking.describe(shrinking.Case(smallest.spec, smallest.schedule))}"
            yield f"Now      {', '.join(reproduction.ordered(smallest.grave))}"
            for fault in smallest.schedule.faults:
                yield f"Fault    {msgspec.json.encode(fault).decode()}"
    elif tally.ended["failed"]:
        yield "FAILED  a bug of jepsen-run, which says nothing about the brokers; please report it with the lines above"
    elif tally.ended["valid"]:
        yield f"NOTHING FOUND  in {tally.ended['valid']} runs"
    else:
        yield "UNKNOWN  no run could be decided"
    yield f"Stopped  by {campaign.stopped}: {_counts(tally, campaign.real_s)}"
    bit = {
        name: count
        for name, count in tally.coverage.items()
        if name.startswith("fault/") and name.count("/") == 1
    }
    yield "Bit      " + (
        ", ".join(f"{name[6:]} {count}" for name, count in sorted(bit.items())) or "no fault"
    )
    for number, (name, meaning) in enumerate(campaign.never.items()):
        yield f"{'Never   ' if not number else '        '} {meaning} ({name})"
    yield f"Kept     {store / CAMPAIGN}"
    if campaign.reproduction is not None:
        yield f"Judge    jepsen-run check {shlex.quote(str(store))}"
        yield f"Again    {reproduction.line(Path(campaign.reproduction))}"


def _tell(talk: TextIO, text: str) -> None:
    print(text, file=talk, flush=True)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


__all__ = ["CAMPAIGN", "Campaign", "Request", "Tried", "attempt", "cores", "run", "run_seed", "tried"]
